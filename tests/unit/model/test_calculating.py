"""Where bash calculates with a value, the value is code; and what a refusal says to write instead."""

from __future__ import annotations

import pytest

from jobyard.model.substitution import substituted
from jobyard.model.unsafe_placeholder import UnsafePlaceholder
from tests.unit.model.real_bash import EVIL, ONE_COLUMN, TWO_COLUMNS, run

IN_INDEX = "a[$(touch bad)]"


@pytest.mark.parametrize(
    ("template", "way_out"),
    [
        ("x={}; echo $((x+1))", "calculate with expr, as in expr {} + 1, and compare with [ ], as in [ {} -gt 1 ]"),
        ("echo $(({1}))", "as in expr {1} + 1"),
        ("x={}; ((x)) || [[ $x -gt 1 ]]", "or give it to a script as an argument (-- ./SCRIPT {})"),
        ("let x={}", "as in expr {} + 1"),
        ("[[ {} -gt 1 ]]", "compare with [ ], as in [ {} = b ] or [ {} -gt 1 ], or with case {} in"),
        ("RANDOM={}", "choose another name for the variable"),
        ("export RANDOM={}", "choose another name for the variable"),
    ],
)
def test_what_bash_calculates_with_is_code_and_the_refusal_says_what_to_write(template: str, way_out: str) -> None:
    """The first asserts that refusing is right: bash makes the file."""
    known = TWO_COLUMNS if "{1}" in template else ONE_COLUMN
    assert run(template.replace("{}", f"'{IN_INDEX}'").replace("{1}", IN_INDEX), "")[1] == ["bad"]
    with pytest.raises(UnsafePlaceholder) as refused:
        substituted(template, known)
    assert "bash runs the $(...) of a value such as a[$(...)]" in str(refused.value) or "let" in template
    assert way_out in str(refused.value)


@pytest.mark.parametrize("template", ["expr {} + 1", "[ {} -gt 1 ]", "[ {} = b ]", "case {} in x) ;; esac"])
@pytest.mark.parametrize("line", [IN_INDEX, EVIL])
def test_what_a_refusal_says_to_write_runs_nothing(template: str, line: str) -> None:
    assert run(substituted(template, ONE_COLUMN).shell, line)[1] == []


@pytest.mark.parametrize("code", ["y=$((1+1)); echo $x", "echo $[2*(3-1)] $x", "((1)) && echo $x"])
def test_arithmetic_of_numbers_alone_reads_no_variable(code: str) -> None:
    assert run(substituted(f"x={{}}; {code}", ONE_COLUMN).shell, IN_INDEX)[1] == []
