"""States of objects and pods: what does Kubernetes say, in our words? A table for each kind; the first row that fits.

Pure: an object as the API server gives it, in; a Meaning out. What no row knows is told as it is, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from jobyard.kubernetes.states import true_conditions
from jobyard.model.job import Reason, State

Object = Mapping[str, Any]


class Meaning(NamedTuple):
    state: State
    reason: Reason | None
    sentence: str


class Row(NamedTuple):
    """`reason` is Kubernetes' own; one that ends in `*` is a beginning, and `*` is any."""

    where: str
    reason: str
    state: State
    our_reason: Reason | None
    sentence: str

    def fits(self, where: str, reason: str) -> bool:
        wanted = self.reason
        same = reason.startswith(wanted[:-1]) if wanted.endswith("*") else reason == wanted
        return where == self.where and same


_TIMEOUT = "it ran longer than its deadline"
_RETRIES = "a task failed more often than its retries allow"
_MAX_FAILS = "more tasks failed than the job allows"

# `where` is the type of a condition that is true.
JOBS = (
    Row("Complete", "*", State.SUCCEEDED, None, "all its tasks succeeded"),
    Row("Failed", "DeadlineExceeded", State.FAILED, Reason.TIMEOUT, _TIMEOUT),
    Row("Failed", "BackoffLimitExceeded", State.FAILED, Reason.EXIT_CODE, _RETRIES),
    Row("Failed", "FailedIndexes", State.FAILED, Reason.EXIT_CODE, "all its tasks ended, and some failed"),
    Row("Failed", "MaxFailedIndexesExceeded", State.FAILED, Reason.EXIT_CODE, _MAX_FAILS),
    Row("Failed", "PodFailurePolicy", State.FAILED, Reason.EXIT_CODE, "a task ended in a way that ends the job"),
    Row("Failed", "*", State.FAILED, Reason.UNKNOWN, "Kubernetes gave it up"),
    Row("FailureTarget", "DeadlineExceeded", State.STOPPING, Reason.TIMEOUT, f"{_TIMEOUT}; its pods are ending"),
    Row("FailureTarget", "MaxFailedIndexesExceeded", State.STOPPING, Reason.SIBLING_FAILED, _MAX_FAILS),
    Row("FailureTarget", "*", State.STOPPING, Reason.SIBLING_FAILED, "a task failed; the others are ending"),
    Row("SuccessCriteriaMet", "*", State.RUNNING, None, "all its tasks succeeded; the last pods are ending"),
    Row("Suspended", "*", State.PENDING, Reason.HELD, "it is suspended until it is admitted"),
)
JOBSETS = (
    Row("Completed", "*", State.SUCCEEDED, None, "all its tasks succeeded"),
    Row("Failed", "FailedJobs", State.FAILED, Reason.EXIT_CODE, "a task failed, and the others were stopped"),
    Row("Failed", "ReachedMaxRestarts", State.FAILED, Reason.EXIT_CODE, "a task failed, and the others were stopped"),
    Row("Failed", "FailJobSet*", State.FAILED, Reason.EXIT_CODE, "a task failed in a way that ends the job"),
    Row("Failed", "*", State.FAILED, Reason.UNKNOWN, "Kubernetes gave it up"),
    Row("Suspended", "*", State.PENDING, Reason.HELD, "it is suspended until it is admitted"),
    Row("StartupPolicyInProgress", "*", State.STARTING, None, "its groups start one after another"),
)
PYTORCHJOBS = (
    Row("Succeeded", "*", State.SUCCEEDED, None, "all its tasks succeeded"),
    Row("Failed", "*", State.FAILED, Reason.EXIT_CODE, "a task failed, and the operator gave the job up"),
    Row("Suspended", "*", State.PENDING, Reason.HELD, "it is suspended until it is admitted"),
    Row("Restarting", "*", State.STARTING, None, "a task failed and is started again"),
    Row("Running", "*", State.RUNNING, None, "it runs"),
    Row("Created", "*", State.STARTING, None, "its pods are being made"),
)
# `where`: `failed` is the reason of a RayJob that ended badly, `deployment` and `job` its two states.
RAYJOBS = (
    Row("failed", "DeadlineExceeded", State.FAILED, Reason.TIMEOUT, _TIMEOUT),
    Row("failed", "PreRunningDeadlineExceeded", State.FAILED, Reason.TIMEOUT, "its cluster did not come up in time"),
    Row("failed", "SubmissionFailed", State.FAILED, Reason.EXIT_CODE, "its command could not be handed to Ray"),
    Row("failed", "AppFailed", State.FAILED, Reason.EXIT_CODE, "its command failed"),
    Row("failed", "ValidationFailed", State.FAILED, Reason.UNKNOWN, "the KubeRay operator does not accept it"),
    Row("failed", "*", State.FAILED, Reason.UNKNOWN, "the KubeRay operator gave it up"),
    Row("deployment", "ValidationFailed", State.FAILED, Reason.UNKNOWN, "the KubeRay operator does not accept it"),
    Row("deployment", "Suspending", State.STOPPING, Reason.HELD, "it is being suspended"),
    Row("deployment", "Suspended", State.PENDING, Reason.HELD, "it is suspended until it is admitted"),
    Row("job", "SUCCEEDED", State.SUCCEEDED, None, "its command succeeded"),
    Row("job", "FAILED", State.FAILED, Reason.EXIT_CODE, "its command failed"),
    Row("job", "STOPPED", State.FAILED, Reason.CANCELLED, "its command was stopped inside Ray"),
    Row("deployment", "Failed", State.FAILED, Reason.UNKNOWN, "the KubeRay operator gave it up"),
    Row("deployment", "Complete", State.SUCCEEDED, None, "its command succeeded"),
    Row("deployment", "Retrying", State.STARTING, None, "it failed and is started again"),
    Row("deployment", "Initializing", State.STARTING, None, "its Ray cluster is being started"),
    Row("deployment", "Waiting", State.STARTING, None, "its Ray cluster waits for a command"),
    Row("job", "PENDING", State.STARTING, None, "its command waits for Ray"),
    Row("job", "RUNNING", State.RUNNING, None, "it runs"),
    Row("deployment", "Running", State.RUNNING, None, "it runs"),
)
# `where`: `disruption` is the reason of a true DisruptionTarget, `pod` of the status itself, `terminated` and `waiting`
# of the container, `scheduling` of a PodScheduled that is false; `signal` and `exit` tell how the command ended, and
# `phase` counts where nothing else does.
PODS = (
    Row("terminated", "OOMKilled", State.FAILED, Reason.OUT_OF_MEMORY, "killed: it used more memory than it asked for"),
    Row("disruption", "PreemptionByScheduler", State.FAILED, Reason.PREEMPTED, "removed for a pod of higher priority"),
    Row("disruption", "DeletionByTaintManager", State.FAILED, Reason.NODE_LOST, "its node no longer takes such pods"),
    Row("disruption", "EvictionByEvictionAPI", State.FAILED, Reason.NODE_LOST, "evicted: its node is being drained"),
    Row("disruption", "DeletionByPodGC", State.FAILED, Reason.NODE_LOST, "its node is gone"),
    Row("disruption", "TerminationByKubelet", State.FAILED, Reason.NODE_LOST, "its node was short of something"),
    Row("disruption", "*", State.FAILED, Reason.NODE_LOST, "it was removed from its node"),
    Row("pod", "DeadlineExceeded", State.FAILED, Reason.TIMEOUT, "it ran longer than its timeout"),
    Row("pod", "Evicted", State.FAILED, Reason.NODE_LOST, "evicted: its node was short of something"),
    Row("pod", "Preempting", State.FAILED, Reason.PREEMPTED, "removed for a pod that the node cannot do without"),
    Row("pod", "NodeLost", State.FAILED, Reason.NODE_LOST, "its node does not answer"),
    Row("pod", "NodeShutdown", State.FAILED, Reason.NODE_LOST, "its node was shut down"),
    Row("pod", "Terminated", State.FAILED, Reason.NODE_LOST, "its node was shut down"),
    Row("pod", "OutOf*", State.FAILED, Reason.RESOURCES, "its node had no room for it after all"),
    Row("pod", "NodeAffinity", State.FAILED, Reason.RESOURCES, "its node is none of those it may run on"),
    Row("pod", "UnexpectedAdmissionError", State.FAILED, Reason.RESOURCES, "its node could not give it its devices"),
    Row("terminated", "Completed", State.SUCCEEDED, None, "it exited with 0"),
    Row("terminated", "ContainerStatusUnknown", State.FAILED, Reason.NODE_LOST, "its node forgot how it ended"),
    Row("terminated", "ContainerCannotRun", State.FAILED, Reason.EXIT_CODE, "its command could not be started"),
    Row("terminated", "StartError", State.FAILED, Reason.EXIT_CODE, "its command could not be started"),
    Row("terminated", "DeadlineExceeded", State.FAILED, Reason.TIMEOUT, "it ran longer than its timeout"),
    Row("signal", "*", State.FAILED, Reason.SIGNAL, "ended by signal {}"),
    Row("exit", "*", State.FAILED, Reason.EXIT_CODE, "exited with {}"),
    Row("waiting", "ImagePullBackOff", State.STARTING, Reason.HELD, "its image cannot be pulled"),
    Row("waiting", "ErrImagePull", State.STARTING, Reason.HELD, "its image cannot be pulled"),
    Row("waiting", "ErrImageNeverPull", State.STARTING, Reason.HELD, "its image is not on the node, and is not pulled"),
    Row("waiting", "InvalidImageName", State.STARTING, Reason.HELD, "its image has a name that cannot be read"),
    Row("waiting", "RegistryUnavailable", State.STARTING, Reason.HELD, "the registry of its image does not answer"),
    Row(
        "waiting",
        "CreateContainerConfigError",
        State.STARTING,
        Reason.HELD,
        "something it needs is missing",
    ),
    Row("waiting", "CreateContainerError", State.STARTING, Reason.HELD, "its container cannot be made"),
    Row("waiting", "RunContainerError", State.STARTING, Reason.HELD, "its container cannot be started"),
    Row("waiting", "CrashLoopBackOff", State.STARTING, Reason.HELD, "it ends at once, again and again"),
    Row("waiting", "ContainerCreating", State.STARTING, None, "its container is being made"),
    Row("waiting", "PodInitializing", State.STARTING, None, "its container is being made"),
    Row("scheduling", "Unschedulable", State.PENDING, Reason.RESOURCES, "no node has room for it"),
    Row("scheduling", "SchedulingGated", State.PENDING, Reason.HELD, "it is held back from scheduling"),
    Row("scheduling", "*", State.PENDING, Reason.UNKNOWN, "the cluster's scheduler could not place it"),
    Row("phase", "Succeeded", State.SUCCEEDED, None, "it exited with 0"),
    Row("phase", "Failed", State.FAILED, Reason.UNKNOWN, "it failed, and left no exit status"),
    Row("phase", "Running", State.RUNNING, None, "it runs"),
    Row("phase", "Unknown", State.RUNNING, Reason.NODE_DOWN, "its node does not answer"),
    Row("phase", "Pending", State.STARTING, None, "it waits for its node"),
)


