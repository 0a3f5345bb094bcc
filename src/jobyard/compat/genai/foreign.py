"""Foreign PyTorchJobs: what do objects that others created say, and how are they resized? Pure: objects only."""

from __future__ import annotations

from copy import deepcopy
from datetime import datetime
from typing import Any

from jobyard.compat.genai.checkpoint_reports import report_in
from jobyard.compat.genai.records import ENDED, JobMetadata, with_report
from jobyard.kubernetes.gpus import give_gpus, pod_gpus
from jobyard.kubernetes.labels import YARD
from jobyard.kubernetes.states import has_condition
from jobyard.model.units import whole_number

Object = dict[str, Any]
REPLICAS, REQUEST, LIMIT = "replicas", "request", "limit"  # annotations, by which it is adopted
RESTARTS = "jobyard.dev/restarts"
SCALING = "jobyard.dev/scaling"  # we suspended it, and it gets so many GPUs


def is_adopted(job: Object) -> bool:
    """Not a yard's own, and with a range that can be read."""
    return not is_a_yards(job) and all((_number(job, name) or 0) > 0 for name in (REPLICAS, REQUEST, LIMIT))


def is_a_yards(job: Object) -> bool:
    return YARD in (job["metadata"].get("labels") or {})


def record_of_foreign(job: Object) -> JobMetadata:
    arrival = int(datetime.fromisoformat(job["metadata"]["creationTimestamp"]).timestamp())
    status = status_of(job)
    record = JobMetadata(
        job_name=job["metadata"]["name"],
        gpu_req=_number(job, REQUEST) or 0,
        gpu_lim=_number(job, LIMIT) or 0,
        gpu_assigned=0 if status == "scheduled" else gpus_of(job),
        replicas=_number(job, REPLICAS) or 1,
        total_epochs=0,
        job_arrival_time=arrival,
        last_checkpoint_time=arrival,
        completed_epochs=0,
        time_bw_checkpoints=None,
        status=status,
        restarts=_number(job, RESTARTS) or 0,
        is_resizing=is_marked(job) and status not in ENDED,
        is_marked=is_marked(job),
    )
    return with_report(record, report_in(annotations_of(job)))


def status_of(job: Object) -> str:
    if has_condition(job, "Succeeded"):
        return "completed"
    if has_condition(job, "Failed"):
        return "failed"
    is_running = has_condition(job, "Running") or has_condition(job, "Restarting")
    return "running" if is_running and not has_condition(job, "Suspended") else "scheduled"


def is_marked(job: Object) -> bool:
    """Does our annotation say that it is to get another size?"""
    return _number(job, SCALING) is not None


def is_held(job: Object) -> bool:
    """Is it suspended, or about to be? Its user may have resumed it meanwhile."""
    return bool((job["spec"].get("runPolicy") or {}).get("suspend"))


def gpus_of(job: Object) -> int:
    """Of one replica, all of its containers together."""
    return max((pod_gpus(each["spec"]) for each in _templates(job)), default=0)


def resized(job: Object, gpus: int) -> Object:
    """The same object, ready to resume with so many GPUs for each replica that has any."""
    made = deepcopy(job)
    for template in _templates(made):
        give_gpus(template["spec"], gpus)
    made["metadata"]["annotations"] = {
        **{name: value for name, value in annotations_of(job).items() if name != SCALING},
        RESTARTS: str((_number(job, RESTARTS) or 0) + 1),
    }
    made["spec"]["runPolicy"] = {**(made["spec"].get("runPolicy") or {}), "suspend": False}
    return made


def annotations_of(job: Object) -> dict[str, str]:
    return job["metadata"].get("annotations") or {}


def _templates(job: Object) -> list[Object]:
    return [each["template"] for each in (job["spec"].get("pytorchReplicaSpecs") or {}).values()]


def _number(job: Object, name: str) -> int | None:
    return whole_number(annotations_of(job).get(name, ""), digits=8)
