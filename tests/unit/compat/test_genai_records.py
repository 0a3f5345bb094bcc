"""What genai-workload-manager would write down of a job, how jobs are listed, and how many GPUs fit."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.client.views import a_job_view
from tests.unit.compat.genai_world import a_pytorchjob

from jobyard.compat.genai.checkpoint_reports import Report, annotation_of, report_in
from jobyard.compat.genai.fitting import best_fit
from jobyard.compat.genai.foreign import gpus_of, is_adopted, record_of_foreign, resized, status_of
from jobyard.compat.genai.listening import address_of
from jobyard.compat.genai.records import (
    JobMetadata,
    by_arrival,
    by_checkpoint_limit,
    by_difference,
    candidates,
    record_of,
    scale_down,
)
from jobyard.compat.genai.service_state import ServiceState
from jobyard.compat.genai.token_check import TokenCheck, is_loopback
from jobyard.errors import UserError
from jobyard.model.job import Reason, State
from jobyard.model.resources import Resources
from jobyard.model.training import ALL
from jobyard.wire.views import GroupView, TrainingView

FIELDS = (
    "job_name gpu_req gpu_lim gpu_assigned replicas total_epochs job_arrival_time last_checkpoint_time"
    " completed_epochs time_bw_checkpoints status restarts"
)
TRAINING = TrainingView(epochs_done=3, epochs_total=10, gpus=3, gpus_range=(2, 4), saved_at=1100.5, restarts=2)


def a_record(name: str, assigned: int = 2, *, arrival: int = 1000, saved: float = 0, **changes: Any) -> JobMetadata:
    view = a_job_view(name=name, id=name, submitted_at=arrival, training=replace(TRAINING, gpus=assigned))
    record = record_of(view, 8)
    return replace(record, last_checkpoint_time=saved or arrival, has_saved=bool(saved), **changes)


# -- records


def test_a_record_has_the_fields_of_the_original_in_its_order() -> None:
    shown = record_of(a_job_view(training=TRAINING), 8).shown()
    assert " ".join(shown) == FIELDS
    assert shown["job_arrival_time"] == 1000
    assert (shown["gpu_req"], shown["gpu_lim"], shown["gpu_assigned"]) == (2, 4, 3)
    assert (shown["completed_epochs"], shown["total_epochs"]) == (3, 10)
    assert (shown["last_checkpoint_time"], shown["status"], shown["restarts"]) == (1100.5, "running", 2)


def test_a_job_that_waits_has_no_gpus_and_no_checkpoint() -> None:
    record = record_of(a_job_view(State.PENDING, training=TrainingView(gpus=2, gpus_range=(2, 4))), 8)
    assert (record.gpu_assigned, record.status, record.last_checkpoint_time) == (0, "scheduled", 1000)
    assert record.time_bw_checkpoints is None


def test_a_job_that_does_not_train_has_what_its_groups_ask_for() -> None:
    group = GroupView("", 2, 1, None, Resources(gpus=3), "x")
    record = record_of(a_job_view(groups=(group,)), 8)
    assert (record.gpu_req, record.gpu_lim, record.gpu_assigned, record.replicas) == (3, 3, 3, 2)


def test_as_many_as_there_are_is_a_number_here() -> None:
    view = a_job_view(training=replace(TRAINING, gpus_range=(1, ALL)))
    assert record_of(view, 8).gpu_lim == 8


@pytest.mark.parametrize(
    ("state", "status"),
    [(State.STARTING, "scheduled"), (State.SUCCEEDED, "completed"), (State.FAILED, "failed")],
)
def test_states_are_words_of_the_original(state: State, status: str) -> None:
    assert record_of(a_job_view(state, training=TRAINING), 8).status == status


def test_who_stops_for_another_size_is_being_resized() -> None:
    assert record_of(a_job_view(reason=Reason.RESIZING, training=TRAINING), 8).is_resizing
    assert not record_of(a_job_view(training=TRAINING), 8).is_resizing


# -- what jobs tell


def test_the_time_between_two_reports_is_that_between_checkpoints() -> None:
    state = ServiceState()
    state.tell("a", Report(1010, 1000, 1, 5))
    state.tell("a", Report(1030, 1010, 2, 0))
    seen = state.see(a_record("a"))
    assert (seen.last_checkpoint_time, seen.time_bw_checkpoints, seen.total_epochs) == (1030, 20, 5)


def test_a_report_that_is_older_than_what_is_known_changes_nothing() -> None:
    state = ServiceState()
    state.tell("a", Report(1010, 1000, 9, 9))
    assert state.see(a_record("a", saved=1200)).last_checkpoint_time == 1200


def test_what_an_earlier_job_of_the_name_told_is_forgotten() -> None:
    state = ServiceState()
    state.tell("a", Report(1010, 1000, 9, 9))
    assert state.see(a_record("a", arrival=2000)).last_checkpoint_time == 2000


@pytest.mark.parametrize("report", [Report(1010.25), Report(1010, 1000.5, 1.5, 3)])
def test_what_a_job_told_is_read_as_it_was_written_on_it(report: Report) -> None:
    assert report_in(annotation_of(report)) == report
    view = a_job_view(training=replace(TRAINING, saved_at=None), annotations=annotation_of(report))
    assert record_of(view, 8).last_checkpoint_time == report.at
    job = a_pytorchjob()
    job["metadata"]["annotations"] |= annotation_of(replace(report, at=1767225700))
    assert record_of_foreign(job).last_checkpoint_time == 1767225700


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "{",
        "{}",
        '{"at": "now"}',
        '{"at": NaN}',
        '{"at": 1e999}',
        '{"at": -1}',
        '{"at": 1, "x": 2}',
        "[" * 9999,
    ],
)
def test_what_other_hands_wrote_there_counts_only_where_it_is_a_report(text: str) -> None:
    assert report_in({"jobyard.dev/checkpoint": text}) is None


# -- lists


def test_lists_are_in_the_orders_of_the_original() -> None:
    old, saved, full, done = (
        a_record("old", arrival=1),
        a_record("saved", arrival=2, saved=50),
        a_record("full", 4, arrival=3, saved=60),
        a_record("done", arrival=0, saved=70, status="completed"),
    )
    jobs = [full, done, saved, old]
    assert by_arrival(jobs) == [old, saved, full]
    assert by_checkpoint_limit(jobs) == [saved, old]
    assert by_difference(jobs, 2) == [saved, old]
    assert by_difference(jobs, 0) == [full]
    assert scale_down(jobs, 2) == [full]
    assert scale_down(jobs, 0) == [full, saved, old]


def names_of(records: list[JobMetadata]) -> list[str]:
    return [each.job_name for each in records]


def test_candidates_are_those_who_could_have_more_and_who_saved_last_comes_first() -> None:
    jobs = [a_record("a", saved=10), a_record("b", saved=20), a_record("c", 4, saved=30)]
    assert names_of(candidates(jobs)) == ["b", "a"]


def test_without_one_that_could_have_more_the_candidate_is_the_oldest() -> None:
    jobs = [a_record("a", 4, arrival=2, saved=30), a_record("b", 4, arrival=1, saved=10)]
    assert names_of(candidates(jobs)) == ["b"]


def test_who_waits_or_grows_already_is_no_candidate() -> None:
    waits = replace(a_record("waits"), gpu_assigned=0)
    assert candidates([waits, replace(a_record("grows"), is_resizing=True)]) == []


# -- best fit


@pytest.mark.parametrize(
    ("most", "now", "free", "own", "quota", "fits"),
    [
        (4, 2, {"a": 1}, {"a": 2}, None, 3),  # its own count as free
        (4, 2, {"a": 2}, {"a": 2}, None, 4),
        (4, 2, {"a": 2}, {"a": 2}, 1, 3),  # what the quota leaves
        (4, 2, {"a": 0, "b": 8}, {"a": 2}, None, 4),  # on another node
        (4, 2, {"a": 0, "b": 1}, {"a": 2}, None, 2),  # never over two nodes
        (65536, 1, {"a": 7}, {"a": 1}, None, 8),
        (4, 0, {}, {}, None, 0),
        (4, 2, {"a": 4}, {"a": 2}, -1, 2),  # a quota that was cut takes nothing away
    ],
)
def test_best_fit(most: int, now: int, free: dict[str, int], own: dict[str, int], quota: int | None, fits: int) -> None:
    assert best_fit(most, now, 1, free, own, quota) == fits


def test_each_replica_has_its_gpus_on_one_node() -> None:
    assert best_fit(4, 1, 2, {"a": 3, "b": 2}, {"a": 1, "b": 1}, None) == 3
    assert best_fit(8, 1, 2, {"a": 7, "b": 0}, {"a": 1, "b": 1}, None) == 4


# -- PyTorchJobs of others


def test_three_annotations_make_a_job_ours_to_scale() -> None:
    assert is_adopted(a_pytorchjob())
    assert not is_adopted(a_pytorchjob(annotations={"replicas": "1", "request": "1"}))
    assert not is_adopted(a_pytorchjob(annotations={"replicas": "1", "request": "1", "limit": "many"}))
    assert not is_adopted(a_pytorchjob(labels={"jobyard.dev/yard": "y"}))


def test_its_record_is_read_from_the_object() -> None:
    job = a_pytorchjob()
    assert status_of(job) == "scheduled"
    job["status"]["conditions"] = [{"type": "Created", "status": "True"}, {"type": "Running", "status": "True"}]
    record = record_of_foreign(job)
    assert (record.gpu_req, record.gpu_lim, record.gpu_assigned, record.replicas) == (1, 3, 1, 1)
    assert (record.status, record.job_arrival_time, record.is_ours) == ("running", 1767225600, False)
    job["status"]["conditions"].append({"type": "Succeeded", "status": "True"})
    assert status_of(job) == "completed"


def test_another_size_goes_everywhere_where_the_old_one_stood() -> None:
    job = a_pytorchjob()
    job["metadata"]["annotations"]["jobyard.dev/scaling"] = "3"
    made = resized(job, 3)
    (container,) = made["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    assert container["command"][-1] == "accelerate launch --num_processes=3 train.py"
    assert container["args"] == ["--num_processes", "3"]
    assert container["env"] == [{"name": "NGPU", "value": "3"}, {"name": "OTHER", "value": "1"}]
    assert container["resources"]["requests"] == {"cpu": "1", "nvidia.com/gpu": "3"}
    assert made["spec"]["runPolicy"] == {"suspend": False}
    assert made["metadata"]["annotations"] == {
        "replicas": "1",
        "request": "1",
        "limit": "3",
        "podtype": "x",
        "jobyard.dev/restarts": "1",
    }
    assert gpus_of(job) == 1  # what was given is left alone


def test_workers_are_resized_too_and_a_container_without_env_is_no_trouble() -> None:
    job = a_pytorchjob()
    plain = {"name": "pytorch", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    job["spec"]["pytorchReplicaSpecs"]["Worker"] = {"replicas": 2, "template": {"spec": {"containers": [plain]}}}
    made = resized(job, 2)
    worker = made["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert worker["resources"] == {"requests": {"nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "2"}}


@pytest.mark.parametrize(
    ("condition", "mark", "is_resizing"),
    [
        ("Suspended", "2", True),
        ("Running", "2", True),
        ("Succeeded", "2", False),
        ("Failed", "2", False),
        ("Running", "many", False),
        ("Running", "", False),
    ],
)
def test_one_is_being_resized_while_it_is_marked_and_has_not_ended(
    condition: str, mark: str, is_resizing: bool
) -> None:
    job = a_pytorchjob(condition=condition)
    job["metadata"]["annotations"]["jobyard.dev/scaling"] = mark
    record = record_of_foreign(job)
    assert (record.is_resizing, record.is_marked) == (is_resizing, mark.isdigit())


# -- the token check


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"host": "0.0.0.0:5000"}, 200),
        ({"host": "[::]:5000"}, 200),
        ({"host": "0.0.0.0:5000", "sec-fetch-site": "cross-site"}, 403),
        ({"host": "evil.example:5000"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null", "sec-fetch-site": "same-origin"}, 403),
        ({"content-length": "8388608"}, 200),
        ({"content-length": "8388609"}, 413),
        ({"content-length": "9" * 5000}, 413),
        ({"transfer-encoding": "chunked"}, 411),
    ],
)
def test_a_page_in_a_browser_of_this_machine_is_not_served(headers: dict[str, str], status: int) -> None:
    assert status_of_token_check("127.0.0.1", headers) == status


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_loopback_of_either_kind_is_served_to_this_user_alone(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        assert status_of_token_check(address, {}) == 200
    except OSError as error:
        pytest.skip(f"{address} cannot be listened on: {error}")
    monkeypatch.setattr("jobyard.agent_protocol.local_connections.uid_between", lambda theirs, ours: 65534)
    assert status_of_token_check(address, {}) == 403


def status_of_token_check(address: str, headers: dict[str, str]) -> int:
    """Of a request by a program of ours that is connected to this address."""
    said: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        said.append(200)

    async def send(message: Any) -> None:
        said.extend([message["status"]] if "status" in message else [])

    async def receive() -> Any: ...

    lines = [(name.encode(), value.encode()) for name, value in {"host": "localhost:6000", **headers}.items()]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with (
        socket.create_server((address, 0), family=family) as listener,
        socket.create_connection(listener.getsockname()[:2]) as client,
    ):
        ends = {"client": client.getsockname()[:2], "server": client.getpeername()[:2]}
        asyncio.run(TokenCheck(app)({"type": "http", **ends, "headers": lines}, receive, send))
    (status,) = said
    return status


def test_without_a_token_only_this_machine_can_be_listened_on() -> None:
    assert address_of({}) == ("127.0.0.1", [6000])
    assert address_of({"MPORT": "7000", "FLASK_PORT": "5000"}) == ("127.0.0.1", [7000, 5000])
    assert address_of({"MPORT": "7000", "FLASK_PORT": "7000"}) == ("127.0.0.1", [7000])
    with pytest.raises(UserError, match=r"MHOST: 0\.0\.0\.0 can be reached from elsewhere; set JOBYARD_GENAI_TOKEN"):
        address_of({"MHOST": "0.0.0.0"})
    assert address_of({"MHOST": "0.0.0.0", "JOBYARD_GENAI_TOKEN": "x"}) == ("0.0.0.0", [6000])
    with pytest.raises(UserError, match="MPORT: 'web' is not a port"):
        address_of({"MPORT": "web"})


@pytest.mark.parametrize(
    ("host", "is_here"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("", False)],
)
def test_which_addresses_are_this_machine(host: str, is_here: bool) -> None:
    assert is_loopback(host) is is_here
