"""Watch (list and watch): what is in a cluster now? A list, then every change to it; after any gap the list again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from jobyard.backoff import Backoff
from jobyard.errors import Unavailable
from jobyard.kubernetes.api import OPENED, Api
from jobyard.kubernetes.refusals import Refused

log = logging.getLogger(__name__)

Object = dict[str, Any]
PAGE = "500"  # objects in one answer
TOO_OLD = 410  # the changes since that version are no longer known
BACKOFF = Backoff(0.2, 5.0)


class Watching:
    """One collection of objects by name (with the namespace before it, where there are several).

    `changed` gets each new or changed object with False, and each deleted one, in its last form, with True.
    """

    def __init__(self, path: str, changed: Callable[[Object, bool], None], **selectors: str) -> None:
        self.path = path
        self.objects: dict[tuple[str, str], Object] = {}
        self.is_complete = asyncio.Event()  # the list was read, and no gap is known since
        self._changed = changed
        self._selectors = selectors
        self._version = ""
        self._failures = 0

    async def run(self, api: Api, lost: Callable[[str], None]) -> None:
        """Until cancelled. Raises a final refusal. `lost` gets a sentence for every lost connection."""
        while True:
            try:
                if not self._version:
                    await self._list(api)
                async for kind, seen in api.watch(self.path, self._version, **self._selectors):
                    if kind == OPENED:  # only now: a watch that could not be opened may have missed changes
                        self._failures = 0
                        self.is_complete.set()
                        continue
                    self._version = seen["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        self._take(seen, gone=kind == "DELETED")
            except Refused as refused:
                if refused.is_forbidden or refused.is_absent:
                    raise
                if refused.status != TOO_OLD or not self.is_complete.is_set():  # even a new list was too old
                    await self._pause(str(refused), lost)
                self.is_complete.clear()
                self._version = ""
            except Unavailable as error:
                await self._pause(str(error), lost)

    async def _pause(self, problem: str, lost: Callable[[str], None]) -> None:
        self.is_complete.clear()
        lost(problem)
        await asyncio.sleep(BACKOFF.pause(self._failures))
        self._failures += 1

    async def _list(self, api: Api) -> None:
        """All pages; what was known and is no longer there has gone."""
        found: dict[tuple[str, str], Object] = {}
        more = ""
        while True:
            query = {"limit": PAGE, **self._selectors, **({"continue": more} if more else {})}
            answer = await api.get(self.path, **query)
            for item in answer["items"]:
                found[_key(item)] = item
            more = answer["metadata"].get("continue", "")
            if not more:
                break
        for key in [key for key in self.objects if key not in found]:
            self._take(self.objects[key], gone=True)
        for item in found.values():
            self._take(item, gone=False)
        self._version = answer["metadata"]["resourceVersion"]

    def _take(self, seen: Object, *, gone: bool) -> None:
        key = _key(seen)
        known = self.objects.get(key)
        if gone:
            self.objects.pop(key, None)
        elif known is not None and known["metadata"].get("resourceVersion") == seen["metadata"].get("resourceVersion"):
            return
        else:
            self.objects[key] = seen
        self._changed(seen, gone)


def _key(seen: Object) -> tuple[str, str]:
    return seen["metadata"].get("namespace", ""), seen["metadata"]["name"]
