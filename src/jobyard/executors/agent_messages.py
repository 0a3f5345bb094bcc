"""Messages to an agent: how are a job, its launches and what is asked about attempts said to it?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jobyard.executors.environment import job_environment, task_command, task_environment
from jobyard.executors.protocol import SubmittedJob, YardView
from jobyard.model.job import JobSpec
from jobyard.model.node import Node
from jobyard.model.resources import Resources
from jobyard.model.task import AttemptId, Slot

Addresses = Callable[[str], Sequence[str]]  # of a gang's ranks, by job; what many launches share is looked up once


class LaunchMessages:
    """What the agent of one machine is told of jobs and their attempts."""

    def __init__(self, yard: YardView, *, inherits_shell: bool, shares_disk: bool) -> None:
        """`inherits_shell`: tasks get the variables of the shell that their job was submitted from."""
        self._yard = yard
        self._inherits_shell = inherits_shell
        self._shares_disk = shares_disk

    def job(self, job: SubmittedJob) -> dict[str, Any]:
        """What all attempts of a job share. Raises Rejected where it cannot be said."""
        if self._inherits_shell and not job.spec.container.on_machines:
            spec = job.spec.with_shell(self._yard.inherited_env(job.spec))
            env = job_environment(job.id, job.number, spec)
            message = {"op": "job", "job": job.id, "env": env, "workdir": job.spec.workdir, "gang": job.spec.gang}
            return {**message, **_streams(spec)}
        # The submitting shell's PATH and HOME mean nothing on another machine, or in an image.
        spec = job.spec.with_shell({})
        staging = spec.staging
        tree = {"snapshot": staging.snapshot, "subdir": staging.subdir, "copy_back": list(staging.collected)}
        env = job_environment(job.id, job.number, spec)
        message = {"op": "job", "job": job.id, "env": env, "workdir": "", "gang": spec.gang, **_streams(spec)}
        if spec.container.on_machines:
            message["container"] = _container(spec)
        if self._shares_disk:
            return {**message, "workdir": spec.workdir}
        return {**message, **tree} if staging.snapshot else message

    def launch(
        self,
        job: SubmittedJob,
        slot: Slot,
        attempts: Iterable[AttemptId],
        described: Node | None,
        addresses: Addresses,
    ) -> dict[str, Any]:
        """`described` is the machine, once it is known."""
        ranks = addresses(job.id) if job.spec.gang else ()
        items = [self._item(job, slot, attempt, described, ranks) for attempt in attempts]
        return {"op": "launch", "job": job.id, "slot": slot.id, "reserve": _reserved(slot), "items": items}

    def _item(
        self, job: SubmittedJob, slot: Slot, attempt: AttemptId, described: Node | None, ranks: Sequence[str]
    ) -> dict[str, Any]:
        spec = job.spec
        env = task_environment(
            job.id,
            spec,
            attempt.task,
            attempt.number,
            slot.placement,
            described,
            addresses=ranks,
            resumes_at=self._yard.resumes_at(attempt, slot.placement.node),
        )
        argv = task_command(spec, attempt.task)
        item = {"id": str(attempt), "argv": argv, "env": env, "grace": spec.policy.grace_seconds}
        if spec.policy.timeout_seconds is not None:
            item["timeout"] = spec.policy.timeout_seconds
        return item


def stop(attempts: Sequence[AttemptId], grace: float) -> dict[str, Any]:
    return {"op": "stop", "ids": _ids(attempts), "grace": grace}


def yield_(attempts: Sequence[AttemptId], deadline: float, grace: float, *, at_once: bool) -> dict[str, Any]:
    return {"op": "yield", "ids": _ids(attempts), "deadline": deadline, "grace": grace, "at_once": at_once}


def withdraw(attempts: Sequence[AttemptId]) -> dict[str, Any]:
    return {"op": "withdraw", "ids": _ids(attempts)}


def reserve(slot: Slot) -> dict[str, Any]:
    return {"op": "reserve", "slot": slot.id, "reserve": _reserved(slot)}


def close(slot_id: str) -> dict[str, Any]:
    return {"op": "close", "slots": [slot_id]}


def forget(jobs: Sequence[str], snapshots: Sequence[str]) -> dict[str, Any]:
    return {"op": "forget", "jobs": list(jobs), "snapshots": list(snapshots)}


def _ids(attempts: Sequence[AttemptId]) -> list[str]:
    return [str(attempt) for attempt in attempts]


def _reserved(slot: Slot) -> dict[str, Any]:
    ask = slot.placement.resources
    return {
        "cpu_millis": ask.cpu_millis,
        "memory_mib": ask.memory_mib,
        **_memory_limit(ask),
        "devices": {str(piece.index): piece.memory_mib for piece in slot.placement.devices},
        "device_percent": {str(piece.index): ask.gpu_percent for piece in slot.placement.devices if ask.gpu_percent},
        "whole_devices": [] if ask.shares_gpus else [piece.index for piece in slot.placement.devices],
    }


def _memory_limit(ask: Resources) -> dict[str, int]:
    """Only a limit that the user set: by default a container is limited to its reservation, a process is not."""
    return {} if ask.memory_limit is None else {"memory_limit_mib": ask.memory_mib if ask.memory_limit else 0}


def _streams(spec: JobSpec) -> dict[str, Any]:
    """What its tasks read, and whether what they write is one stream; only where it is not as always."""
    read = {} if spec.staging.stdin is None else {"stdin": spec.staging.stdin}
    return {**read, "joined": True} if spec.staging.joins_streams else read


def _container(spec: JobSpec) -> dict[str, Any]:
    return {
        "image": spec.container.image,
        "shm_mib": max(group.shm_mib for group in spec.groups),
        "mounts": [[mount.source, mount.target, mount.read_only] for mount in spec.container.mounts],
        "ports": [[port.outside, port.inside] for port in spec.container.ports],
        **({} if spec.staging.stdin is None else {"reads_stdin": True}),
    }
