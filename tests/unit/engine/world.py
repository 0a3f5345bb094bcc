"""A yard and the world around it, for the stateful test: agents that are slow, get lost, repeat themselves."""

from __future__ import annotations

import copy
import json
from collections import defaultdict, deque
from dataclasses import replace
from typing import Any

from jobyard.engine import saved_state
from jobyard.engine.handling import handle
from jobyard.engine.invariants import check, check_decided
from jobyard.engine.planner import Planner
from jobyard.engine.yard_state import YardState
from jobyard.model import events as kinds
from jobyard.model.codec import decode, encode
from jobyard.model.effects import Effect, Launch
from jobyard.model.events import (
    AttemptsFinished,
    AttemptsStarted,
    AttemptsWithdrawn,
    ClusterRemoved,
    Event,
    Finished,
    NodeLost,
    NodeRemoved,
    Started,
    TasksAssigned,
)
from jobyard.model.job import State
from jobyard.model.node import Foreign, cluster_of, place_of
from jobyard.model.task import AttemptId, Outcome
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.ordering import position_of
from jobyard.scheduling.rooms import KnownRooms
from jobyard.simulator.fake_agent import FakeAgent


def through_json(event: Event) -> tuple[str, Event]:
    """As the journal writes it, and as it is read again."""
    text = json.dumps([type(event).__name__, encode(event)])
    kind, data = json.loads(text)
    return text, decode(getattr(kinds, kind), data)


def durable(yard: YardState) -> dict[str, Any]:
    """All that a restart must bring back, as plain data; what is measured of nodes comes again by itself."""
    saved = copy.deepcopy(saved_state.save(yard))
    for node in saved.get("nodes", ()):
        for measured in ("foreign", "load", "device_use"):
            node.pop(measured, None)
    return dict(saved)


