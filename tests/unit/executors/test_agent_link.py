"""Does a link say how it stands, and send only what somebody can hear?"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.played_agent import WELCOME, Wire

from jobyard.agent_protocol.lines import LARGEST_LINE
from jobyard.errors import Unavailable
from jobyard.executors.agent_link import AgentLink, line, read


def open_link() -> tuple[AgentLink, Wire]:
    link, wire = AgentLink({}), Wire()
    link.open(cast(asyncio.StreamWriter, wire), WELCOME)
    return link, wire


def saying(*lines: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(LARGEST_LINE)
    reader.feed_data(b"".join(lines))
    reader.feed_eof()
    return reader


async def greeted(link: AgentLink, *lines: bytes, is_busy: bool = False) -> tuple[dict[str, Any], Wire]:
    wire = Wire()
    return await link.greet(saying(*lines), cast(asyncio.StreamWriter, wire), is_busy=is_busy), wire


def test_what_is_sent_without_a_connection_is_lost() -> None:
    link, wire = open_link()
    link.send({"op": "probe"})
    link.closed()
    link.send({"op": "probe"})
    link.write(line({"op": "probe"}))
    assert (wire.messages, link.is_up, link.pid) == ([{"op": "probe"}], False, None)


def test_a_link_that_is_dropped_is_closed_once() -> None:
    link, wire = open_link()
    link.drop()
    assert (wire.is_closed, link.is_up) == (True, False)
    link.drop()


def test_an_open_link_has_no_problem_and_knows_its_agent() -> None:
    link = AgentLink({})
    link.problem = "it was away"
    link.open(cast(asyncio.StreamWriter, Wire()), WELCOME)
    assert (link.is_up, link.pid, link.build, link.problem) == (True, 7, "b", "")


async def test_the_first_words_carry_our_own_and_open_nothing() -> None:
    link = AgentLink({"yard": "y", "ship": True})
    welcome, wire = await greeted(link, line(WELCOME), is_busy=True)
    assert welcome == WELCOME
    assert wire.messages == [{"op": "hello", "protocol": 1, "yard": "y", "ship": True, "pending": True}]
    assert not link.is_up


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b"", "another language: None"),
        (line({**WELCOME, "ev": "measured"}), "another language"),
        (line({**WELCOME, "protocol": 2}), "another language"),
        (line({**WELCOME, "memory_mib": -1}), "what cannot be"),
    ],
)
async def test_an_agent_that_says_something_else_first_is_not_used(said: bytes, sentence: str) -> None:
    with pytest.raises(Unavailable, match=sentence):
        await greeted(AgentLink({}), said)


async def test_pending_work_is_announced_when_the_agent_believes_otherwise() -> None:
    link = AgentLink({})
    link.announce(True)  # nobody there: it comes with the first words
    await greeted(link, line(WELCOME), is_busy=True)
    wire = Wire()
    link.open(cast(asyncio.StreamWriter, wire), WELCOME)
    for is_busy in (True, False, False, True):
        link.announce(is_busy)
    assert wire.messages == [{"op": "pending", "value": False}, {"op": "pending", "value": True}]


async def test_a_line_that_is_cut_ends_the_messages() -> None:
    reader = saying(line({"ev": "measured"}), b'{"ev": "mea')
    assert await read(reader) == {"ev": "measured"}
    assert await read(reader) is None


@pytest.mark.parametrize("said", [b"3\n", b"[]\n", b"[" * 100_000 + b"\n"])
async def test_a_line_that_is_no_message_is_an_error(said: bytes) -> None:
    with pytest.raises(ValueError, match="the agent said b"):
        await read(saying(said))
