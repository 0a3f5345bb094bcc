"""Every test gets directories and an agent of its own, and leaves no process behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.agent.agent_process import AgentProcess, Client

MakeAgent = Callable[..., AgentProcess]


@pytest.fixture(autouse=True)
def reservations_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "reservations"
    monkeypatch.setenv("JOBYARD_RESERVATIONS_DIR", str(path))
    return path


@pytest.fixture
def make_agent(tmp_path: Path) -> Iterator[MakeAgent]:
    """Builds agents, not yet started, in directories by name."""
    made: list[AgentProcess] = []

    def make(name: str = "a", **options: str) -> AgentProcess:
        made.append(AgentProcess(tmp_path / name, **options))
        return made[-1]

    yield make
    for agent in made:
        agent.stop_everything()


@pytest.fixture
def agent(make_agent: MakeAgent) -> AgentProcess:
    return make_agent().start()


@pytest.fixture
def server(agent: AgentProcess) -> Client:
    return agent.connect()
