"""File hash cache: which files did we hash before, and have not changed since? As git does in its index."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from jobyard.staging.tree import Entry, EntryKind, Tree

_FORM = 1
# A change within one tick of the file system's clock leaves the times as they were (FAT ticks every two seconds), so a
# file that changed just before it was hashed is not trusted: it is read again next time.
_TICK_NS = 2_000_000_000


class KnownFiles:
    """Digests by path, valid while size, times and inode stay the same. Only a cache: rebuilt when broken."""

    def __init__(self, store: Path, root: bytes) -> None:
        self._path = store / "known" / f"{hashlib.sha256(root).hexdigest()[:24]}.json"
        self._known = self._load()
        self._began_ns = time.time_ns()

    def digest_of(self, entry: Entry) -> str | None:
        known = self._known.get(os.fsdecode(entry.path))
        return str(known[-1]) if known is not None and known[:-1] == _stamp(entry) else None

    def remember(self, tree: Tree, digests: dict[bytes, str]) -> None:
        """Best effort, and nothing at all when nothing changed."""
        fresh = {
            os.fsdecode(entry.path): [*_stamp(entry), digests[entry.path]]
            for entry in tree.entries
            if entry.kind is EntryKind.FILE
            and entry.path in digests
            and max(entry.mtime_ns, entry.ctime_ns) < self._began_ns - _TICK_NS
        }
        if fresh == self._known:
            return
        temporary = self._path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps({"form": _FORM, "files": fresh}, separators=(",", ":")))
            temporary.replace(self._path)

    def _load(self) -> dict[str, list[int | str]]:
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found["files"] if isinstance(found, dict) and found.get("form") == _FORM else {}


def _stamp(entry: Entry) -> list[int | str]:
    return [entry.size, entry.mtime_ns, entry.ctime_ns, entry.inode]
