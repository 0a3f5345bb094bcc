"""Tree scan: which files of a directory are sent? All except `.git`, `job_results` and what ignore files name."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from jobyard.errors import UserError
from jobyard.model.units import show_mib
from jobyard.staging.forward import forwarded_paths
from jobyard.staging.ignore import DIRECTORY, Rules

ALWAYS_LEFT_OUT = frozenset({b".git", b"job_results"})
IGNORE_FILES = (b".gitignore", b".yardignore")  # of one directory the later wins
LIMIT_BYTES = 2 * 1024**3
LIMIT_FILES = 200_000  # more is a home directory, not a program
_NAMED_IN_A_NOTE = 3


class EntryKind(Enum):
    FILE = b"f"
    DIRECTORY = b"d"
    LINK = b"l"


class Entry(NamedTuple):
    """One file, directory or symbolic link of a tree. `path` is relative to the tree, in the file system's bytes."""

    path: bytes
    kind: EntryKind
    mode: int  # permission bits only
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    inode: int = 0
    target: bytes = b""  # of a link


@dataclass(frozen=True)
class Tree:
    """What is sent of `root`: sorted, directories before what is in them. `notes` are for the submitter."""

    root: bytes
    entries: tuple[Entry, ...]
    size: int
    notes: tuple[str, ...] = ()


def scan(
    workdir: str | os.PathLike[str],
    copy_forward: Sequence[str] = (),
    *,
    leave_out: Iterable[str | os.PathLike[str]] = (),
    limit_bytes: int = LIMIT_BYTES,
    limit_files: int = LIMIT_FILES,
) -> Tree:
    """The tree as it stands now; nothing is read but names and ignore files.

    `copy_forward` limits it to these paths, which are sent even if an ignore rule names them. `leave_out` are
    directories that never go along, such as the yard's own. Raises UserError that names the file and the way out.
    """
    root = os.fsencode(os.path.abspath(workdir))
    walk = _Walk(root, frozenset(_identities(leave_out)), limit_bytes, limit_files)
    for path in forwarded_paths(root, copy_forward):
        walk.add(path)
    return Tree(root, tuple(walk.found[path] for path in sorted(walk.found)), walk.size, tuple(walk.notes()))


def shown(path: bytes) -> str:
    """A path as people may see it, in quotes: control characters and bytes that are no text are escaped."""
    return repr(os.fsdecode(path))


