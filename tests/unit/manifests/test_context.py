from __future__ import annotations

from tests.builders import a_job

from jobyard.manifests.context import SubmitContext, as_notes
from jobyard.model.checks import check
from jobyard.wire.requests import SubmitJob


def test_notes_are_as_many_and_as_long_as_a_job_may_have() -> None:
    few, many = ["one", "two"], [f"note {n}" for n in range(99)]
    assert as_notes(few) == ("one", "two")
    assert as_notes(many)[-2:] == ("note 30", "and 68 notes more")
    assert SubmitContext("/").submitter("aichor", many).notes == as_notes(many)
    check(SubmitJob(a_job(notes=as_notes(["x" * 10_000] * 99))))