def meaning_of_job(job: Object) -> Meaning:
    found = _by_conditions(job, JOBS)
    return found or _by_counts(job.get("status", {}).get("active", 0), job.get("status", {}).get("ready", 0))


def meaning_of_jobset(jobset: Object) -> Meaning:
    """`ready` of a replicated job counts its Jobs whose pods are all ready or done."""
    groups = jobset.get("status", {}).get("replicatedJobsStatus", [])
    found = _by_conditions(jobset, JOBSETS)
    return found or _by_counts(sum(g.get("active", 0) for g in groups), sum(g.get("ready", 0) for g in groups))


def meaning_of_pytorchjob(job: Object) -> Meaning:
    """The operator turns older conditions false, except Created."""
    found = _by_conditions(job, PYTORCHJOBS)
    return found or Meaning(State.STARTING, None, "its operator has said nothing about it yet")


def meaning_of_rayjob(job: Object) -> Meaning:
    """The command may have ended while the operator still clears up: the command counts."""
    status = job.get("status", {})
    message = status.get("message", "")
    said = []
    if status.get("jobDeploymentStatus") == "Failed" and status.get("reason"):
        said.append(("failed", status["reason"], message))
    said += [
        ("deployment", status.get("jobDeploymentStatus", ""), message),
        ("job", status.get("jobStatus", ""), message),
    ]
    for row in RAYJOBS:
        for where, reason, words in said:
            if row.fits(where, reason):
                return _meaning(row, reason, words)
    return Meaning(State.STARTING, None, "its operator has said nothing about it yet")


