"""Does a function that was written into a file run in a task as it would here, and is what cannot be sent refused?"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobyard.errors import TaskFailed, UserError
from jobyard.python_api import call_file, pickling
from jobyard.python_api.call_command import command_of
from jobyard.python_api.call_file import CallFile, delete_forgotten, job_of, read_counts
from jobyard.python_api.call_folder import FOLDER
from jobyard.python_api.functions import calls_of
from jobyard.python_api.in_task import RESULT, check_python
from jobyard.python_api.outcomes import Outcome, RemoteTraceback, _read

LOCK = threading.Lock()


def written(work: Path, function: Callable[..., Any], *arguments: Any, chunk: int = 1) -> CallFile:
    calls = calls_of(function, [((each,), {}) for each in arguments], chunk=chunk, python="")
    return call_file.write(calls, work, "train")


class Ran:
    """One task that has run a call file as a machine would."""

    def __init__(
        self, file: CallFile, work: Path, task: int = 0, env: Mapping[str, str] = {}, python: str = ""
    ) -> None:
        output, error = work / "output", work / "error"
        output.mkdir(exist_ok=True)
        environ = {"PATH": os.environ["PATH"], "YARD_TASK": str(task), **env}
        environ |= {"YARD_OUTPUT_DIR": str(output), "YARD_ERROR_FILE": str(error)}
        command = command_of(f"{FOLDER}/{file.path.name}", file.seal, python, in_container=False)
        assert command.script is not None
        argv = ["sh", "-c", command.script.text, command.script.name, *command.argv]
        done = subprocess.run(argv, cwd=work, env=environ, capture_output=True, text=True)
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.sentence = error.read_text() if error.exists() else ""
        result = output / RESULT
        self.outcomes: list[Outcome] = _read(result.read_bytes(), str(task)) if result.exists() else []

    @property
    def values(self) -> list[Any]:
        return [outcome.value for outcome in self.outcomes]

    @property
    def error(self) -> BaseException:
        error = self.outcomes[0].error
        assert error is not None
        return error


def test_a_function_runs_with_its_own_argument_and_its_result_comes_back(tmp_path: Path) -> None:
    offset = 100

    def add(number: int) -> dict[str, int]:
        print("adding", number)
        return {"sum": number + offset}

    file = written(tmp_path, add, 1, 2, 3)
    assert file.tasks == 3
    ran = Ran(file, tmp_path, task=1)
    assert (ran.code, ran.out, ran.values) == (0, "adding 2\n", [{"sum": 102}])


def test_a_task_makes_all_calls_of_its_chunk_and_the_last_one_what_is_left(tmp_path: Path) -> None:
    file = written(tmp_path, lambda number: number * number, *range(7), chunk=3)
    assert file.tasks == 3
    assert [Ran(file, tmp_path, task).values for task in range(3)] == [[0, 1, 4], [9, 16, 25], [36]]
    assert read_counts(file.path) == file


def test_modules_of_the_working_directory_are_found_where_the_tree_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "lib").mkdir(parents=True)
    (here / "lib" / "mine_of_this_test.py").write_text("def triple(number):\n    return 3 * number\n")
    monkeypatch.syspath_prepend(str(here / "lib"))
    import mine_of_this_test  # type: ignore[import-not-found]

    file = written(here, mine_of_this_test.triple, 5)
    here.rename(there)
    assert Ran(file, there).values == [15]


def test_an_error_is_raised_again_with_the_traceback_of_the_task(tmp_path: Path) -> None:
    class Wrong(ValueError):
        pass

    def fail(number: int) -> None:
        raise Wrong(f"{number} is wrong")

    ran = Ran(written(tmp_path, fail, 4), tmp_path)
    assert ran.code == 1
    assert ran.sentence.endswith("Wrong: 4 is wrong")
    assert isinstance(ran.error, Wrong)
    assert isinstance(ran.error.__cause__, RemoteTraceback)
    assert 'raise Wrong(f"{number} is wrong")' in str(ran.error.__cause__)
    assert "in fail" in ran.err
    assert "in_task" not in ran.err
    assert "__main__.py" not in ran.err


def test_one_call_that_fails_leaves_the_others_of_its_task_their_results(tmp_path: Path) -> None:
    ran = Ran(written(tmp_path, lambda number: 1 // number, 1, 0, 1, chunk=3), tmp_path)
    assert ran.code == 1
    assert ran.values == [1, None, 1]
    assert isinstance(ran.outcomes[1].error, ZeroDivisionError)


def test_an_error_that_cannot_be_made_again_comes_as_a_sentence(tmp_path: Path) -> None:
    class Odd(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__("odd")

    def fail(number: int) -> None:
        raise Odd(1, 2)

    error = Ran(written(tmp_path, fail, 4), tmp_path).error
    assert isinstance(error, TaskFailed)
    assert str(error).endswith("Odd: odd")


def test_a_result_that_cannot_be_pickled_fails_the_task_in_one_sentence(tmp_path: Path) -> None:
    ran = Ran(written(tmp_path, lambda _: threading.Lock(), 1), tmp_path)
    assert ran.code == 1
    assert "cannot be sent back: cannot pickle '_thread.lock' object; return something that" in str(ran.error)
    assert ran.err.strip() == ran.sentence == str(ran.error)


def test_a_result_that_is_too_large_fails_the_task_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_file, "RESULT_BYTES_MOST", 1 << 20)
    ran = Ran(written(tmp_path, lambda _: bytes(3 << 20), 1), tmp_path)
    assert "has 3 MiB pickled, more than 1; write it to a file in YARD_OUTPUT_DIR" in str(ran.error)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_an_exit_within_a_function_is_an_error_of_the_call_and_none_of_the_caller(
    tmp_path: Path, kind: type[BaseException]
) -> None:
    def leave(number: int) -> int:
        if number == 0:
            raise kind(number)
        return number

    ran = Ran(written(tmp_path, leave, 0, 7, chunk=2), tmp_path)
    assert ran.code == 1
    assert isinstance(ran.error, TaskFailed)
    name = "asyncio.exceptions.CancelledError" if kind is asyncio.CancelledError else kind.__name__
    assert str(ran.error) == f"the function ended with {name}: 0"
    assert "in leave" in str(ran.error.__cause__)
    assert ran.values == [None, 7]


def test_a_result_that_ends_the_program_as_it_is_pickled_is_an_error_of_the_call(tmp_path: Path) -> None:
    class Exits:
        def __reduce__(self) -> str:
            sys.exit(0)

    ran = Ran(written(tmp_path, lambda _: Exits(), 1), tmp_path)
    assert ran.code == 1
    assert "cannot be sent back: 0; return something that" in str(ran.error)


def test_another_minor_version_of_python_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = types.SimpleNamespace(**{name: getattr(sys, name) for name in ("path", "prefix", "base_prefix", "modules")})
    other.version_info, other.executable = (3, 99), sys.executable
    monkeypatch.setattr(call_file, "sys", other)
    ran = Ran(written(tmp_path, abs, 1), tmp_path)
    assert ran.code == 2
    assert ran.err.startswith(f"the function was sent by Python 3.99, and {sys.executable} is Python 3.")
    assert "install Python 3.99 there, name one with python='/path/to/python'" in ran.sentence
    assert len(ran.err.splitlines()) == 1
    assert check_python(list(sys.version_info[:2])) == ""


def test_a_python_that_is_not_there_is_named_and_never_run_as_code(tmp_path: Path) -> None:
    ran = Ran(written(tmp_path, abs, 1), tmp_path, python="/no/$(touch ran)/python'")
    assert ran.code == 127
    assert "no Python is here under any of these names: /no/$(touch ran)/python'; install" in ran.err
    assert not (tmp_path / "ran").exists()


# -- what cannot be sent


def use_lock(number: int) -> None:
    with LOCK:
        print(number)


class OnGpu:
    is_cuda = True


@pytest.mark.parametrize(
    ("function", "argument", "sentence"),
    [
        (lambda number: use_lock, 1, ""),
        (use_lock, 1, ""),  # of a module that the task imports: its lock is made there
        (
            lambda number, lock=LOCK: lock,
            1,
            "the function <lambda> cannot be sent to a task: cannot pickle '_thread.lock'",
        ),
        (partial(print, LOCK), 1, "the function print cannot be sent to a task: cannot pickle '_thread.lock' object"),
        (abs, LOCK, "argument 0 cannot be sent to a task: cannot pickle '_thread.lock' object; make it inside"),
        (abs, (each for each in [1]), "argument 0 cannot be sent to a task: cannot pickle 'generator' object"),
        (abs, bytes(2 << 20), "argument 0 has 2 MiB pickled, more than 1; write it to a file in the working directory"),
        (abs, [OnGpu()], r"argument 0 cannot be sent .*: it has a OnGpu on a GPU, .* pass it on with \.cpu\(\)"),
    ],
)
def test_what_cannot_be_sent_is_refused_and_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], argument: Any, sentence: str
) -> None:
    monkeypatch.setattr(pickling, "ARGUMENT_BYTES_MOST", 1 << 20)
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    if not sentence:
        assert written(tmp_path, function, argument).count == 1
        return
    with pytest.raises(UserError, match=sentence):
        written(tmp_path, function, argument)
    assert not list(tmp_path.rglob("*.call"))


def test_arguments_that_are_too_large_together_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_file, "ARGUMENTS_BYTES_MOST", 1 << 20)
    with pytest.raises(UserError, match="the arguments have more than 1 MiB pickled; write them to files"):
        written(tmp_path, abs, *(bytes(300_000) for _ in range(4)))
    assert not list(tmp_path.rglob("*.call"))


def test_the_variable_at_fault_is_named(tmp_path: Path) -> None:
    connection = threading.Lock()

    def ask(number: int) -> bool:
        return connection.locked()

    with pytest.raises(UserError, match=r"cannot pickle '_thread.lock' object \(its variable 'connection'\); make it"):
        written(tmp_path, ask, 1)


def test_a_directory_that_nobody_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file is in its place")
    with pytest.raises(
        UserError, match=r"\.jobyard: the function cannot be written there .*; name another directory with workdir="
    ):
        written(tmp_path, abs, 1)


# -- what becomes of the files


def test_files_of_jobs_that_the_yard_let_go_are_removed_and_others_stay(tmp_path: Path) -> None:
    gone, kept, new, unsubmitted = (written(tmp_path, abs, 1) for _ in range(4))
    for file, job in ((gone, "a"), (kept, "b"), (new, "a")):
        file.belongs_to("mine", job)
    for file in (gone, kept, unsubmitted):
        grow_old(file)
    delete_forgotten(tmp_path, "mine", lambda job: job == "b")
    assert set((tmp_path / FOLDER).glob("*.call")) == {kept.path, new.path}
    assert not job_of(gone.path).exists()


def test_files_of_another_yards_jobs_stay(tmp_path: Path) -> None:
    file = written(tmp_path, abs, 1)
    file.belongs_to("other", "a")
    grow_old(file)
    delete_forgotten(tmp_path, "mine", lambda _: pytest.fail("a job of another yard was asked for"))
    assert file.path.exists()
    assert job_of(file.path).exists()


def test_many_files_that_are_kept_do_not_keep_a_newer_one_from_being_removed(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    files = [CallFile(folder / f"{number}.call", 1, 1) for number in range(30)]
    for age, file in enumerate(reversed(files)):
        file.path.touch()
        file.belongs_to("mine", file.path.stem)
        grow_old(file, age)
    for _ in range(2):
        delete_forgotten(tmp_path, "mine", lambda job: job != "29")
    assert set(folder.glob("*.call")) == {file.path for file in files[:-1]}


def grow_old(file: CallFile, by: float = 0) -> None:
    for path in (file.path, job_of(file.path)):
        if path.exists():
            os.utime(path, (time.time() - 7200 - by,) * 2)


def test_git_does_not_see_the_folder(tmp_path: Path) -> None:
    written(tmp_path, abs, 1)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    status = subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, check=True, capture_output=True)
    assert status.stdout == b""


def test_damaged_results_are_an_error_and_no_crash() -> None:
    (outcome,) = _read(b"no pickle", "3")
    assert str(outcome.error).startswith("the results of task 3 cannot be read: ")
    (outcome,) = _read(pickle.dumps([("value", b"no pickle", "")]), "3")
    assert str(outcome.error).startswith("what the task sent back cannot be read here: ")


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 100, bytes(100), b"{}\n" + bytes(8), b"[]\n" + bytes(8)])
def test_a_file_that_is_no_call_file_is_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.call").write_bytes(content)
    with pytest.raises(UserError, match=r"x\.call: the file with the job's arguments cannot be read"):
        read_counts(tmp_path / "x.call")
