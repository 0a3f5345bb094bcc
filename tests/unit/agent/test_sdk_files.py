"""Do tasks find the SDK that belongs to their agent, and do they keep what they have installed?"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.unit.agent.conftest import MakeAgent

from jobyard.agent import build
from jobyard.agent_protocol import sdk_files


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree with an SDK, as far as an agent's build looks at it."""
    root = tmp_path / "tree"
    for name, content in {
        "jobyard/__init__.py": '__version__ = "9.8"\n',
        "jobyard/sdk/__init__.py": "WORD = 'from the agent'\n",
        "jobyard/sdk/deep/inner.py": "",
        "jobyard/sdk/notes.txt": "",
        "jobyard/agent_protocol/__init__.py": "",
        "jobyard/agent_protocol/exit_codes.py": "",
        "kubernetesdlprofile/__init__.py": "",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.setattr(sdk_files, "_tree", lambda: str(root))
    return root


def test_the_build_carries_the_sdk_out_of_the_agents_own_reach(tree: Path, tmp_path: Path) -> None:
    before = build.build(str(tmp_path / "agent.pyz"))
    with zipfile.ZipFile(tmp_path / "agent.pyz") as archive:
        assert sorted(name for name in archive.namelist() if name.startswith("sdk/")) == [
            "sdk/jobyard/__init__.py",
            "sdk/jobyard/agent_protocol/__init__.py",
            "sdk/jobyard/agent_protocol/exit_codes.py",
            "sdk/jobyard/sdk/__init__.py",
            "sdk/jobyard/sdk/deep/inner.py",
            "sdk/kubernetesdlprofile/__init__.py",
        ]
    (tree / "jobyard/sdk/__init__.py").write_text("WORD = 'newer'\n")
    assert build.source_hash() != before


def test_an_agent_without_an_sdk_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_files, "_tree", lambda: str(tmp_path / "nothing"))
    assert sdk_files.unpack(str(tmp_path), print) == ""


def test_the_sdk_is_unpacked_once_per_build(tree: Path, tmp_path: Path) -> None:
    path = sdk_files.unpack(str(tmp_path), print)
    assert sdk_files.unpack(str(tmp_path), print) == path
    (tree / "jobyard/sdk/__init__.py").write_text("")
    assert sdk_files.unpack(str(tmp_path), print) != path
    assert len(list(tmp_path.glob("sdk-*"))) == 2


def test_what_other_builds_unpacked_goes(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "sdk-0123456789abcdef").mkdir()
    (tmp_path / "sdk-0123456789abcdef.77.tmp").mkdir()
    path = sdk_files.unpack(str(tmp_path), print)
    sdk_files.remove_others(str(tmp_path), path)
    assert [str(each) for each in tmp_path.glob("sdk-*")] == [path]
    sdk_files.remove_others(str(tmp_path / "gone"), path)


def test_what_runs_keeps_its_sdk(make_agent: MakeAgent) -> None:
    agent = make_agent().start()
    server = agent.connect()
    server.launch("s", {"id": "j.0.1", "shell": "until [ -e go ]; do sleep 0.01; done"})
    server.started("j.0.1")
    agent.kill()
    (agent.state / "sdk-of-before").mkdir()
    again = agent.start().connect("j.0.1")
    assert (agent.state / "sdk-of-before").exists()
    (agent.work / "go").touch()
    again.finished("j.0.1")
    agent.kill()
    agent.start().connect()
    assert not (agent.state / "sdk-of-before").exists()


def test_a_disk_without_room_costs_only_the_sdk(tree: Path, tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "file").write_text("")
    assert sdk_files.unpack(str(tmp_path / "file"), said.append) == ""
    assert "the SDK cannot be unpacked" in said[0]


def test_an_installed_jobyard_remains_in_reach(tree: Path, tmp_path: Path) -> None:
    path = sdk_files.unpack(str(tmp_path), print)
    installed = tmp_path / "installed" / "jobyard"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    (installed / "other.py").write_text("WORD = 'installed'")
    code = "import jobyard, jobyard.sdk, jobyard.other as o; print(jobyard.__version__, jobyard.sdk.WORD, o.WORD)"
    env = {"PYTHONPATH": f"{path}:{installed.parent}"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "9.8 from the agent installed\n"


def test_a_task_of_the_zipapp_finds_the_sdk_behind_its_own_path(
    tree: Path, make_agent: MakeAgent, tmp_path: Path
) -> None:
    build.build(str(tmp_path / "agent.pyz"))
    agent = make_agent()
    command = [sys.executable, "-I", str(tmp_path / "agent.pyz"), "--state", str(agent.state)]
    subprocess.run([*command, "--socket", str(agent.socket), "--detach"], check=True, env={"PATH": "/usr/bin:/bin"})
    server = agent.connect()
    (path,) = agent.state.glob("sdk-*")
    server.run(
        {"id": "j.0.1", "shell": f'echo $PYTHONPATH; {sys.executable} -c "import jobyard.sdk as s; print(s.WORD)"'},
        {"id": "j.1.1", "shell": "echo $PYTHONPATH", "env": {"PYTHONPATH": "mine"}},
    )
    assert agent.output("j.0.1") == f"{path}\nfrom the agent\n"
    assert agent.output("j.1.1") == f"mine:{path}\n"
    server.send(op="quit")
