"""What is an agent told of jobs and of their attempts?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.builders import a_job

from jobyard.executors import agent_messages
from jobyard.executors.agent_messages import LaunchMessages
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.resources import DeviceSlice, Placement, Resources
from jobyard.model.task import AttemptId, Slot

FIRST = AttemptId("j", 0, 1)
SHELL = {"HOME": "/home/ada"}
WITH_TREE = {"workdir": "/work", "snapshot": "abc", "subdir": "src", "copy_back": ("out",)}


def messages(*, inherits_shell: bool = True, shares_disk: bool = True) -> LaunchMessages:
    yard: Any = SimpleNamespace(inherited_env=lambda spec: SHELL, resumes_at=lambda *_: None)
    return LaunchMessages(yard, inherits_shell=inherits_shell, shares_disk=shares_disk)


def submitted(**spec: Any) -> SubmittedJob:
    return SubmittedJob("j", 1, a_job(**spec))


def a_slot(resources: Resources, *devices: DeviceSlice) -> Slot:
    return Slot("s1", "j", 0, Placement("here", resources, devices))


def test_a_job_of_this_machine_has_the_shell_it_came_from_and_its_directory() -> None:
    said = messages().job(submitted(**WITH_TREE))
    assert (said["op"], said["job"], said["workdir"], said["gang"]) == ("job", "j", "/work", False)
    assert said["env"]["HOME"] == "/home/ada"
    assert "snapshot" not in said


def test_a_job_elsewhere_has_a_tree_instead_of_a_directory_and_no_shell() -> None:
    said = messages(inherits_shell=False, shares_disk=False).job(submitted(**WITH_TREE))
    assert (said["workdir"], said["snapshot"], said["subdir"], said["copy_back"]) == ("", "abc", "src", ["out"])
    assert "HOME" not in said["env"]
    everything = messages(inherits_shell=False, shares_disk=False).job(submitted(workdir="/work", snapshot="abc"))
    assert everything["copy_back"] == ["."]


def test_a_job_elsewhere_without_a_tree_has_no_directory() -> None:
    said = messages(inherits_shell=False, shares_disk=False).job(submitted(workdir="/work"))
    assert said["workdir"] == ""
    assert "snapshot" not in said


def test_a_job_of_another_user_of_this_machine_has_its_directory_and_no_shell() -> None:
    said = messages(inherits_shell=False).job(submitted(**WITH_TREE))
    assert said["workdir"] == "/work"
    assert "snapshot" not in said
    assert "HOME" not in said["env"]


def test_a_container_has_nothing_of_the_shell() -> None:
    said = messages().job(submitted(image="python", on_machines=True, workdir="/work"))
    assert said["container"] == {"image": "python", "shm_mib": 0, "mounts": [], "ports": []}
    assert "HOME" not in said["env"]


@pytest.mark.parametrize("options", [{}, {"inherits_shell": False}])
def test_standard_input_goes_with_the_job_wherever_it_runs(options: dict[str, Any]) -> None:
    assert messages(**options).job(submitted(stdin="YQ=="))["stdin"] == "YQ=="
    assert "stdin" not in messages(**options).job(submitted())


def test_a_container_is_told_that_its_task_reads() -> None:
    said = messages().job(submitted(image="python", on_machines=True, stdin="YQ=="))
    assert (said["stdin"], said["container"]["reads_stdin"]) == ("YQ==", True)


@pytest.mark.parametrize(("spec", "limit"), [({}, None), ({"timeout_seconds": 9.0}, 9.0)])
def test_a_launch_names_each_attempt_with_its_command_and_limits(spec: dict[str, Any], limit: float | None) -> None:
    attempts = (FIRST, AttemptId("j", 1, 1))
    job, slot = submitted(tasks=2, grace_seconds=5.0, **spec), a_slot(Resources(1000))
    said = messages().launch(job, slot, attempts, None, lambda _: ())
    assert (said["op"], said["job"], said["slot"]) == ("launch", "j", "s1")
    assert [item["id"] for item in said["items"]] == ["j.0.1", "j.1.1"]
    assert [(item["grace"], item.get("timeout")) for item in said["items"]] == [(5.0, limit)] * 2
    assert said["items"][1]["env"]["YARD_NODE"] == "here"


@pytest.mark.parametrize(
    ("ask", "more"),
    [
        (Resources(500, 100, gpus=1), {"devices": {"3": 80}, "device_percent": {}, "whole_devices": [3]}),
        (
            Resources(500, 100, gpus=1, gpu_memory_mib=80, gpu_percent=25),
            {"devices": {"3": 80}, "device_percent": {"3": 25}, "whole_devices": []},
        ),
    ],
)
def test_a_slot_reserves_whole_devices_or_its_share(ask: Resources, more: dict[str, Any]) -> None:
    said = agent_messages.reserve(a_slot(ask, DeviceSlice(3, 80)))
    assert said == {"op": "reserve", "slot": "s1", "reserve": {"cpu_millis": 500, "memory_mib": 100, **more}}


@pytest.mark.parametrize(
    ("limit", "said"), [(None, {}), (True, {"memory_limit_mib": 100}), (False, {"memory_limit_mib": 0})]
)
def test_a_memory_limit_is_said_only_where_somebody_said_one(limit: bool | None, said: dict[str, int]) -> None:
    reserved = agent_messages.reserve(a_slot(Resources(500, 100, memory_limit=limit)))["reserve"]
    assert {name: value for name, value in reserved.items() if name == "memory_limit_mib"} == said


def test_what_is_asked_about_attempts_names_them() -> None:
    assert agent_messages.stop([FIRST], 5.0) == {"op": "stop", "ids": ["j.0.1"], "grace": 5.0}
    assert agent_messages.withdraw([FIRST]) == {"op": "withdraw", "ids": ["j.0.1"]}
    assert agent_messages.close("s1") == {"op": "close", "slots": ["s1"]}
    asked = {"op": "yield", "ids": ["j.0.1"], "deadline": 60.0, "grace": 5.0, "at_once": True}
    assert agent_messages.yield_([FIRST], 60.0, 5.0, at_once=True) == asked
