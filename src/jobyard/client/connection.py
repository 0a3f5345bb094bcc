"""Connection to a yard: how does a call outlive a lost link, or a server that died? It is tried again, with backoff.

Once a server has answered, every call that is safe to repeat waits for a lost one (and starts it again where it is
local), up to `reconnect_seconds`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from jobyard.backoff import Backoff
from jobyard.client.address import Address
from jobyard.client.sse import ServerEvent, events_of
from jobyard.client.transport import Answer, HttpTransport, Lost, NotSent
from jobyard.errors import Unreachable, YardError
from jobyard.settings import ClientKnobs
from jobyard.wire.requests import API

T = TypeVar("T")
LONG_SECONDS = 600.0  # for what packs a tree, reaches a machine or gathers results before it answers
BACKOFF = Backoff(0.05, 1.0)  # between two tries to reach a server


class Revive(Protocol):
    """Restarts a local server that is gone; does nothing where one answers. Raises YardError when it cannot."""

    def __call__(self) -> None: ...


class Connection:
    """Safe to use from several threads. Raises the server's error classes; Unreachable when nobody answers."""

    def __init__(self, address: Address, knobs: ClientKnobs, revive: Revive | None) -> None:
        self._knobs = knobs
        self._transport = HttpTransport(address)
        self._revive = revive
        self._reviving = threading.Lock()
        self._has_answered = False
        self._lost_since: float | None = None  # of time.monotonic()

    @property
    def lost_seconds(self) -> float:
        """How long nobody has answered while calls are tried again; 0.0 while all is well."""
        since = self._lost_since
        return 0.0 if since is None else time.monotonic() - since

    def call(
        self, method: str, path: str, body: Any = None, *, is_repeatable: bool = True, is_long: bool = False
    ) -> Any:
        seconds = self._seconds(is_long=is_long)
        return self._persist(lambda: self._transport.call(method, API + path, body, seconds=seconds), is_repeatable)

    def page(self, path: str) -> tuple[Any, Mapping[str, str]]:
        """A list, and the headers that tell of the rest of it."""
        seconds = self._knobs.request_seconds
        return self._persist(lambda: self._transport.page(API + path, seconds=seconds))

    def call_once(self, method: str, path: str) -> None:
        """Without another try, and without starting a server."""
        self._transport.call(method, API + path, seconds=self._knobs.request_seconds)

    def pieces(self, path: str, *, is_long: bool = False) -> Iterator[bytes]:
        """A large answer, as it comes."""
        seconds = self._seconds(is_long=is_long)
        with self._persist(lambda: self._transport.open("GET", API + path, seconds=seconds)) as answer:
            while piece := answer.read_some():
                yield piece

    def stream(self, path: str, last_id: str = "") -> Iterator[ServerEvent]:
        """The events of one stream, opened again at the last id whenever the link or the server is lost.

        Ends when the server ends it in good order. Raises Unreachable when nobody answered for `reconnect_seconds`.
        """
        while True:
            with self._open_stream(path, last_id) as answer, suppress(Lost):
                for event in events_of(answer):
                    last_id = event.id or last_id
                    yield event
                return
            self.rest()

    def rest(self) -> None:
        """Between two streams: a proxy or a server that ends each at once would make a busy loop otherwise."""
        time.sleep(BACKOFF.first_seconds)

    def is_answered(self) -> bool:
        """Whether a server listens there now, whatever it answers. Never waits for a server that is gone."""
        try:
            self._transport.open("GET", f"{API}/healthz", seconds=self._knobs.request_seconds).close()
        except Unreachable:
            return False
        except YardError:
            return True
        return True

    def _open_stream(self, path: str, last_id: str) -> Answer:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        return self._persist(
            lambda: self._transport.open("GET", API + path, headers=headers, seconds=self._knobs.silence_seconds)
        )

    def _seconds(self, *, is_long: bool) -> float:
        return max(LONG_SECONDS, self._knobs.request_seconds) if is_long else self._knobs.request_seconds

    def _persist(self, ask: Callable[[], T], is_repeatable: bool = True) -> T:
        """Retry until there is an answer. A remote server that never answered before is not retried."""
        deadline, failures = time.monotonic() + self._knobs.reconnect_seconds, 0
        while True:
            try:
                answer = ask()
            except Unreachable as error:
                self._lost_since = self._lost_since or time.monotonic()
                may_return = self._has_answered or self._revive is not None
                is_safe = is_repeatable or isinstance(error, NotSent)
                if not may_return or not is_safe or time.monotonic() >= deadline:
                    raise
            else:
                self._has_answered = True
                self._lost_since = None
                return answer
            self._bring_back(deadline)
            time.sleep(BACKOFF.pause(failures))
            failures += 1

    def _bring_back(self, deadline: float) -> None:
        if self._revive is None:
            return
        try:
            with self._reviving:
                self._revive()
        except YardError:
            # A yard that never answered: raise its error at once. One that has answered gets time until the deadline.
            if not self._has_answered or time.monotonic() >= deadline:
                raise
