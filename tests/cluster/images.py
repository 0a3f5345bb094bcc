"""Container images made on this machine: a directory of files is all an image is."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.yards import ROOT, SOURCE

SMALL = "jobyard.test/small:1"
"""A shell and the usual small commands."""
PAUSE = "jobyard.test/pause:1"
"""Holds a pod's namespaces."""


class NoBusybox(Exception):
    """One sentence: images cannot be made here."""


def small_images(archive: Path) -> None:
    """An archive of the two images every test may use."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        _add_shell(tar)
    write_archive(archive, layer.getvalue(), {SMALL: ["/bin/sh"], PAUSE: ["/bin/tail", "-f", "/dev/null"]})


def python_image(archive: Path, name: str, trees: Mapping[str, Path], programs: Sequence[Path] = ()) -> None:
    """The Python that runs the tests, a shell, and directories of this machine at the paths that `trees` says.

    `programs` are those in the trees that are no extension modules: the libraries that they need go along too."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        _add_shell(tar)
        library = Path(sysconfig.get_path("stdlib", vars={"base": sys.base_prefix}))
        program = Path(os.path.realpath(sys.executable))
        tar.add(library, str(library), filter=_without_ballast)
        tar.add(program, str(program))
        extensions = [path for tree in (library / "lib-dynload", *trees.values()) for path in tree.rglob("*.so")]
        for path in _shared_libraries([program, *programs, *extensions]):
            tar.add(os.path.realpath(path), path)
        for alias in ("python", "python3"):
            _add(tar, f"bin/{alias}", link=str(program), kind=tarfile.SYMTYPE)
        for target, source in trees.items():
            tar.add(source, target, filter=_without_ballast)
    write_archive(archive, layer.getvalue(), {name: ["/bin/python3"]})


def git_image(archive: Path, name: str) -> None:
    """A shell, and git as it is here, for remotes that speak git's own protocol."""
    git = Path(shutil.which("git") or "/usr/bin/git")
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        _add_shell(tar)
        tar.add(os.path.realpath(git), "bin/git")
        for path in _shared_libraries([git]):
            tar.add(os.path.realpath(path), path)
    write_archive(archive, layer.getvalue(), {name: ["/bin/git"]})


def kaniko_image(archive: Path, name: str, executor: Path) -> None:
    """As its own image is: nothing but the executor, for the rest of the disk becomes the image that it builds."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for directory in ("kaniko", "kaniko/.docker", "tmp"):
            _add(tar, directory, mode=0o1777 if directory == "tmp" else 0o755, kind=tarfile.DIRTYPE)
        tar.add(executor, "kaniko/executor")
    write_archive(archive, layer.getvalue(), {name: ["/kaniko/executor"]})


def yard_image(archive: Path, name: str, place: Path) -> None:
    """As deploy/Dockerfile makes it: this Python, the `yard` command, and what it needs for a cluster."""
    site, program = place / "site", place / "yard"
    for each in _with_needs("jobyard", "kubernetes"):
        for file in each.files or ():
            source, target = Path(str(each.locate_file(file))), site / file
            if ".." not in file.parts and file.suffix != ".pyc" and source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
    shutil.copytree(SOURCE, site, dirs_exist_ok=True)
    program.write_text('#!/bin/sh\nPYTHONPATH=/opt/site exec python3 -m jobyard.cli.main "$@"\n')
    program.chmod(0o755)
    python_image(archive, name, {"/opt/site": site, "/bin/yard": program})


def _with_needs(*names: str) -> Iterator[Distribution]:
    """These installed distributions, and those that they cannot do without."""
    waiting, seen = list(names), set(names)
    while waiting:
        found = distribution(waiting.pop())
        yield found
        for need in map(Requirement, found.requires or ()):
            if need.name not in seen and (need.marker is None or need.marker.evaluate({"extra": ""})):
                seen.add(need.name)
                waiting.append(need.name)


def _without_ballast(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    ballast = re.search(
        r"/(__pycache__|test|tests|site-packages|idlelib|tkinter|ensurepip|config-[^/]*)(/|$)", entry.name
    )
    return None if ballast else entry


def _shared_libraries(programs: Sequence[Path]) -> list[str]:
    """What the loader would load for these, and the loader itself."""
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True).stdout
    return sorted(set(re.findall(r"(/\S+) \(0x", said)))


def write_archive(archive: Path, layer: bytes, images: Mapping[str, Sequence[str]]) -> None:
    """Images of one layer, a tar, that differ in their command only, in the form of `docker save`."""
    digest = hashlib.sha256(layer).hexdigest()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    manifest = []
    with tarfile.open(archive, "w") as tar:
        _add(tar, f"{digest}.tar", layer)
        for name, command in images.items():
            config = {
                "architecture": machine,
                "os": "linux",
                "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Cmd": list(command)},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            }
            data = json.dumps(config).encode()
            path = f"{hashlib.sha256(data).hexdigest()}.json"
            _add(tar, path, data)
            manifest.append({"Config": path, "RepoTags": [name], "Layers": [f"{digest}.tar"]})
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _add_shell(tar: tarfile.TarFile) -> None:
    busybox = _busybox()
    applets = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split()
    for directory in ("bin", "etc", "tmp", "var"):
        _add(tar, directory, mode=0o1777 if directory == "tmp" else 0o755, kind=tarfile.DIRTYPE)
    _add(tar, "bin/busybox", busybox.read_bytes(), mode=0o755)
    _add(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
    for applet in applets:
        if applet not in ("busybox", "bash"):
            _add(tar, f"bin/{applet}", link="busybox", kind=tarfile.SYMTYPE)
    if bash := shutil.which("bash"):  # what a job's shell commands are for
        tar.add(os.path.realpath(bash), "bin/bash")
        for path in _shared_libraries([Path(bash)]):
            tar.add(os.path.realpath(path), path)


def _add(
    tar: tarfile.TarFile, name: str, data: bytes = b"", *, mode: int = 0o644, link: str = "", kind: bytes = b"0"
) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.type, entry.linkname = len(data), mode, kind, link
    tar.addfile(entry, io.BytesIO(data))


def _busybox() -> Path:
    done = subprocess.run([ROOT / "tools/need", "busybox-static", "busybox"], capture_output=True, text=True)
    found = shutil.which("busybox")
    if done.returncode != 0 or found is None:
        raise NoBusybox(done.stderr.strip() or "There is no busybox here.")
    return Path(found)
