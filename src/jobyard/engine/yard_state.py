"""What is the whole yard, and what does one event do to it?

`handle(event)` changes the state and answers with effects; `decide(now)` proposes the next events (they are journalled
and handled like any others); `snapshot()` is what the scheduler reads. Replaying the journal through `handle` rebuilds
everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from jobyard.engine import deciding, quarantine, wants
from jobyard.engine.clusters import devices_for
from jobyard.engine.job_record import JobRecord, SlotRecord
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
    YieldAsked,
    advance,
)
from jobyard.engine.training import (
    Bounds,
    Trainings,
    tells_of_checkpoints,
    yield_seconds,
)
from jobyard.errors import Bug
from jobyard.model.effects import CloseSlot, Effect, JobEnded, Launch, Reserve, Stop, Yield
from jobyard.model.events import (
    AttemptsAwaited,
    AttemptsFinished,
    AttemptsMeasured,
    AttemptsProgressed,
    AttemptsStarted,
    AttemptsWithdrawn,
    Awaited,
    CancelRequested,
    ClusterAdded,
    ClusterRemoved,
    DeadlinePassed,
    Event,
    Finished,
    JobQuarantined,
    JobSized,
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
    Progressed,
    QuotaMeasured,
    RetryRequested,
    ScaleRequested,
    SlotClosed,
    SlotMoved,
    SlotOpened,
    SlotReserved,
    Started,
    TasksAssigned,
    YieldRequested,
)
from jobyard.model.job import FailurePolicy, JobSpec, Reason, State
from jobyard.model.node import ClusterConfig, Foreign, Node, NodeConfig, NodeState, Quota, cluster_of, place_of
from jobyard.model.task import AttemptId, Task
from jobyard.scheduling.rooms import KnownRooms
from jobyard.scheduling.snapshot import Member, Request, Snapshot, StopOrder, Wait


class YardState:
    def __init__(self) -> None:
        self.jobs: dict[str, JobRecord] = {}
        self.nodes: dict[str, Node] = {}
        self.configs: dict[str, NodeConfig] = {}  # machines that users added
        self.clusters: dict[str, ClusterConfig] = {}
        self.quotas: dict[str, Quota] = {}  # by cluster, as last measured
        self.drained: set[str] = set()  # machines, clusters, and nodes of clusters
        self.removed: set[str] = set()  # word of them may still be under way
        self.slots: dict[str, tuple[JobRecord, SlotRecord]] = {}
        self.unfinished: dict[str, JobRecord] = {}
        self.dependents: defaultdict[str, list[str]] = defaultdict(list)
        self.keys: dict[str, str] = {}  # submitters' keys -> jobs
        self.waits: dict[str, Wait] = {}  # why jobs wait, from the last cycle
        self.awaits: dict[AttemptId, tuple[Reason | None, str]] = {}  # why attempts that a cluster has do not run yet
        self.last_number = 0
        self.last_slot = 0
        self.yielding: frozenset[str] = frozenset()
        self.hungry: dict[str, None] = {}  # slots that may take more tasks, in order of asking
        self._last_environment: Mapping[str, str] = {}
        self.replan = False  # something changed that the scheduler should look at
        self.trainings = Trainings()
        self.bounds: dict[
            str, Bounds
        ] = {}  # of what machines ("") or the nodes of a cluster have; as they are asked for
        self.known_rooms = KnownRooms()
        self.orders: dict[str, StopOrder] = {}  # of the scheduler, by job that stops: for whom, and to come back how
        self.remeasured: dict[str, None] = {}  # jobs whose use of GPUs was measured
        self.quarantined: dict[str, None] = {}  # jobs of which nothing is begun or ended

    # -- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Effect]:
        """Apply one event. Events about attempts that no longer count change nothing, nor do those about jobs in
        quarantine, but for a cancel."""
        left = quarantine.what_is_left(self, event) if self.quarantined else event
        return self._handle(left) if left is not None else []

    def _handle(self, event: Event) -> list[Effect]:
        match event:
            case JobQuarantined(job=job_id, message=message):
                quarantine.begin(self, job_id, message)
                return []
            case TasksAssigned():
                return self._assign(event)
            case AttemptsStarted(items=items):
                for item in items:
                    self._begin(item)
                return []
            case AttemptsAwaited(items=awaited):
                self._await(awaited)
                return []
            case AttemptsFinished(items=items):
                return self._finish(items, event.at)
            case AttemptsWithdrawn(attempts=attempts):
                return self._give_back(attempts, event.at)
            case SlotOpened(slot=slot):
                job = self.jobs[slot.job]
                job.slots[slot.id] = record = SlotRecord(slot)
                job.request = job.next_size = None
                self.slots[slot.id] = (job, record)
                self.last_slot = max(self.last_slot, int(slot.id))
                self.hungry[slot.id] = None
                return []
            case SlotClosed(slot=slot_id):
                return self._close(slot_id)
            case AttemptsProgressed(items=items):
                self._progress(items)
                return []
            case AttemptsMeasured(progressed=progressed, used=used):
                self._progress(progressed)
                for each in used:
                    if found := self._current(each.attempt):
                        self.trainings.learn_use(found[0], each, event.at)
                        self.remeasured[found[0].id] = None
                return []
            case YieldRequested():
                return self._yield(event)
            case ScaleRequested(job=job_id, size=size):
                self.jobs[job_id].fixed_size = size
                self.replan = True
                return []
            case JobSized(job=job_id, size=size):
                self.jobs[job_id].resize(size)
                return []
            case SlotReserved(slot=slot_id, placement=placement):
                if slot_id not in self.slots:
                    return []
                job, record = self.slots[slot_id]
                record.slot = replace(record.slot, placement=placement)
                self.replan = True
                return [Reserve(placement.node, record.slot)]
            case SlotMoved(slot=slot_id, node=node_id):
                self._move(slot_id, node_id)
                return []
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
                self.replan = True
                return []
            case NodeJoined(node=node):
                self._join(node)
                return []
            case NodeAdded(config=config):
                self.configs[config.id] = config
                self.removed.discard(config.id)
                self.replan = True
                if known := self.nodes.get(config.id):
                    self._set_node(replace(known, labels=config.labels))
                return []
            case NodeRemoved(node=node_id):
                return self._remove_node(node_id, event.at)
            case ClusterAdded(config=added):
                self._add_cluster(added)
                return []
            case ClusterRemoved(cluster=cluster):
                return self._remove_cluster(cluster, event.at)
            case QuotaMeasured(cluster=cluster, quota=quota):
                self.replan = self.replan or self.quotas.get(cluster) != quota
                self.quotas[cluster] = quota
                return []
            case NodeDrained(node=node_id) | NodeResumed(node=node_id):
                (self.drained.add if isinstance(event, NodeDrained) else self.drained.discard)(node_id)
                for known in self._nodes_at(node_id):
                    if known.state in (NodeState.UP, NodeState.DRAINING):
                        self._set_node(replace(known, state=self._state_when_here(known.id)))
                return []
            case NodeWentAway(node=node_id):
                for known in self._nodes_at(node_id):
                    if known.state is not NodeState.DOWN:
                        self._set_node(replace(known, state=NodeState.AWAY))
                return []
            case NodeMeasured(node=node_id, foreign=foreign, load=load, device_use=device_use):
                if known := self.nodes.get(node_id):
                    self.replan = self.replan or known.foreign != foreign
                    self.nodes[node_id] = replace(known, foreign=foreign, load=load, device_use=device_use)
                return []
            case NodeLost(node=node_id) if cluster_of(node_id) or node_id in self.clusters:
                # Its cluster knows what became of the pods there, and its executor says so, pod by pod.
                for known in self._nodes_at(node_id):
                    self._set_node(replace(known, state=NodeState.DOWN))
                return []
            case NodeLost(node=node_id, message=message):
                return self._lose_node(node_id, message or f"node {node_id} was lost", event.at)
        raise Bug(f"no handler for {type(event).__name__}")

    def _submit(self, event: JobSubmitted) -> list[Effect]:
        job = JobRecord(event.job, event.number, self.sharing_environment(event.spec), event.at)
        self.jobs[job.id] = self.unfinished[job.id] = job
        self.last_number = max(self.last_number, event.number)
        if event.key:
            self.keys[event.key] = job.id
        for dependency in event.spec.after:
            self.dependents[dependency.job].append(job.id)
        self.replan = True
        return self._check_dependencies(job, event.at)

    def sharing_environment(self, spec: JobSpec) -> JobSpec:
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
                if job.progress and not self.trainings.can_go_on(job, number, record.slot.placement.node):
                    job.progress.pop(number, None)
                    job.checkpoint_places.pop(number, None)
                step = self._advance(job, job.task(number), Assigned(event.slot, record.slot.placement.node))
                record.tasks.add(number)
                attempts.append(AttemptId(job.id, number, step.task.attempt))
        return [Launch(record.slot.placement.node, record.slot, tuple(attempts))]

    def _begin(self, started: Started) -> None:
        if found := self._current(started.attempt):
            job, task = found
            self._advance(job, task, Began(started.at, started.unit))
            if job.started_at is None:
                job.started_at = started.at

    def _await(self, items: Iterable[Awaited]) -> None:
        for attempt, reason, sentence in items:
            found = self._current(attempt)
            if sentence and found and not found[1].started_at:
                self.awaits[attempt] = (reason, sentence)
            else:
                self.awaits.pop(attempt, None)

    def _move(self, slot_id: str, node_id: str) -> None:
        """A cluster put it elsewhere; the books follow, also where they would then be overbooked."""
        job, record = self.slots.get(slot_id, (None, None))
        if job is None or record is None:
            return
        placement = record.slot.placement
        if node_id == placement.node or place_of(node_id) != place_of(placement.node):
            return
        others = (other.slot.placement for _, other in self.slots.values())
        devices = devices_for(placement.resources, self.nodes.get(node_id), others)
        record.slot = replace(record.slot, placement=replace(placement, node=node_id, devices=devices))
        for number in record.tasks:
            job.put(replace(job.tasks[number], node=node_id))
        self.replan = True

    def _finish(self, items: Iterable[Finished], at: float) -> list[Effect]:
        effects: list[Effect] = []
        for attempt, outcome in items:
            found = self._current(attempt)
            if found is None:
                continue
            job, task = found
            if task.is_yielding and job.spec.gang and not outcome.succeeded and job.counts[State.PENDING]:
                outcome = replace(
                    outcome, reason=Reason.PREEMPTED
                )  # its peers have stopped already: it could not go on
            if job.started_at is None:
                job.started_at = outcome.started_at
            group = job.spec.place_of(task.number).group
            seconds = max(0.0, outcome.finished_at - outcome.started_at)
            if outcome.reason is not Reason.PREEMPTED:
                job.learn_duration(group, seconds)
            job.busy_seconds += seconds
            job.peak_memory_mib = max(job.peak_memory_mib, outcome.peak_memory_mib)
            job.slots[task.slot].progress_at = at
            retries = 0 if job.spec.gang else job.spec.retries
            self.trainings.learn_end(job, task, outcome)
            more, in_vain = False, ""
            if not outcome.succeeded:
                more = self.trainings.give_more_memory(job, task, outcome, self.nodes_for(job))
                in_vain = "" if more else self.trainings.needs_larger_gpu(job, task, outcome, self.nodes_for(job))
            if in_vain:
                outcome = replace(outcome, message="; ".join(filter(None, (outcome.message, in_vain))))
            if task.is_yielding and outcome.reason is Reason.PREEMPTED:
                job.resizes += task.reason is Reason.RESIZING
                job.preemptions += task.reason is Reason.PREEMPTED
                if outcome.message and tells_of_checkpoints(job, task.number):
                    job.missed_deadline = outcome.message
            if task.is_yielding or more:
                job.slots[task.slot].is_void = True  # the scheduler looks anew
            step = self._advance(job, task, Ended(outcome, more), 0 if in_vain else retries)
            effects += self._after_end(job, step.task, outcome.finished_at, is_in_vain=bool(in_vain))
        return effects

    def _after_end(self, job: JobRecord, task: Task, at: float, *, is_in_vain: bool = False) -> list[Effect]:
        """What the end of one attempt means for its siblings and its job. `is_in_vain`: nobody is to try it again."""
        effects: list[Effect] = []
        if task.state is State.PENDING:
            self.replan = True
            if job.spec.gang and (task.reason not in REQUEUED or not self._stops_together(job)):
                effects += self._restart_gang(job, task.message or "one of its tasks was given back")
        elif task.state is State.SUCCEEDED and job.spec.gang and job.stop is None and job.counts[State.PENDING]:
            effects += self._restart_gang(job, "a part of it was done before the rest stopped")
        elif task.state is State.FAILED:
            effects += self._on_failure(job, task, at, is_in_vain)
        if job.is_final:
            effects += self._end_job(job, at)
        return effects

    def _on_failure(self, job: JobRecord, task: Task, at: float, is_in_vain: bool) -> list[Effect]:
        if job.spec.gang and job.stop is None and job.gang_failures < job.spec.retries and not is_in_vain:
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
        self.replan = True
        return self._stop_tasks(job, list(job.active_tasks()), StopAsked(Reason.PREEMPTED, message), 0.0)

    def _stops_together(self, job: JobRecord) -> bool:
        """Are all others of a gang on their way to wait again, as this one is?"""
        return job.counts[State.PENDING] + job.counts[State.STOPPING] == job.spec.size

    def _progress(self, items: Iterable[Progressed]) -> None:
        for attempt, progress in items:
            if found := self._current(attempt):
                job, task = found
                known = job.progress.get(task.number)
                if self.trainings.learn_progress(job, task, progress):
                    self.remeasured[job.id] = None
                    # Of a job that has one size, another epoch changes no plan: hundreds of them may come in a second.
                    can_yield_now = progress.can_yield and not (known and known.can_yield)
                    self.replan = self.replan or can_yield_now or bool(job.spec.elastic)

    def _yield(self, event: YieldRequested) -> list[Effect]:
        """Its tasks stop at their next checkpoints. Slots that are free of them close, and the scheduler looks anew."""
        job = self.jobs[event.job]
        if job.is_final or job.stop is not None:
            return []
        if event.to_the_back:
            job.age = self.last_number + 1
        job.request = None
        job.next_size = event.size or job.next_size
        asked = YieldAsked(event.reason, event.message)
        polite: defaultdict[tuple[str, bool], list[AttemptId]] = defaultdict(list)
        for task in list(job.active_tasks()):
            if self._advance(job, task, asked).ask is Ask.YIELD:
                at_once = not tells_of_checkpoints(job, task.number)
                node = job.slots[task.slot].slot.placement.node
                polite[node, at_once].append(AttemptId(job.id, task.number, task.attempt))
        for record in job.slots.values():
            record.is_void = True
        grace = job.spec.grace_seconds
        return [
            Yield(node, tuple(attempts), yield_seconds(job, self.trainings.profile_of(job)), grace, at_once)
            for (node, at_once), attempts in polite.items()
        ]

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
            self.replan = True
        return effects

    def _close(self, slot_id: str) -> list[Effect]:
        job, record = self.slots.pop(slot_id)
        del job.slots[slot_id]
        job.request = None
        self.hungry.pop(slot_id, None)
        self.replan = True
        return [CloseSlot(record.slot.placement.node, slot_id)]

    def _cancel(self, event: CancelRequested) -> list[Effect]:
        job = self.jobs[event.job]
        quarantine.end(self, job)
        if job.is_final:
            return []
        if not event.tasks or job.spec.gang:  # a gang stops together
            return self._stop_job(job, Reason.CANCELLED, event.message, event.at, force=event.force)
        numbers = [number for number in event.tasks if 0 <= number < job.spec.size]
        tasks = [task for number in numbers if not (task := job.task(number)).state.is_final]
        asked = StopAsked(Reason.CANCELLED, event.message)
        effects = self._stop_tasks(job, tasks, asked, 0.0 if event.force else job.spec.grace_seconds)
        self.replan = True
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
        self.replan = True
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
                if job.task(number).state is State.SUCCEEDED:  # it is to be done once more, not to be gone on with
                    job.progress.pop(number, None)
                    job.checkpoint_places.pop(number, None)
                self._advance(job, job.task(number), RetryAsked())
        if job.is_final:
            return []  # none of them had ended
        failed = job.numbers_in(State.FAILED)
        job.first_failure = failed[0][0] if failed else None
        self.replan = True
        if not was_final:
            return []  # retrying a few tasks of a running job leaves the rest as it is
        # A job that ended starts afresh: its deadline, its dependencies and its count of restarts too.
        job.stop = job.started_at = job.finished_at = None
        job.gang_failures = job.memory_requeues = 0
        self.unfinished[job.id] = job
        return self._check_dependencies(job, event.at)

    def _join(self, node: Node) -> None:
        """What it has replaces what was known; what others hold of it stays as last measured, until the next time."""
        if not self.removed.isdisjoint((node.id, place_of(node.id))):
            return
        config, known = self.configs.get(node.id), self.nodes.get(node.id)
        if known is not None and node.foreign == Foreign():
            node = replace(node, foreign=known.foreign, load=known.load, device_use=known.device_use)
        labels = config.labels if config else node.labels
        # A cluster says itself which of its nodes take nothing new.
        is_kept_off = bool(cluster_of(node.id)) and node.state is not NodeState.UP
        node = replace(node, labels=labels, state=node.state if is_kept_off else self._state_when_here(node.id))
        if node != known:  # a cluster tells of a thousand nodes again and again
            self._set_node(node)

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
        self.bounds.clear()
        self.drained.discard(node_id)
        self.removed.add(node_id)
        return stops + effects

    def _add_cluster(self, config: ClusterConfig) -> None:
        known = self.clusters.get(config.id)
        if known is not None and known.storage != config.storage:
            for job in self.unfinished.values():
                if job.spec.cluster == config.id:
                    job.checkpoint_places.clear()  # they are in the storage that it had
        self.clusters[config.id] = config
        self.removed.discard(config.id)
        self.trainings.keeps_checkpoints(config.id, bool(config.storage))
        self.replan = True

    def _remove_cluster(self, cluster: str, at: float) -> list[Effect]:
        """Its jobs can run nowhere else: they are stopped. Word of their end is not waited for."""
        effects: list[Effect] = []
        for job in [job for job in self.unfinished.values() if job.spec.cluster == cluster]:
            effects += self._stop_job(job, Reason.CANCELLED, f"cluster {cluster} was removed from the yard", at)
        lost = [item for item in self.slots.values() if cluster_of(item[1].slot.placement.node) == cluster]
        self._lose_slots(lost, f"cluster {cluster} was removed", at)
        self.nodes = {node_id: node for node_id, node in self.nodes.items() if cluster_of(node_id) != cluster}
        self.drained = {name for name in self.drained if place_of(name) != cluster}
        self.clusters.pop(cluster, None)
        self.quotas.pop(cluster, None)
        self.bounds.clear()
        self.removed.add(cluster)
        self.trainings.keeps_checkpoints(cluster, False)
        self.replan = True
        return effects

    def _nodes_at(self, place: str) -> list[Node]:
        """One node, or all nodes of a cluster."""
        if place in self.nodes:
            return [self.nodes[place]]
        return [node for node in self.nodes.values() if cluster_of(node.id) == place]

    def nodes_for(self, job: JobRecord) -> list[Node]:
        """The machines, or the nodes of the job's cluster."""
        return wants.nodes_of(self, job.spec.cluster)

    def _set_node(self, node: Node) -> None:
        self.nodes[node.id] = node
        self.bounds.clear()
        self.replan = True

    def _state_when_here(self, node_id: str) -> NodeState:
        is_drained = not self.drained.isdisjoint((node_id, place_of(node_id)))
        return NodeState.DRAINING if is_drained else NodeState.UP

    def _lose_node(self, node_id: str, message: str, at: float) -> list[Effect]:
        if node := self.nodes.get(node_id):
            self.nodes[node_id] = replace(node, state=NodeState.DOWN)
        at_node = (item for item in self.slots.values() if item[1].slot.placement.node == node_id)
        lost = [(job, record) for job, record in at_node if not job.quarantine]
        effects = self._lose_slots(lost, message, at)
        self.replan = True
        return [effect for effect in effects if effect.node != node_id]

    def _lose_slots(self, lost: list[tuple[JobRecord, SlotRecord]], message: str, at: float) -> list[Effect]:
        effects: list[Effect] = []
        for job, record in lost:
            for number in list(record.tasks):
                step = self._advance(job, job.tasks[number], LostItsNode(message))
                effects += self._after_end(job, step.task, at)
            if record.slot.id in self.slots:
                self._close(record.slot.id)
        return effects

    # -- jobs -------------------------------------------------------------------------------------------------------

    def _end_job(self, job: JobRecord, at: float) -> list[Effect]:
        if self.unfinished.pop(job.id, None) is None:
            return []
        job.finished_at = at
        self.waits.pop(job.id, None)
        for slot_id in job.slots:
            self.hungry[slot_id] = None  # to be closed
        effects: list[Effect] = [JobEnded(job.spec.cluster, job.id)] if job.spec.cluster else []
        for dependent in self.dependents.get(job.id, ()):
            effects += self._check_dependencies(self.jobs[dependent], at)
        self.replan = True
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
        if self.awaits and (step.task.started_at or not step.task.slot):
            self.awaits.pop(AttemptId(job.id, task.number, task.attempt), None)
        if task.slot and not step.task.slot and (record := job.slots.get(task.slot)):
            record.tasks.discard(task.number)
            self.hungry[task.slot] = None
        return step

    def _current(self, attempt: AttemptId) -> tuple[JobRecord, Task] | None:
        """The task whose current attempt this is; None where it was superseded, ended or never heard of."""
        job = self.jobs.get(attempt.job)
        task = job.tasks.get(attempt.task) if job else None
        if job is None or task is None or task.attempt != attempt.number or not task.state.is_active:
            return None
        return job, task

    # -- what it wants, and what it shows -----------------------------------------------------------------------------

    def decide(self, now: float) -> Iterator[Event]:
        """The events that the engine itself wants. Handle each before taking the next: they build on one another."""
        return deciding.decide(self, now)

    def withdrawals(self, now: float) -> list[Effect]:
        """What waits at agents behind a running task, in slots that must yield or are stuck: ask for it back."""
        return deciding.withdrawals(self, now)

    def next_deadline(self) -> float | None:
        """When `decide` should be called at the latest, for deadlines alone."""
        return deciding.next_deadline(self)

    def snapshot(self, now: float = 0.0) -> Snapshot:
        return wants.snapshot(self, now)

    @property
    def awaited(self) -> tuple[NodeConfig, ...]:
        """Machines that were added and of which nothing is known yet."""
        return wants.awaited(self)

    def request_of(self, job: JobRecord, now: float = 0.0) -> Request | None:
        """The slots that a job would open now, were there room; None if it has nothing to start."""
        return wants.request_of(self, job, now)

    def new_request(self, job: JobRecord) -> Request | None:
        """The same, worked out afresh, for a job that may start tasks."""
        return wants.new_request(self, job)

    def why_never(
        self, job_groups: Iterable[Member], on: str, overcommit: bool = False, cluster: str = ""
    ) -> str | None:
        """A sentence if some member could run on no node at all, however empty, or `on` names what is not there."""
        return wants.why_never(self, job_groups, on, overcommit, cluster)

    def jobs_with_slots(self) -> list[JobRecord]:
        return list({job.id: job for job, _ in self.slots.values()}.values())
