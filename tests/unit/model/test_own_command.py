"""What each task runs, as people are told."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from jobyard.model.job import Command, GroupSpec, JobSpec, Script
from jobyard.model.lines import Lines
from jobyard.model.own_command import own_command, seq_of
from tests.builders import one_column


def a_job(command: Command, tasks: int = 1) -> JobSpec:
    return JobSpec("job", (GroupSpec(command, completions=tasks),))


def test_a_task_of_a_list_has_its_own_line() -> None:
    spec = a_job(Command(lines=Lines.of(["echo a", "echo 'b c'"])), 2)
    assert [own_command(spec, number) for number in range(2)] == ["echo a", "echo 'b c'"]


def test_each_group_has_its_own_command() -> None:
    first = GroupSpec(Command(argv=("serve",)), "a", completions=2)
    second = GroupSpec(Command(lines=Lines.of(["one", "two"])), "b", completions=2)
    assert [own_command(JobSpec("job", (first, second)), n) for n in range(4)] == ["serve", "serve", "one", "two"]


@pytest.mark.parametrize(
    ("command", "line", "told"),
    [
        (Command(argv=("gzip", "-k", "{}")), "a b", "gzip -k 'a b'"),
        (Command(argv=("./do",)), "a b", "YARD_LINE='a b' ./do"),
        (Command(shell="wc {} | sort"), "a.txt", "wc a.txt | sort"),
        (
            Command(shell="echo '{}' \"{}\""),
            "$(id) 'x",
            "YARD_LINE='$(id) '\"'\"'x'; echo ''\"${YARD_LINE}\"'' \"${YARD_LINE}\"",
        ),
        (Command(script=Script("do.sh", "#!/bin/sh\n"), argv=("x",)), "l", "YARD_LINE=l do.sh x"),
        (Command(script=Script("do.sh", "#!/bin/sh\n"), argv=("{}",)), "a b", "do.sh 'a b'"),
    ],
)
def test_a_line_stands_in_the_command_that_it_is_for(command: Command, line: str, told: str) -> None:
    entries = Lines.of([line])
    assert (
        own_command(a_job(Command(command.argv, command.shell, None, command.script, one_column(entries))), 0) == told
    )


@pytest.mark.parametrize("shell", ["echo {}", "echo '{}'", 'echo "{}"', "echo x{}y; echo {}"])
@pytest.mark.parametrize("line", ["plain", "two words", "'; echo evil", "$(echo evil)", '"'])
def test_what_is_told_does_in_bash_what_the_task_does(shell: str, line: str) -> None:
    told = own_command(a_job(Command(shell=shell, inputs=one_column(Lines.of([line])))), 0)
    said = subprocess.run(["bash", "-c", told], capture_output=True, text=True, check=True).stdout
    assert said == {"echo x{}y; echo {}": f"x{line}y\n{line}\n"}.get(shell, f"{line}\n")


def test_a_task_keeps_its_seq_when_others_are_left_out() -> None:
    inputs = replace(one_column(Lines.of(list("abcde"))), chosen=((1, 1), (3, 4)))
    spec = a_job(Command(shell="echo {#} {}", inputs=inputs), 3)
    assert [seq_of(spec, number) for number in range(3)] == [2, 4, 5]
    assert [own_command(spec, number) for number in range(3)] == ["echo 2 b", "echo 4 d", "echo 5 e"]


def test_seq_counts_all_tasks_of_a_job_of_several_groups() -> None:
    groups = [GroupSpec(Command(shell="echo {}", inputs=one_column(Lines.of("ab"))), n, completions=2) for n in "xy"]
    assert [seq_of(JobSpec("job", tuple(groups)), number) for number in range(4)] == [1, 2, 3, 4]
