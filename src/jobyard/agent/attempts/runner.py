"""What runs here, what waits to run, and what must be told of it?"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections import deque
from contextlib import suppress
from typing import Any, Collection, Dict, Iterable, List, Optional, Set, Tuple

from jobyard.agent.attempts.attempt import HANDED, QUEUED, RUNNING, Attempt, Slot
from jobyard.agent.attempts.endings import Endings
from jobyard.agent.attempts.following import Follower
from jobyard.agent.attempts.memory_watch import MemoryWatch
from jobyard.agent.attempts.orders import Orders
from jobyard.agent.attempts.outbox import Outbox
from jobyard.agent.attempts.spools import Spools
from jobyard.agent.attempts.stopping import Stopper
from jobyard.agent.devices.gpus import Gpus
from jobyard.agent.execution import memory_groups
from jobyard.agent.execution.container_words import RUNTIME_FAILED
from jobyard.agent.execution.containers import Sweeper
from jobyard.agent.execution.lane import DEFAULT_GRACE_SECONDS, close_note, note_reserve
from jobyard.agent.execution.lanes import LaneHandle, start_lane
from jobyard.agent.execution.runtimes import Runtimes
from jobyard.agent.execution.task_environment import TaskEnvironment
from jobyard.agent.files import scratch
from jobyard.agent.files.staging import Staging
from jobyard.agent.sharing.reservations import Reservations, device_indices
from jobyard.agent.system import processes
from jobyard.agent.system.forking import Background
from jobyard.agent.system.timers import Timers
from jobyard.agent_protocol import faults, inherited, records
from jobyard.agent_protocol.records import Ending

_BUSY_SECONDS = 0.02  # reports that come closer together than this are read in batches
_PAUSE_SECONDS = 0.01
_IDLE_LANES = 8
_LANES_AT_ONCE = 16  # that are started before requests are heard again: each is a fork of some milliseconds
_WAKE_SECONDS = 10.0  # so often lanes that somebody has stopped are woken
_RUNTIME_SECONDS = 5.0  # that a container may wait for an agent which has not asked its runtime yet


class Runner:
    """Slots and their lanes. Every attempt is named at most once in `finished`, unless `reconcile` asks again."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        timers: Timers,
        outbox: Outbox,
        reservations: Reservations,
        state_dir: str,
        gpus: Gpus,
        background: Background,
        staging: Staging,
        surroundings: TaskEnvironment,
        runtimes: Runtimes,
    ) -> None:
        self.attempts: Dict[str, Attempt] = {}
        self.slots: Dict[str, Slot] = {}
        self.jobs: Dict[str, Dict[str, Any]] = {}
        self._selector = selector
        self._timers = timers
        self._outbox = outbox
        self._reservations = reservations
        self._state_dir = state_dir
        self._staging = staging
        self._surroundings = surroundings
        self._gpus = gpus
        self._runtimes = runtimes
        self.sweeper = Sweeper(background, timers, state_dir, runtimes)
        self._stopper = Stopper(timers, self.attempts)
        self._orders = Orders(timers, self.attempts, state_dir, self.end)
        self._memory_watch = MemoryWatch(timers, self.attempts, state_dir)
        self.spools = Spools(timers, self.attempts, outbox, state_dir)
        self._endings = Endings(state_dir, gpus, self.spools, self._orders)
        self._base_env = inherited.for_tasks(os.environ)
        self._idle_lanes: List[LaneHandle] = []
        self._started_lanes = 0  # in this turn
        self._is_waking = False
        self._laneless: List[Slot] = []  # they have work, and wait for the next turn
        self._partial = b""
        self._last_report = 0.0
        self._reports, self._report_end = os.pipe()
        os.set_blocking(self._reports, False)
        selector.register(self._reports, selectors.EVENT_READ, self._on_reports)
        self._follower = Follower(self, selector, timers, outbox, state_dir, background, self.sweeper)

    def adopt_all(self) -> None:
        """Take over what lanes of an agent before us still run."""
        self._follower.adopt_all()
        memory_groups.sweep(self._state_dir, self.attempts)
        for slot in self.slots.values():
            self._reservations.take(slot.id, slot.reserve)

    def let_go(self) -> None:
        """We leave: what runs goes on, and what is left of others is cleared away."""
        memory_groups.sweep(self._state_dir, self.attempts)

    @property
    def running(self) -> List[Attempt]:
        return [attempt for attempt in self.attempts.values() if attempt.state == RUNNING]

    # Requests

    def launch(self, slot_id: str, job: str, reserve: Dict[str, Any], items: List[Dict[str, Any]]) -> Optional[str]:
        """Queue items in a slot, opening it if need be. An item that is here already is left as it is.

        Returns why the slot was refused; its items are then withdrawn.
        """
        slot = self.slots.get(slot_id)
        if slot is None:
            refusal = self._reservations.reserve(slot_id, reserve)
            if refusal is not None:
                for item in items:
                    self._outbox.withdrawn(item["id"])
                return refusal
            slot = self.slots[slot_id] = Slot(slot_id, job, reserve)
        slot.is_closing = False
        for item in items:
            if item["id"] not in self.attempts:
                attempt = self.attempts[item["id"]] = Attempt(item["id"], slot, item)
                attempt.is_contained = bool(self.jobs[job].get("container"))
                slot.queue.append(attempt)
        faults.point("agent-launching")
        self.feed(slot)
        return None

    def close(self, slot_ids: Iterable[str]) -> None:
        """Let slots end after their last attempt; ones that are gone are no error."""
        for slot_id in slot_ids:
            slot = self.slots.get(slot_id)
            if slot is not None:
                slot.is_closing = True
                self.feed(slot)

    def withdraw(self, ids: Iterable[str]) -> None:
        """Give back what has not started; leave the rest alone."""
        self._withdraw([self.attempts[name] for name in ids if name in self.attempts])

    def stop(self, ids: Iterable[str], grace: float) -> None:
        """Withdraw what has not started; end the rest, politely first. What has ended is no error."""
        begun = self._begun(ids)
        self._orders.override(begun)
        self.end([attempt for attempt in begun if not attempt.is_followed], grace)
        for attempt in begun:
            if attempt.is_followed:  # an agent before us may have begun to end it
                self.end([attempt], self._orders.grace_left(attempt, grace))

    def ask_to_stop(self, ids: Iterable[str], deadline: float, grace: float, at_once: bool) -> None:
        """Withdraw what has not started; ask the rest to stop at a checkpoint, and end it if it does not in time.

        Asked again, the earlier deadline holds. Raises OSError if a task cannot be told; it is ended all the same.
        """
        self._orders.give(self._begun(ids), deadline, grace, at_once)

    def _begun(self, ids: Iterable[str]) -> List[Attempt]:
        """Those of them that have started or may have. The others never will: they are withdrawn."""
        known = []
        for name in ids:
            attempt = self.attempts.get(name)
            if attempt is not None:
                known.append(attempt)
            elif records.withdraw(records.paths(self._state_dir, name).record, time.time()):
                self._outbox.withdrawn(name)
        return self._withdraw(known)

    def reserve(self, slot_id: str, reserve: Dict[str, Any]) -> None:
        """A slot holds this from now on: what is in it runs already. One that is gone is no error."""
        slot = self.slots.get(slot_id)
        if slot is None:
            return
        slot.reserve = reserve
        self._reservations.take(slot_id, reserve)
        with suppress(OSError):  # a lane that is just leaving: nobody will take over from it
            for pid, start_time in self._lanes_of(slot):
                note_reserve(self._state_dir, pid, start_time, reserve)

    def _lanes_of(self, slot: Slot) -> List[Tuple[int, int]]:
        lanes = [(slot.lane.pid, slot.lane.start_time)] if slot.lane is not None else []
        for name in slot.outliving:
            record = records.read(records.paths(self._state_dir, name).record)
            if record is not None and record.claim is not None:
                lanes.append((record.claim.lane_pid, record.claim.lane_start_time))
        return lanes

    def reconcile(self, live: List[str], held: Collection[str] = ()) -> List[str]:
        """Report on every attempt the server believes in; end the others. Returns those nobody has heard of.

        Attempts of `held` jobs are left alone: of those the server does not know what it should believe.
        """
        faults.point("agent-reconciling")
        believed = set(live)
        others = (attempt for name, attempt in self.attempts.items() if name not in believed)
        superseded = [attempt for attempt in others if records.split_attempt(attempt.id)[0] not in held]
        for attempt in superseded:
            attempt.is_superseded = True
        begun = self._withdraw(superseded)
        self._orders.override(begun)
        for attempt in begun:
            grace = DEFAULT_GRACE_SECONDS if attempt.grace is None else attempt.grace
            self.end([attempt], self._orders.grace_left(attempt, grace))
        absent = [name for name in live if not self._report(name)]
        for slot in list(self.slots.values()):
            if slot.is_empty:
                self._close(slot)
        return absent

    def _report(self, name: str) -> bool:
        attempt = self.attempts.get(name)
        if attempt is None:
            return self._follower.look(name)
        if attempt.is_withdrawn:
            self._outbox.withdrawn(name)
        elif attempt.state == RUNNING:
            self._outbox.started(name, attempt.started_at)
        return True

    # Lanes

    def feed_jobs(self, jobs: List[str]) -> None:
        """What these jobs waited for is here."""
        for slot in [slot for slot in self.slots.values() if slot.job in jobs]:
            self.feed(slot)

    def fail_jobs(self, jobs: List[str], trouble: str) -> None:
        """What these jobs waited for cannot come: what is queued here has failed."""
        for slot in [slot for slot in self.slots.values() if slot.job in jobs]:
            queued, slot.queue = slot.queue, deque()
            self._cannot_begin(queued, trouble)
            self.feed(slot)

    def feed(self, slot: Slot) -> None:
        """Keep the slot's lane a little ahead, or end the slot if that was asked and nothing is left."""
        if slot.queue and not slot.outliving and not self._staging.waits(slot.job):
            lane = slot.lane
            if lane is None:
                if not self._idle_lanes and self._started_lanes >= _LANES_AT_ONCE:
                    self._laneless.append(slot)
                    return
                try:
                    lane = slot.lane = self._take_lane()
                except OSError:  # too many processes on this machine: that may pass
                    self._timers.after(1.0, lambda: self.feed(slot))
                    return
                lane.enter(slot, self.jobs[slot.job], self._container(slot))
            lane.adapt()
            batch: List[Dict[str, Any]] = []
            while slot.queue and len(lane.pending) + len(batch) < lane.depth:
                attempt = slot.queue.popleft()
                attempt.state, attempt.lane = HANDED, lane
                assert attempt.item is not None
                batch.append(attempt.item)
            if batch:
                lane.hand(batch)
        elif slot.is_closing and slot.is_empty:
            self._close(slot)

    def _container(self, slot: Slot) -> Optional[Dict[str, Any]]:
        """What the lane must know of the containers that the slot's attempts run in; None: they run in none."""
        container = self.jobs[slot.job].get("container")
        if not container:
            return None
        held = set(device_indices(slot.reserve))
        devices = [device for device in self._gpus.devices() if device.index in held and not device.fake]
        return {
            **container,
            "runtime": list(self._runtimes.settle(_RUNTIME_SECONDS)),
            "yard": self._reservations.yard,
            "cpu_millis": slot.reserve.get("cpu_millis") or 0,
            "memory_mib": slot.reserve.get("memory_limit_mib", slot.reserve.get("memory_mib")) or 0,
            "devices": [[device.index, device.uuid] for device in devices],
        }

    def _take_lane(self) -> LaneHandle:
        if not self._is_waking:
            self._is_waking = True
            self._timers.after(_WAKE_SECONDS, self._wake_lanes)
        if self._idle_lanes:
            return self._idle_lanes.pop()
        if not self._started_lanes:
            self._timers.after(0.0, self._feed_laneless)
        self._started_lanes += 1
        return start_lane(
            self._selector, self._state_dir, self._report_end, self._base_env, self._surroundings, self._lane_died
        )

    def _wake_lanes(self) -> None:
        """A task may send its lane SIGSTOP: then nobody would end it at its timeout, nor tell of its end."""
        lanes = [slot.lane for slot in self.slots.values() if slot.lane is not None]
        for lane in lanes:
            found = processes.inspect(lane.pid)
            if found is not None and found.state == "T":
                processes.send(lane.pid, signal.SIGCONT)
        self._is_waking = bool(lanes)
        if lanes:
            self._timers.after(_WAKE_SECONDS, self._wake_lanes)

    def _feed_laneless(self) -> None:
        """The next turn: those that found too many lanes started in the last one."""
        self._started_lanes = 0
        waiting, self._laneless = self._laneless, []
        for slot in waiting:
            self.feed(slot)

    def _close(self, slot: Slot) -> None:
        if self.slots.pop(slot.id, None) is None:
            return
        self._reservations.release(slot.id)
        lane, slot.lane = slot.lane, None
        if lane is None:
            return
        if len(self._idle_lanes) < _IDLE_LANES:
            self._idle_lanes.append(lane)
        else:
            lane.close()
            self._timers.after(1.0, lane.reap)

    def _lane_died(self, lane: LaneHandle) -> None:
        """Somebody killed a lane: its task runs on, watched from here; what it had not begun is queued again."""
        self._drain_reports()
        lane.reap()
        if lane in self._idle_lanes:
            self._idle_lanes.remove(lane)
        slot: Optional[Slot] = lane.entered
        if slot is not None:
            if slot.lane is lane:
                slot.lane = None
            back = []
            for name in lane.pending:
                attempt = self.attempts[name]
                attempt.lane = None
                if attempt.is_withdrawn:
                    del self.attempts[name]
                elif os.path.exists(records.paths(self._state_dir, name).record):
                    self._follower.follow(attempt)
                else:
                    attempt.state = QUEUED
                    back.append(attempt)
            trouble = "" if lane.has_ended_any else scratch.trouble_with(self._state_dir)
            if trouble:
                self._cannot_begin(back, trouble)
            else:
                slot.queue.extendleft(reversed(back))
            # Not at once: a lane that cannot live must not be forked in a tight circle.
            self._timers.after(0.05 if lane.has_ended_any else 1.0, lambda: self.feed(slot))
        if slot is not None and slot.reserve.get("memory_limit_mib"):
            memory_groups.sweep(self._state_dir, self.attempts)
        if slot is None or not slot.outliving:
            close_note(self._state_dir, lane.pid, lane.start_time)
        self._outbox.flush()

    def _cannot_begin(self, attempts: Iterable[Attempt], trouble: str) -> None:
        """There is no room here, so nothing may start: these have failed. No record of them remains."""
        now = time.time()
        for attempt in attempts:
            del self.attempts[attempt.id]
            if not attempt.is_superseded:
                ended = {"started_at": now, "finished_at": now, "exit_code": 126, "message": trouble}
                self._outbox.finished(attempt.id, ended)

    # Reports of lanes

    def _on_reports(self, events: int) -> None:
        now = time.monotonic()
        slots = self._take_reports()
        for slot in slots:
            self.feed(slot)
        if any(slot.is_empty for slot in slots):  # whatever it waits for, only the server has more
            self._outbox.send_now()
        else:
            self._outbox.flush()
        if now - self._last_report < _BUSY_SECONDS:
            # Many quick tasks: being woken for each of them would cost more than they do.
            self._selector.unregister(self._reports)
            self._timers.after(_PAUSE_SECONDS, self._resume_reports)
        self._last_report = now

    def _resume_reports(self) -> None:
        self._selector.register(self._reports, selectors.EVENT_READ, self._on_reports)

    def _drain_reports(self) -> None:
        while self._take_reports():
            pass

    def _take_reports(self) -> Set[Slot]:
        try:
            data = os.read(self._reports, 65536)
        except BlockingIOError:
            return set()
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        slots = set()
        for line in lines:
            kind, name, rest = (line.decode() + " ").split(" ", 2)
            attempt = self.attempts.get(name)
            if attempt is None or attempt.lane is None:
                continue
            slots.add(attempt.slot)
            if kind == "s":
                self._began(attempt, rest)
            else:
                attempt.lane.pending.pop(name, None)
                attempt.lane.ended_since_fed += 1
                attempt.lane.has_ended_any = True
                if kind == "e":
                    self.finish(attempt, records.parse_end(rest.split()))
                else:
                    self._skipped(attempt)
        return slots

    def _began(self, attempt: Attempt, rest: str) -> None:
        attempt.take_start(records.parse_start(rest.split()))
        faults.point("agent-running")
        self.has_begun(attempt)

    def has_begun(self, attempt: Attempt) -> None:
        """Tell that its process exists, and end it if that was asked in the meantime."""
        if not attempt.is_superseded:
            self._outbox.started(attempt.id, attempt.started_at)
        self.spools.watch()
        if attempt.limit_mib:
            self._memory_watch.begin(attempt)
        if attempt.wants_stop is not None:
            self.end([attempt], attempt.wants_stop)
        elif attempt.is_followed and self._orders.recall(attempt) is not None:
            self._orders.pursue(attempt)

    def _skipped(self, attempt: Attempt) -> None:
        """The lane found a record: ours, because it was withdrawn, or one of an earlier launch."""
        attempt.lane = None
        if attempt.is_withdrawn:
            del self.attempts[attempt.id]
        else:
            self._follower.follow(attempt)

    def finish(self, attempt: Attempt, ending: Ending) -> None:
        """An attempt is over."""
        if not attempt.is_superseded and not self.spools.catches_up(attempt):
            self._timers.after(0.0, lambda: self._finish_later(attempt, ending))
            return
        faults.point("agent-finishing")
        if attempt.is_contained and (ending.exit_code is None or ending.exit_code == RUNTIME_FAILED):
            self.sweeper.later()
        self.attempts.pop(attempt.id, None)
        if attempt.pid and attempt.wants_stop is not None:
            processes.signal_session(attempt.pid, signal.SIGKILL)  # what it hid in other process groups
        if attempt.is_superseded:
            self.spools.forget(attempt)
        else:
            self._outbox.finished(attempt.id, self._endings.describe(attempt, ending))

    def _finish_later(self, attempt: Attempt, ending: Ending) -> None:
        self.finish(attempt, ending)
        self._outbox.flush()

    # Stopping

    def _withdraw(self, attempts: List[Attempt]) -> List[Attempt]:
        """Make sure that these never start; returns those that have started or may have."""
        begun, queues = [], set()
        for attempt in attempts:
            if attempt.is_withdrawn:
                continue
            if attempt.state == QUEUED and attempt.item is not None:
                queues.add(attempt.slot)
                del self.attempts[attempt.id]
            elif not (attempt.state == HANDED and attempt.lane is not None and self._fence(attempt.id)):
                begun.append(attempt)
                continue
            attempt.is_withdrawn = True
            if not attempt.is_superseded:
                self._outbox.withdrawn(attempt.id)
        for slot in queues:
            slot.queue = deque(attempt for attempt in slot.queue if not attempt.is_withdrawn)
            self.feed(slot)
        self._outbox.flush()
        return begun

    def _fence(self, name: str) -> bool:
        return records.withdraw(records.paths(self._state_dir, name).record, time.time())

    def end(self, attempts: List[Attempt], grace: float) -> None:
        """SIGTERM to the sessions of these, after the grace SIGKILL. One not known yet is ended when it is."""
        self._stopper.end(attempts, grace)
