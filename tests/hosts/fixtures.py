"""Hosts as pytest fixtures; a conftest imports the ones it wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.hosts.group import Hosts

MakeHosts = Callable[..., Hosts]


@pytest.fixture(scope="session")
def shared_hosts() -> Iterator[Hosts]:
    """Three hosts for the whole session."""
    with Hosts(3) as hosts:
        yield hosts


@pytest.fixture
def hosts(shared_hosts: Hosts) -> Iterator[Hosts]:
    """The three shared hosts, as if just made, whatever the test before did to them."""
    try:
        yield shared_hosts
    finally:
        shared_hosts.renew()


@pytest.fixture
def make_hosts() -> Iterator[MakeHosts]:
    """Makes hosts of this test alone: `make_hosts(2, user="ben", home_mib=8)`."""
    made: list[Hosts] = []

    def make(count: int = 3, **options: Any) -> Hosts:
        made.append(Hosts(count, **options))
        return made[-1]

    try:
        yield make
    finally:
        for hosts in made:
            hosts.close()
