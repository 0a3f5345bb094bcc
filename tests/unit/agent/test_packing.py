"""Attempts that have ended leave no files of their own, and the server can still ask for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.agent.agent_process import AgentProcess, Client
from tests.unit.agent.conftest import MakeAgent
from tests.waiting import until

from jobyard.agent_protocol.packs import Packs

SAYS = "echo out $YARD_TASK; echo err $YARD_TASK >&2; echo ran >> ran.$YARD_TASK; echo why > $YARD_ERROR_FILE; exit 3"


@pytest.fixture
def agent(make_agent: MakeAgent) -> AgentProcess:
    return make_agent(JOBYARD_PACK_SECONDS="0.05").start()


def item(task: int, number: int = 1) -> dict[str, object]:
    return {"id": f"j.{task}.{number}", "shell": SAYS, "env": {"YARD_TASK": str(task)}}


def directory(agent: AgentProcess) -> Path:
    return agent.state / "jobs" / "j"


def is_packed(agent: AgentProcess) -> bool:
    return sorted(path.name for path in directory(agent).iterdir() if path.name != "checkpoint") == ["pack"]


def test_tasks_that_have_ended_leave_one_file_of_their_job(agent: AgentProcess, server: Client) -> None:
    server.run(*(item(task) for task in range(20)), {"id": "j.20.1", "argv": ["true"]})
    until(lambda: is_packed(agent))
    assert Packs().content(agent.files("j.7.1").out) == b"out 7\n"
    assert Packs().content(agent.files("j.7.1").err) == b"err 7\n"
    assert Packs().content(agent.files("j.20.1").out) == b""


def test_a_directory_that_was_emptied_stays_for_a_while_so_that_the_next_job_is_not_put_there(
    make_agent: MakeAgent,
) -> None:
    agent = make_agent(JOBYARD_PACK_SECONDS="0.2").start()
    agent.connect().run(item(0), item(1000))
    until(lambda: not list(directory(agent).glob("*/*.rec")))
    assert sorted(path.name for path in directory(agent).iterdir()) == ["0", "1", "checkpoint", "pack"]
    until(lambda: is_packed(agent))


def test_a_server_that_had_not_written_an_end_down_is_told_again(agent: AgentProcess, server: Client) -> None:
    before = server.run(item(0))[0]
    until(lambda: is_packed(agent))
    again = agent.connect("j.0.1", "j.1.1")
    assert again.wait(lambda m: m["ev"] == "reconciled")["absent"] == ["j.1.1"]
    assert again.finished("j.0.1") == before
    assert before["message"] == "why"
    until(lambda: is_packed(agent))


def test_a_packed_attempt_never_starts_again(agent: AgentProcess, server: Client) -> None:
    server.run(item(0))
    until(lambda: is_packed(agent))
    server.messages.clear()
    assert server.run(item(0), item(1))[0]["exit_code"] == 3
    assert (agent.work / "ran.0").read_text() == "ran\n"


def test_a_packed_attempt_is_not_absent_while_its_pack_cannot_be_opened(agent: AgentProcess, server: Client) -> None:
    before = server.run(item(0))[0]
    until(lambda: is_packed(agent))
    pack = directory(agent) / "pack"
    away = pack.rename(agent.state / "away")
    pack.symlink_to(pack)  # opening it is an error, and not that there is none
    again = agent.connect("j.0.1")
    assert again.wait(lambda m: m["ev"] == "reconciled")["absent"] == []
    away.replace(pack)
    assert again.finished("j.0.1") == before


def test_what_is_found_never_to_have_started_is_withdrawn(agent: AgentProcess) -> None:
    directory(agent).mkdir(parents=True)
    pack = directory(agent) / "pack"
    pack.symlink_to(pack)
    server = agent.connect("j.0.1")
    assert server.wait(lambda m: m["ev"] == "reconciled")["absent"] == []
    pack.unlink()
    server.withdrawn("j.0.1")


def damage(agent: AgentProcess) -> None:
    pack = directory(agent) / "pack"
    pack.write_bytes(pack.read_bytes()[:-1] + b"\0")


def test_an_attempt_whose_record_is_damaged_has_ended_and_a_new_one_of_its_task_runs(
    agent: AgentProcess, server: Client
) -> None:
    server.run(item(0))
    until(lambda: is_packed(agent))
    damage(agent)
    again = agent.connect("j.0.1")
    assert again.wait(lambda m: m["ev"] == "reconciled")["absent"] == []
    ended = again.finished("j.0.1")
    assert ended["reason"] == "Unknown"
    assert "the packed output of tasks 0 to 0 is damaged" in ended["message"]
    assert again.run(item(0, 2))[0]["exit_code"] == 3


def test_an_attempt_whose_record_is_damaged_is_not_withdrawn(agent: AgentProcess, server: Client) -> None:
    server.run(item(0))
    until(lambda: is_packed(agent))
    damage(agent)
    server.send(op="stop", ids=["j.0.1", "j.1.1"], grace=0)
    server.withdrawn("j.1.1")
    assert not any("j.0.1" in message.get("withdrawn", ()) for message in server.messages)


def test_a_packed_attempt_is_not_withdrawn(agent: AgentProcess, server: Client) -> None:
    server.run(item(0))
    until(lambda: is_packed(agent))
    server.send(op="stop", ids=["j.0.1", "j.1.1"], grace=0)
    server.withdrawn("j.1.1")
    assert not any("j.0.1" in message.get("withdrawn", ()) for message in server.messages)


def test_output_of_a_packed_attempt_is_sent_again_from_where_the_server_has_it(agent: AgentProcess) -> None:
    server = agent.connect(ship=True)
    server.run(item(0))
    until(lambda: is_packed(agent))
    server.close()
    again = agent.connect("j.0.1", have={"j.0.1": {"out": 2}}, ship=True)
    assert again.finished("j.0.1")["streams"] == {"out": 6, "err": 6, "results": 0}
    assert again.shipped("j.0.1", "out", b"ou") == b"out 0\n"


def test_a_new_agent_packs_what_the_last_one_left(agent: AgentProcess, server: Client) -> None:
    server.run(*(item(task) for task in range(5)))
    agent.kill()
    until(lambda: directory(agent).exists())
    agent.start().connect()
    until(lambda: is_packed(agent))
    assert Packs().content(agent.files("j.4.1").out) == b"out 4\n"


def test_what_still_runs_keeps_its_files(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": "echo ready; until [ -e go ]; do sleep 0.01; done; echo done"})
    until(lambda: agent.is_ready("j.0.1"))
    server.run(item(1), slot="t")
    until(lambda: (directory(agent) / "pack").exists())
    assert agent.output("j.0.1") == "ready\n"
    (agent.work / "go").touch()
    server.finished("j.0.1")
    until(lambda: is_packed(agent))
    assert Packs().content(agent.files("j.0.1").out) == b"ready\ndone\n"


def test_a_job_that_is_forgotten_takes_its_pack_with_it(agent: AgentProcess, server: Client) -> None:
    server.run(item(0))
    until(lambda: is_packed(agent))
    server.send(op="forget", jobs=["j"], snapshots=[])
    until(lambda: not directory(agent).exists())
    assert server.reconcile("j.0.1") == ["j.0.1"]


@pytest.mark.parametrize("point", ["packing", "packed"])
def test_a_packer_that_is_killed_leaves_its_work_to_the_next_one(
    make_agent: MakeAgent, tmp_path: Path, point: str
) -> None:
    """Before a block is written, or between the pack and the removal of the files that are in it."""
    (tmp_path / "faults").mkdir()
    (tmp_path / "faults" / point).touch()
    agent = make_agent(JOBYARD_PACK_SECONDS="0.05", JOBYARD_FAULTS=str(tmp_path / "faults")).start()
    agent.connect().run(*(item(task) for task in range(5)))
    until(lambda: not (tmp_path / "faults" / point).exists())
    agent.connect()
    until(lambda: is_packed(agent))
    for task in range(5):
        assert Packs().content(agent.files(f"j.{task}.1").out) == b"out %d\n" % task
    assert agent.connect("j.2.1").finished("j.2.1")["exit_code"] == 3


@pytest.mark.parametrize("rounds", [4, pytest.param(60, marks=pytest.mark.long)])
def test_an_agent_that_is_killed_while_it_packs_runs_nothing_twice_and_loses_no_end(
    make_agent: MakeAgent, rounds: int
) -> None:
    agent = make_agent(JOBYARD_PACK_SECONDS="0.01").start()
    server = agent.connect()
    for turn in range(rounds):
        tasks = range(turn * 40, turn * 40 + 40)
        server.launch(f"s{turn}", *(item(task) for task in tasks))
        server.finished(f"j.{turn * 40 + 7 * turn % 40}.1")  # somewhere in the middle
        agent.kill()
        live = [f"j.{task}.1" for task in tasks]
        server = agent.start().connect(*live)
        absent = server.wait(lambda m: m["ev"] == "reconciled")["absent"]
        server.launch("again", *(item(task) for task in tasks if f"j.{task}.1" in absent))
        for task in tasks:
            assert server.finished(f"j.{task}.1")["exit_code"] == 3
            assert (agent.work / f"ran.{task}").read_text() == "ran\n"
    until(lambda: is_packed(agent))
    for task in range(rounds * 40):
        assert Packs().content(agent.files(f"j.{task}.1").out) == b"out %d\n" % task
