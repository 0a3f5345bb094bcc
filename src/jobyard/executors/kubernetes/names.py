"""Names of objects: what are ours called, and by which labels are they found again?"""

from __future__ import annotations

import re
from typing import NamedTuple

from jobyard.errors import UserError
from jobyard.executors.protocol import SubmittedJob
from jobyard.kubernetes.labels import JOB as JOB
from jobyard.kubernetes.labels import YARD as YARD
from jobyard.model.job import GroupSpec, JobSpec

PREFIX = "jobyard.dev/"  # of all labels and annotations that are ours
ATTEMPT = "jobyard.dev/attempt"
GROUP = "jobyard.dev/group"
TASK = "jobyard.dev/task"  # of a Job that is one task of an array: the task's number
OBJECT = "jobyard.dev/object"  # on pods: the object that they belong to
QUEUE = "kueue.x-k8s.io/queue-name"
QUEUE_LEAST = "kueue.x-k8s.io/job-min-parallelism"  # so many pods at once are enough to let a Job in
ADMISSION_GATE = "jobyard.dev/admission"  # holds a Pod back: it cannot be suspended
NAME = "jobyard.dev/name"
USER = "jobyard.dev/user"
WORKDIR = "jobyard.dev/workdir"
COMMAND = "jobyard.dev/command"
# Who made it of what. On pods too, where its image was built for the job.
SUBMITTED_BY = "jobyard.dev/submitted-by"  # user@machine
COMMIT = "jobyard.dev/commit"
BRANCH = "jobyard.dev/branch"
DIGEST = "jobyard.dev/image-digest"
# What changes from size to size and from attempt to attempt: environment cannot be patched, annotations can.
WORKERS = "jobyard.dev/workers"
GPUS = "jobyard.dev/gpus"
EPOCHS_DONE = "jobyard.dev/epochs-done"
RESUMED = "jobyard.dev/resumed"
RESTARTED = "jobyard.dev/restarted"

LABEL_MOST = 63  # of a DNS label, hence of a pod's host name
NAME_MOST = 52  # leaves eleven characters for indices and the like
POD_SUFFIX = "-xxxxx"  # as JobSet counts: five characters that make a pod's name unique
ANNOTATION_MOST = 1000  # characters; all annotations of an object together may have 256 KiB

_OUTSIDE = re.compile(r"[^a-z0-9]+")
_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


class Site(NamedTuple):
    """What a cluster adds to the objects of a job; empty is none of it."""

    namespace: str = ""
    yard: str = ""  # the id of the yard, so that two yards in one namespace do not take each other's
    storage: str = ""  # a PersistentVolumeClaim for checkpoints and results
    queue: str = ""  # a LocalQueue of Kueue


def kind_name(group: GroupSpec) -> str:
    """Of the container and of the replicated job; a job without groups has tasks."""
    return group.name or "task"


def job_object_name(job: SubmittedJob, attempt: int) -> str:
    """Of a Job: `<name>-<id>-a<attempt>`. Its pods are hosts `<it>-<index>`."""
    return _name(job, attempt, [f"-{group.completions - 1}" for group in job.spec.groups])


def jobset_object_name(job: SubmittedJob, attempt: int) -> str:
    """Of a JobSet. Its pods are called `<it>-<group>-<replica>-<index>-<five characters>`."""
    endings = []
    for group in job.spec.groups:
        _refuse_odd_name(group.name)
        endings.append(f"-{kind_name(group)}-{group.count - 1}-{group.completions - 1}{POD_SUFFIX}")
    return _name(job, attempt, endings)


def task_object_name(job: SubmittedJob, number: int, attempt: int) -> str:
    """Of a Job that is one task of an array: `<name>-<id>-t<number>-a<attempt>`."""
    return _name(job, attempt, ["-0"], f"-t{number}")


def gang_object_name(job: SubmittedJob, attempt: int, most: int = NAME_MOST) -> str:
    """Of an object whose operator makes up the names of its pods, and wants room for that."""
    return _name(job, attempt, [], most=most)


def host_name(jobset: str, group: GroupSpec, replica: int, completion: int) -> str:
    """Of a pod of a JobSet, whose headless service has the JobSet's own name."""
    return f"{jobset}-{kind_name(group)}-{replica}-{completion}.{jobset}"


def labels_of(job: SubmittedJob, attempt: int, group: GroupSpec | None = None, yard: str = "") -> dict[str, str]:
    """Of an object, or of the pods of a group."""
    labels = {
        "app.kubernetes.io/name": slug(job.spec.name, LABEL_MOST),
        "app.kubernetes.io/instance": job.id,
        "app.kubernetes.io/managed-by": "jobyard",
        **({YARD: yard} if yard else {}),
        JOB: job.id,
        ATTEMPT: str(attempt),
    }
    if group is not None and group.name:
        labels |= {"app.kubernetes.io/component": group.name, GROUP: group.name}
    return labels


def annotations_of(job: SubmittedJob) -> dict[str, str]:
    """For people who look with kubectl. The shell's variables are nowhere among them."""
    spec = job.spec
    commands = dict.fromkeys(str(group.command) for group in spec.groups)
    said = {NAME: spec.name, USER: spec.submitter.user, WORKDIR: spec.workdir, COMMAND: "; ".join(commands)}
    return {key: _cut(value) for key, value in (said | origin_of(spec)).items() if value}


def origin_of(spec: JobSpec) -> dict[str, str]:
    """Who submitted it and where, and which source its image was made from."""
    who, git = spec.submitter, spec.container.git
    said = {
        SUBMITTED_BY: f"{who.user}@{who.host}" if who.host else "",
        COMMIT: (git.commit + ("+changes" if git.is_dirty else "")) if git else "",
        BRANCH: git.branch if git else "",
        DIGEST: spec.container.image.partition("@")[2],
    }
    return {key: _cut(value) for key, value in said.items() if value}


def _name(job: SubmittedJob, attempt: int, endings: list[str], task: str = "", most: int = NAME_MOST) -> str:
    tail = f"-{job.id}{task}-a{attempt}"
    longest = max(endings, key=len, default="")
    room = min(most, LABEL_MOST - len(longest)) - len(tail)
    if room < 1:
        raise UserError(
            f"job {job.spec.name!r}: names of its pods would end in {tail + longest!r}, and Kubernetes allows"
            f" {LABEL_MOST} characters; give the group a shorter name"
        )
    return slug(job.spec.name, room) + tail


def slug(text: str, most: int) -> str:
    """Lower-case letters, digits and single hyphens, a letter first."""
    slug = _OUTSIDE.sub("-", text.lower()).strip("-")
    if not slug[:1].isalpha():
        slug = f"job-{slug}".strip("-")
    return slug[:most].strip("-")


def _refuse_odd_name(name: str) -> None:
    if name and not _LABEL.fullmatch(name):
        raise UserError(f"group {name!r}: Kubernetes wants a letter or digit at the end of a name; choose another")


def _cut(text: str) -> str:
    return text if len(text) <= ANNOTATION_MOST else text[: ANNOTATION_MOST - 1] + "…"
