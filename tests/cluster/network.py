"""An address that host and pods share: a bridge of the cluster's own, on which API server and pods meet."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import dataclass

from tests.cluster.leftovers import remove_bridge


@dataclass(frozen=True)
class Network:
    """Where the programs of the cluster listen; with `bridge`, pods are on it too."""

    address: str
    bridge: str = ""

    @property
    def subnet(self) -> str:
        return f"{self.address.rsplit('.', 1)[0]}.0/24"

    def close(self) -> None:
        if self.bridge:
            remove_bridge(self.bridge)


LOOPBACK = Network("127.0.0.1")


def make_bridge(name: str) -> Network:
    """A bridge with a subnet nobody here uses. Needs root."""
    shown = subprocess.run(["ip", "-json", "route", "show"], check=True, capture_output=True, text=True).stdout
    taken = {route["dst"] for route in json.loads(shown or "[]")}
    free = [number for number in range(1, 255) if f"10.213.{number}.0/24" not in taken]
    network = Network(f"10.213.{random.choice(free)}.1", name)
    try:
        _ip("link", "add", network.bridge, "type", "bridge")
        _ip("address", "add", f"{network.address}/24", "dev", network.bridge)
        _ip("link", "set", network.bridge, "up")
    except subprocess.CalledProcessError:
        network.close()
        raise
    return network


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
