from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from jobyard.model.codec import encode
from jobyard.model.job import JobSpec
from jobyard.model.json_schema import schema_of
from jobyard.wire import views
from jobyard.wire.requests import CancelJob, SubmitJob

VIEWS = [views.JobView, views.NodeView, views.TaskView, views.ServerView, views.PlanView, views.LogChunk]


@pytest.mark.parametrize("kind", VIEWS)
@settings(max_examples=10)
@given(data=st.data())
def test_every_view_fits_its_schema(kind: type[Any], data: st.DataObject) -> None:
    schema = schema_of(kind, complete=True)
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(encode(data.draw(st.from_type(kind)), defaults=True))


@settings(max_examples=30)
@given(spec=st.from_type(JobSpec))
def test_every_job_fits_its_schema_as_it_is_sent(spec: JobSpec) -> None:
    sent = json.loads(json.dumps(encode(SubmitJob(spec))))
    Draft202012Validator(schema_of(SubmitJob)).validate(sent)


@pytest.mark.parametrize("said", [{"task": []}, {"tasks": [1]}, {"force": 1}, []])
def test_what_the_codec_refuses_does_not_fit(said: Any) -> None:
    assert not Draft202012Validator(schema_of(CancelJob)).is_valid(said)


def test_a_field_with_a_default_may_be_left_out_of_a_request_and_never_is_of_an_answer() -> None:
    assert schema_of(CancelJob)["required"] == []
    assert schema_of(CancelJob)["properties"]["force"]["default"] is False
    assert schema_of(CancelJob, complete=True)["required"] == ["tasks", "force", "message"]
