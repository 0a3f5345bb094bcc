"""A docker engine and a registry for the whole run, started by the first test that asks for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import DidNotStart
from tests.conftest import MakeYard
from tests.images.servers import Engine, RegistryServer, docker_engine, registry_server
from tests.images.trees import Tree
from tests.packages import why_lacking
from tests.yards import TemporaryYard

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    if os.getuid() != 0:
        pytest.skip("dockerd starts as root only")
    if problem := why_lacking("images", ("docker.io", "busybox-static", "git", "util-linux")):
        pytest.skip(problem)
    try:
        with docker_engine() as engine:
            yield engine
    except DidNotStart as error:
        pytest.skip(f"there is no docker engine: {error}")


@pytest.fixture(scope="session")
def registry() -> Iterator[RegistryServer]:
    if problem := why_lacking("images", ("docker-registry", "util-linux")):
        pytest.skip(problem)
    with registry_server() as registry:
        yield registry


@pytest.fixture(scope="session")
def closed_registry() -> Iterator[RegistryServer]:
    """Only ada comes in, whose word is sesame."""
    if problem := why_lacking("images", ("docker-registry", "util-linux")):
        pytest.skip(problem)
    with registry_server(users={"ada": "sesame"}) as registry:
        yield registry


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A repository that can be built."""
    if problem := why_lacking("images", ("busybox-static", "git")):
        pytest.skip(problem)
    tree = Tree(tmp_path)
    tree.add_dockerfile()
    tree.commit("a Dockerfile")
    tree.push()
    return tree


@pytest.fixture
def docker_yard(make_yard: MakeYard, engine: Engine, registry: RegistryServer) -> TemporaryYard:
    """`yard` with docker as its builder."""
    return make_yard(DOCKER_HOST=engine.host, YARD_REGISTRY=f"{registry.address}/team")


@pytest.fixture
def podman_yard(make_yard: MakeYard, registry: RegistryServer, tmp_path: Path) -> TemporaryYard:
    """`yard` with buildah, which needs neither a daemon nor a container here."""
    if problem := why_lacking("images", ("buildah",)):
        pytest.skip(problem)
    storage = tmp_path / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/graph"\nrunroot = "{tmp_path}/run"\n')
    return make_yard(
        CONTAINERS_STORAGE_CONF=str(storage),
        STORAGE_DRIVER="vfs",
        BUILDAH_ISOLATION="chroot",
        YARD_REGISTRY=f"{registry.address}/team",
    )
