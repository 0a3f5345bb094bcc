"""Does our own death harm anything?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.agent.agent_process import AgentProcess, Client
from tests.unit.agent.conftest import MakeAgent
from tests.waiting import until

from jobyard.agent.system import processes

WAITS = "echo run >> ran; until [ -e go ]; do sleep 0.01; done; exit 5"


def test_a_task_survives_its_agent_and_its_status_is_not_lost(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": WAITS}, {"id": "j.1.1", "shell": "touch second"})
    server.started("j.0.1")
    agent.kill()
    (agent.work / "go").touch()
    until(lambda: agent.has_ended("j.0.1"))
    again = agent.start().connect("j.0.1", "j.1.1")
    assert again.finished("j.0.1")["exit_code"] == 5
    assert again.wait(lambda m: m["ev"] == "reconciled")["absent"] == ["j.1.1"]
    assert (agent.work / "ran").read_text() == "run\n"
    assert not (agent.work / "second").exists()


def test_a_new_agent_takes_over_a_running_task(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": WAITS}, cpu_millis=1000)
    began = server.started("j.0.1")
    agent.kill()
    again = agent.start().connect("j.0.1")
    assert again.started("j.0.1") == pytest.approx(began)
    again.launch("s", {"id": "j.0.1", "shell": WAITS}, {"id": "j.1.1", "shell": "echo next >> ran"})
    again.measured()
    (agent.work / "go").touch()
    assert again.finished("j.0.1")["exit_code"] == 5
    assert again.finished("j.1.1")["exit_code"] == 0
    assert (agent.work / "ran").read_text() == "run\nnext\n"


def test_a_task_taken_over_can_be_stopped(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": WAITS})
    server.started("j.0.1")
    agent.kill()
    again = agent.start().connect("j.0.1")
    again.send(op="stop", ids=["j.0.1"], grace=5)
    assert again.finished("j.0.1")["signal"] == 15


def test_a_timeout_holds_with_no_agent_around(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": "sleep 1000", "timeout": 0.5})
    server.started("j.0.1")
    agent.kill()
    until(lambda: agent.has_ended("j.0.1"))
    assert agent.ending("j.0.1").reason == "Timeout"


def test_attempts_that_the_server_does_not_believe_in_are_stopped_and_not_reported(
    agent: AgentProcess, server: Client
) -> None:
    server.launch("s", {"id": "j.0.1", "shell": "sleep 1000"}, {"id": "j.1.1", "shell": "touch second"})
    server.started("j.0.1")
    again = agent.connect()
    until(lambda: agent.has_ended("j.0.1"))
    again.run({"id": "j.2.1", "argv": ["true"]}, slot="s")
    assert again.everything_finished() == ["j.2.1"]
    assert not any(message.get("withdrawn") for message in again.messages)
    assert not (agent.work / "second").exists()


def test_a_lane_that_is_killed_costs_only_the_status_of_what_it_ran(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": WAITS}, {"id": "j.1.1", "shell": "echo next >> ran"})
    server.started("j.0.1")
    os.kill(agent.claim("j.0.1").lane_pid, signal.SIGKILL)
    until(lambda: not processes.is_alive(agent.claim("j.0.1").lane_pid, agent.claim("j.0.1").lane_start_time))
    server.measured()
    assert server.everything_finished() == []
    (agent.work / "go").touch()
    outcome = server.finished("j.0.1")
    assert outcome["reason"] == "Unknown"
    assert "exit_code" not in outcome
    assert server.finished("j.1.1")["exit_code"] == 0
    assert (agent.work / "ran").read_text() == "run\nnext\n"


def test_an_orphan_keeps_its_timeout(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": "sleep 1000", "timeout": 1.0, "grace": 1})
    server.started("j.0.1")
    os.kill(agent.claim("j.0.1").lane_pid, signal.SIGKILL)
    assert server.finished("j.0.1")["reason"] == "Timeout"


def test_agent_and_lane_killed_together_leave_the_task_watched(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": WAITS})
    server.started("j.0.1")
    agent.kill()
    os.kill(agent.claim("j.0.1").lane_pid, signal.SIGKILL)
    again = agent.start().connect("j.0.1")
    again.started("j.0.1")
    (agent.work / "go").touch()
    assert again.finished("j.0.1")["reason"] == "Unknown"
    until(lambda: os.listdir(agent.state / "lanes") == [])


def test_a_record_of_an_earlier_boot_means_that_the_node_was_lost(agent: AgentProcess) -> None:
    record = Path(agent.files("j.0.1").record)
    record.parent.mkdir(parents=True)
    record.write_text("claim some-other-boot 1 1 - -\nstart 1 1 5.0\n")
    outcome = agent.connect("j.0.1").finished("j.0.1")
    assert outcome["reason"] == "NodeLost"
    assert outcome["started_at"] == 5.0


def test_a_claim_whose_lane_is_gone_is_unknown(agent: AgentProcess) -> None:
    record = Path(agent.files("j.0.1").record)
    record.parent.mkdir(parents=True)
    record.write_text(f"claim {processes.boot_id()} 99999999 1 - -\nstart 12")
    assert agent.connect("j.0.1").finished("j.0.1")["reason"] == "Unknown"
    assert agent.ending("j.0.1").reason == "Unknown"


@pytest.mark.parametrize("point", ["agent-launching", "agent-running", "agent-finishing"])
def test_a_crash_between_any_two_steps_loses_and_repeats_nothing(
    point: str, make_agent: MakeAgent, tmp_path: Path
) -> None:
    (tmp_path / "faults").mkdir()
    agent = make_agent(JOBYARD_FAULTS=str(tmp_path / "faults")).start()
    server = agent.connect()
    (tmp_path / "faults" / point).touch()
    server.launch("s", {"id": "j.0.1", "shell": "echo run >> ran; exit 5"})
    with pytest.raises((ConnectionError, OSError)):
        server.finished("j.0.1")
    assert agent.process is not None
    assert agent.process.wait() == -signal.SIGKILL
    again = agent.start().connect("j.0.1")
    if again.wait(lambda m: m["ev"] == "reconciled")["absent"]:
        again.launch("s", {"id": "j.0.1", "shell": "echo run >> ran; exit 5"})
    assert again.finished("j.0.1")["exit_code"] == 5
    assert (agent.work / "ran").read_text() == "run\n"


def test_a_new_server_replaces_the_old_one(agent: AgentProcess, server: Client) -> None:
    new = agent.connect()
    with pytest.raises((ConnectionError, OSError)):
        server.wait(lambda m: False)
    assert new.run({"id": "j.0.1", "argv": ["true"]})[0]["exit_code"] == 0


def test_a_server_that_died_while_work_goes_on_is_started_again(agent: AgentProcess, tmp_path: Path) -> None:
    server = agent.connect(respawn=["touch", str(tmp_path / "respawned")])
    server.launch("s", {"id": "j.0.1", "shell": "sleep 1000"})
    server.started("j.0.1")
    server.close()
    until((tmp_path / "respawned").exists)


def test_a_server_that_is_started_again_has_its_own_environment_and_tasks_do_not(
    agent: AgentProcess, tmp_path: Path
) -> None:
    again = ["sh", "-c", 'echo "$YARD_DB" > "$0.part" && mv "$0.part" "$0"', str(tmp_path / "respawned")]
    server = agent.connect(respawn=again, respawn_env={"YARD_DB": "postgresql://me:s3cret@db", "PATH": os.defpath})
    server.launch("s", {"id": "j.0.1", "shell": "env; exec sleep 1000"})
    server.started("j.0.1")
    server.close()
    until((tmp_path / "respawned").exists)
    assert (tmp_path / "respawned").read_text() == "postgresql://me:s3cret@db\n"
    assert "s3cret" not in agent.output("j.0.1")


@pytest.mark.parametrize(
    "line",
    [b"not json", b"[]", b'{"op":"dance"}', b'{"op":"launch"}', b'{"op":"stop","ids":["../../x.1.1"]}', b"\xff", b"3"],
)
def test_a_message_that_makes_no_sense_is_answered_and_harms_nothing(line: bytes, server: Client) -> None:
    server.stream.sendall(line + b"\n")
    server.wait(lambda m: m["ev"] == "error")
    assert server.run({"id": "j.0.1", "argv": ["true"]})[0]["exit_code"] == 0


def test_a_launch_that_is_refused_names_the_attempts_that_never_start(server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": "sleep 1000"})
    server.started("j.0.1")
    server.send(op="launch", job="j", slot="s", items=[{"id": "j.0.1"}, {"id": "j.1.1", "argv": [7]}])
    assert server.wait(lambda m: m["ev"] == "error")["ids"] == ["j.1.1"]
    assert server.run({"id": "j.2.1", "argv": ["true"]}, slot="t")[0]["exit_code"] == 0


def test_what_runs_of_a_job_that_is_held_is_left_alone(agent: AgentProcess, server: Client, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    server.launch("s", {"id": "j.0.1", "shell": f"until [ -e '{go_on}' ]; do sleep 0.02; done; touch '{go_on}.seen'"})
    server.started("j.0.1")
    server.send(op="reconcile", live=[], held=["j"])
    server.wait(lambda m: m["ev"] == "reconciled")
    go_on.touch()
    until(Path(f"{go_on}.seen").exists)


def test_only_one_agent_runs_on_a_state_directory(agent: AgentProcess) -> None:
    command = [sys.executable, "-m", "jobyard.agent.main", "--state", str(agent.state), "--socket", str(agent.socket)]
    second = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": "src"}, capture_output=True, text=True, check=False
    )
    assert second.returncode == 3
    assert "another agent runs" in second.stderr


def test_an_agent_that_nobody_needs_leaves(make_agent: MakeAgent) -> None:
    agent = make_agent().start("--idle-seconds", "0.3")
    assert agent.process is not None
    assert agent.process.wait(timeout=60) == 0
    assert not agent.socket.exists()


def test_an_agent_that_is_told_to_leave_leaves_its_tasks_alone(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": WAITS})
    server.started("j.0.1")
    assert agent.process is not None
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(timeout=60) == 0
    (agent.work / "go").touch()
    until(lambda: agent.has_ended("j.0.1") and agent.ending("j.0.1").exit_code == 5)


def test_quit_waits_for_what_runs(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": WAITS})
    server.started("j.0.1")
    server.send(op="quit")
    server.measured()
    (agent.work / "go").touch()
    assert server.finished("j.0.1")["exit_code"] == 5
    assert agent.process is not None
    assert agent.process.wait(timeout=60) == 0


def test_a_detached_agent_listens_when_its_starter_returns(make_agent: MakeAgent) -> None:
    agent = make_agent()
    command = [sys.executable, "-m", "jobyard.agent.main", "--state", str(agent.state), "--socket", str(agent.socket)]
    env = {**os.environ, "PYTHONPATH": "src"}
    subprocess.run([*command, "--detach", "--idle-seconds", "30"], env=env, check=True, stdin=subprocess.DEVNULL)
    server = agent.connect()
    assert server.run({"id": "j.0.1", "argv": ["true"]})[0]["exit_code"] == 0
    again = subprocess.run([*command, "--detach"], env=env, capture_output=True, text=True, check=False)
    assert again.returncode == 3
    assert "another agent runs" in again.stderr
    server.send(op="quit")
    until(lambda: not processes.inspect(server.welcome["pid"]))
