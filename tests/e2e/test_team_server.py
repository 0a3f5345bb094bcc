"""`yard serve`: the same server on TCP, where every call needs a token."""

from __future__ import annotations

import http.client
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import Hosts
from tests.waiting import PATIENCE_SECONDS, listens, until
from tests.yards import TemporaryYard

CALLS = [
    ("GET", "/api/v1/jobs"),
    ("POST", "/api/v1/jobs"),
    ("GET", "/api/v1/jobs/last"),
    ("GET", "/api/v1/jobs/last/tasks"),
    ("GET", "/api/v1/jobs/last/watch"),
    ("GET", "/api/v1/jobs/last/logs"),
    ("GET", "/api/v1/jobs/last/logs/raw"),
    ("GET", "/api/v1/jobs/last/why"),
    ("POST", "/api/v1/jobs/last/cancel"),
    ("POST", "/api/v1/jobs/last/retry"),
    ("POST", "/api/v1/jobs/last/priority"),
    ("POST", "/api/v1/jobs/last/annotations"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/events"),
    ("GET", "/api/v1/server"),
    ("POST", "/api/v1/server/stop?force=true"),
    ("GET", "/api/v1/tokens"),
    ("POST", "/api/v1/tokens"),
    ("DELETE", "/api/v1/tokens/x"),
    ("GET", "/openapi.json"),
    ("GET", "/no/such/path"),
]


class Team:
    """A served yard, its address, and somebody else's machine: an empty yard directory and a token."""

    def __init__(self, served: TemporaryYard, port: int, token: dict[str, Any]) -> None:
        self.served = served
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.token = token
        self.env = {"YARD_URL": self.url, "YARD_TOKEN": token["secret"], "YARD_DIR": str(served.root / "elsewhere")}

    def ask(self, method: str, path: str, token: str = "", headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            connection.request(method, path, headers={**sent, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read() if answer.status != 200 or "events" not in path else b""
        finally:
            connection.close()


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    with TemporaryYard(YARD_REFUSAL_SECONDS="0") as served:
        yield from _serving(served)


@pytest.fixture(scope="module")
def lab() -> Iterator[Team]:
    """A team with a machine: on the server's own one only its owner's jobs run."""
    with Hosts(1) as hosts, TemporaryYard(YARD_SSH_CONFIG=str(hosts.config_file), YARD_ALIVE_SECONDS="1") as served:
        served.ok("nodes", "add", "gpu1")
        yield from _serving(served)


def _serving(served: TemporaryYard) -> Iterator[Team]:
    token = served.json("token", "create", "laptop", "--admin")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with served.start("serve", "--listen", f"127.0.0.1:{port}") as process:
        try:
            until(lambda: _listens(port, process))
            yield Team(served, port, token)
        finally:
            process.terminate()
            _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, err
    assert b"Traceback" not in err
    assert f"clients need YARD_URL=http://127.0.0.1:{port}".encode() in err


def _listens(port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None
    return listens(port)


@pytest.mark.parametrize(("method", "path"), CALLS, ids=[f"{method} {path}" for method, path in CALLS])
def test_no_call_is_answered_without_a_token(team: Team, method: str, path: str) -> None:
    for token in ("", "wrong", "yard_" + "A" * 43, "' OR 1=1 --"):
        status, body = team.ask(method, path, token)
        assert (status, b'"forbidden"' in body) == (401, True)
    status, _ = team.ask(method, path, headers={"Authorization": f"Basic {team.token['secret']}"})
    assert status == 401


def test_the_health_check_needs_none(team: Team) -> None:
    assert team.ask("GET", "/api/v1/healthz") == (200, b"ok\n")


@pytest.mark.slow
def test_a_client_elsewhere_works_with_url_and_token(lab: Team) -> None:
    done = lab.served.ok("run", "--", "echo over tcp", env=lab.env)
    assert done.out == "over tcp\n"
    assert lab.served.tasks("last")[0]["node"] == "gpu1"
    assert lab.served.json("show", "last", env=lab.env)["user"] == "laptop"
    assert lab.served.ok("ls", "-q", env=lab.env).out
    assert not (lab.served.root / "elsewhere").exists()


def test_without_or_with_a_wrong_token_one_sentence_is_said(team: Team) -> None:
    for token in ("", "wrong", "ungültig"):
        done = team.served.run("ls", env={**team.env, "YARD_TOKEN": token})
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert "YARD_TOKEN" in done.err


def test_a_revoked_token_is_refused(team: Team) -> None:
    token = team.served.json("token", "create", "lost", env=team.env)
    env = {**team.env, "YARD_TOKEN": token["secret"]}
    team.served.ok("ls", env=env)
    listed = {row["id"]: row for row in team.served.json("token", "ls", env=team.env)}
    assert listed[token["id"]]["secret"] == ""
    assert listed[token["id"]]["last_used_at"] is not None
    team.served.ok("token", "revoke", token["id"], env=team.env)
    assert team.served.run("ls", env=env).code == 2
    assert team.ask("GET", "/api/v1/jobs", token["secret"])[0] == 401


def test_a_secret_is_kept_nowhere(team: Team) -> None:
    secret = team.token["secret"].encode()
    team.served.ok("ls", env=team.env)
    files = [path for path in team.served.directory.rglob("*") if path.is_file()]
    assert any(path.name == "yard.db" for path in files)
    assert [path for path in files if secret in path.read_bytes() or secret[5:] in path.read_bytes()] == []


@pytest.mark.slow
def test_no_directory_of_the_server_is_read_for_a_token(lab: Team) -> None:
    private = lab.served.root / "private"
    private.mkdir()
    (private / "secret").write_text("for the owner alone")
    done = lab.served.ok("run", "-w", str(private), "--", "find . -name secret; pwd", env=lab.env)
    assert done.out.strip() != str(private)
    assert "secret" not in done.out
    assert "over TCP no files are sent along" in done.err
    assert list((lab.served.directory / "snapshots").glob("*.tar")) == []


@pytest.mark.slow
def test_what_a_task_puts_into_its_output_directory_is_fetched_over_tcp(lab: Team, tmp_path: Path) -> None:
    job = lab.served.ok("run", "-q", "--", "echo 42 > $YARD_OUTPUT_DIR/answer", env=lab.env).out.strip()
    lab.served.ok("fetch", job, "--to", str(tmp_path), env=lab.env)
    (found,) = tmp_path.rglob("answer")
    assert found.read_text() == "42\n"


@pytest.mark.slow
def test_the_submitting_shells_environment_stays_at_home(lab: Team) -> None:
    env = {**lab.env, "MY_SHELL_VARIABLE": "private"}
    done = lab.served.ok("run", "--", "echo [$MY_SHELL_VARIABLE$YARD_TOKEN]", env=env)
    assert done.out == "[]\n"
    files = [path for path in lab.served.directory.rglob("*") if path.is_file()]
    assert [path for path in files if b"MY_SHELL_VARIABLE=" in path.read_bytes()] == []


@pytest.mark.slow
def test_secrets_are_named_and_never_shown(lab: Team) -> None:
    words = ["-e", "API_TOKEN=hush-hush", "-e", "MODE=fast"]
    done = lab.served.ok("run", "-q", *words, "--", "echo $API_TOKEN | wc -c", env=lab.env)
    job = done.out.strip()
    for call in (["show", job], ["show", job, "-o", "json"], ["ls", "-o", "json"], ["why", job]):
        assert "hush-hush" not in lab.served.ok(*call, env=lab.env).out
    assert "API_TOKEN=(hidden)" in lab.served.ok("show", job, env=lab.env).out
    assert "MODE=fast" in lab.served.ok("show", job, env=lab.env).out
    connection = http.client.HTTPConnection("127.0.0.1", lab.port, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {lab.token['secret']}"})
    stream = connection.getresponse()
    seen = b""
    while job.encode() not in seen or b"JobSubmitted" not in seen:
        seen += stream.read1(65536)
    connection.close()
    assert b"hush-hush" not in seen


def test_an_address_where_nobody_answers_is_said_in_one_sentence(yard: TemporaryYard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = yard.run("ls", env={"YARD_URL": f"http://127.0.0.1:{port}"})
    assert (done.code, done.err.count("\n")) == (3, 1)
    done = yard.run("ls", env={"YARD_URL": "gopher://x"})
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_an_address_in_use_is_said_in_one_sentence(team: Team, yard: TemporaryYard) -> None:
    done = yard.run("serve", "--listen", f"127.0.0.1:{team.port}", env={"YARD_DIR": str(yard.root / "other")})
    assert done.code == 2
    assert "Traceback" not in done.err
    assert done.err.splitlines()[-1].startswith("yard: --listen")
