"""Does everything of a task end when it must?"""

from __future__ import annotations

import os
import time

from tests.unit.agent.agent_process import AgentProcess, Client
from tests.waiting import until

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


def test_a_timeout_ends_a_task_and_says_so(server: Client) -> None:
    (outcome,) = server.run({"id": "j.0.1", "shell": "sleep 1000", "timeout": 0.2, "grace": 5})
    assert outcome["reason"] == "Timeout"
    assert outcome["signal"] == 15


def test_a_task_that_ignores_its_timeout_is_killed_after_the_grace(server: Client) -> None:
    (outcome,) = server.run({"id": "j.0.1", "shell": STUBBORN, "timeout": 0.1, "grace": 0.3})
    assert outcome["reason"] == "Timeout"
    assert outcome["signal"] == 9


def test_a_task_that_ends_in_time_has_no_timeout(server: Client) -> None:
    first, second = server.run(
        {"id": "j.0.1", "shell": "true", "timeout": 0.5}, {"id": "j.1.1", "shell": "sleep 0.8", "grace": 1}
    )
    assert first["exit_code"] == second["exit_code"] == 0


def test_a_stopped_task_may_tidy_up(agent: AgentProcess, server: Client) -> None:
    server.launch(
        "s", {"id": "j.0.1", "shell": "trap 'echo tidy; exit 3' TERM; echo ready; while :; do sleep 0.05; done"}
    )
    until(lambda: agent.is_ready("j.0.1"))
    server.send(op="stop", ids=["j.0.1"], grace=20)
    assert server.finished("j.0.1")["exit_code"] == 3
    assert agent.output("j.0.1") == "ready\ntidy\n"


def test_a_stopped_task_that_does_not_listen_is_killed_after_the_grace(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": STUBBORN})
    until(lambda: agent.is_ready("j.0.1"))
    begin = time.monotonic()
    server.send(op="stop", ids=["j.0.1"], grace=0.5)
    assert server.finished("j.0.1")["signal"] == 9
    assert time.monotonic() - begin >= 0.5


def test_a_child_that_outlives_its_shell_has_the_whole_grace(agent: AgentProcess, server: Client) -> None:
    child = "trap 'sleep 1.5; echo saved; exit' TERM; echo ready; while :; do sleep 0.05; done"
    server.launch("s", {"id": "j.0.1", "shell": f'bash -c "{child}" & wait'})
    until(lambda: agent.is_ready("j.0.1"))
    server.send(op="stop", ids=["j.0.1"], grace=20)
    server.finished("j.0.1")
    assert agent.output("j.0.1") == "ready\nsaved\n"


def test_stopping_reaches_other_process_groups_of_the_session(agent: AgentProcess, server: Client) -> None:
    hidden = "set -m; bash -c \"trap '' TERM; echo ready; exec sleep 1000\" & echo $!; wait"
    server.launch("s", {"id": "j.0.1", "shell": hidden})
    until(lambda: agent.is_ready("j.0.1"))
    server.send(op="stop", ids=["j.0.1"], grace=0.2)
    server.finished("j.0.1")
    (pid,) = (word for word in agent.output("j.0.1").split() if word.isdigit())
    until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_what_has_not_started_is_withdrawn_and_the_rest_runs_on(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": "until [ -e go ]; do sleep 0.01; done"})
    items = [{"id": f"j.{n}.1", "shell": f"touch ran{n}"} for n in range(1, 200)]
    server.launch("s", *items)
    server.started("j.0.1")
    server.send(op="withdraw", ids=["j.0.1", *(item["id"] for item in items[:-1])])
    server.withdrawn("j.198.1")
    (agent.work / "go").touch()
    assert server.finished("j.0.1")["exit_code"] == 0
    assert server.finished("j.199.1")["exit_code"] == 0
    assert [path.name for path in agent.work.glob("ran*")] == ["ran199"]
    assert server.everything_finished() == ["j.0.1", "j.199.1"]


def test_stopping_what_has_not_started_withdraws_it(server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": "sleep 1000"}, {"id": "j.1.1", "shell": "touch ran"})
    server.started("j.0.1")
    server.send(op="stop", ids=["j.1.1", "j.0.1", "j.77.1"], grace=0)
    server.withdrawn("j.1.1")
    server.withdrawn("j.77.1")
    assert server.finished("j.0.1")["signal"] == 9


def test_a_task_that_stops_its_lane_is_ended_all_the_same(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": "kill -STOP $PPID; echo ready; sleep 1000"})
    until(lambda: agent.is_ready("j.0.1"))
    server.send(op="stop", ids=["j.0.1"], grace=5)
    assert server.finished("j.0.1")["signal"] == 15


def test_a_lane_that_its_task_stopped_is_woken_for_the_timeout(agent: AgentProcess, server: Client) -> None:
    (outcome,) = server.run({"id": "j.0.1", "shell": "kill -STOP $PPID; sleep 1000", "timeout": 1, "grace": 5})
    assert outcome["reason"] == "Timeout"
