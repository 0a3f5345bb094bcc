"""genai-workload-manager's commands on a real cluster: deploy, scale, delete, and jobs that others made."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
import yaml

from jobyard.compat.genai.cluster import NamespaceApi
from jobyard.compat.genai.service import Service
from jobyard.executors.kubernetes.kinds import KINDS
from jobyard.model.node import ClusterConfig
from tests.cluster.api import Object
from tests.cluster.build import KUBERNETES
from tests.cluster.cluster import GPU, Cluster
from tests.cluster.images import SMALL, python_image, yard_image
from tests.cluster.node import NODE, Node
from tests.cluster.objects import a_volume, has
from tests.cluster.processes import Program, free_port
from tests.cluster.yards import ClusterYard, cluster_yard
from tests.waiting import until
from tests.yards import ROOT

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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_a_quota_is_kept_and_shown(yard: ClusterYard) -> None:
    hard = {"hard": {f"requests.{GPU}": "3"}}
    path = f"/api/v1/namespaces/{yard.namespace}/resourcequotas"
    yard.cluster.api.create(path, {"metadata": {"name": "gpus"}, "spec": hard})
    yard.cluster.api.until(f"{path}/gpus", lambda seen: seen.get("status", {}).get("hard"))
    assert service(yard).quota(yard.namespace) == ("3", "0")
    until(lambda: yard.json("clusters")[0]["is_connected"])
    assert deploy(yard, sample("pytorchjob-2-4.yaml")).endswith("gets 3 GPUs of 2..4")


def service(yard: ClusterYard) -> Service:
    return Service(lambda: yard.client)


@pytest.mark.long
def test_a_job_of_other_hands_is_adopted_and_scaled(yard: ClusterYard) -> None:
    path = f"{PYTORCHJOBS}/namespaces/{yard.namespace}/pytorchjobs"
    yard.cluster.api.create(path, sample("scale.yaml", ["sh", "-c", "exec tail -f /dev/null # --num_processes=1"]))
    until(lambda: "running, not the yard's" in genai(yard, "status").stdout)
    assert service(yard).record("adopted-pytorchjob").gpu_assigned == 1
    done = genai(yard, "scale")
    assert (done.returncode, done.stdout) == (0, "adopted-pytorchjob goes from 1 to 3 GPUs\n"), done.stderr
    until(lambda: gpus_of_pods(yard) == ["3"], 120)
    (pod,) = [pod for pod in pods(yard) if "deletionTimestamp" not in pod["metadata"]]
    (container,) = pod["spec"]["containers"]
    assert container["command"][-1].endswith("--num_processes=3")
    assert {"name": "NGPU", "value": "3"} in container["env"]
    record = until(lambda: found if (found := service(yard).record("adopted-pytorchjob")).gpu_assigned else None)
    assert (record.gpu_assigned, record.restarts) == (3, 1)
    assert genai(yard, "delete", "-n", "adopted-pytorchjob").stdout == "adopted-pytorchjob is deleted\n"
    yard.cluster.api.until_none(path)


@pytest.mark.long
def test_a_job_without_annotations_is_adopted_when_it_is_added(yard: ClusterYard) -> None:
    path = f"{PYTORCHJOBS}/namespaces/{yard.namespace}/pytorchjobs"
    made = sample("scale.yaml")
    del made["metadata"]["annotations"]
    yard.cluster.api.create(path, made)
    assert service(yard).records() == []
    assert service(yard).adopt("adopted-pytorchjob", 1, 2, 1).gpu_lim == 2
    assert [each.job_name for each in service(yard).records()] == ["adopted-pytorchjob"]


@pytest.mark.parametrize("name", ["pod.yaml", "job.yaml", "pytorchjob-2-4.yaml"])
@pytest.mark.long
def test_delete_of_a_job_that_has_ended_removes_it_for_everybody(yard: ClusterYard, name: str) -> None:
    made = sample(name, ["sh", "-c", "echo done"])
    deploy(yard, made)
    job, kind = made["metadata"]["name"], made["kind"]
    until(lambda: f"{job} " in (out := genai(yard, "status").stdout) and "completed" in out, 120)
    done = genai(yard, "delete", "-n", job)
    assert done.stdout.startswith(f"{job} had ended (completed); removed from the cluster: {kind} {job}-"), done.stderr
    assert f"{job} " not in genai(yard, "status").stdout
    yard.cluster.api.until_none(f"{KINDS[kind].collection(yard.namespace)}")
    yard.cluster.api.until_none(f"/api/v1/namespaces/{yard.namespace}/pods")
    assert yard.job(job)["state"] == "SUCCEEDED"  # its history stays
    assert "done" in yard.logs(job)
    again = genai(yard, "delete", "-n", job)
    assert again.stdout == f"404: there is no job '{job}'\n", again.stderr


@pytest.mark.long
def test_delete_of_a_job_that_has_failed_shows_elsewhere_at_once(yard: ClusterYard) -> None:
    """Its object may be gone already, so that only the yard can say that it was deleted."""
    deploy(yard, sample("job.yaml", ["sh", "-c", "exit 3"]))
    other = service(yard)
    until(lambda: [each.status for each in other.records()] == ["failed"], 120)
    assert genai(yard, "delete", "-n", "sample-job").stdout.startswith("sample-job had ended (failed)")
    assert other.records() == []


@pytest.mark.long
def test_an_adopted_job_that_ends_while_it_is_scaled_stands_in_nobodys_way(yard: ClusterYard) -> None:
    path = f"{PYTORCHJOBS}/namespaces/{yard.namespace}/pytorchjobs/adopted-pytorchjob"
    yard.cluster.api.create(path.rpartition("/")[0], sample("scale.yaml", ["sh", "-c", "exit 0"]))
    until(lambda: [each.status for each in service(yard).records()] == ["completed"], 120)
    broken: dict[str, Any] = {"metadata": {"annotations": {"jobyard.dev/scaling": "2"}}}
    yard.cluster.api.patch(path, {**broken, "spec": {"runPolicy": {"suspend": True}}})
    looking = service(yard)
    (record,) = looking.records()
    assert (record.is_marked, record.is_resizing) == (True, False)
    looking.tidy([record])
    made = yard.cluster.api.get(path)
    assert "jobyard.dev/scaling" not in made["metadata"]["annotations"]
    assert made["spec"]["runPolicy"]["suspend"] is False
    done = genai(yard, "scale", "-n", "adopted-pytorchjob")
    assert done.returncode == 1
    assert "job adopted-pytorchjob has ended (completed)" in done.stderr


def tidied(yard: ClusterYard) -> list[str]:
    looking = service(yard)
    looking.tidy(looking.records())
    return gpus_of_pods(yard)


@pytest.mark.long
def test_a_scaling_that_was_broken_off_is_finished_by_the_next_who_looks(yard: ClusterYard) -> None:
    """As if we had died between the suspension and the new size."""
    path = f"{PYTORCHJOBS}/namespaces/{yard.namespace}/pytorchjobs/adopted-pytorchjob"
    yard.cluster.api.create(path.rpartition("/")[0], sample("scale.yaml"))
    until(lambda: gpus_of_pods(yard) == ["1"])
    broken: dict[str, Any] = {"metadata": {"annotations": {"jobyard.dev/scaling": "2"}}}
    yard.cluster.api.patch(path, {**broken, "spec": {"runPolicy": {"suspend": True}}})
    asked = NamespaceApi(ClusterConfig("kubernetes", str(yard.kubeconfig), "", yard.namespace))
    until(lambda: tidied(yard) == ["2"], 120)
    assert "jobyard.dev/scaling" not in asked.job("adopted-pytorchjob")["metadata"]["annotations"]


@pytest.mark.long
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


@pytest.mark.long
def test_the_app_is_served_by_uvicorn_too(yard: ClusterYard) -> None:
    port = free_port()
    words = ["-m", "uvicorn", "jobyard.compat.genai.app:app", "--port", str(port)]
    with subprocess.Popen([sys.executable, "-P", *words], env=yard.env, stderr=subprocess.DEVNULL) as server:
        try:
            assert until(lambda: asked("GET", f"http://127.0.0.1:{port}/freegpu")) == (200, {NODE: 6})
        finally:
            server.terminate()


# -- the manager in the cluster, as manager.yaml has it

TUNING, MANAGER = "fms-tuning", "genai-workload-manager"
IMAGE = "docker.io/library/jobyard:0.1.0"
TOKEN = "a-token-of-the-tests"
OF_JOB = "training.kubeflow.org/job-name"


def asked(method: str, url: str, body: Object | None = None, token: str = "") -> tuple[int, Any] | None:
    """None: nobody answers yet."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(url, data, headers, method=method), timeout=180) as answer:
            return answer.status, json.load(answer)
    except HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)
    except URLError:
        return None


