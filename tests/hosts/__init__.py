"""Real SSH hosts for tests: each its own network, sshd, home, processes and boot id. No SSH is mocked.

As root a host is a set of namespaces behind a veth pair (`namespaces.py`), so its link can be cut, delayed and restored
and it can be rebooted. Anybody else gets sshds on loopback ports (`loopback.py`), and what those cannot do raises
`Unsupported`, which pytest reports as a skip. Nothing here knows Jobyard; pytest is met only in `fixtures.py`.
"""

from tests.hosts.group import Hosts
from tests.hosts.host import Host, Options, Unsupported
from tests.hosts.processes import Process

__all__ = ["Host", "Hosts", "Options", "Process", "Unsupported"]
