"""What tasks read as their standard input: nothing, or all the same bytes."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from tests.unit.agent.agent_process import AgentProcess, Client

from jobyard.agent.execution.standard_input import StandardInput
from jobyard.agent_protocol import messages

BYTES = b"one\n\0\xff two"


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_each_task_reads_it_from_its_beginning(agent: AgentProcess, server: Client) -> None:
    server.send(op="job", job="k", env={"PATH": os.environ["PATH"]}, workdir=str(agent.work), stdin=encoded(BYTES))
    server.launch("t", {"id": "k.0.1", "argv": ["cat"]}, {"id": "k.1.1", "shell": "cat; echo; cat"}, job="k")
    assert server.finished("k.0.1")["exit_code"] == 0
    assert server.finished("k.1.1")["exit_code"] == 0
    assert Path(agent.files("k.0.1").out).read_bytes() == BYTES
    assert Path(agent.files("k.1.1").out).read_bytes() == BYTES + b"\n"


def test_without_any_there_is_nothing_to_read(tmp_path: Path) -> None:
    standard_input = StandardInput(str(tmp_path))
    standard_input.enter_job({"stdin": None})
    assert standard_input.path() == "/dev/null"


def test_it_leaves_no_file_and_changes_with_the_job(tmp_path: Path) -> None:
    standard_input = StandardInput(str(tmp_path))
    for content in (BYTES, b""):
        standard_input.enter_job({"stdin": encoded(content)})
        for _ in range(2):
            assert Path(standard_input.path()).read_bytes() == content
        assert list(tmp_path.iterdir()) == []
    standard_input.enter_job({})


@pytest.mark.parametrize("wrong", [7, "no base64!", "YQ"])
def test_what_is_no_base64_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"stdin|base64|padding"):
        messages.job({"job": "j", "stdin": wrong})
