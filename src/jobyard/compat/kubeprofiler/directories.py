"""Directories: what are /custom, /snapshots and /data, in a container and without one?"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass

from jobyard.compat.kubeprofiler.flags import RunFlags
from jobyard.errors import UserError
from jobyard.model.container import Mount

DATASETS = "datasets"  # in the home directory: what KubeProfiler mounts as /data without being asked
FLAGS = {"/custom": "--custom_dir", "/snapshots": "--snapshots_dir"}


@dataclass(frozen=True)
class Directories:
    """Absolute paths on this machine; empty: there is none."""

    custom: str = ""
    snapshots: str = ""
    data: str = ""

    @property
    def by_mount(self) -> dict[str, str]:
        return {"/custom": self.custom, "/snapshots": self.snapshots, "/data": self.data}

    @property
    def env(self) -> dict[str, str]:
        """Where a script finds them, the drop-in `kubernetesdlprofile` among others."""
        return {f"YARD_{mount[1:].upper()}_DIR": path for mount, path in self.by_mount.items() if path}

    @property
    def mounts(self) -> tuple[Mount, ...]:
        return tuple(Mount(path, mount) for mount, path in self.by_mount.items() if path)

    @property
    def env_inside(self) -> dict[str, str]:
        """The same variables where they are mounted."""
        return {f"YARD_{mount[1:].upper()}_DIR": mount for mount, path in self.by_mount.items() if path}


def directories_of(flags: RunFlags, here: str, home: str) -> Directories:
    """Raises UserError for one that is missing, or cannot be written to where that is needed."""
    custom = _directory(flags.custom_dir, here, "--custom_dir")
    snapshots = _directory(flags.snapshots_dir, here, "--snapshots_dir")
    if snapshots and not os.access(snapshots, os.W_OK | os.X_OK):
        raise UserError(f"--snapshots_dir: {snapshots} cannot be written to by you; choose another")
    data = os.path.join(home, DATASETS)
    return Directories(custom, snapshots, data if os.path.isdir(data) else "")


def command_of(script_path: str, directories: Directories, here: str) -> tuple[str, ...]:
    """The script and its arguments, with paths below /custom, /snapshots and /data as they are on this machine."""
    script, *arguments = _words(script_path, directories)
    path = os.path.join(directories.custom or here, _on_host(script, directories))
    if not os.path.isfile(path):
        raise UserError(f"--script_path: there is no file {script!r} (looked for {path}){_hint(script)}")
    return (path, *(_argument(word, directories) for word in arguments))


def words_inside(script_path: str, directories: Directories) -> tuple[str, ...]:
    """The script and its arguments as a container sees them. A script that is not below a mount is the image's own."""
    script, *arguments = _words(script_path, directories)
    if directories.custom and not os.path.isabs(script):
        script = f"/custom/{script}"
    path = _on_host(script, directories)
    if path != script and not os.path.isfile(path):
        raise UserError(f"--script_path: there is no file {script!r} (looked for {path})")
    for word in arguments:
        _argument(word, directories)
    return (script, *arguments)


def _words(script_path: str, directories: Directories) -> list[str]:
    try:
        words = [script_path] if os.path.exists(_on_host(script_path, directories)) else shlex.split(script_path)
    except ValueError as error:
        raise UserError(f"--script_path: cannot read {script_path!r}: {str(error).lower()}") from None
    if not words:
        raise UserError("--script_path: it is empty; write the script, as in /custom/train.py")
    return words


def _hint(script: str) -> str:
    inside = any(script.startswith(f"{mount}/") for mount in FLAGS)
    return "" if inside or not os.path.isabs(script) else "; a script is below /custom, which --custom_dir names"


def _argument(word: str, directories: Directories) -> str:
    name, equals, value = word.partition("=")
    if equals and name.startswith("-"):
        return f"{name}={_on_host(value, directories)}"
    return _on_host(word, directories)


def _on_host(path: str, directories: Directories) -> str:
    for mount, directory in directories.by_mount.items():
        if path == mount or path.startswith(f"{mount}/"):
            if not directory:
                raise UserError(f"--script_path: {path!r} is below {mount}, {_missing(mount)}")
            return directory + path[len(mount) :]
    return path


def _missing(mount: str) -> str:
    if mount in FLAGS:
        return f"and nothing says which directory that is; add {FLAGS[mount]} DIR"
    return f"which is ~/{DATASETS}, and there is none; create it"


def _directory(text: str | None, here: str, flag: str) -> str:
    if text is None:
        return ""
    path = os.path.normpath(os.path.join(here, os.path.expanduser(text)))
    if not text or "\0" in text or not os.path.isdir(path):
        raise UserError(f"{flag}: {text!r} is not a directory on this machine; create it or name another")
    return path