class World:
    def __init__(self) -> None:
        self.yard = YardState()
        self.planner = Planner(self.yard)
        self.known = KnownRooms()  # as the planner keeps them
        self.now = 1000.0
        self.journal: list[str] = []
        self.bases: list[tuple[int, str]] = []  # whole states, and after how many rows of the journal they were saved
        self.agents: dict[str, FakeAgent] = {}
        # A cluster is one place, with one agent for all of its nodes.
        self.outgoing: defaultdict[str, deque[Effect]] = defaultdict(deque)  # effects under way to a node
        self.incoming: defaultdict[str, deque[Event]] = defaultdict(deque)  # reports under way from a node
        self.reported: list[Event] = []  # all that was ever reported
        self.yielding: dict[AttemptId, str] = {}  # asked to stop at a checkpoint, and where
        self.newest: dict[tuple[str, int], int] = {}  # the highest attempt number of each task
        self.live: dict[tuple[str, int], AttemptId] = {}  # attempts that may still run, as the engine should see it
        self.counted: dict[tuple[str, int], Outcome] = {}  # the outcome of the newest attempt that was reported

    # -- the engine's side --------------------------------------------------------------------------------------------

    def apply(self, *events: Event) -> None:
        """As the server does it: handle, then decide, then ask for what should come back."""
        for event in events:
            self._handle(event)
        for number, event in enumerate(self.planner.decide(self.now)):
            assert number < 5000, "decide() does not come to an end"
            self._handle(event)
        check(self.yard, finished_too=True)
        check_decided(self.planner)
        self._check_kept_line()
        self._send(self.planner.withdrawals(self.now))

    def _check_kept_line(self) -> None:
        """A planner that keeps what it knows comes to the same plan as one that looks at everything."""
        seen = self.planner.snapshot(self.now)
        wanted = (self.planner.wants.request_of(job, self.now) for job in self.yard.unfinished.values())
        afresh = replace(seen, requests=tuple(filter(None, wanted)))
        assert list(seen.requests) == sorted(afresh.requests, key=position_of)
        assert plan(seen, self.known) == plan(afresh)

    def _handle(self, event: Event) -> None:
        text, same = through_json(event)
        assert same == event
        if not event.ephemeral:
            self.journal.append(text)
        self._note(event)
        effects = handle(self.yard, event)
        check(self.yard)
        self._send(effects)

    def _note(self, event: Event) -> None:
        match event:
            case AttemptsFinished(items=items):
                for attempt, outcome in items:
                    if self._is_over(attempt):
                        self.counted[attempt[:2]] = outcome
            case TasksAssigned(slot=slot, ranges=ranges):
                delayed = self.yard.slots[slot][0].tasks.delayed
                assert not [n for n in delayed if any(low <= n <= high for low, high in ranges)], "it did not wait"
            case AttemptsWithdrawn(attempts=attempts):
                for attempt in attempts:
                    self._is_over(attempt)
            case NodeLost(node=node) if cluster_of(node):
                pass  # what runs there still counts
            case NodeLost(node=node) | NodeRemoved(node=node) | ClusterRemoved(cluster=node):
                placed = [(record.slot.id, record.slot.placement.node) for _, record in self.yard.slots.values()]
                lost = {slot for slot, where in placed if place_of(where) == node}
                for job in self.yard.jobs.values():
                    for task in [task for task in job.active_tasks() if task.slot in lost]:
                        self.live.pop((job.id, task.number))

    def _is_over(self, attempt: AttemptId) -> bool:
        if self.live.get(attempt[:2]) != attempt:
            return False
        del self.live[attempt[:2]]
        return True

    def _send(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Launch):
                for attempt in effect.attempts:
                    key = attempt[:2]
                    assert key not in self.live, f"{attempt} while {self.live[key]} may still run"
                    assert attempt.number > self.newest.get(key, 0), f"{attempt} was there before"
                    self.newest[key], self.live[key] = attempt.number, attempt
            self.outgoing[place_of(effect.node)].append(effect)

    def save(self) -> None:
        """A base is written, or a snapshot: they are the same data."""
        self.bases.append((len(self.journal), json.dumps(saved_state.save(self.yard), allow_nan=False)))

    def rebuilt(self, base: tuple[int, str] | None = None) -> YardState:
        """As another server reads it, from the beginning or from a saved state."""
        covers, text = base or (0, "")
        state = saved_state.load(json.loads(text)) if text else YardState()
        for row in self.journal[covers:]:
            kind, data = json.loads(row)
            handle(state, decode(getattr(kinds, kind), data))
        return state

    def restart(self, base: tuple[int, str] | None = None) -> None:
        """The server dies; another one finds the same yard, field by field, and would do the same next."""
        state = self.rebuilt(base)
        assert durable(state) == durable(self.yard)
        self._measure_again(state)
        seen = Planner(state).snapshot(self.now)
        assert seen == self.planner.snapshot(self.now)
        assert plan(seen) == plan(self.planner.snapshot(self.now))
        self.yard, self.planner = state, Planner(state)
        self.apply()

    def _measure_again(self, state: YardState) -> None:
        for node_id, node in self.yard.places.nodes.items():
            if node.foreign != Foreign():
                handle(state, kinds.NodeMeasured(node_id, node.foreign, self.now, node.load, node.device_use))
        for cluster, quota in self.yard.places.quotas.items():
            handle(state, kinds.QuotaMeasured(cluster, quota, self.now))

    def slots_of(self, place: str) -> list[str]:
        slots = ((slot_id, record.slot.placement.node) for slot_id, (_, record) in self.yard.slots.items())
        return [slot_id for slot_id, node in slots if place_of(node) == place]

    # -- the agents' side ---------------------------------------------------------------------------------------------

    def deliver(self, node: str, *, twice: bool = False) -> None:
        """The next effect reaches its node, perhaps again."""
        effect = self.outgoing[node].popleft()
        agent = self.agents.setdefault(node, FakeAgent())
        for _ in range(1 + twice):
            done = agent.perform(effect)
            for attempt in done.started:
                self._begin(node, attempt)
            for attempt in done.stopped:
                if agent.is_running(attempt):
                    self.end(node, attempt, signal=15)
            self.yielding.update((attempt, node) for attempt in done.preempted)
            if done.withdrawn:
                self.incoming[node].append(AttemptsWithdrawn(tuple(done.withdrawn), self.now))

    def refuse(self, node: str) -> None:
        """The agent gives back what it was to start: another yard holds the room. The attempts are spent."""
        effect = self.outgoing[node].popleft()
        if isinstance(effect, Launch):
            self.agents.setdefault(node, FakeAgent()).refuse(effect)
            self.incoming[node].append(AttemptsWithdrawn(effect.attempts, self.now, "refused"))

    def exchange(self) -> None:
        """All that is under way arrives, there and back."""
        for node in list(self.outgoing):
            while self.outgoing[node]:
                self.deliver(node)
        for node in list(self.incoming):
            self.report(node, 1000)

    def _begin(self, node: str, attempt: AttemptId) -> None:
        self.agents[node].began[attempt] = self.now
        self.incoming[node].append(AttemptsStarted((Started(attempt, self.now, f"pod-{attempt}"),), self.now))

    def end(self, node: str, attempt: AttemptId, **how: Any) -> None:
        agent = self.agents[node]
        outcome = Outcome(agent.began.pop(attempt), self.now, **how)
        self.incoming[node].append(AttemptsFinished((Finished(attempt, outcome),), self.now))
        if following := agent.end(attempt):
            self._begin(node, following)

    def report(self, node: str, most: int = 1) -> None:
        """The oldest words under way from a node arrive, several in one round of the server."""
        queue = self.incoming[node]
        events = [queue.popleft() for _ in range(min(most, len(queue)))]
        self.reported += events
        self.apply(*events)

    def repeat(self, event: Event) -> None:
        """An old report comes again. It changes nothing unless it is about an attempt that still counts."""
        about = event.attempts if isinstance(event, AttemptsWithdrawn) else [item.attempt for item in event.items]  # type: ignore[attr-defined]
        if any(self.live.get(attempt[:2]) == attempt for attempt in about):
            return
        before = durable(self.yard)
        assert handle(self.yard, event) == []
        assert durable(self.yard) == before

    def lose(self, node: str, *, processes_too: bool) -> None:
        """A lost node is rebooted, or only out of reach: then what it runs goes on, and it may say so later."""
        self.outgoing.pop(node, None)
        if processes_too:
            self.agents.pop(node, None)
            self.incoming.pop(node, None)
        self.apply(NodeLost(node, self.now))

    def remove(self, node: str) -> None:
        """A user no longer wants it. What runs there is stopped, if the word arrives."""
        self.outgoing.pop(node, None)
        self.apply(NodeRemoved(node, self.now))
        assert node not in self.yard.places.nodes
        assert not any(r.slot.placement.node == node for _, r in self.yard.slots.values())

    def rejoin(self, node: str) -> None:
        """A node that comes back is told what counts (reconcile): all else stops, and is perhaps still reported."""
        agent = self.agents.get(node)
        for attempt in list(agent.running.values()) if agent else ():
            self.end(node, attempt, signal=9)
        if agent:
            agent.queues.clear()
            for attempt in list(agent.running.values()):
                self.end(node, attempt, signal=9)

    # -- the end ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """From here on all goes well: every word arrives, every task exits with 0. Then everything must end."""
        for _ in range(2000):
            self.now += 0.5
            self.exchange()
            self.apply()
            for node, agent in list(self.agents.items()):
                for attempt in list(agent.running.values()):
                    self.end(node, attempt, exit_code=0)
            if not (
                self.yard.unfinished or self.yard.slots or any(self.outgoing.values()) or any(self.incoming.values())
            ):
                return
        raise AssertionError(f"does not end: {[(job.id, job.state) for job in self.yard.unfinished.values()]}")

    def check_ends(self) -> None:
        check(self.yard, finished_too=True)
        assert not self.live
        for job in self.yard.jobs.values():
            assert job.is_final
            assert job.times.finished_at is not None
            for number in range(job.spec.size):
                task = job.task(number)
                assert task.state.is_final
                assert task.attempt == self.newest.get((job.id, number), 0)
                outcome = self.counted.get((job.id, number))
                if task.state is State.SUCCEEDED:
                    assert outcome is not None
                    assert outcome.succeeded
                if task.state is State.FAILED and outcome is not None and task.outcome is outcome:
                    assert not outcome.succeeded or job.stop is not None
