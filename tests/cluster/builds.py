"""What a build in the cluster needs: kaniko and git as images, a git daemon and a registry, where pods reach them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cluster.build import KANIKO, build
from tests.cluster.cluster import Cluster
from tests.cluster.images import git_image, kaniko_image
from tests.cluster.processes import Program, free_port
from tests.images.servers import registry_server
from tests.images.trees import Tree

KANIKO_IMAGE, GIT_IMAGE = "jobyard.test/kaniko:1", "jobyard.test/git:1"
PULLED = "registry.yard.test"
"""The registry's name for the node alone: nobody else could find it."""


class BuildPlace(NamedTuple):
    registry: str  # HOST:PORT, for pods and for this machine
    trees: Path
    daemon: str  # git://HOST:PORT

    @property
    def env(self) -> dict[str, str]:
        return {
            "YARD_REGISTRY": f"http://{self.registry}/team",
            "YARD_PULL_REGISTRY": f"{PULLED}/team",
            "YARD_KANIKO_IMAGE": KANIKO_IMAGE,
            "YARD_GIT_IMAGE": GIT_IMAGE,
        }

    def tree(self, name: str) -> Tree:
        """A repository whose remote is the daemon's, with a Dockerfile, pushed."""
        tree = Tree(self.trees / name)
        tree.git("remote", "set-url", "origin", f"{self.daemon}/{name}/{tree.bare.name}")
        tree.add_dockerfile()
        tree.commit("a Dockerfile")
        tree.push()
        return tree


@contextmanager
def build_place(cluster: Cluster) -> Iterator[BuildPlace]:
    """Raises CannotBuild where kaniko cannot be had."""
    assert cluster.node is not None
    executor = build(KANIKO) / "bin" / "executor"
    host = cluster.network.address
    with tempfile.TemporaryDirectory(prefix="yg-") as name, registry_server(host=host) as registry:
        directory = Path(name)
        archive = directory / "image.tar"
        git_image(archive, GIT_IMAGE)
        cluster.node.import_images(archive)
        kaniko_image(archive, KANIKO_IMAGE, executor)
        cluster.node.import_images(archive)
        cluster.node.know_registry(PULLED, registry.address)
        port = free_port(host)
        trees = directory / "trees"
        trees.mkdir()
        words = ["git", "daemon", f"--listen={host}", f"--port={port}", f"--base-path={trees}", "--export-all"]
        daemon = Program([*words, "--reuseaddr", "--enable=receive-pack", str(trees)], directory / "daemon.log")
        try:
            yield BuildPlace(registry.address, trees, f"git://{host}:{port}")
        finally:
            daemon.stop()
