"""For how long is a machine believed that does not answer?"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.waiting import PATIENCE_SECONDS

from jobyard.executors.lease import Lease
from jobyard.model.events import Event, NodeLost, NodeWentAway

HOUR = 3600.0


def a_lease(seconds: float | None) -> tuple[Lease, asyncio.Queue[list[Event]]]:
    told: asyncio.Queue[list[Event]] = asyncio.Queue()
    return Lease("a", seconds, told.put_nowait), told


async def next_of(told: asyncio.Queue[list[Event]]) -> Event:
    async with asyncio.timeout(PATIENCE_SECONDS):
        (event,) = await told.get()
    return event


async def lost(lease: Lease, told: asyncio.Queue[list[Event]]) -> None:
    lease.begin("no route to host")
    assert isinstance(await next_of(told), NodeWentAway)
    assert isinstance(await next_of(told), NodeLost)


async def test_a_machine_goes_away_once_with_its_reason() -> None:
    lease, told = a_lease(HOUR)
    lease.begin("no route to host")
    lease.begin("connection refused")
    event = await next_of(told)
    assert isinstance(event, NodeWentAway)
    assert (event.node, event.message, told.empty(), lease.is_lost) == ("a", "no route to host", True, False)
    lease.end()


async def test_when_the_lease_runs_out_the_node_is_lost() -> None:
    lease, told = a_lease(0.0)
    lease.begin("")
    await next_of(told)
    event = await next_of(told)
    assert isinstance(event, NodeLost)
    assert (event.message, lease.is_lost) == ("node a has not answered for 0 s", True)


async def test_who_answers_in_time_is_not_lost_and_may_go_away_again() -> None:
    lease, told = a_lease(HOUR)
    for _ in range(2):
        lease.begin("")
        assert isinstance(await next_of(told), NodeWentAway)
        lease.end()
    assert not lease.is_lost


async def test_an_agent_of_our_own_disk_never_goes_away() -> None:
    lease, told = a_lease(None)
    lease.begin("it was killed")
    lease.end()
    assert told.empty()


async def test_a_lost_node_stays_lost_until_it_is_reconciled_and_is_told_again() -> None:
    lease, told = a_lease(0.0)
    await lost(lease, told)
    lease.give_up()
    assert isinstance(await next_of(told), NodeLost)
    lease.end()
    assert lease.is_lost
    lease.regain()
    assert not lease.is_lost


async def test_nothing_is_compared_before_the_yard_has_given_up_what_ran_there() -> None:
    lease, told = a_lease(0.0)
    live = [["an attempt"], ["an attempt"], []]
    yard: Any = SimpleNamespace(live_attempts=lambda _: live.pop(0))
    await lease.forgotten(yard)  # it is not lost: nobody is asked
    assert len(live) == 3
    await lost(lease, told)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await lease.forgotten(yard)
    assert live == []
