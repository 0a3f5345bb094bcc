"""A RayJob with the Ray of PyPI in its image: workers join, and tasks run on them. Other tests have a stand-in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.build import CannotBuild
from tests.cluster.cluster import Cluster
from tests.cluster.node import Node
from tests.cluster.processes import Program
from tests.cluster.real_ray import IMAGE, VERSION, import_ray
from tests.cluster.yards import ClusterYard, cluster_yard
from tests.waiting import until

# Each of the two tasks has a Ray node of its own, and so both workers must have joined.
SCRIPT = """\
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as In

ray.init()
group = placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
assert group.wait(300)

@ray.remote(num_cpus=1)
def square(number):
    return number**2, ray.get_runtime_context().get_node_id()

found = ray.get([square.options(scheduling_strategy=In(group, n)).remote(n + 2) for n in range(2)])
print("Ray", ray.__version__, "says", *(value for value, _ in found), "on", len({node for _, node in found}), "nodes")
"""


@pytest.fixture(scope="module")
def shared(cluster: Cluster, worker: Node) -> Iterator[ClusterYard]:
    try:
        import_ray(cluster)
    except CannotBuild as e:
        pytest.skip(f"there is no Ray: {e}")
    with cluster.namespace() as namespace, cluster_yard(cluster, namespace) as made:
        yield made


@pytest.mark.long  # three Ray nodes, each of a dozen processes: some minutes
def test_a_rayjob_runs_with_a_real_ray_on_the_workers_that_have_joined(
    yard: ClusterYard, ray_operator: Program
) -> None:
    words = ("--on", "kubernetes", "--kind", "rayjob", "--image", IMAGE, "-c", "0.1", "--workers", "2")
    job = yard.submit(*words, "--", "python3", "-c", SCRIPT)
    ended = yard.ended(job, 900)
    assert ended["state"] == "SUCCEEDED", (ended, yard.logs(job))
    assert f"Ray {VERSION} says 4 9 on 2 nodes\n" in yard.logs(job, "--task", "head/0")
    # Where KubeRay is slow to say so, the object is gone already.
    rayjobs = yard.objects(job, "/apis/ray.io/v1", "rayjobs")
    assert all(made["status"]["jobStatus"] == "SUCCEEDED" for made in rayjobs)
    until(lambda: all(pod["status"].get("phase") in ("Succeeded", "Failed") for pod in yard.pods(job)), 120)
