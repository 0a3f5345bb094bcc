"""Do files go when nobody needs them, and never before?"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from tests.unit.agent.agent_process import AgentProcess, Client
from tests.unit.agent.conftest import MakeAgent
from tests.unit.agent.trees_of_files import archive_of
from tests.waiting import until

from jobyard.agent.files import snapshots

WAITS = "echo begun; until [ -e $FLAG ]; do sleep 0.01; done"


def send(agent: AgentProcess, snapshot: str) -> Path:
    tree = agent.directory / "tree"
    tree.mkdir(exist_ok=True)
    (tree / "data").write_text("data\n")
    snapshots.receive(str(agent.state), snapshot, io.BytesIO(archive_of(tree)))
    return agent.state / "snapshots" / snapshot


def test_a_job_that_is_forgotten_leaves_nothing(agent: AgentProcess, server: Client) -> None:
    server.run(*({"id": f"j.{n}.1", "shell": "echo x > $YARD_CHECKPOINT_DIR/x"} for n in range(50)))
    server.send(op="forget", jobs=["j", "never-heard-of"], snapshots=["neither"])
    server.measured()
    assert not (agent.state / "jobs" / "j").exists()
    until(lambda: os.listdir(agent.state / "trash") == [])
    assert server.reconcile("j.0.1") == ["j.0.1"]


def test_a_forgotten_job_has_to_be_described_again(agent: AgentProcess, server: Client) -> None:
    server.run({"id": "j.0.1", "argv": ["true"]})
    server.send(op="forget", jobs=["j"])
    server.launch("s", {"id": "j.1.1", "argv": ["true"]})
    assert "no `job` message" in server.wait(lambda m: m["ev"] == "error")["message"]
    server.send(op="job", job="j", env={}, workdir=str(agent.work))
    assert server.run({"id": "j.0.1", "argv": ["true"]})[0]["exit_code"] == 0


def test_nothing_of_a_running_attempt_is_forgotten(agent: AgentProcess) -> None:
    kept, other = send(agent, "kept"), send(agent, "other")
    remote = agent.connect(ship=True)
    remote.send(op="job", job="j", env={"FLAG": str(agent.work / "go")}, snapshot="kept", copy_back=["."])
    remote.launch("s", {"id": "j.0.1", "shell": WAITS}, {"id": "j.1.1", "shell": "cat data"})
    remote.started("j.0.1")
    remote.send(op="forget", jobs=["j"], snapshots=["kept", "other"])
    remote.measured()
    assert kept.exists()
    assert not other.exists()
    (agent.work / "go").touch()
    assert remote.finished("j.1.1")["exit_code"] == 0
    remote.send(op="forget", jobs=["j"], snapshots=["kept"])
    remote.measured()
    assert not kept.exists()
    assert not (agent.state / "jobs" / "j").exists()


def test_the_snapshot_of_an_attempt_that_was_taken_over_is_kept(agent: AgentProcess) -> None:
    kept = send(agent, "kept")
    remote = agent.connect(ship=True)
    remote.send(op="job", job="j", env={"FLAG": str(agent.work / "go")}, snapshot="kept")
    remote.launch("s", {"id": "j.0.1", "shell": WAITS})
    remote.started("j.0.1")
    agent.kill()
    again = agent.start().connect("j.0.1", ship=True)
    again.send(op="forget", jobs=["j"], snapshots=["kept"])
    again.measured()
    assert kept.exists()
    (agent.work / "go").touch()
    assert again.finished("j.0.1")["exit_code"] == 0


def test_a_forgotten_snapshot_is_asked_for_when_it_is_needed_again(agent: AgentProcess) -> None:
    send(agent, "abc")
    remote = agent.connect(ship=True)
    remote.send(op="job", job="j", env={}, snapshot="abc")
    remote.run({"id": "j.0.1", "shell": "cat data"})
    remote.send(op="forget", snapshots=["abc"])
    remote.launch("t", {"id": "j.1.1", "shell": "cat data"})
    remote.wait(lambda m: m["ev"] == "missing")
    send(agent, "abc")
    remote.send(op="staged", snapshot="abc")
    assert remote.finished("j.1.1")["exit_code"] == 0


def test_what_an_agent_did_not_get_to_remove_is_removed_by_the_next(make_agent: MakeAgent) -> None:
    agent = make_agent()
    (agent.state / "trash" / "job-x.0" / "dir").mkdir(parents=True)
    agent.start()
    until(lambda: os.listdir(agent.state / "trash") == [])


@pytest.mark.parametrize("message", [{"jobs": ["../x"]}, {"snapshots": ["../x"]}, {"jobs": "j"}, {"jobs": [""]}])
def test_names_that_lead_out_are_refused(message: dict[str, object], agent: AgentProcess, server: Client) -> None:
    server.send(op="forget", **message)
    server.wait(lambda m: m["ev"] == "error")


def test_an_agent_says_what_is_stored_there(agent: AgentProcess, server: Client) -> None:
    assert server.stored() == ([], [])
    server.run({"id": "j.0.1", "argv": ["true"]})
    send(agent, "c0de")
    (agent.state / "snapshots" / ".1-1.half").mkdir()
    assert server.stored() == (["j"], ["c0de"])
