"""Node constraints (affinity, labels, taints): which nodes may a task use at all, however much is free there?"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from jobyard.model.job import GroupSpec, JobSpec
from jobyard.model.kubernetes import Toleration
from jobyard.model.node import Node, NodeState, Taint, cluster_of
from jobyard.model.units import whole_number

GPU_MEMORY = "nvidia.com/gpu.memory"  # a label of NVIDIA's feature discovery, in MiB
GPU_PRODUCT = "nvidia.com/gpu.product"
AT_LEAST = ">="
KEEPING_OFF = frozenset({"NoSchedule", "NoExecute"})  # other taints are only preferences


class Where(NamedTuple):
    """Machines that `on` names; with a cluster, its nodes alone, as far as they have the labels."""

    on: str = ""  # machines, executors or labels, with commas between; empty: any machine
    cluster: str = ""
    labels: tuple[str, ...] = ()  # key=value, or key>=number
    tolerations: tuple[Toleration, ...] = ()
    in_container: bool = False  # only machines that can run one
    with_token: bool = False  # not on machines that only the owner's jobs may use

    def allows(self, node: Node) -> bool:
        return self.has_labels(node) and not self.untolerated(node)

    def has_labels(self, node: Node) -> bool:
        """Could it be there, were it not for taints?"""
        if cluster_of(node.id) != self.cluster:
            return False
        if not self.cluster:
            if self.with_token and is_owners_alone(node):
                return False
            return matches(node, self.on) and (bool(node.runtime) or not self.in_container)
        return node.is_queue or all(has_label(node, label) for label in self.labels)

    def untolerated(self, node: Node) -> list[Taint]:
        """What keeps it off a node of a cluster."""
        if not node.taints:
            return []
        keeping_off = (taint for taint in node.taints if taint.effect in KEEPING_OFF)
        return [taint for taint in keeping_off if not any(_tolerates(each, taint) for each in self.tolerations)]


ANYWHERE = Where()  # on machines


def is_owners_alone(node: Node) -> bool:
    """While it is away nobody knows: what it said holds for the server of then, which `--run-as` may have changed."""
    return node.owner_only and node.state is not NodeState.AWAY


def matches(node: Node, on: str) -> bool:
    """`on` names nodes, executors or labels, with commas between; empty: any that need not be named."""
    return is_meant(on, node.id, node.executor, node.labels, node.only_named)


def is_meant(on: str, node: str, executor: str, labels: Collection[str], only_named: bool) -> bool:
    """Whether `on` means a node with this name, executor and labels; with `only_named` its executor does not count."""
    if not on:
        return not only_named
    return any(name == node or name in labels or (name == executor and not only_named) for name in on.split(","))


def needs_of(group: GroupSpec) -> tuple[tuple[str, ...], tuple[Toleration, ...]]:
    """The labels and the tolerations of a Where, as a group has them."""
    labels = [f"{key}={value}" for key, value in group.node_selector.items()]
    if group.least_device_mib:
        labels.append(f"{GPU_MEMORY}{AT_LEAST}{group.least_device_mib}")
    return tuple(sorted(labels)), group.tolerations


def where_of(spec: JobSpec, group: GroupSpec) -> Where:
    """Where its submitter lets the tasks of this group be."""
    labels, tolerations = needs_of(group)
    has_token = bool(spec.submitter.submitted_with)
    return Where(spec.on, spec.cluster, labels, tolerations, spec.container.on_machines, has_token)


def has_label(node: Node, label: str) -> bool:
    """As it is written, or with a number that is at least as large."""
    key, compares, number = label.partition(AT_LEAST)
    if not compares:
        return label in node.labels
    found = next((each.partition("=")[2] for each in node.labels if each.startswith(f"{key}=")), "")
    return (whole_number(found) or 0) >= int(number)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """As Kubernetes has it: no key, with Exists, means every taint; no effect means all of them."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return not toleration.key or toleration.key == taint.key
    return toleration.key == taint.key and toleration.value == taint.value


def schedulable(nodes: Iterable[Node]) -> list[Node]:
    """Those that jobs are placed on: where another scheduler has a queue, the queue stands for its whole cluster."""
    nodes = list(nodes)
    queued = {cluster_of(node.id) for node in nodes if node.is_queue}
    return [node for node in nodes if node.is_queue or cluster_of(node.id) not in queued] if queued else nodes
