"""What a task finds in its environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.builders import one_column

from jobyard.executors.environment import job_environment, task_command, task_environment
from jobyard.manifests.arrays import parse_array
from jobyard.manifests.notation import RESERVED_NAMES
from jobyard.model.job import Command, GroupSpec, JobSpec, Script
from jobyard.model.lines import Lines
from jobyard.model.node import Device, Node
from jobyard.model.resources import DeviceSlice, Placement, Resources
from jobyard.model.submitter import Submitter

TRUE = Command(shell="true")
HERE = Placement("here", Resources())


def environment(
    spec: JobSpec, task: int = 0, attempt: int = 1, placement: Placement = HERE, **more: object
) -> dict[str, str]:
    """Both layers, as a task sees them."""
    own = task_environment("j7f", spec, task, attempt, placement, **more)  # type: ignore[arg-type]
    return {**job_environment("j7f", 7, spec), **own}


def an_array(text: str = "1-9:2") -> JobSpec:
    ids, _ = parse_array(text)
    return JobSpec("sweep", (GroupSpec(TRUE, completions=len(ids), array=ids),))


def groups(**counts: tuple[int, int]) -> JobSpec:
    return JobSpec(
        "demo",
        tuple(
            GroupSpec(TRUE, name.replace("_", "-"), count, completions) for name, (count, completions) in counts.items()
        ),
        submitter=Submitter("ada", source="aichor"),
        workdir="/project",
    )


def test_a_plain_job_has_our_names_and_no_others() -> None:
    assert environment(JobSpec("train", (GroupSpec(TRUE),), env={"SEED": "1"})) == {
        "SEED": "1",
        "YARD_JOB_ID": "j7f",
        "YARD_JOB_NAME": "train",
        "YARD_GROUP": "",
        "YARD_TASK": "0",
        "YARD_ATTEMPT": "1",
        "YARD_NODE": "here",
        "CUDA_VISIBLE_DEVICES": "",
    }


def test_an_array_has_slurms_names() -> None:
    env = environment(an_array(), task=3, attempt=2)
    assert {name: value for name, value in env.items() if name.startswith("SLURM")} == {
        "SLURM_JOB_ID": "7",
        "SLURM_ARRAY_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": "7",
        "SLURM_ARRAY_TASK_COUNT": "5",
        "SLURM_ARRAY_TASK_MIN": "1",
        "SLURM_ARRAY_TASK_MAX": "9",
        "SLURM_RESTART_COUNT": "1",
    }
    assert env["YARD_TASK"] == "7"
    assert env["YARD_ATTEMPT"] == "2"


# The values that were seen on the platform: seed-interfaces.md, section 1.5.
ONE = groups(worker=(10, 1))
UNEVEN = groups(worker_heavy=(1, 1), worker=(7, 1))
GRID = groups(worker=(10, 10))


@pytest.mark.parametrize(
    ("spec", "label", "completion", "index", "global_index", "all_replicas", "name", "replicas"),
    [
        (ONE, "worker/2", 0, 2, 2, 10, "worker", 10),
        (UNEVEN, "worker/5", 0, 5, 5, 8, "worker", 7),
        (UNEVEN, "worker-heavy/0", 0, 0, 7, 8, "worker-heavy", 1),
        (GRID, "worker/8.5", 5, 8, 8, 10, "worker", 10),
    ],
)
def test_groups_have_jobsets_names_with_the_values_seen_there(
    spec: JobSpec,
    label: str,
    completion: int,
    index: int,
    global_index: int,
    all_replicas: int,
    name: str,
    replicas: int,
) -> None:
    env = environment(spec, spec.number_of(label))
    assert env["JOB_COMPLETION_INDEX"] == str(completion)
    assert env["JOB_INDEX"] == str(index)
    assert env["JOB_GLOBAL_INDEX"] == str(global_index)
    assert env["GLOBAL_REPLICAS"] == str(all_replicas)
    assert env["REPLICATED_JOB_NAME"] == env["YARD_GROUP"] == name
    assert env["REPLICATED_JOB_REPLICAS"] == str(replicas)
    assert env["YARD_TASK"] == label
    assert not any(variable.startswith("SLURM") for variable in env)


def test_an_aichor_job_knows_its_experiment_and_others_do_not() -> None:
    env = environment(ONE)
    assert (env["AICHOR_EXPERIMENT_ID"], env["AICHOR_USER_NAME"]) == ("j7f", "ada")
    assert env["AICHOR_INPUT_PATH"] == "/project/"
    assert not any(name.startswith("AICHOR") for name in environment(an_array()))


def test_each_line_is_in_its_tasks_environment_and_command() -> None:
    entries = Lines.of(["a b", "c;d"])
    argv = JobSpec(
        "x", (GroupSpec(Command(argv=("cat", "in/{}.txt", "{}"), inputs=one_column(entries)), completions=2),)
    )
    shell = JobSpec("x", (GroupSpec(Command(shell="cat {} | wc", inputs=one_column(entries)), completions=2),))
    assert environment(argv, 1)["YARD_LINE"] == "c;d"
    assert task_command(argv, 0) == ("cat", "in/a b.txt", "a b")
    assert task_command(shell, 1) == task_command(shell, 0) == ("bash", "-c", 'cat "${YARD_LINE}" | wc')


def test_commands_without_entries_are_run_as_they_are() -> None:
    lines = JobSpec("x", (GroupSpec(Command(lines=Lines.of(["a {}", "b"])), completions=2),))
    assert task_command(lines, 0) == ("bash", "-c", "a {}")
    assert task_command(JobSpec("x", (GroupSpec(Command(argv=("a", "{}"))),)), 0) == ("a", "{}")
    assert task_command(JobSpec("x", (GroupSpec(TRUE),)), 0) == ("bash", "-c", "true")


def test_devices_are_named_by_uuid_and_without_one_by_index() -> None:
    placement = Placement("here", Resources(gpus=2), (DeviceSlice(1, 100), DeviceSlice(3, 100)))
    real = Node("here", "local", 1, 1, tuple(Device(i, "H200", 1, f"GPU-{i}") for i in range(4)))
    fake = Node("here", "local", 1, 1, tuple(Device(i, "Fake", 1, f"GPU-{i}", fake=True) for i in range(4)))
    spec = JobSpec("x", (GroupSpec(TRUE),), submitter=Submitter(inherited_env={"CUDA_VISIBLE_DEVICES": "0"}))
    assert environment(spec, placement=placement, node=real)["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-3"
    assert "CUDA_DEVICE_ORDER" not in environment(spec, placement=placement, node=real)
    assert environment(spec, placement=placement, node=fake)["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert environment(spec, placement=placement)["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert environment(spec)["CUDA_VISIBLE_DEVICES"] == ""


def test_a_line_of_execute_batch_has_the_number_that_its_console_shows() -> None:
    placement = Placement("here", Resources(gpus=2), (DeviceSlice(1, 100), DeviceSlice(3, 100)))
    real = Node("here", "local", 1, 1, tuple(Device(i, "H200", 1, f"GPU-{i}") for i in range(4)))
    sliced = Node("here", "local", 1, 1, tuple(Device(i, "H200", 1, f"MIG-{i}") for i in range(4)))
    spec = JobSpec("x", (GroupSpec(TRUE),), submitter=Submitter(source="ml-scheduler"))
    told = environment(spec, placement=placement, node=real)
    assert (told["CUDA_VISIBLE_DEVICES"], told["CUDA_DEVICE_ORDER"]) == ("1,3", "PCI_BUS_ID")
    assert environment(spec, placement=placement, node=sliced)["CUDA_VISIBLE_DEVICES"] == "MIG-1,MIG-3"


def test_the_first_jobs_of_two_yards_on_a_machine_have_ports_of_their_own() -> None:
    spec = JobSpec("train", (GroupSpec(TRUE, completions=2),), gang=True)
    placement = Placement("here", Resources())
    ports = {job: task_environment(job, spec, 0, 1, placement)["MASTER_PORT"] for job in ("5e7a11ce", "5e7a11cf")}
    assert len(set(ports.values())) == 2
    assert ports["5e7a11ce"] == task_environment("5e7a11ce", spec, 1, 3, placement)["MASTER_PORT"]
    assert all(20000 <= int(port) < 30000 for port in ports.values())


def test_only_a_gang_has_torchs_names() -> None:
    spec = JobSpec("train", (GroupSpec(TRUE, completions=4),), gang=True, env={"MASTER_PORT": "4242"})
    env = environment(
        spec, 2, placement=Placement("b", Resources(gpus=2)), addresses=["a.example", "b.example", "c.example"]
    )
    assert (env["RANK"], env["NODE_RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"]) == ("2", "2", "0", "4")
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("a.example", "4242")
    assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"], env["PET_NODE_RANK"]) == ("4", "2", "2")
    for other in (ONE, an_array(), JobSpec("x", (GroupSpec(TRUE),))):
        assert {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "PET_NNODES"}.isdisjoint(environment(other))


def test_the_users_variables_win_over_the_shell_and_ours_over_both() -> None:
    spec = JobSpec(
        "x",
        (GroupSpec(TRUE, "g", env={"B": "group", "YARD_GROUP": "forged"}),),
        env={"A": "job", "B": "job", "YARD_JOB_ID": "forged"},
        submitter=Submitter(inherited_env={"A": "shell", "B": "shell", "C": "shell", "YARD_TASK": "forged"}),
    )
    env = environment(spec)
    assert (env["A"], env["B"], env["C"]) == ("job", "group", "shell")
    assert (env["YARD_JOB_ID"], env["YARD_GROUP"], env["YARD_TASK"]) == ("j7f", "g", "g/0")


def test_a_job_submitted_inside_a_task_does_not_take_over_its_place() -> None:
    outer = {
        **environment(an_array()),
        **environment(ONE),
        "YARD_LINE": "x",
        "YARD_SPOOL": "y",
        "RANK": "1",
        "PATH": "/bin",
    }
    inner = environment(JobSpec("inner", (GroupSpec(TRUE),), submitter=Submitter(inherited_env=outer)))
    assert set(inner) - {"PATH"} == set(environment(JobSpec("inner", (GroupSpec(TRUE),))))


def test_a_shells_own_variables_are_the_users() -> None:
    spec = JobSpec("x", (GroupSpec(TRUE),)).with_shell({"LOCAL_RANK": "3", "SLURM_JOB_ID": "99"})
    env = environment(spec)
    assert (env["LOCAL_RANK"], env["SLURM_JOB_ID"]) == ("3", "99")


def test_no_name_of_ours_can_be_asked_for_at_submit() -> None:
    entries = Command(argv=("a",), inputs=one_column(Lines.of(["x"])))
    env = environment(JobSpec("x", (GroupSpec(entries),)))
    assert {name for name in env if name.startswith("YARD_")} <= RESERVED_NAMES


def test_a_script_travels_once_for_all_tasks_and_becomes_its_interpreter(tmp_path: Path) -> None:
    text = '#!/bin/sh -e\nprintf \'%s,\' "$0" "$@" "${YARD_SCRIPT-gone}"\n'
    entries = Lines.of(["$(touch bad)", "b"])
    command = Command(argv=("<{}>", "x"), script=Script("it's {}.sh", text), inputs=one_column(entries))
    spec = JobSpec("x", (GroupSpec(command, completions=2),))
    shared = job_environment("j", 1, spec)
    assert shared["YARD_SCRIPT"] == text
    argv = task_command(spec, 0)
    assert text not in "".join(argv)
    env = {**shared, "PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    printed = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, check=True, text=True).stdout
    name, *rest = printed.split(",")
    assert Path(name).name == "it's {}.sh"
    assert Path(name).read_text() == text
    assert rest == ["<$(touch bad)>", "x", "gone", ""]
    assert not (tmp_path / "bad").exists()
