from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.unit.client.stand_in import Said, StandIn, standing_in
from tests.unit.client.views import a_server_view

from jobyard import settings
from jobyard.cli.main import run
from jobyard.client.local import LocalYard
from jobyard.errors import Unreachable


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Yard = Callable[..., Result]


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user with nothing: every directory that `yard` uses is new, and short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="yt-", dir="/tmp") as name:
        home = Path(name)
        for variable in ("YARD_URL", "YARD_TOKEN", "YARD_DEBUG", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("HOME", name)
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        monkeypatch.setenv("XDG_STATE_HOME", f"{name}/state")
        monkeypatch.setenv("YARD_DIR", f"{name}/yard")
        monkeypatch.setenv("YARD_RECONNECT_SECONDS", "5")
        (home / "here").mkdir()
        monkeypatch.chdir(home / "here")
        yield home


@pytest.fixture(autouse=True)
def no_real_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here may start one: a thread that still follows a job would, when the stand-in has gone."""

    def refuse(self: LocalYard) -> None:
        raise Unreachable("the tests of the command line start no server")

    monkeypatch.setattr(LocalYard, "start", refuse)


@pytest.fixture
def stand_in(home: Path) -> Iterator[StandIn]:
    (home / "yard").mkdir()
    with standing_in(settings.socket_path(home / "yard")) as stand_in:
        stand_in.on("GET /server", Said(data=a_server_view()))
        stand_in.on("GET /clusters", Said(data=()))
        yield stand_in


@pytest.fixture
def yard(capsys: pytest.CaptureFixture[str]) -> Yard:
    """Calls `yard` with these words, in this process."""

    def call(*words: str) -> Result:
        code = run(words)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call
