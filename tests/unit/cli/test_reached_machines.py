"""Which words lead to a task on a machine, and when does `yard` say that none do?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn

from jobyard.cli.machines.execution import exec_words
from jobyard.cli.reaching import MachineTarget, target_of
from jobyard.cli.session import Session
from jobyard.errors import UserError
from jobyard.model.job import State
from jobyard.wire.views import ProcessView, UnitView

HERE = ProcessView("j1.0.1", "0" * 16, state_dir="/yard/agent")
FAR = ProcessView("j1.3.1", "0" * 16, yard="y.gpu1", host="gpu1.lab", user="ben", port=2222, key_path="/keys/id")


def unit(process: ProcessView | None, task: str = "0") -> UnitView:
    return UnitView("j1", task, State.RUNNING, "gpu1", number=17, process=process)


def words(process: ProcessView, *, has_keys: bool = True, with_terminal: bool = False) -> list[str]:
    target = MachineTarget(unit(process), process, has_keys)
    return exec_words(target, ["echo", "a b"], with_input=with_terminal, with_terminal=with_terminal)


def test_here_the_program_of_this_installation_runs_with_the_agents_files() -> None:
    assert words(HERE)[3:] == [
        *("jobyard.agent.main", "--state", "/yard/agent", "--called", "task 0 of job 17"),
        *("--exec", "j1.0.1", "--", "echo", "a b"),
    ]


def test_there_it_is_ssh_with_the_login_of_the_node() -> None:
    *begin, command = words(FAR)
    assert begin[:3] == ["ssh", "-T", "-n"]
    assert (
        begin[-9:] == ["-l", "ben", "-p", "2222", "-i", "/keys/id", "-o", "IdentitiesOnly=yes", "--", "gpu1.lab"][-9:]
    )
    assert "'--yard', 'y.gpu1'" in command.replace("'\"'\"'", "'")
    assert words(FAR, with_terminal=True)[:3] == ["ssh", "-tt", "-o"]


def test_keys_of_a_server_elsewhere_are_not_looked_for_here() -> None:
    assert "/keys/id" not in words(FAR, has_keys=False)


@pytest.mark.parametrize(
    "odd", [replace(FAR, host="-oProxyCommand=id"), replace(FAR, user="a b"), replace(FAR, agent="../../x")]
)
def test_odd_words_of_a_server_lead_nowhere(odd: ProcessView) -> None:
    with pytest.raises(UserError, match="the server says in odd words how its machine is reached"):
        words(odd)


def test_a_server_elsewhere_leads_to_its_nodes_and_not_to_itself(
    stand_in: StandIn, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "leaves_this_machine", True)
    stand_in.on("GET /jobs/j1/unit", lambda asked: Said(data=unit(FAR if "task" in asked.query else HERE)))
    found = target_of(Session(None, "table"), "j1/3")
    assert isinstance(found, MachineTarget)
    assert (found.process, found.has_keys) == (FAR, False)
    with pytest.raises(UserError, match="runs on gpu1, the server's own machine"):
        target_of(Session(None, "table"), "j1")


def test_what_cannot_be_reached_is_said(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1/unit", Said(data=unit(None)))
    old = yard("exec", "j1", "--", "ls")
    assert (old.code, "the server is older than this `yard`" in old.err) == (2, True)
    contained = replace(HERE, own_network=True, ports=((8001, 80), (8002, 81)))
    stand_in.on("GET /jobs/j1/unit", Said(data=unit(contained)))
    closed = yard("port-forward", "j1", "82")
    assert (closed.code, "publishes no port 82; it has: 80, 81" in closed.err) == (2, True)
    same = yard("port-forward", "j1", "8001:80")
    assert (same.code, "its port 80 is 127.0.0.1:8001 already" in same.err) == (2, True)
