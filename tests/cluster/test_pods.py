"""Real pods of our objects find their directories, their SDK, and somebody who passes their reports on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobyard.executors.kubernetes.kinds import KINDS
from jobyard.executors.kubernetes.manifest import objects_of, owned, task_objects_of
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.job import Command, GroupSpec
from jobyard.model.training import Training
from tests.builders import a_job
from tests.cluster.cluster import Cluster
from tests.cluster.images import SMALL, python_image
from tests.cluster.node import Node
from tests.cluster.objects import has

PYTHON = "jobyard.test/python-without-jobyard:1"
OTHERS = {"ConfigMap": "/api/v1/namespaces/{}/configmaps", "Service": "/api/v1/namespaces/{}/services"}
TRAIN = """
import os, jobyard.sdk as sdk
from pathlib import Path
saved = Path(os.environ["YARD_CHECKPOINT_DIR"], "epochs")
Path(os.environ["YARD_OUTPUT_DIR"], "attempt-" + os.environ["YARD_ATTEMPT"]).write_text("x")
print("from", sdk.__file__, "after", saved.read_text() if saved.exists() else "nothing")
done = int(saved.read_text()) if saved.exists() else 0
with open(os.environ["YARD_SPOOL"], "a") as spool:
    for number in range(1000):
        spool.write('{"step": %d}\\n' % number)
saved.write_text(str(done + 1))
"""


@pytest.fixture
def disk(cluster: Cluster, worker: Node, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """A claim called `disk`, and where on this machine its files are."""
    size = {"storage": "1Mi"}
    spec = {"capacity": size, "accessModes": ["ReadWriteMany"], "hostPath": {"path": str(tmp_path)}}
    spec |= {"storageClassName": namespace, "persistentVolumeReclaimPolicy": "Retain"}
    cluster.api.create("/api/v1/persistentvolumes", {"metadata": {"name": namespace}, "spec": spec})
    claim = {"accessModes": ["ReadWriteMany"], "storageClassName": namespace, "resources": {"requests": size}}
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    cluster.api.create(path, {"metadata": {"name": "disk"}, "spec": claim})
    cluster.api.until(f"{path}/disk", lambda seen: seen.get("status", {}).get("phase") == "Bound")
    yield tmp_path
    cluster.api.delete(f"/api/v1/persistentvolumes/{namespace}")


def run(cluster: Cluster, namespace: str, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Created, admitted, and waited for; its pods."""
    first, *rest = objects
    kind = KINDS[first["kind"]]
    path = kind.collection(namespace)
    created = cluster.api.create(path, first)
    for each in rest:
        cluster.api.create(OTHERS[each["kind"]].format(namespace), owned(each, {**first, **created}))
    name = first["metadata"]["name"]
    cluster.api.patch(f"{path}/{name}", kind.admission(created))
    cluster.api.until(f"{path}/{name}", has("Complete"))
    return cluster.api.items(KINDS["Pod"].collection(namespace), labelSelector=f"{kind.pods_label}={name}")


def log(cluster: Cluster, pod: dict[str, Any], container: str) -> str:
    words = ("logs", f"--namespace={pod['metadata']['namespace']}", pod["metadata"]["name"], f"--container={container}")
    return cluster.kubectl(*words)


def test_a_training_reports_and_finds_its_checkpoint_again(
    cluster: Cluster, worker: Node, namespace: str, disk: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    python_image(archive, PYTHON, {})
    worker.import_images(archive)
    group = GroupSpec(Command(argv=("python3", "-c", TRAIN)))
    job = SubmittedJob("5e7a11ce", 7, a_job(groups=(group,), name="train", image=PYTHON, training=Training()))
    for attempt, found in ((1, "nothing"), (2, "1")):
        (pod,) = run(cluster, namespace, objects_of(job, attempt, namespace, yard_id="y", storage="disk"))
        assert log(cluster, pod, "task") == f"from /opt/jobyard/sdk.zip/jobyard/sdk/__init__.py after {found}\n"
        reports = [json.loads(line)["step"] for line in log(cluster, pod, "reports").splitlines()]
        assert reports == list(range(1000))
    assert (disk / "jobs/5e7a11ce/checkpoints/epochs").read_text() == "2"
    assert sorted(path.name for path in (disk / "jobs/5e7a11ce/output").iterdir()) == ["attempt-1", "attempt-2"]


def test_each_task_of_an_array_has_its_own_directories_also_when_it_is_tried_again(
    cluster: Cluster, namespace: str, disk: Path
) -> None:
    words = 'echo "$YARD_TASK.$YARD_ATTEMPT" >> "$YARD_OUTPUT_DIR/said"'
    group = GroupSpec(Command(argv=("sh", "-c", words)), completions=2)
    job = SubmittedJob("5e7a11ce", 7, a_job(groups=(group,), name="array", image=SMALL))
    pods = run(cluster, namespace, objects_of(job, 1, namespace, storage="disk"))
    assert sorted(KINDS["Job"].task_of(job.spec, pod) or 0 for pod in pods) == [0, 1]
    (pod,) = run(cluster, namespace, task_objects_of(job, 1, 2, namespace, storage="disk"))
    assert KINDS["Job"].task_of(job.spec, pod) == 1
    said = {number: (disk / f"jobs/5e7a11ce/output/{number}/said").read_text().split() for number in (0, 1)}
    assert said == {0: ["0.1"], 1: ["1.1", "1.2"]}
