"""How are hosts in network namespaces reached? A bridge with a /24 of its own, and one link per host.

Nothing leaves the machine: the bridge is joined to no real device, hosts have no default route, and the bridge's own
route stays when a link is cut. Neighbours are entered by hand, so a cut link swallows packets without a word, as a
cable far away does; with ARP the caller's kernel would answer "no route to host" after three seconds.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.hosts.packages import SEARCH
from tests.waiting import PATIENCE_SECONDS

WIRE = Path(__file__).with_name("wire.py")
RANGE = "10.199"
_serial = itertools.count(1)  # one process may make several groups


class NetworkError(Exception):
    """`ip` refused; the message says what."""


def ip(*lines: str, namespace: str | None = None) -> None:
    """Several `ip` commands in one call; stops at the first that fails."""
    words = ["ip", *(["-n", namespace] if namespace else []), "-batch", "-"]
    env = {**os.environ, "PATH": SEARCH}
    done = subprocess.run(words, input="\n".join(lines) + "\n", capture_output=True, text=True, env=env)
    if done.returncode:
        raise NetworkError(f"ip: {done.stderr.strip()} (of: {'; '.join(lines)})")


class Network:
    """A bridge in the namespace of the tests."""

    def __init__(self) -> None:
        """Raises NetworkError when this machine does not allow it."""
        serial = next(_serial)
        self.bridge = f"yb{os.getpid()}-{serial}"
        self.prefix, self._claim = _claim_subnet(os.getpid() + serial - 1)
        self.address = f"{self.prefix}.254"
        self.mac = _mac(self.address)
        self._open = True
        with _undone_on_failure(self.close):
            self._add()

    def _add(self) -> None:
        ip(
            f"link add {self.bridge} address {self.mac} type bridge",
            f"link set {self.bridge} addrgenmode none",
            f"address add {self.address}/24 dev {self.bridge}",
            f"link set {self.bridge} up",
        )

    def close(self) -> None:
        if self._open:
            self._open = False
            self._claim.close()
            ip(f"link delete {self.bridge}")


class Link:
    """The cable of one host: `outer` on the bridge, eth0 in the host's network namespace."""

    def __init__(self, network: Network) -> None:
        serial = next(_serial)
        self.network = network
        self.namespace = f"yard-{os.getpid()}-{serial}"
        self.outer = f"y{os.getpid()}-{serial}"
        self.address = f"{network.prefix}.{serial % 253 + 1}"
        self.is_up = True
        self._tap = f"yt{os.getpid()}-{serial}"
        self._wire: subprocess.Popen[bytes] | None = None
        self._open = True
        with _undone_on_failure(self.close):
            self._add()

    def _add(self) -> None:
        mac = _mac(self.address)
        ip(f"netns add {self.namespace}")
        ip(
            f"link add {self.outer} type veth peer name eth0 address {mac} netns {self.namespace}",
            f"link set {self.outer} addrgenmode none",
            f"link set {self.outer} master {self.network.bridge} up",
            f"neighbour replace {self.address} lladdr {mac} nud permanent dev {self.network.bridge}",
        )
        ip(
            "link set lo up",
            "link set eth0 addrgenmode none",
            f"address add {self.address}/24 dev eth0",
            "link set eth0 up",
            namespace=self.namespace,
        )
        self._know_the_bridge()

    def down(self) -> None:
        ip(f"link set {self.outer} down")
        self.is_up = False

    def up(self) -> None:
        ip(f"link set {self.outer} up")
        self._know_the_bridge()
        self.is_up = True

    def delay(self, milliseconds: float) -> None:
        """With netem where the kernel has it; with a wire of our own where not."""
        if self._wire is None and self._netem(milliseconds):
            return
        if milliseconds > 0:
            self._slow_wire(milliseconds / 2 / 1000)
        else:
            self._no_wire()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._no_wire()
            try:
                ip(f"link delete {self.outer}")  # at once; with its namespace it would go some time later
            finally:
                ip(f"netns delete {self.namespace}")

    def _know_the_bridge(self) -> None:
        neighbour = f"neighbour replace {self.network.address} lladdr {self.network.mac} nud permanent dev eth0"
        ip(neighbour, namespace=self.namespace)

    def _netem(self, milliseconds: float) -> bool:
        env = {**os.environ, "PATH": SEARCH}
        if milliseconds <= 0:
            subprocess.run(["tc", "qdisc", "del", "dev", self.outer, "root"], capture_output=True, env=env)
            return True
        words = ["tc", "qdisc", "replace", "dev", self.outer, "root", "netem", "delay", f"{milliseconds:g}ms"]
        return subprocess.run(words, capture_output=True, env=env).returncode == 0

    def _slow_wire(self, seconds: float) -> None:
        if self._wire is None:
            words = [sys.executable, "-I", str(WIRE), self._tap, self.outer]
            wire = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True, cwd="/"
            )
            assert wire.stdout is not None
            if wire.stdout.readline() != b"ready\n":
                raise NetworkError("a slow link needs sch_netem in the kernel, or /dev/net/tun")
            self._wire = wire
            ip(f"link set {self.outer} nomaster", f"link set {self._tap} addrgenmode none")
            ip(f"link set {self._tap} master {self.network.bridge} up")
        assert self._wire.stdin is not None
        self._wire.stdin.write(f"{seconds}\n".encode())

    def _no_wire(self) -> None:
        if self._wire is not None:
            ip(f"link set {self.outer} master {self.network.bridge}")
            assert self._wire.stdin is not None
            assert self._wire.stdout is not None
            self._wire.stdin.close()
            self._wire.wait(PATIENCE_SECONDS)
            self._wire.stdout.close()
            self._wire = None


@contextlib.contextmanager
def _undone_on_failure(close: Callable[[], None]) -> Iterator[None]:
    """The first error is the one that is raised."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(NetworkError):
            close()
        raise


def _mac(address: str) -> str:
    """A locally administered one that belongs to the address, so no two are alike."""
    return "02:79:" + ":".join(f"{byte:02x}" for byte in ipaddress.IPv4Address(address).packed)


def _claim_subnet(first: int) -> tuple[str, socket.socket]:
    """A /24 that no route of this machine covers and no other test process has claimed.

    The claim is a socket in the abstract namespace: it ends with its process, and leaves no file.
    """
    taken = _routed()
    for number in range(first, first + 256):
        prefix = f"{RANGE}.{number % 256}"
        subnet = ipaddress.IPv4Network(f"{prefix}.0/24")
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0yard-hosts-{prefix}")
        except OSError:
            claim.close()
            continue
        if not any(subnet.overlaps(other) for other in taken):
            return prefix, claim
        claim.close()
    raise NetworkError(f"no free /24 in {RANGE}.0.0/16")


def _routed() -> list[ipaddress.IPv4Network]:
    """What this machine has routes to, the default route aside."""
    networks = []
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        _, destination, _, _, _, _, _, mask = line.split()[:8]
        if mask != "00000000":
            address, bits = (int.from_bytes(bytes.fromhex(word), "little") for word in (destination, mask))
            networks.append(ipaddress.IPv4Network((address, bits.bit_count())))
    return networks
