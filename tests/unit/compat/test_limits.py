from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.originals.facts import ml_scheduler
from tests.unit.client.views import NODE

from jobyard.compat.ml_scheduler.execute_batch import choices_of
from jobyard.compat.ml_scheduler.flags import Need, parse_batch
from jobyard.compat.ml_scheduler.limits import Free, Gpu, filled, free_of, resources_of
from jobyard.compat.ml_scheduler.machines import Machine
from jobyard.model.node import NodeState
from jobyard.model.resources import Resources
from jobyard.wire.views import DeviceView, NodeView

MOST = 10_000


def need(*words: str) -> Need:
    return parse_batch(["jobs.sh", *words, "--machines", "m"]).need


def gpu_choices(free: Free, needed: Need, most: int = MOST) -> list[int]:
    return filled(free, needed, most)[0]


def idle_gpus(count: int, mib: int = 24_000) -> tuple[Gpu, ...]:
    return tuple(Gpu(index, mib) for index in range(count))


def a_machine(gpus: tuple[Gpu, ...] = (), cores: float = 24, memory_mib: int = 62_500) -> Free:
    """64 GB are 61035 MiB; top shows a little more on such a machine."""
    return Free(round(cores * 1000), memory_mib, gpus)


@pytest.mark.parametrize("seen", ml_scheduler()["slots"], ids=str)
def test_the_results_that_were_checked_against_the_seed(seen: dict[str, Any]) -> None:
    free = a_machine(idle_gpus(seen["gpus"]), cores=seen.get("cores", 24))
    assert gpu_choices(free, need(*seen["words"].split())) == seen["choices"]


def test_what_one_file_has_taken_of_a_host_another_does_not_have() -> None:
    node = a_node_view(a_device_view(0), a_device_view(1), host="10.0.0.1", port=22)
    machines = [
        Machine("a.yaml", node),
        Machine("b.yaml", replace(node, id="b", user="bob")),
        Machine("c.yaml", replace(node, id="c", port=2222)),
        Machine("d.yaml", None),
    ]
    assert choices_of(machines, need("--memory-required=10"), 9) == [[0, 1], [], [0, 1], []]
    assert choices_of(machines, need("--reserve", "--memory-required=10"), 9) == [[0], [], [0], []]
    away = [replace(machines[0], node=replace(node, state=NodeState.AWAY)), machines[1]]
    assert choices_of(away, need("--memory-required=10"), 9) == [[], [0, 1]]


def test_a_gpu_that_an_execute_remote_sees_can_be_had_and_one_that_a_batch_has_cannot() -> None:
    seen, taken = a_device_view(0, reserved_mib=1), a_device_view(1, reserved_mib=24_000)
    free = free_of(a_node_view(seen, taken))
    assert gpu_choices(free, need("--memory-required=10", "--gpu-memory-required=0")) == [0]
    assert resources_of(need(), [a_node_view(seen)]) == Resources(1000, 6676, 1, 954, 75)
    assert resources_of(need(), [a_node_view(taken)]) == Resources(1000, 6676, gpus=1)


def test_an_exact_fit_is_allowed() -> None:
    assert gpu_choices(a_machine(memory_mib=need().memory_mib, gpus=idle_gpus(1)), need()) == [0]
    assert gpu_choices(a_machine(memory_mib=need().memory_mib - 1, gpus=idle_gpus(1)), need()) == []
    assert gpu_choices(a_machine(idle_gpus(1, need().gpu_memory_mib)), need()) == [0]
    assert gpu_choices(a_machine(idle_gpus(1, need().gpu_memory_mib - 1)), need()) == []


def test_a_full_gpu_hides_no_usable_one() -> None:
    gpus = (Gpu(0, 24_000, percent=30), Gpu(1, 0))
    assert gpu_choices(a_machine(gpus), need()) == [0]


def test_two_cores_of_overload_are_allowed_and_no_more() -> None:
    free = a_machine(cores=0.5)
    assert gpu_choices(free, need("--no-gpu-required", "--memory-required=0")) == [0, 0]


def test_a_line_that_needs_nothing_does_not_loop_forever() -> None:
    nothing = need("--no-gpu-required", "--memory-required=0", "--num-cpus=0")
    assert len(gpu_choices(a_machine(), nothing, 7)) == 7


def a_node_view(*devices: DeviceView, **changes: object) -> NodeView:
    return replace(NODE, devices=devices, **changes)  # type: ignore[arg-type]


def a_device_view(index: int = 0, mib: int = 24_000, **changes: object) -> DeviceView:
    return replace(DeviceView(index, "GPU", mib, 0, 0, fake=False), **changes)  # type: ignore[arg-type]


def test_what_is_free_is_what_neither_the_yard_nor_others_hold() -> None:
    device = a_device_view(
        3, reserved_mib=4_000, foreign_mib=1_000, percent=10, reserved_percent=50, foreign_percent=30
    )
    assert free_of(a_node_view(device)) == Free(3000, 16384 - 512, (Gpu(3, 19_000, 80),))


@pytest.mark.parametrize("state", [NodeState.AWAY, NodeState.DOWN, NodeState.DRAINING])
def test_a_machine_without_a_link_takes_nothing(state: NodeState) -> None:
    node = a_node_view(a_device_view(), state=state)
    assert gpu_choices(free_of(node), need("--memory-required=0", "--num-cpus=0")) == []


@pytest.mark.parametrize(
    ("words", "devices", "asked"),
    [
        ([], [a_device_view()], Resources(1000, 6676, gpus=1)),
        (["--num-cpus=8", "--memory-required=10000"], [a_device_view()], Resources(8000, 9537, gpus=1)),
        (["--no-gpu-required"], [a_device_view()], Resources(1000, 6676)),
        (["--reserve"], [a_device_view()], Resources(1000, 6676, gpus=1, whole_node=True)),
        (["--no-reserve-gpu"], [a_device_view()], Resources(1000, 6676, 1, 954, 75)),
        # Whole GPUs cannot be told apart by size, nor used beside others: then the line asks for memory.
        (
            ["--gpu-memory-required=40000"],
            [a_device_view(), a_device_view(1, 80_000)],
            Resources(1000, 6676, 1, 38147, 75),
        ),
        (["--gpu-utilization=0.5"], [a_device_view(foreign_mib=300)], Resources(1000, 6676, 1, 954, 61)),
        (["--no-reserve-gpu", "--gpu-memory-required=0"], [a_device_view()], Resources(1000, 6676, 1, 1, 75)),
    ],
)
def test_what_a_line_asks_of_the_yard(words: list[str], devices: list[DeviceView], asked: Resources) -> None:
    assert resources_of(need(*words), [a_node_view(*devices)]) == asked
