"""Do timeouts, graces and deadlines keep their length, whatever happens to clocks, to the machine and to us?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from tests.unit.agent.agent_process import AgentProcess, Client
from tests.waiting import until

from jobyard.agent.execution.alarm import Alarm
from jobyard.agent.system import processes
from jobyard.agent.system.timers import Timers
from jobyard.agent_protocol import clock

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


class Clock:
    """A boot clock that a test moves on, as a suspended machine's does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept = 0.0
        monkeypatch.setattr(clock, "seconds", lambda: time.monotonic() + self.slept)


def test_the_boot_clock_agrees_with_the_start_times_of_processes() -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        age = clock.age_seconds(processes.start_time(child.pid))
        child.kill()
    assert 0 <= age < 60


def test_a_timer_is_due_after_a_suspend_that_was_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, timers, rung = Clock(monkeypatch), Timers(), threading.Event()
    timers.after(3600, rung.set)
    timers.run_due()
    assert not rung.is_set()
    machine.slept += 3601
    assert timers.seconds_to_next() == 0
    timers.run_due()
    assert rung.is_set()


def test_a_timeout_passes_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Clock(monkeypatch)
    monkeypatch.setattr("jobyard.agent.execution.alarm.LOOK_SECONDS", 0.01)
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as child:
        alarm = Alarm(child.pid, 3600, 10)
        try:
            machine.slept += 3601
            assert child.wait() == -signal.SIGTERM
        finally:
            alarm.disarm()
    assert alarm.has_rung


def set_the_clock_back(agent: AgentProcess, attempt: str) -> None:
    """As if the wall clock had been an hour ahead when it started."""
    path = Path(agent.files(attempt).record)
    lines = [line.split(" ") for line in path.read_text().splitlines()]
    for words in lines:
        if words[0] == "start":
            words[3] = repr(float(words[3]) + 3600)
    path.write_text("".join(" ".join(words) + "\n" for words in lines))


def test_an_orphan_ends_in_time_although_the_wall_clock_was_set_back(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": "sleep 1000", "timeout": 2.0, "grace": 1})
    server.started("j.0.1")
    agent.kill()
    processes.send(agent.claim("j.0.1").lane_pid, signal.SIGKILL)
    set_the_clock_back(agent, "j.0.1")
    assert agent.start().connect("j.0.1").finished("j.0.1")["reason"] == "Timeout"


def test_a_grace_that_began_before_the_agent_died_is_not_given_twice(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": STUBBORN})
    until(lambda: os.path.exists(agent.files("j.0.1").out) and "ready\n" in agent.output("j.0.1"))
    server.send(op="stop", ids=["j.0.1"], grace=100000)
    until(lambda: os.path.exists(agent.files("j.0.1").stop))
    agent.kill()
    stop = Path(agent.files("j.0.1").stop)
    order = json.loads(stop.read_text())
    stop.write_text(json.dumps({**order, "ended_up": 0.001}))  # as if it had been asked at boot
    client = agent.start().connect("j.0.1")
    client.send(op="stop", ids=["j.0.1"], grace=order["ended_up"])
    assert client.finished("j.0.1")["signal"] == 9
