"""Whose memory is it? Ours, a stranger's, or the driver's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jobyard.agent.attempts.attempt import Attempt, Slot
from jobyard.agent.attempts.measuring import Measurer
from jobyard.agent.devices.gpus import NoGpus, Usage
from jobyard.agent.sharing.published import Capacity
from jobyard.agent.sharing.reservations import Reservations
from jobyard.agent_protocol.records import Start


class OneGpu(NoGpus):
    def __init__(self, used_mib: int, by_pid: dict[int, int]) -> None:
        self._usage = Usage(0, used_mib, 50, by_pid)

    def usage(self) -> list[Usage]:
        return [self._usage]


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("JOBYARD_RESERVATIONS_DIR", str(tmp_path))

    def measured(used_mib: int, by_pid: dict[int, int], ours: bool = False) -> dict[str, int]:
        attempt = Attempt("j.0.1", Slot("1", "j", {}))
        attempt.take_start(Start(os.getsid(0), 0, 0.0))
        reservations = Reservations(Capacity(1000, 1000, {0: 80000}))
        foreign = Measurer(OneGpu(used_mib, by_pid), reservations).measure([attempt] if ours else [])["foreign"]
        found: dict[str, int] = foreign["device_mib"]
        return found

    return measured


def test_what_ours_use_is_taken_off(measure: Any) -> None:
    assert measure(5000, {os.getpid(): 5000}, ours=True) == {}
    assert measure(5000, {os.getpid(): 5000}) == {"0": 5000}
    assert measure(5000, {os.getpid(): 3000}, ours=True) == {"0": 2000}


def test_what_the_driver_keeps_beside_a_process_is_nobodys(measure: Any) -> None:
    """An H200 shows 4622 MiB in use and one process with 4614: the device is not shared with anyone."""
    assert measure(4622, {os.getpid(): 4614}, ours=True) == {}
    assert measure(4, {}) == {}


def test_a_stranger_counts_however_small_it_is(measure: Any) -> None:
    assert measure(20, {1: 20}) == {"0": 20}


def test_what_nobody_is_named_for_counts_too(measure: Any) -> None:
    assert measure(500, {}) == {"0": 500}


class TwoGpus(NoGpus):
    def __init__(self, *utilisation: int | None) -> None:
        self._usage = [
            Usage(0, 300, utilisation[0], {os.getpid(): 300}),
            Usage(1, 700, utilisation[1], {os.getpid(): 700}),
        ]

    def usage(self) -> list[Usage]:
        return self._usage


@pytest.mark.parametrize(
    ("utilisation", "devices", "percent"),
    [
        ((20, 60), [0, 1], 40),
        ((20, 60), [1], 60),
        ((20, None), [0, 1], 20),
        ((None, None), [0, 1], None),
        ((9, 9), [], None),
    ],
)
def test_an_attempt_is_measured_on_its_devices(
    utilisation: tuple[int | None, int | None], devices: list[int], percent: int | None, reservations_dir: Path
) -> None:
    attempt = Attempt("j.0.1", Slot("1", "j", {"devices": {str(index): 100 for index in devices}}))
    attempt.take_start(Start(os.getsid(0), 0, 0.0))
    measured = Measurer(TwoGpus(*utilisation), Reservations(Capacity(1000, 1000, {}))).measure([attempt])
    sample = measured["attempts"]["j.0.1"]
    assert sample.get("gpu_percent") == percent
    assert sample["gpu_memory_mib"] == 700
    assert (attempt.peaks.gpu_mib, attempt.peaks.gpu_index) == (700, 1)
