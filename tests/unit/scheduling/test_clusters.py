"""Who goes to a cluster, to which of its nodes, and how much of it all of them may have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.model.job import Command, GroupSpec, Reason
from jobyard.model.kubernetes import Toleration
from jobyard.model.node import Foreign, Node, NodeState, Quota, Taint
from jobyard.model.resources import DeviceSlice, Placement, Resources
from jobyard.model.task import Slot
from jobyard.model.training import Size
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.explain import why_never
from jobyard.scheduling.missing import Ask
from jobyard.scheduling.placement import Protected, Room, choose_node
from jobyard.scheduling.rooms import KnownRooms, Rooms
from jobyard.scheduling.snapshot import HeldSlot, Member, Plan, Request, Running, Snapshot
from jobyard.scheduling.where import Where, needs_of
from tests.builders import a_cluster_node, a_node

QUEUE = Node("prod/queue", "kubernetes", 0, 0, is_queue=True)


def wants(job: str, age: int, tasks: int = 1, gpus: int = 0, cpus: float = 1, **other: Any) -> Request:
    own = {key: other.pop(key) for key in ("labels", "tolerations") if key in other}
    member = Member(0, Resources(int(cpus * 1000), 0, gpus), tasks, **own)
    return Request(job, other.pop("priority", 0), age, (member,), cluster=other.pop("cluster", "prod"), **other)


def holds(slot: str, age: int, gpus: int = 1, node: str = "prod/n1", priority: int = 0) -> HeldSlot:
    devices = tuple(DeviceSlice(index, 80000) for index in range(gpus))
    return HeldSlot(Slot(slot, f"job{age}", 0, Placement(node, Resources(1000, 0, gpus), devices)), priority, age)


def planned(nodes: list[Node], *requests: Request, held: tuple[HeldSlot, ...] = (), **quota: int) -> Plan:
    quotas = {"prod": Quota(**quota)} if quota else {}
    return plan(Snapshot(tuple(nodes), held, requests, quotas=quotas))


def opened(found: Plan) -> list[tuple[str, str]]:
    return [(opening.job, opening.placement.node) for opening in found.openings]


# -- which nodes -------------------------------------------------------------------------------------------------------


def test_a_job_goes_to_its_cluster_alone_and_others_never_go_there() -> None:
    nodes = [a_node("here"), a_cluster_node("n1"), a_cluster_node("n1", cluster="test")]
    assert opened(planned(nodes, wants("a", 1))) == [("a", "prod/n1")]
    assert opened(planned(nodes, wants("a", 1, on="here"))) == [("a", "prod/n1")]
    assert opened(planned(nodes, wants("a", 1, tasks=9, cluster=""))) == [("a", "here")] * 4
    assert not planned(nodes[1:], wants("a", 1, cluster="", on="kubernetes")).openings


def test_a_job_of_a_cluster_without_nodes_says_so() -> None:
    wait = planned([a_node()], wants("a", 1)).waits["a"]
    assert (wait.reason, wait.sentence) == (Reason.NODE_DOWN, "cluster prod has no nodes yet")


def test_a_node_must_have_all_labels_that_are_selected() -> None:
    nodes = [a_cluster_node("n1", labels=("gpu=A100",)), a_cluster_node("n2", labels=("gpu=A100", "zone=a"))]
    assert opened(planned(nodes, wants("a", 1, labels=("gpu=A100", "zone=a")))) == [("a", "prod/n2")]
    wait = planned(nodes, wants("a", 1, labels=("gpu=H100",))).waits["a"]
    assert (wait.reason, wait.sentence) == (Reason.NEVER_FITS, "no node of cluster prod has label gpu=H100")
    both = planned([nodes[0], a_cluster_node("n3", labels=("zone=b",))], wants("a", 1, labels=("gpu=A100", "zone=b")))
    assert both.waits["a"].sentence == "no node of cluster prod has all of the labels gpu=A100, zone=b"


@pytest.mark.parametrize(
    ("taint", "toleration", "is_tolerated"),
    [
        (Taint("gpu", "yes"), None, False),
        (Taint("gpu", "yes", "NoExecute"), None, False),
        (Taint("gpu", "yes", "PreferNoSchedule"), None, True),
        (Taint("gpu", "yes"), Toleration("gpu", "Equal", "yes"), True),
        (Taint("gpu", "yes"), Toleration("gpu", "Equal", "no"), False),
        (Taint("gpu", "yes"), Toleration("gpu", "Exists"), True),
        (Taint("gpu", "yes"), Toleration("cpu", "Exists"), False),
        (Taint("gpu", "yes"), Toleration("", "Exists"), True),
        (Taint("gpu", "yes"), Toleration("gpu", "Exists", effect="NoSchedule"), True),
        (Taint("gpu", "yes"), Toleration("gpu", "Exists", effect="NoExecute"), False),
    ],
)
def test_taints_keep_off_who_does_not_tolerate_them(
    taint: Taint, toleration: Toleration | None, is_tolerated: bool
) -> None:
    node = a_cluster_node("n1", taints=(taint,))
    tolerations = (toleration,) if toleration else ()
    found = planned([node], wants("a", 1, tolerations=tolerations))
    assert bool(found.openings) is is_tolerated
    if not is_tolerated:
        expected = f"it tolerates the taints of no node of cluster prod: prod/n1 is tainted {taint}"
        assert (found.waits["a"].reason, found.waits["a"].sentence) == (Reason.RESOURCES, expected)
    assert why_never([node], Resources(), Where("", "prod", (), tolerations)) is None


def test_a_node_that_is_too_small_is_named_beside_one_that_is_tainted() -> None:
    nodes = [a_cluster_node("large", cpus=8, taints=(Taint("gpu", "yes"),)), a_cluster_node("small", cpus=1)]
    assert planned(nodes, wants("a", 1, cpus=4)).waits["a"].sentence == (
        "needs 4 cpus, and no node of cluster prod will do: prod/small is too small"
        " (1 cpu, 16 GiB memory, no GPU); prod/large is tainted gpu=yes:NoSchedule"
    )


def test_gpus_must_have_the_memory_that_is_asked_for() -> None:
    (labels, _) = needs_of(GroupSpec(Command(("true",)), least_device_mib=40960))
    small, large = (a_cluster_node(name, labels=(f"nvidia.com/gpu.memory={mib}",)) for name, mib in _DEVICES)
    unknown = a_cluster_node("n3")
    assert opened(planned([small, large, unknown], wants("a", 1, labels=labels))) == [("a", "prod/n2")]
    told = why_never([small, unknown], Resources(), Where(cluster="prod", labels=labels))
    assert told == "no node of cluster prod has label nvidia.com/gpu.memory>=40960"


_DEVICES = (("n1", 40959), ("n2", 40960))


def test_who_is_kept_off_by_a_taint_does_not_keep_others_off() -> None:
    node = a_cluster_node("n1", taints=(Taint("gpu"),))
    tolerant = wants("b", 2, tolerations=(Toleration("gpu", "Exists"),))
    assert opened(planned([node], wants("a", 1), tolerant)) == [("b", "prod/n1")]


def test_of_a_thousand_nodes_that_are_down_a_few_are_named() -> None:
    nodes = [a_cluster_node(f"n{i}", state=NodeState.DOWN) for i in range(1000)]
    assert planned(nodes, wants("a", 1)).waits["a"].sentence.endswith("prod/n4 is down and 995 more")


# -- a queue -----------------------------------------------------------------------------------------------------------


def test_where_another_scheduler_has_a_queue_everything_goes_there_at_once() -> None:
    found = planned([QUEUE, a_cluster_node("n1")], wants("a", 1, 100, gpus=64), wants("b", 2, 3, gang=True), gpus=1)
    assert {opening.placement.node for opening in found.openings} == {"prod/queue"}
    assert {opening.placement.devices for opening in found.openings} == {()}
    assert (len(found.openings), found.waits) == (103, {})
    assert why_never([QUEUE, a_cluster_node("n1")], Resources(1, 1, 99), Where("", "prod", ("a=b",))) is None


# -- quotas ------------------------------------------------------------------------------------------------------------


def test_no_more_is_opened_than_the_quota_leaves() -> None:
    node = a_cluster_node("n1", cpus=64, gpus=8)
    found = planned([node], wants("a", 1, 8, gpus=1), held=(holds("1", 0, 2),), gpus=4)
    assert len(found.openings) == 2
    wait = found.waits["a"]
    expected = "needs 1 GPU, and 0 GPUs of 4 GPUs is left in the quota of cluster prod"
    assert (wait.reason, wait.sentence) == (Reason.QUOTA, expected)
    assert len(planned([node], wants("a", 1, 8, cpus=2), held=(holds("1", 0),), cpu_millis=6000).openings) == 2
    assert len(planned([node], wants("a", 1, 8), held=(holds("1", 0),), tasks=4).openings) == 3


def test_what_starts_together_is_counted_together() -> None:
    node = a_cluster_node("n1", cpus=64, gpus=8)
    found = planned([node], wants("a", 1, 4, gpus=1, gang=True), held=(holds("1", 0, 2),), gpus=4)
    assert not found.openings
    assert found.waits["a"].sentence == "needs 4 GPUs, and 2 GPUs of 4 GPUs is left in the quota of cluster prod"


def test_later_jobs_do_not_take_the_quota_that_an_earlier_one_waits_for() -> None:
    nodes = [a_node("here", cpus=64, gpus=8), a_cluster_node("n1", cpus=64, gpus=8)]
    later = (wants("small", 2, gpus=1), wants("cpu", 3), wants("elsewhere", 4, gpus=1, cluster=""))
    found = planned(nodes, wants("a", 1, 4, gpus=1, gang=True), *later, held=(holds("1", 0, 2),), gpus=4)
    assert opened(found) == [("cpu", "prod/n1"), ("elsewhere", "here")]
    wait = found.waits["small"]
    expected = "job a is ahead of it and waits for the same quota of cluster prod"
    assert (wait.reason, wait.sentence) == (Reason.PRIORITY, expected)


def test_a_job_above_the_whole_quota_waits_and_is_in_nobodys_way() -> None:
    node = a_cluster_node("n1", cpus=64, gpus=8)
    running = (holds("1", 9),)
    found = planned([node], wants("a", 1, gpus=8), wants("b", 2, gpus=1), held=running, gpus=4)
    assert opened(found) == [("b", "prod/n1")]
    expected = "needs 8 GPUs, and there is never more than 4 GPUs in the quota of cluster prod"
    assert found.waits["a"].sentence == expected
    assert not found.draining_slots


def test_slots_of_later_jobs_take_nothing_new_while_an_earlier_one_waits_for_their_quota() -> None:
    node = a_cluster_node("n1", cpus=64, gpus=8)
    held = (holds("1", 0), holds("2", 8), holds("3", 9), holds("4", 7, gpus=0))
    found = planned([node], wants("a", 1, gpus=2), held=held, gpus=4)
    assert found.draining_slots == {"3"}


def test_who_waits_for_room_keeps_its_part_of_the_quota_too() -> None:
    nodes = [a_cluster_node("n1", cpus=64, gpus=2), a_cluster_node("n2", cpus=64, gpus=1)]
    requests = (wants("a", 1, gpus=2), wants("b", 2, gpus=1))
    found = planned(nodes, *requests, held=(holds("1", 0),), gpus=3)
    assert not found.openings
    assert found.waits["a"].reason is Reason.RESOURCES
    assert found.waits["b"].sentence.startswith("job a is ahead of it and waits for the same quota")
    assert opened(planned(nodes, *requests, held=(holds("1", 0),), gpus=4)) == [("b", "prod/n2")]


# -- what is remembered changes nothing --------------------------------------------------------------------------------

SOME = st.builds(
    Resources,
    cpu_millis=st.sampled_from([0, 500, 1000]),
    memory_mib=st.sampled_from([0, 1000]),
    gpus=st.sampled_from([0, 1, 2]),
    gpu_memory_mib=st.sampled_from([0, 0, 30]),
)
WHERES = [Where(), Where("a"), Where("", "prod"), Where("", "prod", ("x=y",))]
ASKS = st.builds(Ask, SOME, st.sampled_from(WHERES), st.booleans())


def some_nodes() -> list[Node]:
    machines = [a_node("a", cpus=2, gpus=2, gpu_mib=100), a_node("b", cpus=4, gpus=1, gpu_mib=80)]
    ours = [a_cluster_node("n1", cpus=2, gpus=2), a_cluster_node("n2", gpus=1, labels=("x=y",))]
    return [*machines, *ours, a_cluster_node("n3", foreign=Foreign(500, 100), taints=(Taint("t"),))]


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_ranking_chooses_as_if_all_nodes_were_looked_at(data: st.DataObject) -> None:
    rooms, plain = Rooms({node.id: Room(node) for node in some_nodes()}), {n.id: Room(n) for n in some_nodes()}
    given_out: list[Placement] = []
    protected: list[Protected] = []
    for _ in range(data.draw(st.integers(1, 15))):
        if given_out and data.draw(st.integers(0, 3)) == 0:
            back = given_out.pop(data.draw(st.integers(0, len(given_out) - 1)))
            rooms.take_back(back)
            plain[back.node].take_back(back)
        if data.draw(st.integers(0, 4)) == 0:
            kept = data.draw(ASKS)
            protected = [*protected, Protected(kept.resources, 1, kept.where, kept.overcommit)]
        ask = data.draw(ASKS)
        found = rooms.choose(ask, protected)
        assert found == choose_node(plain.values(), ask.resources, ask.where, protected, ask.overcommit)
        if found:
            rooms.give(found)
            plain[found.node].give(found)
            given_out.append(found)


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_a_plan_is_the_same_with_what_is_known_of_the_last_one(data: st.DataObject) -> None:
    known, nodes = KnownRooms(), some_nodes()
    held: list[HeldSlot] = []
    for cycle in range(4):
        one_ends = data.draw(st.booleans())
        if held and one_ends:
            held.pop(data.draw(st.integers(0, len(held) - 1)))
        if data.draw(st.booleans()):
            nodes[0] = replace(nodes[0], foreign=Foreign(data.draw(st.sampled_from([0, 700]))))
        asks = [data.draw(ASKS) for _ in range(3)]
        requests = tuple(
            Request(
                f"{cycle}-{i}", 0, 10 * cycle + i, (Member(0, a.resources, 2),), bool(i % 2), cluster=a.where.cluster
            )
            for i, a in enumerate(asks)
        )
        snapshot = Snapshot(tuple(nodes), tuple(held), requests, quotas={"prod": Quota(gpus=2)})
        found = plan(snapshot, known)
        assert found == plan(snapshot)
        for opening in found.openings:
            slot = Slot(f"{cycle}.{len(held)}", opening.job, 0, opening.placement)
            held.append(HeldSlot(slot, 0, 10 * cycle))


# -- elastic jobs ------------------------------------------------------------------------------------------------------


def test_an_elastic_job_grows_anywhere_on_its_cluster_but_not_above_the_quota() -> None:
    nodes = (a_node("here", cpus=64, gpus=8), a_cluster_node("n1", gpus=1), a_cluster_node("n2", gpus=4))
    slot = holds("1", 1)
    one, two = Size(1, 1), Size(2, 1)
    running = Running(
        "job1",
        0,
        1,
        ("1",),
        one,
        (one, two),
        epochs_left=100,
        epoch_seconds=((one, 60.0),),
        where=Where("", "prod"),
    )
    snapshot = Snapshot(nodes, (slot,), (), running=(running,))
    (stop,) = plan(snapshot).stops
    assert (stop.size, [placement.node for placement in stop.claim]) == (two, ["prod/n2"])
    assert plan(replace(snapshot, quotas={"prod": Quota(gpus=1)})).stops == ()
