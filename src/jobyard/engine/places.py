"""Places: which machines and clusters does the yard have, what do their nodes have, and which take nothing new?"""

from __future__ import annotations

from dataclasses import dataclass, field

from jobyard.model.node import ClusterConfig, Node, NodeConfig, Quota, cluster_of


@dataclass(slots=True)
class Places:
    """A place is a machine or a cluster; a machine is its own node."""

    nodes: dict[str, Node] = field(default_factory=dict)
    configs: dict[str, NodeConfig] = field(default_factory=dict)  # machines that users added
    clusters: dict[str, ClusterConfig] = field(default_factory=dict)
    drained: set[str] = field(default_factory=set)  # machines, clusters, and nodes of clusters
    removed: set[str] = field(default_factory=set)  # reports about them may still arrive
    quotas: dict[str, Quota] = field(default_factory=dict)  # by cluster; measured

    def nodes_of(self, cluster: str) -> list[Node]:
        """The machines, or the nodes of a cluster; a queue is no node."""
        return [node for node in self.nodes.values() if cluster_of(node.id) == cluster and not node.is_queue]

    @property
    def unreached(self) -> tuple[NodeConfig, ...]:
        """Machines that were added and of which nothing is known yet."""
        return tuple(config for name, config in self.configs.items() if name not in self.nodes)
