"""The app and the commands: what is answered, and what a wrong environment is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI
from tests.unit.compat.genai_world import TOKEN, FakeCluster, FakeYard, a_pytorchjob, a_service, an_object, answer_of

from jobyard.compat.genai.__main__ import group, row_of
from jobyard.compat.genai.app import app as importable
from jobyard.compat.genai.app import make_app
from jobyard.compat.genai.configuration import grows_at_once
from jobyard.compat.genai.service import Service
from jobyard.console import guarded
from jobyard.errors import UserError
from jobyard.model.job import State


def asked(app: FastAPI, *calls: tuple[str, str, Any]) -> list[tuple[int, Any]]:
    """The answers of the app while it runs, as programs get them that have the token."""

    async def all_of() -> list[tuple[int, Any]]:
        async with app.router.lifespan_context(app):
            return [await answer_of(app, *each) for each in calls]

    return asyncio.run(all_of())


def an_app(service: Service) -> FastAPI:
    return make_app(lambda: service, TOKEN)


# -- answers


def test_a_status_that_is_so_is_answered_with_200_though_nobody_can_grow() -> None:
    yard = FakeYard()
    yard.free = {"a": (4, 0)}
    yard.put("full", 1, (1, 4), saved_at=1500.0)
    done = yard.put("done", 3)
    yard.end(done)
    app = an_app(a_service(yard, FakeCluster(Pod=[an_object(done)])))
    told = {"job_name": "done", "status": "completed"}
    first, second, wrong = asked(
        app,
        ("PUT", "/update_job_status", told),
        ("PUT", "/update_job_status", told),
        ("PUT", "/update_job_status", {"job_name": "full", "status": "completed"}),
    )
    assert first == second
    assert (first[0], first[1]["job"]["status"]) == (200, "completed")
    assert wrong[0] == 400


def test_telling_of_one_end_twice_lets_one_job_wait_for_its_checkpoint() -> None:
    yard = FakeYard()
    yard.free = {"a": (8, 6)}
    for name in ("x", "y"):
        yard.put(name, 1, (1, 4))
    done = yard.put("done", 3)
    yard.end(done)
    service = a_service(yard, FakeCluster(Pod=[an_object(done)]))
    told = ("PUT", "/update_job_status", {"job_name": "done", "status": "completed"})
    assert [status for status, _ in asked(an_app(service), told, told, told)] == [200, 200, 200]
    assert sum(service.state.is_waiting(each) for each in service.records()) == 1


def test_delete_job_removes_what_is_left_of_it() -> None:
    yard = FakeYard()
    done = yard.put("done", 1)
    yard.put("runs", 1)
    yard.end(done, State.FAILED)
    cluster = FakeCluster(Pod=[an_object(done)], PyTorchJob=[a_pytorchjob(condition="Running")])
    deleted, runs, theirs, all_jobs = asked(
        an_app(a_service(yard, cluster)),
        ("DELETE", "/delete_job", {"job_name": "done"}),
        ("DELETE", "/delete_job", {"job_name": "runs"}),
        ("DELETE", "/delete_job", {"job_name": "theirs"}),
        ("GET", "/get_all_jobs", None),
    )
    assert deleted == (200, {"message": "Job done deleted"})
    assert (runs[0], theirs[0]) == (400, 400)
    assert [each["job_name"] for each in all_jobs[1]] == ["runs", "theirs"]
    assert [kind for kind, _ in cluster.objects] == ["PyTorchJob"]


def test_a_checkpoint_is_in_the_answer_to_who_told_of_it() -> None:
    yard = FakeYard()
    yard.put("x", 1, (1, 4))
    body = {"job_name": "x", "last_checkpoint_time": 2000.5, "completed_epochs": 1.5, "total_epochs": 3}
    ((status, data),) = asked(an_app(a_service(yard)), ("PUT", "/update_last_checkpoint", body))
    assert (status, data["job"]["last_checkpoint_time"], data["job"]["completed_epochs"]) == (200, 2000.5, 1.5)


def shown(service: Service, name: str) -> str:
    """What `status` has of a job in its table."""
    return " ".join(row_of(service.record(name), 2010.0))


def test_epochs_that_one_process_was_told_show_in_the_status_of_another() -> None:
    yard, cluster = FakeYard(), FakeCluster(PyTorchJob=[a_pytorchjob(condition="Running")])
    yard.free = {"a": (4, 3)}
    yard.put("x", 1, (1, 4))
    told = {"last_checkpoint_time": 2000.5, "completed_epochs": 1.5, "total_epochs": 3}
    later = {"job_name": "x", "last_checkpoint_time": 2004.5, "completed_epochs": 2}
    theirs = {**told, "job_name": "theirs", "last_checkpoint_time": 1767225700}
    calls = [("PUT", "/update_last_checkpoint", body) for body in ({**told, "job_name": "x"}, later, later, theirs)]
    answers = asked(an_app(a_service(yard, cluster)), *calls)
    assert [status for status, _ in answers] == [200] * 4
    other = a_service(yard, cluster)
    assert shown(other, "x") == "x 1/4 1..4 2/3 5.5s ago 0 running "
    assert other.record("x").shown() == answers[2][1]["job"]
    assert other.record("x").time_bw_checkpoints == 4
    assert (other.record("theirs").completed_epochs, other.record("theirs").total_epochs) == (1.5, 3)


def test_epochs_that_were_said_when_a_job_was_added_show_elsewhere_too() -> None:
    cluster = FakeCluster(PyTorchJob=[a_pytorchjob(condition="Running")])
    body = {"job_name": "theirs", "gpu_req": 1, "gpu_lim": 3, "gpu_assigned": 1, "total_epochs": 20}
    ((status, _),) = asked(an_app(a_service(FakeYard(), cluster)), ("POST", "/add_job", body))
    assert (status, a_service(FakeYard(), cluster).record("theirs").total_epochs) == (201, 20)


def test_where_a_checkpoint_cannot_be_written_down_this_process_shows_it_and_says_so() -> None:
    yard, said = FakeYard(), list[str]()
    yard.put("x", 1, (1, 4))
    yard.problem = UserError("read-only")
    service = a_service(yard, warn=said.append)
    body = {"job_name": "x", "last_checkpoint_time": 2000.5, "completed_epochs": 1}
    ((status, data),) = asked(an_app(service), ("PUT", "/update_last_checkpoint", body))
    assert (status, data["job"]["completed_epochs"]) == (200, 1)
    assert said == ["the checkpoint of job x is shown by this process alone: read-only"]


# -- a wrong environment

SENTENCE = "GENAI_SCALE: 'soon' is neither now nor checkpoint"


def test_when_jobs_grow_is_one_of_two_words() -> None:
    assert [grows_at_once(environ) for environ in ({}, {"GENAI_SCALE": ""}, {"GENAI_SCALE": "now"})] == [
        False,
        False,
        True,
    ]
    with pytest.raises(UserError, match=SENTENCE):
        grows_at_once({"GENAI_SCALE": "soon"})


@pytest.mark.parametrize("command", ["monitor", "status", "scale"])
def test_a_wrong_word_is_one_sentence_and_exit_code_2(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GENAI_SCALE", "soon")
    code = guarded(lambda: group.main([command], standalone_mode=False), "genai", [command])
    said = capsys.readouterr().err
    assert (code, len(said.splitlines())) == (2, 1)
    assert SENTENCE in said


def test_who_serves_the_app_is_told_the_sentence_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENAI_SCALE", "soon")
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        said.append(message)

    asyncio.run(importable({"type": "lifespan", "app": importable}, receive, send))
    assert said == [{"type": "lifespan.startup.failed", "message": SENTENCE}]


@pytest.mark.parametrize("key", ["last_checkpoint_time", "completed_epochs"])
@pytest.mark.parametrize("value", [10**400, 1e308, -1, True], ids=["huge", "large", "negative", "no number"])
def test_a_number_that_is_none_is_refused_in_a_sentence(key: str, value: float) -> None:
    body = {"job_name": "x", "last_checkpoint_time": 2000.5, "completed_epochs": 1.5, key: value}
    yard = FakeYard()
    yard.put("x", 1, (1, 4))
    ((status, answer),) = asked(an_app(a_service(yard)), ("PUT", "/update_last_checkpoint", body))
    assert status == 400
    assert f"{key}: " in str(answer)
