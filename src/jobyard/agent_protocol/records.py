"""Attempt records: what is written down about one attempt, and where?"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from typing import List, NamedTuple, Optional, Tuple, Union

_ATTEMPT = re.compile(r"(?=[^/\0]{1,300}\Z)([A-Za-z0-9_][A-Za-z0-9_.:@+-]*)\.([0-9]{1,15})\.([0-9]{1,9})")

_TRIES = 10


class Paths(NamedTuple):
    """The files of one attempt; all absolute when the state directory is."""

    directory: str
    record: str
    out: str
    err: str
    tmp: str
    output: str
    error: str
    spool: str
    checkpoint: str
    work: str
    results: str
    stop: str


def split_attempt(attempt_id: str) -> Tuple[str, int, int]:
    """`<job>.<task>.<number>` in its parts. Raises ValueError for what is none or would lead out of the state."""
    match = _ATTEMPT.fullmatch(attempt_id)
    if not match:
        raise ValueError("not an attempt id: %r" % (attempt_id,))
    return match[1], int(match[2]), int(match[3])


def paths(state_dir: str, attempt_id: str) -> Paths:
    """Where everything of this attempt lies. Touches no disk; raises ValueError for a malformed id."""
    job, task, number = split_attempt(attempt_id)
    directory = "%s/jobs/%s/%d" % (state_dir, job, task // 1000)
    stem = "%s/%d.%d." % (directory, task, number)
    return Paths(
        directory,
        stem + "rec",
        stem + "out",
        stem + "err",
        stem + "tmp",
        stem + "output",
        stem + "error",
        stem + "spool",
        "%s/jobs/%s/checkpoint/%d" % (state_dir, job, task),
        stem + "work",
        stem + "results",
        stem + "stop",
    )


def shared_checkpoint(files: Paths) -> Paths:
    """The same for a task of a gang: all tasks of its job have one checkpoint directory."""
    return files._replace(checkpoint=os.path.dirname(files.checkpoint) + "/0")


class Claim(NamedTuple):
    """Which lane has the attempt, and how long it may run."""

    boot_id: str
    lane_pid: int
    lane_start_time: int
    timeout: Optional[float]
    grace: Optional[float]


class Start(NamedTuple):
    """The task's process. Its start time is the kernel's: with the pid it means this process and no later one."""

    pid: int
    start_time: int
    started_at: float


class Ending(NamedTuple):
    ended_at: float
    exit_code: Optional[int]
    signal: Optional[int]
    reason: Optional[str]  # in the words of the protocol; None: the exit code or the signal says it all
    peak_kib: int = 0


class Collection(NamedTuple):
    """Results are gathered when it is over."""

    snapshot: str  # of the tree that it runs in a copy of; empty: without one
    copy_back: List[str]


class RecordedContainer(NamedTuple):
    """It runs in a container, which may outlive its process."""

    name: str
    runtime: List[str]  # the command that ends it


class MemoryLimit(NamedTuple):
    """It is ended if it uses more."""

    mib: int
    group: str  # the cgroup that sees to that; empty: an agent does


class Record:
    """What a record says so far, by the kinds of its lines. What is None has not been written."""

    def __init__(self) -> None:
        self.claim: Optional[Claim] = None
        self.start: Optional[Start] = None
        self.ending: Optional[Ending] = None
        self.collection: Optional[Collection] = None
        self.container: Optional[RecordedContainer] = None
        self.limit: Optional[MemoryLimit] = None
        self.over_kib = 0  # so much it used when an agent ended it
        self.withdrawn_at: Optional[float] = None


def parse(data: bytes) -> Record:
    """What these bytes say. Never raises: a torn or unreadable line is not there yet; the first of a kind counts."""
    record = Record()
    for line in data.split(b"\n")[:-1]:  # what follows the last newline is not there yet
        try:
            _take(record, line.decode("ascii").split(" "))
        except (ValueError, IndexError, OverflowError, TypeError, RecursionError):
            continue
    return record


def _take(record: Record, words: List[str]) -> None:
    kind = words[0]
    if kind == "claim" and record.claim is None:
        record.claim = _claim(words)
    elif kind == "start" and record.start is None:
        record.start = parse_start(words[1:])
    elif kind == "end" and record.ending is None:
        record.ending = parse_end(words[1:])
    elif kind == "collect" and record.collection is None:
        copy_back = [str(path) for path in json.loads(words[2])]
        record.collection = Collection("" if words[1] == "-" else words[1], copy_back)
    elif kind == "contain" and record.container is None:
        record.container = RecordedContainer(words[1], [str(word) for word in json.loads(words[2])])
    elif kind == "limit":  # the last counts: a lane that may not enter a cgroup does without
        record.limit = MemoryLimit(int(words[1]), "" if words[2] == "-" else json.loads(words[2]))
    elif kind == "over" and not record.over_kib:
        record.over_kib = int(words[1])
    elif kind == "withdrawn" and record.withdrawn_at is None:
        record.withdrawn_at = float(words[1])


def _claim(words: List[str]) -> Claim:
    timeout = _number(words[4]) if len(words) > 4 else None
    grace = _number(words[5]) if len(words) > 5 else None
    return Claim(words[1], int(words[2]), int(words[3]), timeout, grace)


def parse_start(words: List[str]) -> Start:
    """What follows `start` in a record, or the id in a lane's report. Raises ValueError or IndexError."""
    return Start(int(words[0]), int(words[1]), float(words[2]))


