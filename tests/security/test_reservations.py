"""Can another user of a machine keep a yard from its room, with lies or with a lock?"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import MakeYard
from tests.security.users import OsUser
from tests.yards import TemporaryYard

# Each lie is told for a process of its own, which runs and is the liar's: only that is ever believed.
LIES = """
import json, os, subprocess, sys
from jobyard.agent.system import processes
directory = sys.argv[1]
def tell(amounts="", make=None):
    child = subprocess.Popen(["sleep", "100"])
    path = "%s/%d-%d.json" % (directory, os.getuid(), child.pid)
    content = {"uid": os.getuid(), "pid": child.pid, "start_time": processes.start_time(child.pid)}
    content.update(boot_id=processes.boot_id(), yard="theirs", slots={"s": "HERE"})
    if make:
        make(path)
    else:
        with open(path, "w") as file:
            file.write(json.dumps(content).replace('"HERE"', amounts))
    return child
children = [
    tell('{"memory_mib": 10485760}'),
    tell('{"memory_mib": -1, "cpu_millis": 1}'),
    tell('{"memory_mib": NaN}'),
    tell('{"memory_mib": 1e999}'),
    tell('{"cpu_millis": 99999999}'),
    tell("garbage"),
    tell(make=os.mkfifo),
    tell(make=os.mkdir),
    tell(make=lambda path: os.symlink("/dev/zero", path)),
    tell(make=lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_RDWR, 0o644), 1 << 30)),
]
for number in range(int(sys.argv[2])):
    open("%s/%d.json" % (directory, number), "w").close()
print("told", flush=True)
sys.stdin.read()
for child in children:
    child.kill()
    child.wait()
"""
KEEPS = """
import fcntl, os, signal, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("told", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.fixture
def shared_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="yr-", dir="/tmp"))
    directory.chmod(0o1777)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def anns(make_yard: MakeYard, ann: OsUser, shared_directory: Path) -> TemporaryYard:
    return ann.take(make_yard(JOBYARD_RESERVATIONS_DIR=str(shared_directory)))


@contextmanager
def at_work(user: OsUser, code: str, *words: str) -> Iterator[None]:
    """A program of this user that has done what it does; it is ended afterwards."""
    command = [*user.prefix, sys.executable, "-c", code, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"told\n"
            yield
            assert process.stdin is not None
            process.stdin.close()
            process.send_signal(signal.SIGCONT)
            process.wait()
        finally:
            process.kill()


@pytest.mark.parametrize("files", [0, 3000])
def test_lies_take_no_room_away_and_the_liar_is_named(
    anns: TemporaryYard, bob: OsUser, shared_directory: Path, files: int
) -> None:
    with at_work(bob, LIES, str(shared_directory), str(files)):
        anns.ok("run", "--cpus", "1", "--mem", "64MiB", "--", "true")
        said = anns.ok("nodes", "probe").out + anns.ok("nodes").out
        assert f"ignored: what yard of {bob.name} (agent " in said
        assert ("more than 2000 files" in said) == bool(files)
        assert "also used by yard of" not in said


def test_a_lock_that_is_kept_for_ever_stops_nobody_and_its_keeper_is_named(
    anns: TemporaryYard, bob: OsUser, shared_directory: Path
) -> None:
    with at_work(bob, KEEPS, str(shared_directory)):
        anns.ok("run", "-a", "1-8", "--cpus", "0.1", "--", "true")
        said = anns.ok("nodes", "probe").out + anns.ok("nodes").out
        assert f"the lock on {shared_directory} is kept by " in said
        assert f" of {bob.name} (process " in said


def test_what_another_user_can_hold_is_believed_and_named_in_why(
    anns: TemporaryYard, bob: OsUser, shared_directory: Path
) -> None:
    memory = anns.json("nodes")[0]["memory_mib"]
    true = LIES.replace("children = [", f"children = [tell('{{\"memory_mib\": {memory}}}'),")
    with at_work(bob, true, str(shared_directory), "0"):
        anns.ok("nodes", "probe")
        job = anns.submit("--mem", "64MiB", "--", "true")
        assert f"yard of {bob.name} (agent " in anns.ok("why", job).out
    anns.ok("nodes", "probe")
    assert anns.ok("wait", job).code == 0
