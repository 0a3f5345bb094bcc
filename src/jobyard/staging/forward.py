"""Forwarded paths: what do the paths of --copy-forward name in the tree?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate

from jobyard.errors import UserError


def forwarded_paths(root: bytes, given: Sequence[str]) -> list[bytes]:
    """Each as a path relative to `root`, with b"" for the root itself; nothing given: the root. Raises UserError."""
    return [_existing(root, path) for path in given] or [b""]


def _existing(root: bytes, given: str) -> bytes:
    below = _below(root, given)
    if not os.path.lexists(os.path.join(root, below)):
        raise UserError(f"copy-forward: {given!r} does not exist in {os.fsdecode(root)!r}")
    for parent in accumulate(below.split(b"/")[:-1], lambda left, right: left + b"/" + right):
        if os.path.islink(os.path.join(root, parent)):
            link = os.fsdecode(parent)
            raise UserError(f"copy-forward: {given!r} leads through the link {link!r}; name the real path")
    return below


def _below(root: bytes, given: str) -> bytes:
    if not given:
        raise UserError("copy-forward: the path is empty; write . for the working directory")
    path = os.path.normpath(os.path.join(root, os.fsencode(os.path.expanduser(given))))
    if not _is_within(root, path):  # an absolute path, while the working directory was reached through a link
        root = os.path.realpath(root)
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    if not _is_within(root, path):
        raise UserError(
            f"copy-forward: {given!r} lies outside the working directory {os.fsdecode(root)!r}; "
            "submit from a directory that holds both"
        )
    return b"" if path == root else os.path.relpath(path, root)


def _is_within(root: bytes, path: bytes) -> bool:
    return path == root or path.startswith(root.rstrip(b"/") + b"/")
