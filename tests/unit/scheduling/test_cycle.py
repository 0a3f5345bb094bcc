"""Who gets what, who waits and why, and who makes way."""

from __future__ import annotations

from typing import Any

import pytest

from jobyard.model.job import Reason
from jobyard.model.node import Foreign, Node, NodeState
from jobyard.model.resources import DeviceSlice, Placement, Resources
from jobyard.model.task import Slot
from jobyard.scheduling.explain import why_never
from jobyard.scheduling.snapshot import HeldSlot, Member, Plan, Request
from jobyard.scheduling.where import Where
from tests.builders import a_node
from tests.unit.scheduling.yards import ask, planned


def wants(job: str, age: int, *members: tuple[int, Resources], priority: int = 0, **other: Any) -> Request:
    found = tuple(Member(i, resources, wanted) for i, (wanted, resources) in enumerate(members))
    return Request(job, priority, age, found, **other)


def holds(
    slot: str, node: str, resources: Resources, devices: tuple[DeviceSlice, ...] = (), *, age: int, priority: int = 0
) -> HeldSlot:
    return HeldSlot(Slot(slot, f"job{age}", 0, Placement(node, resources, devices)), priority, age)


def opened(found: Plan) -> list[str]:
    return [opening.job for opening in found.openings]


# -- order -------------------------------------------------------------------------------------------------------------


def test_higher_priority_goes_first_then_the_older_job() -> None:
    requests = [wants("old", 1, (1, ask())), wants("new", 2, (1, ask())), wants("urgent", 3, (1, ask()), priority=1)]
    assert opened(planned([a_node(cpus=2)], *reversed(requests))) == ["urgent", "old"]


# -- best fit ----------------------------------------------------------------------------------------------------------


def test_the_tightest_node_is_chosen() -> None:
    nodes = [a_node("large", cpus=16), a_node("small", cpus=2)]
    assert planned(nodes, wants("j", 1, (1, ask(2)))).openings[0].placement.node == "small"
    assert planned(nodes, wants("j", 1, (1, ask(3)))).openings[0].placement.node == "large"


def test_memory_counts_as_much_as_cpus() -> None:
    nodes = [a_node("large", cpus=4, memory_mib=64000), a_node("small", cpus=4, memory_mib=8000)]
    assert planned(nodes, wants("j", 1, (1, ask(1, mem=6000)))).openings[0].placement.node == "small"
    assert planned(nodes, wants("j", 1, (1, ask(1, mem=9000)))).openings[0].placement.node == "large"


def test_a_task_without_gpus_leaves_gpu_nodes_alone_where_it_can() -> None:
    nodes = [a_node("gpus", cpus=2, gpus=4), a_node("plain", cpus=16)]
    assert planned(nodes, wants("j", 1, (1, ask(2)))).openings[0].placement.node == "plain"


def test_shares_are_packed_so_that_whole_gpus_stay_whole() -> None:
    node = a_node(cpus=8, gpus=2, gpu_mib=80000)
    held = holds("1", "here", ask(1, gpus=1, gpu_mem=20000), (DeviceSlice(1, 20000),), age=1)
    found = planned([node], wants("j", 2, (2, ask(1, gpus=1, gpu_mem=30000))), held=(held,))
    assert [opening.placement.devices for opening in found.openings] == [(DeviceSlice(1, 30000),)] * 2


def test_a_whole_gpu_is_shared_with_nobody() -> None:
    node = a_node(cpus=8, gpus=1, gpu_mib=80000)
    whole, part = ask(1, gpus=1), ask(1, gpus=1, gpu_mem=10)
    assert opened(planned([node], wants("whole", 1, (1, whole)), wants("part", 2, (1, part)))) == ["whole"]
    assert opened(planned([node], wants("part", 1, (1, part)), wants("whole", 2, (1, whole)))) == ["part"]


def test_the_gpus_of_one_task_are_different_devices() -> None:
    node = a_node(cpus=8, gpus=2, gpu_mib=80000)
    (opening,) = planned([node], wants("j", 1, (1, ask(1, gpus=2, gpu_mem=30000)))).openings
    assert [piece.index for piece in opening.placement.devices] == [0, 1]
    assert not planned([a_node(gpus=1)], wants("j", 1, (1, ask(1, gpus=2, gpu_mem=30000)))).openings


