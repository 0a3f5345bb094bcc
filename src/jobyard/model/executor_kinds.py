"""Executor kinds: in which ways can a job run? On machines in three, on a cluster as an object of one of five."""

from __future__ import annotations

from enum import StrEnum

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


def needs_jobset(spec: JobSpec) -> bool:
    """One group with one replica is a Job; everything else is a JobSet."""
    return len(spec.groups) > 1 or spec.groups[0].count > 1


def kind_on_cluster(spec: JobSpec) -> ExecutorKind:
    if spec.kubernetes.manifest:
        return ExecutorKind.OBJECT
    named = next((kind for kind in PODS if kind == spec.kubernetes.kind), None)
    return named or (ExecutorKind.JOBSET if needs_jobset(spec) else ExecutorKind.JOB)
