"""What another user of the machine finds closed: the yard's directory, its socket, its log."""

from __future__ import annotations

import sys

from tests.security.conftest import MakeTeam
from tests.security.users import OsUser

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
