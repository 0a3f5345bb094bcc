"""A real container engine for tests: a dockerd of their own, with images that were made here."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.images import PAUSE, SMALL, python_image, small_images
from tests.waiting import PATIENCE_SECONDS
from tests.yards import ROOT

PYTHON = "jobyard.test/python:1"
"""The Python that runs the tests, and a shell."""


class NoEngine(Exception):
    """One sentence: no engine can be started here."""


class Engine:
    """A dockerd with directories of its own; nothing that it made is left when it ends."""

    def __init__(self, root: Path, process: subprocess.Popen[bytes]) -> None:
        self.root = root
        self.process = process

    @property
    def address(self) -> str:
        return f"unix://{self.root}/docker.sock"

    @property
    def command(self) -> str:
        """As JOBYARD_CONTAINER_RUNTIME wants it."""
        return f"{docker()} -H {self.address}"

    def call(self, *words: str, input: bytes = b"", check: bool = True) -> str:
        """What the client says to these words."""
        done = subprocess.run([docker(), "-H", self.address, *words], input=input, capture_output=True, timeout=300)
        assert not check or done.returncode == 0, f"docker {' '.join(words)}: {done.stderr.decode()}"
        return done.stdout.decode()

    def containers(self, *words: str) -> list[str]:
        """The names of all containers there are, whatever their state."""
        return self.call("ps", "--all", "--format", "{{.Names}}", *words).split()

    def load_small(self) -> str:
        """An image with a shell and the usual small commands."""
        if SMALL not in self._images():
            archive = self.root / "small.tar"
            small_images(archive)
            self.call("load", "--input", str(archive))
            archive.unlink()
        return SMALL

    def load_python(self) -> str:
        """The Python that runs the tests."""
        if PYTHON not in self._images():
            archive = self.root / "python.tar"
            python_image(archive, PYTHON, {})
            self.call("import", "--change", "ENV PATH=/usr/bin:/bin", "-", PYTHON, input=_only_layer(archive))
            archive.unlink()
        return PYTHON

    def _images(self) -> set[str]:
        return set(self.call("images", "--format", "{{.Repository}}:{{.Tag}}").split())

    def stop(self) -> None:
        for name in self.containers():
            self.call("rm", "--force", name, check=False)
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def docker() -> str:
    """Debian's own client where there is one: it is as old as the engine."""
    return "/usr/bin/docker" if os.access("/usr/bin/docker", os.X_OK) else shutil.which("docker") or "docker"


def start_engine(*options: str) -> Engine:
    """Raises NoEngine."""
    if os.getuid() != 0:
        raise NoEngine("dockerd needs root.")
    need = subprocess.run([ROOT / "tools/need", "docker.io", "dockerd"], capture_output=True, text=True)
    if need.returncode != 0 or shutil.which("dockerd") is None:
        raise NoEngine(need.stderr.strip() or "There is no dockerd here.")
    root = Path(tempfile.mkdtemp(prefix="yd-", dir="/tmp"))
    words = ["dockerd", "--data-root", f"{root}/data", "--exec-root", f"{root}/exec", "--pidfile", f"{root}/pid"]
    words += ["--host", f"unix://{root}/docker.sock", *(options or ("--bridge=none", "--iptables=false"))]
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    engine = Engine(root, process)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not engine.call("version", "--format", "{{.Server.Version}}", check=False).strip():
        if process.poll() is not None or time.monotonic() > deadline:
            said = (root / "log").read_text()[-500:]
            process.kill()
            _remove(root)
            raise NoEngine(f"dockerd did not start: {said}")
        time.sleep(0.05)
    return engine


@contextmanager
def running_engine(*options: str) -> Iterator[Engine]:
    """A dockerd for as long as this is entered; without any the test is skipped."""
    try:
        engine = start_engine(*options)
    except NoEngine as error:
        pytest.skip(str(error))
    try:
        yield engine
    finally:
        engine.stop()
        _remove(engine.root)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """One dockerd for all tests of a session."""
    with running_engine() as engine:
        yield engine


class Podman:
    """Podman with storage of its own. It has no engine that would have to run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        places = f"--root {root}/root --runroot {root}/run --tmpdir {root}/tmp"
        # runc: crun refuses the cgroups of machines that have both versions.
        self.command = (
            f"podman {places} --storage-driver overlay --cgroup-manager cgroupfs --runtime {shutil.which('runc')}"
        )
        settings = root / "containers.conf"
        settings.write_text('[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n')
        self.env = {"CONTAINERS_CONF": str(settings)}

    def call(self, *words: str) -> str:
        done = subprocess.run(
            [*self.command.split(), *words], capture_output=True, timeout=300, env={**os.environ, **self.env}
        )
        assert done.returncode == 0, f"podman {' '.join(words)}: {done.stderr.decode()}"
        return done.stdout.decode()

    def containers(self) -> list[str]:
        return self.call("ps", "--all", "--format", "{{.Names}}").split()

    def load_small(self) -> str:
        small_images(self.root / "small.tar")
        self.call("load", "--input", str(self.root / "small.tar"))
        return SMALL


@contextmanager
def podman() -> Iterator[Podman]:
    """For as long as this is entered; where it cannot be had the test is skipped."""
    if os.getuid() != 0:
        pytest.skip("This storage needs root.")
    for package, program in (("podman", "podman"), ("catatonit", "catatonit"), ("runc", "runc")):
        need = subprocess.run([ROOT / "tools/need", package, program], capture_output=True, text=True)
        if need.returncode != 0:
            pytest.skip(need.stderr.strip())
    root = Path(tempfile.mkdtemp(prefix="yp-", dir="/tmp"))
    found = Podman(root)
    try:
        yield found
    finally:
        for name in found.containers():
            found.call("rm", "--force", name)
        _remove(root)


def _remove(root: Path) -> None:
    """With what is still mounted below: engines leave their network namespace."""
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for path in reversed([path for path in mounted if path.startswith(f"{root}/")]):
        subprocess.run(["umount", "--lazy", path], capture_output=True)
    shutil.rmtree(root)


def _only_layer(archive: Path) -> bytes:
    """The files of an image of one layer, each of them once: an engine wants no file twice."""
    with tarfile.open(archive) as image:
        (name,) = [member.name for member in image.getmembers() if member.name.endswith(".tar")]
        content = image.extractfile(name)
        assert content is not None
        data, seen = io.BytesIO(), set()
        with tarfile.open(fileobj=io.BytesIO(content.read())) as layer, tarfile.open(fileobj=data, mode="w") as once:
            for member in layer.getmembers():
                path = member.name.strip("/")
                if path not in seen:
                    seen.add(path)
                    once.addfile(member, layer.extractfile(member) if member.isfile() else None)
    return data.getvalue()


__all__ = [
    "PAUSE",
    "PYTHON",
    "SMALL",
    "Engine",
    "NoEngine",
    "Podman",
    "engine",
    "podman",
    "running_engine",
    "start_engine",
]
