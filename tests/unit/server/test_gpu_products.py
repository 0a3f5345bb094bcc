"""Is a kind of GPU what the nodes of a cluster call it, and refused where none of them has it?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.yard_state import YardState
from jobyard.errors import UserError
from jobyard.model.events import ClusterAdded
from jobyard.model.job import GroupSpec
from jobyard.model.node import ClusterConfig, Device, Node
from jobyard.model.resources import Resources
from jobyard.server.clusters import for_cluster
from jobyard.server.commands import checked_spec
from jobyard.server.gpu_products import with_products
from tests.builders import a_cluster_node, a_group, a_job, joined

PRODUCT = "nvidia.com/gpu.product="
LARGE, SMALL = "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-PCIE-40GB"


def a_gpu_node(name: str, product: str, *profiles: str, labelled: bool = True) -> Node:
    names = [(product, "")] + [(f"{product} MIG {profile}", profile) for profile in profiles]
    devices = tuple(Device(i, each, 40960, profile=profile) for i, (each, profile) in enumerate(names))
    return a_cluster_node(name, cpus=8, labels=(PRODUCT + product,) if labelled else (), devices=devices)


def a_yard(*nodes: Node, queue: str = "") -> YardState:
    state = YardState()
    handle(state, ClusterAdded(ClusterConfig("prod", queue=queue), 0.0))
    for node in nodes:
        handle(state, joined(node))
    return state


def group_on(state: YardState, kind: str, least: int = 0) -> GroupSpec:
    group = replace(a_group(), resources=Resources(gpus=1, gpu_kind=kind), least_device_mib=least)
    return checked_spec(state, a_job(groups=(group,), on="prod", image="demo", workdir="/")).groups[0]


BOTH = (a_gpu_node("n1", LARGE), a_gpu_node("n2", SMALL), a_gpu_node("n3", "NVIDIA-H100", "1g.10gb", "3g.40gb"))


@pytest.mark.parametrize(
    ("kind", "products", "profile"),
    [
        ("a100", (SMALL, LARGE), ""),
        ("a100-80gb", (LARGE,), ""),
        ("h100", ("NVIDIA-H100",), ""),
        ("mig-1g.10gb", ("NVIDIA-H100",), "1g.10gb"),
        ("MIG-3g.40gb", ("NVIDIA-H100",), "3g.40gb"),
    ],
)
def test_a_kind_is_the_products_of_the_nodes_that_have_it(kind: str, products: tuple[str, ...], profile: str) -> None:
    for state in (a_yard(*BOTH), a_yard(*BOTH, queue="team")):
        group = group_on(state, kind)
        assert (group.gpu_products, group.gpu_profile) == (products, profile)


def test_what_is_sent_is_the_clusters_own_whatever_a_request_says() -> None:
    group = replace(a_group(gpus=1), gpu_products=("x",), gpu_profile="x")
    spec = checked_spec(a_yard(*BOTH), a_job(groups=(group,), on="prod", image="demo", workdir="/"))
    assert (spec.groups[0].gpu_products, spec.groups[0].gpu_profile) == ((), "")


@pytest.mark.parametrize("queue", ["", "team"])
@pytest.mark.parametrize("kind", ["b200", "mig-7g.80gb"])
def test_a_kind_or_a_profile_that_nobody_has_is_refused_with_what_there_is(kind: str, queue: str) -> None:
    there = f"there is no {kind} GPU; there are {LARGE} on prod/n1, {SMALL} on prod/n2, NVIDIA-H100 on prod/n3, "
    with pytest.raises(UserError) as caught:
        group_on(a_yard(*BOTH, queue=queue), kind)
    assert caught.value.field == "--gpu-type"
    assert caught.value.sentence.startswith(f"{there}NVIDIA-H100 MIG 1g.10gb on prod/n3")


def test_several_profiles_a_size_of_one_and_unknown_nodes_are_refused_with_a_way_out() -> None:
    with pytest.raises(UserError, match=r"'mig' is more than one profile: 1g.10gb, 3g.40gb; name one, as in mig-1g"):
        group_on(a_yard(*BOTH), "mig")
    with pytest.raises(UserError, match="a profile of MIG says its memory itself; leave --min-gpu-mem or mig-1g"):
        group_on(a_yard(*BOTH), "mig-1g.10gb", least=1024)
    with pytest.raises(UserError, match=r"no node of cluster prod has the label nvidia.com/gpu.product"):
        group_on(a_yard(a_gpu_node("n1", "GPU", labelled=False)), "gpu")
    with pytest.raises(UserError, match="the nodes of cluster prod are not known yet"):
        group_on(a_yard(), "a100")


def test_objects_for_a_cluster_that_is_not_known_yet_say_that_a_kind_cannot_be_looked_up() -> None:
    group = replace(a_group(), resources=Resources(gpus=1, gpu_kind="a100"))
    spec = for_cluster(a_job(groups=(group,), image="demo"), "prod")
    with pytest.raises(UserError, match="are not known yet"):
        with_products(YardState(), spec)
