"""With buildx the engine's other builder is used: its log, its digest and its ways to fail are different."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.cluster.build import BUILDX, CannotBuild, build
from tests.images.pushed import PINNED, digest_in
from tests.images.servers import Engine, RegistryServer
from tests.images.trees import Tree
from tests.yards import TemporaryYard

# Without RUN, which BuildKit gives a network in any case, and this engine has none.
DOCKERFILE = "FROM scratch AS main\nARG COMMIT_HASH\nCOPY greeting.txt /greeting.txt\nLABEL commit=$COMMIT_HASH\n"


pytestmark = pytest.mark.timeout(3600)  # the first time it is compiled, beside all that the cluster needs


@pytest.fixture
def yard(docker_yard: TemporaryYard) -> TemporaryYard:
    """`yard` where docker has buildx: ours, compiled when it is absent, or its own."""
    try:
        build(BUILDX)
    except CannotBuild as error:
        if subprocess.run(["docker", "buildx", "version"], capture_output=True).returncode != 0:
            pytest.skip(f"docker has no buildx here: {error}")
    else:
        plugins = docker_yard.home / ".docker" / "cli-plugins"
        plugins.mkdir(parents=True)
        shutil.copy(BUILDX.program("buildx"), plugins / "docker-buildx")
    return docker_yard


@pytest.fixture
def plain_tree(tree: Tree) -> Tree:
    tree.write("Dockerfile", DOCKERFILE)
    tree.commit()
    tree.push()
    return tree


def test_an_image_is_built_pushed_and_found_again(
    yard: TemporaryYard, registry: RegistryServer, plain_tree: Tree
) -> None:
    done = yard.ok("build", cwd=plain_tree.path)
    assert "[internal] load build definition" in done.err, "this is BuildKit's log"
    found = PINNED.fullmatch(done.out)
    assert found is not None
    assert digest_in(registry, "team/my_app", plain_tree.head) == found["digest"]
    again = yard.ok("build", cwd=plain_tree.path)
    assert (again.out, "is used again" in again.err) == (done.out, True)


def test_what_went_wrong_is_told_apart(
    yard: TemporaryYard, engine: Engine, plain_tree: Tree, closed_registry: RegistryServer
) -> None:
    refused = yard.run("build", "--registry", closed_registry.address, cwd=plain_tree.path)
    assert refused.code == 1
    assert f"the registry {closed_registry.address} refused" in refused.err.splitlines()[-1]
    stage = yard.run("build", "--target", "nope", cwd=plain_tree.path)
    assert stage.code == 2
    assert "has no stage 'nope'" in stage.err.splitlines()[-1]
    plain_tree.write("Dockerfile", "FROM scratch\nCOPY no-such-file /\n")
    failed = yard.run("build", "-q", cwd=plain_tree.path)
    assert failed.code == 1
    assert "no-such-file" in failed.err.splitlines()[-1]
