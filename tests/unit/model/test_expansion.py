"""How large a command may become with the values of a task."""

from __future__ import annotations

import pytest

from jobyard.errors import UserError
from jobyard.model import interpreters
from jobyard.model.inputs import Column, Inputs, Source
from jobyard.model.interpreters import HOLE, judge
from jobyard.model.job import Command
from jobyard.model.lines import Lines
from jobyard.model.substitution import check
from tests.builders import one_column


def inputs(value: str, columns: int = 1) -> Inputs:
    return Inputs((Source(tuple(Column(Lines.of([value])) for _ in range(columns))),))


def test_a_command_that_stands_for_millions_of_values_is_refused_before_it_is_read() -> None:
    with pytest.raises(UserError, match=r"placeholders stand for 3,000,000 values; at most 100,000 are possible"):
        check(Command(shell="echo " + "{} " * 3000, inputs=inputs("a", 1000)))


@pytest.mark.parametrize("columns", [1, 2])
def test_a_word_that_no_program_could_be_started_with_is_refused(columns: int) -> None:
    with pytest.raises(UserError, match=r"a word of it can have .* bytes with its values; at most 131,071 fit"):
        check(Command(argv=("echo", "{1}" * 2000), inputs=inputs("x" * 60_000, columns)))


def test_a_line_of_bash_that_is_too_large_with_its_values_is_refused() -> None:
    with pytest.raises(UserError, match=r"it can have .* bytes with its values; at most 2,097,152 fit"):
        check(Command(shell="echo " + "{} " * 2000, inputs=inputs("x" * 131_000)))


def test_the_variable_of_all_values_must_fit_too() -> None:
    with pytest.raises(UserError, match="YARD_LINE, which holds all values of a task, can have 200,001 bytes"):
        check(Command(argv=("echo", "{1}"), inputs=inputs("x" * 100_000, 2)))


def test_long_values_that_fit_and_lines_of_an_older_kind_are_accepted() -> None:
    check(Command(argv=("echo", "{}"), inputs=inputs("x" * 131_000)))
    check(Command(shell="echo {} {}", inputs=inputs("\xe9" * 60_000)))
    check(Command(shell="echo {}", inputs=one_column(Lines.of(["x" * 131_000]))))


def test_the_words_after_a_word_are_not_looked_at_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    judged = interpreters._may_vanish

    def counted(word: str) -> bool:
        nonlocal looks
        looks += 1
        return judged(word)

    monkeypatch.setattr(interpreters, "_may_vanish", counted)
    assert not judge(["echo", *["x", HOLE] * 2000]).refusal
    assert looks < 10_000
