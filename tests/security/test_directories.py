"""What another user of the machine finds closed: the yard's directory, its socket, its log."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.conftest import MakeYard
from tests.security.conftest import MakeTeam
from tests.security.users import OsUser
from tests.yards import TemporaryYard

CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"


def test_the_owner_of_a_yard_need_not_be_root(make_team: MakeTeam, ann: OsUser) -> None:
    team = make_team(user=ann)
    status = team.served.json("server", "status")
    assert status["yard"] == str(team.served.directory)
    assert team.served.directory.stat().st_uid == ann.uid


def test_another_user_reads_nothing_of_a_yard_and_does_not_reach_its_socket(
    make_team: MakeTeam, ann: OsUser, bob: OsUser
) -> None:
    team = make_team(user=ann)
    team.served.root.chmod(0o755)  # as a home would be; the yard and its socket look after themselves
    team.served.runtime.chmod(0o755)
    assert bob.run("ls", str(team.served.root)).returncode == 0
    assert "Permission denied" in bob.run("ls", str(team.served.directory)).stderr
    assert "Permission denied" in bob.run("cat", str(team.served.directory / "yard.db")).stderr
    knock = bob.run(sys.executable, "-c", CONNECT, str(team.served.socket))
    assert knock.returncode != 0
    assert "Permission denied" in knock.stderr
    assert ann.run(sys.executable, "-c", CONNECT, str(team.served.socket)).returncode == 0


@pytest.mark.parametrize(
    ("words", "mode"), [(("serve", "--listen", "127.0.0.1:1"), 0o770), (("run", "--", "true"), 0o1777)]
)
def test_a_yard_that_others_can_write_is_refused_with_the_way_out(
    own_yard: TemporaryYard, words: tuple[str, ...], mode: int
) -> None:
    own_yard.directory.chmod(mode)
    done = own_yard.run(*words)
    assert (done.code, done.out) == (2, "")
    assert f"others can write to the yard {own_yard.directory}" in done.err
    assert done.err.endswith(f"chmod go-w {own_yard.directory}\n")
    assert list(own_yard.directory.iterdir()) == []
    own_yard.directory.chmod(0o755)
    assert own_yard.ok("run", "--", "echo mine").out == "mine\n"


def test_what_another_user_planted_in_a_yard_is_not_touched(make_team: MakeTeam, ann: OsUser, bob: OsUser) -> None:
    """A log that is a link to a file of ann's would be written to, were it not refused."""
    yard = make_team(user=ann).served
    yard.root.chmod(0o755)
    target, shared = yard.work / "precious", yard.root / "shared"
    target.write_text("precious")
    shared.mkdir()
    shared.chmod(0o777)
    os.chown(shared, ann.uid, -1)
    os.chown(target, ann.uid, -1)
    assert bob.run("ln", "-s", str(target), str(shared / "server.log")).returncode == 0
    done = yard.run("--yard", str(shared), "run", "--", "true")
    assert done.code == 2
    assert "others can write to the yard" in done.err
    assert target.read_text() == "precious"


def test_a_yard_of_another_user_is_refused_and_names_them(make_yard: MakeYard, ann: OsUser, bob: OsUser) -> None:
    yard = ann.take(make_yard())
    theirs = yard.root / "theirs"
    theirs.mkdir(mode=0o755)
    bob.own(theirs)
    done = yard.run("--yard", str(theirs), "run", "--", "true")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"the yard {theirs} belongs to {bob.name}" in done.err


def test_a_socket_directory_that_somebody_else_made_first_is_not_used(
    make_yard: MakeYard, ann: OsUser, bob: OsUser
) -> None:
    yard = ann.take(make_yard())
    planted = yard.runtime / "jobyard"
    planted.mkdir(mode=0o777)
    bob.own(planted)
    own = Path(f"/tmp/jobyard-{ann.uid}")
    is_new = not own.exists()
    try:
        assert yard.ok("run", "--", "echo mine").out == "mine\n"
        assert list(planted.iterdir()) == []
        assert own.stat().st_uid == ann.uid
    finally:
        yard.end_processes()
        if is_new:
            shutil.rmtree(own, ignore_errors=True)
