"""Connection table: who holds how many connections, and which one goes for a newcomer when there are no more?

A connection is a stranger until a request on it has shown a good token. Strangers are what goes: a caller who has a
token shows it late, so whoever holds everything with half headers would keep that caller out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jobyard.server.failed_logins import network_of
from jobyard.server.limits import Limits

ON_GOOD_TOKEN = "on_good_token"  # in a request's state, on TCP: what is called when its token is known to be good


@dataclass(eq=False, slots=True)
class Held:
    """One connection. Those of one `peer` have a share; the Unix socket has one peer, with an empty name."""

    peer: str
    close: Callable[[], None] = lambda: None  # set once there is something to close

    @property
    def network(self) -> str:
        """The /24 of an IPv4 address; of IPv6 a peer is a network already."""
        head, _, last = self.peer.rpartition(".")
        return head if last.isdigit() else self.peer


class ConnectionTable:
    """The connections of one listening socket."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: set[Held] = set()
        self._peers: Counter[str] = Counter()
        self._strangers: dict[Held, None] = {}  # oldest first

    def add(self, held: Held) -> None:
        self._held.add(held)
        self._peers[held.peer] += 1
        if held.peer:  # whoever reaches the Unix socket is the yard's owner
            self._strangers[held] = None

    def remove(self, held: Held) -> None:
        """May be repeated."""
        if held in self._held:
            self._held.remove(held)
            self._strangers.pop(held, None)
            self._peers[held.peer] -= 1
            if not self._peers[held.peer]:
                del self._peers[held.peer]

    def trust(self, held: Held) -> None:
        """It has shown a good token, and never goes for another. May be repeated, and come when it is gone."""
        self._strangers.pop(held, None)

    def problem(self, peer: str) -> str:
        """Why there is no further connection for this peer; empty: there is one."""
        if self._has_share(peer):
            whose = f"{peer} has" if peer else "the yard's socket has"
            return f"{whose} {self._peers[peer]} open connections already"
        if len(self._held) >= self._limits.connections_most:
            return f"the server has {len(self._held)} open connections already"
        return ""

    def gives_way(self, peer: str) -> Held | None:
        """The stranger that goes, so that this peer gets a connection. None: there is none to take it from.

        Of a peer that has all of its share, one of its own. Otherwise one of the network, and in it of the peer, that
        holds most: a caller with a token is seldom among so many, and of them the newest.
        """
        if self._has_share(peer):
            return next((held for held in self._strangers if held.peer == peer), None)
        neighbours = _most_alike(self._strangers, lambda held: held.network)
        return next(iter(_most_alike(neighbours, lambda held: held.peer)), None)

    def _has_share(self, peer: str) -> bool:
        return self._peers[peer] >= self._limits.connections_per_peer


def peer_of(address: object) -> str:
    """Who has one share: an IPv4 address, a network of IPv6; empty for a Unix socket."""
    return network_of(address[0]) if isinstance(address, tuple) else ""


def _most_alike(strangers: Iterable[Held], key: Callable[[Held], str]) -> Sequence[Held]:
    """Those whose key most of them have; of several such keys that of the oldest stranger. The order stays."""
    counted = Counter(map(key, strangers))
    most = max(counted, key=counted.__getitem__, default="")
    return [held for held in strangers if key(held) == most]
