"""Runner: what runs in which slot, what waits there, and which lane has it?"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from typing import Any, Collection, Dict, Iterable, List, Optional, Set, Tuple

from jobyard.agent.attempts.attempt import HANDED, QUEUED, RUNNING, Attempt, Slot
from jobyard.agent.attempts.following import Follower
from jobyard.agent.attempts.lane_pool import LanePool
from jobyard.agent.attempts.lane_reports import LaneReports
from jobyard.agent.attempts.lifecycle import Lifecycle
from jobyard.agent.attempts.outbox import Outbox
from jobyard.agent.attempts.slot_reservations import SlotReservations
from jobyard.agent.attempts.withdrawals import Withdrawals
from jobyard.agent.attempts.workload import Workload
from jobyard.agent.devices.gpus import Gpus
from jobyard.agent.execution import memory_groups
from jobyard.agent.execution.containers import ContainerRemover
from jobyard.agent.execution.lane_notes import close_note, note_reserve
from jobyard.agent.execution.lanes import LaneHandle, start_lane
from jobyard.agent.execution.runtimes import Runtimes
from jobyard.agent.execution.slot_containers import SlotContainers
from jobyard.agent.execution.task_environment import TaskEnvironment
from jobyard.agent.files import scratch
from jobyard.agent.files.packer import Packer
from jobyard.agent.files.staging import Staging
from jobyard.agent.sharing.reservations import Reservations
from jobyard.agent.system.forking import Background
from jobyard.agent.system.loop import Loop
from jobyard.agent_protocol import faults, inherited, records


class Runner:
    """Opens and closes slots, keeps their lanes fed, hears what they report, and takes over from those that die."""

    def __init__(
        self,
        loop: Loop,
        outbox: Outbox,
        reservations: Reservations,
        state_dir: str,
        gpus: Gpus,
        background: Background,
        staging: Staging,
        environment: TaskEnvironment,
        runtimes: Runtimes,
        packer: Packer,
    ) -> None:
        self._packer = packer
        selector, timers = loop.selector, loop.timers
        self.workload = Workload()
        self._timers = timers
        self._outbox = outbox
        self._slot_reservations = SlotReservations(timers, reservations, self._reserved)
        self._state_dir = state_dir
        self._staging = staging
        self._containers = SlotContainers(gpus, runtimes, reservations)
        self.remover = ContainerRemover(background, timers, state_dir, runtimes)
        attempts = self.workload.attempts
        self._lifecycle = life = Lifecycle(timers, attempts, outbox, state_dir, gpus, self.remover)
        self.spools = life.spools
        self.withdrawals = Withdrawals(attempts, outbox, state_dir, life.stop_requests, life.stopper, self.feed, packer)
        self._reports = LaneReports(selector, timers, self._on_reports)
        env, writer = inherited.for_tasks(os.environ), self._reports.writer
        self._lanes = LanePool(
            timers, lambda: start_lane(selector, state_dir, writer, env, environment, self._lane_died)
        )
        self._follower = Follower(
            self.workload, life, self.feed, loop, outbox, state_dir, background, self.remover, packer
        )

    def adopt_all(self) -> None:
        """Take over what lanes of an agent before us still run."""
        self._follower.adopt_all()
        memory_groups.remove_leftovers(self._state_dir, self.workload.attempts)
        for slot in self.workload.slots.values():
            slot.has_room = True
            self._slot_reservations.change(slot)

    def let_go(self) -> None:
        """The agent ends: running attempts go on, and leftovers of others are removed."""
        memory_groups.remove_leftovers(self._state_dir, self.workload.attempts)

    # Requests

    def launch(self, slot_id: str, job: str, reserve: Dict[str, Any], items: List[Dict[str, Any]]) -> None:
        """Queue items in a slot, opening it if need be. An item that is here already is left as it is."""
        slots, attempts = self.workload.slots, self.workload.attempts
        slot = slots.get(slot_id)
        if slot is None:
            slot = slots[slot_id] = Slot(slot_id, job, reserve)
            self._slot_reservations.open(slot)
        slot.is_closing = False
        for item in items:
            if item["id"] not in attempts:
                self._packer.unpack(item["id"], is_new=True)  # or it was reconciled, and has a record
                attempt = attempts[item["id"]] = Attempt(item["id"], slot, item)
                attempt.is_contained = bool(self.workload.jobs[job].get("container"))
                slot.queue.append(attempt)
        faults.point("agent-launching")
        self.feed(slot)

    def _reserved(self, slots: List[Slot], refused: Dict[str, str]) -> None:
        """These slots were opened in this turn; the items of those that are refused are withdrawn."""
        for slot in slots:
            slot.has_room = slot.id not in refused
            if slot.has_room:
                self.feed(slot)
                continue
            del self.workload.slots[slot.id]
            for attempt in slot.queue:
                del self.workload.attempts[attempt.id]
                self._outbox.withdrawn(attempt.id)
            self._outbox.refused(slot.id, refused[slot.id])
        self._outbox.flush()

    def close(self, slot_ids: Iterable[str]) -> None:
        """Let slots end after their last attempt; ones that are gone are no error."""
        for slot_id in slot_ids:
            slot = self.workload.slots.get(slot_id)
            if slot is not None:
                slot.is_closing = True
                self.feed(slot)

    def reserve(self, slot_id: str, reserve: Dict[str, Any]) -> None:
        """A slot holds this from now on: what is in it runs already. One that is gone is no error."""
        slot = self.workload.slots.get(slot_id)
        if slot is None:
            return
        slot.reserve = reserve
        self._slot_reservations.change(slot)
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
        """Report on every attempt that the server names; end the others. Returns those that are unknown here.

        Attempts of `held` jobs are left alone: of those the server does not know what it should believe.
        """
        faults.point("agent-reconciling")
        self.withdrawals.keep_only(live, held)
        absent = [name for name in live if not self._report(name)]
        for slot in list(self.workload.slots.values()):
            if slot.is_empty:
                self._close(slot)
        self.pack_leftovers()
        return absent

    def pack_leftovers(self) -> None:
        """Pack what agents before us left, once a server has said what it believes to be live."""
        if self._outbox.is_open:
            self._packer.pack_leftovers(lambda: self._outbox.is_open)

    def _report(self, name: str) -> bool:
        attempt = self.workload.attempts.get(name)
        if attempt is None:
            return self._follower.look(name)
        if attempt.is_withdrawn:
            self._outbox.withdrawn(name)
        elif attempt.state == RUNNING:
            self._outbox.started(name, attempt.started_at)
        return True

    def feed_jobs(self, jobs: List[str]) -> None:
        """What these jobs waited for is here."""
        for slot in self.workload.slots_of(jobs):
            self.feed(slot)

    def fail_jobs(self, jobs: List[str], trouble: str) -> None:
        """What these jobs waited for cannot come: what is queued here has failed."""
        for slot in self.workload.slots_of(jobs):
            queued, slot.queue = slot.queue, deque()
            self._lifecycle.fail(queued, trouble)
            self.feed(slot)

    # Lanes

    def feed(self, slot: Slot) -> None:
        """Keep the slot's lane a little ahead, or end the slot if that was asked and nothing is left."""
        if slot.queue and slot.has_room and not slot.outliving and not self._staging.waits(slot.job):
            lane = slot.lane or self._enter(slot)
            if lane is not None:
                _hand(slot, lane)
        elif slot.is_closing and slot.is_empty:
            self._close(slot)

    def _enter(self, slot: Slot) -> Optional[LaneHandle]:
        """A lane for this slot. None: it is fed again when there may be one."""
        try:
            lane = slot.lane = self._lanes.take(lambda: self.feed(slot))
        except OSError:  # too many processes on this machine: that may pass
            self._timers.after(1.0, lambda: self.feed(slot))
            return None
        if lane is not None:
            job = self.workload.jobs[slot.job]
            container = job.get("container")
            self.workload.number(slot)
            lane.enter(slot, job, self._containers.describe(container, slot.reserve) if container else None)
        return lane

    def _close(self, slot: Slot) -> None:
        if self.workload.slots.pop(slot.id, None) is None:
            return
        self._slot_reservations.close(slot)
        lane, slot.lane = slot.lane, None
        if lane is not None:
            self._lanes.give_back(lane)

    def _lane_died(self, lane: LaneHandle) -> None:
        """Somebody killed a lane: its task runs on, watched from here; what it had not begun is queued again."""
        told = self._take_all_reports()
        self._lanes.bury(lane)
        slot: Optional[Slot] = lane.entered
        if slot is not None:
            self._take_over(slot, lane)
            # Not at once: a lane that cannot live must not be forked in a tight circle.
            self._timers.after(0.05 if lane.has_ended_any else 1.0, lambda: self.feed(slot))
        if slot is not None and slot.reserve.get("memory_limit_mib"):
            memory_groups.remove_leftovers(self._state_dir, self.workload.attempts)
        if slot is None or not slot.outliving:
            close_note(self._state_dir, lane.pid, lane.start_time)
        for other in told - {slot}:
            self.feed(other)
        self._outbox.flush()

    def _take_over(self, slot: Slot, lane: LaneHandle) -> None:
        if slot.lane is lane:
            slot.lane = None
        back = []
        for name in lane.pending:
            attempt = self.workload.attempts[name]
            attempt.lane = None
            if attempt.is_withdrawn:
                del self.workload.attempts[name]
            elif os.path.exists(records.paths(self._state_dir, name).record):
                self._follower.follow(attempt)
            else:
                attempt.state = QUEUED
                back.append(attempt)
        trouble = "" if lane.has_ended_any else scratch.trouble_with(self._state_dir)
        if trouble:  # there is no room here, so nothing may start
            self._lifecycle.fail(back, trouble)
        else:
            slot.queue.extendleft(reversed(back))

    # Reports of lanes

    def _on_reports(self, lines: List[bytes]) -> None:
        slots = self._take_reports(lines)
        for slot in slots:
            self.feed(slot)
        if any(slot.is_empty for slot in slots):  # whatever it waits for, only the server has more
            self._outbox.send_now()
        else:
            self._outbox.flush()

    def _take_all_reports(self) -> Set[Slot]:
        slots: Set[Slot] = set()
        while lines := self._reports.read():
            slots |= self._take_reports(lines)
        return slots

    def _take_reports(self, lines: List[bytes]) -> Set[Slot]:
        """The slots that they are about."""
        slots = set()
        for line in lines:
            kind, name, rest = (line.decode() + " ").split(" ", 2)
            attempt = self.workload.attempts.get(name)
            if attempt is None or attempt.lane is None:
                continue
            slots.add(attempt.slot)
            if kind == "s":
                attempt.take_start(records.parse_start(rest.split()))
                faults.point("agent-running")
                self._lifecycle.has_begun(attempt)
            else:
                attempt.lane.note_end(name)
                if kind == "e":
                    self._lifecycle.finish(attempt, records.parse_end(rest.split()))
                else:
                    self._skipped(attempt)
        return slots

    def _skipped(self, attempt: Attempt) -> None:
        """The lane found a record: ours, because it was withdrawn, or one of an earlier launch."""
        attempt.lane = None
        if attempt.is_withdrawn:
            del self.workload.attempts[attempt.id]
        else:
            self._follower.follow(attempt)


def _hand(slot: Slot, lane: LaneHandle) -> None:
    lane.adapt()
    batch: List[Dict[str, Any]] = []
    while slot.queue and len(lane.pending) + len(batch) < lane.depth:
        attempt = slot.queue.popleft()
        attempt.state, attempt.lane = HANDED, lane
        assert attempt.item is not None
        batch.append(attempt.item)
    if batch:
        lane.hand(batch)
