"""Help of every verb, and words of other systems."""

from __future__ import annotations

import re

import pytest
from tests.unit.cli.conftest import Yard

from jobyard.cli.group import VERBS
from jobyard.cli.group import yard as yard_group
from jobyard.cli.other_words import OTHER_WORDS


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_json(verb: str, yard: Yard) -> None:
    context = yard_group.make_context("yard", [verb, "--help"], resilient_parsing=True)
    command = yard_group.get_command(context, verb)
    assert command is not None
    leaves = getattr(command, "commands", {"": command}).values()
    for leaf in leaves:
        assert any("--output" in parameter.opts for parameter in leaf.params), leaf.name
    result = yard(verb, "--help")
    assert result.code == 0
    assert f"Usage: yard {verb}" in result.out


@pytest.mark.parametrize("words", [(), ("ls",), ("show",), ("attach",), ("wait",)])
def test_help_fits_60_columns(words: tuple[str, ...], yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert [line for line in yard(*words, "--help").out.splitlines() if len(line) > 60] == []


def test_the_help_lists_every_verb(yard: Yard) -> None:
    lines = yard("--help").out.splitlines()
    assert [name for name in VERBS if not any(line.startswith(f"  {name} ") for line in lines)] == []


@pytest.mark.parametrize("words", [(), ("run",), ("nodes",), ("nodes", "drain")])
def test_help_before_a_verb_is_the_option_behind_it(yard: Yard, words: tuple[str, ...]) -> None:
    asked = yard("help", *words)
    assert asked == yard(*words, "--help")
    assert asked.code == 0
    assert f"Usage: yard {' '.join(words)}".rstrip() in asked.out


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("squeue", "yard's word is `yard ls`"),
        ("sbatch", "yard's word is `yard submit`"),
        ("kill", "yard's word is `yard cancel JOB`"),
        ("clean", "yard's word is `yard gc`"),
        (
            "pause",
            "a job cannot be paused: stop it with `yard cancel JOB` and run it again with `yard retry JOB`; a tr",
        ),
        ("renice", "yard's word is `yard priority JOB N`"),
        ("cancle", "did you mean `yard cancel`?"),
        ("shwo", "did you mean `yard show`?"),
    ],
)
def test_a_word_of_another_system_is_answered_with_ours(yard: Yard, word: str, says: str) -> None:
    result = yard(word)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"yard: no verb {word!r}; {says}")
    assert result.err.count("\n") == 1


def test_words_of_other_systems_name_verbs_that_there_are() -> None:
    assert len(OTHER_WORDS) >= 60
    assert OTHER_WORDS.keys().isdisjoint(VERBS)
    for sentence in OTHER_WORDS.values():
        for verb in re.findall(r"`yard ([a-z]\S*)[^`]*`", sentence):
            assert verb in VERBS
