"""Verb support: does the table have each verb of the command line that is for a job, and only flags that there are?"""

from __future__ import annotations

import click

from jobyard.cli.group import VERBS, command_of
from jobyard.model import verb_support

ROWS = [row.verb.split() for row in verb_support.VERBS]


def test_every_verb_that_is_for_a_job_has_a_row() -> None:
    of_jobs = {
        verb
        for verb in VERBS
        for each in command_of(verb).params
        if isinstance(each, click.Argument) and each.name in ("job", "jobs")
    }
    assert of_jobs - {verb for verb, *_ in ROWS} == set()
    assert {"exec", "port-forward", "cancel", "retry"} <= of_jobs


def test_a_row_names_a_verb_and_a_flag_that_there_are() -> None:
    assert len({tuple(row) for row in ROWS}) == len(ROWS)
    for verb, *flags in ROWS:
        known = {flag for each in command_of(verb).params for flag in each.opts}
        assert set(flags) <= known, verb
