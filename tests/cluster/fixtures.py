"""The cluster as a fixture: one for the whole run, started by the first test that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.build import CannotBuild
from tests.cluster.cluster import Cluster
from tests.cluster.node import Node
from tests.cluster.operators import JOBSETS, KUEUES, RAYS, TRAININGS, Operator, running
from tests.cluster.processes import Program
from tests.cluster.yards import ClusterYard, cluster_yard


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A real control plane with KWOK, and a real node where this machine can have one."""
    running = Cluster()
    try:
        with running:
            yield running
    except CannotBuild as e:
        pytest.skip(f"there is no test cluster: {e}")


def _operator(cluster: Cluster, operator: Operator) -> Iterator[Program]:
    try:
        with running(cluster, operator) as program:
            yield program
    except CannotBuild as e:
        pytest.skip(f"there is no {operator.product.name}: {e}")


@pytest.fixture(scope="session")
def jobset_operator(cluster: Cluster) -> Iterator[Program]:
    yield from _operator(cluster, JOBSETS)


@pytest.fixture(scope="session")
def training_operator(cluster: Cluster) -> Iterator[Program]:
    yield from _operator(cluster, TRAININGS)


@pytest.fixture(scope="session")
def ray_operator(cluster: Cluster) -> Iterator[Program]:
    yield from _operator(cluster, RAYS)


@pytest.fixture(scope="session")
def kueue(cluster: Cluster) -> Iterator[Program]:
    """From here on every Job passes its webhooks; those that name no queue are left alone."""
    yield from _operator(cluster, KUEUES)


@pytest.fixture(scope="session")
def worker(cluster: Cluster) -> Node:
    """The node that runs real containers."""
    if cluster.node is None:
        pytest.skip(f"there is no real node: {cluster.without_node}")
    return cluster.node


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of this test alone."""
    with cluster.namespace() as name:
        yield name


@pytest.fixture(scope="module")
def shared(cluster: Cluster, worker: Node) -> Iterator[ClusterYard]:
    """One yard for all tests of a module, which may have its own kind of it."""
    with cluster.namespace() as namespace, cluster_yard(cluster, namespace) as made:
        yield made


@pytest.fixture
def yard(shared: ClusterYard) -> Iterator[ClusterYard]:
    """Each test leaves nothing running."""
    yield shared
    shared.settle()
