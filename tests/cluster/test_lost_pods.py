"""One lost pod costs one task: what has ended stays ended, what is healthy is left alone, and numbers agree.

`make soak` plays fifty rounds over all kinds of objects and keeps a log of them; `make test` plays the first ones.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cluster.api import Refused
from tests.cluster.cluster import Cluster
from tests.cluster.images import SMALL
from tests.cluster.node import Node
from tests.cluster.rays import IMAGE as RAY
from tests.cluster.rays import import_ray_stand_in
from tests.cluster.training import yard_with_disk
from tests.cluster.yards import ClusterYard, Object
from tests.waiting import LONG_PATIENCE_SECONDS, long_until

ROUNDS = int(os.environ.get("JOBYARD_LOST_ROUNDS", "3"))
SEED = int(os.environ.get("JOBYARD_LOST_SEED", "0"))
# Says what it takes itself for, waits until it may end, and says that it has.
SCRIPT = """\
echo "$YARD_TASK begun $YARD_ATTEMPT $HOSTNAME" >> $YARD_OUTPUT_DIR/told
until [ -e $YARD_OUTPUT_DIR/go ]; do sleep 0.2; done
echo "$YARD_TASK ended $YARD_ATTEMPT $HOSTNAME" >> $YARD_OUTPUT_DIR/told
"""
JOBS, JOBSETS = ("/apis/batch/v1", "jobs"), ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets")
PYTORCHJOBS, RAYJOBS = ("/apis/kubeflow.org/v1", "pytorchjobs"), ("/apis/ray.io/v1", "rayjobs")


class Shape(NamedTuple):
    """`groups` are of a manifest: name, count, completions."""

    objects: tuple[str, str]
    tasks: int
    words: tuple[str, ...] = ()
    groups: tuple[tuple[str, int, int], ...] = ()
    is_gang: bool = False
    tells: int = 0  # so many of its tasks run the command; 0: all


SHAPES = {
    "JobSet": Shape(JOBSETS, 3, groups=(("worker", 3, 1),)),
    "JobSet of several completions": Shape(JOBSETS, 7, groups=(("chief", 1, 1), ("worker", 2, 3))),
    "Job": Shape(JOBS, 3, ("--array", "0-2")),
    "PyTorchJob": Shape(PYTORCHJOBS, 2, ("--kind", "pytorchjob", "--workers", "2"), is_gang=True),
    "RayJob": Shape(RAYJOBS, 2, ("--kind", "rayjob", "--workers", "1"), is_gang=True, tells=1),
}


class Line(NamedTuple):
    task: str
    what: str
    attempt: int
    host: str


@pytest.fixture(scope="module")
def shared(cluster: Cluster, worker: Node) -> Iterator[tuple[ClusterYard, Path]]:
    import_ray_stand_in(cluster)
    with yard_with_disk(cluster) as made:
        yield made


@pytest.fixture
def yard(shared: tuple[ClusterYard, Path]) -> Iterator[ClusterYard]:
    yield shared[0]
    shared[0].settle()


class Watched:
    """One job, and what its tasks tell on a disk."""

    def __init__(self, yard: ClusterYard, disk: Path, shape: Shape) -> None:
        self.yard, self.shape = yard, shape
        image = RAY if "rayjob" in shape.words else SMALL
        if shape.groups:
            words = [yard.write("groups.yaml", _manifest(shape.groups, image))]
        else:
            words = [*shape.words, "--image", image, "-c", "0.05", "--", "sh", "-c", SCRIPT]
        self.job = yard.submit("--on", "kubernetes", *words)
        self.output = disk / "jobs" / self.job / "output"
        self.tells = shape.tells or shape.tasks

    def lines(self) -> list[Line]:
        found = [line.split() for path in self.output.rglob("told") for line in path.read_text().splitlines()]
        return [Line(task, what, int(attempt), host) for task, what, attempt, host in found]

    def told(self, what: str) -> list[tuple[str, int]]:
        return [(line.task, line.attempt) for line in self.lines() if line.what == what]

    def begin(self) -> None:
        long_until(lambda: len(self.told("begun")) == self.tells)
        long_until(lambda: {task["state"] for task in self.yard.tasks(self.job)} == {"RUNNING"})

    def let_go(self, *hosts: str) -> None:
        """The tasks on these hosts end; all, where none is named."""
        for path in self.output.rglob("told"):
            if not hosts or any(host in path.read_text() for host in hosts):
                (path.parent / "go").touch()

    def pods(self) -> list[Object]:
        """Those that run, and that nobody has told to go."""
        return [
            pod
            for pod in self.yard.pods(self.job)
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def units(self) -> dict[str, tuple[str, int]]:
        """Pod and attempt of each task."""
        return {task["label"]: (task["unit"], task["attempt"]) for task in self.yard.tasks(self.job)}

    def check_end(self) -> None:
        """It has succeeded; who had ended did not run again; the pods' own numbers are those of the yard."""
        ended = self.yard.ended(self.job, LONG_PATIENCE_SECONDS)
        assert ended["state"] == "SUCCEEDED", (ended, self.yard.tasks(self.job), self.yard.server_log())
        for task, (unit, attempt) in self.units().items():
            own = [line for line in self.lines() if line.task == task]
            if not own:
                assert self.shape.tells, f"task {task} never told anything"
                continue
            begun = [line.attempt for line in own if line.what == "begun"]
            assert begun == sorted(set(begun)), (task, own)
            if self.shape.is_gang and own[-1].what == "begun":
                continue  # its operator ended it when the first task had ended
            assert own[-1].what == "ended", (task, own)
            assert own[-1].attempt == attempt, (task, unit, own)
            if not self.shape.is_gang:
                assert [line.what for line in own].count("ended") == 1, (task, own)
        long_until(lambda: not self.pods())


