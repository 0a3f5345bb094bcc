"""When does a machine join, and what waits until its room is known?"""

from __future__ import annotations

from typing import Any

from jobyard.executors.machine_room import MachineRoom
from jobyard.model.events import AttemptsMeasured, AttemptsStarted, AttemptsWithdrawn, Event, NodeJoined, NodeMeasured
from jobyard.model.node import Device
from jobyard.model.task import AttemptId

GPU = {"index": 0, "name": "FakeGPU", "memory_mib": 80000, "uuid": "GPU-0", "fake": 1}
WELCOME: dict[str, Any] = {"cpu_millis": 4000, "memory_mib": 16384, "boot_id": "x", "devices": [GPU]}
FOREIGN = {"cpu_millis": 0, "memory_mib": 0, "device_mib": {}}
MEASURED: dict[str, Any] = {"ev": "measured", "devices": [], "load": 0.5, "foreign": FOREIGN}
DOCKER, NO_DOCKER = {"kind": "docker", "problem": ""}, {"kind": "docker", "problem": "it does not answer"}
WITHDRAWN = AttemptsWithdrawn((AttemptId("j", 0, 1),), 1.0)
STARTED = AttemptsStarted((), 1.0)


def a_room(**welcome: Any) -> MachineRoom:
    room = MachineRoom("a", "ssh", owner_only=True)
    room.welcome({**WELCOME, **welcome}, 1.0)
    return room


def kinds(events: list[Event]) -> list[type[Event]]:
    return [type(event) for event in events]


def test_a_machine_joins_with_its_first_measurement_and_once() -> None:
    room = a_room()
    joined, measured = room.measured(MEASURED, (), 2.0)
    assert isinstance(joined, NodeJoined)
    assert isinstance(measured, NodeMeasured)
    node = joined.node
    assert (node.id, node.executor, node.cpu_millis, node.memory_mib) == ("a", "ssh", 4000, 16384)
    assert (node.devices, node.boot_id, node.owner_only) == ((Device(0, "FakeGPU", 80000, "GPU-0", True),), "x", True)
    assert kinds(room.measured(MEASURED, (), 3.0)) == [NodeMeasured]


def test_an_engine_that_stops_changes_the_node() -> None:
    room = a_room(runtime=DOCKER)
    room.measured(MEASURED, (), 2.0)
    joined, _ = room.measured({**MEASURED, "runtime": NO_DOCKER}, (), 3.0)
    assert isinstance(joined, NodeJoined)
    assert (joined.node.runtime, joined.node.runtime_problem, joined.at) == ("docker", "it does not answer", 3.0)
    assert kinds(room.measured({**MEASURED, "runtime": NO_DOCKER}, (), 4.0)) == [NodeMeasured]


def test_what_was_known_of_the_engine_stays_known_to_an_agent_that_has_not_asked() -> None:
    room = a_room(runtime=DOCKER)
    room.welcome({**WELCOME, "cpu_millis": 2000}, 2.0)
    assert room.described is not None
    assert (room.described.runtime, room.described.cpu_millis) == ("docker", 2000)


def test_what_is_given_back_after_a_refusal_waits_for_the_next_measurement() -> None:
    room = a_room()
    room.measured(MEASURED, (), 2.0)
    assert room.without_given_back([STARTED, WITHDRAWN]) == [STARTED, WITHDRAWN]
    assert [room.refused(), room.refused()] == [True, False]  # one question is enough
    assert room.without_given_back([STARTED, WITHDRAWN]) == [STARTED]
    measured, given_back = room.measured(MEASURED, (), 3.0)
    assert isinstance(measured, NodeMeasured)
    assert given_back == WITHDRAWN
    assert room.without_given_back([WITHDRAWN]) == [WITHDRAWN]
    assert room.refused()


def test_a_new_link_tells_of_what_was_given_back_by_itself() -> None:
    room = a_room()
    room.refused()
    room.without_given_back([WITHDRAWN])
    room.welcome(WELCOME, 2.0)
    assert kinds(room.measured(MEASURED, (), 3.0)) == [NodeJoined, NodeMeasured]


def test_what_attempts_use_of_gpus_comes_with_the_measurement() -> None:
    room = a_room()
    use = {"j.0.1": {"memory_mib": 10, "gpu_memory_mib": 20}}
    assert kinds(room.measured({**MEASURED, "attempts": use}, {0}, 2.0)) == [NodeJoined, NodeMeasured, AttemptsMeasured]
