"""Words that other programs keep with a job: who has them after a restart, and how many may there be?"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobyard.engine import saved_state
from jobyard.engine.handling import handle
from jobyard.engine.yard_state import YardState
from jobyard.errors import UserError
from jobyard.model.checks import check
from jobyard.model.json_schema import schema_of
from jobyard.server.commands import annotate
from jobyard.server.routes.annotate import annotate_job
from jobyard.server.routes.jobs import list_jobs
from jobyard.wire.requests import AnnotateJob
from tests.builders import a_job, submitted
from tests.unit.server.running import RunningYard, a_request, a_yard


def a_state(**annotations: str) -> YardState:
    state = YardState()
    handle(state, submitted("j1", 1, a_job()))
    state.jobs["j1"].annotations = annotations
    return state


def annotated(state: YardState, **annotations: str | None) -> int:
    """How many events it took."""
    events, job = annotate("j1", annotations, "ada")(state, 7.0)
    for event in events:
        handle(state, event)
    assert job == "j1"
    return len(events)


def test_each_name_is_set_and_taken_away_by_itself() -> None:
    state = a_state(a="1", b="2")
    assert annotated(state, b="3", c="4", a=None) == 1
    assert state.jobs["j1"].annotations == {"b": "3", "c": "4"}
    assert saved_state.load(saved_state.save(state)).jobs["j1"].annotations == {"b": "3", "c": "4"}


def test_what_is_so_already_is_not_written_again() -> None:
    assert annotated(a_state(a="1"), a="1", b=None) == 0


def test_a_job_has_a_few_of_them() -> None:
    state = a_state(**{f"n{number}": "x" for number in range(32)})
    with pytest.raises(UserError, match="job 1 would have 33 annotations; at most 32 are possible"):
        annotated(state, more="x")
    annotated(state, more="x", n0=None)
    assert len(state.jobs["j1"].annotations) == 32


def test_a_request_has_the_limits_that_its_schema_says() -> None:
    for wrong in ({}, {"": "x"}, {"a": "x" * 4097}, {"a\n": "x"}, {"a": "\0"}, {str(n): "x" for n in range(33)}):
        with pytest.raises(UserError):
            check(AnnotateJob(cast(Any, wrong)))
    schema = schema_of(AnnotateJob)["properties"]["annotations"]
    assert (schema["minProperties"], schema["maxProperties"]) == (1, 32)


async def test_lists_have_them_and_those_of_a_job_that_has_ended_too(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("true")
        await yard.ended(job)
        await annotate_job(as_somebody(yard), job, AnnotateJob({"some.where/name": "value"}))
        (found,) = json.loads(bytes((await list_jobs(a_request(yard), all=True)).body))
        assert found["annotations"] == {"some.where/name": "value"}


def as_somebody(yard: RunningYard) -> Any:
    request = a_request(yard)
    request.state = SimpleNamespace()
    return request
