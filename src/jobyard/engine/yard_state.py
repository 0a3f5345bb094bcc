"""What is the whole yard, and what does one event do to it?

`handle(event)` changes the state and answers with effects; `decide(now)` proposes the next events (they are journalled
and handled like any others); `snapshot()` is what the scheduler reads. Replaying the journal through `handle` rebuilds
everything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from jobyard.engine.job_record import STUCK_SECONDS, JobRecord, SlotRecord
from jobyard.engine.lifecycle import (
    REQUEUED,
    Ask,
    Assigned,
    Began,
    Ended,
    GivenBack,
    Happening,
    LostItsNode,
    RetryAsked,
    Step,
    StopAsked,
    advance,
)
from jobyard.errors import Bug
from jobyard.model.effects import CloseSlot, Effect, Launch, Stop, Withdraw
from jobyard.model.events import (
    AttemptsFinished,
    AttemptsStarted,
    AttemptsWithdrawn,
    CancelRequested,
    DeadlinePassed,
    Event,
    Finished,
    JobSubmitted,
    NodeAdded,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeMeasured,
    NodeRemoved,
    NodeResumed,
    NodeWentAway,
    PriorityChanged,
    RetryRequested,
    SlotClosed,
    SlotOpened,
    TasksAssigned,
)
from jobyard.model.job import FailurePolicy, JobSpec, Reason, State
from jobyard.model.node import Foreign, Node, NodeConfig, NodeState
from jobyard.model.task import AttemptId, Slot, Task
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.explain import may_match, why_never, why_unknown
from jobyard.scheduling.snapshot import HeldSlot, Member, Request, Snapshot, Wait


class YardState:
    def __init__(self) -> None:
        self.jobs: dict[str, JobRecord] = {}
        self.nodes: dict[str, Node] = {}
        self.configs: dict[str, NodeConfig] = {}  # machines that users added
        self.drained: set[str] = set()
        self.removed: set[str] = set()  # word of them may still be under way
        self.slots: dict[str, tuple[JobRecord, SlotRecord]] = {}
        self.unfinished: dict[str, JobRecord] = {}
        self.dependents: defaultdict[str, list[str]] = defaultdict(list)
        self.keys: dict[str, str] = {}  # submitters' keys -> jobs
        self.waits: dict[str, Wait] = {}  # why jobs wait, from the last cycle
        self.last_number = 0
        self.last_slot = 0
        self._yielding: frozenset[str] = frozenset()
        self._hungry: dict[str, None] = {}  # slots that may take more tasks, in order of asking
        self._last_environment: Mapping[str, str] = {}
        self._replan = False  # something changed that the scheduler should look at

    # -- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Effect]:
        """Apply one event. Events about attempts that no longer count change nothing."""
        match event:
            case TasksAssigned():
                return self._assign(event)
            case AttemptsStarted(items=items):
                for attempt, at in items:
                    self._begin(attempt, at)
                return []
            case AttemptsFinished(items=items):
                return self._finish(items, event.at)
            case AttemptsWithdrawn(attempts=attempts):
                return self._give_back(attempts, event.at)
            case SlotOpened(slot=slot):
                job = self.jobs[slot.job]
                job.slots[slot.id] = record = SlotRecord(slot)
                job.request = None
                self.slots[slot.id] = (job, record)
                self.last_slot = max(self.last_slot, int(slot.id))
                self._hungry[slot.id] = None
                return []
            case SlotClosed(slot=slot_id):
                return self._close(slot_id)
            case JobSubmitted():
                return self._submit(event)
            case CancelRequested():
                return self._cancel(event)
            case RetryRequested():
                return self._retry(event)
            case DeadlinePassed(job=job_id):
                message = "the job ran longer than its deadline"
                late = self.jobs[job_id]
                return [] if late.is_final else self._stop_job(late, Reason.TIMEOUT, message, event.at)
            case PriorityChanged(job=job_id, priority=priority):
                self.jobs[job_id].priority = priority
                self.jobs[job_id].request = None
                self._replan = True
                return []
            case NodeJoined(node=node):
                self._join(node)
                return []
            case NodeAdded(config=config):
                self.configs[config.id] = config
                self.removed.discard(config.id)
                self._replan = True
                if known := self.nodes.get(config.id):
                    self._set_node(replace(known, labels=config.labels))
                return []
            case NodeRemoved(node=node_id):
                return self._remove_node(node_id, event.at)
            case NodeDrained(node=node_id) | NodeResumed(node=node_id):
                (self.drained.add if isinstance(event, NodeDrained) else self.drained.discard)(node_id)
                known = self.nodes.get(node_id)
                if known is not None and known.state in (NodeState.UP, NodeState.DRAINING):
                    self._set_node(replace(known, state=self._state_when_here(node_id)))
                return []
            case NodeWentAway(node=node_id):
                known = self.nodes.get(node_id)
                if known is not None and known.state is not NodeState.DOWN:
                    self._set_node(replace(known, state=NodeState.AWAY))
                return []
            case NodeMeasured(node=node_id, foreign=foreign, load=load, device_use=device_use):
                if known := self.nodes.get(node_id):
                    self._replan = self._replan or known.foreign != foreign
                    self.nodes[node_id] = replace(known, foreign=foreign, load=load, device_use=device_use)
                return []
            case NodeLost(node=node_id, message=message):
                return self._lose_node(node_id, message or f"node {node_id} was lost", event.at)
        raise Bug(f"no handler for {type(event).__name__}")

    def _submit(self, event: JobSubmitted) -> list[Effect]:
        job = JobRecord(event.job, event.number, self._sharing_environment(event.spec), event.at)
        self.jobs[job.id] = self.unfinished[job.id] = job
        self.last_number = max(self.last_number, event.number)
        if event.key:
            self.keys[event.key] = job.id
        for dependency in event.spec.after:
            self.dependents[dependency.job].append(job.id)
        self._replan = True
        return self._check_dependencies(job, event.at)

    def _sharing_environment(self, spec: JobSpec) -> JobSpec:
        """Jobs of one shell bring the same environment: a thousand of them keep it once."""
        if spec.inherited_env == self._last_environment:
            return replace(spec, inherited_env=self._last_environment)
        self._last_environment = spec.inherited_env
        return spec

    def _assign(self, event: TasksAssigned) -> list[Effect]:
        job, record = self.slots[event.slot]
        attempts = []
        record.was_fed = True
        if not record.tasks:
            record.progress_at = event.at
        for first, last in event.ranges:
            for number in range(first, last + 1):
                step = self._advance(job, job.task(number), Assigned(event.slot, record.slot.placement.node))
                record.tasks.add(number)
                attempts.append(AttemptId(job.id, number, step.task.attempt))
        return [Launch(record.slot.placement.node, record.slot, tuple(attempts))]

    def _begin(self, attempt: AttemptId, at: float) -> None:
        if found := self._current(attempt):
            job, task = found
            self._advance(job, task, Began(at))
            if job.started_at is None:
                job.started_at = at

    def _finish(self, items: Iterable[Finished], at: float) -> list[Effect]:
        effects: list[Effect] = []
        for attempt, outcome in items:
            found = self._current(attempt)
            if found is None:
                continue
            job, task = found
            if job.started_at is None:
                job.started_at = outcome.started_at
            group = job.spec.place_of(task.number).group
            seconds = max(0.0, outcome.finished_at - outcome.started_at)
            job.learn_duration(group, seconds)
            job.busy_seconds += seconds
            job.peak_memory_mib = max(job.peak_memory_mib, outcome.peak_memory_mib)
            job.slots[task.slot].progress_at = at
            retries = 0 if job.spec.gang else job.spec.retries
            step = self._advance(job, task, Ended(outcome), retries)
            effects += self._after_end(job, step.task, outcome.finished_at)
        return effects

    def _after_end(self, job: JobRecord, task: Task, at: float) -> list[Effect]:
        """What the end of one attempt means for its siblings and its job."""
        effects: list[Effect] = []
        if task.state is State.PENDING:
            self._replan = True
            if job.spec.gang and task.reason not in REQUEUED:  # on its own: it lost its node, or was given back
                effects += self._restart_gang(job, task.message or "one of its tasks was given back")
        elif task.state is State.FAILED:
            effects += self._on_failure(job, task, at)
        if job.is_final:
            effects += self._end_job(job, at)
        return effects

    def _on_failure(self, job: JobRecord, task: Task, at: float) -> list[Effect]:
        if job.spec.gang and job.stop is None and job.gang_failures < job.spec.retries:
            job.gang_failures += 1
            return self._restart_gang(job, f"task {job.spec.label_of(task.number)} failed: {task.message}")
        if job.first_failure is None:
            job.first_failure = task.number
        if job.stop is not None:
            return []
        label = job.spec.label_of(task.number)
        if job.spec.failure_policy is FailurePolicy.STOP:
            return self._stop_job(job, Reason.SIBLING_FAILED, f"stopped because task {label} failed", at)
        if job.spec.max_fails is not None and job.counts[State.FAILED] > job.spec.max_fails:
            message = f"stopped because {job.counts[State.FAILED]} tasks failed (--max-fails {job.spec.max_fails})"
            return self._stop_job(job, Reason.SIBLING_FAILED, message, at)
        return []

    def _restart_gang(self, job: JobRecord, message: str) -> list[Effect]:
        """All tasks of a gang begin again together: running ones stop, ended ones wait again."""
        message = f"restarting with its gang: {message}"
        for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED):
            for first, last in job.numbers_in(state):
                for number in range(first, last + 1):
                    self._advance(job, job.task(number), RetryAsked())
        self._replan = True
        return self._stop_tasks(job, list(job.active_tasks()), StopAsked(Reason.PREEMPTED, message), 0.0)

    def _give_back(self, attempts: Iterable[AttemptId], at: float) -> list[Effect]:
        effects: list[Effect] = []
        for attempt in attempts:
            found = self._current(attempt)
            if found is None or found[1].state is State.RUNNING:
                continue
            job, task = found
            step = self._advance(job, task, GivenBack())
            if (record := job.slots.get(task.slot)) and not record.tasks:
                record.is_void = True  # feeding it again would be refused again: the scheduler looks anew
            effects += self._after_end(job, step.task, at)
            self._replan = True
        return effects

    def _close(self, slot_id: str) -> list[Effect]:
        job, record = self.slots.pop(slot_id)
        del job.slots[slot_id]
        job.request = None
        self._hungry.pop(slot_id, None)
        self._replan = True
        return [CloseSlot(record.slot.placement.node, slot_id)]

    def _cancel(self, event: CancelRequested) -> list[Effect]:
        job = self.jobs[event.job]
        if job.is_final:
            return []
        if not event.tasks or job.spec.gang:  # a gang stops together
            return self._stop_job(job, Reason.CANCELLED, event.message, event.at, force=event.force)
        numbers = [number for number in event.tasks if 0 <= number < job.spec.size]
        tasks = [task for number in numbers if not (task := job.task(number)).state.is_final]
        asked = StopAsked(Reason.CANCELLED, event.message)
        effects = self._stop_tasks(job, tasks, asked, 0.0 if event.force else job.spec.grace_seconds)
        self._replan = True
        return effects + (self._end_job(job, event.at) if job.is_final else [])

    def _stop_job(
        self, job: JobRecord, reason: Reason, message: str, at: float, *, force: bool = False
    ) -> list[Effect]:
        """No more of its tasks start, and those that run are asked to stop. Repeating it with force hurries them."""
        if job.stop is None:
            job.stop = (reason, message)
            job.cancel_untouched()
        grace = 0.0 if force else job.spec.grace_seconds
        effects = self._stop_tasks(job, list(job.active_tasks()), StopAsked(reason, message), grace)
        self._replan = True
        return effects + (self._end_job(job, at) if job.is_final else [])

    def _stop_tasks(self, job: JobRecord, tasks: list[Task], asked: StopAsked, grace: float) -> list[Effect]:
        by_node: defaultdict[str, list[AttemptId]] = defaultdict(list)
        for task in tasks:
            step = self._advance(job, task, asked)
            if step.ask is Ask.STOP:
                node = job.slots[task.slot].slot.placement.node
                by_node[node].append(AttemptId(job.id, task.number, task.attempt))
        return [Stop(node, tuple(attempts), grace) for node, attempts in by_node.items()]

    def _retry(self, event: RetryRequested) -> list[Effect]:
        """Tasks that ended wait again. While a job stops, or a gang runs, there is nothing to run again yet."""
        job = self.jobs[event.job]
        if not job.is_final and (job.stop is not None or job.spec.gang):
            return []
        was_final = job.is_final
        for first, last in [(0, job.spec.size - 1)] if job.spec.gang else event.tasks:
            job.revive_untouched(first, last)
            for number in job.final_within(first, last):
                self._advance(job, job.task(number), RetryAsked())
        if job.is_final:
            return []  # none of them had ended
        failed = job.numbers_in(State.FAILED)
        job.first_failure = failed[0][0] if failed else None
        self._replan = True
        if not was_final:
            return []  # retrying a few tasks of a running job leaves the rest as it is
        # A job that ended starts afresh: its deadline, its dependencies and its count of restarts too.
        job.stop = job.started_at = job.finished_at = None
        job.gang_failures = 0
        self.unfinished[job.id] = job
        return self._check_dependencies(job, event.at)

    def _join(self, node: Node) -> None:
        """What it has replaces what was known; what others hold of it stays as last measured, until the next time."""
        if node.id in self.removed:
            return
        config, known = self.configs.get(node.id), self.nodes.get(node.id)
        if known is not None and node.foreign == Foreign():
            node = replace(node, foreign=known.foreign, load=known.load, device_use=known.device_use)
        labels = config.labels if config else node.labels
        self._set_node(replace(node, labels=labels, state=self._state_when_here(node.id)))

    def _remove_node(self, node_id: str, at: float) -> list[Effect]:
        """Its tasks run elsewhere; what runs there is asked to stop, if it still can be."""
        stops: list[Effect] = []
        for job, record in self.slots.values():
            if record.slot.placement.node == node_id and record.tasks:
                running = (AttemptId(job.id, number, job.tasks[number].attempt) for number in sorted(record.tasks))
                stops.append(Stop(node_id, tuple(running), job.spec.grace_seconds))
        effects = self._lose_node(node_id, f"node {node_id} was removed", at)
        self.configs.pop(node_id, None)
        self.nodes.pop(node_id, None)
        self.drained.discard(node_id)
        self.removed.add(node_id)
        return stops + effects

    def _set_node(self, node: Node) -> None:
        self.nodes[node.id] = node
        self._replan = True

    def _state_when_here(self, node_id: str) -> NodeState:
        return NodeState.DRAINING if node_id in self.drained else NodeState.UP

    def _lose_node(self, node_id: str, message: str, at: float) -> list[Effect]:
        if node := self.nodes.get(node_id):
            self.nodes[node_id] = replace(node, state=NodeState.DOWN)
        effects: list[Effect] = []
        lost = [item for item in self.slots.values() if item[1].slot.placement.node == node_id]
        for job, record in lost:
            for number in list(record.tasks):
                step = self._advance(job, job.tasks[number], LostItsNode(message))
                effects += self._after_end(job, step.task, at)
            if record.slot.id in self.slots:
                self._close(record.slot.id)
        self._replan = True
        return [effect for effect in effects if effect.node != node_id]

    # -- jobs -------------------------------------------------------------------------------------------------------

    def _end_job(self, job: JobRecord, at: float) -> list[Effect]:
        if self.unfinished.pop(job.id, None) is None:
            return []
        job.finished_at = at
        self.waits.pop(job.id, None)
        for slot_id in job.slots:
            self._hungry[slot_id] = None  # to be closed
        effects: list[Effect] = []
        for dependent in self.dependents.get(job.id, ()):
            effects += self._check_dependencies(self.jobs[dependent], at)
        self._replan = True
        return effects

    def _check_dependencies(self, job: JobRecord, at: float) -> list[Effect]:
        """A job whose `afterok` can no longer be met is cancelled, unless it has begun already."""
        if job.is_final or job.stop is not None or job.started_at is not None:
            return []
        for dependency in job.spec.after:
            needed = self.jobs.get(dependency.job)
            if needed and dependency.needs_success and needed.is_final and needed.state is not State.SUCCEEDED:
                message = f"job {needed.id} ended {needed.state}, and this one runs only after its success"
                return self._stop_job(job, Reason.DEPENDENCY, message, at)
        return []

    def waits_for(self, job: JobRecord) -> list[str]:
        """The jobs that it must wait for, of those named in `after`. Once it has begun it waits for none."""
        if job.started_at is not None:
            return []
        return [d.job for d in job.spec.after if d.job in self.jobs and not self.jobs[d.job].is_final]

    def _advance(self, job: JobRecord, task: Task, happening: Happening, retries: int = 0) -> Step:
        step = advance(task, happening, retries)
        job.put(step.task)
        if task.slot and not step.task.slot and (record := job.slots.get(task.slot)):
            record.tasks.discard(task.number)
            self._hungry[task.slot] = None
        return step

    def _current(self, attempt: AttemptId) -> tuple[JobRecord, Task] | None:
        """The task whose current attempt this is; None where it was superseded, ended or never heard of."""
        job = self.jobs.get(attempt.job)
        task = job.tasks.get(attempt.task) if job else None
        if job is None or task is None or task.attempt != attempt.number or not task.state.is_active:
            return None
        return job, task

    # -- decisions -----------------------------------------------------------------------------------------------------

    def decide(self, now: float) -> Iterator[Event]:
        """The events that the engine itself wants. Handle each before taking the next: they build on one another."""
        # 1. Deadlines.
        for job in list(self.unfinished.values()):
            deadline, started = job.spec.deadline_seconds, job.started_at
            if deadline is not None and started is not None and job.stop is None and now >= started + deadline:
                yield DeadlinePassed(job.id, now)
        while self._hungry or self._replan:
            # 2. Open slots get their next tasks, or close.
            while self._hungry:
                slot_id = next(iter(self._hungry))
                del self._hungry[slot_id]
                if slot_id in self.slots:
                    yield from self._feed(slot_id, now)
            # 3. The scheduler looks at what is left, when something changed.
            if self._replan:
                self._replan = False
                yield from self._schedule(now)

    def _feed(self, slot_id: str, now: float) -> Iterator[Event]:
        job, record = self.slots[slot_id]
        slot = record.slot
        able = job.stop is None and slot_id not in self._yielding and self._is_usable(slot.placement.node)
        able = able and not record.is_void
        if able and not (job.spec.gang and record.was_fed) and not record.is_stuck(now):
            backlog = job.backlog(slot.group)
            if len(record.tasks) > backlog // 2:
                return
            low, high = job.numbers_of(slot.group, slot.replica)
            waiting = job.pending.count_within(low, high)
            share = -(-waiting // job.slots_of(slot.group))
            room = 1 if job.spec.gang else min(backlog - len(record.tasks), max(1, share))
            # Nobody else can use them sooner: a slot that still runs something takes no more than its share.
            if record.tasks and share == 0:
                return
            if ranges := job.pending.first_within(low, high, room):
                yield TasksAssigned(slot_id, tuple(ranges), now)
                return
        if not record.tasks:
            yield SlotClosed(slot_id, now)

    def _is_usable(self, node_id: str) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and node.state is NodeState.UP

    def _schedule(self, now: float) -> Iterator[Event]:
        decided = plan(self.snapshot())
        self.waits = decided.waits
        for slot_id in self._yielding - decided.yielding:
            self._hungry[slot_id] = None  # it may take tasks again
        self._yielding = decided.yielding
        for opening in decided.openings:
            slot = Slot(str(self.last_slot + 1), opening.job, opening.group, opening.placement, opening.replica)
            yield SlotOpened(slot, now)

    def withdrawals(self, now: float) -> list[Effect]:
        """What waits at agents behind a running task, in slots that must yield or are stuck: ask for it back.

        Asks again for what did not come back, but not at once.
        """
        effects: list[Effect] = []
        for slot_id, (job, record) in self.slots.items():
            if len(record.tasks) < 2 or now - record.asked_back_at < STUCK_SECONDS:
                continue
            if slot_id in self._yielding or record.is_stuck(now):
                record.asked_back_at = now
                queued = (job.tasks[number] for number in sorted(record.tasks))
                attempts = tuple(AttemptId(job.id, t.number, t.attempt) for t in queued if t.state is State.STARTING)
                if attempts:
                    effects.append(Withdraw(record.slot.placement.node, attempts))
        return effects

    def next_deadline(self) -> float | None:
        """When `decide` should be called at the latest, for deadlines alone."""
        times = [
            job.started_at + job.spec.deadline_seconds
            for job in self.unfinished.values()
            if job.spec.deadline_seconds is not None and job.started_at is not None and job.stop is None
        ]
        return min(times, default=None)

    # -- views of the state --------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        held = tuple(HeldSlot(record.slot, job.priority, job.number) for job, record in self.slots.values())
        requests = tuple(request for job in self.unfinished.values() if (request := self.request_of(job)))
        return Snapshot(tuple(self.nodes.values()), held, requests, self.awaited)

    @property
    def awaited(self) -> tuple[NodeConfig, ...]:
        """Machines that were added and of which nothing is known yet."""
        return tuple(config for name, config in self.configs.items() if name not in self.nodes)

    def request_of(self, job: JobRecord) -> Request | None:
        """The slots that a job would open now, were there room; None if it has nothing to start."""
        if job.stop is not None or not len(job.pending) or self.waits_for(job):
            return None
        if job.request is None:
            job.request = self.new_request(job)
        return job.request

    def new_request(self, job: JobRecord) -> Request | None:
        """The same, worked out afresh, for a job that may start tasks."""
        if job.spec.gang and (job.slots or len(job.pending) < job.spec.size):
            return None  # its tasks start together, when all of them wait
        allowed = job.slots_allowed - len(job.slots)
        members = []
        for member in self._members(job):
            if allowed <= 0:
                break
            members.append(member if member.wanted <= allowed else replace(member, wanted=allowed))
            allowed -= member.wanted
        if not members:
            return None
        spec = job.spec
        return Request(job.id, job.priority, job.number, tuple(members), spec.gang, spec.on, spec.overcommit)

    def _members(self, job: JobRecord) -> Iterator[Member]:
        """Room wanted per group, and per replica where a replica may not run all of its tasks at once."""
        open_slots = Counter((record.slot.group, record.slot.replica) for record in job.slots.values())
        for index, group in enumerate(job.spec.groups):
            limited = group.parallelism is not None and group.parallelism < group.completions and not job.spec.gang
            for replica in range(group.count) if limited else (None,):
                low, high = job.numbers_of(index, replica)
                wanted = job.pending.count_within(low, high)
                if limited and group.parallelism is not None:
                    wanted = min(wanted, group.parallelism - open_slots[(index, replica)])
                if wanted > 0:
                    yield Member(index, group.resources, wanted, replica)

    def why_never(self, job_groups: Iterable[Member], on: str, overcommit: bool = False) -> str | None:
        """A sentence if some member could run on no node at all, however empty, or `on` names what is not there."""
        nodes = list(self.nodes.values())
        if unknown := why_unknown(nodes, self.awaited, on):
            return unknown
        if any(may_match(config, on) for config in self.awaited):
            return None  # nobody knows yet what it has
        return next((why for m in job_groups if (why := why_never(nodes, m.resources, on, overcommit))), None)
