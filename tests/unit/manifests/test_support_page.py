"""Page of executors: is docs/executors.md what the tables say, and do they call fields as flags and keys do?"""

from __future__ import annotations

from pathlib import Path

import pytest

from jobyard.manifests.declarations import JobField, flags_of, spelled
from jobyard.manifests.job_fields import CONTAINER, JOB, KUBERNETES, POLICY, STAGING, TRAINING
from jobyard.manifests.support_page import page
from jobyard.model.executor_kinds import ExecutorKind
from jobyard.model.field_support import FIELDS, NOT_OF_AN_EXECUTOR, SECTIONS
from jobyard.model.verb_support import VERBS

PAGE = Path(__file__).parents[3] / "docs" / "executors.md"
CALLED = {row.at: row.called for row in FIELDS}
PLACED = {
    key: field
    for table in (JOB, POLICY, CONTAINER, KUBERNETES, STAGING, TRAINING)
    for key, field in table.items()
    if field.at
}


def test_the_page_of_executors_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m jobyard.manifests.support_page > docs/executors.md"


def test_the_page_has_a_line_for_each_row_and_a_word_for_each_cell() -> None:
    text = page()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(FIELDS) + len(VERBS)
    assert {line.count(" | ") for line in rows} == {len(ExecutorKind)}
    assert all(f"## {title}" in text for title, _ in SECTIONS)


@pytest.mark.parametrize(("key", "field"), PLACED.items())
def test_a_flag_or_key_with_a_place_has_a_row_that_calls_it_so(key: str, field: JobField) -> None:
    assert field.at in CALLED or field.at in NOT_OF_AN_EXECUTOR
    flags = [spelled(name) for name in flags_of({key: field})]
    assert CALLED[field.at] == (flags[0] if flags else key)