def _manifest(groups: tuple[tuple[str, int, int], ...], image: str) -> str:
    types = "".join(
        f"    {name}:\n      count: {count}\n      completions: {completions}\n      parallelisms: {completions}\n"
        f"      resources: {{cpus: 0.05, ramRatio: 1, shmSizeGB: 0}}\n"
        for name, count, completions in groups
    )
    command = "".join(f"    {line}\n" for line in SCRIPT.splitlines())
    return (
        f"kind: AIchorManifest\napiVersion: 0.2.1\nbuilder: {{image: {image}}}\nspec:\n  operator: jobset\n"
        f"  image: {image}\n  command: |\n{command}  types:\n{types}"
    )


@pytest.mark.long
def test_a_lost_pod_of_a_group_costs_one_task(
    shared: tuple[ClusterYard, Path], yard: ClusterYard, jobset_operator: Any
) -> None:
    job = Watched(*shared, SHAPES["JobSet"])
    job.begin()
    before = job.units()
    first, lost, healthy = sorted(before)
    # 1. The first has ended well, the pod of the second is deleted by hand.
    job.let_go(before[first][0].rpartition("-")[0])
    long_until(lambda: yard.tasks(job.job)[0]["state"] == "SUCCEEDED")
    yard.delete_pod(before[lost][0])
    # 2. It has one successor; the others are as they were.
    long_until(lambda: (lost, 2) in job.told("begun"))
    long_until(lambda: job.units()[lost][1] == 2 and job.units()[lost][0] != before[lost][0])
    after = job.units()
    assert (after[first], after[healthy]) == (before[first], before[healthy])
    assert len(job.pods()) == 2
    (jobset,) = yard.objects(job.job, *JOBSETS)
    assert jobset["metadata"]["name"].endswith("-a1")
    job.let_go()
    job.check_end()
    assert sorted(job.told("begun")) == sorted([(first, 1), (lost, 1), (lost, 2), (healthy, 1)])


