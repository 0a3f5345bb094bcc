"""Do the operators make pods, and not only keep objects?"""

from __future__ import annotations

import pytest

from tests.cluster.api import Object, Refused
from tests.cluster.cluster import GPU, Cluster
from tests.cluster.images import SMALL
from tests.cluster.node import Node
from tests.cluster.objects import a_job, has
from tests.cluster.processes import Program


def test_a_jobset_runs_its_groups_through(
    cluster: Cluster, worker: Node, jobset_operator: Program, namespace: str
) -> None:
    api, path = cluster.api, f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"
    template = {"spec": a_job("unused", "sh", "-c", "echo $JOB_GLOBAL_INDEX; hostname", size=2)["spec"]}
    groups = [{"name": name, "replicas": 1, "template": template} for name in ("driver", "workers")]
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "two"}}
    api.create(path, {**made, "spec": {"replicatedJobs": groups}})
    api.until(f"{path}/two", has("Completed"))
    assert len(api.items(f"/api/v1/namespaces/{namespace}/pods")) == 4
    with pytest.raises(Refused, match="denied the request"):  # the words of its webhook
        api.patch(f"{path}/two", {"spec": {"replicatedJobs": groups[:1]}})


@pytest.mark.long
def test_a_pytorchjob_gets_its_pods_with_rank_and_size(
    cluster: Cluster, worker: Node, training_operator: Program, namespace: str
) -> None:
    api, path = cluster.api, f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs"
    say = "echo $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"
    container = {"name": "pytorch", "image": SMALL, "imagePullPolicy": "Never", "command": ["sh", "-c", say]}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    made = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "train"}}
    api.create(path, {**made, "spec": {"pytorchReplicaSpecs": {"Master": replica}}})
    api.until(f"{path}/train", has("Succeeded"))
    assert cluster.kubectl("logs", f"--namespace={namespace}", "train-master-0").startswith("0 of 1 at ")


@pytest.mark.long
def test_a_rayjob_gets_a_head_and_its_workers(cluster: Cluster, ray_operator: Program, namespace: str) -> None:
    api, path = cluster.api, f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs"
    pod: Object = {"spec": {"containers": [{"name": "ray", "image": SMALL, "imagePullPolicy": "Never"}]}}
    workers = {"groupName": "small", "replicas": 2, "minReplicas": 1, "maxReplicas": 4, "rayStartParams": {}}
    made = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "rays"}}
    spec = {
        "headGroupSpec": {"rayStartParams": {}, "template": pod},
        "workerGroupSpecs": [{**workers, "template": pod}],
    }
    api.create(path, {**made, "spec": {"entrypoint": "python -V", "rayClusterSpec": spec}})
    pods = api.until_all(f"/api/v1/namespaces/{namespace}/pods", bool, 3)
    kinds = sorted(each["metadata"]["labels"]["ray.io/node-type"] for each in pods.values())
    assert kinds == ["head", "worker", "worker"]


@pytest.mark.long
def test_kueue_admits_what_fits_its_quota_and_holds_the_rest(
    cluster: Cluster, worker: Node, kueue: Program, namespace: str
) -> None:
    api, group = cluster.api, "/apis/kueue.x-k8s.io/v1beta2"
    cluster.set_gpus(4)
    group_version = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    api.create(f"{group}/resourceflavors", {**group_version, "kind": "ResourceFlavor", "metadata": {"name": "gpus"}})
    flavor = {"name": "gpus", "resources": [{"name": GPU, "nominalQuota": 2}]}
    quota = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU], "flavors": [flavor]}]}
    api.create(
        f"{group}/clusterqueues", {**group_version, "kind": "ClusterQueue", "metadata": {"name": "all"}, "spec": quota}
    )
    queue = {**group_version, "kind": "LocalQueue", "metadata": {"name": "ours"}, "spec": {"clusterQueue": "all"}}
    api.create(f"{group}/namespaces/{namespace}/localqueues", queue)

    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    for name in ("first", "second"):
        job = a_job(name, "tail", "-f", "/dev/null", gpus=2, suspend=True)
        job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "ours"}
        api.create(jobs, job)
        if name == "first":
            api.until(f"{jobs}/first", lambda seen: seen["status"].get("ready") == 1)
    assert api.get(f"{jobs}/second")["spec"]["suspend"] is True
    api.delete(f"{jobs}/first", propagationPolicy="Background")
    api.until(f"{jobs}/second", lambda seen: seen["status"].get("ready") == 1)
