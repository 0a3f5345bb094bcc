"""Machines come and go: added, drained, out of reach, lost, removed, back again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.queries import why_never
from jobyard.model.effects import Stop
from jobyard.model.events import (
    NodeAdded,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeMeasured,
    NodeRemoved,
    NodeResumed,
    NodeWentAway,
)
from jobyard.model.job import Reason, State
from jobyard.model.node import DeviceUse, Foreign, NodeConfig, NodeState
from jobyard.model.resources import Resources
from jobyard.scheduling.snapshot import Member
from tests.builders import a_job, a_node, joined
from tests.unit.engine.driving import Yard, state_of

ONE = [Member(0, Resources(), 1)]


def node_state(yard: Yard, name: str = "here") -> NodeState:
    return yard.state.places.nodes[name].state


# -- drained -----------------------------------------------------------------------------------------------------------


def test_a_drained_node_finishes_what_it_has_and_gets_nothing_new() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(3))
    yard.start(*yard.active(job))
    yard.apply(NodeDrained("here", yard.now))
    assert (node_state(yard), len(yard.active(job))) == (NodeState.DRAINING, 1)
    yard.finish(*yard.active(job))
    assert not yard.active(job)
    assert "here is draining" in yard.planner.waits[job.id].sentence
    yard.apply(NodeResumed("here", yard.now))
    assert len(yard.active(job)) == 1


@pytest.mark.parametrize("is_added_again", [False, True])
def test_a_node_for_those_who_name_it_gets_their_jobs_alone(is_added_again: bool) -> None:
    yard = Yard(a_node())
    guest = NodeConfig("guest", "guest.lab", labels=("ml-scheduler",), only_named=True)
    if is_added_again:
        yard.apply(NodeAdded(replace(guest, only_named=False), yard.now), joined(a_node("guest")))
    yard.apply(NodeAdded(guest, yard.now))
    if not is_added_again:
        yard.apply(joined(a_node("guest")))
    own, named = yard.submit(a_job(9)), yard.submit(replace(a_job(1), on="guest"))
    assert {slot.slot.placement.node for slot in own.slots.values()} == {"here"}
    assert {slot.slot.placement.node for slot in named.slots.values()} == {"guest"}


def test_a_drained_node_stays_so_when_it_comes_back() -> None:
    yard = Yard()
    yard.apply(NodeDrained("here", yard.now), NodeWentAway("here", yard.now))
    assert node_state(yard) is NodeState.AWAY
    yard.apply(joined())
    assert node_state(yard) is NodeState.DRAINING
    yard.apply(NodeLost("here", yard.now), NodeResumed("here", yard.now))
    assert node_state(yard) is NodeState.DOWN
    yard.apply(joined())
    assert node_state(yard) is NodeState.UP


# -- out of reach ------------------------------------------------------------------------------------------------------


def test_what_runs_on_a_node_out_of_reach_counts_as_running_until_the_lease_is_over() -> None:
    yard = Yard(a_node("a", cpus=1), a_node("b", cpus=1))
    job = yard.submit(a_job(4))
    yard.start(*yard.active(job))
    yard.apply(NodeWentAway("a", yard.now, "the link is cut"))
    assert job.tasks.counts[State.RUNNING] == 2
    (on_a,) = [attempt for attempt in yard.active(job) if job.task(attempt.task).node == "a"]
    (on_b,) = [attempt for attempt in yard.active(job) if job.task(attempt.task).node == "b"]
    yard.finish(on_b)
    assert [job.task(attempt.task).node for attempt in yard.active(job)] == ["a", "b"]
    yard.apply(NodeLost("a", yard.now, "its lease is over"))
    task = job.task(on_a.task)
    assert (task.state, task.reason, task.message) == (State.PENDING, Reason.NODE_LOST, "its lease is over")
    yard.run_to_the_end(job)
    assert (job.task(on_a.task).attempt, job.task(on_a.task).node) == (2, "b")


def test_a_node_that_is_back_in_time_goes_on_where_it_was() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(2))
    yard.start(*yard.active(job))
    yard.apply(NodeWentAway("here", yard.now))
    yard.apply(joined(a_node(cpus=1)))
    assert yard.launched() == []
    yard.finish(*yard.active(job))
    assert [attempt.task for attempt in yard.launched()] == [1]
    yard.run_to_the_end(job)
    assert {job.task(number).attempt for number in range(2)} == {1}


def test_a_lost_node_is_not_merely_away() -> None:
    yard = Yard()
    yard.apply(NodeLost("here", yard.now), NodeWentAway("here", yard.now))
    assert node_state(yard) is NodeState.DOWN


# -- added and removed -------------------------------------------------------------------------------------------------


def test_labels_come_from_whoever_added_the_node_and_may_change() -> None:
    yard = Yard(a_node(cpus=1))
    yard.apply(NodeAdded(NodeConfig("gpu1", "gpu1.lab", labels=("fast",)), yard.now))
    yard.apply(joined(a_node("gpu1")))
    job = yard.submit(a_job(1, on="fast"))
    assert [job.task(attempt.task).node for attempt in yard.active(job)] == ["gpu1"]
    yard.apply(NodeAdded(NodeConfig("gpu1", "gpu1.lab", labels=("slow",)), yard.now))
    assert why_never(yard.state, ONE, "fast") == "there is no node 'fast'; known: gpu1, here, local; labels: slow"


def test_a_job_may_wait_for_a_node_that_has_not_been_reached_yet() -> None:
    yard = Yard(a_node(cpus=1))
    assert why_never(yard.state, ONE, "gpu1") == "there is no node 'gpu1'; known: here, local"
    yard.apply(NodeAdded(NodeConfig("gpu1", "gpu1.lab"), yard.now))
    large = a_job(1, cpus=4)
    assert why_never(yard.state, [Member(0, large.groups[0].resources, 1)], "") is None
    job = yard.submit(large)
    wait = yard.planner.waits[job.id]
    assert (wait.reason, wait.sentence) == (
        Reason.NODE_DOWN,
        "no node can take it now: gpu1 has not been reached yet",
    )
    yard.apply(joined(a_node("gpu1")))
    assert state_of(job) is State.STARTING


def test_the_tasks_of_a_removed_node_are_stopped_there_and_run_elsewhere() -> None:
    yard = Yard(a_node("a", cpus=1), a_node("b", cpus=1))
    job = yard.submit(a_job(2, grace_seconds=3))
    yard.start(*yard.active(job))
    (on_a,) = [attempt for attempt in yard.active(job) if job.task(attempt.task).node == "a"]
    effects = yard.apply(NodeRemoved("a", yard.now))
    assert effects == [Stop("a", (on_a,), 3)]
    assert job.task(on_a.task).message == "node a was removed"
    yard.finish(on_a)
    assert job.tasks.counts[State.SUCCEEDED] == 0
    yard.run_to_the_end(job)
    assert {job.task(number).node for number in range(2)} == {"b"}


def test_word_of_a_removed_node_that_was_still_under_way_does_not_bring_it_back() -> None:
    yard = Yard(a_node("a"), a_node("b"))
    yard.apply(NodeRemoved("a", yard.now))
    yard.apply(joined(a_node("a")), NodeMeasured("a", Foreign(), yard.now), NodeWentAway("a", yard.now))
    yard.apply(NodeLost("a", yard.now), NodeDrained("a", yard.now), NodeRemoved("a", yard.now))
    assert list(yard.state.places.nodes) == ["b"]
    yard.apply(NodeAdded(NodeConfig("a", "a.lab"), yard.now), joined(a_node("a")))
    assert node_state(yard, "a") is NodeState.UP


# -- measured ----------------------------------------------------------------------------------------------------------


def test_only_what_others_hold_makes_the_scheduler_look_again() -> None:
    yard = Yard(a_node(cpus=1, gpus=1))
    foreign, use = Foreign(memory_mib=256), (DeviceUse(0, 500, 30),)
    yard.apply(NodeMeasured("here", foreign, yard.now, 1.5, use))
    assert (yard.state.places.nodes["here"].load, yard.state.places.nodes["here"].device_use) == (1.5, use)
    handle(yard.state, NodeMeasured("here", foreign, yard.now, 2.5, (DeviceUse(0, 900, 31),)))
    assert not yard.state.changes.plan
    assert yard.state.places.nodes["here"].load == 2.5
    handle(yard.state, NodeMeasured("here", Foreign(memory_mib=512), yard.now, 2.5, use))
    assert yard.state.changes.plan


def test_a_node_that_joins_again_keeps_what_was_measured_until_the_next_time() -> None:
    yard = Yard(a_node(memory_mib=1000))
    yard.apply(NodeMeasured("here", Foreign(memory_mib=900), yard.now))
    yard.apply(joined(a_node(memory_mib=1000)))
    assert state_of(yard.submit(a_job(1, mem=500))) is State.PENDING


def test_a_task_counts_its_whole_reservation_before_it_has_allocated_anything() -> None:
    """It ramps up later: measurements that show the memory as free change nothing."""
    yard = Yard(a_node(cpus=8, memory_mib=1000, gpus=1, gpu_mib=1000))
    first = yard.submit(a_job(1, mem=600, gpus=1, gpu_mem=600))
    yard.start(*yard.active(first))
    yard.apply(NodeMeasured("here", Foreign(), yard.now, 0.0, (DeviceUse(0, 0, 0),)))
    assert state_of(yard.submit(a_job(1, mem=500))) is State.PENDING
    assert state_of(yard.submit(a_job(1, gpus=1, gpu_mem=500))) is State.PENDING
    beside = yard.submit(a_job(1, mem=400, gpus=1, gpu_mem=400, priority=1))
    assert state_of(beside) is State.STARTING


def test_what_our_own_tasks_use_is_not_counted_twice() -> None:
    """The agent says what others use, ours taken off: 600 of ours and 300 of others leave 100."""
    yard = Yard(a_node(cpus=8, memory_mib=1000))
    yard.start(*yard.active(yard.submit(a_job(1, mem=600))))
    yard.apply(NodeMeasured("here", Foreign(memory_mib=300), yard.now))
    assert state_of(yard.submit(a_job(1, mem=100))) is State.STARTING
    assert state_of(yard.submit(a_job(1, mem=1))) is State.PENDING


# -- whole nodes and overcommitted ones --------------------------------------------------------------------------------


def test_a_job_of_whole_nodes_runs_one_task_per_node_and_nothing_beside_them() -> None:
    yard = Yard(a_node("a"), a_node("b"))
    spec = a_job(3)
    job = yard.submit(replace(spec, groups=(replace(spec.groups[0], resources=Resources(1000, whole_node=True)),)))
    assert sorted(job.task(attempt.task).node for attempt in yard.active(job)) == ["a", "b"]
    other = yard.submit(a_job(1, cpus=0))
    assert state_of(other) is State.PENDING
    yard.finish(*yard.active(job))
    yard.finish(*yard.active(job))
    assert state_of(job) is State.SUCCEEDED
    assert state_of(other) is State.STARTING


@pytest.mark.parametrize(("overcommit", "running"), [(False, 4), (True, 6)])
def test_a_job_that_overcommits_says_so_to_the_scheduler(overcommit: bool, running: int) -> None:
    yard = Yard(a_node(cpus=4))
    assert len(yard.active(yard.submit(a_job(9, overcommit=overcommit)))) == running


def test_joining_tells_of_a_node_anew() -> None:
    yard = Yard(a_node(cpus=1))
    yard.apply(NodeJoined(a_node(cpus=8), yard.now))
    assert yard.state.places.nodes["here"].cpu_millis == 8000
