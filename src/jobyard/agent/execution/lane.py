"""Lane: how does one slot run its attempts, one after another, whatever happens to the agent?"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress
from typing import Any, Dict, List, NamedTuple, Optional

from jobyard.agent.execution import lane_notes, memory_groups
from jobyard.agent.execution.alarm import Alarm
from jobyard.agent.execution.contained import Contained
from jobyard.agent.execution.lane_inbox import LaneInbox
from jobyard.agent.execution.memory_groups import MemoryGroups
from jobyard.agent.execution.spawn import CannotEnter, CannotStart, Spawner
from jobyard.agent.execution.standard_input import StandardInput
from jobyard.agent.execution.task_environment import TaskEnvironment
from jobyard.agent.execution.workplace import Workplace
from jobyard.agent.files import results
from jobyard.agent.files.scratch import Scratch
from jobyard.agent.system import strays
from jobyard.agent.system.kernel_kills import KernelKills
from jobyard.agent.system.start_times import StartTimes
from jobyard.agent_protocol import faults, records
from jobyard.agent_protocol.records import Ending, Paths

DEFAULT_GRACE_SECONDS = 10.0
_KILLED_CODE = 128 + signal.SIGKILL  # how a shell tells that its command was killed


class SlotTerms(NamedTuple):
    """What the attempts of one slot share."""

    job_env: Dict[str, str]
    task_env: Dict[str, str]  # the same in an environment to run in
    is_gang: bool
    contained: Optional[Contained]  # set: they run in containers
    limit_mib: int
    is_joined: bool = False  # what a task writes is one stream


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
        environment: TaskEnvironment,
    ) -> None:
        self._state_dir = state_dir
        self._inbox = LaneInbox(inbox)
        self._reports = reports
        self._base_env = base_env
        self._environment = environment
        self._terms = SlotTerms({}, base_env, False, None, 0)
        self._spawner = Spawner()
        self._start_times = StartTimes()
        self._kernel_kills = KernelKills()
        self._workplace = Workplace(state_dir)
        self._standard_input = StandardInput(state_dir)
        self._scratch = Scratch()
        self._memory_groups = MemoryGroups(state_dir)
        strays.become_subreaper()
        self._identity = lane_notes.own_identity()
        self._note = lane_notes.open_note(state_dir, self._identity.pid, self._identity.start_time)

    def run(self) -> None:
        """Run what comes until the inbox ends. What is queued then is unclaimed, and left for the next agent."""
        while True:
            line = self._inbox.next_line(before_waiting=self._drop_spare)
            if line is None:
                break
            message = json.loads(line)
            if "job" in message:
                self._enter_job(message)
            else:
                self._run(message)
        self._drop_spare()
        lane_notes.close_note(self._state_dir, self._identity.pid, self._identity.start_time)

    def _drop_spare(self) -> None:
        self._workplace.drop_spare()
        self._scratch.drop_spare()

    def _enter_job(self, message: Dict[str, Any]) -> None:
        self._workplace.enter_job(message)
        self._standard_input.enter_job(message)
        env, reserve, container = message["env"], message["reserve"], message.get("container")
        self._terms = SlotTerms(
            env,
            {**self._base_env, **env},
            bool(message.get("gang")),
            Contained(self._state_dir, container, self._environment) if container else None,
            0 if container else reserve.get("memory_limit_mib") or 0,
            bool(message.get("joined")),
        )
        slot = {"boot_id": self._identity.boot_id, "slot": message["slot"], "job": message["job"], "reserve": reserve}
        lane_notes.write_slot(self._note, slot)

    def _run(self, item: Dict[str, Any]) -> None:
        """The story of one attempt."""
        attempt: str = item["id"]
        name = attempt.encode()
        terms, contained = self._terms, self._terms.contained
        files = records.paths(self._state_dir, attempt)
        if terms.is_gang:
            files = records.shared_checkpoint(files)
        # 1. Say where to look, then claim: an agent that comes later finds whatever this lane has begun.
        lane_notes.write_attempt(self._note, name)
        timeout, grace = item.get("timeout"), item.get("grace")
        if terms.limit_mib:
            self._memory_groups.find()  # now: whoever meets a record that stays empty takes its lane for dead
        try:
            record = records.create(files.record)
        except FileExistsError:
            self._report(b"k %s\n" % name)
            return
        claim = records.claim_line(*self._identity, timeout, grace)
        contain = contained.record_line(attempt) if contained else b""
        group = self._memory_groups.make(attempt, terms.limit_mib) if terms.limit_mib else ""
        limit = records.limit_line(terms.limit_mib, group) if terms.limit_mib else b""
        self._claim(record, files, claim + self._workplace.record_line() + contain + limit)
        # 2. Start it.
        grace_seconds = DEFAULT_GRACE_SECONDS if grace is None else grace
        pid = 0
        kernel_kills = contained.kernel_kills if contained else self._kernel_kills
        kernel_kills.remember()
        try:
            pid = self._start(item, files, record, group)
        except Exception as error:  # whatever this attempt brings along ends this attempt, not the lane
            end = self._not_started(error, files)
        else:
            began, now = self._start_times.of(pid), time.time()
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
        if contained is not None:
            contained.clear(attempt, files, end.exit_code)
        self._workplace.gather(files, keep_for_next=self._inbox.has_more)
        faults.point("lane-gathered")
        self._scratch.clear(files, keep_for_next=self._inbox.has_more, shares_checkpoint=terms.is_gang)
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
        job_env, contained = self._terms.job_env, self._terms.contained
        env = dict(job_env if contained else self._terms.task_env)
        directory = env["PWD"] = self._workplace.prepare(files)
        extra = item.get("env")
        if extra:
            env.update(extra)
        env["TMPDIR"] = files.tmp
        env["YARD_OUTPUT_DIR"] = files.output
        env["YARD_CHECKPOINT_DIR"] = files.checkpoint
        env["YARD_ERROR_FILE"] = files.error
        self._environment.add_to(env, {**job_env, **extra} if extra else job_env, item["id"], files)
        self._scratch.prepare(files, shares_checkpoint=self._terms.is_gang)
        argv: List[str] = item.get("argv") or ["bash", "-c", item["shell"]]
        if contained is not None:
            argv, env = contained.call(item["id"], files, directory, argv, env, dict(os.environ))
        stdin, errors = self._standard_input.path(), files.out if self._terms.is_joined else files.err
        self._start_times.about_to_start()
        try:
            return self._spawner.spawn(argv, env, files.out, errors, group, stdin)
        except CannotEnter:  # then without: its memory is watched
            memory_groups.remove(group)
            os.write(record, records.limit_line(self._terms.limit_mib, ""))
            return self._spawner.spawn(argv, env, files.out, errors, stdin=stdin)

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
        peak_kib = 0 if self._terms.contained else usage.ru_maxrss  # that of a client would mean nothing
        if group:
            peak_kib = max(peak_kib, memory_groups.peak_kib(group))
        is_killed = number == signal.SIGKILL or code == _KILLED_CODE
        if not reason and ((group and memory_groups.has_killed(group)) or (is_killed and kernel_kills.has_killed())):
            reason = "OutOfMemory"  # unless the agent says that it was the one who killed
        return Ending(now, code, number, reason, peak_kib)

    def _see_off(self, pid: int, grace: float, files: Paths, group: str) -> None:
        undying = strays.see_off(pid, grace, group, is_contained=self._terms.contained is not None)
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
