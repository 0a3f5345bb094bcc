"""Reports over HTTP: which attempt does one belong to, and which line of its spool does it become?"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import time
from typing import Any, Callable, ClassVar, Dict, List, Tuple

from jobyard.agent.attempts.attempt import HANDED, RUNNING, Attempt
from jobyard.agent.attempts.spools import Spools
from jobyard.agent.reporting.http_words import Refused, Request
from jobyard.agent.system import peers, processes
from jobyard.agent_protocol import records

_PATH = re.compile(r"/(profiling|has_to_stop|end_epoch|signal_end|kubeflow)/([^/]{1,300})/?")
_CLIENT = re.compile(r"([1-9][0-9]{0,9})\.([0-9]{1,20})", re.ASCII)
_LARGEST_SPOOL = 256 << 20


class Reports:
    """Knows the attempts that run here, and writes down what is reported of them."""

    def __init__(self, attempts: Dict[str, Attempt], spools: Spools, state_dir: str) -> None:
        self._attempts = attempts
        self._spools = spools
        self._state_dir = state_dir

    def serve(self, request: Request, stream: socket.socket) -> str:
        """The answer to a request that came over this connection. Raises Refused."""
        match = _PATH.fullmatch(request.path)
        if not match:
            raise Refused(404, "there is nothing at %s; this is where tasks of a yard report" % request.path[:200])
        method, call = self._CALLS[match[1]]
        if request.method != method:
            raise Refused(405, "%s wants %s, not %s" % (match[1], method, request.method))
        return call(self, match[2], request, stream)

    # The original KubeProfiler

    def _profiling(self, name: str, request: Request, stream: socket.socket) -> str:
        attempt, report = self._of_job(name), _object(request.body)
        iterations, mean = _number(report, "iternum"), _number(report, "meandur")
        memory, seconds = _number(report, "gpumem"), _number(report, "epochDur")
        metrics = {"gpu_memory_mib": memory} if memory else {}
        lines = [_line("steps", steps=int(iterations or 0), step_seconds=mean or 0.0, metrics=metrics)]
        if seconds is not None:
            process = self._process(attempt, stream)
            lines.append(_line("ended", process=process, seconds=seconds, steps=int(iterations or 0)))
        self._append(attempt, lines)
        return ""

    def _end_epoch(self, name: str, request: Request, stream: socket.socket) -> str:
        attempt, done = self._of_job(name), _number(_object(request.body), "done")
        if done is None:
            raise Refused(400, "end_epoch: done must be the number of epochs that are done")
        self._append(attempt, [_line("ended", done=int(done))])
        return ""

    def _signal_end(self, name: str, request: Request, stream: socket.socket) -> str:
        self._append(self._of_job(name), [_line("end")])
        return ""

    def _has_to_stop(self, name: str, request: Request, stream: socket.socket) -> str:
        """Who asks has saved all epochs before. In its last epoch a task is not asked to stop."""
        first, *others = self._all_of_job(name)
        process = self._process(first, stream)
        self._append(first, [_line("asked", process=process, gone=self._gone(first))])
        asked = [attempt for attempt in (first, *others) if os.path.exists(self._paths(attempt).stop)]
        reducer = self._spools.of(first)
        if not asked or (reducer is not None and not reducer.may_stop(process)):
            return "0"
        for attempt in asked:
            self._append(attempt, [_line("told", process=process)])
        return "1"

    def _process(self, attempt: Attempt, stream: socket.socket) -> str:
        """A name for the process that reports, unique while it lives; empty: unknown."""
        known = self._clients(attempt)
        sessions = [attempt.pid] if attempt.pid else []
        found = peers.process_of(stream, [pid for pid, _ in known], sessions)
        if found is not None:
            return "%d.%d" % (found.pid, found.start_time)
        return "%d.%d" % known[0] if len(known) == 1 else ""

    def _gone(self, attempt: Attempt) -> List[str]:
        return ["%d.%d" % client for client in self._clients(attempt) if not processes.is_alive(*client)]

    def _clients(self, attempt: Attempt) -> List[Tuple[int, int]]:
        """Pid and start of the processes that have reported, as far as they could be told."""
        reducer = self._spools.of(attempt)
        matches = [_CLIENT.fullmatch(name) for name in (reducer.asking if reducer is not None else ())]
        return [(int(match[1]), int(match[2])) for match in matches if match]

    # The Kubeflow progress protocol

    def _kubeflow(self, name: str, request: Request, stream: socket.socket) -> str:
        attempt = self._attempts.get(name)
        if attempt is None or attempt.state not in (RUNNING, HANDED):
            raise Refused(404, "%s does not run here; the report was dropped" % name)
        status = _object(request.body).get("trainerStatus")
        if not isinstance(status, dict):
            raise Refused(400, "trainerStatus must be an object")
        percent, remaining = _number(status, "progressPercentage"), _number(status, "estimatedRemainingSeconds")
        line = _line("progress", percent=percent, remaining=remaining, metrics=_metrics(status.get("metrics")))
        self._append(attempt, [line])
        return "{}"

    _CALLS: ClassVar[Dict[str, Tuple[str, Callable[["Reports", str, Request, socket.socket], str]]]] = {
        "profiling": ("POST", _profiling),
        "has_to_stop": ("GET", _has_to_stop),
        "end_epoch": ("POST", _end_epoch),
        "signal_end": ("POST", _signal_end),
        "kubeflow": ("POST", _kubeflow),
    }

    # Attempts and their files

    def _of_job(self, name: str) -> Attempt:
        return self._all_of_job(name)[0]

    def _all_of_job(self, job: str) -> List[Attempt]:
        """What runs here of a job, its first task first; what is about to run, if nothing does. Raises Refused."""
        found = []
        for attempt in self._attempts.values():
            if attempt.state in (RUNNING, HANDED) and attempt.id.startswith(job + ".") and not attempt.is_superseded:
                owner, task, number = records.split_attempt(attempt.id)
                if owner == job:
                    found.append((attempt.state != RUNNING, task, -number, attempt))
        if not found:
            raise Refused(404, "no job %s runs here; the report was dropped" % job)
        found.sort(key=lambda entry: entry[:3])
        return [entry[3] for entry in found if entry[0] == found[0][0]]

    def _paths(self, attempt: Attempt) -> records.Paths:
        return records.paths(self._state_dir, attempt.id)

    def _append(self, attempt: Attempt, lines: List[Dict[str, Any]]) -> None:
        """Add to the spool, in one piece. Raises Refused if there is no room."""
        path = self._paths(attempt).spool
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o600)
            try:
                size = os.fstat(descriptor).st_size
                if size > _LARGEST_SPOOL:
                    raise Refused(503, "there are too many reports of %s" % attempt.id)
                if not size:
                    lines = [_hello(attempt), _line("start"), *lines]
                _write_whole(descriptor, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise Refused(503, "the report cannot be written down: %s" % error.strerror) from error


def _write_whole(descriptor: int, data: bytes) -> None:
    """All of it or nothing: half a line would make the next one unreadable. Raises OSError."""
    written = os.write(descriptor, data)
    if written < len(data):
        os.ftruncate(descriptor, os.lseek(descriptor, 0, os.SEEK_CUR) - written)
        raise OSError(errno.ENOSPC, "only a part was written")


def _hello(attempt: Attempt) -> Dict[str, Any]:
    """What a client of the SDK would have said first; the task's own environment has it."""
    env = _environment(attempt.pid)
    total, done = env.get("EPOCHS_TO_BE_DONE") or env.get("YARD_EPOCHS"), env.get("EPOCHS_DONE")
    done = done or env.get("YARD_EPOCHS_DONE")
    return _line("hello", epochs=_count(total), done=_count(done) or 0, yields=False)