class Harm:
    def __init__(self, job: Watched, dice: random.Random) -> None:
        self.job, self.dice, self.yard = job, dice, job.yard
        self.log: list[str] = []

    def do(self) -> None:
        harms: list[Callable[[], None]] = [self.delete_pod, self.delete_pod, self.evict_pod, self.let_one_end]
        if self.dice.random() < 0.2:
            harms = [self.delete_object]
        self.dice.choice(harms)()

    def _some_pod(self) -> Object | None:
        pods = sorted(self.job.pods(), key=lambda pod: pod["metadata"]["name"])
        return self.dice.choice(pods) if pods else None

    def delete_pod(self) -> None:
        if pod := self._some_pod():
            self.log.append(f"delete pod {pod['metadata']['name']}")
            self._end([pod["metadata"]["name"]])

    def _end(self, names: list[str]) -> None:
        """Their grace is short, and nobody goes on before they are gone."""
        for name in names:
            self.yard.delete_pod(name)
        long_until(lambda: not {pod["metadata"]["name"] for pod in self.yard.pods(self.job.job)} & {*names})

    def evict_pod(self) -> None:
        """As a drained node does it."""
        if pod := self._some_pod():
            name = pod["metadata"]["name"]
            self.log.append(f"evict pod {name}")
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            with suppress(Refused):
                self.yard.cluster.api.create(f"{self.yard.path('/api/v1', 'pods')}/{name}/eviction", body)
            self._end([name])

    def delete_object(self) -> None:
        objects = self.yard.objects(self.job.job, *self.job.shape.objects)
        if objects:
            name = self.dice.choice(objects)["metadata"]["name"]
            self.log.append(f"delete object {name}")
            path = f"{self.yard.path(*self.job.shape.objects)}/{name}"
            pods = [pod["metadata"]["name"] for pod in self.job.pods()]
            self.yard.cluster.api.delete(path, propagationPolicy="Background")
            self._end(pods)

    def let_one_end(self) -> None:
        if (pod := self._some_pod()) and not self.job.shape.is_gang:
            name = pod["metadata"]["name"]
            self.log.append(f"let {name} end")
            self.job.let_go(re.sub(r"-[a-z0-9]{5}$", "", name))
            long_until(lambda: name not in {pod["metadata"]["name"] for pod in self.job.pods()})


def _rounds() -> Iterator[Any]:
    for seed in range(SEED, SEED + ROUNDS):
        shape = list(SHAPES)[seed % len(SHAPES)]
        yield pytest.param(shape, seed, id=f"{shape} {seed}")


@pytest.mark.parametrize(("shape", "seed"), list(_rounds()))
def test_whatever_is_deleted_no_finished_task_runs_again_and_numbers_agree(
    shape: str,
    seed: int,
    shared: tuple[ClusterYard, Path],
    yard: ClusterYard,
    request: pytest.FixtureRequest,
) -> None:
    operators = {"JobSet": "jobset_operator", "PyTorchJob": "training_operator", "RayJob": "ray_operator"}
    for name, fixture in operators.items():
        if shape.startswith(name):
            request.getfixturevalue(fixture)
    job = Watched(*shared, SHAPES[shape])
    job.begin()
    harm = Harm(job, random.Random(seed))
    for _ in range(harm.dice.randint(2, 4)):
        harm.do()
        long_until(lambda: job.pods() or yard.job(job.job)["state"] == "SUCCEEDED")
    long_until(lambda: _lets_all_go(job))
    try:
        job.check_end()
    finally:
        _keep_log(shape, seed, harm.log, job)


def _lets_all_go(job: Watched) -> bool:
    """Whoever begins from now on ends at once."""
    job.let_go()
    return bool(job.yard.job(job.job)["state"] in ("SUCCEEDED", "FAILED"))


def _keep_log(shape: str, seed: int, harms: list[str], job: Watched) -> None:
    if directory := os.environ.get("JOBYARD_ARTEFACTS"):
        Path(directory).mkdir(parents=True, exist_ok=True)
        with (Path(directory) / "lost-pods.log").open("a") as log:
            log.write(f"round {seed}, {shape}: {'; '.join(harms) or 'no harm'}\n")
            log.writelines(f"    {' '.join(map(str, line))}\n" for line in job.lines())
