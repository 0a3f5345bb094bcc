"""Every state that Kubernetes tells has one meaning here, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from jobyard.cli.follow import speaks_of_image
from jobyard.executors.kubernetes.states import (
    JOBS,
    JOBSETS,
    PODS,
    Meaning,
    Row,
    meaning_of_job,
    meaning_of_jobset,
    meaning_of_pod,
)
from jobyard.model.job import Reason, State


def with_condition(kind: str, reason: str, message: str = "", status: str = "True") -> dict[str, Any]:
    condition = {"type": kind, "status": status, "reason": reason, "message": message}
    return {"status": {"conditions": [condition]}}


def a_pod(row: Row, message: str = "") -> dict[str, Any]:
    """A pod of which exactly this is said."""
    reason = row.reason.replace("*", "Whatever")
    said = {"reason": reason, "message": message}
    match row.where:
        case "phase":
            return {"status": {"phase": row.reason}}
        case "pod":
            return {"status": {"phase": "Failed", **said}}
        case "disruption":
            return {"status": {"phase": "Failed", **with_condition("DisruptionTarget", reason, message)["status"]}}
        case "scheduling":
            return {
                "status": {"phase": "Pending", **with_condition("PodScheduled", reason, message, "False")["status"]}
            }
        case "waiting":
            return {"status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": said}}]}}
        case "terminated":
            code = 0 if reason == "Completed" else 137
            phase = "Succeeded" if reason == "Completed" else "Failed"
            ended = {"terminated": {**said, "exitCode": code}}
            return {"status": {"phase": phase, "containerStatuses": [{"state": ended}]}}
    return ended_pod(137 if row.where == "signal" else 3, message)


def ended_pod(code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    ended = {"terminated": {"reason": reason, "exitCode": code, "message": message}}
    return {"status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{"state": ended}]}}


def name_of(row: Row) -> str:
    return f"{row.where}-{row.reason}"


def assert_means(meaning: Meaning, row: Row, words: str) -> None:
    assert (meaning.state, meaning.reason) == (row.state, row.our_reason)
    assert meaning.sentence.startswith(row.sentence.partition("{")[0])
    assert meaning.sentence.endswith(words) or row.our_reason is None or row.where == "phase"
    assert "\n" not in meaning.sentence


@pytest.mark.parametrize("row", JOBS, ids=name_of)
def test_each_row_of_jobs(row: Row) -> None:
    seen = with_condition(row.where, row.reason.replace("*", "Whatever"), "own\nwords")
    assert_means(meaning_of_job(seen), row, "own words")


@pytest.mark.parametrize("row", JOBSETS, ids=name_of)
def test_each_row_of_jobsets(row: Row) -> None:
    seen = with_condition(row.where, row.reason.replace("*", "Whatever"), "own words")
    assert_means(meaning_of_jobset(seen), row, "own words")


@pytest.mark.parametrize("row", PODS, ids=name_of)
def test_each_row_of_pods(row: Row) -> None:
    assert_means(meaning_of_pod(a_pod(row, "own words")), row, "own words")


def test_how_a_command_ended_is_told_by_its_number() -> None:
    assert meaning_of_pod(ended_pod(3, "no data")) == (State.FAILED, Reason.EXIT_CODE, "exited with 3: no data")
    assert meaning_of_pod(ended_pod(143)) == (State.FAILED, Reason.SIGNAL, "ended by signal 15")
    assert meaning_of_pod(ended_pod(255)).reason is Reason.EXIT_CODE
    assert meaning_of_pod(ended_pod(137, reason="OOMKilled")).reason is Reason.OUT_OF_MEMORY


def test_a_pod_that_was_asked_to_go_and_ended_well_has_succeeded() -> None:
    pod = ended_pod(0, reason="Completed")
    pod["status"]["conditions"] = with_condition("DisruptionTarget", "EvictionByEvictionAPI")["status"]["conditions"]
    assert meaning_of_pod(pod).state is State.SUCCEEDED
    pod = ended_pod(143)
    pod["status"]["conditions"] = with_condition("DisruptionTarget", "PreemptionByScheduler")["status"]["conditions"]
    assert meaning_of_pod(pod).reason is Reason.PREEMPTED


def test_a_reason_that_nobody_knows_is_told_by_its_name() -> None:
    assert meaning_of_job(with_condition("Failed", "Sunspots", "many")).sentence == (
        "Kubernetes gave it up (Sunspots): many"
    )
    waiting = {"status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "Sunspots"}}}]}}
    assert meaning_of_pod(waiting).state is State.STARTING


def test_without_conditions_counts_tell() -> None:
    assert meaning_of_job({}).state is State.STARTING
    assert meaning_of_job({"status": {"active": 2}}).state is State.STARTING
    assert meaning_of_job({"status": {"active": 2, "ready": 1}}).state is State.RUNNING
    groups = [{"name": "a", "active": 1, "ready": 0}, {"name": "b", "active": 1, "ready": 1}]
    assert meaning_of_jobset({"status": {"replicatedJobsStatus": groups}}).state is State.RUNNING
    assert meaning_of_pod({}).reason is Reason.UNKNOWN


def test_a_condition_that_is_not_true_counts_for_nothing() -> None:
    assert meaning_of_job(with_condition("Suspended", "JobResumed", status="False")).state is State.STARTING


@pytest.mark.parametrize("rows", [JOBS, JOBSETS, PODS], ids=["jobs", "jobsets", "pods"])
def test_no_row_hides_behind_an_earlier_one(rows: tuple[Row, ...]) -> None:
    for index, row in enumerate(rows):
        assert not any(earlier.fits(row.where, row.reason) for earlier in rows[:index])


def test_who_follows_a_job_tells_the_sentences_about_an_image_from_the_others() -> None:
    held = [row for row in PODS if row.where == "waiting" and row.our_reason is Reason.HELD]
    about_images = {row.reason for row in held if speaks_of_image(row.sentence)}
    assert about_images == {row.reason for row in held if "Image" in row.reason or "Registry" in row.reason}
    assert len(about_images) == 5
