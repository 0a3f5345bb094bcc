"""Machine files as nodes: who shares one, and who takes it away."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.stand_in import Asked, Said, StandIn, problem
from tests.unit.client.views import NODE, a_job_view

from jobyard.compat.ml_scheduler.machines import LABEL, Machine, machines_for_a_run
from jobyard.compat.ml_scheduler.use import Use
from jobyard.console import Session
from jobyard.errors import UserError
from jobyard.model.node import NodeState
from jobyard.wire.views import NodeRemoved, NodeView

GUEST = replace(NODE, id="m1", executor="ssh", labels=(LABEL,), host="10.0.0.1", user="ben", port=22)


class Yard:
    """A stand-in with nodes that commands add and take away."""

    def __init__(self, stand_in: StandIn, *nodes: NodeView) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.added: list[dict[str, Any]] = []
        self._stand_in = stand_in
        stand_in.on("GET /nodes", lambda asked: Said(data=tuple(self.nodes.values())))
        stand_in.on("POST /nodes", self._add)
        stand_in.on("GET /jobs", Said(data=()))
        for name in ("m1", "m1-2", "my-box", "own"):
            stand_in.on(f"POST /nodes/{name}/probe", lambda asked: Said(data=self.nodes[asked.path.split("/")[-2]]))
            stand_in.on(f"DELETE /nodes/{name}", self._remove)

    def _add(self, asked: Asked) -> Said:
        config = asked.body["config"]
        self.added.append(config)
        view = replace(GUEST, id=config["id"], host=config["host"], user=config["user"], port=config["port"])
        self.nodes[view.id] = view
        return Said(201, data=view)

    def _remove(self, asked: Asked) -> Said:
        node = asked.path.split("/")[-1]
        del self.nodes[node]
        return Said(data=NodeRemoved(node))


def write(name: str, ip: str = "10.0.0.1", user: str = "ben", port: int = 22) -> None:
    Path("key").touch()
    Path(name).write_text(f"username: {user}\nip: {ip}\nport: {port}\nssh_key_path: key\n")


def nodes_of(*names: str) -> list[str | None]:
    with machines_for_a_run(Session(None, "table"), names) as machines:
        return [machine.node.id if machine.node else None for machine in machines]


@pytest.mark.parametrize("labels", [(LABEL,), ("lab",)])
def test_files_with_one_login_are_one_node_and_that_of_the_yard_if_it_has_one(
    stand_in: StandIn, labels: tuple[str, ...]
) -> None:
    yard = Yard(stand_in, replace(GUEST, id="own", labels=labels))
    write("a.yaml")
    write("b.yaml")
    assert nodes_of("a.yaml", "b.yaml") == ["own", "own"]
    assert [config["id"] for config in yard.added] == (["own"] if LABEL in labels else []), "a user's own is as it is"
    assert list(yard.nodes) == ([] if LABEL in labels else ["own"])


@pytest.mark.parametrize("other", [{"ip": "10.0.0.2"}, {"user": "eve"}, {"port": 2222}])
def test_another_machine_with_the_name_of_a_node_gets_a_number(stand_in: StandIn, other: dict[str, Any]) -> None:
    yard = Yard(stand_in, GUEST)
    write("m1.yaml", **other)
    assert nodes_of("m1.yaml") == ["m1-2"]
    assert yard.added[0]["only_named"]
    assert yard.nodes == {}


def test_a_files_name_may_be_no_name_of_a_node(stand_in: StandIn) -> None:
    Yard(stand_in)
    write("my box.yaml")
    assert nodes_of("my box.yaml") == ["my-box"]


def test_the_last_command_takes_all_machines_away_also_those_left_behind(stand_in: StandIn) -> None:
    yard = Yard(stand_in, replace(GUEST, id="own", host="10.0.0.9", labels=()), GUEST)
    write("my box.yaml", ip="10.0.0.3")
    with Use():
        nodes_of("my box.yaml")
        assert list(yard.nodes) == ["own", "m1", "my-box"], "another command runs"
    nodes_of("my box.yaml")
    assert list(yard.nodes) == ["own"]


def test_a_job_that_goes_on_without_its_command_keeps_the_machines(stand_in: StandIn) -> None:
    yard = Yard(stand_in)
    stand_in.on("GET /jobs", Said(data=(a_job_view(source="ml-scheduler"),)))
    write("m1.yaml")
    nodes_of("m1.yaml")
    assert list(yard.nodes) == ["m1"]


def test_a_command_that_was_killed_uses_nothing_any_more(home: Path) -> None:
    program = """
from jobyard.compat.ml_scheduler.use import Use
with Use():
    print("in use", flush=True)
    input()
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe) as other, Use() as use:
        assert other.stdout is not None
        assert other.stdout.readline() == b"in use\n"
        assert not use.is_last()
        other.kill()
        other.wait()
    with Use() as use:
        assert use.is_last()


def test_a_machine_called_as_a_word_of_the_refusal_is_named(
    stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    Yard(stand_in)
    stand_in.on("POST /nodes", problem(409, "bad_request", "all of it needs a token of an admin"))
    write("all")
    with pytest.raises(UserError, match="no machine can be used"):
        nodes_of("all")
    assert "all: all of it needs a token" in capsys.readouterr().err


def test_no_usable_machine_is_one_sentence_with_all_names(stand_in: StandIn) -> None:
    Yard(stand_in, replace(GUEST, id="own", labels=(), state=NodeState.DRAINING))
    write("m1.yaml")
    with pytest.raises(UserError, match=r"no machine can be used: m1.yaml, none.yaml"):
        nodes_of("m1.yaml", "none.yaml")
    assert not Machine("m1.yaml", None).is_usable
