"""Whatever happens, in whatever order: the books agree, nothing runs twice, a restart loses nothing, all ends."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jobyard.engine import task_table
from jobyard.engine.job_record import JobRecord
from jobyard.model.effects import Launch
from jobyard.model.events import (
    AttemptsAwaited,
    AttemptsMeasured,
    AttemptsProgressed,
    Awaited,
    CancelRequested,
    ClusterAdded,
    ClusterRemoved,
    JobAnnotated,
    JobsForgotten,
    JobSubmitted,
    NodeAdded,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeMeasured,
    NodeResumed,
    NodeWentAway,
    PriorityChanged,
    Progressed,
    QuotaMeasured,
    RetryRequested,
    ScaleRequested,
    SlotMoved,
    Used,
    YieldRequested,
)
from jobyard.model.job import Reason
from jobyard.model.node import ClusterConfig, Node, NodeConfig, NodeState, Quota, cluster_of
from jobyard.model.training import Progress
from tests.unit.engine.strategies import CLUSTER_NODES, NODES, big_cluster_node, big_node, foreign, jobs
from tests.unit.engine.world import World

OUTCOMES: list[dict[str, Any]] = [
    {"exit_code": 0},
    {"exit_code": 0},
    {"exit_code": 0},
    {"exit_code": 1},
    {"exit_code": 3, "message": "no such file"},
    {"signal": 9},
    {"reason": Reason.NODE_LOST},
    {"reason": Reason.UNKNOWN},
    {"signal": 15, "reason": Reason.TIMEOUT},
    {"exit_code": 1, "reason": Reason.OUT_OF_GPU_MEMORY, "peak_gpu_memory_mib": 30000},
    {"signal": 9, "reason": Reason.OUT_OF_MEMORY, "peak_memory_mib": 2000},
]


class YardMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.up: set[str] = set()
        self.launches: dict[tuple[str, NodeState], int] = {}  # under way to a node since it has been in a state
        self.patch = pytest.MonkeyPatch()

    @initialize(remembered=st.sampled_from([0, 1000]))
    def first_node(self, remembered: int) -> None:
        self.patch.setattr(task_table, "REMEMBER_ALL_UP_TO", remembered)  # 0: as for jobs of a million tasks
        self._join("n0")
        self._join("n1")

    def _some_job(self, data: st.DataObject) -> JobRecord:
        """One of the newest, so that much happens to few."""
        return self.world.yard.jobs[data.draw(st.sampled_from(list(self.world.yard.jobs)[-3:]))]

    def _join(self, name: str) -> None:
        self.world.rejoin(name)
        self.world.apply(NodeJoined(NODES.get(name) or big_node(), self.world.now))
        self.up.add(name)

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.3, 1.5, 5.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.apply()

    @rule(data=st.data(), keyed=st.booleans())
    def submit(self, data: st.DataObject, keyed: bool) -> None:
        yard = self.world.yard
        spec = data.draw(jobs(list(yard.jobs)))
        number = yard.last_number + 1
        self.world.apply(JobSubmitted(f"j{number}", number, spec, self.world.now, f"key{number}" if keyed else ""))

    @rule()
    def all_words_arrive(self) -> None:
        self.world.exchange()

    @precondition(lambda self: any(self.world.outgoing.values()))
    @rule(data=st.data())
    def an_agent_refuses(self, data: st.DataObject) -> None:
        self.world.refuse(data.draw(st.sampled_from([node for node, queue in self.world.outgoing.items() if queue])))

    @precondition(lambda self: any(self.world.outgoing.values()))
    @rule(data=st.data(), twice=st.booleans(), most=st.integers(1, 8))
    def effects_arrive(self, data: st.DataObject, twice: bool, most: int) -> None:
        node = data.draw(st.sampled_from([node for node, queue in self.world.outgoing.items() if queue]))
        for _ in range(min(most, len(self.world.outgoing[node]))):
            self.world.deliver(node, twice=twice)

    @precondition(lambda self: any(agent.running for agent in self.world.agents.values()))
    @rule(data=st.data(), how=st.sampled_from(OUTCOMES), most=st.integers(1, 4))
    def tasks_end(self, data: st.DataObject, how: dict[str, Any], most: int) -> None:
        node = data.draw(st.sampled_from([node for node, agent in self.world.agents.items() if agent.running]))
        for attempt in list(self.world.agents[node].running.values())[:most]:
            self.world.end(node, attempt, **how)

    @precondition(lambda self: any(agent.running for agent in self.world.agents.values()))
    @rule(data=st.data(), done=st.integers(0, 5), can_yield=st.booleans(), seconds=st.sampled_from([1.0, 60.0]))
    def a_task_reports(self, data: st.DataObject, done: int, can_yield: bool, seconds: float) -> None:
        running = [(node, a) for node, agent in self.world.agents.items() for a in agent.running.values()]
        node, attempt = data.draw(st.sampled_from(running))
        progress = Progress(done, 5, epoch_seconds=seconds, can_yield=can_yield)
        self.world.incoming[node].append(AttemptsProgressed((Progressed(attempt, progress),), self.world.now))

    @precondition(lambda self: any(agent.running for agent in self.world.agents.values()))
    @rule(data=st.data(), mib=st.sampled_from([100, 25000, 45000]), percent=st.sampled_from([None, 0, 50]))
    def the_use_of_a_task_is_measured(self, data: st.DataObject, mib: int, percent: int | None) -> None:
        running = [a for agent in self.world.agents.values() for a in agent.running.values()]
        used = Used(data.draw(st.sampled_from(running)), 100, mib, percent)
        self.world.apply(AttemptsMeasured(self.world.now, used=(used,)))

    @precondition(lambda self: bool(self.world.yielding))
    @rule(data=st.data())
    def a_task_stops_at_its_checkpoint(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(sorted(self.world.yielding)))
        node = self.world.yielding.pop(attempt)
        if node in self.world.agents and self.world.agents[node].is_running(attempt):
            self.world.end(node, attempt, exit_code=85, reason=Reason.PREEMPTED, progress=Progress(2, 5))

    @precondition(lambda self: bool(self.world.yard.jobs))
    @rule(data=st.data(), back=st.booleans())
    def ask_to_yield(self, data: st.DataObject, back: bool) -> None:
        job = self._some_job(data)
        self.world.apply(YieldRequested(job.id, Reason.PREEMPTED, "asked", self.world.now, to_the_back=back))

    @precondition(lambda self: any(job.spec.elastic for job in self.world.yard.jobs.values()))
    @rule(data=st.data(), wish=st.booleans())
    def scale(self, data: st.DataObject, wish: bool) -> None:
        elastic = [job for job in self.world.yard.jobs.values() if job.spec.elastic]
        job = data.draw(st.sampled_from(elastic[-3:]))
        sizes = job.spec.elastic.sizes(job.spec.training_size, 3, 4) if job.spec.elastic else ()
        size = data.draw(st.sampled_from(sizes)) if wish else None
        self.world.apply(ScaleRequested(job.id, size, self.world.now))

    @precondition(lambda self: any(self.world.incoming.values()))
    @rule(data=st.data(), most=st.integers(1, 6))
    def reports_arrive(self, data: st.DataObject, most: int) -> None:
        node = data.draw(st.sampled_from([node for node, queue in self.world.incoming.items() if queue]))
        self.world.report(node, most)

    @precondition(lambda self: bool(self.world.reported))
    @rule(data=st.data())
    def an_old_report_comes_again(self, data: st.DataObject) -> None:
        self.world.repeat(data.draw(st.sampled_from(self.world.reported)))

    @precondition(lambda self: bool(self.world.yard.jobs))
    @rule(data=st.data(), force=st.booleans(), whole=st.booleans())
    def cancel(self, data: st.DataObject, force: bool, whole: bool) -> None:
        job = self._some_job(data)
        numbers = st.lists(st.integers(0, job.spec.size - 1), min_size=1, max_size=3)
        tasks = () if whole else tuple(data.draw(numbers))
        self.world.apply(CancelRequested(job.id, self.world.now, tasks, force))

    @precondition(lambda self: bool(self.world.yard.jobs))
    @rule(data=st.data())
    def cancel_a_range(self, data: st.DataObject) -> None:
        job = self._some_job(data)
        first = data.draw(st.integers(0, job.spec.size - 1))
        last = data.draw(st.integers(first, job.spec.size - 1))
        self.world.apply(CancelRequested(job.id, self.world.now, ranges=((first, last),)))

    @precondition(lambda self: len(self.world.yard.jobs) > len(self.world.yard.unfinished))
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        names = st.lists(st.sampled_from([*self.world.yard.jobs, "never-there"]), min_size=1, max_size=3)
        self.world.apply(JobsForgotten(tuple(data.draw(names)), self.world.now))

    @precondition(lambda self: bool(self.world.yard.jobs))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        job = self._some_job(data)
        first = data.draw(st.integers(0, job.spec.size - 1))
        last = data.draw(st.integers(first, job.spec.size - 1))
        self.world.apply(RetryRequested(job.id, ((first, last),), self.world.now))

    @precondition(lambda self: bool(self.world.yard.jobs))
    @rule(data=st.data(), priority=st.integers(-2, 2))
    def change_priority(self, data: st.DataObject, priority: int) -> None:
        job = self._some_job(data)
        self.world.apply(PriorityChanged(job.id, priority, self.world.now))

    @precondition(lambda self: bool(self.world.yard.jobs))
    @rule(data=st.data(), value=st.none() | st.text(max_size=2))
    def annotate(self, data: st.DataObject, value: str | None) -> None:
        self.world.apply(JobAnnotated(self._some_job(data).id, {"name": value}, self.world.now))

    @rule(name=st.sampled_from(sorted(NODES)))
    def join(self, name: str) -> None:
        if name in self.world.yard.places.removed:  # word that was under way when it was removed
            self.world.apply(NodeJoined(NODES[name], self.world.now))
            assert name not in self.world.yard.places.nodes
        elif name not in self.up:
            self._join(name)
        else:  # the server reconnected: the same node again
            self.world.apply(NodeJoined(NODES[name], self.world.now))
            state = NodeState.DRAINING if name in self.world.yard.places.drained else NodeState.UP
            assert self.world.yard.places.nodes[name].state is state

    @rule(name=st.sampled_from(sorted(NODES)), labels=st.sampled_from([(), ("fast",)]))
    def add(self, name: str, labels: tuple[str, ...]) -> None:
        self.world.apply(NodeAdded(NodeConfig(name, "host", labels=labels), self.world.now))
        assert name not in self.world.yard.places.nodes or self.world.yard.places.nodes[name].labels == labels

    @rule(name=st.sampled_from(sorted(NODES)))
    def remove(self, name: str) -> None:
        self.world.remove(name)
        self.up.discard(name)

    @rule(name=st.sampled_from(sorted(NODES)), drained=st.booleans())
    def drain_or_resume(self, name: str, drained: bool) -> None:
        self.world.apply((NodeDrained if drained else NodeResumed)(name, self.world.now))

    @precondition(lambda self: bool(self.up))
    @rule(data=st.data())
    def go_away(self, data: st.DataObject) -> None:
        """The link is cut. What is under way arrives when it is back, or never, if the node is lost meanwhile."""
        name = data.draw(st.sampled_from(sorted(self.up)))
        self.world.apply(NodeWentAway(name, self.world.now))

    @invariant()
    def nothing_new_goes_where_nobody_takes_it(self) -> None:
        for node in self.world.yard.places.nodes.values():
            if node.state is not NodeState.UP:
                launches = sum(isinstance(effect, Launch) for effect in self.world.outgoing[node.id])
                before = self.launches.get((node.id, node.state), launches)
                assert launches <= before
                self.launches[(node.id, node.state)] = launches
            else:
                self.launches = {key: count for key, count in self.launches.items() if key[0] != node.id}

    @precondition(lambda self: bool(self.up))
    @rule(data=st.data(), processes_too=st.booleans())
    def lose(self, data: st.DataObject, processes_too: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.up)))
        self.up.remove(name)
        self.world.lose(name, processes_too=processes_too)

    @rule(name=st.sampled_from(sorted(NODES)), used=foreign)
    def measure(self, name: str, used: Any) -> None:
        self.world.apply(NodeMeasured(name, used, self.world.now))

    # -- a cluster -----------------------------------------------------------------------------------------------------

    @rule(storage=st.sampled_from(["", "results"]))
    def add_cluster(self, storage: str) -> None:
        self.world.rejoin("prod")
        self.world.apply(ClusterAdded(ClusterConfig("prod", storage=storage), self.world.now))

    @rule(node=st.sampled_from(list(CLUSTER_NODES.values())))
    def a_node_of_the_cluster_joins(self, node: Node) -> None:
        self.world.apply(NodeJoined(node, self.world.now))
        assert (node.id in self.world.yard.places.nodes) is ("prod" not in self.world.yard.places.removed)

    @rule(name=st.sampled_from(["prod", *CLUSTER_NODES]), is_lost=st.booleans())
    def a_part_of_the_cluster_is_away_or_lost(self, name: str, is_lost: bool) -> None:
        active = {job.id: job.tasks.active for job in self.world.yard.jobs.values()}
        self.world.apply((NodeLost if is_lost and name != "prod" else NodeWentAway)(name, self.world.now))
        assert {job: count for job, count in active.items() if self.world.yard.jobs[job].tasks.active < count} == {}

    @rule(name=st.sampled_from(["prod", *CLUSTER_NODES]), drained=st.booleans())
    def drain_or_resume_a_part_of_the_cluster(self, name: str, drained: bool) -> None:
        self.world.apply((NodeDrained if drained else NodeResumed)(name, self.world.now))

    @rule(quota=st.sampled_from([Quota(), Quota(cpu_millis=2000), Quota(gpus=1, tasks=3), Quota(memory_mib=0)]))
    def measure_its_quota(self, quota: Quota) -> None:
        self.world.apply(QuotaMeasured("prod", quota, self.world.now))

    @precondition(lambda self: bool(self.world.slots_of("prod")))
    @rule(data=st.data(), node=st.sampled_from([*CLUSTER_NODES, "prod/unheard-of"]))
    def a_pod_is_elsewhere(self, data: st.DataObject, node: str) -> None:
        slot = data.draw(st.sampled_from(self.world.slots_of("prod")))
        self.world.apply(SlotMoved(slot, node, self.world.now))

    @precondition(lambda self: bool(self.world.live))
    @rule(data=st.data(), sentence=st.sampled_from(["", "ErrImagePull"]))
    def an_attempt_is_awaited(self, data: st.DataObject, sentence: str) -> None:
        attempt = data.draw(st.sampled_from(sorted(self.world.live.values())))
        self.world.apply(AttemptsAwaited((Awaited(attempt, None, sentence),), self.world.now))

    @rule()
    def remove_cluster(self) -> None:
        self.world.apply(ClusterRemoved("prod", self.world.now))
        assert not self.world.slots_of("prod")

    @invariant()
    def only_what_has_not_begun_is_awaited(self) -> None:
        for attempt in self.world.yard.cluster_waits:
            task = self.world.yard.jobs[attempt.job].task(attempt.task)
            assert (task.attempt, task.started_at) == (attempt.number, None)
            assert task.state.is_active

    @invariant()
    def everybody_is_where_he_belongs(self) -> None:
        for job, record in self.world.yard.slots.values():
            assert cluster_of(record.slot.placement.node) == job.spec.cluster

    @rule()
    def a_base_is_written(self) -> None:
        self.world.save()

    @rule()
    def restart_from_the_first_row(self) -> None:
        self.world.restart()

    @precondition(lambda self: bool(self.world.bases))
    @rule(data=st.data())
    def restart_from_a_base_and_the_rest(self, data: st.DataObject) -> None:
        self.world.restart(data.draw(st.sampled_from(self.world.bases)))

    @rule()
    def restart_from_what_was_just_saved(self) -> None:
        self.world.save()
        self.world.restart(self.world.bases[-1])

    def teardown(self) -> None:
        try:
            self._join("big")
            for name in NODES:  # a job whose checkpoint is there would wait for it
                self.world.remove(name)
            cluster = ClusterAdded(ClusterConfig("prod"), self.world.now)
            self.world.apply(cluster, QuotaMeasured("prod", Quota(), self.world.now))
            self.world.apply(NodeJoined(big_cluster_node(), self.world.now), NodeResumed("prod", self.world.now))
            self.world.settle()
            self.world.check_ends()
            self.world.restart()
        finally:
            self.patch.undo()


def _run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        YardMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_whatever_happens_the_books_agree_and_everything_ends() -> None:
    _run(examples=20, steps=50)


@pytest.mark.slow
def test_whatever_happens_for_longer() -> None:
    _run(examples=int(os.environ.get("JOBYARD_HISTORIES", "20")), steps=80)
