"""How does the agent of another account come to be there, and what is said where it cannot?"""

from __future__ import annotations

import asyncio
import os
import pwd
from asyncio.subprocess import Process
from pathlib import Path

import pytest

from jobyard.errors import Rejected, Unavailable, UserError
from jobyard.executors import remote_agent
from jobyard.executors.remote_agent import AGENT_IS_MISSING, HOME_IS_READ_ONLY, PYTHON_IS_OLD, RemoteAgent, last_line
from jobyard.executors.run_as import account_of, environment_of

GREETING = "echo 'Welcome to this machine'; echo 'jobyard bridge 10.0.0.5 10.0.0.1'; cat"


class PlayedAccount(RemoteAgent):
    """Each command is answered by the next of these scripts, whatever it is."""

    def __init__(self, *scripts: str) -> None:
        super().__init__("gpu1", "yard")
        self.scripts = list(scripts)
        self.commands: list[str] = []

    async def _start(self, remote_command: str, stdin: int, stdout: int) -> Process:
        self.commands.append(remote_command)
        words = ("/bin/sh", "-c", self.scripts.pop(0))
        return await asyncio.create_subprocess_exec(*words, stdin=stdin, stdout=stdout, stderr=asyncio.subprocess.PIPE)

    def _explain_failure(self, code: int | None, said: str) -> str:
        return f"it ended with {code}: {last_line(said)}"


@pytest.fixture(autouse=True)
def _a_small_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent.pyz").write_bytes(b"agent")
    monkeypatch.setattr(remote_agent, "agent_zipapp", lambda: (str(tmp_path / "agent.pyz"), "b1"))


async def test_the_connection_begins_after_the_bridges_line_whatever_a_login_prints() -> None:
    account = PlayedAccount(GREETING)
    reader, writer = await account.connect()
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    assert (account.address, account.sees_us_as) == ("10.0.0.5", "10.0.0.1")
    writer.close()


async def test_a_login_that_prints_an_endless_line_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_agent, "LARGEST_LINE", 1000)
    account = PlayedAccount("head -c 100000 /dev/zero; cat")
    with pytest.raises(Unavailable, match="node gpu1: its login prints a line of more than"):
        await account.connect()


async def test_an_agent_that_is_missing_is_sent_once_and_then_started(tmp_path: Path) -> None:
    account = PlayedAccount(f"exit {AGENT_IS_MISSING}", f"cat > {tmp_path}/sent", GREETING)
    _, writer = await account.connect()
    assert (tmp_path / "sent").read_bytes() == b"agent"
    assert len(account.commands) == 3
    writer.close()


async def test_an_agent_that_is_still_missing_after_it_was_sent_is_not_sent_again() -> None:
    missing = f"exit {AGENT_IS_MISSING}"
    account = PlayedAccount(missing, "cat > /dev/null", missing)
    with pytest.raises(Unavailable, match=f"node gpu1: it ended with {AGENT_IS_MISSING}"):
        await account.connect()


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (127, "node gpu1: there is no python3; install Python 3.8 or newer there"),
        (PYTHON_IS_OLD, "node gpu1: its python3 is older than 3.8; install a newer one there"),
        (
            HOME_IS_READ_ONLY,
            "node gpu1: its home cannot be written (no space left); make room there or log in as another user",
        ),
        (255, "node gpu1: it ended with 255: no space left"),
    ],
)
async def test_a_failure_names_the_node_and_the_way_out(code: int, sentence: str) -> None:
    account = PlayedAccount(f"echo 'a banner' >&2; echo 'no space left' >&2; exit {code}")
    with pytest.raises(Unavailable) as raised:
        await account.connect()
    assert str(raised.value) == sentence


@pytest.mark.parametrize(("code", "kind"), [(HOME_IS_READ_ONLY, Rejected), (1, Unavailable)])
async def test_a_tree_that_never_fits_there_is_told_from_one_that_did_not_arrive(
    tmp_path: Path, code: int, kind: type[Exception]
) -> None:
    account = PlayedAccount(f"cat > /dev/null; echo 'jobyard agent: the disk is full' >&2; exit {code}")
    (tmp_path / "tree.tar").write_bytes(b"tar")
    with pytest.raises(kind, match="the disk is full"):
        await account.send_snapshot("abc", tmp_path / "tree.tar")


def test_two_nodes_of_one_yard_have_two_agents() -> None:
    assert "'yard.gpu1'" in PlayedAccount().run_agent("--bridge", "--yard", "yard.gpu1")


# -- another user of this machine


def test_a_user_who_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError, match="has no such user; make one"):
        account_of("nobody-of-that-name")


@pytest.mark.parametrize(
    ("uid", "user", "complaint"),
    [(1000, "nobody", "only root can start tasks as another user"), (0, "root", "the server's own account")],
)
def test_only_root_serves_for_somebody_else(
    monkeypatch: pytest.MonkeyPatch, uid: int, user: str, complaint: str
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: uid)
    with pytest.raises(UserError, match=complaint):
        account_of(user)


def test_another_users_agent_has_nothing_of_the_servers_environment_but_the_language(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET", "s3cret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    account = pwd.struct_passwd(("ada", "x", 1001, 1001, "", "/home/ada", ""))
    found = environment_of(account, os.environ)
    assert (found["HOME"], found["USER"], found["SHELL"], found["LANG"]) == ("/home/ada", "ada", "/bin/sh", "C.UTF-8")
    assert "AWS_SECRET" not in found