@dataclass(frozen=True)
class Manager:
    """At the address of its pod: without kube-proxy its Service answers nobody."""

    cluster: Cluster
    address: str

    def ask(self, method: str, path: str, body: Object | None = None, token: str = TOKEN) -> tuple[int, Any]:
        answer = asked(method, f"http://{self.address}:6000{path}", body, token)
        assert answer is not None, "the manager does not answer"
        return answer

    def job(self, name: str) -> Object:
        status, record = self.ask("GET", f"/get_job/{name}")
        return record if status == 200 else {}

    def genai(self, *words: str, input: str = "") -> str:
        inside = ("exec", "-i", f"--namespace={TUNING}", f"deploy/{MANAGER}", "--", "python", "-m")
        return self.cluster.kubectl(*inside, "jobyard.compat.genai", *words, input=input)

    def gpus_of(self, name: str) -> list[str]:
        """Of each of its pods that stays."""
        found = self.cluster.api.items(f"/api/v1/namespaces/{TUNING}/pods", labelSelector=f"{OF_JOB}={name}")
        live = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return [pod["spec"]["containers"][0]["resources"]["limits"][GPU] for pod in live]

    def training(self, name: str, epochs: int) -> Object:
        """An example that trains, as it is but for the image, and tells this manager of its checkpoints."""
        made: Object = yaml.safe_load((EXAMPLES / name).read_text().replace("python:3.12-slim", IMAGE))
        pod = pod_of(made)
        (container,) = pod["containers"]
        container["command"] = ["python", "/code/train.py"]
        told = f"http://job:{TOKEN}@{self.address}:6000/update_last_checkpoint"
        more = {"NOTIFY_URL": told, "EPOCHS": str(epochs), "EPOCH_SECONDS": "2"}
        container["env"] += [{"name": key, "value": value} for key, value in more.items()]
        container.setdefault("volumeMounts", [{"name": "code", "mountPath": "/code"}])
        pod.setdefault("volumes", [{"name": "code", "configMap": {"name": "genai-train"}}])
        return made


