"""GNU parallel's words for when a job ends early."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.builders import a_job
from tests.unit.manifests.conftest import Load

from jobyard.errors import UserError
from jobyard.manifests.command import spec_from_command
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.halting import with_halt
from jobyard.manifests.input_words import split_inputs
from jobyard.manifests.overrides import Overrides, apply
from jobyard.manifests.skipping import only
from jobyard.model.policy import FailurePolicy, RunPolicy


@pytest.mark.parametrize(
    ("text", "max_fails", "enough", "soon"),
    [
        ("now,fail=1", 0, None, False),
        ("2", 0, None, False),
        ("soon,fail=3", 2, None, True),
        ("1", 0, None, True),
        ("soon,fail=10%", 9, None, True),
        ("now,fail=1%", 2, None, False),  # at least three, as GNU parallel has it
        ("now,success=1", None, 1, False),
        ("-1", None, 1, True),
        ("now,success=50%", None, 50, False),
        ("never", None, None, False),
        ("0", None, None, False),
    ],
)
def test_each_word_is_a_run_policy(text: str, max_fails: int | None, enough: int | None, soon: bool) -> None:
    policy = with_halt(a_job(100), text, "--halt").policy
    assert (policy.max_fails, policy.enough_successes, policy.lets_running_end) == (max_fails, enough, soon)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fail=1", "cannot read 'fail=1'; write now,fail=1"),
        ("later,fail=1", "cannot read"),
        ("now,fail=0", "before it begins"),
        ("now,fail=200%", "1% to 100%"),
        ("now,done=3", "write fail= or success="),
        ("", "cannot read"),
    ],
)
def test_what_cannot_be_said_is_refused_with_what_can(text: str, told: str) -> None:
    with pytest.raises(UserError, match=f"--halt: .*{told}"):
        with_halt(a_job(100), text, "--halt")


def test_a_share_is_of_the_tasks_that_the_flags_make(context: SubmitContext) -> None:
    spec = apply(a_job(), Overrides(array="0-99", halt="soon,fail=10%"), context)
    assert spec.policy.max_fails == 9


def test_a_share_is_of_the_tasks_that_are_left(context: SubmitContext, load: Load, tmp_path: Path) -> None:
    for number in range(90):
        (tmp_path / str(number)).touch()
    words, inputs = split_inputs(["x", "{}", ":::", *map(str, range(100))])
    flags = Overrides(halt="soon,fail=50%", inputs=inputs)
    assert spec_from_command(words, flags.with_words(skip_existing="{}"), context).policy.max_fails == 4
    context = replace(context, leave_out=(lambda spec: only(spec, lambda number: number < 20, "--resume", "are done"),))
    assert spec_from_command(words, flags, context).policy.max_fails == 9
    manifest = "command: x {n}\nsweep: {n: 0..99}\nskip_existing: '{n}'\n"
    assert load(manifest, overrides=Overrides(halt="soon,fail=50%")).policy.max_fails == 4


ENDS_EARLY = RunPolicy(
    max_fails=3, enough_successes=2, lets_running_end=True, on_failure=FailurePolicy.STOP, priority=7, retries=1
)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("never", RunPolicy(priority=7, retries=1)),
        ("now,fail=2", RunPolicy(priority=7, retries=1, max_fails=1)),
        ("soon,success=1", RunPolicy(priority=7, retries=1, enough_successes=1, lets_running_end=True)),
    ],
)
def test_what_the_job_said_of_an_early_end_counts_no_more(text: str, policy: RunPolicy) -> None:
    assert with_halt(replace(a_job(9), policy=ENDS_EARLY), text, "--halt").policy == policy


def test_a_gang_that_goes_on_after_a_failure_still_does() -> None:
    goes_on = RunPolicy(on_failure=FailurePolicy.CONTINUE)
    assert with_halt(replace(a_job(2, gang=True), policy=goes_on), "never", "--halt").policy == goes_on


def test_workers_that_flags_make_are_a_gang_too(context: SubmitContext) -> None:
    with pytest.raises(UserError, match="--halt: 'now,fail=1': the tasks of a gang end together; leave it out"):
        apply(a_job(), Overrides(halt="now,fail=1", workers="2"), context)
    with pytest.raises(UserError, match=r"--output: all 2 tasks would write .*; put %t, the task, into it"):
        apply(a_job(), Overrides(output="log", workers="2"), context)


def test_a_flag_replaces_what_a_line_of_the_file_says_of_an_early_end(context: SubmitContext, load: Load) -> None:
    for line, flag, most in (
        ("--max-fails 3", {"halt": "never"}, None),
        ("--max-fails 3", {"halt": "now,fail=1"}, 0),
        ("--halt soon,fail=2", {"max_fails": "5"}, 5),
    ):
        policy = load(f"#YARD {line}\ntrue\nfalse\n", "list", Overrides(**flag)).policy
        assert (policy.max_fails, policy.lets_running_end) == (most, False)


def test_two_words_for_one_thing_are_refused(context: SubmitContext) -> None:
    with pytest.raises(UserError, match="--halt and --max-fails"):
        apply(a_job(9), Overrides(max_fails="3", halt="now,fail=1"), context)
