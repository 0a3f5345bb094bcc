"""Following: what became of an attempt that none of our lanes runs?"""

from __future__ import annotations

import os
import signal
import time
from typing import Callable, List, Optional, Set

from jobyard.agent.attempts.attempt import HANDED, Attempt, Slot
from jobyard.agent.attempts.lifecycle import Lifecycle
from jobyard.agent.attempts.outbox import Outbox
from jobyard.agent.attempts.workload import Workload
from jobyard.agent.execution import memory_groups
from jobyard.agent.execution.containers import ContainerRemover
from jobyard.agent.execution.lane import DEFAULT_GRACE_SECONDS
from jobyard.agent.execution.lane_notes import close_note, read_note
from jobyard.agent.files import results
from jobyard.agent.files.packer import Packer
from jobyard.agent.system import processes, watch
from jobyard.agent.system.forking import Background
from jobyard.agent.system.loop import Loop
from jobyard.agent.system.processes import Process
from jobyard.agent_protocol import clock, records
from jobyard.agent_protocol.records import Claim, Record, Start

_SOON_SECONDS = 0.1
_RETRY_SECONDS = 1.0
_TORN_SECONDS = 2.0  # from creating a record to its first line a lane needs microseconds


class Follower:
    """Knows attempts only from their records: the lane outlived its agent, the task its lane, or it was long ago."""

    def __init__(
        self,
        workload: Workload,
        lifecycle: Lifecycle,
        feed: Callable[[Slot], None],
        loop: Loop,
        outbox: Outbox,
        state_dir: str,
        background: Background,
        remover: ContainerRemover,
        packer: Packer,
    ) -> None:
        self._packer = packer
        self._attempts = workload.attempts
        self._slots = workload.slots
        self._lifecycle = lifecycle
        self._feed = feed
        self._selector = loop.selector
        self._timers = loop.timers
        self._outbox = outbox
        self._state_dir = state_dir
        self._background = background
        self._remover = remover
        self._boot_id = processes.boot_id()
        self._unsure: Set[str] = set()  # nobody could tell yet whether they have a record

    def look(self, attempt_id: str) -> bool:
        """Report what the record says, now or when it ends. False: there is no record.

        Where that cannot be told now, somebody looks again: what has no record starts, perhaps for the second time.
        """
        try:
            self._packer.unpack(attempt_id)
            if not records.is_there(records.paths(self._state_dir, attempt_id).record):
                return False
        except OSError:
            self._look_later(attempt_id)
            return True
        job = records.split_attempt(attempt_id)[0]
        attempt = self._attempts[attempt_id] = Attempt(attempt_id, Slot("", job, {}))
        self.follow(attempt)
        return True

    def _look_later(self, attempt_id: str) -> None:
        if attempt_id not in self._unsure:
            self._unsure.add(attempt_id)
            self._timers.after(_RETRY_SECONDS, lambda: self._look_again(attempt_id))

    def _look_again(self, attempt_id: str) -> None:
        self._unsure.discard(attempt_id)
        if attempt_id in self._attempts:
            return
        path = records.paths(self._state_dir, attempt_id).record
        try:
            if not self.look(attempt_id) and records.withdraw(path, time.time()):
                self._outbox.withdrawn(attempt_id)
        except OSError:
            self._look_later(attempt_id)
        self._outbox.flush()

    def adopt_all(self) -> None:
        """Take over what lanes of a dead agent have begun; forget lanes that left nothing open."""
        directory = self._state_dir + "/lanes"
        for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
            pid, _, began = name.partition("-")
            if not (pid.isdigit() and began.isdigit()):
                continue
            if not self._adopt(os.path.join(directory, name), int(pid), int(began)):
                close_note(self._state_dir, int(pid), int(began))

    def _adopt(self, note: str, lane_pid: int, lane_began: int) -> bool:
        attempt_id, noted = read_note(note)
        is_here = noted.get("boot_id") == self._boot_id
        lane_lives = is_here and processes.is_alive(lane_pid, lane_began)
        try:
            self._packer.unpack(attempt_id, is_new=True)  # its lane may be about to claim it
            record = records.read(records.paths(self._state_dir, attempt_id).record)
        except ValueError:  # it has begun nothing yet
            return lane_lives
        if not is_here or attempt_id in self._attempts:
            return False
        if (record is None and not lane_lives) or (record is not None and record.ending is not None):
            return lane_lives
        slot = self._slots.get(noted["slot"])
        if slot is None:
            slot = self._slots[noted["slot"]] = Slot(noted["slot"], noted["job"], noted["reserve"])
        attempt = self._attempts[attempt_id] = Attempt(attempt_id, slot)
        if record is None:
            # It may be about to claim, or about to see that its agent is gone.
            slot.outliving.add(attempt_id)
            attempt.state = HANDED
            attempt.is_followed = True
            watch.when_gone(self._selector, self._timers, lane_pid, lane_began, lambda: self._forget_or_follow(attempt))
        else:
            self.follow(attempt)
        return True

    def _forget_or_follow(self, attempt: Attempt) -> None:
        if os.path.exists(records.paths(self._state_dir, attempt.id).record):
            self.follow(attempt)
        else:
            self._withdrawn(attempt)

    def follow(self, attempt: Attempt) -> None:
        """Wait for the end of this attempt, whoever writes it. Nothing else starts in its slot until then."""
        attempt.slot.outliving.add(attempt.id)
        attempt.state = HANDED  # whether it has started, its record tells
        attempt.is_followed = True
        self._step(attempt, time.monotonic())

    def _step(self, attempt: Attempt, since: float) -> None:
        path = records.paths(self._state_dir, attempt.id).record
        record = records.read(path) or Record()
        attempt.is_contained = record.container is not None
        claim, start = record.claim, record.start
        if start is not None:
            has_just_started = attempt.start is None
            attempt.take_start(start)
            if has_just_started and record.ending is None:
                self._lifecycle.has_begun(attempt)
                self._outbox.flush()
        if record.ending is not None:
            self._ended(attempt, record)
        elif record.withdrawn_at is not None:
            self._withdrawn(attempt)
        elif claim is None:
            self._wait_for_claim(attempt, since)
        elif claim.boot_id != self._boot_id:
            self._write_end(attempt, "NodeLost")
        elif processes.is_alive(claim.lane_pid, claim.lane_start_time):
            if start is None:
                self._timers.after(_SOON_SECONDS, lambda: self._step(attempt, since))
            else:
                self._when_gone(attempt, claim.lane_pid, claim.lane_start_time)
        elif start is not None:
            self._orphaned(attempt, claim, start)
        else:
            self._lost_between_claim_and_start(attempt, path)

    def _when_gone(self, attempt: Attempt, pid: int, start_time: int) -> None:
        again = lambda: self._step(attempt, 0.0)  # noqa: E731
        watch.when_gone(self._selector, self._timers, pid, start_time, again)

    def _wait_for_claim(self, attempt: Attempt, since: float) -> None:
        """The record is empty: its lane is writing this very moment, or died before it began anything."""
        if time.monotonic() - since < _TORN_SECONDS:
            self._timers.after(_SOON_SECONDS, lambda: self._step(attempt, since))
        else:
            self._write_end(attempt, "Unknown")

    def _orphaned(self, attempt: Attempt, claim: Claim, start: Start) -> None:
        """Its lane was killed: the exit status is lost, but not the moment, nor its timeout."""
        if not processes.is_alive(start.pid, start.start_time):
            self._write_end(attempt, attempt.end_reason or "Unknown")
            return
        self._when_gone(attempt, start.pid, start.start_time)
        if claim.timeout:
            left = claim.timeout - clock.age_seconds(start.start_time)
            self._timers.after(left, lambda: self._time_out(attempt, claim.grace))

    def _time_out(self, attempt: Attempt, grace: Optional[float]) -> None:
        if self._attempts.get(attempt.id) is attempt:
            attempt.end_reason = "Timeout"
            self._lifecycle.stopper.end([attempt], DEFAULT_GRACE_SECONDS if grace is None else grace)

    def _lost_between_claim_and_start(self, attempt: Attempt, path: str) -> None:
        """Its lane died while it spawned the task. The process with the attempt's environment is the task."""
        process = processes.find_by_environment("YARD_ERROR_FILE=" + records.paths(self._state_dir, attempt.id).error)
        if process is None:
            self._write_end(attempt, "Unknown")
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        os.write(descriptor, b"\n" + records.start_line(process.pid, process.start_time, time.time()))
        os.close(descriptor)
        self._step(attempt, 0.0)

    def _write_end(self, attempt: Attempt, reason: str) -> None:
        """Its process is gone. A container may go on without it: it is not over before that is ended too."""
        path = records.paths(self._state_dir, attempt.id).record
        record = records.read(path) or Record()
        is_here = record.claim is not None and record.claim.boot_id == self._boot_id
        if is_here:
            reason = self._end_the_rest(attempt, record, reason)
        container = record.container
        if container is None or not is_here:
            self._write_end_down(attempt, path, reason)
            return
        try:
            then = lambda: self._write_end_down(attempt, path, reason)  # noqa: E731
            self._remover.remove(container.runtime, container.name, then)
        except OSError:  # too many processes on this machine: that may pass
            self._timers.after(_RETRY_SECONDS, lambda: self._write_end(attempt, reason))

    def _end_the_rest(self, attempt: Attempt, record: Record, reason: str) -> str:
        """No lane waited for its end: end what it left behind. Returns why it ended, by its cgroup if that knows."""
        group = record.limit.group if record.limit is not None else ""
        if group:
            if reason == "Unknown" and memory_groups.has_killed(group):
                reason = "OutOfMemory"
            memory_groups.remove(group)
        if record.over_kib and reason == "Unknown":
            reason = "OutOfMemory"
        mark = "YARD_ERROR_FILE=" + records.paths(self._state_dir, attempt.id).error
        left = list(processes.with_environment(mark))
        for process in left:
            processes.send(process.pid, signal.SIGTERM)
        if left:
            grace = record.claim.grace if record.claim is not None else None
            self._timers.after(DEFAULT_GRACE_SECONDS if grace is None else grace, lambda: _kill(left))
        return reason

    def _write_end_down(self, attempt: Attempt, path: str, reason: str) -> None:
        try:
            records.append_end(path, time.time(), reason)
        except OSError:  # a full disk: not over until that is written down
            self._timers.after(_RETRY_SECONDS, lambda: self._write_end_down(attempt, path, reason))
            return
        record = records.read(path)
        assert record is not None
        self._ended(attempt, record)

    def _ended(self, attempt: Attempt, record: Record) -> None:
        """Results are packed before the end is told: by its lane, or by us if that is gone."""
        if record.container is not None:
            self._remover.later()
        files, claim, collection = records.paths(self._state_dir, attempt.id), record.claim, record.collection
        if collection is None or not results.is_due(files, collection):
            self._finished(attempt, record)
        elif claim is not None and processes.is_alive(claim.lane_pid, claim.lane_start_time):
            self._when_gone(attempt, claim.lane_pid, claim.lane_start_time)
        else:
            try:
                self._background.run(
                    lambda: results.gather_again(files, collection, self._state_dir),
                    lambda: self._finished(attempt, record),
                )
            except OSError:  # too many processes on this machine: that may pass
                self._timers.after(_RETRY_SECONDS, lambda: self._ended(attempt, record))

    def _finished(self, attempt: Attempt, record: Record) -> None:
        assert record.ending is not None
        self._lifecycle.finish(attempt, record.ending)
        self._let_go(attempt)
        claim = record.claim
        if claim is not None and not processes.is_alive(claim.lane_pid, claim.lane_start_time):
            close_note(self._state_dir, claim.lane_pid, claim.lane_start_time)

    def _withdrawn(self, attempt: Attempt) -> None:
        self._attempts.pop(attempt.id, None)
        if not attempt.is_superseded:
            self._outbox.withdrawn(attempt.id)
        self._let_go(attempt)

    def _let_go(self, attempt: Attempt) -> None:
        attempt.slot.outliving.discard(attempt.id)
        self._feed(attempt.slot)
        self._outbox.flush()


def _kill(left: List[Process]) -> None:
    for process in left:
        if processes.is_alive(process.pid, process.start_time):
            processes.send(process.pid, signal.SIGKILL)
