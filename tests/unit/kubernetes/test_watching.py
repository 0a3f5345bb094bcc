"""What is watched is complete, or said not to be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from jobyard.backoff import Backoff
from jobyard.errors import Unavailable
from jobyard.kubernetes import watching
from jobyard.kubernetes.api import OPENED
from jobyard.kubernetes.refusals import Refused
from jobyard.kubernetes.watching import TOO_OLD, Watching

Object = dict[str, Any]
OLD = Refused(TOO_OLD, "Expired", "too old resource version")


def pod(name: str, version: int) -> Object:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


class PlayedApi:
    """Each list and each watch answers what the test says; after the last one nothing happens any more."""

    def __init__(self, lists: list[list[Object]], watches: list[list[tuple[str, Object] | Exception]]) -> None:
        self._lists, self._watches = lists, watches
        self.is_idle = asyncio.Event()
        self.complete: list[bool] = []  # what was said before each list
        self.watching: Watching | None = None

    async def get(self, path: str, **query: str) -> Object:
        assert self.watching is not None
        self.complete.append(self.watching.is_complete.is_set())
        return {"items": self._lists.pop(0), "metadata": {"resourceVersion": "9"}}

    async def watch(self, path: str, version: str, **query: str) -> AsyncGenerator[tuple[str, Object], None]:
        for event in self._watches.pop(0) if self._watches else []:
            if isinstance(event, Exception):
                raise event
            yield event
        if not self._watches:
            self.is_idle.set()
            await asyncio.Event().wait()


async def watched(api: PlayedApi) -> tuple[Watching, list[tuple[str, bool]], list[str]]:
    """When nothing happens any more: what was heard of, and which cuts."""
    heard: list[tuple[str, bool]] = []
    cuts: list[str] = []
    api.watching = Watching("/pods", lambda seen, gone: heard.append((seen["metadata"]["name"], gone)))
    played: Any = api
    running = asyncio.create_task(api.watching.run(played, cuts.append))
    await asyncio.wait({running, asyncio.ensure_future(api.is_idle.wait())}, return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    await asyncio.wait({running})
    return api.watching, heard, cuts


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "BACKOFF", Backoff(0.0, 0.0))


async def test_a_version_that_is_too_old_means_the_list_again_and_until_then_it_is_not_complete() -> None:
    api = PlayedApi(
        [[pod("a", 1), pod("b", 2)], [pod("b", 2), pod("c", 3)]],
        [[(OPENED, {}), OLD], [(OPENED, {})]],
    )
    seen, heard, cuts = await watched(api)
    assert api.complete == [False, False]
    assert seen.is_complete.is_set()
    assert heard == [("a", False), ("b", False), ("a", True), ("c", False)]
    assert not cuts


async def test_a_list_that_is_too_old_at_once_is_not_asked_for_without_a_pause() -> None:
    api = PlayedApi([[], [], []], [[OLD], [OLD], [(OPENED, {})]])
    _, _, cuts = await watched(api)
    assert cuts == [str(OLD)] * 2


async def test_after_a_cut_the_watch_goes_on_from_where_it_was() -> None:
    api = PlayedApi([[pod("a", 1)]], [[(OPENED, {}), Unavailable("cut")], [(OPENED, {}), ("DELETED", pod("a", 5))]])
    seen, heard, cuts = await watched(api)
    assert (heard, cuts, seen.objects) == ([("a", False), ("a", True)], ["cut"], {})