def parse_end(words: List[str]) -> Ending:
    """The words of `end_words`. Raises ValueError, IndexError or OverflowError."""
    exit_code, signal = _number(words[1]), _number(words[2])
    return Ending(
        float(words[0]),
        None if exit_code is None else int(exit_code),
        None if signal is None else int(signal),
        words[4] if len(words) > 4 and words[4] else None,
        int(words[3]),
    )


def _number(word: str) -> Optional[float]:
    return None if word == "-" else float(word)


def read(path: str) -> Optional[Record]:
    """The record at this path; None when nobody has claimed the attempt."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return parse(os.read(descriptor, 65536))
    finally:
        os.close(descriptor)


def is_there(path: str) -> bool:
    """Whether somebody has claimed the attempt. Raises OSError where that cannot be told now."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def create(path: str) -> int:
    """Claim an attempt: a descriptor to append to. Raises FileExistsError when it is somebody else's."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            return os.open(path, flags, 0o600)
        with suppress(FileExistsError):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # a packer may remove it before we are in it
    return os.open(path, flags, 0o600)


def claim_line(boot_id: str, pid: int, start_time: int, timeout: Optional[float], grace: Optional[float]) -> bytes:
    return b"claim %s %d %d %s %s\n" % (boot_id.encode(), pid, start_time, _word(timeout), _word(grace))


def collect_line(snapshot: str, copy_back: List[str]) -> bytes:
    return ("collect %s %s\n" % (snapshot or "-", _one_word(copy_back))).encode()


def contain_line(name: str, runtime: List[str]) -> bytes:
    return ("contain %s %s\n" % (name, _one_word(runtime))).encode()


def limit_line(limit_mib: int, group: str) -> bytes:
    return ("limit %d %s\n" % (limit_mib, _one_word(group) if group else "-")).encode()


def _one_word(value: Union[str, List[str]]) -> str:
    return json.dumps(value, separators=(",", ":")).replace(" ", "\\u0020")


def start_line(pid: int, start_time: int, now: float) -> bytes:
    return b"start %d %d %.6f\n" % (pid, start_time, now)


def end_words(ending: Ending) -> bytes:
    """The end of an attempt, without a newline: the same words in the record and in the lane's report."""
    words = b"%.6f %s %s %d" % (ending.ended_at, _word(ending.exit_code), _word(ending.signal), ending.peak_kib)
    return words + b" " + ending.reason.encode() if ending.reason else words


def _word(value: Optional[float]) -> bytes:
    return b"-" if value is None else b"%g" % value if isinstance(value, float) else b"%d" % value


def append_end(path: str, now: float, reason: str) -> None:
    """Close a record whose writer is gone. What it said before stays."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        # The newline first: the dead writer may have left half a line.
        os.write(descriptor, b"\nend " + end_words(Ending(now, None, None, reason)) + b"\n")
    finally:
        os.close(descriptor)


def append_over(path: str, used_kib: int) -> None:
    """It is about to be ended because it uses so much. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(descriptor, b"over %d\n" % used_kib)
    finally:
        os.close(descriptor)


def withdraw(path: str, now: float) -> bool:
    """Make sure that an attempt never starts. False: somebody has claimed it already."""
    try:
        descriptor = create(path)
    except FileExistsError:
        return False
    os.write(descriptor, b"withdrawn %.6f\n" % now)
    os.close(descriptor)
    return True


def first_line(path: str) -> str:
    """The first line of a small file that a task wrote; empty if there is none. Follows no link, waits for no pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text = os.read(descriptor, 4096).decode("utf-8", "replace").lstrip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return text.split("\n", 1)[0].strip()[:1000]
