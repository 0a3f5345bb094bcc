"""Does a task get the kind of GPU that it asks for, and is it told what there is where nobody has it?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.job import Reason
from jobyard.model.node import Device, Node
from jobyard.model.resources import DeviceSlice, Placement, Resources
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.devices import choose_devices, free_devices, gpu_instances, suits
from jobyard.scheduling.explain import why_never, why_not_now
from jobyard.scheduling.placement import Protected, Room
from jobyard.scheduling.snapshot import Member, Request, Snapshot
from tests.builders import a_node

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"
KINDS = ("", "h100", "a100", "nvidia", "v100", "mig-1g.10gb")


def mixed(name: str = "here", h100: int = 2, a100: int = 2) -> Node:
    """Kinds one after the other, on one node."""
    sizes = [(H100, 80000)] * h100 + [(A100, 40000)] * a100
    return replace(a_node(name, cpus=16), devices=tuple(Device(i, *each) for i, each in enumerate(sizes)))


def of_kind(kind: str, gpus: int = 1, **other: Any) -> Resources:
    return Resources(gpus=gpus, gpu_kind=kind, **other)


def indices(node: Node, ask: Resources) -> list[int] | None:
    chosen = choose_devices(free_devices(node), ask)
    return None if chosen is None else [piece.index for piece in chosen]


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (of_kind("h100"), [0]),
        (of_kind("h100", 2), [0, 1]),
        (of_kind("a100", 2), [2, 3]),
        (of_kind("h100", 3), None),
        (of_kind("", 3), [0, 2, 3]),
        (of_kind("h100", gpu_memory_mib=1000), [0]),
        (of_kind("a100", least_device_mib=50000), None),
        (of_kind("nvidia", least_device_mib=50000), [0]),
    ],
)
def test_of_two_kinds_on_one_node_a_task_gets_the_one_that_it_asks_for(
    ask: Resources, expected: list[int] | None
) -> None:
    assert indices(mixed(), ask) == expected


def test_tasks_of_two_kinds_run_beside_each_other_and_a_third_waits_for_its_kind() -> None:
    asks = [of_kind("h100", 2), of_kind("h100"), of_kind("a100")]
    requests = tuple(Request(f"j{i}", 0, i, (Member(0, ask, 1),)) for i, ask in enumerate(asks))
    found = plan(Snapshot((mixed(),), (), requests))
    assert {each.job: [piece.index for piece in each.placement.devices] for each in found.openings} == {
        "j0": [0, 1],
        "j2": [2],
    }
    assert found.waits["j1"].reason is Reason.RESOURCES
    assert "has 0 free h100 GPUs of 4" in found.waits["j1"].sentence


def test_a_task_takes_no_kind_that_an_earlier_one_could_need_for_want_of_another() -> None:
    """The second may take either, and so may push the first off what it waits for."""
    first, second, last = of_kind("h100", 3), of_kind("nvidia", 2), of_kind("a100")
    waiting = Room(mixed(h100=3, a100=1))
    waiting.give(Placement("here", of_kind("h100"), (DeviceSlice(0, 80000),)))
    placed = waiting.place(last)
    assert placed is not None
    assert waiting.hurts(placed, [Protected(first, 1), Protected(second, 1)])
    assert not waiting.hurts(placed, [Protected(first, 1)])


def test_a_kind_that_nobody_has_is_told_with_what_there_is() -> None:
    nodes = [mixed("n1"), a_node("n2", gpus=1)]
    assert why_never(nodes, of_kind("b200")) == (
        f"there is no b200 GPU; there are {H100} on n1, {A100} on n1, FakeGPU (fake) on n2"
    )
    assert why_never([a_node()], of_kind("b200")) == "there is no b200 GPU, and no other one"
    assert why_never(nodes, of_kind("h100")) is None


def test_more_of_a_kind_than_any_node_has_is_told_with_the_node_that_comes_nearest() -> None:
    why = why_never([mixed("n1", h100=0, a100=8), mixed("n2", h100=2, a100=0)], of_kind("h100", 4))
    assert why is not None
    assert why.startswith("a task needs 1 cpu, 4 h100 GPUs; the largest node, n2, has ")


def test_a_slice_that_is_counted_apart_goes_only_to_who_names_its_profile() -> None:
    devices = (Device(0, H100, 80000), Device(1, f"{H100} MIG 1g.10gb", 10000, profile="1g.10gb"))
    node = replace(a_node(), devices=devices)
    assert indices(node, of_kind("")) == indices(node, of_kind("h100")) == [0]
    assert indices(node, of_kind("", 2)) is None
    assert indices(node, of_kind("mig-1g.10gb")) == [1]


@given(
    kind=st.sampled_from(KINDS),
    gpus=st.integers(1, 4),
    least=st.sampled_from([0, 50000]),
    share=st.sampled_from([0, 30000]),
    h100=st.integers(0, 3),
    a100=st.integers(0, 3),
)
def test_what_is_placed_explained_and_said_never_to_fit_is_of_one_mind(
    kind: str, gpus: int, least: int, share: int, h100: int, a100: int
) -> None:
    node, ask = mixed("here", h100, a100), of_kind(kind, gpus, least_device_mib=least, gpu_memory_mib=share)
    placed = Room(node).place(ask)
    assert (placed is not None) == bool(gpu_instances(node, ask)) == (why_never([node], ask) is None)
    for piece in placed.devices if placed else ():
        assert suits(node.devices[piece.index], ask)
    if placed is None:
        assert why_not_now([Room(node)], ask).reason is Reason.NEVER_FITS