@pytest.fixture
def manager(cluster: Cluster, worker: Node, training_operator: Program, tmp_path: Path) -> Iterator[Manager]:
    """`kubectl apply` of manager.yaml, with volumes and the image that a real cluster would have."""
    yard_image(tmp_path / "image.tar", IMAGE, tmp_path)
    worker.import_images(tmp_path / "image.tar")
    volumes = [
        a_volume(TUNING, MANAGER, tmp_path / "journal", user=10001),
        a_volume(TUNING, "genai-checkpoints", tmp_path / "checkpoints", shared=True),
    ]
    for volume in volumes:
        cluster.api.create("/api/v1/persistentvolumes", volume)
    made = list(yaml.safe_load_all((EXAMPLES / "manager.yaml").read_text().replace("CHANGE-ME", TOKEN)))
    (deployment,) = [each for each in made if each["kind"] == "Deployment"]
    (container,) = pod_of({**deployment, "kind": "Job"})["containers"]
    reached = {"KUBERNETES_SERVICE_HOST": cluster.api.host, "KUBERNETES_SERVICE_PORT": str(cluster.api.port)}
    more = {**reached, "PYTHONPATH": "/opt/site"}  # the image of the tests has no site-packages
    container["env"] += [{"name": key, "value": value} for key, value in more.items()]
    text = yaml.safe_dump_all(made)
    cluster.set_gpus(6)
    cluster.kubectl("apply", "--validate=strict", "-f", "-", input=text)
    try:
        selector = f"app.kubernetes.io/name={MANAGER}"
        pods = f"/api/v1/namespaces/{TUNING}/pods"
        (pod,) = cluster.api.until_all(pods, has("Ready"), 1, 120, labelSelector=selector).values()
        cluster.kubectl("create", "configmap", "genai-train", f"--from-file={EXAMPLES / 'train.py'}", "-n", TUNING)
        yield Manager(cluster, pod["status"]["podIP"])
    finally:
        cluster.kubectl("delete", "-f", "-", "--wait=false", "--ignore-not-found", input=text)
        cluster.api.until(f"/api/v1/namespaces/{TUNING}", bool, 120, gone=True)
        for volume in volumes:
            cluster.api.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")
        cluster.set_gpus(0)