@dataclass
class _Walk:
    root: bytes
    left_out: frozenset[tuple[int, int]]
    limit_bytes: int
    limit_files: int
    found: dict[bytes, Entry] = field(default_factory=dict)
    size: int = 0
    outside: list[str] = field(default_factory=list)
    special: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.prefix, self.rules_above = _rules_above(self.root)

    def add(self, path: bytes) -> None:
        """Add the path and all below it that no rule leaves out. b"" is the root."""
        rules = self.rules_above
        if path:
            parents = [path[:at] for at, character in enumerate(path) if character == ord("/")]
            for parent in parents:
                self._keep(parent, os.lstat(os.path.join(self.root, parent)))
            for directory in [b"", *(parent + b"/" for parent in parents)]:
                rules = self._with_own_rules(directory, IGNORE_FILES, rules)
            if not self._keep(path, os.lstat(os.path.join(self.root, path))):
                return
        self._descend(path + b"/" if path else b"", rules)

    def _descend(self, start: bytes, rules: tuple[Rules, ...]) -> None:
        waiting = [(start, rules)]
        while waiting:
            directory, rules = waiting.pop()
            children = self._list(directory)
            names = {child.name for child in children}
            rules = self._with_own_rules(directory, [name for name in IGNORE_FILES if name in names], rules)
            for child in children:
                path = directory + child.name
                mark = DIRECTORY if child.is_dir(follow_symlinks=False) else b""
                if child.name in ALWAYS_LEFT_OUT or self._is_ignored(rules, path + mark, child.name + mark):
                    continue
                try:
                    status = child.stat(follow_symlinks=False)
                except FileNotFoundError:  # deleted since
                    continue
                if self._keep(path, status):
                    waiting.append((path + b"/", rules))

    def _is_ignored(self, rules: tuple[Rules, ...], path: bytes, name: bytes) -> bool:
        full_path = self.prefix + path
        for of_directory in rules:
            verdict = of_directory.verdict(full_path, name)
            if verdict is not None:
                return verdict
        return False

    def _with_own_rules(self, directory: bytes, names: Sequence[bytes], rules: tuple[Rules, ...]) -> tuple[Rules, ...]:
        """Nearer rules come first."""
        for name in names:
            own = _read_rules(os.path.join(self.root, directory + name), len(self.prefix) + len(directory))
            rules = rules if own is None else (own, *rules)
        return rules

    def _list(self, directory: bytes) -> list[os.DirEntry[bytes]]:
        try:
            with os.scandir(os.path.join(self.root, directory)) as entries:
                return list(entries)
        except FileNotFoundError:
            if directory:  # deleted since
                return []
            raise UserError(f"the working directory {shown(self.root)} does not exist") from None
        except OSError as error:
            raise unreadable(directory[:-1] or self.root, error) from None

    def _keep(self, path: bytes, status: os.stat_result) -> bool:
        """Whether it is a directory to go into."""
        if path in self.found:
            return self.found[path].kind is EntryKind.DIRECTORY
        mode, size, target = stat.S_IMODE(status.st_mode) & 0o777, 0, b""
        if stat.S_ISDIR(status.st_mode):
            if (status.st_dev, status.st_ino) in self.left_out:
                return False
            kind = EntryKind.DIRECTORY
        elif stat.S_ISREG(status.st_mode):
            kind, size = EntryKind.FILE, status.st_size
        elif stat.S_ISLNK(status.st_mode):
            kind, mode = EntryKind.LINK, 0o777
            try:
                target = os.readlink(os.path.join(self.root, path))
            except OSError:  # deleted or replaced since
                return False
            if _leads_outside(path, target):
                self.outside.append(f"{shown(path)} -> {shown(target)}")
        else:
            self.special.append(shown(path))
            return False
        self.found[path] = Entry(path, kind, mode, size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, target)
        self.size += size
        if self.size > self.limit_bytes or len(self.found) > self.limit_files:
            raise self._too_much()
        return kind is EntryKind.DIRECTORY

    def _too_much(self) -> UserError:
        by_top = Counter[bytes]()
        for entry in self.found.values():
            by_top[entry.path.partition(b"/")[0]] += entry.size if self.size > self.limit_bytes else 1
        largest, amount = by_top.most_common(1)[0]
        if self.size > self.limit_bytes:
            limit, part = _show_bytes(self.limit_bytes), f"{_show_bytes(amount)} of it"
        else:
            limit, part = f"{self.limit_files} files", f"{amount} of them"
        return UserError(
            f"{shown(self.root)} holds more than {limit}, too much to send ({part} in {shown(largest)}); "
            "add what a task does not need to .yardignore, or name what it needs with --copy-forward"
        )

    def notes(self) -> Iterator[str]:
        if self.outside:
            yield f"links that lead outside the tree are sent as they are: {_some(self.outside)}"
        if self.special:
            yield f"neither file, directory nor link, and not sent: {_some(self.special)}"


def _leads_outside(path: bytes, target: bytes) -> bool:
    """An absolute target counts: on another machine it is another file, if any."""
    where = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return target.startswith(b"/") or where == b".." or where.startswith(b"../")


def _rules_above(root: bytes) -> tuple[bytes, tuple[Rules, ...]]:
    """In a git work tree the rules of the directories above count too: they, and the root's path below its top."""
    top = root
    while not os.path.lexists(os.path.join(top, b".git")):
        if top == os.path.dirname(top):
            return b"", ()
        top = os.path.dirname(top)
    if top == root:
        return b"", ()
    prefix = os.path.relpath(root, top) + b"/"
    rules: tuple[Rules, ...] = ()
    depth = 0
    while depth < len(prefix):
        for name in IGNORE_FILES:
            own = _read_rules(os.path.join(top, prefix[:depth] + name), depth)
            rules = rules if own is None else (own, *rules)
        depth = prefix.index(b"/", depth) + 1
    return prefix, rules


def _read_rules(path: bytes, depth: int) -> Rules | None:
    try:
        # A link is not followed, as in git; and a FIFO in its place must not block us.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if isinstance(error, PermissionError):
            raise unreadable(path, error) from None
        return None
    with open(descriptor, "rb") as file:
        return Rules(file.read(), depth) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def unreadable(path: bytes, error: OSError) -> UserError:
    """What is said about a file or directory that we may not read."""
    way_out = "make it readable, or add it to .yardignore if no task needs it"
    return UserError(f"{shown(path)} cannot be read: {error.strerror}; {way_out}")


def _identities(directories: Iterable[str | os.PathLike[str]]) -> Iterator[tuple[int, int]]:
    for directory in directories:
        try:
            status = os.stat(directory)
        except OSError:
            continue
        yield status.st_dev, status.st_ino


def _some(names: list[str]) -> str:
    listed = ", ".join(sorted(names)[:_NAMED_IN_A_NOTE])
    more = len(names) - _NAMED_IN_A_NOTE
    return f"{listed} and {more} more" if more > 0 else listed


def _show_bytes(amount: int) -> str:
    return show_mib(amount // 1024**2) if amount >= 1024**2 else f"{amount} bytes"
