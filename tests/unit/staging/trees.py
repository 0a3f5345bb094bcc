"""Trees of files for the tests of this package."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Content = bytes | str | None  # a file, a link's target, an empty directory


def plant(root: Path, files: Mapping[Any, Content]) -> Path:
    """By path, text or bytes: files (bytes), links (a string: the target) and empty directories (None)."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = os.path.join(os.fsencode(root), os.fsencode(name))
        os.makedirs(path if content is None else os.path.dirname(path), exist_ok=True)
        if isinstance(content, str):
            os.symlink(os.fsencode(content), path)
        elif content is not None:
            with open(path, "wb") as file:
                file.write(content)
    return root


def seen(root: Path) -> dict[bytes, tuple[str, int, bytes]]:
    """All that is below `root`: kind, permission bits and content or target, by path."""
    top = os.fsencode(root)
    found = {}
    for directory, directories, files in os.walk(top):
        for name in [*directories, *files]:
            path = os.path.join(directory, name)
            found[os.path.relpath(path, top)] = _look(path)
    return found


def _look(path: bytes) -> tuple[str, int, bytes]:
    status = os.lstat(path)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return "link", 0o777, os.readlink(path)
    if stat.S_ISDIR(status.st_mode):
        return "directory", mode, b""
    with open(path, "rb") as file:
        return "file", mode, file.read()
