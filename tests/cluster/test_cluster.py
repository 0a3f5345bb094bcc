"""Is the test cluster a real one?"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.cluster.api import Object, Refused
from tests.cluster.cluster import GPU, Cluster
from tests.cluster.images import python_image
from tests.cluster.node import Node
from tests.cluster.objects import a_job, has, pods_of
from tests.yards import SOURCE


def jobs_of(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


def test_the_cluster_comes_up_as_the_version_that_was_built(cluster: Cluster) -> None:
    assert cluster.api.get("/version")["gitVersion"] == "v1.36.4"
    assert "default" in cluster.kubectl("get", "namespaces", "--output=name")


def test_a_stranger_may_not_read_what_the_admin_reads(cluster: Cluster, namespace: str) -> None:
    stranger = cluster.identity("stranger", "stranger")
    with pytest.raises(Refused, match='User "stranger" cannot list resource "jobs"') as refusal:
        stranger.items(jobs_of(namespace))
    assert refusal.value.code == 403


def test_an_indexed_job_of_four_runs_through_in_real_containers(cluster: Cluster, worker: Node, namespace: str) -> None:
    api = cluster.api
    api.create(jobs_of(namespace), a_job("four", "sh", "-c", "echo I am $JOB_COMPLETION_INDEX", size=4))
    done = api.until(f"{jobs_of(namespace)}/four", has("Complete"))
    assert done["status"]["completedIndexes"] == "0-3"
    names = [pod["metadata"]["name"] for pod in api.items(pods_of(namespace))]
    said = {api.raw("GET", f"{pods_of(namespace)}/{name}/log") for name in names}
    assert said == {f"I am {index}\n".encode() for index in range(4)}


def test_a_command_can_be_run_in_a_running_pod(cluster: Cluster, worker: Node, namespace: str) -> None:
    api = cluster.api
    api.create(jobs_of(namespace), a_job("waits", "tail", "-f", "/dev/null"))
    (pod,) = api.until_all(pods_of(namespace), lambda seen: seen["status"].get("phase") == "Running", 1)
    assert cluster.kubectl("exec", f"--namespace={namespace}", pod, "--", "echo", "inside") == "inside\n"


def test_an_image_with_this_python_and_the_sdk_runs(
    cluster: Cluster, worker: Node, namespace: str, tmp_path: Path
) -> None:
    image = "jobyard.test/python:1"
    python_image(tmp_path / "image.tar", image, {"/opt/jobyard": SOURCE / "jobyard"})
    worker.import_images(tmp_path / "image.tar")
    says = "import sys; sys.path.insert(0, '/opt'); import ssl, sqlite3, jobyard.sdk; print(sys.version)"
    job = a_job("python", "python3", "-c", says)
    job["spec"]["template"]["spec"]["containers"][0]["image"] = image
    cluster.api.create(jobs_of(namespace), job)
    cluster.api.until(f"{jobs_of(namespace)}/python", has("Complete"))
    assert cluster.kubectl("logs", f"--namespace={namespace}", "job/python") == f"{sys.version}\n"


def test_the_pods_of_a_job_find_each_other_by_name(cluster: Cluster, worker: Node, namespace: str) -> None:
    api = cluster.api
    service = {"metadata": {"name": "gang"}, "spec": {"clusterIP": "None", "selector": {"job-name": "gang"}}}
    api.create(f"/api/v1/namespaces/{namespace}/services", service)
    listen = "if [ $JOB_COMPLETION_INDEX = 0 ]; then nc -l -p 9000; "
    send = "else until echo hello | nc -w 20 gang-0.gang 9000; do sleep 0.1; done; fi"
    job = a_job("gang", "sh", "-c", listen + send, size=2)
    job["spec"]["template"]["spec"]["subdomain"] = "gang"
    api.create(jobs_of(namespace), job)
    api.until(f"{jobs_of(namespace)}/gang", has("Complete"))
    leader = {"labelSelector": "batch.kubernetes.io/job-completion-index=0"}
    (pod,) = api.items(pods_of(namespace), **leader)
    assert api.raw("GET", f"{pods_of(namespace)}/{pod['metadata']['name']}/log") == b"hello\n"


@pytest.mark.long
def test_a_running_job_is_suspended_changed_in_size_and_gpus_and_resumed(
    cluster: Cluster, worker: Node, namespace: str
) -> None:
    api = cluster.api
    cluster.set_gpus(4)
    path = f"{jobs_of(namespace)}/elastic"

    # 1. Two pods of two GPUs each run.
    api.create(jobs_of(namespace), a_job("elastic", "tail", "-f", "/dev/null", size=2, gpus=2))
    api.until(path, lambda job: job["status"].get("ready") == 2)

    # 2. Suspended, they go away.
    api.patch(path, {"spec": {"suspend": True}})
    api.until(path, lambda job: has("Suspended")(job) and not job["status"].get("active"))

    # 3. One pod of four GPUs comes back.
    template = "/spec/template"
    changes: list[Object] = [
        {"op": "replace", "path": f"{template}/spec/containers/0/resources", "value": {"limits": {GPU: "4"}}},
        {"op": "add", "path": f"{template}/metadata/annotations", "value": {"size": "1"}},
        {"op": "replace", "path": "/spec/completions", "value": 1},
        {"op": "replace", "path": "/spec/parallelism", "value": 1},
    ]
    api.patch(path, changes, kind="application/json-patch+json")
    api.patch(path, {"spec": {"suspend": False}})
    api.until(path, lambda job: not job["spec"]["suspend"] and job["status"].get("ready") == 1)
    running = [pod for pod in api.items(pods_of(namespace)) if pod["status"]["phase"] == "Running"]
    assert [pod["spec"]["containers"][0]["resources"]["limits"] for pod in running] == [{GPU: "4"}]


@pytest.mark.long
def test_the_api_server_comes_back_with_everything_it_knew(cluster: Cluster, namespace: str) -> None:
    cluster.api.create(jobs_of(namespace), a_job("kept", "true", suspend=True))
    cluster.programs["kube-apiserver"].restart()
    cluster.wait_ready()
    assert cluster.api.get(f"{jobs_of(namespace)}/kept")["spec"]["suspend"] is True


@pytest.mark.long
def test_a_thousand_nodes_appear_and_jobs_run_on_them(cluster: Cluster, namespace: str) -> None:
    begin = time.monotonic()
    names = cluster.add_fake_nodes(1000)
    try:
        print(f"{len(names)} nodes were ready after {time.monotonic() - begin:.1f} s")
        cluster.api.create(jobs_of(namespace), a_job("wide", "true", size=50, gpus=8, fake=True))
        cluster.api.until(f"{jobs_of(namespace)}/wide", has("Complete"))
        used = {pod["spec"]["nodeName"] for pod in cluster.api.items(pods_of(namespace))}
        assert used <= set(names)
        assert len(used) > 1, "eight GPUs fill a node"
    finally:
        cluster.remove_fake_nodes()
