"""Help of every verb, and words of other systems."""

from __future__ import annotations

import re

import click
import pytest
from tests.unit.cli.conftest import Yard

from jobyard.cli.group import VERBS, command_of
from jobyard.cli.group import yard as yard_group
from jobyard.cli.help_sections import FIRST, FURTHER
from jobyard.cli.other_flags import OTHER_FLAGS
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


def all_verbs() -> list[tuple[str, ...]]:
    """With those of groups, as `nodes add`."""
    leaves = [(verb, each) for verb in VERBS for each in getattr(command_of(verb), "commands", ())]
    return [(), *((verb,) for verb in VERBS), *leaves]


@pytest.mark.parametrize("columns", [60, 80])
def test_the_help_of_every_verb_fits_the_terminal(yard: Yard, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    helps = {words: yard(*words, "--help").out for words in all_verbs()}
    assert {words: [line for line in text.splitlines() if len(line) > columns] for words, text in helps.items()} == {
        words: [] for words in helps
    }
    for words, text in helps.items():
        assert "[x>=" not in text, words
        assert "..." not in re.sub(r"[\]A-Z,)]\.\.\.|\.\.\. ?[)\]]", "", text), f"{words}: a sentence is cut"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_names_every_flag(yard: Yard, verb: str) -> None:
    command = command_of(verb)
    if isinstance(command, click.Group):
        return
    told = yard(verb, "--help-all" if verb in ("run", "submit") else "--help").out
    flags = [max(each.opts, key=len) for each in command.params if isinstance(each, click.Option) and not each.hidden]
    assert [flag for flag in flags if flag not in told] == []


@pytest.mark.parametrize("verb", ["run", "submit"])
def test_the_help_shows_values_after_three_colons(yard: Yard, verb: str) -> None:
    assert "'gzip -k {}' ::: *.log" in re.sub(r"\s+", " ", yard(verb, "--help").out)


@pytest.mark.parametrize("verb", ["run", "submit"])
def test_the_help_of_a_submit_begins_with_five_flags_and_help_all_has_every_flag_once(
    verb: str, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    short, whole = yard(verb, "--help").out, yard(verb, "--help-all").out
    assert [line for line in whole.splitlines() if len(line) > 60] == []
    first = short.split("The flags you need first:\n")[1].split("\n\n")[0]
    assert re.findall(r"--[\w-]+", first) == ["--cpus", "--mem", "--gpus", "--array", "--timeout"]
    assert "--image" not in short
    flags = whole.partition("The flags you need first")[2]
    options = [each for each in command_of(verb).params if isinstance(each, click.Option) and not each.hidden]
    for option in options:
        rows = re.findall(rf"^  (?:-\w, )?{max(option.opts, key=len)}(?:,? .*|)$", flags, re.MULTILINE)
        assert len(rows) == 1, option.opts


def test_the_sections_of_the_help_name_flags_that_there_are() -> None:
    known = {each.name for verb in ("run", "submit") for each in command_of(verb).params} | {"help", "help_all"}
    assert [name for _, names in (*FIRST, *FURTHER) for name in names.split() if name not in known] == []


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--time=1:00", "write --timeout TIME (-t)"),
        ("--job-name=x", "write --name NAME (-n)"),
        ("--ntasks=4", "write --workers N for N tasks that know of each other, or --array 1-N (-a)"),
        ("--mem-per-cpu=1G", "write --mem SIZE, for the whole task"),
        ("--gres=gpu:1", "write --gpus N (-G)"),
        ("--partition=x", "write --on NODE or --on LABEL; there are no partitions"),
        ("--dryrun", "write --dry-run"),
        ("--gpu-memory=1G", "as in `yard run FILE -- --gpu-memory`"),
        ("--array-rnage", "as in `yard run FILE -- --array-rnage`"),
        ("--reties=2", "(did you mean --retries?)"),
        ("--colour", "what a script shall have goes after --, as in `yard run FILE -- --colour`"),
    ],
)
def test_a_flag_of_another_system_is_answered_with_ours(yard: Yard, flag: str, says: str) -> None:
    result = yard("run", flag, "--", "true")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"yard: no such option {flag.partition('=')[0]}")
    assert says in result.err
    assert result.err.count("\n") == 1


def test_flags_of_other_systems_are_answered_with_flags_that_there_are() -> None:
    known = {word for each in command_of("run").params for word in each.opts}
    assert OTHER_FLAGS.keys().isdisjoint(known)
    for sentence in OTHER_FLAGS.values():
        assert set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", sentence)) <= known, sentence


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
        ("clean", "`yard rm --state ended` removes what has ended, and `yard gc` what is older"),
        (
            "pause",
            "a job cannot be paused: stop it with `yard cancel JOB` and run it again with `yard retry JOB`; a tr",
        ),
        (
            "hold",
            "a job that waits is not held back: `yard cancel JOB` takes it out of the queue, `yard retry JOB` put",
        ),
        ("release", "yard's word is `yard retry JOB`"),
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


def test_what_scontrol_is_told_to_do_is_answered(yard: Yard) -> None:
    assert yard("scontrol", "hold", "17") == yard("hold", "17")
    assert "`yard show JOB`" in yard("scontrol", "show", "job", "17").err


def test_words_of_other_systems_name_verbs_that_there_are() -> None:
    assert len(OTHER_WORDS) >= 60
    assert OTHER_WORDS.keys().isdisjoint(VERBS)
    for sentence in OTHER_WORDS.values():
        for verb in re.findall(r"`yard ([a-z]\S*)[^`]*`", sentence):
            assert verb in VERBS
