"""A warning where something is piped to a command whose tasks do not read it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn
from tests.unit.client.views import a_job_view

from jobyard.model.job import State

WARNING = "stdin is a pipe that no task reads; --stdin - hands it to each task, --each-line - makes a task of each line"


@contextmanager
def piped(content: bytes) -> Iterator[None]:
    """As in `echo ... | yard`. No fixture: pytest has a stdin of its own for each phase of a test."""
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    before = os.dup(0)
    os.dup2(reader, 0)
    os.close(reader)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


@pytest.fixture(autouse=True)
def submitted(stand_in: StandIn) -> None:
    stand_in.on("POST /jobs", Said(201, a_job_view(State.PENDING)))


@pytest.mark.parametrize(
    ("content", "words", "is_told"),
    [
        (b"data", ["--", "cat"], True),
        (b"", ["--", "cat"], False),
        (b"data", ["-q", "--", "cat"], False),
        (b"data", ["--stdin", "-", "--", "cat"], False),
        (b"data", ["--each-line", "-", "--", "echo", "{}"], False),
        (b"echo a", ["-"], False),
    ],
)
def test_data_that_no_task_reads_is_told_of_once(yard: Yard, content: bytes, words: list[str], is_told: bool) -> None:
    with piped(content):
        result = yard("submit", *words)
    assert result.code == 0, result.err
    assert result.err.count(WARNING) == is_told


def test_a_command_without_values_of_a_pipe_is_told_how_it_has_them(yard: Yard) -> None:
    with piped(b"1"):
        result = yard("run", "--cat", "echo", "{}")
    assert result.code == 2
    assert "for a task of each line that is piped to it: yard run --cat -- echo {} :::: -" in result.err


def test_what_was_piped_goes_with_the_job(yard: Yard, stand_in: StandIn) -> None:
    with piped(b"data"):
        yard("submit", "--stdin", "-", "--", "cat")
    assert stand_in.calls("POST /jobs")[-1].body["spec"]["staging"]["stdin"] == "ZGF0YQ=="
