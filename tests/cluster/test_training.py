"""Training on a real cluster: reports, a stop at a checkpoint, another size."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.processes import Program
from tests.cluster.training import CLAIM, IMAGE, import_training_image, shared_disk
from tests.cluster.yards import ClusterYard, cluster_yard
from tests.yards import until

ON = ("--on", "kubernetes", "--image", IMAGE, "-c", "0.1")


@pytest.fixture(scope="module")
def shared(cluster: Cluster) -> Iterator[ClusterYard]:
    if cluster.node is None:
        pytest.skip(f"there is no real node: {cluster.without_node}")
    import_training_image(cluster)
    with (
        cluster.namespace() as namespace,
        shared_disk(cluster, namespace),
        cluster_yard(cluster, namespace, "--storage", CLAIM) as made,
    ):
        yield made


@pytest.fixture
def yard(shared: ClusterYard) -> Iterator[ClusterYard]:
    yield shared
    shared.settle()


def _epochs(yard: ClusterYard, job: str) -> int:
    training = yard.job(job)["training"]
    return int(training["epochs_done"]) if training else 0


def _told(yard: ClusterYard, job: str) -> list[tuple[int, int]]:
    """(epoch, size) over all attempts, in order."""
    attempts = yard.tasks(job)[0]["attempt"]
    text = "".join(yard.logs(job, "--task", "0", "--attempt", str(number)) for number in range(1, attempts + 1))
    return [(int(epoch), int(world)) for epoch, world in re.findall(r"epoch (\d+) in a world of (\d+)", text)]


def test_training_reports_its_epochs_stops_at_a_checkpoint_and_goes_on_from_there(yard: ClusterYard) -> None:
    job = yard.submit(*ON, "--epochs", "8", "--", "python3", "/app/train.py", "8", "1")
    until(lambda: _epochs(yard, job) >= 2, 120)
    yard.ok("cancel", job, "--checkpoint")
    assert yard.ended(job)["state"] == "SUCCEEDED"
    (task,) = yard.tasks(job)
    assert task["attempt"] == 2
    assert [epoch for epoch, _ in _told(yard, job)] == list(range(1, 9))  # none twice
    assert _epochs(yard, job) == 8
    assert len(yard.objects(job)) == 2  # one for each attempt


def test_a_gang_grows_at_a_checkpoint_when_there_is_room(yard: ClusterYard, jobset_operator: Program) -> None:
    yard.set_gpus(1)
    words = ("--gpus", "1", "--workers", "1..2", "--epochs", "1000", "--", "python3", "/app/train.py", "1000", "0.6")
    job = yard.submit(*ON, *words)
    until(lambda: _epochs(yard, job) >= 1, 120)
    yard.set_gpus(2)
    until(lambda: yard.job(job)["counts"]["running"] == 2, 120)
    before = _epochs(yard, job)
    until(lambda: _epochs(yard, job) > before, 120)
    told = _told(yard, job)
    assert [epoch for epoch, _ in told] == list(range(1, len(told) + 1))  # none twice
    assert (told[0][1], told[-1][1]) == (1, 2)