def test_what_others_use_is_left_to_them() -> None:
    foreign = Foreign(cpu_millis=3000, memory_mib=10000, device_mib=((0, 70000),), whole_devices=(1,))
    node = Node("here", "local", 4000, 16000, a_node(gpus=2).devices, foreign=foreign)
    assert len(planned([node], wants("j", 1, (9, ask(1)))).openings) == 1
    assert len(planned([node], wants("j", 1, (9, ask(0, mem=3000)))).openings) == 2
    assert not planned([node], wants("j", 1, (1, ask(0, gpus=1)))).openings
    assert len(planned([node], wants("j", 1, (9, ask(0, gpus=1, gpu_mem=5000)))).openings) == 2


def test_who_asks_for_nothing_fits_even_where_others_take_too_much() -> None:
    node = Node("here", "local", 4000, 16000, foreign=Foreign(cpu_millis=9000, memory_mib=20000))
    assert len(planned([node], wants("j", 1, (1, ask(0)))).openings) == 1


def test_only_nodes_that_are_up_take_anything() -> None:
    nodes = [
        Node("a", "local", 4000, 1000, state=NodeState.DOWN),
        Node("b", "local", 4000, 1000, state=NodeState.DRAINING),
    ]
    found = planned(nodes, wants("j", 1, (1, ask())))
    assert not found.openings
    assert found.waits["j"].reason is Reason.NODE_DOWN
    assert found.waits["j"].sentence == "no node can take it now: a is down, b is draining"


# -- gangs -------------------------------------------------------------------------------------------------------------


def test_a_gang_gets_all_or_nothing_and_leaves_nothing_behind() -> None:
    gang = wants("gang", 1, (1, ask(2)), (3, ask(1)), gang=True)
    assert not planned([a_node(cpus=4)], gang).openings
    assert len(planned([a_node("a", cpus=2), a_node("b", cpus=3)], gang).openings) == 4


def test_a_gang_that_waits_says_how_much_of_it_would_fit() -> None:
    wait = planned([a_node(cpus=4)], wants("gang", 1, (3, ask(2)), gang=True)).waits["gang"]
    assert wait.reason is Reason.RESOURCES
    assert wait.sentence == "its 3 tasks start together, and there is room for 2 of them now"


def test_who_fits_beside_a_waiting_gang_is_not_refused_for_its_sake() -> None:
    """The gang lacks a GPU; its cpus would be there all the same."""
    gang = wants("gang", 1, (2, ask(1)), (1, ask(1, gpus=1)), gang=True)
    held = holds("1", "here", ask(1, gpus=1), (DeviceSlice(0, 80000),), age=0)
    found = planned([a_node(cpus=16, gpus=1)], gang, wants("small", 2, (1, ask(1))), held=(held,))
    assert opened(found) == ["small"]


# -- why ---------------------------------------------------------------------------------------------------------------


def test_it_waits_for_resources_and_says_which() -> None:
    held = holds("1", "here", ask(3, mem=15000), age=0)
    wait = planned([a_node(cpus=4)], wants("j", 1, (1, ask(2, mem=2048))), held=(held,)).waits["j"]
    assert wait.reason is Reason.RESOURCES
    assert wait.sentence == ("needs 2 cpus, 2 GiB memory; here has 1 of 4 cpus free and 1.4 GiB of 16 GiB memory free")


def test_it_says_that_gpus_are_what_it_lacks() -> None:
    held = holds("1", "here", ask(1, gpus=1), (DeviceSlice(0, 80000),), age=0)
    wait = planned([a_node(gpus=1)], wants("j", 1, (1, ask(1, gpus=1))), held=(held,)).waits["j"]
    assert "0 free GPUs of 1" in wait.sentence


def test_it_waits_behind_a_job_with_higher_priority_and_names_it() -> None:
    held = holds("1", "here", ask(2), age=0)
    large, small = wants("large", 1, (1, ask(4)), priority=1), wants("small", 2, (1, ask(1)))
    wait = planned([a_node(cpus=4)], small, large, held=(held,)).waits["small"]
    assert wait.reason is Reason.PRIORITY
    assert "job large is ahead of it" in wait.sentence


def test_what_no_longer_fits_anywhere_is_told() -> None:
    wait = planned([a_node(cpus=4)], wants("j", 1, (1, ask(8)))).waits["j"]
    assert wait.reason is Reason.NEVER_FITS
    assert "the largest node, here, has 4 cpus" in wait.sentence


def test_a_yard_without_nodes_says_so() -> None:
    assert planned([], wants("j", 1, (1, ask()))).waits["j"].sentence == "the yard has no nodes yet"


