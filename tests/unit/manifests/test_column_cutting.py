"""Are lines cut where the expression matches, and does one that never ends get a sentence?"""

from __future__ import annotations

import os

import pytest
from tests.unit.manifests.test_inputs import a_job

from jobyard.errors import UserError
from jobyard.manifests import column_cutting
from jobyard.manifests.column_cutting import CuttingFailed, cut_lines
from jobyard.manifests.context import SubmitContext


@pytest.mark.parametrize(
    ("colsep", "line", "values"),
    [
        (",", "a,b,,c", ["a", "b", "", "c"]),
        (r"\s+", "a  b\tc", ["a", "b", "c"]),
        (r"\s*,\s*", "a , b,c", ["a", "b", "c"]),
        ("(-)+", "a--b-ü", ["a", "b", "ü"]),
        ("(x?)", "ab", ["ab"]),
        (r"\||;", "a|b;\ud800c", ["a", "b", "\ud800c"]),
    ],
)
def test_lines_are_cut_where_the_expression_matches(colsep: str, line: str, values: list[str]) -> None:
    assert cut_lines(colsep, [line, "last"]) == [values, ["last"]]


@pytest.mark.parametrize("colsep", ["(a+)+$", "(a|a)*b", "(a|aa)+$"])
def test_an_expression_that_never_ends_is_refused_in_one_sentence(
    colsep: str, context: SubmitContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_cutting, "SECONDS_MOST", 1.0)
    with pytest.raises(UserError, match=r"has not cut the lines within 1 seconds; .* may never end: write one repeat$"):
        a_job(f"echo ::: {'a' * 60}c", context, colsep=colsep)


def test_a_process_that_dies_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_cutting, "__file__", os.devnull + "/none")
    with pytest.raises(CuttingFailed, match=r"^'\(a\)' could not cut the lines: .*; write a simpler one$"):
        cut_lines("(a)", ["a"])