def _environment(pid: int) -> Dict[str, str]:
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            entries = file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return {}
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


def _count(text: Any) -> Any:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else None


def _line(kind: str, **fields: Any) -> Dict[str, Any]:
    said = {name: value for name, value in fields.items() if value not in ({}, [], "")}
    return {"t": kind, "at": round(time.time(), 6), **said}


def _object(body: bytes) -> Dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON") from None
    if not isinstance(value, dict):
        raise Refused(400, "the body must be a JSON object")
    return value


def _number(report: Dict[str, Any], name: str) -> Any:
    """None where it is missing. Raises Refused for what is no number."""
    value = report.get(name)
    if value is None:
        return None
    number = _as_number(value)
    if number is None:
        raise Refused(400, "%s must be a number, not %s" % (name, repr(value)[:60]))
    return number


def _as_number(value: Any) -> Any:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = float(value[:40])
        except ValueError:
            return None
    return value if isinstance(value, (int, float)) and abs(value) < 1e15 else None  # not NaN either


def _metrics(entries: Any) -> Dict[str, float]:
    """Kubeflow's list of names and values, which are strings; what is no number is left out."""
    metrics = {}
    for entry in entries[:64] if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            value = _as_number(entry.get("value"))
            if value is not None:
                metrics[entry["name"][:100]] = value
    return metrics
