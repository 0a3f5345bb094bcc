"""What `yard build` refuses, in one sentence each. None of it needs an engine: it is refused before one is asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cluster.processes import free_port
from tests.conftest import MakeYard
from tests.images.servers import RegistryServer
from tests.images.trees import Tree
from tests.yards import Done, TemporaryYard


def only_sentence(done: Done) -> str:
    """Of a call that was a bad request."""
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1, done.err
    return done.err


def test_a_directory_that_is_not_in_a_git_tree(own_yard: TemporaryYard) -> None:
    own_yard.write("Dockerfile", "FROM scratch\n")
    done = own_yard.run("build", "--registry", "registry.invalid")
    assert "is not in a git tree" in only_sentence(done)


def test_a_machine_without_git(own_yard: TemporaryYard, tmp_path: Path) -> None:
    own_yard.write("Dockerfile", "FROM scratch\n")
    done = own_yard.run("build", "--registry", "registry.invalid", env={"PATH": str(tmp_path)})
    assert "git is not installed" in only_sentence(done)


def test_a_directory_without_a_dockerfile(own_yard: TemporaryYard, tree: Tree) -> None:
    done = own_yard.run("build", "--registry", "registry.invalid", "--context", ".git", cwd=tree.path)
    assert "there is no Dockerfile in" in only_sentence(done)


def test_no_registry_at_all(own_yard: TemporaryYard, tree: Tree) -> None:
    assert "no registry to push to; name one with --registry" in only_sentence(own_yard.run("build", cwd=tree.path))


def test_a_registry_that_does_not_answer_is_noticed_before_the_build(own_yard: TemporaryYard, tree: Tree) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = own_yard.run("build", "--registry", address, cwd=tree.path)
    assert f"the registry {address} cannot be reached: Connection refused" in only_sentence(done)


@pytest.mark.parametrize(
    ("builder", "sentence"),
    [("docker", "docker is not installed here"), ("podman", "neither buildah nor podman is installed here")],
)
def test_a_machine_without_the_builder(
    make_yard: MakeYard, registry: RegistryServer, tree: Tree, tmp_path: Path, builder: str, sentence: str
) -> None:
    git = shutil.which("git")
    assert git is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(git)
    yard = make_yard(PATH=str(tmp_path / "bin"))
    done = yard.run("build", "--builder", builder, "--registry", f"{registry.address}/nobody", cwd=tree.path)
    assert sentence in only_sentence(done)
