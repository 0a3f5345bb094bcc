"""The API server itself, and JobSet's own webhook, take what we render."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobyard.executors.kubernetes.kinds import KINDS
from jobyard.executors.kubernetes.manifest import COMPLETIONS_MOST, objects_of, task_objects_of
from jobyard.executors.kubernetes.tables import LARGEST_BYTES
from jobyard.executors.protocol import SubmittedJob
from jobyard.manifests.arrays import parse_array
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.kinds import with_kind
from jobyard.manifests.load import spec_from_file
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.kubernetes import Toleration, Volume
from jobyard.model.lines import Lines
from jobyard.model.resources import Resources
from jobyard.model.training import Elastic, Training
from tests.builders import a_group, a_job, with_words
from tests.cluster.api import Refused
from tests.cluster.cluster import Cluster
from tests.yards import ROOT

OTHERS = {"ConfigMap": "/api/v1/namespaces/{}/configmaps", "Service": "/api/v1/namespaces/{}/services"}
ECHO = Command(shell="echo $(hostname) $$")
POD = GroupSpec(
    ECHO,
    resources=Resources(1500, 512, 2),
    cpu_limit_millis=3000,
    shm_mib=64,
    node_selector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    tolerations=(Toleration("gpu", "Exists"), Toleration("team", "Equal", "a", "NoSchedule")),
)
ARRAY, _ = parse_array("1-3,9")
SHAPES = {
    "plain": a_job(image="x", timeout_seconds=60, deadline_seconds=600),
    "everything of a pod": a_job(groups=(POD,), image="x"),
    "array": a_job(groups=(GroupSpec(ECHO, completions=4, array=ARRAY),), image="x", retries=2, max_fails=1, limit=2),
    "lines": a_job(groups=(GroupSpec(Command(lines=Lines.of(["a", "b"])), completions=2),), image="x"),
    "largest": a_job(COMPLETIONS_MOST, image="x", retries=1),
    "training": a_job(3, image="x", training=Training(epochs=3), retries=1),
    "gang in a job": a_job(3, image="x", gang=True),
    "long name": a_job(9999, name="x" * 200, image="x"),
}
IN_JOBSETS = {
    "groups": a_job(groups=(a_group("b", 2, 3), a_group("a", 1)), image="x", retries=2, deadline_seconds=60),
    "gang": a_job(
        groups=(GroupSpec(ECHO, count=2, resources=Resources(gpus=1)),),
        gang=True,
        image="x",
        training=Training(),
        elastic=Elastic(gpus=(1, 8), workers=(1, 4)),
    ),
    "grid gang": a_job(groups=(a_group("b", 2, 3), a_group("a", 1)), gang=True, training=Training(), image="x"),
    "long names": a_job(groups=(a_group("w" * 30, 100, 10),), name="x" * 200, image="x"),
}


GANGS = {
    "PyTorchJob": a_job(
        groups=(GroupSpec(ECHO, count=3, resources=Resources(gpus=1)),),
        gang=True,
        image="x",
        kind="PyTorchJob",
        training=Training(epochs=3),
        deadline_seconds=60,
        elastic=Elastic(gpus=(1, 8), workers=(1, 4)),
    ),
    "RayJob": with_kind(
        a_job(
            groups=(GroupSpec(ECHO, count=2, resources=Resources(1000, 512, 1)),),
            gang=True,
            image="x",
            on="kubernetes",
            kind="RayJob",
            timeout_seconds=60,
            training=Training(epochs=2),
            elastic=Elastic(workers=(2, 4)),
        )
    ),
}
CLAIMS = (Volume("data", "/data", read_only=True), Volume("data", "/more"))
OPERATORS = ("jobset_operator", "training_operator", "ray_operator")


def path_of(made: dict[str, Any], namespace: str) -> str:
    kind = made["kind"]
    return OTHERS[kind].format(namespace) if kind in OTHERS else KINDS[kind].collection(namespace)


def dry(cluster: Cluster, namespace: str, made: dict[str, Any]) -> dict[str, Any]:
    """As the API server would keep it. Unknown fields are refused, so that a slip of the pen is seen."""
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    answer = cluster.api.raw("POST", path_of(made, namespace), made, query=query)
    kept: dict[str, Any] = json.loads(answer)
    return kept


def assert_taken(cluster: Cluster, namespace: str, spec: JobSpec) -> None:
    job = SubmittedJob("5e7a11ce", 7, spec)
    for made in [*objects_of(job, 12, namespace), *objects_of(job, 1, namespace, yard_id="y", storage="disk")]:
        kept = dry(cluster, namespace, made)
        assert kept["metadata"]["name"] == made["metadata"]["name"]
        if made["kind"] in KINDS:
            assert KINDS[made["kind"]].is_waiting(kept)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_api_server_takes_every_job(shape: str, cluster: Cluster, namespace: str) -> None:
    assert_taken(cluster, namespace, SHAPES[shape])


def test_the_api_server_takes_a_task_alone_and_volumes(cluster: Cluster, namespace: str) -> None:
    job = SubmittedJob("5e7a11ce", 7, with_words(SHAPES["training"], volumes=CLAIMS))
    for made in task_objects_of(job, 2, 3, namespace, yard_id="y", storage="disk"):
        kept = dry(cluster, namespace, made)
        assert kept["metadata"]["labels"]["jobyard.dev/task"] == "2"


def test_our_limits_are_those_of_the_api_server(cluster: Cluster, namespace: str) -> None:
    """One more is refused there too; else we would refuse jobs for nothing."""
    (job,) = objects_of(SubmittedJob("5e7a11ce", 7, a_job(COMPLETIONS_MOST, image="x")), 1)
    job["spec"] |= {"completions": COMPLETIONS_MOST + 1, "parallelism": 10}
    with pytest.raises(Refused, match="maxFailedIndexes"):
        dry(cluster, namespace, job)
    table = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t"}}
    dry(cluster, namespace, {**table, "data": {"a": "x" * (LARGEST_BYTES - 1)}})
    with pytest.raises(Refused, match="Too long"):
        dry(cluster, namespace, {**table, "data": {"a": "x" * (LARGEST_BYTES + 1)}})


@pytest.mark.parametrize("shape", IN_JOBSETS)
@pytest.mark.usefixtures("jobset_operator")
def test_jobset_takes_groups_and_gangs(shape: str, cluster: Cluster, namespace: str) -> None:
    assert_taken(cluster, namespace, IN_JOBSETS[shape])


@pytest.mark.parametrize("manifest", sorted((ROOT / "examples" / "aichor").glob("*.yaml")), ids=lambda path: path.stem)
@pytest.mark.usefixtures("jobset_operator")
def test_jobset_takes_the_aichor_scenarios(manifest: Path, cluster: Cluster, namespace: str) -> None:
    spec = spec_from_file(manifest, Overrides(), SubmitContext(str(ROOT), {}, "ada"))
    assert_taken(cluster, namespace, replace(spec, on="kubernetes"))


@pytest.mark.parametrize("kind", GANGS)
@pytest.mark.usefixtures("training_operator", "ray_operator")
def test_operators_take_gangs(kind: str, cluster: Cluster, namespace: str) -> None:
    assert_taken(cluster, namespace, GANGS[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures(*OPERATORS)
def test_the_api_server_takes_what_users_wrote(kind: str, cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    assert_taken(cluster, namespace, written(kind, tmp_path))


def written(kind: str, tmp_path: Path) -> JobSpec:
    path = tmp_path / f"{kind}.yaml"
    path.write_text(yaml.safe_dump(WRITTEN[kind]))
    return spec_from_file(path, Overrides(on="kubernetes"), SubmitContext(str(tmp_path), {}, "ada"))


def template(container: str = "main") -> dict[str, Any]:
    """Of a pod, as users write it."""
    main = {"name": container, "image": "x", "command": ["true"]}
    return {"spec": {"restartPolicy": "Never", "containers": [main]}}


INDEXED = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": template()}
REPLICA = {"replicas": 1, "restartPolicy": "Never", "template": template("pytorch")}
RAY = {
    "headGroupSpec": {"rayStartParams": {}, "template": template()},
    "workerGroupSpecs": [
        {
            "groupName": "small",
            "replicas": 1,
            "minReplicas": 1,
            "maxReplicas": 5,
            "rayStartParams": {},
            "template": template(),
        }
    ],
}
BODIES: dict[str, Any] = {
    "Pod": template()["spec"],
    "Job": INDEXED,
    "JobSet": {"replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": INDEXED}}]},
    "PyTorchJob": {"pytorchReplicaSpecs": {"Master": REPLICA, "Worker": REPLICA}},
    "RayJob": {"entrypoint": "true", "shutdownAfterJobFinishes": True, "rayClusterSpec": RAY},
}
WRITTEN = {
    kind: {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": {"name": "mine"}, "spec": body}
    for kind, body in BODIES.items()
}
