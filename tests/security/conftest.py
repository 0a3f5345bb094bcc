"""What tests of security may use: a team server, and two users of the operating system besides root."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.conftest import MakeYard
from tests.security.servers import TeamServer, team_server
from tests.security.users import NAMES, OsUser, why_not

MakeTeam = Callable[..., TeamServer]


@pytest.fixture
def make_team(make_yard: MakeYard) -> Iterator[MakeTeam]:
    """Makes team servers: words are options of `yard serve`, `user` runs it, others are variables of its yard."""
    with ExitStack() as running:

        def make(*words: str, user: OsUser | None = None, **env: str) -> TeamServer:
            yard = make_yard(**env)
            return running.enter_context(team_server(user.take(yard) if user else yard, *words))

        yield make


@pytest.fixture
def team(make_team: MakeTeam) -> TeamServer:
    """A team server of this test alone, run by whoever runs the tests."""
    return make_team()


@pytest.fixture(scope="session")
def _users() -> tuple[OsUser, ...]:
    if why := why_not():
        pytest.skip(why)
    return tuple(map(OsUser, NAMES))


@pytest.fixture
def ann(_users: tuple[OsUser, ...]) -> OsUser:
    """A user of this machine who is not root."""
    return _users[0]


@pytest.fixture
def bob(_users: tuple[OsUser, ...]) -> OsUser:
    """Another one."""
    return _users[1]
