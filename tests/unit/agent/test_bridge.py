"""Does a bridge lead to the agent, and does nothing but the bridge end with the connection?"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_process import SOURCE
from tests.waiting import until

from jobyard.agent import build
from jobyard.agent.system import processes


class Bridge:
    """`agent --bridge`, as ssh runs it: three pipes."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, cwd="/")
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def send(self, **message: Any) -> None:
        self.stdin.write(json.dumps(message).encode() + b"\n")
        self.stdin.flush()

    def wait(self, event: str) -> dict[str, Any]:
        while line := self.stdout.readline():
            message: dict[str, Any] = json.loads(line)
            if message["ev"] == event:
                return message
        raise ConnectionError("the bridge has ended")

    def greet(self) -> dict[str, Any]:
        """The first line that it writes, and the agent's welcome."""
        assert self.stdout.readline() == b"jobyard bridge\n"
        self.send(op="hello", protocol=1, yard="y", ship=True)
        return self.wait("welcome")

    def close(self) -> None:
        for stream in (self.stdin, self.stdout, self.process.stderr):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()


class Machine:
    """A home and a runtime directory on which bridges are run."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.runtime = directory / "r"
        self.home.mkdir()
        self.runtime.mkdir(mode=0o700)
        self.env = {**os.environ, "HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.runtime)}
        self.env.update(PYTHONPATH=str(SOURCE), SSH_AUTH_SOCK="/tmp/soon-gone")
        self.bridges: list[Bridge] = []

    def bridge(self, *options: str, program: list[str] | None = None) -> Bridge:
        command = program or [sys.executable, "-m", "jobyard.agent.main"]
        self.bridges.append(Bridge([*command, "--bridge", "--yard", "y", *options], self.env))
        return self.bridges[-1]

    @property
    def state(self) -> Path:
        (found,) = (self.home / ".local/share/jobyard/agents").iterdir()
        return found

    @property
    def agent_pid(self) -> int:
        return int((self.state / "agent.pid").read_text())

    def stop_everything(self) -> None:
        for bridge in self.bridges:
            bridge.close()
            bridge.process.kill()
            bridge.process.wait()
        marker = str(self.home).encode() + b"/"
        for process in processes.scan():
            with contextlib.suppress(OSError):
                path = Path(f"/proc/{process.pid}")
                if (
                    process.pid != os.getpid()
                    and marker in (path / "environ").read_bytes() + (path / "cmdline").read_bytes()
                ):
                    processes.send(process.pid, signal.SIGKILL)


@pytest.fixture
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="b") as directory:
        made = Machine(Path(directory))
        yield made
        made.stop_everything()


def test_a_bridge_starts_an_agent_and_the_next_one_finds_it(machine: Machine) -> None:
    first = machine.bridge().greet()
    second = machine.bridge().greet()
    assert first["pid"] == second["pid"] == machine.agent_pid
    assert first["state_dir"] == str(machine.state)


def test_a_bridge_from_the_zipapp_starts_an_agent_of_the_same_build(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "agent.pyz"
    build_id = build.build(str(path))
    script = f"import sys, runpy; path = {str(path)!r}; sys.argv[0] = path; runpy.run_path(path, run_name='__main__')"
    welcome = machine.bridge(program=[sys.executable, "-I", "-c", script]).greet()
    assert welcome["build"] == build_id
    assert str(path).encode() in Path(f"/proc/{welcome['pid']}/cmdline").read_bytes()


def test_the_agent_outlives_the_bridge_and_holds_nothing_of_it(machine: Machine) -> None:
    bridge = machine.bridge()
    pid = bridge.greet()["pid"]
    held = {os.readlink(f"/proc/{bridge.process.pid}/fd/{number}") for number in range(3)}
    of_agent = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
    assert not held & of_agent
    assert os.getsid(pid) != os.getsid(bridge.process.pid)
    bridge.stdin.close()
    assert bridge.stdout.read() == b""  # so ssh sees the end
    assert bridge.process.wait(timeout=60) == 0
    assert processes.inspect(pid) is not None
    assert machine.bridge().greet()["pid"] == pid


def test_a_task_runs_on_when_its_bridge_is_killed(machine: Machine) -> None:
    bridge = machine.bridge()
    bridge.greet()
    bridge.send(op="job", job="j", env={}, workdir=str(machine.home))
    item = {"id": "j.0.1", "shell": 'until [ -e go ]; do sleep 0.01; done; echo "[$SSH_AUTH_SOCK]"; exit 7'}
    bridge.send(op="launch", job="j", slot="s", items=[item])
    assert bridge.wait("attempts")["started"]
    bridge.process.kill()
    (machine.home / "go").touch()
    again = machine.bridge()
    again.greet()
    again.send(op="reconcile", live=["j.0.1"])
    finished: list[Any] = []
    while not finished:
        finished = again.wait("attempts")["finished"]
    ((name, outcome),) = finished
    assert (name, outcome["exit_code"], outcome["streams"]["out"]) == ("j.0.1", 7, 3)


def test_a_bridge_leaves_when_its_agent_does(machine: Machine) -> None:
    bridge = machine.bridge()
    bridge.greet()
    bridge.send(op="quit")
    assert bridge.stdout.read() == b""
    assert bridge.process.wait(timeout=60) == 0
    assert machine.bridge().greet()["pid"]


def test_an_agent_that_was_killed_is_started_again(machine: Machine) -> None:
    bridge = machine.bridge()
    pid = bridge.greet()["pid"]
    os.kill(pid, signal.SIGKILL)
    assert bridge.process.wait(timeout=60) == 0
    assert machine.bridge().greet()["pid"] != pid


def test_bridges_that_start_at_once_end_up_at_one_agent(machine: Machine) -> None:
    bridges = [machine.bridge() for _ in range(4)]
    assert [bridge.stdout.readline() for bridge in bridges] == [b"jobyard bridge\n"] * 4
    bridges[0].send(op="hello", protocol=1, yard="y")
    assert bridges[0].wait("welcome")["pid"] == machine.agent_pid


def test_much_goes_through_in_both_directions_at_once(machine: Machine) -> None:
    bridge = machine.bridge()
    bridge.greet()
    ids = [f"j.{n}.1" for n in range(200_000)]

    def send() -> None:
        for _ in range(3):
            bridge.send(op="reconcile", live=ids)

    sender = threading.Thread(target=send)
    sender.start()
    for _ in range(3):
        assert _absent(bridge) == ids
    sender.join()


def _absent(bridge: Bridge) -> list[str]:
    """What one question is answered with, in as many lines as it takes."""
    pieces = [bridge.wait("reconciled")]
    while pieces[-1].get("more"):
        pieces.append(bridge.wait("reconciled"))
    return [each for piece in pieces for each in piece["absent"]]


def test_an_agent_whose_socket_was_cleaned_away_makes_room_for_the_next(machine: Machine) -> None:
    bridge = machine.bridge()
    pid = bridge.greet()["pid"]
    for path in machine.runtime.iterdir():
        path.unlink()
    assert bridge.process.wait(timeout=60) == 0
    until(lambda: processes.inspect(pid) is None)
    assert machine.bridge().greet()["pid"] != pid


def test_fake_devices_are_passed_on(machine: Machine) -> None:
    machine.env["JOBYARD_FAKE_GPU_DIR"] = str(machine.home / "gpus")
    assert len(machine.bridge("--fake-gpus", "2x8GiB").greet()["devices"]) == 2


def test_a_home_that_cannot_be_written_has_its_own_exit_code_and_sentence(machine: Machine) -> None:
    (machine.home / ".local").write_text("in the way")
    bridge = machine.bridge()
    assert bridge.stdout.read() == b""
    assert bridge.process.stderr is not None
    said = bridge.process.stderr.read()
    assert bridge.process.wait() == 68
    assert len(said.splitlines()) == 1
    assert b"cannot be written" in said


def test_a_yard_that_is_none_is_refused(machine: Machine) -> None:
    command = [sys.executable, "-m", "jobyard.agent.main", "--bridge", "--yard", "../x"]
    done = subprocess.run(command, env=machine.env, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 1
    assert b"not a yard's id" in done.stderr
