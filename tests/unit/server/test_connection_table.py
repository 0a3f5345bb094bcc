"""Which connection goes when all are taken? Only a stranger's, and one of those who hold most."""

from __future__ import annotations

import pytest

from jobyard.server.connection_table import ConnectionTable, Held, peer_of
from jobyard.server.limits import Limits

OWNER = ""  # the only peer of the Unix socket


def a_table(most: int = 100, of_one: int = 100) -> ConnectionTable:
    return ConnectionTable(Limits(connections_most=most, connections_per_peer=of_one))


def added(table: ConnectionTable, *peers: str) -> list[Held]:
    """A connection of each, in this order."""
    found = [Held(peer) for peer in peers]
    for held in found:
        table.add(held)
    return found


def test_peers_are_counted_each_and_together() -> None:
    table = a_table(most=5, of_one=3)
    first, *_ = added(table, "10.0.0.1", "10.0.0.1")
    assert not table.problem("10.0.0.1")
    added(table, "10.0.0.1")
    assert table.problem("10.0.0.1") == "10.0.0.1 has 3 open connections already"
    assert not table.problem("10.0.0.2")
    added(table, "10.0.0.2", "10.0.0.3")
    assert table.problem("10.0.0.4") == "the server has 5 open connections already"
    for _ in range(2):  # closed for another, and then its end is seen
        table.remove(first)
    assert not table.problem("10.0.0.4")


def test_of_a_peer_that_has_its_share_the_oldest_stranger_of_its_own_goes() -> None:
    table = a_table(of_one=2)
    _, first, _ = added(table, "10.0.0.9", "10.0.0.1", "10.0.0.1")
    assert table.gives_way("10.0.0.1") is first


def test_of_a_full_server_the_oldest_stranger_of_those_who_hold_most_goes() -> None:
    table = a_table(most=4)
    _, first, _, _ = added(table, "10.0.0.1", "10.9.0.2", "10.0.0.1", "10.9.0.2")
    added(table, "10.9.0.2")
    assert table.gives_way("10.0.0.1") is first


def test_addresses_of_one_network_count_together() -> None:
    """Each of them has fewer than the one who is alone in another network."""
    table = a_table(most=5)
    _, _, first, *_ = added(table, "10.0.0.1", "10.0.0.1", "10.9.0.1", "10.9.0.2", "10.9.0.3")
    assert table.gives_way("10.0.0.1") is first


def test_who_is_in_the_network_of_those_who_hold_most_stays_before_them() -> None:
    table = a_table(most=4)
    mine, first, *_ = added(table, "10.0.0.7", "10.0.0.1", "10.0.0.1", "10.0.0.1")
    assert table.gives_way("10.0.0.7") is first
    assert table.gives_way("192.168.1.1") is not mine


def test_of_many_who_hold_one_each_the_oldest_goes() -> None:
    table = a_table(most=3)
    first, *_ = added(table, "10.0.0.1", "10.1.0.1", "10.2.0.1")
    assert table.gives_way("10.3.0.1") is first


def test_who_has_shown_a_good_token_never_goes() -> None:
    table = a_table(most=3, of_one=2)
    first, second, third = added(table, "10.0.0.1", "10.0.0.1", "10.9.0.1")
    table.trust(first)
    assert table.gives_way("10.0.0.1") is second
    table.trust(second)
    table.trust(second)
    assert table.gives_way("10.0.0.1") is None
    assert table.gives_way("10.7.0.1") is third
    table.trust(third)
    assert table.gives_way("10.7.0.1") is None
    assert table.problem("10.7.0.1") == "the server has 3 open connections already"


def test_a_token_that_comes_when_its_connection_is_gone_changes_nothing() -> None:
    table = a_table(most=1)
    (held,) = added(table, "10.0.0.1")
    table.remove(held)
    table.trust(held)
    assert not table.problem("10.0.0.1")
    assert table.gives_way("10.0.0.1") is None


def test_the_owner_on_the_socket_is_no_stranger() -> None:
    table = a_table(most=1, of_one=1)
    added(table, OWNER)
    assert table.problem(OWNER) == "the yard's socket has 1 open connections already"
    assert table.gives_way(OWNER) is None


@pytest.mark.parametrize(
    ("address", "peer", "network"),
    [
        ("", "", ""),  # of a Unix socket
        (("10.0.0.1", 40000), "10.0.0.1", "10.0.0"),
        (("::ffff:10.0.0.1", 40000, 0, 0), "::ffff:10.0.0.1", "::ffff:10.0.0"),
        (("2001:db8::17", 40000, 0, 0), "2001:db8::", "2001:db8::"),
        (("2001:db8:0:1::17", 40000, 0, 0), "2001:db8:0:1::", "2001:db8:0:1::"),
    ],
)
def test_a_peer_is_an_address_or_a_network_of_ipv6(address: object, peer: str, network: str) -> None:
    assert peer_of(address) == peer
    assert Held(peer).network == network
