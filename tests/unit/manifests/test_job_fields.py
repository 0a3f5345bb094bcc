"""Job fields: is one declaration an option, a flag after #YARD, a manifest key, a schema and a row of the page?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.builders import a_job

from jobyard.cli.submitting import job_option
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.declarations import JobField, Option, put, with_keys
from jobyard.manifests.documents import parse_documents
from jobyard.manifests.field_page import page, row
from jobyard.manifests.fields import Whole
from jobyard.manifests.job_fields import FLAGGED, TOP_LEVEL, TRAINING
from jobyard.manifests.native import manifest_of
from jobyard.manifests.overrides import Overrides, apply
from jobyard.model.job import JobSpec

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "job-fields.md"
NEW = JobField(
    Whole(1, 9), "How urgent it is.", 1, at="policy.priority", option=Option("How urgent.", "N", also=("-U",))
)


@pytest.fixture
def urgency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FLAGGED, "urgency", NEW)


@pytest.mark.usefixtures("urgency")
def test_a_new_declaration_is_an_option_that_changes_the_job(context: SubmitContext) -> None:
    found: list[JobSpec] = []

    @click.command()
    @job_option("urgency", NEW)
    def command(**given: Any) -> None:
        found.append(apply(a_job(), Overrides(**given), context))

    shown = CliRunner().invoke(command, ["--help"]).output
    assert "-U, --urgency N  How urgent." in shown
    for words in (["-U", "7"], ["--urgency", "7"]):
        assert CliRunner().invoke(command, words, catch_exceptions=False).exit_code == 0
    assert [spec.policy.priority for spec in found] == [7, 7]


def test_a_new_declaration_is_a_key_with_a_schema() -> None:
    table = {"urgency": NEW}
    manifest = manifest_of(*TOP_LEVEL, table)
    (document,) = parse_documents("command: x\nurgency: 7\n", "job.yaml")
    spec = with_keys(a_job(), table, manifest.read(document, ""))
    assert spec.policy.priority == 7
    schema = {"type": "integer", "minimum": 1, "maximum": 9, "description": "How urgent it is.", "default": 1}
    assert manifest.schema()["properties"]["urgency"] == schema


def test_a_new_declaration_is_a_row_of_the_page() -> None:
    assert row("urgency", NEW) == "| `-U`, `--urgency` `N` | `urgency` | How urgent it is. |"


def test_a_flag_that_waits_for_a_job_says_for_which_end() -> None:
    option = FLAGGED["after"].option
    assert option is not None
    assert option.help == "Start when JOB has succeeded, or with afterany: has ended."


def test_the_page_has_the_rows_of_the_tables() -> None:
    assert PAGE.read_text() == page(), "run: python -m jobyard.manifests.field_page > docs/guide/job-fields.md"


@pytest.mark.parametrize("field", [field for table in (*TOP_LEVEL, TRAINING) for field in table.values() if field.at])
def test_every_place_is_in_the_spec(field: JobField) -> None:
    part, _, name = field.at.rpartition(".")
    spec = put(a_job(), field.at, None)
    inside = getattr(spec, part) if part else spec
    assert is_dataclass(inside)
    assert name in {each.name for each in fields(inside)}


def test_a_default_of_the_schema_is_that_of_the_spec() -> None:
    """A key that is left out changes nothing, so what the schema says of it must be what the spec has."""
    made: dict[str, Callable[[Any], Any]] = {"training.idle_gpu_stop": lambda word: word == "stop"}
    for field in (field for table in (*TOP_LEVEL, TRAINING) for field in table.values()):
        if field.at and field.default is not None:
            part, _, name = field.at.rpartition(".")
            spec = put(a_job(), "training.epochs", None)
            known = getattr(getattr(spec, part) if part else spec, name)
            assert made.get(field.at, lambda value: value)(field.default) == known
