"""A real Ray in an image of the test cluster: from PyPI, installed once and kept by version, like its other programs.

Heavier than the stand-in of rays.py by far (300 MB, and three Ray nodes of a dozen processes each on this machine).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.cluster.build import CannotBuild, cache, locked
from tests.cluster.cluster import Cluster
from tests.cluster.images import python_image
from tests.cluster.rays import WGET

VERSION = "2.60.0"
IMAGE = f"jobyard.test/ray:{VERSION}"
WANTED = f"ray[default]=={VERSION}"
SCRIPTS = {
    "/usr/local/bin/ray": '#!/bin/sh\nPYTHONPATH=/opt/ray exec python3 -m ray.scripts.scripts "$@"\n',
    "/usr/local/bin/wget": WGET,
}
PROGRAMS = ("ray/core/src/ray/gcs/gcs_server", "ray/core/src/ray/raylet/raylet")


def import_ray(cluster: Cluster) -> None:
    """Raises CannotBuild where there is no Ray for this Python."""
    assert cluster.node is not None
    library = installed_ray()
    with tempfile.TemporaryDirectory() as directory:
        trees = {"/opt/ray": library}
        for target, text in SCRIPTS.items():
            path = Path(directory) / Path(target).name
            path.write_text(text)
            path.chmod(0o755)
            trees[target] = path
        archive = Path(directory) / "image.tar"
        python_image(archive, IMAGE, trees, [library / program for program in PROGRAMS])
        cluster.node.import_images(archive)


def installed_ray() -> Path:
    """The directory that it is imported from. Two tests at once: the second waits."""
    key = hashlib.sha256(f"{WANTED} {sys.version}".encode()).hexdigest()[:16]
    home = cache() / f"cluster-ray-{key}"
    with locked(home.with_suffix(".lock")):
        if not (home / "ready").exists():
            print(f"Installing Ray {VERSION} once, 300 MB, into {home}.", file=sys.stderr)
            shutil.rmtree(home, ignore_errors=True)  # of one that was killed
            _install(home)
            (home / "ready").touch()
    return home


def _install(home: Path) -> None:
    words = ["--quiet", "--disable-pip-version-check", "--no-compile", "--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "install", *words, "--target", str(home), WANTED]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        why = (done.stderr.strip() or "it did not say why").splitlines()[-1]
        raise CannotBuild(f"`pip install '{WANTED}'` failed: {why}")
