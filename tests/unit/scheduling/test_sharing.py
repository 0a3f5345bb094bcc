"""Whole nodes, shares of GPUs, what others use, and where a job may go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobyard.model.job import Reason
from jobyard.model.node import Device, Foreign, Node, NodeConfig, NodeState
from jobyard.model.resources import DeviceSlice, Placement, Resources
from jobyard.model.task import Slot
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.explain import may_match, why_never, why_unknown
from jobyard.scheduling.snapshot import HeldSlot, Member, Plan, Request, Snapshot
from tests.builders import a_node
from tests.unit.scheduling.yards import planned

WHOLE = Resources(1000, whole_node=True)


def wants(job: str, age: int, wanted: int, resources: Resources, **other: Any) -> Request:
    return Request(job, 0, age, (Member(0, resources, wanted),), **other)


def holds(slot: str, node: str, resources: Resources, *devices: DeviceSlice, age: int = 0) -> HeldSlot:
    return HeldSlot(Slot(slot, f"job{age}", 0, Placement(node, resources, devices)), 0, age)


def share(percent: int = 0, mib: int = 0, cpus: int = 0) -> Resources:
    return Resources(cpus * 1000, 0, 1, mib, percent)


def devices_of(found: Plan) -> list[tuple[int, ...]]:
    return [tuple(piece.index for piece in opening.placement.devices) for opening in found.openings]


def with_foreign(node: Node, **what: Any) -> Node:
    return replace(node, foreign=Foreign(**what))


# -- shares of a GPU's compute ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percent", "overcommit", "fitting"),
    [(50, False, 2), (75, False, 1), (34, False, 2), (100, False, 1), (40, True, 3), (75, True, 1), (30, True, 4)],
)
def test_shares_of_compute_add_up_to_all_of_it_or_a_fifth_more(percent: int, overcommit: bool, fitting: int) -> None:
    found = planned([a_node(gpus=1)], wants("j", 1, 9, share(percent), overcommit=overcommit))
    assert len(found.openings) == fitting


def test_who_asks_for_memory_and_compute_needs_both() -> None:
    node = a_node(gpus=1, gpu_mib=1000)
    assert len(planned([node], wants("j", 1, 9, share(10, mib=400))).openings) == 2
    assert len(planned([node], wants("j", 1, 9, share(60, mib=100))).openings) == 1


def test_a_share_without_memory_keeps_a_gpu_from_who_wants_it_whole() -> None:
    part, whole = wants("part", 1, 1, share(10)), wants("whole", 2, 1, Resources(0, 0, 1))
    assert [opening.job for opening in planned([a_node(gpus=1)], part, whole).openings] == ["part"]
    assert [o.job for o in planned([a_node(gpus=1)], replace(part, age=3), whole).openings] == ["whole"]
    (opening,) = planned([a_node(gpus=1)], part).openings
    assert opening.placement.devices[0].memory_mib > 0  # so that other yards see it


def test_what_others_compute_is_left_to_them() -> None:
    node = with_foreign(a_node(gpus=1), device_percent=((0, 40),))
    assert len(planned([node], wants("j", 1, 9, share(30))).openings) == 2
    assert len(planned([node], wants("j", 1, 9, share(mib=20000))).openings) == 4


def test_shares_are_packed_so_that_idle_gpus_stay_idle() -> None:
    assert devices_of(planned([a_node(gpus=2)], wants("j", 1, 3, share(50)))) == [(0,), (0,), (1,)]


def test_it_says_which_share_is_lacking() -> None:
    node = with_foreign(a_node(gpus=2), device_percent=((0, 90), (1, 90)), holders=("python (pid 7)",))
    wait = planned([node], wants("j", 1, 1, share(50, mib=1024))).waits["j"]
    assert wait.reason is Reason.RESOURCES
    assert wait.sentence == (
        "needs 0 cpus, 1 GPU with 1 GiB and 50 % of compute each; here has 0 GPUs with 1 GiB and 50 % of compute free "
        "of 2 (others hold part of it: python (pid 7))"
    )


# -- what others use, and GPUs of different sizes ----------------------------------------------------------------------


def test_a_full_gpu_never_hides_a_usable_one() -> None:
    """The origin of execute_batch finds no slot here: it looks at the idle but full GPU only."""
    node = with_foreign(a_node(gpus=2, gpu_mib=8000), device_mib=((1, 8000),), device_percent=((0, 30),))
    assert devices_of(planned([node], wants("j", 1, 1, share(60, mib=1000)))) == [(0,)]
    node = with_foreign(a_node(gpus=3, gpu_mib=8000), device_mib=((0, 8000), (1, 500)))
    assert devices_of(planned([node], wants("j", 1, 1, Resources(0, 0, 1)))) == [(2,)]


def test_a_gpu_that_others_use_can_be_shared_but_not_had() -> None:
    node = with_foreign(a_node(gpus=1, gpu_mib=8000), device_mib=((0, 500),))
    assert not planned([node], wants("j", 1, 1, Resources(0, 0, 1))).openings
    assert len(planned([node], wants("j", 1, 9, share(mib=2500))).openings) == 3


def test_the_smallest_gpu_that_suffices_is_chosen_on_a_node_and_over_nodes() -> None:
    sizes = (Device(0, "large", 80000), Device(1, "small", 24000), Device(2, "middle", 48000))
    mixed = Node("mixed", "local", 8000, 16000, sizes)
    assert devices_of(planned([mixed], wants("j", 1, 1, share(mib=30000)))) == [(2,)]
    assert devices_of(planned([mixed], wants("j", 1, 2, Resources(0, 0, 1)))) == [(1,), (2,)]
    nodes = [a_node("a-large", gpus=1, gpu_mib=80000), a_node("b-small", gpus=1, gpu_mib=24000)]
    assert planned(nodes, wants("j", 1, 1, share(mib=10000))).openings[0].placement.node == "b-small"
    assert planned(nodes, wants("j", 1, 1, Resources(0, 0, 1))).openings[0].placement.node == "b-small"
    assert planned(nodes, wants("j", 1, 1, share(mib=30000))).openings[0].placement.node == "a-large"


def test_a_gpu_in_use_takes_the_next_share_also_on_another_node() -> None:
    nodes = [a_node("a", gpus=1), a_node("b", gpus=1)]
    held = holds("1", "b", share(mib=20000), DeviceSlice(0, 20000))
    assert planned(nodes, wants("j", 1, 1, share(mib=20000)), held=(held,)).openings[0].placement.node == "b"


# -- cores -------------------------------------------------------------------------------------------------------------


def test_two_cores_more_than_there_are_for_who_overcommits() -> None:
    node = a_node(cpus=4)
    assert len(planned([node], wants("j", 1, 99, Resources(1000), overcommit=True)).openings) == 6
    assert len(planned([node], wants("j", 1, 99, Resources(1000))).openings) == 4
    assert why_never([node], Resources(6000), overcommit=True) is None
    assert why_never([node], Resources(7000), overcommit=True)


def test_memory_is_never_overcommitted_nor_cores_where_another_yard_has_some() -> None:
    node = a_node(cpus=4, memory_mib=4000)
    assert len(planned([node], wants("j", 1, 9, Resources(1000, 1000), overcommit=True)).openings) == 4
    shared = with_foreign(node, cpu_millis=1000)
    assert len(planned([shared], wants("j", 1, 9, Resources(1000), overcommit=True)).openings) == 3


# -- a node for oneself ------------------------------------------------------------------------------------------------


def test_a_whole_node_is_given_with_all_that_it_has() -> None:
    node = with_foreign(a_node(cpus=4, memory_mib=16384, gpus=2, gpu_mib=80000), memory_mib=1000)
    (opening,) = planned([node], wants("j", 1, 2, replace(WHOLE, gpus=1))).openings
    assert opening.placement.resources == Resources(4000, 15384, 2, whole_node=True)
    assert opening.placement.devices == (DeviceSlice(0, 80000), DeviceSlice(1, 80000))


def test_nothing_is_placed_beside_a_whole_node_not_even_what_asks_for_nothing() -> None:
    nothing = wants("nothing", 2, 1, Resources(0))
    found = planned([a_node()], wants("whole", 1, 1, WHOLE), nothing)
    assert [opening.job for opening in found.openings] == ["whole"]
    assert found.waits["nothing"].sentence == "needs 0 cpus; here has a task that was given all of it"


def test_a_node_in_use_is_not_whole() -> None:
    found = planned([a_node()], wants("whole", 1, 1, WHOLE), held=(holds("1", "here", Resources(0)),))
    assert not found.openings
    assert found.waits["whole"].sentence == "needs a whole node with 1 cpu; here has 1 slot in use"


@pytest.mark.parametrize("what", [{"cpu_millis": 1}, {"device_mib": ((0, 300),)}, {"whole_devices": (1,)}])
def test_a_node_that_others_use_is_not_whole(what: dict[str, Any]) -> None:
    node = with_foreign(a_node(gpus=2), **what, holders=("yard of bob",))
    found = planned([node], wants("whole", 1, 1, WHOLE))
    assert not found.openings
    assert "here has others on it (others hold part of it: yard of bob)" in found.waits["whole"].sentence


def test_the_smallest_node_that_is_large_enough_is_given_whole() -> None:
    nodes = [a_node("a", cpus=64), a_node("b", cpus=8), a_node("c", cpus=2), a_node("d", cpus=8, gpus=4)]
    assert planned(nodes, wants("j", 1, 1, replace(WHOLE, cpu_millis=4000))).openings[0].placement.node == "b"
    found = planned(nodes, wants("j", 1, 9, WHOLE))
    assert sorted(opening.placement.node for opening in found.openings) == ["a", "b", "c", "d"]
    assert planned(nodes, wants("j", 1, 1, replace(WHOLE, gpus=3))).openings[0].placement.node == "d"


def test_no_later_job_settles_where_a_whole_node_is_waited_for() -> None:
    held = (holds("1", "here", Resources(1000), age=0),)
    found = planned([a_node(cpus=8)], wants("whole", 1, 1, WHOLE), wants("small", 2, 1, Resources(0)), held=held)
    assert not found.openings
    assert found.waits["small"].reason is Reason.PRIORITY


def test_all_slots_of_later_jobs_make_way_for_a_whole_node_on_the_node_with_the_fewest() -> None:
    held = (
        *(holds(f"a{i}", "a", Resources(0), age=9) for i in range(3)),
        *(holds(f"b{i}", "b", Resources(0), age=9) for i in range(2)),
    )
    found = planned([a_node("a"), a_node("b")], wants("whole", 1, 1, WHOLE), held=held)
    assert found.draining_slots == {"b0", "b1"}


def test_a_whole_node_makes_way_for_an_earlier_job() -> None:
    everything = Resources(4000, 16384, whole_node=True)
    found = planned([a_node()], wants("early", 1, 1, Resources(0)), held=(holds("1", "here", everything, age=9),))
    assert found.draining_slots == {"1"}


# -- where -------------------------------------------------------------------------------------------------------------


def test_one_of_several_places() -> None:
    nodes = [replace(a_node(name), labels=(label,)) for name, label in (("a", "x"), ("b", "y"), ("c", "z"))]
    found = planned(nodes, wants("j", 1, 99, Resources(2000), on="a,z"))
    assert sorted(opening.placement.node for opening in found.openings) == ["a", "a", "c", "c"]


def test_a_node_that_is_only_for_those_who_name_it_gets_no_other_job() -> None:
    guest = replace(a_node("guest"), executor="ssh", labels=("ml-scheduler",), only_named=True)
    for on, nodes in [("", ["here"]), ("ssh", []), ("guest", ["guest"]), ("ml-scheduler", ["guest"])]:
        found = planned([a_node("here"), guest], wants("j", 1, 1, Resources(2000), on=on))
        assert [opening.placement.node for opening in found.openings] == nodes
    assert not may_match(NodeConfig("guest", "guest.lab", only_named=True), "")
    assert may_match(NodeConfig("guest", "guest.lab", only_named=True), "guest")
    assert why_never([guest], Resources(2000)) == "guest takes only jobs that name it; name it with --on"


def test_an_unknown_place_is_told_with_all_that_are_known() -> None:
    nodes = [replace(a_node("gpu1"), labels=("fast", "old"))]
    expected = "there is no node 'gpu9'; known: gpu1, gpu2, local, ssh; labels: fast, lab, old"
    assert why_unknown(nodes, [NodeConfig("gpu2", "gpu2.lab", labels=("lab",))], "gpu1,gpu9") == expected
    assert why_unknown(nodes, (), "fast,gpu1,local") is None
    assert why_unknown(nodes, (), "") is None


def test_nodes_that_take_nothing_now_are_named() -> None:
    nodes = [
        replace(a_node("gpu1"), state=NodeState.AWAY),
        replace(a_node("gpu2"), state=NodeState.DRAINING),
        a_node("gpu3", cpus=1),
    ]
    snapshot = Snapshot(tuple(nodes), (), (wants("j", 1, 1, Resources(2000)),), (NodeConfig("gpu4", "gpu4.lab"),))
    wait = plan(snapshot).waits["j"]
    assert wait.reason is Reason.NODE_DOWN
    assert wait.sentence == "no node can take it now: gpu1 is away, gpu2 is draining, gpu4 has not been reached yet"
    held = (holds("1", "gpu3", Resources(1000)),)
    wait = plan(replace(snapshot, held=held, requests=(wants("j", 1, 1, Resources(1000)),))).waits["j"]
    assert wait.sentence.startswith("needs 1 cpu; gpu3 has 0 of 1 cpus free; gpu1 is away; gpu2 is draining; gpu4 has")
