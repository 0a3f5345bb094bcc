"""Does a task that is asked to stop at a checkpoint get the time for it, and no more?"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_process import AgentProcess, Client
from tests.waiting import until

OBEYS = "echo ready; until [ -e $YARD_STOP_FILE ]; do sleep 0.01; done; "
DEAF = "echo ready; while :; do sleep 0.05; done"


def begin(agent: AgentProcess, server: Client, shell: str) -> None:
    server.launch("s", {"id": "j.0.1", "shell": shell})
    until(lambda: agent.is_ready("j.0.1"))
    server.started("j.0.1")


def ask(server: Client, *ids: str, deadline: float = 600, grace: float = 20, **more: Any) -> None:
    server.send(op="yield", ids=list(ids or ["j.0.1"]), deadline=deadline, grace=grace, **more)


def test_who_stops_at_a_checkpoint_is_preempted(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, OBEYS + 'echo \'{"t":"yield","at":1,"done":4}\' >> $YARD_SPOOL; exit 85')
    ask(server)
    outcome = server.finished("j.0.1")
    assert (outcome["reason"], outcome["exit_code"]) == ("Preempted", 85)
    assert (outcome["progress"]["epochs_done"], outcome["progress"]["has_yielded"]) == (4, True)
    assert "message" not in outcome


def test_who_ends_by_itself_meanwhile_has_succeeded(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, OBEYS)
    ask(server)
    outcome = server.finished("j.0.1")
    assert outcome["exit_code"] == 0
    assert "reason" not in outcome


def test_who_fails_meanwhile_has_failed(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, OBEYS + "exit 3")
    ask(server)
    outcome = server.finished("j.0.1")
    assert outcome["exit_code"] == 3
    assert "reason" not in outcome


def test_nobody_is_preempted_who_was_not_asked(server: Client) -> None:
    (outcome,) = server.run({"id": "j.0.1", "shell": "exit 85"})
    assert outcome["exit_code"] == 85
    assert "reason" not in outcome


def test_exit_0_after_being_told_is_a_preemption(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, OBEYS + 'echo \'{"t":"told","at":1}\' >> $YARD_SPOOL')
    ask(server)
    assert server.finished("j.0.1")["reason"] == "Preempted"


@pytest.mark.parametrize(
    ("shell", "end"),
    [
        (DEAF, "SIGTERM"),
        ("trap '' TERM; " + DEAF, "SIGKILL"),
        ("trap 'exit 1' TERM; " + DEAF, "SIGTERM"),  # what torchrun makes of it
    ],
)
def test_the_deadline_is_kept_and_told(agent: AgentProcess, server: Client, shell: str, end: str) -> None:
    begin(agent, server, shell)
    ask(server, deadline=0.5, grace=0.5)
    outcome = server.finished("j.0.1")
    assert outcome["reason"] == "Preempted"
    assert outcome["message"] == f"did not stop at a checkpoint within 0.5 s; ended by {end}"


def test_at_once_means_now(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, DEAF)
    ask(server, at_once=True)
    outcome = server.finished("j.0.1")
    assert (outcome["reason"], outcome["signal"]) == ("Preempted", 15)
    assert outcome["message"] == "ended by SIGTERM: it does not stop at a checkpoint by itself"


# Files that come one after the other, as those of a large checkpoint: the last one makes it complete.
SAVES = "mkdir $YARD_CHECKPOINT_DIR/c; for i in 1 2 3 4 5 6; do echo $i > $YARD_CHECKPOINT_DIR/c/$i; echo ready; "
SAVES += "sleep 0.5; done; touch $YARD_CHECKPOINT_DIR/c/complete; while :; do sleep 0.05; done"


def test_who_tells_nothing_is_not_ended_in_the_middle_of_a_checkpoint(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, SAVES)
    ask(server, at_once=True)
    ask(server, at_once=True)
    outcome = server.finished("j.0.1")
    assert (outcome["reason"], outcome["signal"]) == ("Preempted", 15)
    assert os.path.exists(agent.files("j.0.1").checkpoint + "/c/complete")


def test_a_checkpoint_that_is_being_written_outlives_the_agent(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, SAVES)
    ask(server, at_once=True)
    until(lambda: os.path.exists(agent.files("j.0.1").stop))
    agent.kill()
    outcome = agent.start().connect("j.0.1").finished("j.0.1")
    assert outcome["reason"] == "Preempted"
    assert os.path.exists(agent.files("j.0.1").checkpoint + "/c/complete")


def test_who_never_stops_writing_is_ended_at_the_deadline(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, "while :; do date >> $YARD_CHECKPOINT_DIR/log; echo ready; sleep 0.05; done")
    ask(server, at_once=True, deadline=3)
    assert server.finished("j.0.1")["signal"] == 15


@pytest.mark.parametrize(("done", "reason"), [(1, "Preempted"), (2, None)])
def test_who_ends_well_at_sigterm_is_judged_by_its_reports(
    agent: AgentProcess, server: Client, done: int, reason: str | None
) -> None:
    reports = [{"t": "hello", "at": 1, "epochs": 2, "done": 0}, {"t": "epoch", "at": 1, "done": done}]
    tell = "".join(f"echo '{json.dumps(report)}' >> $YARD_SPOOL; " for report in reports)
    begin(agent, server, f"trap 'exit 0' TERM; {tell}" + DEAF)
    ask(server, at_once=True)
    assert server.finished("j.0.1").get("reason") == reason


@pytest.mark.parametrize("report", ["", 'echo \'{"t":"steps","at":1,"steps":3}\' >> $YARD_SPOOL; '])
@pytest.mark.parametrize(("wish", "reason"), [({"at_once": True}, "Preempted"), ({"deadline": 0.1}, None)])
def test_who_ends_well_at_sigterm_and_tells_of_no_end_has_stopped_if_nobody_waited(
    agent: AgentProcess, server: Client, report: str, wish: dict[str, Any], reason: str | None
) -> None:
    begin(agent, server, f"trap 'exit 0' TERM; {report}" + DEAF)
    ask(server, **wish)
    outcome = server.finished("j.0.1")
    assert (outcome["exit_code"], outcome.get("reason")) == (0, reason)


def test_what_has_not_started_is_withdrawn(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": OBEYS + "exit 85"}, {"id": "j.1.1", "shell": "touch ran"})
    until(lambda: agent.is_ready("j.0.1"))
    ask(server, "j.0.1", "j.1.1", "j.77.1")
    server.withdrawn("j.1.1")
    server.withdrawn("j.77.1")
    assert server.finished("j.0.1")["reason"] == "Preempted"
    assert not (agent.work / "ran").exists()


def test_a_later_stop_overrides(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, DEAF)
    ask(server)
    server.send(op="stop", ids=["j.0.1"], grace=20)
    outcome = server.finished("j.0.1")
    assert outcome["signal"] == 15
    assert "reason" not in outcome


def test_who_reports_is_told_that_a_stop_is_the_end(agent: AgentProcess, server: Client) -> None:
    """The SDK takes SIGTERM for the wish that it saves: it has to know that nobody waits for that."""
    shell = "import os, signal, sys, time; from jobyard.sdk import yard_job; job = yard_job(); job.start_epoch()"
    begin(agent, server, f"exec python3 -c '{shell}; print(\"ready\", flush=True); time.sleep(60)'")
    server.send(op="stop", ids=["j.0.1"], grace=600)
    outcome = server.finished("j.0.1")
    assert (outcome["signal"], "reason" in outcome) == (15, False)


@pytest.mark.parametrize("way", ["stop", "supersede"])
def test_who_never_reports_is_told_that_too(agent: AgentProcess, server: Client, way: str) -> None:
    """Of a gang one rank reports, and all of them have the SDK."""
    shell = "import os, sys, time; from jobyard.sdk import yard_job; job = yard_job(); job.start_epoch()"
    begin(agent, server, f"RANK=1 exec python3 -c '{shell}; print(\"ready\", flush=True); time.sleep(60)'")
    assert not os.path.exists(agent.files("j.0.1").spool)
    if way == "stop":
        server.send(op="stop", ids=["j.0.1"], grace=600)
    else:
        server.send(op="reconcile", live=[])
    until(lambda: agent.has_ended("j.0.1"))
    assert agent.ending("j.0.1").signal == 15


def test_a_yield_that_a_launcher_turned_into_another_code_is_a_preemption(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, OBEYS + 'echo \'{"t":"yield","at":1,"done":4}\' >> $YARD_SPOOL; exit 1')
    ask(server)
    assert server.finished("j.0.1")["reason"] == "Preempted"


def test_asked_again_the_earlier_deadline_holds(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, DEAF)
    ask(server, deadline=0.5)
    ask(server, deadline=600)
    assert server.finished("j.0.1")["message"].startswith("did not stop at a checkpoint within 0.5 s")


def test_asked_again_an_earlier_deadline_holds(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, DEAF)
    ask(server, deadline=600)
    ask(server, deadline=0)
    assert server.finished("j.0.1")["reason"] == "Preempted"


def test_who_stopped_while_no_agent_was_there_is_preempted(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, OBEYS + "until [ -e go ]; do sleep 0.01; done; exit 85")
    ask(server)
    until(lambda: os.path.exists(agent.files("j.0.1").stop))
    agent.kill()
    (agent.work / "go").touch()
    until(lambda: agent.has_ended("j.0.1"))
    assert agent.start().connect("j.0.1").finished("j.0.1")["reason"] == "Preempted"


def test_a_deadline_outlives_the_agent(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, DEAF)
    ask(server, deadline=2)
    until(lambda: os.path.exists(agent.files("j.0.1").stop))
    agent.kill()
    outcome = agent.start().connect("j.0.1").finished("j.0.1")
    assert outcome["reason"] == "Preempted"
    assert outcome["message"] == "did not stop at a checkpoint within 2 s; ended by SIGTERM"


def test_a_signal_of_an_agent_that_died_is_known_to_the_next(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, "trap 'echo got; until [ -e go ]; do sleep 0.01; done; exit 143' TERM; " + DEAF)
    ask(server, at_once=True)
    until(lambda: "got" in agent.output("j.0.1"))
    agent.kill()
    (agent.work / "go").touch()
    until(lambda: agent.has_ended("j.0.1"))
    assert agent.start().connect("j.0.1").finished("j.0.1")["reason"] == "Preempted"


def test_an_order_that_cannot_be_read_is_still_one(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, OBEYS + "until [ -e go ]; do sleep 0.01; done; exit 85")
    Path(agent.files("j.0.1").stop).write_text("")
    agent.kill()
    (agent.work / "go").touch()
    until(lambda: agent.has_ended("j.0.1"))
    assert agent.start().connect("j.0.1").finished("j.0.1")["reason"] == "Preempted"


def test_the_stop_file_goes_with_the_job(agent: AgentProcess, server: Client) -> None:
    begin(agent, server, OBEYS + "exit 85")
    ask(server)
    server.finished("j.0.1")
    server.send(op="forget", jobs=["j"], snapshots=[])
    until(lambda: not os.path.exists(agent.files("j.0.1").stop))


@pytest.mark.parametrize("message", [{"deadline": -1}, {"deadline": "soon"}, {"grace": None}, {"ids": ["../x.1.1"]}])
def test_a_request_that_makes_no_sense_is_refused(server: Client, message: dict[str, object]) -> None:
    server.send(**{"op": "yield", "ids": ["j.0.1"], "deadline": 1, "grace": 1, **message})
    server.wait(lambda m: m["ev"] == "error")
