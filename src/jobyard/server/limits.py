"""Limits per client: how much of the server may one caller use, so that others do not notice? Numbers with reasons.

What an administrator may want to change is a knob (`settings.ServerKnobs`); the rest follows from it here.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass

from jobyard.settings import ServerKnobs

DESCRIPTORS_MOST = 65_536  # set at the start, and no higher: some programs close every possible descriptor one by one
CONNECTIONS_MOST = 1024  # of one socket: 512 `yard run` at once, which hold two each
ONE_IN = 4  # descriptors for the connections of each of two sockets; a stream may have a file open as well
STREAMS_OF_FOUR = 3  # of a peer's four connections: with the fourth it can still send `cancel`
HEADER_BYTES_MOST = 1 << 20  # the cursor of a log of 10,000 running tasks is a header of 800 KB
BODY_BYTES_A_SECOND = 64 << 10  # the slowest sender that is waited for, after the first seconds
DISCARDED_OF_MOST = 4  # times the largest body: so much of a refused body is read, so that its sender gets the answer
ACCEPT_PAUSE_SECONDS = 1.0  # without a free descriptor; connections end meanwhile, and the kernel queues new ones
LISTEN_MOST = 128  # connections that the kernel keeps for us
VIEWS_AT_ONCE = 100  # of a page, then other requests run: 2 ms


@dataclass(frozen=True)
class Limits:
    """Of one listening socket."""

    connections_most: int
    connections_per_peer: int
    header_seconds: float = ServerKnobs.header_seconds
    keep_alive_seconds: float = ServerKnobs.keep_alive_seconds
    body_seconds: float = ServerKnobs.body_seconds
    stall_seconds: float = ServerKnobs.stall_seconds
    body_bytes_most: int = ServerKnobs.body_mib_most << 20

    @property
    def streams_most(self) -> int:
        """Of one caller: it keeps connections for its commands."""
        return max(1, self.connections_per_peer * STREAMS_OF_FOUR // 4)


def limits_of(knobs: ServerKnobs, descriptors: int, *, is_tcp: bool) -> Limits:
    """The Unix socket has one user, who may use all of it; on TCP each address has only its share."""
    most = max(4, min(CONNECTIONS_MOST, descriptors // ONE_IN))
    return Limits(
        connections_most=most,
        connections_per_peer=min(knobs.connections_per_peer, most * 3 // 4) if is_tcp else most,
        header_seconds=knobs.header_seconds,
        keep_alive_seconds=knobs.keep_alive_seconds,
        body_seconds=knobs.body_seconds,
        stall_seconds=knobs.stall_seconds,
        body_bytes_most=knobs.body_mib_most << 20,
    )


def raise_descriptor_limit() -> tuple[int, int]:
    """Raise the limit of open files; returns old and new. Processes that we start must get the old one back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS_MOST if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MOST)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return soft, most
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return soft, most
