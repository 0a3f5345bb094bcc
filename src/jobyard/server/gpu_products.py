"""GPU products: what does Kubernetes call the GPUs of a kind on one cluster? Looked up when a job is submitted.

A node's affinity knows no parts of words, so that it names each product; a profile of MIG is a resource of its own.
"""

from __future__ import annotations

from dataclasses import replace

from jobyard.engine.yard_state import YardState
from jobyard.errors import UserError
from jobyard.model.gpu_kinds import is_of_kind
from jobyard.model.job import GroupSpec, JobSpec
from jobyard.model.node import Device, Node, cluster_of
from jobyard.scheduling.explain import why_no_kind
from jobyard.scheduling.where import GPU_PRODUCT

FIELD = "--gpu-type"


def with_products(state: YardState, spec: JobSpec) -> JobSpec:
    """The spec with what its kinds are called on its cluster. Raises UserError where nobody has one of them."""
    if not spec.cluster or spec.kubernetes.manifest:
        return spec
    nodes = [node for node in state.places.nodes.values() if cluster_of(node.id) == spec.cluster and not node.is_queue]
    return replace(spec, groups=tuple(_with_products(group, spec.cluster, nodes) for group in spec.groups))


def _with_products(group: GroupSpec, cluster: str, nodes: list[Node]) -> GroupSpec:
    kind = group.resources.gpu_kind
    if not kind:
        return replace(group, gpu_products=(), gpu_profile="") if group.gpu_products or group.gpu_profile else group
    if not nodes:
        raise UserError(
            f"the nodes of cluster {cluster} are not known yet, so who has {kind} is not; try again soon", field=FIELD
        )
    if why := why_no_kind(nodes, kind):
        raise UserError(f"{why}; name one of these", field=FIELD)
    found = [(device, node) for node in nodes for device in node.devices if _is(device, kind)]
    profiles = sorted({device.profile for device, _ in found if device.profile})
    if len(profiles) > 1:
        raise UserError(
            f"{kind!r} is more than one profile: {', '.join(profiles)}; name one, as in mig-{profiles[0]}", field=FIELD
        )
    if profiles and group.least_device_mib:
        raise UserError(f"a profile of MIG says its memory itself; leave --min-gpu-mem or {kind} out", field=FIELD)
    nodes = [node for device, node in found if device.profile or not profiles]
    products = sorted({product for node in nodes if (product := _product_of(node))})
    if not products and not profiles:
        raise UserError(
            f"no node of cluster {cluster} has the label {GPU_PRODUCT}, which tells kinds of GPUs; leave {kind} out",
            field=FIELD,
        )
    return replace(group, gpu_products=tuple(products), gpu_profile=profiles[0] if profiles else "")


def _is(device: Device, kind: str) -> bool:
    return is_of_kind(kind, device.name, device.profile)


def _product_of(node: Node) -> str:
    start = f"{GPU_PRODUCT}="
    return next((label.removeprefix(start) for label in node.labels if label.startswith(start)), "")
