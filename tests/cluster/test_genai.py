"""genai-workload-manager's commands on a real cluster: deploy, scale, delete, and jobs that others made."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobyard.compat.genai.cluster import Cluster as Asked
from jobyard.compat.genai.desk import Desk
from tests.cluster.api import Object
from tests.cluster.build import KUBERNETES
from tests.cluster.cluster import GPU, Cluster
from tests.cluster.images import SMALL, python_image
from tests.cluster.node import NODE, Node
from tests.cluster.processes import Program, free_port
from tests.cluster.yards import ClusterYard, cluster_yard
from tests.yards import ROOT, until

EXAMPLES = ROOT / "examples" / "genai"
PYTORCHJOBS = "/apis/kubeflow.org/v1"
PYTHON = "jobyard.test/python-for-genai:1"
HOLD = ["tail", "-f", "/dev/null"]


@pytest.fixture
def yard(cluster: Cluster, worker: Node, training_operator: Program, namespace: str) -> Iterator[ClusterYard]:
    cluster.set_gpus(6)
    with cluster_yard(cluster, namespace) as made:
        try:
            yield made
        finally:
            made.settle()
            cluster.set_gpus(0)


def genai(yard: ClusterYard, *words: str, input: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "jobyard.compat.genai", *words],
        input=input,
        capture_output=True,
        text=True,
        cwd=yard.work,
        env={**yard.env, **env},
        timeout=300,
    )


def sample(name: str, command: list[str] | None = None) -> Object:
    """An example as it is, but with the image of the tests and without volumes."""
    made: Object = yaml.safe_load((EXAMPLES / name).read_text())
    pod = pod_of(made)
    pod.pop("volumes", None)
    pod["terminationGracePeriodSeconds"] = 1
    (container,) = pod["containers"]
    container.pop("volumeMounts", None)
    container |= {"image": SMALL, "imagePullPolicy": "Never", "command": command or HOLD}
    return made


def pod_of(made: Object) -> Object:
    spec: Object = made["spec"]
    if made["kind"] == "Pod":
        return spec
    template = spec["template"] if made["kind"] == "Job" else spec["pytorchReplicaSpecs"]["Master"]["template"]
    found: Object = template["spec"]
    return found


def deploy(yard: ClusterYard, made: Object) -> str:
    done = genai(yard, "deploy", "-f", "-", input=json.dumps(made))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def pods(yard: ClusterYard) -> list[Object]:
    return yard.cluster.api.items(f"/api/v1/namespaces/{yard.namespace}/pods")


def gpus_of_pods(yard: ClusterYard) -> list[str]:
    live = [pod for pod in pods(yard) if "deletionTimestamp" not in pod["metadata"]]
    return [pod["spec"]["containers"][0]["resources"]["limits"][GPU] for pod in live]


def test_the_samples_get_what_fits_between_request_and_limit(yard: ClusterYard) -> None:
    job = sample("pytorchjob-2-4.yaml", ["sh", "-c", "echo has $NGPU; exec tail -f /dev/null"])
    assert deploy(yard, job).endswith("gets 4 GPUs of 2..4")
    yard.wait_state("sample-pytorchjob", "RUNNING")
    (made,) = yard.cluster.api.items(f"{PYTORCHJOBS}/namespaces/{yard.namespace}/pytorchjobs")
    annotations = made["metadata"]["annotations"]
    assert (annotations["replicas"], annotations["request"], annotations["limit"]) == ("1", "2", "4")
    assert gpus_of_pods(yard) == ["4"]
    until(lambda: "has 4" in yard.logs("sample-pytorchjob"))
    assert deploy(yard, sample("job.yaml")).endswith("gets 2 GPUs of 1..2")
    assert "waits: " in deploy(yard, sample("pod.yaml"))
    again = genai(yard, "deploy", "-f", "-", input=json.dumps(job))
    assert again.returncode == 1
    assert "job sample-pytorchjob exists already" in again.stderr


def test_scale_makes_a_job_larger_and_delete_removes_it(yard: ClusterYard) -> None:
    deploy(yard, sample("pod.yaml"))
    yard.wait_state("sample-pod", "RUNNING")
    assert deploy(yard, sample("pytorchjob-2-4.yaml")).endswith("gets 2 GPUs of 2..4")
    yard.wait_state("sample-pytorchjob", "RUNNING")
    full = genai(yard, "scale")
    assert full.returncode == 1
    assert "has 2 of 4 GPUs, and there is no room for more" in full.stderr
    assert genai(yard, "delete", "-n", "sample-pod").stdout == "sample-pod is stopped and deleted\n"
    until(lambda: genai(yard, "scale", "-n", "sample-pytorchjob").returncode == 0)
    until(lambda: gpus_of_pods(yard) == ["4"], 120)
    assert "sample-pytorchjob  4/4" in until(
        lambda: out if "4/4" in (out := genai(yard, "status").stdout) else None, 120
    )
    done = genai(yard, "delete", "-n", "sample-pytorchjob", "-n", "nobody")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "404: there is no job 'nobody'")
    yard.cluster.api.until_none(f"{PYTORCHJOBS}/namespaces/{yard.namespace}/pytorchjobs")


def test_a_quota_is_kept_and_shown(yard: ClusterYard) -> None:
    hard = {"hard": {f"requests.{GPU}": "3"}}
    path = f"/api/v1/namespaces/{yard.namespace}/resourcequotas"
    yard.cluster.api.create(path, {"metadata": {"name": "gpus"}, "spec": hard})
    yard.cluster.api.until(f"{path}/gpus", lambda seen: seen.get("status", {}).get("hard"))
    assert desk(yard).quota(yard.namespace) == ("3", "0")
    until(lambda: yard.json("clusters")[0]["is_connected"])
    assert deploy(yard, sample("pytorchjob-2-4.yaml")).endswith("gets 3 GPUs of 2..4")


def desk(yard: ClusterYard) -> Desk:
    return Desk(lambda: yard.client)


def test_a_job_of_other_hands_is_adopted_and_scaled(yard: ClusterYard) -> None:
    path = f"{PYTORCHJOBS}/namespaces/{yard.namespace}/pytorchjobs"
    yard.cluster.api.create(path, sample("scale.yaml", ["sh", "-c", "exec tail -f /dev/null # --num_processes=1"]))
    until(lambda: "running, not the yard's" in genai(yard, "status").stdout)
    assert desk(yard).record("adopted-pytorchjob").gpu_assigned == 1
    done = genai(yard, "scale")
    assert (done.returncode, done.stdout) == (0, "adopted-pytorchjob goes from 1 to 3 GPUs\n"), done.stderr
    until(lambda: gpus_of_pods(yard) == ["3"], 120)
    (pod,) = [pod for pod in pods(yard) if "deletionTimestamp" not in pod["metadata"]]
    (container,) = pod["spec"]["containers"]
    assert container["command"][-1].endswith("--num_processes=3")
    assert {"name": "NGPU", "value": "3"} in container["env"]
    record = until(lambda: found if (found := desk(yard).record("adopted-pytorchjob")).gpu_assigned else None)
    assert (record.gpu_assigned, record.restarts) == (3, 1)
    assert genai(yard, "delete", "-n", "adopted-pytorchjob").stdout == "adopted-pytorchjob is deleted\n"
    yard.cluster.api.until_none(path)


def test_a_job_without_annotations_is_adopted_when_it_is_added(yard: ClusterYard) -> None:
    path = f"{PYTORCHJOBS}/namespaces/{yard.namespace}/pytorchjobs"
    made = sample("scale.yaml")
    del made["metadata"]["annotations"]
    yard.cluster.api.create(path, made)
    assert desk(yard).records() == []
    assert desk(yard).adopt("adopted-pytorchjob", 1, 2, 1).gpu_lim == 2
    assert [each.job_name for each in desk(yard).records()] == ["adopted-pytorchjob"]


def tidied(yard: ClusterYard) -> list[str]:
    desk(yard).tidy()
    return gpus_of_pods(yard)


def test_a_scaling_that_was_broken_off_is_finished_by_the_next_who_looks(yard: ClusterYard) -> None:
    """As if we had died between the suspension and the new size."""
    path = f"{PYTORCHJOBS}/namespaces/{yard.namespace}/pytorchjobs/adopted-pytorchjob"
    yard.cluster.api.create(path.rpartition("/")[0], sample("scale.yaml"))
    until(lambda: gpus_of_pods(yard) == ["1"])
    broken: dict[str, Any] = {"metadata": {"annotations": {"jobyard.dev/scaling": "2"}}}
    yard.cluster.api.patch(path, {**broken, "spec": {"runPolicy": {"suspend": True}}})
    asked = Asked(str(yard.kubeconfig), "", yard.namespace)
    until(lambda: tidied(yard) == ["2"], 120)
    assert "jobyard.dev/scaling" not in asked.job("adopted-pytorchjob")["metadata"]["annotations"]


def test_the_demo_shows_a_scale_up(yard: ClusterYard, worker: Node, tmp_path: Path) -> None:
    python_image(tmp_path / "image.tar", PYTHON, {})
    worker.import_images(tmp_path / "image.tar")
    env = {
        "KUBECTL": str(KUBERNETES.program("kubectl")),
        "PYTHON": sys.executable,
        "IMAGE": PYTHON,
        "NODE": NODE,
        "NAMESPACE": yard.namespace,
        "MPORT": str(free_port()),
        "HOME": str(yard.home),
    }
    done = subprocess.run(
        [EXAMPLES / "demo"], capture_output=True, text=True, cwd=yard.work, env={**yard.env, **env}, timeout=300
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{yard.server_log()}"
    assert "sample-pytorchjob goes from 2 to 4 GPUs" in done.stderr


def test_the_one_file_manager_is_taken_by_the_api_server(cluster: Cluster) -> None:
    said = cluster.kubectl("apply", "--dry-run=client", "--validate=strict", "-f", str(EXAMPLES / "manager.yaml"))
    assert "deployment.apps/genai-workload-manager" in said
