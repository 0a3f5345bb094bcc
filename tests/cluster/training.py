"""Training in pods: a small image with Python, a script, and a disk that outlives them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

from tests.cluster.cluster import Cluster
from tests.cluster.images import python_image
from tests.cluster.yards import ClusterYard, cluster_yard

IMAGE = "jobyard.test/training:1"
CLAIM = "shared"
SCRIPT = dedent(
    """\
    import os, sys, time
    from jobyard.sdk import yard_job

    job = yard_job()
    path = os.path.join(job.checkpoint_dir, "epochs")
    done = int(open(path).read()) if os.path.exists(path) else 0
    rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    held = int(sys.argv[3]) if sys.argv[3:] and not job.resumed else None  # this epoch lasts until we are to stop
    for epoch in job.epochs(int(sys.argv[1]), start=done):
        for step in range(3):
            time.sleep(float(sys.argv[2]) / 3)
            job.step()
        while epoch == held and not job.should_stop:
            time.sleep(0.05)
        if rank == "0":
            with open(path + ".new", "w") as file:
                file.write(str(epoch + 1))
            os.replace(path + ".new", path)
            print(f"epoch {epoch + 1} in a world of {world}", flush=True)
        job.saved()
    """
)


def import_training_image(cluster: Cluster) -> None:
    assert cluster.node is not None
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory) / "tree"
        tree.mkdir()
        (tree / "train.py").write_text(SCRIPT)
        archive = Path(directory) / "image.tar"
        python_image(archive, IMAGE, {"/app": tree})
        cluster.node.import_images(archive)


@contextmanager
def shared_disk(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A claim that is bound: a directory of the one real node."""
    with tempfile.TemporaryDirectory() as directory:
        volume = f"disk-{namespace}"
        amount = {"storage": "1Gi"}
        bound = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        spec = {**bound, "capacity": amount, "hostPath": {"path": directory}, "persistentVolumeReclaimPolicy": "Retain"}
        cluster.api.create("/api/v1/persistentvolumes", {"metadata": {"name": volume}, "spec": spec})
        claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        wanted = {**bound, "resources": {"requests": amount}, "volumeName": volume}
        cluster.api.create(claims, {"metadata": {"name": CLAIM}, "spec": wanted})
        try:
            cluster.api.until(f"{claims}/{CLAIM}", lambda seen: seen["status"].get("phase") == "Bound")
            yield directory
        finally:
            cluster.api.delete(f"{claims}/{CLAIM}")
            cluster.api.delete(f"/api/v1/persistentvolumes/{volume}")


@contextmanager
def yard_with_disk(cluster: Cluster) -> Iterator[tuple[ClusterYard, Path]]:
    """Checkpoints and results are in this directory."""
    with (
        cluster.namespace() as namespace,
        shared_disk(cluster, namespace) as disk,
        cluster_yard(cluster, namespace, "--storage", CLAIM) as made,
    ):
        yield made, Path(disk)


@contextmanager
def training_yard(cluster: Cluster) -> Iterator[ClusterYard]:
    """Its checkpoints are on the shared disk."""
    import_training_image(cluster)
    with yard_with_disk(cluster) as (made, _):
        yield made


def epochs_of(yard: ClusterYard, job: str) -> int:
    training = yard.job(job)["training"]
    return int(training["epochs_done"]) if training else 0


def told_by(yard: ClusterYard, job: str) -> list[tuple[int, int]]:
    """(epoch, size) over all attempts, in order."""
    attempts = yard.tasks(job)[0]["attempt"]
    text = "".join(yard.logs(job, "--task", "0", "--attempt", str(number)) for number in range(1, attempts + 1))
    return [(int(epoch), int(world)) for epoch, world in re.findall(r"epoch (\d+) in a world of (\d+)", text)]
