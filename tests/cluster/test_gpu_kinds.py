"""Kinds of GPUs and profiles of MIG: the nodes' labels and resources are found, asked for, and counted.

KWOK plays the nodes, so that there may be several kinds: the scheduler that chooses among them is Kubernetes' own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster import GPU, Cluster, fake_node
from tests.cluster.images import SMALL
from tests.cluster.yards import ClusterYard, cluster_yard
from tests.waiting import until

SLICE = "nvidia.com/mig-1g.10gb"
NODES = {  # what they are called, and what they have
    "kinds-large": ("NVIDIA-A100-SXM4-80GB", "81920", {GPU: "2"}),
    "kinds-small": ("NVIDIA-A100-PCIE-40GB", "40960", {GPU: "4"}),
    "kinds-sliced": ("NVIDIA-H100-80GB-HBM3", "81559", {GPU: "1", SLICE: "3"}),
}
ON = ("--on", "kubernetes", "--image", SMALL, "-c", "0.1")


@pytest.fixture(scope="module")
def shared(cluster: Cluster) -> Iterator[ClusterYard]:
    try:
        for prefix, (product, memory, amount) in NODES.items():
            node = fake_node(f"{prefix}-0000", 0, prefix, taint=False)
            node["metadata"]["labels"] |= {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": memory}
            node["status"]["allocatable"] |= amount  # which is its capacity too
            cluster.add_nodes([node], prefix)
        with cluster.namespace() as namespace, cluster_yard(cluster, namespace) as made:
            until(lambda: sum(len(devices) for devices in devices_of(made).values()) == 10)
            yield made
    finally:
        for prefix in NODES:
            cluster.remove_fake_nodes(prefix)


def devices_of(yard: ClusterYard) -> dict[str, list[dict[str, Any]]]:
    """By the node's prefix."""
    nodes = {node["id"].removeprefix("kubernetes/")[:-5]: node["devices"] for node in yard.json("nodes")}
    return {prefix: devices for prefix, devices in nodes.items() if prefix in NODES}


def ran(yard: ClusterYard, *words: str) -> tuple[str, dict[str, str]]:
    """The node that Kubernetes chose, and what the pod asked of it."""
    job = yard.submit(*ON, *words, "--", "true")
    (pod,) = until(lambda: [each for each in yard.pods(job) if each["spec"].get("nodeName")])
    limits: dict[str, str] = pod["spec"]["containers"][0]["resources"]["limits"]
    assert yard.ended(job)["state"] == "SUCCEEDED"
    return pod["spec"]["nodeName"][:-5], limits


def test_products_and_slices_of_nodes_are_shown_as_what_they_are(yard: ClusterYard) -> None:
    names = [device["name"] for device in devices_of(yard)["kinds-sliced"]]
    assert names == ["NVIDIA-H100-80GB-HBM3", *["NVIDIA-H100-80GB-HBM3 MIG 1g.10gb"] * 3]
    shown = yard.ok("nodes").out
    assert "3x" in next(line for line in shown.splitlines() if "MIG 1g.10gb" in line)


@pytest.mark.parametrize(
    ("words", "node", "limits"),
    [
        (("--gpus", "a100-40gb:1"), "kinds-small", {GPU: "1"}),
        (("--gpus", "a100:2", "--min-gpu-mem", "70"), "kinds-large", {GPU: "2"}),
        (("--gpu-type", "H100"), "kinds-sliced", {GPU: "1"}),
        (("--gpus", "mig-1g.10gb:2"), "kinds-sliced", {SLICE: "2"}),
    ],
)
def test_a_pod_comes_to_a_node_of_its_kind(
    words: tuple[str, ...], node: str, limits: dict[str, str], yard: ClusterYard
) -> None:
    assert ran(yard, *words) == (node, limits)


@pytest.mark.parametrize("kind", ["b200", "mig-7g.80gb"])
def test_what_no_node_has_is_refused_at_submit_with_what_there_is(kind: str, yard: ClusterYard) -> None:
    refused = yard.run("submit", *ON, "--gpu-type", kind, "--", "true")
    assert refused.code == 2
    assert f"--gpu-type: there is no {kind} GPU; there are NVIDIA-" in refused.err
    assert "NVIDIA-H100-80GB-HBM3 MIG 1g.10gb" in refused.err


def test_more_slices_than_a_node_has_never_fit_and_whole_gpus_are_none_of_them(yard: ClusterYard) -> None:
    refused = yard.run("submit", *ON, "--gpus", "mig-1g.10gb:4", "--", "true")
    assert refused.code == 2
    assert "4 mig-1g.10gb GPUs; the largest node, kubernetes/kinds-sliced-0000, has" in refused.err
    assert yard.run("submit", *ON, "--gpus", "h100:2", "--", "true").code == 2