def test_a_node_that_could_but_is_down_is_named() -> None:
    large = Node("large", "local", 64000, 64000, state=NodeState.DOWN)
    wait = planned([a_node(cpus=4), large], wants("j", 1, (1, ask(8)))).waits["j"]
    assert (wait.reason, wait.sentence) == (Reason.NODE_DOWN, "no node can take it now: large is down")


@pytest.mark.parametrize(
    ("nodes", "resources", "on", "words"),
    [
        ([], ask(1), "", "the yard has no nodes"),
        ([a_node("a")], ask(1), "b", "there is no node 'b'; known: a, local"),
        ([a_node("a", cpus=2), a_node("b", cpus=8)], ask(9), "", "needs 9 cpus; the largest node, b, has 8 cpus"),
        ([a_node("a", cpus=8), a_node("b", cpus=2, gpus=1)], ask(1, gpus=2), "", "the largest node, b, has 2 cpus"),
        ([a_node("a", gpus=2, gpu_mib=1024)], ask(1, gpus=1, gpu_mem=2048), "", "2 GPUs: FakeGPU with 1 GiB (fake)"),
    ],
)
def test_what_can_never_run_is_refused_with_the_largest_node(
    nodes: list[Node], resources: Resources, on: str, words: str
) -> None:
    sentence = why_never(nodes, resources, Where(on))
    assert sentence is not None
    assert words in sentence


def test_what_can_run_somewhere_is_not_refused() -> None:
    assert why_never([a_node("a", cpus=1), a_node("b", gpus=2)], ask(2, gpus=2, gpu_mem=40000)) is None


# -- making way --------------------------------------------------------------------------------------------------------


def test_few_slots_make_way_and_only_those_of_later_jobs() -> None:
    held = (
        holds("1", "here", ask(1), age=0),
        holds("2", "here", ask(1), age=5),
        holds("3", "here", ask(1), age=6),
        holds("4", "here", ask(1), age=7),
    )
    found = planned([a_node(cpus=4)], wants("j", 1, (1, ask(2))), held=held)
    assert found.draining_slots == {"3", "4"}


def test_the_node_where_the_fewest_make_way_is_chosen() -> None:
    held = (
        *(holds(f"a{i}", "a", ask(1), age=9) for i in range(4)),
        holds("b0", "b", ask(2), age=9),
        holds("b1", "b", ask(2), age=9),
    )
    found = planned([a_node("a", cpus=4), a_node("b", cpus=4)], wants("j", 1, (1, ask(2))), held=held)
    assert len(found.draining_slots) == 1
    assert found.draining_slots < {"b0", "b1"}


def test_nobody_makes_way_on_a_node_that_takes_nothing() -> None:
    draining = Node("old", "local", 8000, 1000, state=NodeState.DRAINING)
    held = (holds("1", "old", ask(1), age=9), holds("2", "here", ask(2), age=9))
    assert planned([draining, a_node(cpus=2)], wants("j", 1, (1, ask(2))), held=held).draining_slots == {"2"}


def test_nobody_makes_way_for_an_equal_or_a_later_job() -> None:
    held = (holds("1", "here", ask(1), age=1), holds("2", "here", ask(1), age=3, priority=2))
    assert not planned([a_node(cpus=2)], wants("j", 2, (1, ask(1))), held=held).draining_slots


def test_only_who_holds_what_is_lacking_makes_way() -> None:
    held = (
        holds("cpu", "here", ask(1), age=9),
        holds("gpu", "here", ask(1, gpus=1), (DeviceSlice(0, 80000),), age=8),
    )
    assert planned([a_node(cpus=8, gpus=1)], wants("j", 1, (1, ask(1, gpus=1))), held=held).draining_slots == {"gpu"}


# -- short ones first --------------------------------------------------------------------------------------------------


def test_what_is_known_to_be_short_goes_before_others_of_its_priority() -> None:
    short, shorter = wants("short", 3, (1, ask()), gpu_seconds=3000), wants("shorter", 4, (1, ask()), gpu_seconds=5)
    others = [
        wants("old", 1, (1, ask())),
        wants("long", 2, (1, ask()), gpu_seconds=3600),
        wants("urgent", 9, (1, ask()), priority=1),
    ]
    found = planned([a_node(cpus=8)], short, shorter, *others)
    assert opened(found) == ["urgent", "short", "shorter", "old", "long"]
