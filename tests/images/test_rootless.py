"""Who is not root builds too, with buildah and a range of ids of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import MakeYard
from tests.images.pushed import PINNED, digest_in
from tests.images.servers import RegistryServer
from tests.images.trees import Tree
from tests.packages import why_lacking
from tests.yards import TemporaryYard

AS_NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
# A user's ranges stand in /etc: there for this one call, in a mount namespace of its own.
WITH_RANGES = 'mount --bind "$0" /etc/subuid && mount --bind "$0" /etc/subgid && exec "$@"'


@pytest.fixture
def yard(make_yard: MakeYard, registry: RegistryServer) -> TemporaryYard:
    if os.getuid() != 0:
        pytest.skip("only root can become another user, and give it ids")
    if problem := why_lacking("images", ("buildah", "uidmap", "util-linux")):
        pytest.skip(problem)
    if subprocess.run([*AS_NOBODY, sys.executable, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip("others than root cannot run the Python of these tests")
    yard = make_yard(STORAGE_DRIVER="vfs", BUILDAH_ISOLATION="chroot", YARD_REGISTRY=f"{registry.address}/nobody")
    ranges = yard.root / "ranges"
    ranges.write_text("nobody:200000:65536\n")
    yard.prefix = ["unshare", "--mount", "sh", "-c", WITH_RANGES, str(ranges), *AS_NOBODY]
    return yard


def test_a_user_without_any_rights_builds_and_pushes(yard: TemporaryYard, registry: RegistryServer) -> None:
    tree = Tree(yard.work)
    tree.add_dockerfile()
    head = tree.commit("a Dockerfile")
    tree.push()
    _give_to_nobody(yard.root)
    done = yard.ok("build", "--builder", "podman", cwd=tree.path)
    found = PINNED.fullmatch(done.out)
    assert found is not None
    assert digest_in(registry, "nobody/my_app", head) == found["digest"]
    assert f"hello from {head}" in done.err


def _give_to_nobody(directory: Path) -> None:
    for place, directories, files in os.walk(directory):
        for name in (".", *directories, *files):
            shutil.chown(Path(place, name), "nobody", "nogroup")
