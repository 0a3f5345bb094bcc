"""What is written down about one attempt, and where?"""

from __future__ import annotations

import json
import os
import re
from typing import List, NamedTuple, Optional, Tuple, Union

_ATTEMPT = re.compile(r"(?=[^/\0]{1,300}\Z)([A-Za-z0-9_][A-Za-z0-9_.:@+-]*)\.([0-9]{1,15})\.([0-9]{1,9})")


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


class Ending(NamedTuple):
    ended_at: float
    exit_code: Optional[int]
    signal: Optional[int]
    reason: Optional[str]  # in the words of the protocol; None: the exit code or the signal says it all


class Record:
    """What a record says so far. A field that is None has not been written."""

    def __init__(self) -> None:
        self.boot_id: Optional[str] = None  # set: somebody claimed the attempt
        self.lane_pid = 0
        self.lane_start_time = 0
        self.timeout: Optional[float] = None
        self.grace: Optional[float] = None
        self.pid: Optional[int] = None  # set: the task's process existed
        self.start_time = 0
        self.started_at: Optional[float] = None
        self.ended_at: Optional[float] = None  # set: how it ended is known
        self.exit_code: Optional[int] = None
        self.signal: Optional[int] = None
        self.peak_kib = 0
        self.reason: Optional[str] = None
        self.withdrawn_at: Optional[float] = None
        self.snapshot: Optional[str] = None  # set: results are gathered; empty: without a tree
        self.copy_back: List[str] = []
        self.container: Optional[str] = None  # set: it runs in a container of this name, which may outlive its process
        self.runtime: List[str] = []  # the command that ends it
        self.limit_mib = 0  # it is ended if it uses more
        self.memory_group = ""  # the cgroup that sees to that; empty: an agent does
        self.over_kib = 0  # so much it used when an agent ended it

    @property
    def ending(self) -> Ending:
        """Of an attempt whose end is known."""
        return Ending(self.ended_at or 0.0, self.exit_code, self.signal, self.reason)


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
    if kind == "claim" and record.boot_id is None:
        lane_pid, lane_start_time = int(words[2]), int(words[3])
        record.timeout = _number(words[4]) if len(words) > 4 else None
        record.grace = _number(words[5]) if len(words) > 5 else None
        record.boot_id, record.lane_pid, record.lane_start_time = words[1], lane_pid, lane_start_time
    elif kind == "start" and record.pid is None:
        pid, start_time, started_at = int(words[1]), int(words[2]), float(words[3])
        record.pid, record.start_time, record.started_at = pid, start_time, started_at
    elif kind == "end" and record.ended_at is None:
        ended_at, exit_code, signal, peak = float(words[1]), _number(words[2]), _number(words[3]), int(words[4])
        record.exit_code = None if exit_code is None else int(exit_code)
        record.signal = None if signal is None else int(signal)
        record.reason = words[5] if len(words) > 5 and words[5] else None
        record.peak_kib, record.ended_at = peak, ended_at
    elif kind == "collect" and record.snapshot is None:
        copy_back = json.loads(words[2])
        record.copy_back, record.snapshot = [str(path) for path in copy_back], "" if words[1] == "-" else words[1]
    elif kind == "contain" and record.container is None:
        runtime = json.loads(words[2])
        record.runtime, record.container = [str(word) for word in runtime], words[1]
    elif kind == "limit":  # the last counts: a lane that may not enter a cgroup does without
        limit_mib = int(words[1])
        record.memory_group, record.limit_mib = "" if words[2] == "-" else json.loads(words[2]), limit_mib
    elif kind == "over" and not record.over_kib:
        record.over_kib = int(words[1])
    elif kind == "withdrawn" and record.withdrawn_at is None:
        record.withdrawn_at = float(words[1])


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


def create(path: str) -> int:
    """Claim an attempt: a descriptor to append to. Raises FileExistsError when it is somebody else's."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
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


def end_words(now: float, exit_code: Optional[int], signal: Optional[int], peak_kib: int, reason: str = "") -> bytes:
    """The end of an attempt, without a newline: the same words in the record and in the lane's report."""
    words = b"%.6f %s %s %d" % (now, _word(exit_code), _word(signal), peak_kib)
    return words + b" " + reason.encode() if reason else words


def _word(value: Optional[float]) -> bytes:
    return b"-" if value is None else b"%g" % value if isinstance(value, float) else b"%d" % value


def append_end(path: str, now: float, reason: str) -> None:
    """Close a record whose writer is gone. What it said before stays."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        # The newline first: the dead writer may have left half a line.
        os.write(descriptor, b"\nend " + end_words(now, None, None, 0, reason) + b"\n")
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
