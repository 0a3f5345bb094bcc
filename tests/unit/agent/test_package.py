"""Does the agent run wherever there is a python3?"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.unit.agent.agent_process import SOURCE, AgentProcess
from tests.unit.agent.conftest import MakeAgent
from tests.unit.agent.trees_of_files import archive_of, results

from jobyard.agent import build
from jobyard.agent.devices.gpus import NoGpus, find_gpus

FILES = sorted(path for package in ("agent", "agent_protocol") for path in (SOURCE / "jobyard" / package).rglob("*.py"))
OLD_PYTHON = next((str(path) for path in Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8")), "/usr/bin/python3.8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_file_is_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_file_imports_only_the_standard_library_and_the_agent(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            is_ours = re.match(r"jobyard\.agent(_protocol)?(\.|$)", name) is not None
            assert is_ours or name.split(".")[0] in sys.stdlib_module_names


@pytest.mark.skipif(not os.path.exists(OLD_PYTHON), reason="there is no Python 3.8 here")
def test_the_agent_runs_with_python_3_8(make_agent: MakeAgent) -> None:
    agent = make_agent(python=OLD_PYTHON).start()
    server = agent.connect()
    server.launch("s", {"id": "j.0.1", "shell": "echo run; until [ -e go ]; do sleep 0.01; done; exit 5"})
    server.started("j.0.1")
    agent.kill()
    again = agent.start().connect("j.0.1")
    again.started("j.0.1")
    again.measured()
    (agent.work / "go").touch()
    assert again.finished("j.0.1")["exit_code"] == 5


@pytest.mark.skipif(not os.path.exists(OLD_PYTHON), reason="there is no Python 3.8 here")
def test_files_travel_with_python_3_8(make_agent: MakeAgent, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "data").write_text("data\n")
    agent = make_agent(python=OLD_PYTHON).start()
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "HOME": str(tmp_path)}
    command = [OLD_PYTHON, "-m", "jobyard.agent.main", "--receive", "abc", "--yard", "y"]
    subprocess.run(command, input=archive_of(tmp_path / "tree"), env=env, check=True, capture_output=True)
    (state,) = (tmp_path / ".local/share/jobyard/agents").iterdir()
    os.rename(state / "snapshots", agent.state / "snapshots")
    server = agent.connect(ship=True)
    server.send(op="job", job="j", env={}, snapshot="abc", copy_back=["."])
    server.run({"id": "j.0.1", "shell": "cat data; cp data new"})
    assert server.shipped("j.0.1", "out") == b"data\n"
    assert results(server, "j.0.1") == {"new": b"data\n"}


@pytest.mark.skipif(not os.path.exists(OLD_PYTHON), reason="there is no Python 3.8 here")
def test_training_reports_and_yields_with_python_3_8(make_agent: MakeAgent) -> None:
    agent = make_agent(python=OLD_PYTHON).start()
    server = agent.connect()
    server.launch("s", {"id": "j.0.1", "shell": "until [ -e $YARD_STOP_FILE ]; do sleep 0.01; done; exit 85"})
    server.started("j.0.1")
    url = "http://" + server.welcome["report_address"]
    with urllib.request.urlopen(url + "/end_epoch/j", b'{"done": 3}') as answer:
        assert answer.read() == b""
    with urllib.request.urlopen(url + "/has_to_stop/j") as answer:
        assert answer.read() == b"0"
    assert server.progress("j.0.1")["epochs_done"] == 3
    server.send(op="yield", ids=["j.0.1"], deadline=60, grace=1)
    assert server.finished("j.0.1")["reason"] == "Preempted"


def test_the_zipapp_is_the_same_for_the_same_sources(tmp_path: Path) -> None:
    first, second = build.build(str(tmp_path / "a")), build.build(str(tmp_path / "b"))
    assert first == second
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["a", "b"]


def test_the_zipapp_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path, build_id = build.agent_zipapp()
    before = os.stat(path)
    assert build.agent_zipapp() == (path, build_id)
    assert os.stat(path).st_mtime_ns == before.st_mtime_ns
    assert path == str(tmp_path / "jobyard" / f"agent-{build_id}.pyz")


def test_an_agent_from_the_zipapp_tells_its_build(make_agent: MakeAgent, tmp_path: Path) -> None:
    build_id = build.build(str(tmp_path / "agent.pyz"))
    agent: AgentProcess = make_agent()
    command = [
        sys.executable,
        "-I",
        str(tmp_path / "agent.pyz"),
        "--state",
        str(agent.state),
        "--socket",
        str(agent.socket),
    ]
    subprocess.run([*command, "--detach"], check=True, stdin=subprocess.DEVNULL, cwd="/")
    server = agent.connect()
    assert server.welcome["build"] == build_id
    assert server.run({"id": "j.0.1", "shell": "exit 4"})[0]["exit_code"] == 4


def test_a_machine_without_gpus_is_simply_one_without() -> None:
    gpus = find_gpus()
    assert isinstance(gpus, NoGpus)
    assert os.path.exists("/dev/nvidia0") or (not gpus.devices() and not gpus.usage())
