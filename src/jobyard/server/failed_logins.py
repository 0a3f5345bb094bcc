"""Failed logins (rate limit): how often did an address send wrong tokens lately, and how long must it wait?

Only refusals wait: a valid token is let in at once, also from an address where others guess.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

from jobyard.backoff import Backoff

FREE = 3  # typing errors
FIRST_SECONDS = 0.1  # of waiting, doubled with each further failure
FORGET_SECONDS = 900.0
ADDRESSES_MOST = 1000  # bounds the memory, however many addresses an attacker has
WAITING_MOST = 100  # at once; beyond that the answer is short and comes at once


class FailedLogins:
    def __init__(self, most_seconds: float) -> None:
        self._backoff = Backoff(FIRST_SECONDS, most_seconds)
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()  # by address: how many, the last one when
        self.waiting = 0

    def note(self, address: str, now: float) -> tuple[int, float]:
        """One more failure of this address: how many that makes, and the seconds before it is answered."""
        key = network_of(address)
        count, last = self._failures.pop(key, (0, now))
        count = 1 if now - last > FORGET_SECONDS else count + 1
        self._failures[key] = (count, now)
        while len(self._failures) > ADDRESSES_MOST:
            self._failures.popitem(last=False)
        return count, self._backoff.pause(count - FREE - 1) if count > FREE else 0.0

    def __len__(self) -> int:
        return len(self._failures)


def network_of(address: str) -> str:
    """A client with one IPv6 address usually has all 2^64 of its network."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4 or found.ipv4_mapped:
        return address
    return str(ipaddress.ip_network((int(found), 64), strict=False).network_address)


def is_worth_a_line(count: int) -> bool:
    """At 1, 2, 4, 8...: endless guessing does not fill the log."""
    return count & (count - 1) == 0
