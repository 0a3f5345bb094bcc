"""How does one slot run its attempts, one after another, whatever happens to the agent?"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections import deque
from contextlib import suppress
from typing import Any, Deque, Dict, List, Optional, Tuple

from jobyard.agent.execution import memory_groups
from jobyard.agent.execution.contained import Contained
from jobyard.agent.execution.memory_groups import MemoryGroups
from jobyard.agent.execution.spawn import CannotEnter, CannotStart, Spawner
from jobyard.agent.execution.task_environment import TaskEnvironment
from jobyard.agent.execution.workplace import Workplace
from jobyard.agent.files import results
from jobyard.agent.files.scratch import Scratch
from jobyard.agent.system import processes, strays
from jobyard.agent.system.kernel_kills import KernelKills
from jobyard.agent_protocol import clock, faults, records
from jobyard.agent_protocol.records import Ending, Paths

DEFAULT_GRACE_SECONDS = 10.0
LOOK_SECONDS = 10.0  # so much too late a timeout comes at most, if the machine was suspended before it
_KILLED_CODE = 128 + signal.SIGKILL  # how a shell tells that its command was killed
_NOTE_BYTES = 512  # an attempt id is at most 300


class Lane:
    """One process that claims, starts, awaits and records attempts. It lives on when the agent dies.

    The inbox brings JSON lines: `{"job":...,"env":...,"workdir":...}` for all items that follow it, or one item.
    """

    def __init__(
        self,
        state_dir: str,
        inbox: socket.socket,
        reports: int,
        base_env: Dict[str, str],
        surroundings: TaskEnvironment,
    ) -> None:
        self._state_dir = state_dir
        self._inbox = inbox
        self._reports = reports
        self._base_env = base_env
        self._surroundings = surroundings
        self._boot_id = processes.boot_id()
        self._pid = os.getpid()
        self._start_time = processes.start_time(self._pid)
        self._lines: Deque[bytes] = deque()
        self._partial = b""
        self._spawner = Spawner()
        self._env: Dict[str, str] = {}
        self._job_env: Dict[str, str] = {}
        self._is_gang = False
        self._kernel_kills = KernelKills()
        self._workplace = Workplace(state_dir)
        self._scratch = Scratch()
        self._contained: Optional[Contained] = None  # set: attempts run in containers
        self._limit_mib = 0
        self._memory_groups = MemoryGroups(state_dir)
        strays.become_subreaper()
        self._note = open_note(state_dir, self._pid, self._start_time)

    def run(self) -> None:
        """Run what comes until the inbox ends. What is queued then is unclaimed, and left for the next agent."""
        while True:
            line = self._next_line()
            if line is None:
                break
            message = json.loads(line)
            if "job" in message:
                self._enter_job(message)
            else:
                self._run(message)
        self._drop_spare()
        close_note(self._state_dir, self._pid, self._start_time)

    def _drop_spare(self) -> None:
        self._workplace.drop_spare()
        self._scratch.drop_spare()

    def _next_line(self) -> Optional[bytes]:
        # Look for the end of the inbox before every item: an agent that died must not have more started.
        flags = int(socket.MSG_DONTWAIT)
        while True:
            try:
                data = self._inbox.recv(262144, flags)
            except BlockingIOError:
                if self._lines:
                    return self._lines.popleft()
                self._drop_spare()
                flags = 0
                continue
            except OSError:
                return None
            if not data:
                return None
            *lines, self._partial = (self._partial + data).split(b"\n")
            self._lines.extend(lines)
            flags = socket.MSG_DONTWAIT

    def _enter_job(self, message: Dict[str, Any]) -> None:
        self._workplace.enter_job(message)
        self._job_env = message["env"]
        self._env = {**self._base_env, **self._job_env}
        self._is_gang = bool(message.get("gang"))
        container = message.get("container")
        self._contained = Contained(self._state_dir, container, self._surroundings) if container else None
        slot = {"boot_id": self._boot_id, "slot": message["slot"], "job": message["job"], "reserve": message["reserve"]}
        write_slot(self._note, slot)
        self._limit_mib = 0 if container else message["reserve"].get("memory_limit_mib") or 0

    def _run(self, item: Dict[str, Any]) -> None:
        """The story of one attempt."""
        attempt: str = item["id"]
        name = attempt.encode()
        files = records.paths(self._state_dir, attempt)
        if self._is_gang:
            files = records.shared_checkpoint(files)
        # 1. Say where to look, then claim: an agent that comes later finds whatever this lane has begun.
        os.pwrite(self._note, name.ljust(_NOTE_BYTES), 0)
        timeout, grace = item.get("timeout"), item.get("grace")
        if self._limit_mib:
            self._memory_groups.find()  # now: whoever meets a record that stays empty takes its lane for dead
        try:
            record = records.create(files.record)
        except FileExistsError:
            self._report(b"k %s\n" % name)
            return
        claim = records.claim_line(self._boot_id, self._pid, self._start_time, timeout, grace)
        contain = self._contained.record_line(attempt) if self._contained else b""
        group = self._memory_groups.make(attempt, self._limit_mib) if self._limit_mib else ""
        limit = records.limit_line(self._limit_mib, group) if self._limit_mib else b""
        self._claim(record, files, claim + self._workplace.record_line() + contain + limit)
        # 2. Start it.
        grace_seconds = DEFAULT_GRACE_SECONDS if grace is None else grace
        pid = 0
        kernel_kills = self._contained.kernel_kills if self._contained else self._kernel_kills
        kernel_kills.remember()
        try:
            pid = self._start(item, files, record, group)
        except Exception as error:  # whatever this attempt brings along ends this attempt, not the lane
            end = self._not_started(error, files)
        else:
            began, now = processes.start_time(pid), time.time()
            with suppress(OSError):  # a full disk: it runs, and the agent hears of it
                os.write(record, records.start_line(pid, began, now))
            self._report(b"s %s %d %d %.6f\n" % (name, pid, began, now))
            end = self._wait(pid, timeout, grace_seconds, kernel_kills, group)
        # 3. Write down how it ended before anything else can go wrong; tell the agent when everything is cleared away.
        words = records.end_words(end)
        is_written = _written(record, b"end " + words + b"\n")
        os.close(record)
        if pid:
            self._see_off(pid, grace_seconds, files, group)
        if group:
            memory_groups.remove(group)
        faults.point("lane-ended")
        if self._contained is not None:
            self._contained.clear(attempt, files, end.exit_code)
        self._workplace.gather(files, keep_for_next=bool(self._lines))
        faults.point("lane-gathered")
        self._scratch.clear(files, keep_for_next=bool(self._lines), shares_checkpoint=self._is_gang)
        self._report(b"e %s %s\n" % (name, words))
        if not is_written:
            raise OSError("the end of %s cannot be written down" % attempt)  # without us it is not taken for alive

    def _claim(self, record: int, files: Paths, line: bytes) -> None:
        """Raises OSError on a full disk; then nothing is claimed, and nothing has begun."""
        if not _written(record, line):
            os.close(record)
            os.unlink(files.record)
            raise OSError("%s cannot be written" % files.record)

    def _start(self, item: Dict[str, Any], files: Paths, record: int, group: str) -> int:
        env = dict(self._job_env if self._contained else self._env)
        directory = env["PWD"] = self._workplace.prepare(files)
        extra = item.get("env")
        if extra:
            env.update(extra)
        env["TMPDIR"] = files.tmp
        env["YARD_OUTPUT_DIR"] = files.output
        env["YARD_CHECKPOINT_DIR"] = files.checkpoint
        env["YARD_ERROR_FILE"] = files.error
        self._surroundings.add_to(env, {**self._job_env, **extra} if extra else self._job_env, item["id"], files)
        self._scratch.prepare(files, shares_checkpoint=self._is_gang)
        argv: List[str] = item.get("argv") or ["bash", "-c", item["shell"]]
        if self._contained is not None:
            argv, env = self._contained.call(item["id"], files, directory, argv, env, dict(os.environ))
        try:
            return self._spawner.spawn(argv, env, files, group)
        except CannotEnter:  # then without: its memory is watched
            memory_groups.remove(group)
            os.write(record, records.limit_line(self._limit_mib, ""))
            return self._spawner.spawn(argv, env, files)

    def _not_started(self, error: Exception, files: Paths) -> Ending:
        results.say(files.err, str(error))
        code = error.exit_code if isinstance(error, CannotStart) else 126
        return Ending(time.time(), code, None, None)

    def _wait(self, pid: int, timeout: Optional[float], grace: float, kernel_kills: KernelKills, group: str) -> Ending:
        alarm = Alarm(pid, timeout, grace) if timeout else None
        status, usage = strays.await_child(pid)
        now = time.time()
        if alarm is not None:
            alarm.disarm()
        reason = "Timeout" if alarm is not None and alarm.has_rung else None
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = None if number else os.WEXITSTATUS(status)
        peak_kib = 0 if self._contained else usage.ru_maxrss  # that of a client would mean nothing
        if group:
            peak_kib = max(peak_kib, memory_groups.peak_kib(group))
        is_killed = number == signal.SIGKILL or code == _KILLED_CODE
        if not reason and ((group and memory_groups.has_killed(group)) or (is_killed and kernel_kills.has_killed())):
            reason = "OutOfMemory"  # unless the agent says that it was the one who killed
        return Ending(now, code, number, reason, peak_kib)

    def _see_off(self, pid: int, grace: float, files: Paths, group: str) -> None:
        undying = strays.see_off(pid, grace, group, is_contained=self._contained is not None)
        if undying:
            results.say(files.err, undying)
            with suppress(OSError), open(files.error, "x") as file:  # what the task says itself counts more
                file.write(undying + "\n")

    def _report(self, line: bytes) -> None:
        with suppress(OSError):  # the agent is gone; the record has it
            os.write(self._reports, line)


def _written(descriptor: int, line: bytes) -> bool:
    try:
        return os.write(descriptor, line) == len(line)
    except OSError:
        return False


class Alarm:
    """Ends a session that runs too long: the polite signal, the grace, the hard one. Works with no agent around.

    The kernel's timer stands still while the machine is suspended, so it only says when to look at the boot clock.
    """

    def __init__(self, session: int, seconds: float, grace: float) -> None:
        self.has_rung = False
        self._session = session
        self._grace = grace
        self._due = clock.seconds() + seconds
        signal.signal(signal.SIGALRM, self._look)
        self._arm()

    def _arm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, min(max(self._due - clock.seconds(), 0.001), LOOK_SECONDS))

    def _look(self, number: int, frame: Any) -> None:
        if clock.seconds() < self._due:
            self._arm()
            return
        hard = self.has_rung or self._grace <= 0
        self.has_rung = True
        processes.signal_session(self._session, signal.SIGKILL if hard else signal.SIGTERM)
        if not hard:
            self._due = clock.seconds() + self._grace
            self._arm()

    def disarm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)


def note_path(state_dir: str, pid: int, began: int) -> str:
    return "%s/lanes/%d-%d" % (state_dir, pid, began)


def open_note(state_dir: str, pid: int, began: int) -> int:
    """The file in which a lane tells later agents what it does: an attempt, padded, then its slot as JSON."""
    os.makedirs(state_dir + "/lanes", mode=0o700, exist_ok=True)
    return os.open(note_path(state_dir, pid, began), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)


def write_slot(note: int, slot: Dict[str, Any]) -> None:
    """In one write, with blanks over what is left of a longer one: whoever reads meanwhile finds one or the other."""
    before = os.fstat(note).st_size - _NOTE_BYTES
    os.pwrite(note, json.dumps(slot).encode().ljust(max(0, before)), _NOTE_BYTES)


def note_reserve(state_dir: str, pid: int, began: int, reserve: Dict[str, Any]) -> None:
    """What a lane's slot holds has changed. Raises OSError when the lane is gone."""
    path = note_path(state_dir, pid, began)
    _, slot = read_note(path)
    if slot:
        note = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            write_slot(note, {**slot, "reserve": reserve})
        finally:
            os.close(note)


def close_note(state_dir: str, pid: int, began: int) -> None:
    with suppress(OSError):
        os.unlink(note_path(state_dir, pid, began))


def read_note(path: str) -> Tuple[str, Dict[str, Any]]:
    """The attempt and the slot that a lane noted; empty where it had none."""
    with open(path, "rb") as file:
        attempt, slot = file.read(_NOTE_BYTES), file.read()
    try:
        parsed = json.loads(slot)
    except ValueError:
        parsed = {}
    return attempt.strip(b" \0").decode("ascii", "replace"), parsed if isinstance(parsed, dict) else {}
