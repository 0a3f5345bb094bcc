"""Outcome of a pod: how did it end, as the yard counts it? Pure but for the last output lines, which name full GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from jobyard.agent_protocol.endings import is_preempted, missed_stop, said_of_gpu_memory
from jobyard.agent_protocol.progress_reducer import ProgressReducer
from jobyard.agent_protocol.records import Ending, Paths
from jobyard.agent_protocol.stop_request import StopRequest
from jobyard.executors.kubernetes.states import Meaning, meaning_of_pod
from jobyard.executors.reports import progress_of
from jobyard.kubernetes.states import is_over
from jobyard.model.job import Reason, State
from jobyard.model.task import Outcome

Object = Mapping[str, Any]


def seconds_of(text: str | None) -> float | None:
    """A time as Kubernetes writes it."""
    return datetime.fromisoformat(text).timestamp() if text else None


def main_container(pod: Object) -> str:
    """The one whose output and end are the task's: the first."""
    name: str = pod["spec"]["containers"][0]["name"]
    return name


def main_status(pod: Object) -> Object:
    name = main_container(pod)
    found: Iterator[Object] = (s for s in pod.get("status", {}).get("containerStatuses") or () if s["name"] == name)
    return next(found, {})


def started_at(pod: Object) -> float | None:
    """When its task began; None: it has not."""
    state = main_status(pod).get("state", {})
    told = state.get("running") or state.get("terminated") or {}
    if told.get("startedAt"):
        return seconds_of(told["startedAt"])
    return seconds_of(pod.get("status", {}).get("startTime")) if is_over(pod) else None


def deleted_at(pod: Object) -> float | None:
    """When its deletion was asked for; None: it was not."""
    metadata = pod["metadata"]
    due = seconds_of(metadata.get("deletionTimestamp"))
    return due - metadata.get("deletionGracePeriodSeconds", 0) if due is not None else None


def outcome_of(
    pod: Object, *, gone: bool, at: float, reducer: ProgressReducer | None, request: StopRequest | None, files: Paths
) -> Outcome:
    """`gone`: it was deleted, and this is the last that was seen of it. `request`: what it was asked, if it was; we
    signal it by deleting it."""
    ended = main_status(pod).get("state", {}).get("terminated") or {}
    meaning = meaning_of_pod(pod)
    began = started_at(pod) or at
    exit_code, signal = _exit_of(ended)
    is_deleted_by_others = (gone or deleted_at(pod) is not None) and not (request is not None and request.signalled_at)
    reason, message = _reason(meaning, ended, is_deleted_by_others)
    finished_at = max(began, seconds_of(ended.get("finishedAt")) or at)
    ending = Ending(finished_at, exit_code, signal, reason.value if reason else None)
    if reducer is not None and exit_code == 0 and (reducer.is_finished or not reducer.is_told):
        reducer.confirm(by_itself=request is None or not request.signalled_at)
    if request is not None and is_preempted(ending, reducer, request):
        reason, message = Reason.PREEMPTED, missed_stop(ending, request)
        if reducer is not None:
            reducer.has_preempted()
    elif reason is None and exit_code != 0 and (said := said_of_gpu_memory(files)):
        reason, message = Reason.OUT_OF_GPU_MEMORY, f"ran out of GPU memory: {said}"
    told = reducer.progress() if reducer is not None else None
    progress = progress_of(told, 0.0) if told else None
    return Outcome(began, finished_at, exit_code, signal, reason, message, progress=progress)


def _exit_of(ended: Object) -> tuple[int | None, int | None]:
    """Exit code, or signal: the container runtime tells of that by 128 and more."""
    if not ended:
        return None, None
    code, signal = ended.get("exitCode", 0), ended.get("signal", 0)
    if signal or 128 < code < 192:
        return None, signal or code - 128
    return code, None


def _reason(meaning: Meaning, ended: Object, gone: bool) -> tuple[Reason | None, str]:
    """None where the exit status tells by itself. One that was deleted has not failed by itself."""
    said = " ".join((ended.get("message") or "").split())[:1000]
    if gone and meaning.state is not State.SUCCEEDED and meaning.reason in (None, Reason.EXIT_CODE, Reason.SIGNAL):
        return Reason.NODE_LOST, "its pod was deleted, with its node or by somebody else"
    if meaning.state is State.SUCCEEDED or meaning.reason in (Reason.EXIT_CODE, Reason.SIGNAL):
        return None, said if ended.get("exitCode") else ""
    if meaning.state is State.FAILED:
        return meaning.reason, meaning.sentence
    return Reason.UNKNOWN, meaning.sentence
