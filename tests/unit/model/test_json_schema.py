from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from jobyard.errors import UserError
from jobyard.model.checks import check
from jobyard.model.codec import encode
from jobyard.model.job import ArrayRange, Command, JobSpec
from jobyard.model.json_schema import schema_of
from jobyard.model.lines import Lines
from jobyard.model.training import Training
from jobyard.wire import views
from jobyard.wire.requests import CancelJob, SubmitJob
from tests.builders import a_group, a_job

VIEWS = [views.JobView, views.NodeView, views.TaskView, views.ServerView, views.PlanView, views.LogChunk]

# What is `Any` in a view is JSON; everything else is as its type hints say.
JSON = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(), st.lists, max_leaves=3)
INFERRED: dict[str, Any] = {field.name: ... for field in fields(views.JobView)}
ASKED = {"asked": st.dictionaries(st.text(), JSON)}
st.register_type_strategy(views.JobView, st.builds(views.JobView, **{**INFERRED, **ASKED}))


@pytest.mark.parametrize("kind", VIEWS)
@settings(max_examples=10)
@given(data=st.data())
def test_every_view_fits_its_schema(kind: type[Any], data: st.DataObject) -> None:
    schema = schema_of(kind, complete=True)
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(encode(data.draw(st.from_type(kind)), defaults=True))


@pytest.mark.parametrize(
    "spec",
    [
        a_job(),
        a_job(timeout_seconds=3.0, env={"A": "1"}, inherited_env={"BASH_FUNC_x%%": "1"}, training=Training(epochs=3)),
        a_job(groups=(replace(a_group(), array=ArrayRange(((0, 9, 1),)), completions=10),)),
        a_job(groups=(replace(a_group(), command=Command(lines=Lines.of(["a"]))),)),
    ],
)
def test_a_job_that_is_taken_fits_its_schema(spec: JobSpec) -> None:
    check(SubmitJob(spec))
    Draft202012Validator(schema_of(SubmitJob)).validate(json.loads(json.dumps(encode(SubmitJob(spec)))))


@pytest.mark.parametrize(
    "spec",
    [
        a_job(name=""),
        a_job(name="a\x1b"),
        a_job(name="x" * 301),
        a_job(timeout_seconds=-5.0),
        a_job(timeout_seconds=0.0),
        a_job(priority=10**7),
        a_job(env={"A=": "1"}),
        a_job(env={"A": "\0"}),
        a_job(workdir="/\0"),
        a_job(groups=tuple(a_group(f"g{n}") for n in range(257))),
        a_job(groups=(replace(a_group(), array=ArrayRange(())),)),
        a_job(groups=(replace(a_group(), array=ArrayRange(((0, 1, 0),))),)),
        a_job(training=Training(epochs=0)),
    ],
)
def test_a_limit_of_the_check_is_one_of_the_schema(spec: JobSpec) -> None:
    with pytest.raises(UserError):
        check(SubmitJob(spec))
    assert not Draft202012Validator(schema_of(SubmitJob)).is_valid(json.loads(json.dumps(encode(SubmitJob(spec)))))


@pytest.mark.parametrize("said", [{"task": []}, {"tasks": [1]}, {"force": 1}, []])
def test_what_the_codec_refuses_does_not_fit(said: Any) -> None:
    assert not Draft202012Validator(schema_of(CancelJob)).is_valid(said)


def test_a_field_with_a_default_may_be_left_out_of_a_request_and_never_is_of_an_answer() -> None:
    assert schema_of(CancelJob)["required"] == []
    assert schema_of(CancelJob)["properties"]["force"]["default"] is False
    assert schema_of(CancelJob, complete=True)["required"] == ["tasks", "force", "message", "states"]
