"""Server, doctor and the yard that is meant: is one started, and what is told of it?"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn, problem
from tests.unit.client.views import NODE, SERVER_PID, a_server_view


@pytest.mark.parametrize("words", [("ls",), ("show", "last"), ("cancel", "last"), ("nodes",), ("token", "create", "x")])
def test_a_misspelt_yard_is_refused_and_not_made(yard: Yard, home: Path, words: tuple[str, ...]) -> None:
    result = yard(*words, "--yard", "tpyo")
    assert (result.code, result.out) == (2, "")
    assert result.err == "yard: --yard: there is no directory 'tpyo'; `yard run --yard tpyo` would make it\n"
    assert "start no server" in yard("run", "--yard", "tpyo", "--", "true").err, "run goes on, and would make it"


@pytest.mark.parametrize("words", [("ls",), ("show", "last"), ("cancel", "last"), ("nodes",)])
def test_a_misspelt_yard_of_the_environment_is_refused_and_not_made(
    yard: Yard, home: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YARD_DIR", "tpyo")
    result = yard(*words)
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "yard: YARD_DIR: there is no directory 'tpyo'; correct it, or `yard run -- CMD` makes that yard\n"
    )
    assert not (home / "here" / "tpyo").exists()
    assert "start no server" in yard("run", "--", "true").err, "run goes on, and would make it"


def test_doctor_names_the_processes(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /nodes", Said(data=(NODE,)))
    data = json.loads(yard("doctor", "-o", "json").out)
    assert data["server"]["pid"] == SERVER_PID
    assert data["agents"][0]["pid"] == 4712
    assert {check["status"] for check in data["checks"]} == {"ok"}
    shown = yard("doctor")
    assert shown.code == 0
    assert f"pid {SERVER_PID}" in shown.out
    assert "(fake)" in shown.out


def test_doctor_tells_of_a_node_whose_agent_lies(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /nodes", Said(data=(replace(NODE, problem="its agent said 7 times what cannot be"),)))
    result = yard("doctor")
    assert result.code == 0
    assert f"warn  node     {NODE.id}: its agent said 7 times what cannot be" in result.out


def test_doctor_of_a_yard_without_a_node_fails(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /nodes", Said(data=()))
    result = yard("doctor")
    assert result.code == 1
    assert "fail  node" in result.out


def test_server_status_never_starts_one(yard: Yard, home: Path) -> None:
    result = yard("server", "status", "-o", "json")
    assert result.code == 3
    assert json.loads(result.out) == {"running": False}
    assert not (home / "yard").exists()


def test_server_status_shows_the_one_that_runs(yard: Yard, stand_in: StandIn) -> None:
    assert json.loads(yard("server", "status", "-o", "json").out)["pid"] == SERVER_PID
    stand_in.on("GET /server", Said(data=a_server_view(build="old")))
    assert "other code" in yard("server", "status").out


def test_server_logs_are_the_last_lines(yard: Yard, home: Path) -> None:
    assert yard("server", "logs").code == 2
    (home / "yard").mkdir()
    (home / "yard" / "server.log").write_text("one\ntwo\nthree\n")
    assert yard("server", "logs", "--tail", "2").out == "two\nthree\n"


def test_server_stop_is_refused_in_the_servers_words(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("POST /server/stop", problem(409, "bad_request", "2 jobs are pending; --force stops anyway"))
    result = yard("server", "stop")
    assert (result.code, result.err) == (2, "yard: 2 jobs are pending; --force stops anyway\n")


def test_server_stop_asks_the_server_that_yard_url_names(
    yard: Yard, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.on("POST /server/stop", Said(data=a_server_view()))
    monkeypatch.setenv("YARD_URL", f"unix:{stand_in.socket_path}")
    result = yard("server", "stop")
    assert (result.code, result.err) == (0, f"yard: the server at unix:{stand_in.socket_path} stops\n")
    assert len(stand_in.calls("POST /server/stop")) == 1


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What `yard serve` would become."""
    commands: list[list[str]] = []

    def become(path: str, words: list[str], environ: dict[str, str]) -> None:
        commands.append(words)
        sys.exit(0)

    monkeypatch.setattr("jobyard.cli.commands.serve.os.execve", become)
    return commands


def test_serve_takes_the_place_of_an_idle_background_server(
    yard: Yard, stand_in: StandIn, served: list[list[str]]
) -> None:
    stand_in.on("POST /server/stop", Said(data=a_server_view()))
    yard("serve", "--listen", "127.0.0.1:7077")
    assert len(stand_in.calls("POST /server/stop")) == 1
    assert served[0][-2:] == ["--listen", "127.0.0.1:7077"]


@pytest.mark.parametrize(
    ("listen", "sentence"), [("unix:/run/y.sock", "yard server stop --force"), ("0.0.0.0:7077", "is served already")]
)
def test_serve_leaves_a_server_alone_that_works_or_serves(
    yard: Yard, stand_in: StandIn, served: list[list[str]], listen: str, sentence: str
) -> None:
    stand_in.on("GET /server", Said(data=a_server_view(listen=listen)))
    stand_in.on("POST /server/stop", problem(409, "bad_request", "2 jobs are not finished"))
    result = yard("serve", "--listen", "127.0.0.1:7077")
    assert (result.code, result.err.count("\n"), served) == (2, 1, [])
    assert sentence in result.err
