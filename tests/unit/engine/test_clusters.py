"""What events of a cluster do to the yard: its nodes, its pods, its quota, its storage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobyard.engine import saved_state
from jobyard.engine.handling import handle
from jobyard.engine.queries import member_of, why_never
from jobyard.engine.training import pinned_to, resumes_at
from jobyard.model.effects import Stop
from jobyard.model.events import (
    AttemptsAwaited,
    AttemptsProgressed,
    AttemptsStarted,
    Awaited,
    ClusterAdded,
    ClusterRemoved,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeResumed,
    NodeWentAway,
    Progressed,
    QuotaMeasured,
    SlotMoved,
    Started,
    YieldRequested,
)
from jobyard.model.job import GroupSpec, JobSpec, Reason, State
from jobyard.model.kubernetes import Toleration
from jobyard.model.node import ClusterConfig, Node, NodeState, Quota
from jobyard.model.task import AttemptId
from jobyard.model.training import Elastic, Progress, Size, Training
from tests.builders import a_cluster_node, a_group, a_job, a_node
from tests.unit.engine.driving import Yard, state_of


def a_yard(*nodes: Node, storage: str = "", **config: Any) -> Yard:
    yard = Yard(a_node("here", cpus=64, gpus=8))
    yard.apply(ClusterAdded(ClusterConfig("prod", storage=storage, **config), yard.now))
    yard.apply(*(NodeJoined(node, yard.now) for node in nodes or (a_cluster_node("n1"), a_cluster_node("n2"))))
    return yard


def on_prod(tasks: int = 1, groups: tuple[GroupSpec, ...] = (), **spec: Any) -> JobSpec:
    return a_job(tasks, groups, on="prod", cluster="prod", **spec)


def nodes_of(yard: Yard, job: Any) -> list[str]:
    return [job.task(attempt.task).node for attempt in yard.active(job)]


def states(yard: Yard) -> list[NodeState]:
    return [yard.state.places.nodes[name].state for name in ("prod/n1", "prod/n2")]


# -- nodes -------------------------------------------------------------------------------------------------------------


def test_the_nodes_of_a_cluster_go_away_and_come_back_one_by_one() -> None:
    yard = a_yard()
    job = yard.submit(on_prod(9))
    yard.start(*yard.active(job))
    yard.apply(NodeWentAway("prod", yard.now))
    assert states(yard) == [NodeState.AWAY] * 2
    assert job.tasks.counts[State.RUNNING] == 8
    yard.apply(NodeJoined(a_cluster_node("n1"), yard.now))
    assert states(yard) == [NodeState.UP, NodeState.AWAY]


def test_a_lost_node_of_a_cluster_is_down_and_its_attempts_still_count() -> None:
    yard = a_yard()
    job = yard.submit(on_prod(8))
    yard.start(*yard.active(job))
    before = yard.active(job)
    assert yard.apply(NodeLost("prod/n1", yard.now)) == []
    assert (states(yard), yard.active(job)) == ([NodeState.DOWN, NodeState.UP], before)
    yard.finish(*before)
    assert state_of(job) is State.SUCCEEDED


def test_a_cluster_can_be_drained_as_a_whole() -> None:
    yard = a_yard()
    yard.apply(NodeDrained("prod", yard.now))
    yard.apply(NodeJoined(a_cluster_node("n1"), yard.now))
    assert states(yard) == [NodeState.DRAINING] * 2
    yard.apply(NodeResumed("prod", yard.now))
    assert states(yard) == [NodeState.UP] * 2


def test_a_cluster_says_itself_which_of_its_nodes_take_nothing_new() -> None:
    yard = a_yard()
    yard.apply(NodeJoined(a_cluster_node("n1", state=NodeState.DRAINING), yard.now))
    assert nodes_of(yard, yard.submit(on_prod())) == ["prod/n2"]


def test_a_node_that_is_as_it_was_makes_nobody_look_again() -> None:
    yard = a_yard()
    handle(yard.state, NodeJoined(a_cluster_node("n1"), yard.now))
    assert not yard.state.changes.plan
    handle(yard.state, NodeJoined(a_cluster_node("n1", cpus=5), yard.now))
    assert yard.state.changes.plan


def test_a_removed_cluster_takes_its_jobs_along() -> None:
    yard = a_yard()
    running, waiting, other = yard.submit(on_prod(2)), yard.submit(on_prod(cpus=4, gang=True)), yard.submit(a_job())
    yard.start(*yard.active(running))
    attempts = yard.active(running)
    effects = yard.apply(ClusterRemoved("prod", yard.now))
    assert {attempt for effect in effects if isinstance(effect, Stop) for attempt in effect.attempts} >= set(attempts)
    for job in (running, waiting):
        assert state_of(job) is State.CANCELLED
        assert job.stop == (Reason.CANCELLED, "cluster prod was removed from the yard")
    assert state_of(other) is State.STARTING
    assert list(yard.state.places.nodes) == ["here"]
    yard.apply(NodeJoined(a_cluster_node("n1"), yard.now))
    assert list(yard.state.places.nodes) == ["here"]
    yard.apply(ClusterAdded(ClusterConfig("prod"), yard.now), NodeJoined(a_cluster_node("n1"), yard.now))
    assert "prod/n1" in yard.state.places.nodes


# -- pods --------------------------------------------------------------------------------------------------------------


def test_the_books_follow_a_pod_to_another_node() -> None:
    yard = a_yard(a_cluster_node("n1", gpus=2), a_cluster_node("n2", gpus=2))
    first, second = yard.submit(on_prod(gpus=1)), yard.submit(on_prod(gpus=1))
    assert nodes_of(yard, first) + nodes_of(yard, second) == ["prod/n1", "prod/n1"]
    (slot,) = second.slots
    yard.apply(SlotMoved(slot, "prod/n2", yard.now))
    placement = second.slots[slot].slot.placement
    assert (placement.node, [piece.index for piece in placement.devices]) == ("prod/n2", [0])
    assert nodes_of(yard, second) == ["prod/n2"]
    (slot,) = first.slots
    yard.apply(SlotMoved(slot, "prod/n2", yard.now))
    assert [piece.index for piece in first.slots[slot].slot.placement.devices] == [1]
    yard.apply(SlotMoved(slot, "prod/n2", yard.now), SlotMoved("99", "prod/n1", yard.now))
    third = yard.submit(on_prod(gpus=2))
    assert nodes_of(yard, third) == ["prod/n1"]
    (slot,) = third.slots
    yard.apply(SlotMoved(slot, "prod/n2", yard.now))  # more than there is: the cluster has the last word
    assert [piece.index for piece in third.slots[slot].slot.placement.devices] == [0, 1]


def test_a_slot_that_moved_to_a_node_not_known_yet_is_there() -> None:
    yard = a_yard()
    job = yard.submit(on_prod())
    yard.apply(SlotMoved(next(iter(job.slots)), "prod/new", yard.now))
    assert nodes_of(yard, job) == ["prod/new"]
    yard.finish(*yard.active(job))
    assert state_of(job) is State.SUCCEEDED


def test_the_pod_of_an_attempt_is_remembered_until_the_next_one_begins() -> None:
    yard = a_yard()
    job = yard.submit(on_prod(retries=1))
    (first,) = yard.active(job)
    yard.apply(AttemptsStarted((Started(first, yard.now, "pod-1"),), yard.now))
    yard.finish(first, exit_code=1)
    (second,) = yard.active(job)
    assert (job.task(0).unit, job.task(0).started_at) == ("pod-1", None)
    yard.apply(AttemptsStarted((Started(second, yard.now, "pod-2"),), yard.now))
    assert job.task(0).unit == "pod-2"
    assert saved_state.load(saved_state.save(yard.state)).jobs[job.id].task(0).unit == "pod-2"


def test_why_an_attempt_does_not_run_yet_is_known_until_it_does() -> None:
    yard = a_yard()
    job = yard.submit(on_prod(3, retries=1))
    first, second, third = yard.active(job)
    told = [Awaited(attempt, Reason.RESOURCES, "0/2 nodes are available") for attempt in (first, second, third)]
    yard.apply(AttemptsAwaited((*told, Awaited(AttemptId("x", 0, 1), None, "unheard of")), yard.now))
    assert set(yard.state.cluster_waits) == {first, second, third}
    yard.apply(AttemptsAwaited((Awaited(third, None, ""),), yard.now))
    yard.start(first)
    assert yard.state.cluster_waits == {second: (Reason.RESOURCES, "0/2 nodes are available")}
    yard.apply(AttemptsAwaited(tuple(told[:1]), yard.now))  # an old word: it runs
    yard.finish(second, exit_code=1)
    assert yard.state.cluster_waits == {}
    yard.apply(AttemptsAwaited((Awaited(third, None, "ErrImagePull"),), yard.now))
    yard.withdraw(third)
    assert yard.state.cluster_waits == {}


# -- room --------------------------------------------------------------------------------------------------------------


def test_a_quota_holds_jobs_back_until_it_grows() -> None:
    yard = a_yard()
    yard.apply(QuotaMeasured("prod", Quota(cpu_millis=2000), yard.now))
    job = yard.submit(on_prod(4))
    assert len(yard.active(job)) == 2
    assert yard.planner.waits[job.id].reason is Reason.QUOTA
    handle(yard.state, QuotaMeasured("prod", Quota(cpu_millis=2000), yard.now))
    assert not yard.state.changes.plan
    yard.apply(QuotaMeasured("prod", Quota(), yard.now))
    assert len(yard.active(job)) == 4


def test_gpus_of_a_cluster_are_whole() -> None:
    yard = a_yard(a_cluster_node("n1", gpus=2))
    job = yard.submit(on_prod(3, gpus=1, gpu_mem=1000))
    assert len(yard.active(job)) == 2
    placements = [record.slot.placement for record in job.slots.values()]
    assert {placement.resources.gpu_memory_mib for placement in placements} == {0}
    assert {piece.memory_mib for placement in placements for piece in placement.devices} == {80000}


def test_labels_and_tolerations_of_a_group_reach_the_scheduler() -> None:
    group = replace(a_group(), node_selector={"zone": "a", "gpu": "A100"}, tolerations=(Toleration("x"),))
    member = member_of(on_prod(groups=(group,)), 0)
    assert (member.labels, member.tolerations) == (("gpu=A100", "zone=a"), (Toleration("x"),))


def test_what_becomes_one_object_starts_together_and_fails_alone() -> None:
    yard = a_yard()
    groups = (a_group("a", completions=10, parallelism=2), a_group("b", count=2))
    first = yard.submit(on_prod(groups=groups, limit=1, retries=1))
    assert len(first.slots) == 4
    second = yard.submit(on_prod(groups=(a_group("a", count=5), a_group("b"))))
    assert not second.slots
    yard.start(*yard.active(first))
    yard.finish(yard.active(first)[0], exit_code=1)
    assert (len(first.slots), first.tasks.counts[State.RUNNING], first.task(0).attempt) == (4, 3, 2)
    for _ in range(20):
        yard.finish(*yard.active(first))
    assert state_of(first) is State.SUCCEEDED
    assert len(yard.active(second)) == 6


def test_what_was_given_back_whole_starts_together_again() -> None:
    yard = a_yard()
    job = yard.submit(on_prod(groups=(a_group("a", count=6), a_group("b"))))
    yard.apply(NodeJoined(a_cluster_node("n2", cpus=1), yard.now))
    yard.withdraw(*yard.active(job))
    assert not job.slots
    yard.apply(NodeJoined(a_cluster_node("n2", cpus=3), yard.now))
    assert len(job.slots) == 7


def test_a_slot_of_a_cluster_holds_one_task_however_short_they_are() -> None:
    yard = a_yard()
    job = yard.submit(on_prod(100))
    yard.finish(*yard.active(job), seconds=0.001)
    assert {len(record.tasks) for record in job.slots.values()} == {1}


def test_what_a_machine_job_could_have_at_most_is_not_told_by_clusters() -> None:
    yard = a_yard(a_cluster_node("n1", cpus=99, gpus=16))
    large = a_job(1, cpus=80)
    assert why_never(yard.state, [member_of(large, 0)], "") is not None
    on_cluster = replace(large, cluster="prod", on="prod")
    assert why_never(yard.state, [member_of(on_cluster, 0)], "prod", cluster="prod") is None
    assert why_never(yard.state, [member_of(on_cluster, 0)], "x", cluster="x") == "there is no cluster 'x'; known: prod"


def test_jobs_for_a_queue_are_handed_over_at_once() -> None:
    queue = Node("prod/queue", "kubernetes", 0, 0, is_queue=True)
    yard = a_yard(queue, a_cluster_node("n1", gpus=1))
    job = yard.submit(on_prod(5, gpus=64))
    assert set(nodes_of(yard, job)) == {"prod/queue"}
    yard.apply(SlotMoved(next(iter(job.slots)), "prod/n1", yard.now))
    assert sorted(nodes_of(yard, job)) == ["prod/n1", *["prod/queue"] * 4]
    yard.run_to_the_end(job)
    assert state_of(job) is State.SUCCEEDED


# -- checkpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("storage", "expected"), [("results", 3), ("", None)])
def test_a_checkpoint_in_the_storage_of_a_cluster_is_read_on_all_of_its_nodes(
    storage: str, expected: int | None
) -> None:
    yard = a_yard(storage=storage)
    job = yard.submit(on_prod(cpus=4, training=Training(epochs=9)))
    (attempt,) = yard.active(job)
    yard.start(attempt)
    progress = Progress(3, 9, epoch_seconds=1.0, can_yield=True)
    yard.apply(AttemptsProgressed((Progressed(attempt, progress),), yard.now))
    assert resumes_at(job, 0, "prod/n2") == expected
    assert resumes_at(job, 0, "here") is None
    assert pinned_to(job, yard.state.places.nodes) == ""
    node = job.task(0).node
    yard.apply(YieldRequested(job.id, Reason.PREEMPTED, "asked", yard.now), NodeJoined(a_cluster_node("n3"), yard.now))
    yard.apply(NodeDrained(node, yard.now))
    yard.finish(attempt, exit_code=85, reason=Reason.PREEMPTED)
    assert nodes_of(yard, job) != [node]
    assert resumes_at(job, 0, job.task(0).node) == expected
    assert (0 in job.training.progress) is bool(storage)


def test_another_storage_has_none_of_the_checkpoints() -> None:
    yard = a_yard(storage="one")
    job = yard.submit(on_prod(training=Training(epochs=9)))
    yard.start(*yard.active(job))
    yard.apply(AttemptsProgressed((Progressed(yard.active(job)[0], Progress(3, 9)),), yard.now))
    yard.apply(ClusterAdded(ClusterConfig("prod", storage="one", namespace="x"), yard.now))
    assert resumes_at(job, 0, "prod/n1") == 3
    yard.apply(ClusterAdded(ClusterConfig("prod", storage="two"), yard.now))
    assert resumes_at(job, 0, "prod/n1") is None


def test_a_task_that_ran_out_of_memory_gets_no_more_than_its_cluster_has_nor_what_a_user_wrote_himself() -> None:
    yard = a_yard()
    ours = yard.submit(on_prod(mem=1000))
    yard.finish(*yard.active(ours), signal=9, reason=Reason.OUT_OF_MEMORY)
    assert [record.slot.placement.resources.memory_mib for record in ours.slots.values()] == [2000]
    written = yard.submit(on_prod(mem=1000, manifest="{}", kind="Job"))
    yard.finish(*yard.active(written), signal=9, reason=Reason.OUT_OF_MEMORY)
    assert state_of(written) is State.FAILED


def test_a_job_that_a_quota_keeps_out_starts_after_one_checkpoint_of_an_elastic_one() -> None:
    """Six GPUs of a quota on a node of eight: two jobs that take what there is, and one that comes later."""
    yard = a_yard(a_cluster_node("n1", cpus=64, gpus=8), storage="results")
    yard.apply(QuotaMeasured("prod", Quota(gpus=6), yard.now))
    elastic: dict[str, Any] = {"gpus": 2, "elastic": Elastic(gpus=(2, 4)), "training": Training(epochs=10)}
    first, second = yard.submit(on_prod(**elastic)), yard.submit(on_prod(**elastic))
    running = yard.active(first) + yard.active(second)
    assert len(running) == 2
    yard.start(*running)
    held = [record.slot.placement.resources.gpus for _, record in yard.state.slots.values()]
    assert sorted(held) == [2, 4]
    for attempt in running:
        told = Progress(2, 10, can_yield=True, epoch_seconds=60.0, saved_at=1.0, restart_seconds=5.0)
        yard.apply(AttemptsProgressed((Progressed(attempt, told),), yard.now))
    late = yard.submit(on_prod(gpus=2))
    assert state_of(late) is State.PENDING
    (smaller,) = [job for job in (first, second) if job.is_yielding]
    assert "to make room" in yard.planner.waits[late.id].sentence
    yard.finish(*yard.active(smaller), exit_code=85, reason=Reason.PREEMPTED)
    assert state_of(late) is State.STARTING
    assert smaller.spec.training_size == Size(1, 2)
    gpus = [record.slot.placement.resources.gpus for _, record in yard.state.slots.values()]
    assert sorted(gpus) == [2, 2, 2]
