"""Executor kinds: in which ways can a job run? On machines in three, on a cluster as an object of one of five."""

from __future__ import annotations

from enum import StrEnum

from jobyard.errors import UserError
from jobyard.model.job import JobSpec


class ExecutorKind(StrEnum):
    """What a job may ask for depends on these. The value is what pages and sentences call it."""

    LOCAL = "local"  # plain processes of this machine
    SSH = "SSH"  # plain processes of other machines
    CONTAINER = "container"  # on machines, with --container
    JOB = "Job"
    JOBSET = "JobSet"
    PYTORCHJOB = "PyTorchJob"
    RAYJOB = "RayJob"
    OBJECT = "own object"  # a Kubernetes object that the user wrote, of whatever kind


PLAIN = (ExecutorKind.LOCAL, ExecutorKind.SSH)
MACHINES = (*PLAIN, ExecutorKind.CONTAINER)
PODS = (ExecutorKind.JOB, ExecutorKind.JOBSET, ExecutorKind.PYTORCHJOB, ExecutorKind.RAYJOB)  # that the yard writes
CLUSTER = (*PODS, ExecutorKind.OBJECT)
OPERATORS = (ExecutorKind.PYTORCHJOB, ExecutorKind.RAYJOB)  # whose operator decides how all tasks end


def needs_jobset(spec: JobSpec) -> bool:
    """One group with one replica is a Job; everything else is a JobSet."""
    return len(spec.groups) > 1 or spec.groups[0].count > 1


def object_kind(spec: JobSpec) -> str:
    """As Kubernetes calls it. Raises UserError where REST was told of a kind that nobody knows, or nobody writes."""
    fits = "JobSet" if needs_jobset(spec) else "Job"
    kind = spec.kubernetes.kind or fits
    if spec.kubernetes.manifest:
        known: tuple[str, ...] = (*PODS, "Pod")
        if kind not in known:
            raise UserError(f"unknown kind {kind!r:.80}; the yard knows {', '.join(known)}", field="--kind")
    elif kind not in PODS:
        raise UserError(
            f"the yard writes no {kind!r:.80}; choose {' or '.join(OPERATORS)}, leave it out for a Job or JobSet,"
            " or give a manifest of your own",
            field="--kind",
        )
    elif kind == ExecutorKind.JOB and fits != kind:
        raise UserError("a Job has one group with count 1; leave --kind out, and it is a JobSet", field="--kind")
    return kind


def kind_on_cluster(spec: JobSpec) -> ExecutorKind:
    """Raises UserError as `object_kind` does."""
    kind = object_kind(spec)
    return ExecutorKind.OBJECT if spec.kubernetes.manifest else ExecutorKind(kind)
