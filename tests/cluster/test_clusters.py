"""What does a user with nothing but a kubeconfig get? `yard clusters`, `run`, `why`, `exec`, `logs` on a real one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.images import SMALL
from tests.cluster.node import Node
from tests.waiting import until
from tests.yards import TemporaryYard


@pytest.fixture
def yard(cluster: Cluster, worker: Node, namespace: str) -> Iterator[TemporaryYard]:
    """It knows no cluster yet."""
    with TemporaryYard() as yard:
        config = cluster.api.kubeconfig()
        config["contexts"][0]["context"]["namespace"] = namespace
        (yard.root / "kubeconfig").write_text(json.dumps(config))
        yard.env["KUBECONFIG"] = str(yard.root / "kubeconfig")
        yield yard


def on_cluster(*words: str) -> list[str]:
    return ["--on", "kubernetes", "--image", SMALL, "-c", "0.1", *words]


def test_the_first_run_needs_no_configuration_at_all(yard: TemporaryYard, namespace: str) -> None:
    done = yard.run("run", *on_cluster("--", "echo", "hello from a pod"))
    assert (done.code, done.out) == (0, "hello from a pod\n"), done.err
    assert "note: cluster kubernetes added: https://" in done.err
    (cluster,) = yard.json("clusters")
    assert (cluster["namespace"], cluster["context"], cluster["is_connected"]) == (namespace, "test", True)
    assert cluster["nodes_up"] >= 1
    node = next(node["id"] for node in yard.json("nodes") if node["id"].startswith("kubernetes/"))
    assert yard.ok("nodes", "drain", node).out.startswith(f"{node} is draining")
    assert yard.ok("nodes", "resume", node).out == f"{node} is UP\n"
    task = yard.json("show", "last", "--tasks")["tasks"][0]
    assert task["node"].startswith("kubernetes/")
    assert task["unit"]
    assert yard.ok("logs", "last").out == "hello from a pod\n"
    assert "kubernetes removed" in yard.ok("clusters", "rm", "kubernetes").out
    assert yard.json("clusters") == []


@pytest.mark.long
def test_a_task_is_entered_and_followed_by_its_name(yard: TemporaryYard) -> None:
    job = yard.submit(*on_cluster("-n", "train", "-a", "0-1", "--", "sh", "-c", "echo $YARD_TASK; tail -f /dev/null"))
    until(lambda: yard.job(job)["counts"]["running"] == 2)
    number = yard.job(job)["number"]
    assert yard.ok("exec", "train/1", "--", "sh", "-c", "echo $YARD_TASK").out == "1\n"
    assert yard.run("exec", "train", "--", "true").err.startswith(
        f"yard: job {number} has 2 tasks; name one: {number}/0"
    )
    with yard.start("logs", "-f", job) as following:
        assert following.stdout is not None
        lines = {following.stdout.readline().decode().split()[-1] for _ in range(2)}
        assert lines == {"0", "1"}
        refused = yard.run("clusters", "rm", "kubernetes")
        assert (refused.code, "1 job is not finished on kubernetes" in refused.err) == (2, True)
        yard.ok("clusters", "rm", "kubernetes", "--force")
        assert following.wait(60) == 0
    assert yard.job(job)["state"] == "CANCELLED"


def test_an_image_that_cannot_be_had_is_told_by_why_show_and_ls(yard: TemporaryYard) -> None:
    job = yard.submit("--on", "kubernetes", "--image", "jobyard.test/none:1", "-c", "0.1", "--", "true")
    said = "jobyard.test/none:1"
    why = until(lambda: found if said in (found := yard.ok("why", job).out) else None)
    assert why.splitlines()[0].startswith(f"job {yard.job(job)['number']} is STARTING (")
    assert said in yard.job(job)["message"]
    assert said in yard.json("show", job, "--tasks")["tasks"][0]["message"]
    assert "its image cannot be pulled: " in yard.ok("ls").out, "cut where a pipe cuts it"
    yard.ok("cancel", job, "--force")
    yard.wait_state(job, "CANCELLED")


def test_what_the_caller_may_not_is_told_before_the_job_is_taken(
    yard: TemporaryYard, cluster: Cluster, namespace: str
) -> None:
    config = cluster.identity("stranger", "stranger").kubeconfig()
    config["contexts"][0]["context"]["namespace"] = namespace
    (yard.root / "stranger").write_text(json.dumps(config))
    done = yard.run("submit", *on_cluster("--", "true"), env={"KUBECONFIG": str(yard.root / "stranger")})
    assert done.code == 2
    assert "stranger" in done.err
    assert yard.json("ls", "--all") == []


def test_an_api_server_that_is_not_there_is_told_in_one_sentence(yard: TemporaryYard, cluster: Cluster) -> None:
    config = cluster.api.kubeconfig()
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (yard.root / "nobody").write_text(json.dumps(config))
    done = yard.run("clusters", "add", "--kubeconfig", str(yard.root / "nobody"))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith("yard: cluster kubernetes was not added: ")
    assert "127.0.0.1:1" in done.err
    assert yard.json("clusters") == []
