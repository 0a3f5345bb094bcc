"""Examples for the matrix: a job of each kind of executor, and for each field how somebody asks for it.

A row of `field_support.py` without an example here is a failing test, and so is an example without a row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jobyard.model.container import Mount, PortMapping
from jobyard.model.executor_kinds import ExecutorKind, needs_jobset
from jobyard.model.inputs import Column, Inputs, Source
from jobyard.model.job import ArrayRange, Command, Dependency, GroupSpec, JobSpec, Script
from jobyard.model.kubernetes import SecretMount, Toleration, Volume
from jobyard.model.lines import Lines
from jobyard.model.policy import FailurePolicy
from jobyard.model.resources import Resources
from jobyard.model.source import GitState
from jobyard.model.training import Elastic, Training
from tests.builders import with_words

HERE, FAR, LAB, EARLIER = "here", "far", "lab", "0000000a"  # this machine, another one, a cluster; a job that is there
IMAGE = "demo:1"
TRUE = GroupSpec(Command(argv=("true",)))
POD = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"containers": [{"name": "a"}]}})
Change = Callable[[JobSpec], JobSpec]


def a_plain_job(on: str, *groups: GroupSpec, **words: Any) -> JobSpec:
    job = JobSpec("job", groups or (TRUE,), on=on, workdir="/tmp")
    return with_words(job, directory="/tmp", **words)


HEAD, WORKER = replace(TRUE, name="head"), replace(TRUE, name="worker", count=2)
JOBS: Mapping[ExecutorKind, JobSpec] = {
    ExecutorKind.LOCAL: a_plain_job(HERE),
    ExecutorKind.SSH: a_plain_job(FAR),
    ExecutorKind.CONTAINER: a_plain_job(HERE, image=IMAGE, on_machines=True),
    ExecutorKind.JOB: a_plain_job(LAB, image=IMAGE),
    ExecutorKind.JOBSET: a_plain_job(LAB, replace(TRUE, count=2), image=IMAGE),
    ExecutorKind.PYTORCHJOB: a_plain_job(LAB, replace(TRUE, count=2), image=IMAGE, kind="PyTorchJob", gang=True),
    ExecutorKind.RAYJOB: a_plain_job(LAB, HEAD, WORKER, image=IMAGE, kind="RayJob", gang=True),
    ExecutorKind.OBJECT: a_plain_job(LAB, image=IMAGE, kind="Pod", manifest=POD),
}


def in_job(**words: Any) -> Change:
    return lambda spec: with_words(spec, **words)


def in_groups(**values: Any) -> Change:
    return lambda spec: _in_each(spec, lambda group: replace(group, **values))


def in_resources(**values: Any) -> Change:
    return in_groups(resources=Resources(**values))


def in_training(**values: Any) -> Change:
    return in_job(training=Training(**values))


def with_command(**values: Any) -> Change:
    return in_groups(command=Command(**values))


def with_lines(spec: JobSpec) -> JobSpec:
    """A command of its own for each task."""
    return _in_each(spec, lambda group: replace(group, command=Command(lines=Lines.of(["true"] * group.size))))


def with_values(shell: str, value: str) -> Change:
    """A value for each task."""

    def of(group: GroupSpec) -> Command:
        return Command(shell=shell, inputs=Inputs((Source((Column(Lines.of([value] * group.size)),)),)))

    return lambda spec: _in_each(spec, lambda group: replace(group, command=of(group)))


def with_a_named_group(spec: JobSpec) -> JobSpec:
    """One more; of a Job the only one, for with two it is a JobSet."""
    kept = spec.groups if needs_jobset(spec) else ()
    return replace(spec, groups=(*kept, replace(TRUE, name="more")))


def in_an_array(spec: JobSpec) -> JobSpec:
    """Each group has one id. A JobSet keeps two tasks, in a second group."""
    arrays = _in_each(spec, lambda group: replace(group, count=1, array=ArrayRange(((0, 0, 1),))))
    if not needs_jobset(spec) or spec.kubernetes.kind:
        return arrays
    return replace(arrays, groups=(*arrays.groups, replace(arrays.groups[0], name="more")))


def few_at_once(spec: JobSpec) -> JobSpec:
    """Two tasks, one after the other: completions of a group where the kind has such."""
    if spec.kubernetes.kind == "RayJob":
        return in_groups(parallelism=1)(spec)
    one_worker = {"count": 1} if spec.kubernetes.kind == "PyTorchJob" else {}
    return in_groups(completions=2, parallelism=1, **one_worker)(spec)


def within(elastic: Elastic) -> Change:
    """A training whose size may change; several workers of it start together."""

    def change(spec: JobSpec) -> JobSpec:
        spec = in_resources(gpus=1)(spec)
        return with_words(spec, training=Training(), elastic=elastic, gang=spec.gang or spec.size > 1)

    return change


def _in_each(spec: JobSpec, change: Callable[[GroupSpec], GroupSpec]) -> JobSpec:
    return replace(spec, groups=tuple(map(change, spec.groups)))


EXAMPLES: Mapping[str, Change] = {
    "name": in_job(name="other"),
    "gang": in_job(gang=True),
    "after": in_job(after=(Dependency(EARLIER),)),
    "on": in_job(),  # all of them say where
    "env": in_job(env={"A": "1", "MASTER_PORT": "29500"}),
    "workdir": in_job(workdir="/usr", no_copy=True),
    "groups.command": with_values("echo {%} {}", "a"),
    "groups.command.argv": with_command(argv=("true",)),
    "groups.command.shell": with_command(shell="true"),
    "groups.command.lines": with_lines,
    "groups.command.inputs": with_values("true {}", "a\nb"),
    "groups.command.script": with_command(script=Script("a.sh", "#!/bin/sh\ntrue\n")),
    "groups.name": with_a_named_group,
    "groups.count": in_job(),
    "groups.completions": in_groups(completions=2),
    "groups.parallelism": few_at_once,
    "groups.env": in_groups(env={"A": "1", "MASTER_PORT": "29500"}),
    "groups.array": in_an_array,
    "groups.least_device_mib": in_groups(resources=Resources(gpus=1), least_device_mib=1024),
    "groups.cpu_limit_millis": in_groups(cpu_limit_millis=2000),
    "groups.shm_mib": in_groups(shm_mib=64),
    "groups.node_selector": in_groups(node_selector={"disk": "fast"}),
    "groups.tolerations": in_groups(tolerations=(Toleration("spot"),)),
    "groups.count_most": in_groups(count_most=4),
    "groups.resources.cpu_millis": in_resources(cpu_millis=500),
    "groups.resources.memory_mib": in_resources(memory_mib=64),
    "groups.resources.gpus": in_resources(gpus=1),
    "groups.resources.gpu_memory_mib": in_resources(gpus=1, gpu_memory_mib=1024),
    "groups.resources.gpu_percent": in_resources(gpus=1, gpu_percent=50),
    "groups.resources.whole_node": in_resources(whole_node=True),
    "groups.resources.least_device_mib": in_resources(gpus=1, least_device_mib=1024),
    "groups.resources.gpu_kind": in_resources(gpus=1, gpu_kind="fakegpu"),
    "groups.resources.memory_limit": in_resources(memory_mib=64, memory_limit=False),
    "policy.priority": in_job(priority=5),
    "policy.limit": in_job(limit=1),
    "policy.timeout_seconds": in_job(timeout_seconds=60.0),
    "policy.deadline_seconds": in_job(deadline_seconds=60.0),
    "policy.retries": in_job(retries=2),
    "policy.retry_delay_seconds": in_job(retries=2, retry_delay_seconds=5.0),
    "policy.max_fails": in_job(max_fails=1),
    "policy.on_failure": in_job(on_failure=FailurePolicy.CONTINUE),
    "policy.grace_seconds": in_job(grace_seconds=3.0),
    "policy.keep": in_job(keep=True),
    "policy.overcommit": in_job(overcommit=True),
    "policy.enough_successes": in_job(enough_successes=1),
    "policy.start_delay_seconds": in_job(start_delay_seconds=1.0),
    "policy.lets_running_end": in_job(lets_running_end=True),
    "staging.copy_forward": in_job(copy_forward=("a",)),
    "staging.copy_back": in_job(copy_back=("a",)),
    "staging.no_copy": in_job(no_copy=True),
    "staging.subdir": in_job(subdir="a"),
    "staging.stdin": in_job(stdin="YQ=="),
    "staging.results_dir": in_job(results_dir="/tmp/results"),
    "staging.output": in_job(output="/tmp/%t.out"),
    "staging.error": in_job(output="/tmp/%t.out", error="/tmp/%t.err"),
    "container.image": in_job(image=IMAGE),
    "container.on_machines": in_job(image=IMAGE, on_machines=True),
    "container.git": in_job(git=GitState("3f2a9c1d20ab")),
    "container.mounts": in_job(mounts=(Mount("/data", "/data"),)),
    "container.ports": in_job(ports=(PortMapping(8080, 80),)),
    "kubernetes.manifest": in_job(manifest=POD, kind="Pod"),
    "kubernetes.kind": lambda spec: spec if spec.kubernetes.kind else with_words(spec, kind="PyTorchJob"),
    "kubernetes.volumes": in_job(volumes=(Volume("data", "/data"),)),
    "kubernetes.secrets": in_job(secrets=(SecretMount("yard-0123456789abcdef", "file-0", "/run/key"),)),
    "training.epochs": in_training(epochs=3),
    "training.batch_size": in_training(batch_size=32),
    "training.training_set_size": in_training(training_set_size=1000),
    "training.estimated_seconds": in_training(estimated_seconds=60.0),
    "training.heartbeat_steps": in_training(heartbeat_steps=7),
    "training.preemptible": in_training(preemptible=True),
    "training.yield_seconds": in_training(yield_seconds=60.0),
    "training.log_dir": in_training(log_dir="runs"),
    "training.idle_gpu_stop": in_training(idle_gpu_stop=True),
    "training.idle_gpu_seconds": in_training(idle_gpu_seconds=60.0),
    "elastic.gpus": within(Elastic(gpus=(1, 2))),
    "elastic.workers": within(Elastic(workers=(1, 2))),
}
