"""The hosts under test."""

from tests.hosts.fixtures import hosts, make_hosts, shared_hosts

__all__ = ["hosts", "make_hosts", "shared_hosts"]
