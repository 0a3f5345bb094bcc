"""Training on a real cluster: reports, a stop at a checkpoint, another size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.node import Node
from tests.cluster.processes import Program
from tests.cluster.training import IMAGE, epochs_of, told_by, training_yard
from tests.cluster.yards import ClusterYard
from tests.waiting import until

ON = ("--on", "kubernetes", "--image", IMAGE, "-c", "0.1")


@pytest.fixture(scope="module")
def shared(cluster: Cluster, worker: Node) -> Iterator[ClusterYard]:
    with training_yard(cluster) as made:
        yield made


def names_of(yard: ClusterYard, job: str) -> set[str]:
    return {each["metadata"]["name"] for each in yard.objects(job)}


def test_training_reports_its_epochs_stops_at_a_checkpoint_and_goes_on_from_there(yard: ClusterYard) -> None:
    job = yard.submit(*ON, "--epochs", "8", "--", "python3", "/app/train.py", "8", "0.3", "3")
    until(lambda: epochs_of(yard, job) >= 3, 120)
    (first,) = names_of(yard, job)
    yard.ok("cancel", job, "--checkpoint")
    until(lambda: names_of(yard, job) - {first}, 120)  # one object for each attempt; an ended one may be gone by now
    assert yard.ended(job)["state"] == "SUCCEEDED"
    (task,) = yard.tasks(job)
    assert task["attempt"] == 2
    assert [epoch for epoch, _ in told_by(yard, job)] == list(range(1, 9))  # none twice
    assert epochs_of(yard, job) == 8


@pytest.mark.long
def test_a_gang_grows_at_a_checkpoint_when_there_is_room(yard: ClusterYard, jobset_operator: Program) -> None:
    yard.set_gpus(1)
    script = "python3 /app/train.py 90 0.4; code=$?; [ $RANK = 0 ] || sleep 3; exit $code"  # rank 0 ends first
    words = ("--gpus", "1", "--workers", "1..2", "--epochs", "90", "--", "sh", "-c", script)
    job = yard.submit(*ON, *words)
    until(lambda: epochs_of(yard, job) >= 1, 120)
    yard.set_gpus(2)
    until(lambda: yard.job(job)["counts"]["running"] == 2, 120)
    ended = yard.ended(job, 240)
    assert ended["state"] == "SUCCEEDED", ended
    told = told_by(yard, job)
    assert [epoch for epoch, _ in told] == list(range(1, 91))  # none twice
    assert (told[0][1], told[-1][1]) == (1, 2)
    assert [task["attempt"] for task in yard.tasks(job)] == [2, 1]


@pytest.mark.long
def test_a_job_that_the_quota_keeps_out_starts_after_one_checkpoint_of_an_elastic_one(yard: ClusterYard) -> None:
    """As in the demo of genai-workload-manager: six GPUs by a quota on a node of eight."""
    yard.set_gpus(8)
    quotas = yard.path("/api/v1", "resourcequotas")
    body = {"metadata": {"name": "six"}, "spec": {"hard": {"requests.nvidia.com/gpu": "6"}}}
    yard.cluster.api.create(quotas, body)
    try:
        yard.cluster.api.until(f"{quotas}/six", lambda seen: seen.get("status", {}).get("hard"))
        train = ("--epochs", "200", "--", "python3", "/app/train.py", "200", "0.5")
        elastic = [yard.submit(*ON, "--gpus", "2..4", *train) for _ in range(2)]
        until(lambda: all(epochs_of(yard, job) >= 1 for job in elastic), 120)
        late = yard.submit(*ON, "--gpus", "2", "--", "true")
        assert yard.ended(late, 180)["state"] == "SUCCEEDED"
        stops = [yard.job(job)["training"]["preemptions"] + yard.job(job)["training"]["resizes"] for job in elastic]
        assert sorted(stops) == [0, 1]
        for job in elastic:
            yard.ok("cancel", job, "--force")
    finally:
        yard.cluster.api.delete(f"{quotas}/six")