def meaning_of_pod(pod: Object) -> Meaning:
    """Of one task."""
    said = list(_told_of_pod(pod))
    for row in PODS:
        for where, reason, message in said:
            if row.fits(where, reason):
                return _meaning(row, reason, message)
    return Meaning(State.STARTING, Reason.UNKNOWN, "Kubernetes has said nothing about it yet")


def _told_of_pod(pod: Object) -> Iterable[tuple[str, str, str]]:
    """All that is said, as (where, reason, message)."""
    status = pod.get("status", {})
    has_failed = status.get("phase") == "Failed"  # a pod that is being evicted may still succeed
    for condition in status.get("conditions", []):
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True" and has_failed:
            yield "disruption", condition.get("reason", ""), condition.get("message", "")
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield "scheduling", condition.get("reason", ""), condition.get("message", "")
    if status.get("reason"):
        yield "pod", status["reason"], status.get("message", "")
    for container in status.get("containerStatuses", []):
        for where in ("terminated", "waiting"):
            if said := container.get("state", {}).get(where):
                yield where, said.get("reason", ""), said.get("message", "")
                yield from _told_of_exit(said)
    if status.get("phase"):
        yield "phase", status["phase"], ""


def _told_of_exit(ended: Object) -> Iterable[tuple[str, str, str]]:
    """How a command ended, if badly. A shell, and the container runtime, tell of a signal by 128 and more."""
    code, signal = ended.get("exitCode", 0), ended.get("signal", 0)
    if signal or 128 < code < 192:
        yield "signal", str(signal or code - 128), ended.get("message", "")
    elif code:
        yield "exit", str(code), ended.get("message", "")


def _by_conditions(seen: Object, rows: tuple[Row, ...]) -> Meaning | None:
    for row in rows:
        for condition in true_conditions(seen):
            if row.fits(condition["type"], condition.get("reason", "")):
                return _meaning(row, condition.get("reason", ""), condition.get("message", ""))
    return None


def _by_counts(active: int, ready: int) -> Meaning:
    """No condition is true: it was admitted and has not ended."""
    if ready:
        return Meaning(State.RUNNING, None, "it runs")
    if active:
        return Meaning(State.STARTING, None, "its pods are being started")
    return Meaning(State.STARTING, None, "its pods are being made")


def _meaning(row: Row, reason: str, message: str) -> Meaning:
    """Kubernetes' own words follow ours where something is wrong; what nothing is known of is told by its name."""
    if row.our_reason is None:
        return Meaning(row.state, None, row.sentence)
    sentence = row.sentence.format(reason)
    if row.reason.endswith("*") and reason and reason not in sentence:
        sentence = f"{sentence} ({reason})"
    return Meaning(row.state, row.our_reason, _with(sentence, message))


def _with(sentence: str, message: str) -> str:
    words = " ".join(message.split())
    return f"{sentence}: {words}" if words else sentence
