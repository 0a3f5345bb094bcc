"""What if servers are killed, pods deleted and nodes lost in the middle? Nothing is lost, nothing counts twice."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Object
from tests.cluster.cluster import FAKE, Cluster
from tests.cluster.images import SMALL
from tests.cluster.node import Node
from tests.cluster.training import yard_with_disk
from tests.cluster.yards import WAITS, ClusterYard
from tests.waiting import until

ROUNDS = int(os.environ.get("JOBYARD_CLUSTER_ROUNDS", "1"))
SEED = int(os.environ.get("JOBYARD_CLUSTER_SEED", "5"))
PATIENCE_SECONDS = 300.0
ON = ("--on", "kubernetes", "--image", SMALL, "-c", "0.05")
LINES = 200  # of each task, around its sleep
SCRIPT = """\
echo begun $HOSTNAME $(date +%T) >> $YARD_OUTPUT_DIR/told
seq 1 {half}
{wait}
seq {next} {lines}
echo ended $HOSTNAME $(date +%T) >> $YARD_OUTPUT_DIR/told
"""


@pytest.fixture(scope="module")
def shared(cluster: Cluster, worker: Node) -> Iterator[tuple[ClusterYard, Path]]:
    with yard_with_disk(cluster) as made:
        yield made


@pytest.fixture
def yard(shared: tuple[ClusterYard, Path]) -> Iterator[ClusterYard]:
    yield shared[0]
    shared[0].settle()


def script(wait: str) -> list[str]:
    half = LINES // 2
    return ["--", "sh", "-c", SCRIPT.format(half=half, next=half + 1, lines=LINES, wait=wait)]


class Campaign:
    """Jobs whose tasks tell on a disk what they did, and the harm that is done to them."""

    def __init__(self, yard: ClusterYard, disk: Path, seed: int) -> None:
        self.yard, self.disk = yard, disk
        self.random = random.Random(seed)
        self.deleted: Counter[tuple[str, int]] = Counter()  # pods, by job and task
        array = yard.submit(*ON, "-a", "0-19", "--limit", "4", *script("sleep 1"))
        waits = "until [ -e $YARD_OUTPUT_DIR/go ]; do sleep 0.1; done"
        self.singles = [yard.submit(*ON, *script(waits)) for _ in range(2)]
        self.sizes = {array: 20, **dict.fromkeys(self.singles, 1)}

    def told(self, what: str) -> Counter[tuple[str, int]]:
        """How often each task has begun, or ended, whoever counted it."""
        found: Counter[tuple[str, int]] = Counter()
        for job in self.sizes:
            for path in (self.disk / "jobs" / job / "output").rglob("told"):
                number = int(path.parent.name) if path.parent.name.isdigit() else 0
                found[job, number] += path.read_text().split().count(what)
        return found

    def all_told(self, job: str, number: int) -> str:
        output = self.disk / "jobs" / job / "output"
        path = output / str(number) / "told" if self.sizes[job] > 1 else output / "told"
        return path.read_text() + self.yard.cluster.kubectl("get", "events", f"--namespace={self.yard.namespace}")

    def harm(self) -> None:
        """In the middle of it all: each time another task has ended."""
        until(lambda: all(self.told("begun")[job, 0] for job in self.singles), PATIENCE_SECONDS)
        harms = [self.kill_server, self.restart_api_server, self.delete_a_pod, self.kill_both]
        self.random.shuffle(harms)
        for harm in [*harms, self.kill_server, self.delete_a_pod]:
            before = sum(self.told("ended").values())
            until(lambda before=before: self.has_gone_on(before), PATIENCE_SECONDS)  # type: ignore[misc]
            harm()
        for job in self.singles:
            (self.disk / "jobs" / job / "output" / "go").touch()

    def has_gone_on(self, before: int) -> bool:
        """Since so many had ended. The array may be over before all harm is done: the others wait for that."""
        ended = sum(self.told("ended").values())
        return ended > before or ended >= 20

    def kill_server(self) -> None:
        pid = self.yard.server_pid()
        if pid:
            os.kill(pid, signal.SIGKILL)
        self.yard.ok("ls")  # brings one back

    def restart_api_server(self) -> None:
        """With the others: a controller that was cut off in the middle of a write waits five minutes for what it wrote,
        and a scheduler that was refused too early half a minute."""
        programs = self.yard.cluster.programs
        programs["kube-apiserver"].restart()
        self.yard.cluster.wait_ready()
        for name in ("kube-controller-manager", "kube-scheduler"):
            programs[name].restart()

    def kill_both(self) -> None:
        """The yard comes back first, and finds nobody there."""
        pid = self.yard.server_pid()
        server = self.yard.cluster.programs["kube-apiserver"]
        server.kill()
        if pid:
            os.kill(pid, signal.SIGKILL)
        self.yard.ok("ls")
        self.restart_api_server()

    def delete_a_pod(self) -> None:
        pods = [pod for job in self.sizes for pod in self.yard.pods(job) if pod["status"].get("phase") == "Running"]
        if not pods:
            return
        labels = self.random.choice(pods)["metadata"]
        self.yard.delete_pod(labels["name"])
        number = labels["labels"].get("jobyard.dev/task") or labels["labels"].get(
            "batch.kubernetes.io/job-completion-index", "0"
        )
        self.deleted[labels["labels"]["jobyard.dev/job"], int(number)] += 1

    def check(self) -> None:
        """All succeeded; whatever was let alone ran once; the output of the one that counts is whole."""
        for job in self.sizes:
            ended = self.yard.ended(job, PATIENCE_SECONDS)
            assert ended["state"] == "SUCCEEDED", (ended, self.yard.tasks(job), self.yard.server_log())
        begun, done = self.told("begun"), self.told("ended")
        for job, size in self.sizes.items():
            tasks = self.yard.tasks(job)
            assert [task["state"] for task in tasks] == ["SUCCEEDED"] * size
            for number, task in enumerate(tasks):
                harmed = self.deleted[job, number]
                assert done[job, number] >= 1, task
                # A task that is run again by itself takes the turn of another of its array, whose pod may have begun.
                others = sum(count for (each, _), count in self.deleted.items() if each == job)
                assert begun[job, number] <= 1 + others, (task, harmed, self.all_told(job, number))
                assert task["attempt"] <= 1 + harmed, (task, harmed)
                said = self.yard.logs(job, "--task", str(number))
                wanted = [str(line) for line in range(1, LINES + 1)]
                # What a deleted pod wrote while no server looked went with it.
                assert said.split() == (wanted[: len(said.split())] if harmed else wanted), (task, harmed, said[-200:])
            until(lambda job=job: not self.running(job))  # type: ignore[misc]

    def running(self, job: str) -> list[Object]:
        """Of its pods and objects."""
        pods = [pod for pod in self.yard.pods(job) if pod["status"].get("phase") not in ("Succeeded", "Failed")]
        jobs = [each for each in self.yard.objects(job) if not _is_final(each)]
        return pods + jobs


def _is_final(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions") or []
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


# Long for now: it failed once in four runs on a loaded machine, in a log that was cut before the assertion.
# When jobs of a cluster are reconciled by a plan, it belongs into `make test` again.
@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_nothing_is_lost_and_nothing_counts_twice_whatever_is_killed(
    shared: tuple[ClusterYard, Path], yard: ClusterYard, seed: int
) -> None:
    campaign = Campaign(yard, shared[1], seed)
    campaign.harm()
    campaign.check()


def test_a_cluster_that_goes_away_is_told_in_words_and_nothing_fails_meanwhile(yard: ClusterYard) -> None:
    # 1. One job runs, and the API server goes away.
    job = yard.submit(*ON, *WAITS)
    yard.wait_state(job, "RUNNING")
    server = yard.cluster.programs["kube-apiserver"]
    server.kill()
    try:
        # 2. It is told; what runs there is not guessed at; what is new waits.
        (told,) = until(lambda: found if not (found := yard.json("clusters"))[0]["is_connected"] else None)
        assert "does not answer" in told["problem"]
        listed = yard.ok("clusters", "ls").out
        assert listed.count("does not answer") == 1
        states = until(lambda: found if "UP" not in (found := node_states(yard)) else None)
        assert set(states) == {"AWAY"}
        assert yard.job(job)["state"] == "RUNNING"
        refused = yard.run("submit", *ON, "--", "true")
        assert (refused.code, refused.err.count("\n")) == (2, 1), refused.err
        assert "does not answer" in refused.err
        why = yard.ok("why", job).out
        assert "does not answer" in why, why
    finally:
        server.restart()
        yard.cluster.wait_ready()
    # 3. All goes on.
    until(lambda: yard.json("clusters")[0]["is_connected"] and set(node_states(yard)) == {"UP"})
    assert yard.job(job)["state"] == "RUNNING"
    yard.let_go(job)
    assert yard.ended(job)["state"] == "SUCCEEDED"
    assert yard.logs(job) == "begin\nend\n"
    assert yard.tasks(job)[0]["attempt"] == 1


def node_states(yard: ClusterYard) -> list[str]:
    return [node["state"] for node in yard.json("nodes") if node["id"].startswith("kubernetes/")]


@pytest.mark.long
def test_a_pod_whose_node_is_deleted_runs_again_on_another(yard: ClusterYard) -> None:
    """On nodes that KWOK plays: there a Pod runs until it is deleted."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "wanders"},
        "spec": {
            "nodeSelector": {"type": "kwok"},
            "tolerations": [{"key": FAKE, "operator": "Exists"}],
            "containers": [{"name": "main", "image": SMALL, "resources": {"requests": {"cpu": "1"}}}],
        },
    }
    yard.write("pod.json", json.dumps(pod))
    nodes = yard.cluster.add_fake_nodes(2, prefix="leaves")
    try:
        job = yard.submit("--on", "kubernetes", "pod.json")
        yard.wait_state(job, "RUNNING")
        first = yard.tasks(job)[0]
        assert first["node"].removeprefix("kubernetes/") in nodes
        yard.cluster.api.delete(f"/api/v1/nodes/{first['node'].removeprefix('kubernetes/')}")
        # The cluster looks for pods without a node every 20 s, and waits 40 s before it believes it.
        second = until(
            lambda: task if (task := yard.tasks(job)[0])["attempt"] == 2 and task["state"] == "RUNNING" else None, 180
        )
        assert second["node"] != first["node"]
        assert second["unit"] != first["unit"]
        # It is marked as failed before it is deleted, and its successor need not wait for that.
        until(lambda: first["unit"] not in {pod["metadata"]["name"] for pod in yard.pods(job)})
        yard.ok("cancel", job, "--force")
        assert yard.ended(job)["state"] == "CANCELLED"
        until(lambda: not yard.pods(job))
    finally:
        yard.cluster.remove_fake_nodes("leaves")
