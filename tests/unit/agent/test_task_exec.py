"""`--exec` and `--until-end` of the agent's program: whom do they take for the task, and with whose rights?"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.agent.test_package import OLD_PYTHON
from tests.yards import SOURCE

from jobyard.agent.build import agent_zipapp
from jobyard.agent.system import processes
from jobyard.agent_protocol import records
from jobyard.agent_protocol.records import Ending

ATTEMPT = "j1.0.1"
AS_ANOTHER = "import os, sys; from jobyard.agent.main import main; os.setgroups([]); os.setgid({0}); os.setuid({0}); "
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


class Task:
    """A process that a record calls the task of an attempt."""

    def __init__(self, state: Path, user: int | None = None) -> None:
        self.state = state
        env = {"A": "1", "PATH": "/usr/bin:/bin"}
        groups: list[int] | None = [] if user else None
        self.process = subprocess.Popen(["sleep", "1000"], env=env, cwd="/", user=user, group=user, extra_groups=groups)
        self.began = processes.start_time(self.process.pid)
        self.record = Path(records.paths(str(state), ATTEMPT).record)
        self.record.parent.mkdir(parents=True)
        self.write(self.claim(), self.start())

    def claim(self, boot_id: str = "") -> bytes:
        return records.claim_line(boot_id or processes.boot_id(), os.getpid(), 1, None, None)

    def start(self, pid: int = 0) -> bytes:
        return records.start_line(pid or self.process.pid, self.began, time.time())

    def write(self, *lines: bytes) -> None:
        self.record.write_bytes(b"".join(lines))

    def exec(self, *words: str, uid: int = 0) -> subprocess.CompletedProcess[str]:
        arguments = self.arguments(*words)
        program = ["-m", "jobyard.agent.main"]
        if uid:  # the interpreter is loaded as us: that account need not be able to read it
            program = ["-c", AS_ANOTHER.format(uid) + "sys.exit(main(sys.argv[1:]))"]
        return subprocess.run(
            [sys.executable, "-P", *program, *arguments],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
        )

    def arguments(self, *words: str) -> list[str]:
        return ["--state", str(self.state), "--exec", ATTEMPT, "--called", "task 0", "--", *words]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that everybody may enter; those of pytest are ours alone."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def task(open_path: Path) -> Iterator[Task]:
    made = Task(open_path / "state")
    yield made
    made.end()


def test_the_process_that_the_record_means_is_entered(task: Task) -> None:
    done = task.exec("sh", "-c", "echo $A; pwd")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n/\n", "")


@pytest.mark.skipif(not os.path.exists(OLD_PYTHON), reason="there is no Python 3.8 here")
def test_with_python_3_8_too_a_command_ends_with_its_task(task: Task) -> None:
    program = [OLD_PYTHON, agent_zipapp()[0], *task.arguments("sh", "-c", "echo $A; exec sleep 1000")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "1\n"
        task.end()
        said = "yard: task 0 has ended, and what runs beside it ends with it\n"
        assert (running.communicate()[1], running.returncode) == (said, 128 + signal.SIGTERM)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (lambda task: [task.claim()], "has not begun yet"),
        (lambda task: [], "has not begun yet"),
        (lambda task: [task.claim("another"), task.start()], "has ended: its machine was started again since then"),
        (lambda task: [task.claim(), task.start(os.getpid())], "has ended"),
        (
            lambda task: [task.claim(), task.start(), b"end " + records.end_words(Ending(1.0, 0, None, None)) + b"\n"],
            "has ended",
        ),
        (
            lambda task: [task.claim(), records.contain_line("c", ["docker"]), task.start()],
            "has no container yet: its image may still be on its way",
        ),
    ],
)
def test_whatever_else_a_record_says_is_refused_in_words(task: Task, lines: object, sentence: str) -> None:
    task.write(*lines(task))  # type: ignore[operator]
    done = task.exec("echo", "in")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"yard: task 0 {sentence}\n")


def test_without_a_record_or_its_directory_there_is_no_task(task: Task) -> None:
    task.record.unlink()
    assert task.exec("true").stderr == "yard: task 0 has ended\n"
    task.state = task.state / "gone"
    assert "task 0 is not on this machine: there is no " in task.exec("true").stderr


@needs_root
def test_another_users_task_is_out_of_reach(task: Task) -> None:
    done = task.exec("id", uid=12345)
    sentence = "yard: task 0 belongs to user root, and only they can go there\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", sentence)
    task.state.parent.chmod(0o700)
    assert "task 0 cannot be reached by you: " in task.exec("id", uid=12345).stderr


@needs_root
def test_root_gives_its_rights_up_in_another_users_task(open_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    made = Task(open_path / "state", nobody.pw_uid)
    try:
        for path in (made.state, *made.state.rglob("*")):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
        done = made.exec("sh", "-c", "id -u; grep ^CapEff /proc/self/status")
        assert done.stdout.split() == [str(nobody.pw_uid), "CapEff:", "0000000000000000"], done.stderr
    finally:
        made.end()
