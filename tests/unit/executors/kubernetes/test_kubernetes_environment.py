"""A task finds in a pod what it finds on a machine."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_job, one_column
from tests.unit.executors.kubernetes.played_pods import NODE, PlayedPod, expanded, files_of, pods_of

from jobyard.executors.environment import job_environment, task_command, task_environment
from jobyard.executors.kubernetes.manifest import objects_of, task_objects_of
from jobyard.executors.kubernetes.variables import unexpanded
from jobyard.executors.protocol import SubmittedJob
from jobyard.manifests.arrays import parse_array
from jobyard.model.inputs import Column, Inputs, Source
from jobyard.model.job import Command, GroupSpec, JobSpec, Script
from jobyard.model.lines import Lines
from jobyard.model.resources import DeviceSlice, Placement, Resources
from jobyard.model.training import Elastic, Size, Training

ENV = Command(argv=("env", "-0"))
# What only a machine knows, or only a pod has.
ELSEWHERE = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "AICHOR_INPUT_PATH", "PL_TORCH_DISTRIBUTED_BACKEND"}
EXTRA = {"JOB_COMPLETION_INDEX", "JOB_INDEX", "YARD_ERROR_FILE", "YARD_REPLACED", "YARD_RETRY", "YARD_SPOOL"}
EXTRA |= {"YARD_STOP_FILE", "YARD_OUTPUT_DIR", "YARD_CHECKPOINT_DIR", "PYTHONPATH", "AICHOR_OUTPUT_PATH"}
OF_THE_SHELL = {"PATH", "PWD", "SHLVL", "_", "OLDPWD"}


def a_source(*columns: list[str], name: str = "") -> Source:
    return Source(tuple(Column(Lines.of(values), name) for values in columns))


PAIRS = Inputs((a_source(["it's", "b c/d.e", "$(d)"], ["1", "-2", ""]), a_source(["q.r"], name="x")))


def number_of(spec: JobSpec, pod: PlayedPod) -> int:
    index = next(i for i, group in enumerate(spec.groups) if (group.name or "task") == pod.group)
    return spec.offsets[index] + pod.replica * spec.groups[index].completions + pod.completion


def on_a_machine(job: SubmittedJob, number: int, attempt: int, hosts: list[str]) -> dict[str, str]:
    group = job.spec.groups[job.spec.place_of(number).group]
    devices = tuple(DeviceSlice(i, group.resources.gpu_memory_mib) for i in range(group.resources.gpus))
    placement = Placement(NODE, group.resources, devices)
    addresses = hosts if job.spec.gang and job.spec.size > 1 else []
    own = task_environment(job.id, job.spec, number, attempt, placement, addresses=addresses)
    return {**job_environment(job.id, job.number, job.spec), **own}


def assert_the_same(job: SubmittedJob, failures: int = 0, only: int | None = None) -> None:
    objects = objects_of(job, 1)
    pods = sorted(pods_of(objects, failures), key=lambda pod: number_of(job.spec, pod))
    assert [number_of(job.spec, pod) for pod in pods] == list(range(job.spec.size))
    hosts = [pod.host if "." in pod.host else f"{pod.host}.{objects[0]['metadata']['name']}" for pod in pods]
    with tempfile.TemporaryDirectory() as directory:
        for pod in pods if only is None else [pods[only % len(pods)]]:
            seen = pod.run(files_of(objects), Path(directory))
            wanted = on_a_machine(job, number_of(job.spec, pod), 1 + failures, hosts)
            for name in ELSEWHERE:
                wanted.pop(name, None)
            assert {name: seen.get(name) for name in wanted} == wanted
            assert set(seen) - set(wanted) <= EXTRA | ELSEWHERE | OF_THE_SHELL


def played_alone(job: SubmittedJob, number: int, attempt: int) -> dict[str, str]:
    objects = task_objects_of(job, number, attempt)
    (pod,) = pods_of(objects)
    with tempfile.TemporaryDirectory() as directory:
        return pod.run({}, Path(directory))


def submitted(*groups: GroupSpec, **spec: Any) -> SubmittedJob:
    return SubmittedJob("5e7a11ce", 7, a_job(groups=groups, **{"name": "demo", "image": "demo", **spec}))


def an_array(text: str, **spec: object) -> SubmittedJob:
    ids, _ = parse_array(text)
    return submitted(GroupSpec(ENV, completions=len(ids), array=ids), **spec)


@pytest.mark.parametrize("text", ["0-3", "1-9:2", "5", "0-2,7,11-12"])
def test_an_array_has_its_own_ids_whatever_the_index_is(text: str) -> None:
    assert_the_same(an_array(text))


def test_an_attempt_that_kubernetes_made_itself_has_a_higher_number() -> None:
    assert_the_same(an_array("3-5", retries=4), failures=2)
    assert_the_same(submitted(GroupSpec(ENV, "a", 2, 2), retries=4), failures=3)


def test_each_line_reaches_its_task_unharmed() -> None:
    lines = Lines.of(["plain", "two words", 'it\'s "quoted"', "$(HOME) $$ `id` \\n {}", "  spaces  ", ""])
    assert_the_same(submitted(GroupSpec(Command(argv=("env", "-0"), inputs=one_column(lines)), completions=6)))


@pytest.mark.parametrize(
    "job",
    [
        an_array("3-9:3", retries=2),
        submitted(GroupSpec(ENV, "a", 1, 3), training=Training(epochs=2), env={"A": "$(B)"}),
    ],
)
def test_a_task_that_is_tried_again_alone_finds_the_same(job: SubmittedJob) -> None:
    for number in range(job.spec.size):
        wanted = on_a_machine(job, number, 4, [])
        for name in ELSEWHERE:
            wanted.pop(name, None)
        seen = played_alone(job, number, 4)
        assert {name: seen.get(name) for name in wanted} == wanted
        assert seen["JOB_COMPLETION_INDEX"] == str(number)
        assert set(seen) - set(wanted) <= EXTRA | ELSEWHERE | OF_THE_SHELL


def test_a_line_that_is_tried_again_alone_is_the_command_itself() -> None:
    lines = Lines.of(["exit 1", "env -0; echo -n $(A)"])
    job = submitted(GroupSpec(Command(lines=lines), completions=2))
    assert task_objects_of(job, 1, 2)[0]["spec"]["template"]["spec"]["containers"][0]["command"] == [
        "bash",
        "-c",
        "env -0; echo -n $$(A)",
    ]


@pytest.mark.parametrize(
    "group", [GroupSpec(ENV, count=3), GroupSpec(ENV, completions=3), GroupSpec(ENV, "w", 2), GroupSpec(ENV, "w", 1, 3)]
)
def test_the_gang_of_a_pytorchjob_finds_what_any_gang_finds(group: GroupSpec) -> None:
    """Except where the master is: its operator says so."""
    job = submitted(group, gang=True, training=Training(epochs=2), kind="PyTorchJob")
    objects = objects_of(job, 1)
    pods = list(pods_of(objects))
    hosts = [pod.host for pod in pods]
    assert hosts[:2] == ["demo-5e7a11ce-a1-master-0", "demo-5e7a11ce-a1-worker-0"]
    for rank, pod in enumerate(pods):
        with tempfile.TemporaryDirectory() as directory:
            seen = pod.run({}, Path(directory))
        wanted = on_a_machine(job, rank, 1, hosts)
        for name in (*ELSEWHERE, "MASTER_PORT", "PET_MASTER_PORT"):
            wanted.pop(name, None)
        assert {name: seen.get(name) for name in wanted} == wanted
        assert seen["MASTER_PORT"] == seen["PET_MASTER_PORT"] == "23456"
        assert set(seen) - set(wanted) <= EXTRA | ELSEWHERE | OF_THE_SHELL | {
            "MASTER_PORT",
            "PET_MASTER_PORT",
            "PYTHONUNBUFFERED",
        }


def test_ranks_count_over_groups_replicas_and_completions() -> None:
    job = submitted(GroupSpec(ENV, "b", 2, 3), GroupSpec(ENV, "a", 1, 2), gang=True, training=Training(epochs=2))
    assert_the_same(job)
    ranks = [pod.command[2] for pod in pods_of(objects_of(job, 1)) if pod.group == "b"]
    assert "export RANK=$((2 + JOB_INDEX * 3 + JOB_COMPLETION_INDEX))" in ranks[0]


def test_a_gang_in_one_job_has_a_service_for_its_names() -> None:
    job = submitted(GroupSpec(ENV, completions=3), gang=True)
    assert_the_same(job)
    first, service = objects_of(job, 1)
    assert (service["kind"], service["spec"]["clusterIP"]) == ("Service", "None")
    assert service["metadata"]["name"] == first["spec"]["template"]["spec"]["subdomain"] == "demo-5e7a11ce-a1"
    labels = first["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_the_master_of_a_jobset_is_its_first_pod() -> None:
    job = submitted(GroupSpec(ENV, count=2), gang=True, env={"MASTER_PORT": "4242"})
    (pod, _) = pods_of(objects_of(job, 3))
    assert pod.env["MASTER_ADDR"] == pod.host == "demo-5e7a11ce-a3-task-0-0.demo-5e7a11ce-a3"
    assert (pod.env["MASTER_PORT"], pod.env["YARD_ATTEMPT"]) == ("4242", "3")


def test_what_another_size_changes_is_in_annotations_alone() -> None:
    job = submitted(
        GroupSpec(ENV, resources=Resources(gpus=1)),
        gang=True,
        training=Training(epochs=9),
        elastic=Elastic(gpus=(1, 8), workers=(1, 4)),
    )
    small, large = (objects_of(job, 2, size=Size(2, gpus), resumes_at=5)[0] for gpus in (1, 4))
    for each in (small, large):
        (group,) = each["spec"]["replicatedJobs"]
        template = group["template"]["spec"]["template"]
        annotations = template["metadata"].pop("annotations")
        limits = template["spec"]["containers"][0]["resources"].pop("limits")
        assert annotations["jobyard.dev/gpus"] == limits["nvidia.com/gpu"]
        assert annotations["jobyard.dev/workers"] == str(group["replicas"]) == "2"
        assert annotations["jobyard.dev/epochs-done"] == "5"
    assert small == large
    env = next(pods_of(objects_of(job, 2, size=Size(2, 4), resumes_at=5))).env
    said = {name: env[name] for name in ("WORLD_SIZE", "NUM_GPUS", "EPOCHS_DONE", "JOB_RESTARTED", "YARD_RESUMED")}
    assert list(said.values()) == ["2", "4", "5", "TRUE", "1"]
    assert env["PL_TORCH_DISTRIBUTED_BACKEND"] == "nccl"
    assert "CUDA_VISIBLE_DEVICES" not in env


def test_tensorflow_finds_all_workers_and_itself() -> None:
    job = submitted(GroupSpec(ENV, count=3), gang=True, training=Training())
    pods = list(pods_of(objects_of(job, 1)))
    configs = [json.loads(pod.env["TF_CONFIG"]) for pod in pods]
    assert [config["task"]["index"] for config in configs] == [0, 1, 2]
    assert [address.partition(":")[0] for address in configs[2]["cluster"]["worker"]] == [pod.host for pod in pods]


def test_the_submitting_shell_stays_at_home() -> None:
    job = submitted(GroupSpec(ENV), inherited_env={"SECRET": "geheim"})
    assert "geheim" not in json.dumps(objects_of(job, 1))


@pytest.mark.parametrize("text", ["$", "$$", "$(A)", "$$(A)", "a$b$(A)$$$(A) $", "$$$$((1+1))", "$(", "price: $5"])
def test_kubernetes_finds_nothing_to_expand_in_what_users_wrote(text: str) -> None:
    assert expanded(unexpanded(text), {"A": "wrong"}) == text


@pytest.mark.parametrize(
    "command",
    [
        Command(lines=Lines.of(["echo 'a b' | cat", "exit 3 # $(x)", "true"])),
        Command(shell="echo {} > $YARD_LINE", inputs=one_column(Lines.of(["it's", "b c", "$(d)"]))),
        Command(argv=("printf", "%s", "<{}>"), inputs=one_column(Lines.of(["it's", "b c", "$(d)"]))),
        Command(argv=("printf", "{/.}", "{}", "a{2}b", "{#}", "x{}"), inputs=PAIRS),
        Command(shell="echo {x/.} '{1}' {} {#} \"{2} {}\"", inputs=PAIRS),
    ],
)
def test_each_task_runs_what_it_runs_on_a_machine(command: Command, tmp_path: Path) -> None:
    """The shell is asked to print the words that it would become."""
    job = submitted(GroupSpec(command, completions=3))
    objects = objects_of(job, 1)
    bins = tmp_path / "bin"
    bins.mkdir()
    for name in ("bash", "printf"):
        (bins / name).write_text('#!/bin/sh\nexec env -0 NAME="${0##*/}" ARGS="$(for a; do echo "$a"; done)"\n')
        (bins / name).chmod(0o755)
    for number, pod in enumerate(pods_of(objects)):
        played = pod._replace(env={**pod.env, "PATH": f"{bins}:/usr/bin:/bin"})
        seen = played.run(files_of(objects), tmp_path)
        assert [seen["NAME"], *seen["ARGS"].split("\n")] == list(task_command(job.spec, number))


def test_a_script_and_its_line_reach_a_pod_unharmed(tmp_path: Path) -> None:
    text = '#!/bin/sh\nA=\'$(HOME) $$\'\nexec env -0 A="$A" ARGS="$*" FILE="${0##*/}"\n'
    entries = Lines.of(["it's $(touch bad)", "{} `x`"])
    command = Command(argv=("<{}>", "$(id)"), script=Script("x {}.sh", text), inputs=one_column(entries))
    objects = objects_of(submitted(GroupSpec(command, completions=2)), 1)
    for number, pod in enumerate(pods_of(objects)):
        played = pod._replace(env={**pod.env, "PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)})
        seen = played.run(files_of(objects), tmp_path)
        assert seen["A"] == "$(HOME) $$"
        assert seen["ARGS"] == f"<{entries[number]}> $(id)"
        assert seen["FILE"] == "x {}.sh"
        assert "YARD_SCRIPT" not in seen


def test_a_product_reaches_its_tasks_as_one_table_for_each_column() -> None:
    inputs = Inputs((a_source(["a b/c.x", "it's $(id)", "-"], name="x"), a_source(["1", "", "3"], ["y", "{1}"])))
    assert_the_same(submitted(GroupSpec(Command(argv=("env", "-0"), inputs=inputs), completions=9)))
    some = replace(inputs, chosen=((1, 2), (7, 7)))
    assert_the_same(submitted(GroupSpec(Command(argv=("env", "-0"), inputs=some), completions=3)))
    whole = Inputs((Source((Column(Lines.of(["1", "2"]), "k"),), Lines.of(['{"k": 1}', '{"k":2}'])),))
    assert_the_same(submitted(GroupSpec(Command(argv=("env", "-0"), inputs=whole), completions=2)))


names = st.lists(st.from_regex(re.compile(r"[a-z][a-z0-9]{0,5}", re.ASCII), fullmatch=True), min_size=1, max_size=3)
groups = names.flatmap(
    lambda found: st.tuples(
        *(
            st.builds(
                GroupSpec,
                st.just(ENV),
                name=st.just(name),
                count=st.integers(1, 3),
                completions=st.integers(1, 3),
                resources=st.builds(Resources, gpus=st.integers(0, 2)),
                env=st.just({"GROUP_OWN": "$(JOB_INDEX) $$"}),
            )
            for name in dict.fromkeys(found)
        )
    )
)


@settings(max_examples=40, deadline=None)
@given(groups, st.booleans(), st.booleans(), st.integers(0, 2), st.integers(0, 100))
def test_every_variable_is_as_on_machines_for_jobs_of_any_shape(
    some: tuple[GroupSpec, ...], gang: bool, trains: bool, retries: int, task: int
) -> None:
    job = submitted(*some, gang=gang, training=Training(epochs=3) if trains else None, retries=retries)
    assert_the_same(job, only=task)
    unnamed = replace(some[0], name="")
    assert_the_same(submitted(unnamed, gang=gang, retries=retries, source="aichor", user="ada"), only=task)


@pytest.mark.parametrize(("source", "found"), [("command", "/data"), ("aichor", None)])
def test_a_variable_of_the_users_own_is_in_pods_too_unless_it_is_a_place_on_machines(source: str, found: str) -> None:
    job = submitted(GroupSpec(ENV), env={"AICHOR_INPUT_PATH": "/data"}, source=source)
    (pod,) = pods_of(objects_of(job, 1), 0)
    assert pod.env.get("AICHOR_INPUT_PATH") == found
