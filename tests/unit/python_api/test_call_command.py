"""Does a task run the call file that was submitted, whatever others put in its place?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobyard.python_api import call_file
from jobyard.python_api.call_command import command_of
from tests.unit.python_api.test_call_file import Ran, written

NOT_IT = "it is missing, or is not the file that the job was submitted with; submit the job again"


def test_a_script_in_place_of_the_file_is_not_run(tmp_path: Path) -> None:
    file = written(tmp_path, abs, -1)
    file.path.write_text("#!/bin/sh\ntouch ran\n")
    ran = Ran(file, tmp_path)
    assert (ran.code, ran.err.strip()) == (1, ran.sentence)
    assert ran.sentence.endswith(NOT_IT)
    assert not (tmp_path / "ran").exists()


def test_another_call_file_in_its_place_is_not_run(tmp_path: Path) -> None:
    file = written(tmp_path, abs, -1)
    other = written(tmp_path, lambda number: os.mkdir("ran"), -1)
    os.replace(other.path, file.path)
    assert Ran(file, tmp_path).sentence.endswith(NOT_IT)
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_gone_is_said_in_one_sentence(tmp_path: Path) -> None:
    file = written(tmp_path, abs, -1)
    file.remove()
    ran = Ran(file, tmp_path)
    assert ran.err.strip() == ran.sentence
    assert ran.sentence.endswith(NOT_IT)


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    file = written(tmp_path, abs, -1)
    file.remove()
    os.mkfifo(file.path)
    assert Ran(file, tmp_path).sentence.endswith(NOT_IT)


def test_arguments_that_were_changed_are_not_unpickled(tmp_path: Path) -> None:
    file = written(tmp_path, abs, *range(-9, 0))
    content = file.path.read_bytes()
    file.path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    ran = Ran(file, tmp_path, task=8)
    assert (ran.code, ran.outcomes) == (2, [])
    assert ran.sentence == "the arguments are not those that the job was submitted with; submit the job again"


def test_arguments_of_several_blocks_come_as_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_file, "_BLOCK", 100)
    texts = [str(number) * 40 for number in range(20)]
    file = written(tmp_path, str.upper, *texts, chunk=7)
    assert [value for task in range(3) for value in Ran(file, tmp_path, task).values] == texts


def test_modules_of_the_working_directory_do_not_hide_those_of_python(tmp_path: Path) -> None:
    for name in ("json", "hashlib", "zipfile", "array"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)")
    ran = Ran(written(tmp_path, abs, -3), tmp_path)
    assert (ran.code, ran.values) == (0, [3])


def test_the_command_is_short_for_people_and_names_the_file() -> None:
    command = command_of(".jobyard/train-12.call", "9-abc", "", in_container=False)
    assert str(command) == "call .jobyard/train-12.call 9-abc"
