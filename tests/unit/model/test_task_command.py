"""The command of one task, for people."""

from __future__ import annotations

import pytest

from jobyard.model.job import Command, GroupSpec, Lines, Script
from jobyard.model.task_command import task_command_text
from tests.builders import a_job

NAMES = Lines.of(["a", "b c"])


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (Command(lines=Lines.of(["echo a", "echo b | wc"])), "echo b | wc"),
        (Command(argv=("ls", "-l", "x{}y"), entries=NAMES), "ls -l 'xb cy'"),
        (Command(shell="wc -l < {}", entries=NAMES), "wc -l < 'b c'"),
        (Command(argv=("{}",), script=Script("go.sh", "#!/bin/sh\n"), entries=NAMES), "go.sh 'b c'"),
        (Command(argv=("python", "train.py")), "python train.py"),
    ],
)
def test_a_tasks_command_has_its_own_line(command: Command, text: str) -> None:
    spec = a_job(groups=(GroupSpec(Command(shell="true"), name="a"), GroupSpec(command, name="b", completions=2)))
    assert task_command_text(spec, 2) == text