def test_the_manager_in_the_cluster_is_told_of_checkpoints_and_lets_an_adopted_job_grow(manager: Manager) -> None:
    assert manager.ask("GET", "/get_all_jobs", token="wrong")[0] == 401
    # 1. A job of other hands, and one that is deployed inside, both of which tell the manager when they save.
    adopted = manager.training("scale.yaml", 10_000)
    manager.cluster.kubectl("create", "-n", TUNING, "-f", "-", input=json.dumps(adopted))
    until(lambda: manager.job("adopted-pytorchjob").get("completed_epochs"), 120)
    assert manager.job("adopted-pytorchjob")["gpu_assigned"] == 1
    row = next(line for line in manager.genai("status").splitlines() if line.startswith("adopted-pytorchjob "))
    assert re.fullmatch(r"[1-9]\d*/10000", row.split()[3]), "another process shows what the manager was told"
    said = manager.genai("deploy", "-f", "-", input=json.dumps(manager.training("pytorchjob-2-4.yaml", 20)))
    assert said.strip().endswith("gets 4 GPUs of 2..4")
    # 2. When that one has completed, the other one grows at its next checkpoint.
    until(lambda: manager.job("sample-pytorchjob").get("status") == "completed", 120)
    done = manager.job("sample-pytorchjob")
    assert (done["completed_epochs"], done["total_epochs"]) == (20, 20)
    assert done["last_checkpoint_time"] > done["job_arrival_time"]
    until(lambda: manager.gpus_of("adopted-pytorchjob") == ["3"], 180)
    grown = until(lambda: found if (found := manager.job("adopted-pytorchjob"))["gpu_assigned"] else None, 120)
    assert (grown["gpu_assigned"], grown["restarts"]) == (3, 1)
    assert "adopted-pytorchjob is deleted" in manager.genai("delete", "-n", "adopted-pytorchjob")


@pytest.mark.long
def test_the_manager_adds_a_job_with_workers_and_scales_all_of_it(manager: Manager) -> None:
    made = sample("scale.yaml")
    del made["metadata"]["annotations"]
    replicas = made["spec"]["pytorchReplicaSpecs"]
    replicas["Worker"] = replicas["Master"]
    manager.cluster.kubectl("create", "-n", TUNING, "-f", "-", input=json.dumps(made))
    asked = {"job_name": "adopted-pytorchjob", "gpu_req": 1, "gpu_lim": 4, "gpu_assigned": 1, "replicas": 2}
    status, added = manager.ask("POST", "/add_job", asked)
    assert (status, added["job"]["gpu_lim"], added["job"]["replicas"]) == (201, 4, 2)
    assert manager.ask("POST", "/add_job", asked)[0] == 400
    until(lambda: manager.job("adopted-pytorchjob")["status"] == "running", 120)
    assert until(lambda: manager.gpus_of("adopted-pytorchjob") == ["1", "1"])
    assert manager.ask("POST", "/scale/adopted-pytorchjob") == (200, ["Scaled", 200])
    until(lambda: manager.gpus_of("adopted-pytorchjob") == ["3", "3"], 120)  # of six, two replicas
