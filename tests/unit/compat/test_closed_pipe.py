"""`| head` closes a pipe early. That is no bug of ours, whichever command was writing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Each entry point writes more than a pipe holds, so that it fails inside the command and not at its end.
WRITE = "for _ in range(9): print('x' * 65536, flush=True)"
ENTRIES = {
    "ml_scheduler": f"""
from jobyard.compat.ml_scheduler.entry import main
def run(words):
    {WRITE}
main("execute_batch", run)
""",
    "kubeprofiler": f"""
from jobyard.compat.kubeprofiler.entry import main
def run(words):
    {WRITE}
main("scheduler-state", run)
""",
    "genai": f"""
from jobyard.compat.genai import __main__ as genai
@genai.group.command("write")
def write():
    {WRITE}
genai.main()
""",
}


def run_with_nobody_reading(program: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run([sys.executable, "-c", program, *words], stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)


@pytest.mark.parametrize("name", ENTRIES)
def test_a_closed_pipe_ends_a_command_without_a_word(name: str) -> None:
    done = run_with_nobody_reading(ENTRIES[name], "write")
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_broken_pipe_that_is_not_our_output_is_still_told() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENTRIES["ml_scheduler"].replace(WRITE, "raise BrokenPipeError")], capture_output=True
    )
    assert done.returncode == 1
    assert b"this is a bug in jobyard (BrokenPipeError)" in done.stderr


def test_a_batch_goes_on_to_its_end_when_nobody_reads_its_lines() -> None:
    program = """
from jobyard.compat.ml_scheduler.console import say, tell
from jobyard.compat.ml_scheduler.entry import main
def run(words):
    for number in range(9):
        tell("x" * 65536)
    say("the end")
    return 7
main("execute_batch", run)
"""
    done = run_with_nobody_reading(program)
    assert (done.returncode, done.stderr) == (7, b"execute_batch: the end\n")
