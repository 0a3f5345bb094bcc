"""Does what tasks report reach the server, over everybody's death?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_process import AgentProcess, Client
from tests.waiting import until

from jobyard.agent.attempts.attempt import Attempt, Slot
from jobyard.agent.attempts.outbox import Outbox
from jobyard.agent.attempts.spools import Spool, Spools
from jobyard.agent.system.timers import Timers
from jobyard.agent_protocol import records

WAITS = "until [ -e go ]; do sleep 0.01; done; "


def report(**fields: Any) -> str:
    return "echo '" + json.dumps({"at": 1, **fields}) + "' >> $YARD_SPOOL; "


HELLO = report(t="hello", epochs=3, done=0, yields=True)


def test_progress_is_told_while_a_task_runs_and_with_its_end(agent: AgentProcess, server: Client) -> None:
    shell = HELLO + report(t="epoch", done=1, seconds=2.5) + WAITS + report(t="epoch", done=2, seconds=2.5)
    server.launch("s", {"id": "j.0.1", "shell": shell})
    assert server.progress("j.0.1", lambda p: p.get("epochs_done") == 1)["epochs_total"] == 3
    (agent.work / "go").touch()
    assert server.finished("j.0.1")["progress"]["epochs_done"] == 2


def test_a_quick_task_tells_with_its_end_only(server: Client) -> None:
    (outcome,) = server.run({"id": "j.0.1", "shell": HELLO + "exit 1"})
    assert outcome["progress"] == {"epochs_total": 3, "can_yield": True}
    assert not [message for message in server.messages if message["ev"] == "progress"]


def test_a_task_that_reports_nothing_has_no_progress(server: Client) -> None:
    assert "progress" not in server.run({"id": "j.0.1", "shell": "true"})[0]


def test_what_has_not_changed_is_not_told_again_until_a_server_asks(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": HELLO + WAITS})
    server.launch(
        "t", {"id": "j.1.1", "shell": report(t="steps", steps=1) + "sleep 1.2;" + report(t="steps", steps=2) + WAITS}
    )
    server.progress("j.1.1", lambda p: p.get("steps") == 2)
    assert sum("j.0.1" in m["attempts"] for m in server.messages if m["ev"] == "progress") == 1
    again = agent.connect("j.0.1", "j.1.1")
    assert again.progress("j.0.1")["epochs_total"] == 3
    assert again.progress("j.1.1")["steps"] == 2


def test_the_next_agent_tells_what_was_reported_to_nobody(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": HELLO + report(t="start") + WAITS + report(t="epoch", done=3)})
    server.started("j.0.1")
    agent.kill()
    until(lambda: Path(agent.files("j.0.1").spool).exists())
    again = agent.start().connect("j.0.1")
    assert again.progress("j.0.1")["epochs_total"] == 3
    (agent.work / "go").touch()
    assert again.finished("j.0.1")["progress"]["epochs_done"] == 3


def test_an_end_that_nobody_heard_is_told_with_its_progress(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": HELLO + WAITS + report(t="epoch", done=3)})
    server.started("j.0.1")
    agent.kill()
    (agent.work / "go").touch()
    until(lambda: agent.has_ended("j.0.1"))
    assert agent.start().connect("j.0.1").finished("j.0.1")["progress"]["epochs_done"] == 3


def test_a_corrupt_line_is_named_and_training_goes_on(server: Client) -> None:
    (outcome,) = server.run(
        {"id": "j.0.1", "shell": HELLO + "echo '{torn' >> $YARD_SPOOL;" + report(t="epoch", done=1)}
    )
    assert outcome["exit_code"] == 0
    assert outcome["progress"]["epochs_done"] == 1
    assert outcome["progress"]["trouble"] == "line 2 of the reports is not JSON and was skipped"


def test_a_spool_that_is_no_file_is_nothing(server: Client) -> None:
    for number, make in enumerate(("mkfifo $YARD_SPOOL", "mkdir $YARD_SPOOL", "ln -s /dev/zero $YARD_SPOOL")):
        (outcome,) = server.run({"id": f"j.{number}.1", "shell": make})
        assert outcome["exit_code"] == 0
        assert "progress" not in outcome


def test_a_spool_that_was_begun_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    path.write_text('{"t":"epoch","at":1,"done":7}\n{"t":"epoch","at":1,"done":8}\n')
    spool = Spool(str(path), 0.0)
    spool.look()
    assert spool.reducer.epochs_done == 8
    path.write_text('{"t":"epoch","at":1,"done":1}\n')
    spool.look()
    assert spool.reducer.epochs_done == 1


def test_much_that_is_left_at_the_end_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.agent.attempts.spools._MOST_AT_ONCE", 1000)
    path = Path(records.paths(str(tmp_path), "j.0.1").spool)
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps({"t": "epoch", "done": number}) + "\n" for number in range(1, 101)))
    attempt = Attempt("j.0.1", Slot("s", "j", {}))
    timers = Timers()
    spools = Spools(timers, {}, Outbox(timers), str(tmp_path))
    pieces = 0
    while not spools.catches_up(attempt):
        pieces += 1
    assert pieces == path.stat().st_size // 1000
    reducer = spools.ended(attempt, str(path))
    assert reducer is not None
    assert [entry["number"] for entry in (reducer.progress() or {})["history"]] == list(range(1, 101))


def test_the_end_of_a_task_that_reported_much_is_told(server: Client) -> None:
    shell = f"for i in $(seq 9000); do echo '{json.dumps({'t': 'steps', 'at': 1, 'steps': 7})}'; done >> $YARD_SPOOL"
    (outcome,) = server.run({"id": "j.0.1", "shell": shell + f"; {report(t='epoch', done=1)}"})
    assert outcome["progress"]["epochs_done"] == 1
    assert server.run({"id": "j.1.1", "shell": "exit 3"})[0]["exit_code"] == 3


def test_much_that_cannot_be_read_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 1000000)
    (tmp_path / "link").symlink_to("large")
    assert Spool(str(tmp_path / "link"), 0.0).catches_up()


def test_of_far_too_many_reports_the_last_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.agent.attempts.spools._MOST_AT_END", 4000)
    path = tmp_path / "spool"
    path.write_text("".join(json.dumps({"t": "epoch", "done": number}) + "\n" for number in range(1, 1000)))
    spool = Spool(str(path), 0.0)
    with path.open("rb") as file:
        spool.read_to_end(file.fileno())
    assert spool.reducer.epochs_done == 999
    assert "passed over" in (spool.reducer.progress() or {})["trouble"]
