"""Node: what is a machine or a node of a cluster, what does it have (GPUs), and how is it reached?"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from jobyard.model.limits import Line, Name, Path, Port

# What OpenSSH refuses too, in hosts: its ProxyCommand goes through a shell. A leading dash would be an option.
_ODD_LOGIN = re.compile(r"^-|[\s\x00-\x1f\x7f'`\"$;&<>|(){}]")


class NodeState(StrEnum):
    UP = "UP"
    DRAINING = "DRAINING"  # runs what it has, takes nothing new
    AWAY = "AWAY"  # the link is cut; what runs there is believed to run, for the length of a lease
    DOWN = "DOWN"


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. A fake one is simulated and must be shown as such wherever it appears."""

    index: int
    name: str
    memory_mib: int
    uuid: str = ""
    fake: bool = False
    profile: str = ""  # of MIG, where it is a slice that its cluster counts apart: 1g.10gb


@dataclass(frozen=True, slots=True)
class Foreign:
    """What others hold on a node: processes that are not ours, and other yards' reservations."""

    cpu_millis: int = 0  # reserved by other yards: what processes use of cores is not counted
    memory_mib: int = 0
    device_mib: tuple[tuple[int, int], ...] = ()  # (device index, MiB)
    whole_devices: tuple[int, ...] = ()  # reserved whole by another yard, whatever their memory shows
    holders: tuple[str, ...] = ()  # for people: "yard of bob", "python (pid 4711)"
    device_percent: tuple[tuple[int, int], ...] = ()  # (device index, percent of its compute)
    doubts: tuple[str, ...] = ()  # for people: reservations that cannot be true, and so are not counted


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What was last measured of one GPU, no matter which process uses it."""

    index: int
    used_mib: int
    percent: int  # of its compute


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """How a machine is reached by SSH: a name of the user's ssh configuration, or an address and what it needs."""

    id: Name
    host: Name
    user: Line = ""
    port: Port | None = None
    key_path: Path = ""
    labels: tuple[Name, ...] = ()
    only_named: bool = False  # only jobs that name it, or a label of it, run there

    @property
    def login(self) -> tuple[str, str, int | None]:
        """Two configurations with the same login are one account of one machine, whatever their names."""
        return (self.host, self.user, self.port)

    @property
    def shown_login(self) -> str:
        """For people: USER@HOST:PORT, as far as it was said."""
        return f"{self.user}@" * bool(self.user) + self.host + f":{self.port}" * bool(self.port)

    @property
    def link(self) -> tuple[str, str, int | None, str]:
        """All that a connection depends on."""
        return (*self.login, self.key_path)

    @property
    def odd_login(self) -> str:
        """The host or user that ssh or a shell would not read as a plain name. Empty: both are fine."""
        return next((word for word in (self.host, self.user) if _ODD_LOGIN.search(word)), "")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """How a Kubernetes cluster is reached, and what is used of it."""

    id: Name  # its nodes are called `<id>/<node>`
    kubeconfig: Path = ""  # paths as in KUBECONFIG; empty: the service account of the pod that the server runs in
    context: Line = ""  # empty: the current one
    namespace: Line = ""  # empty: the context's own
    storage: Line = ""  # a PersistentVolumeClaim for checkpoints and results; empty: they end with their pod
    queue: Line = ""  # a LocalQueue of Kueue, which then decides who runs; empty: the yard decides
    allow_host_path: bool = False  # manifests may reach into its nodes: hostPath, hostNetwork, privileged and the like


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps tasks away from a Kubernetes node that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Quota:
    """What a yard may have of a cluster in all; None: as much as there is."""

    cpu_millis: int | None = None
    memory_mib: int | None = None
    gpus: int | None = None
    tasks: int | None = None


def place_of(node: str) -> str:
    """Where checkpoints can be shared: the cluster of `cluster/node`, or the machine itself."""
    return node.partition("/")[0]


def cluster_of(node: str) -> str:
    """The cluster that a node belongs to; empty: it is a machine."""
    cluster, slash, _ = node.partition("/")
    return cluster if slash else ""


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    executor: str
    cpu_millis: int
    memory_mib: int
    devices: tuple[Device, ...] = ()
    labels: tuple[str, ...] = ()
    boot_id: str = ""
    state: NodeState = NodeState.UP
    foreign: Foreign = field(default_factory=Foreign)
    taints: tuple[Taint, ...] = ()
    is_queue: bool = False  # not a machine: jobs here wait for another scheduler (Kueue), any number of them
    runtime: str = ""  # of a machine: what runs containers there, docker or podman; empty: nothing
    runtime_problem: str = ""  # why nothing does, to follow its name: "has neither docker nor podman in its PATH"
    only_named: bool = False  # only jobs that name it, or a label of it, run here
    owner_only: bool = False  # its tasks have the account of the server: jobs that came with a token do not run here
    # The last measurement, for people: nothing is decided by it.
    load: float | None = None
    device_use: tuple[DeviceUse, ...] = ()
