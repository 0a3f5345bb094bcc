"""Does an agent get through a job of thousands of tasks without looking at all of them for each of them?"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest
from tests.unit.agent.agent_process import SOURCE, AgentProcess, Client

from jobyard.agent.attempts.attempt import Attempt, Slot
from jobyard.agent.attempts.lane_pool import LanePool
from jobyard.agent.attempts.stopping import Stopper
from jobyard.agent.execution.lanes import LaneHandle
from jobyard.agent.system import processes
from jobyard.agent.system.timers import Timers
from jobyard.agent_protocol.records import Start

MANY = 4096
NO_PID = 1 << 30  # no kernel has as many


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each pass over /proc."""
    seen: list[None] = []

    def scan() -> Iterator[processes.Process]:
        seen.append(None)
        return iter(())

    monkeypatch.setattr(processes, "scan", scan)
    return seen


def running() -> dict[str, Attempt]:
    attempts = {}
    for number in range(MANY):
        attempt = attempts[f"j.{number}.1"] = Attempt(f"j.{number}.1", Slot(f"s{number}", "j", {}))
        attempt.take_start(Start(NO_PID + number, 1, 0.0))
    return attempts


def test_attempts_that_are_ended_one_by_one_are_signalled_in_one_pass(passes: list[None]) -> None:
    timers, attempts = Timers(), running()
    stopper = Stopper(timers, attempts)
    for attempt in attempts.values():
        stopper.end([attempt], 1000.0)
    timers.run_due()
    assert len(passes) == 1


def test_what_ended_attempts_may_have_hidden_is_looked_for_in_one_pass(passes: list[None]) -> None:
    timers, attempts = Timers(), running()
    stopper = Stopper(timers, attempts)
    for attempt in attempts.values():
        stopper.clear(attempt)
    timers.run_due()
    assert len(passes) == 1


def test_each_session_gets_its_own_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(processes, "send_group", lambda *words: sent.append(words))
    timers, attempts = Timers(), running()
    stopper = Stopper(timers, attempts)
    first, second = list(attempts.values())[:2]
    stopper.end([first], 1000.0)
    stopper.clear(second)
    timers.run_due()
    assert sent == [(NO_PID, signal.SIGTERM), (NO_PID + 1, signal.SIGKILL)]


def test_a_sigkill_is_not_replaced_by_a_sigterm_of_the_same_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(processes, "send_group", lambda *words: sent.append(words))
    timers, attempts = Timers(), running()
    stopper = Stopper(timers, attempts)
    first, second = list(attempts.values())[:2]
    stopper.end([first], 0.0)
    stopper.end([first, second], 1000.0)
    timers.run_due()
    assert sent == [(NO_PID, signal.SIGKILL), (NO_PID + 1, signal.SIGTERM)]


def test_slots_that_wait_for_a_lane_are_asked_once_each() -> None:
    timers, asked = Timers(), []
    pool = LanePool(timers, lambda: cast(LaneHandle, object()))

    def feed(number: int) -> None:
        asked.append(number)
        pool.take(lambda: feed(number))

    for number in range(MANY):
        pool.take(lambda number=number: feed(number))  # type: ignore[misc]
    while timers.seconds_to_next() == 0:
        timers.run_due()
    assert len(asked) == len(set(asked)) == MANY - 16, "16 had a lane at once"


def test_a_lane_lets_go_of_thousands_of_descriptors_in_a_few_calls() -> None:
    code = f"""
import os, sys
sys.path.insert(0, {str(SOURCE)!r})
from jobyard.agent.system.forking import close_all_but
opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(500)]
calls, really = [], os.closerange
os.closerange = lambda *ends: (calls.append(ends), really(*ends))
def left():
    return [number for number in opened if os.path.exists(f"/proc/self/fd/{{number}}")]
close_all_but({{0, 1, 2, opened[200], opened[-1]}})
print(len(calls), left() == [opened[200], opened[-1]])
close_all_but({{0, 1, 2}})
print(len(calls), left() == [])
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["3", "True", "4", "True"]


def test_a_gang_that_is_cancelled_before_it_began_starts_nothing(agent: AgentProcess, server: Client) -> None:
    names = [f"j.{number}.1" for number in range(64)]
    launches: list[dict[str, Any]] = [
        {"op": "launch", "job": "j", "slot": name, "items": [{"id": name, "shell": "touch ran"}]} for name in names
    ]
    both = [*launches, {"op": "stop", "ids": names, "grace": 0}, {"op": "close", "slots": names}]
    server.stream.sendall(b"".join(json.dumps(message).encode() + b"\n" for message in both))
    for name in names:
        server.withdrawn(name)
    assert server.run({"id": "j.99.1", "shell": "ls"}, slot="t")[0]["exit_code"] == 0
    assert "ran" not in agent.output("j.99.1")
