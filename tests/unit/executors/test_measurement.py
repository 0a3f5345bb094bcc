"""What an agent measures, and what the yard makes of it."""

from __future__ import annotations

from typing import Any

from jobyard.executors.measurement import Measurements
from jobyard.model.node import DeviceUse, Foreign


def message(*percents: int, **foreign: Any) -> dict[str, Any]:
    devices = [{"index": index, "used_mib": 100, "utilisation": percent} for index, percent in enumerate(percents)]
    nobody = {"cpu_millis": 0, "memory_mib": 0, "device_mib": {}, "whole_devices": [], "holders": []}
    return {"ev": "measured", "load": 0.5, "foreign": {**nobody, **foreign}, "devices": devices, "attempts": {}}


def percents(measurements: Measurements, seen: dict[str, Any], *ours: int) -> tuple[tuple[int, int], ...]:
    return measurements.read(seen, ours, 1.0).foreign.device_percent


def test_everything_arrives_and_memory_in_steps() -> None:
    seen = message(33, cpu_millis=500, memory_mib=257, device_mib={"0": 7, "1": 0}, whole_devices=[1], holders=["bob"])
    event = Measurements("here").read(seen, (), 7.0)
    assert event.foreign == Foreign(500, 512, ((0, 7),), (1,), ("bob",), ((0, 30),))
    assert (event.node, event.at, event.load, event.device_use) == ("here", 7.0, 0.5, (DeviceUse(0, 100, 33),))


def test_a_device_that_nobody_of_us_uses_is_as_busy_as_others_make_it() -> None:
    measurements = Measurements("here")
    assert percents(measurements, message(62, 3, 97)) == ((0, 60), (2, 100))
    assert percents(measurements, message(0, 44, 0)) == ((1, 40),)


def test_what_others_have_reserved_counts_before_they_use_it() -> None:
    seen = message(20, 0, 0, device_percent={"0": 10, "1": 75})
    assert percents(Measurements("here"), seen) == ((0, 20), (1, 75))


def test_while_we_use_a_device_others_are_believed_to_go_on_as_before() -> None:
    measurements = Measurements("here")
    assert percents(measurements, message(40)) == ((0, 40),)
    assert percents(measurements, message(100), 0) == ((0, 40),)
    assert percents(measurements, message(20), 0) == ((0, 20),)  # all of us together use no more than that
    assert percents(measurements, message(100), 0) == ((0, 20),)
    assert percents(measurements, message(70)) == ((0, 70),)


def test_what_we_use_of_a_device_that_was_idle_is_not_taken_for_others() -> None:
    assert percents(Measurements("here"), message(100), 0) == ()
