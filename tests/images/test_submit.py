"""`yard submit --build` with a real server, engine and registry: what runs, and what is refused before it is built."""

from __future__ import annotations

import pytest

from tests.images.servers import Engine
from tests.images.trees import Tree
from tests.marks import long
from tests.yards import TemporaryYard


def test_a_tree_is_built_and_its_image_runs_in_a_container_on_this_machine(
    docker_yard: TemporaryYard, engine: Engine, tree: Tree
) -> None:
    words = ("--build", "--container", "--", "/bin/busybox", "cat", "/built.txt")
    done = docker_yard.run("submit", *words, cwd=tree.path, seconds=120.0)
    assert done.code == 0, done.err
    assert done.out == f"hello from {tree.head}\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--container", "--gpus", "64"], "can never run"),
        *long((["--container", "--after", "nobody"], "there is no job nobody"), ([], "no kubeconfig")),
        (["--on", "kubernets"], "--on kubernets is no cluster; name one (kubernetes)"),
    ],
)
def test_what_the_yard_would_refuse_is_not_built(
    docker_yard: TemporaryYard, tree: Tree, words: list[str], sentence: str
) -> None:
    done = docker_yard.run("submit", "--build", *words, "--", "true", cwd=tree.path)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.count("\n") == 1, "and no line of a build"
