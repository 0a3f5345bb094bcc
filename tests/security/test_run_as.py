"""`yard serve --run-as USER`: on the server's own machine, tasks of tokens run as another user of the system."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.servers import TeamServer, team_server
from tests.security.users import OsUser
from tests.waiting import until
from tests.yards import TemporaryYard

USER, UID = "yard-tasks", 61234
# A user database of this test's own, in a mount namespace of its own.
WITH_USERS = 'mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/group" /etc/group && shift && exec "$@"'


@pytest.fixture
def team(own_yard: TemporaryYard, ann: OsUser) -> Iterator[TeamServer]:
    """Served by root, tasks as a user with a home; `ann` is only asked whether there can be others than root here."""
    home = own_yard.root / "tasks-home"
    home.mkdir(mode=0o700)
    os.chown(home, UID, UID)
    for directory in (own_yard.root, own_yard.work):
        directory.chmod(0o755)
    for name in ("reservations", "fake-gpus"):
        (own_yard.root / name).mkdir()
        (own_yard.root / name).chmod(0o1777)
    users, groups = Path("/etc/passwd").read_text(), Path("/etc/group").read_text()
    (own_yard.root / "passwd").write_text(f"{users}{USER}:x:{UID}:{UID}::{home}:/bin/sh\n")
    (own_yard.root / "group").write_text(f"{groups}{USER}:x:{UID}:\n")
    own_yard.prefix = ["unshare", "--mount", "sh", "-c", WITH_USERS, "sh", str(own_yard.root)]
    try:
        with team_server(own_yard, "--run-as", USER) as team:
            yield team
    finally:
        own_yard.end_processes()
        shutil.rmtree(f"/tmp/jobyard-{UID}", ignore_errors=True)  # the socket of its agent


@pytest.mark.slow
def test_tasks_of_tokens_run_as_that_user_and_see_nothing_of_the_yard(team: TeamServer) -> None:
    yard, env = team.served, team.env("bob")
    script = f"id -u; pwd; ls {yard.directory} 2>&1; kill -0 {team.process.pid} 2>&1; env"
    done = yard.ok("run", "--", script, env=env)
    assert done.out.splitlines()[:2] == [str(UID), str(yard.work)]
    assert "Permission denied" in done.out
    assert "not permitted" in done.out
    assert f"HOME={yard.root}/tasks-home" in done.out
    assert "YARD_TOKEN" not in done.out
    assert yard.job("last")["user"] == "bob"


@pytest.mark.slow
def test_a_log_that_a_task_made_a_link_shows_nothing_of_the_servers(team: TeamServer) -> None:
    """The server is root: what it opened on that user's word would be anybody's."""
    secret = team.served.root / "secret"
    secret.write_text("for root alone")
    secret.chmod(0o600)
    agents = team.served.root / "tasks-home/.local/share/jobyard/agents"
    script = f"for file in $(find {agents} -name '*out*' -type f); do ln -sf {secret} $file; echo $file; done"
    job = team.served.ok("submit", "-q", "--", script, env=team.env("bob")).out.strip()
    until(lambda: team.served.job(job)["state"] in ("SUCCEEDED", "FAILED"))
    assert any(path.is_symlink() for path in agents.rglob("*out*"))
    assert "for root alone" not in team.served.run("logs", job).out


@pytest.mark.slow
def test_a_link_in_the_place_of_an_output_file_leads_the_server_nowhere(team: TeamServer) -> None:
    """In a directory of that user, who may put anything there before the server writes."""
    yard, secret = team.served, team.served.root / "kept"
    secret.write_text("the servers own")
    home = yard.root / "tasks-home"
    script = f"mkdir {home}/o && ln -s {yard.root} {home}/way && ln -s {secret} {home}/o/0.out && echo hello"
    done = yard.run("run", "-n", "one", "--output", f"{home}/o/0.out", "--error", f"{home}/way/err", "--", script)
    assert secret.read_text() == "the servers own"
    assert not (yard.root / "err").exists()
    assert f"is a link of user {UID}, and not followed" in done.err
    assert f"is a link of user {UID}, and not followed" in yard.job()["not_written"]
    assert "is tried again" in yard.ok("why", "last").out


@pytest.mark.slow
def test_the_owners_tasks_run_as_that_user_too(team: TeamServer) -> None:
    assert team.served.ok("run", "--", "id -u").out == f"{UID}\n"


@pytest.mark.slow
def test_beside_such_a_task_root_is_that_user_too(team: TeamServer) -> None:
    """Whatever the task's environment says, as LD_PRELOAD does, that user said it."""
    job = team.served.submit("-e", "A=1", "--", "sleep 60")
    team.served.wait_state(job, "RUNNING")
    done = team.served.run("exec", job, "--", "sh", "-c", f"id -u; echo $A; cat {team.served.directory}/*.db")
    assert (done.code, done.out, "Permission denied" in done.err) == (1, f"{UID}\n1\n", True), done.err
    elsewhere = team.served.run("exec", job, "--", "id", "-u", env=team.env("bob"))
    assert (elsewhere.code, elsewhere.out, "the server's own machine" in elsewhere.err) == (2, "", True)


@pytest.mark.parametrize(
    ("user", "sentence"),
    [("no-such-user", "this machine has no such user"), ("root", "that is the server's own account")],
)
def test_a_user_that_is_none_or_the_servers_own_is_refused(own_yard: TemporaryYard, user: str, sentence: str) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can start tasks as another user")
    done = own_yard.run("serve", "--listen", "127.0.0.1:0", "--run-as", user)
    assert done.code == 2
    assert f"--run-as {user}: {sentence}" in done.err


def test_who_is_not_root_cannot_run_tasks_as_another_user(own_yard: TemporaryYard, ann: OsUser, bob: OsUser) -> None:
    done = ann.take(own_yard).run("serve", "--listen", "127.0.0.1:0", "--run-as", bob.name)
    assert done.code == 2
    assert f"--run-as {bob.name}: only root can start tasks as another user" in done.err
