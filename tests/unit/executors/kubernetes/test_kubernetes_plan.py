"""Whatever order watches, restarts and lost answers come in: the same end, and one lost pod costs one task."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from tests.builders import a_cluster_node, a_group, a_job
from tests.unit.engine.driving import Yard
from tests.unit.executors.kubernetes.played_cluster import Object, PlayedCluster, ends_told, number_of

from jobyard.errors import Unavailable
from jobyard.executors.kubernetes import carrying_out, last_words, reconciler
from jobyard.executors.kubernetes.done import Now
from jobyard.executors.kubernetes.held_job import HeldJob
from jobyard.executors.kubernetes.kinds import KINDS, kind_of
from jobyard.executors.kubernetes.plan import SURE_SECONDS
from jobyard.executors.kubernetes.reconciler import Reconciler
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import Executor
from jobyard.kubernetes.refusals import Refused
from jobyard.kubernetes.states import is_over
from jobyard.model.events import AttemptsStarted, Event
from jobyard.model.job import JobSpec, State
from jobyard.model.node import ClusterConfig
from jobyard.model.training import Training
from jobyard.server.yard_view import StateView

WORLDS = int(os.environ.get("JOBYARD_WORLDS", "10"))
HARMFUL_STEPS, CALM_STEPS = 120, 400


class View(StateView):
    @property
    def executors(self) -> Sequence[Executor]:
        return ()


class World:
    """A yard, a cluster, and a server between them that may be replaced at any time."""

    def __init__(self, spec: JobSpec, directory: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = PlayedCluster(self.dice, self.meanwhile)
        self.yard = Yard(a_cluster_node("n1", cpus=100, cluster="k"))
        self.job = self.yard.submit(spec)
        self.directory = directory
        self.view = View()
        self.view.state = self.yard.state
        self.inbox: list[Event] = []  # told, and not heard yet
        self.succeeded: set[int] = set()
        self.begun: list[tuple[int, str]] = []
        self.harmed: set[int] = set()  # tasks
        self.may_lose_objects = False
        self.restart()

    # -- the server ---------------------------------------------------------------------------------------------------

    def clocks(self) -> Now:
        return Now(float(self.cluster.second), float(self.cluster.second))

    def restart(self) -> None:
        """It knows what its journal holds, and lists what is there."""
        self.inbox.clear()
        self.held = HeldJob(self.job.id, Mirror(self.directory), self.inbox.extend, lambda job: None)
        self.reconciler = Reconciler(
            ClusterConfig("k", namespace="ns"),
            "y1",
            cast(Any, self.view),
            self.inbox.extend,
            lambda job, seconds: None,
            lambda kind: True,
            lambda node: True,
        )
        for news in self.cluster.news.values():
            news.clear()
        for seen in self.cluster.objects.values():
            self.held.observed.object_changed(KINDS[seen["kind"]], dict(seen), False)
        for pod in self.cluster.pods.values():
            self.held.observed.pod_changed(dict(pod), False)

    def meanwhile(self) -> None:
        """Before an answer arrives: somebody may delete what it tells of, and watches are faster."""
        if self.cluster.loss and self.dice.random() < 0.05:
            self.harm(["object"] if self.may_lose_objects else ["delete"])
        if self.dice.random() < 0.2:
            self.watch_all()

    def watch_all(self) -> None:
        while any(self.cluster.news.values()):
            self.watch(self.dice.choice([what for what, news in self.cluster.news.items() if news]))

    def watch(self, what: str) -> None:
        if self.cluster.news[what]:
            seen, gone, _ = self.cluster.news[what].popleft()
            if what == "pods":
                self.held.observed.pod_changed(seen, gone)
            else:
                self.held.observed.object_changed(KINDS[seen["kind"]], seen, gone)

    async def reconcile(self) -> None:
        for what in self.cluster.news:  # one watch may be behind the other, but not for long
            while self.cluster.age_of_news(what) >= SURE_SECONDS:
                self.watch(what)
        with suppress(Unavailable, Refused):
            await self.reconciler.reconcile(cast(Any, self.cluster), self.held)
        await ends_told()

    def hear(self) -> None:
        """The yard applies what was told."""
        events, self.inbox[:] = list(self.inbox), []
        for event in events:
            if isinstance(event, AttemptsStarted):
                self._check_numbers(event)
            self.yard.now += 1.0
            self.yard.apply(event)
        for number in range(self.job.spec.size):
            state = self.job.task(number).state
            assert state is not State.FAILED, (number, events)
            if state is State.SUCCEEDED:
                self.succeeded.add(number)

    def _check_numbers(self, event: AttemptsStarted) -> None:
        for attempt, _, unit in event.items:
            if self.yard.state.current(attempt) and (pod := self.cluster.pods.get(unit)):
                assert number_of(pod) == attempt.number, (attempt, unit)

    # -- the cluster --------------------------------------------------------------------------------------------------

    def run_pods(self, chance: float) -> None:
        for pod in self.cluster.run_pods(chance):
            task = self.task_of(pod)
            if not self.job.spec.gang:  # of which all begin anew
                assert task not in self.succeeded, f"task {task} had ended, and {pod['metadata']['name']} runs it again"
            self.begun.append((task, pod["metadata"]["name"]))
            others = [each for each in self.running() if self.task_of(each) == task and each is not pod]
            assert not others, f"two pods of task {task} run at once"

    def running(self) -> list[Object]:
        return [pod for pod in self.cluster.pods.values() if not is_over(pod)]

    def task_of(self, pod: Object) -> int:
        kind = kind_of(self.job.spec) if "jobyard.dev/task" not in pod["metadata"]["labels"] else KINDS["Job"]
        task = kind.task_of(self.job.spec, pod)
        assert task is not None
        return task

    def harm(self, kinds: Sequence[str]) -> None:
        running = [pod["metadata"]["name"] for pod in self.running() if "deletionTimestamp" not in pod["metadata"]]
        match self.dice.choice(kinds):
            case "delete" if running:
                self._harm_pod(self.cluster.delete_pod, self.dice.choice(running))
            case "drain" if running:
                self._harm_pod(self.cluster.drain, self.dice.choice(running))
            case "object" if self.cluster.objects:
                self.cluster.delete_object(self.dice.choice(list(self.cluster.objects)))
            case "restart":
                self.restart()

    def _harm_pod(self, how: Any, name: str) -> None:
        self.harmed.add(self.task_of(self.cluster.pods[name]))
        how(name)

    # -- all of it ----------------------------------------------------------------------------------------------------

    async def live_through(self, harms: Sequence[str], loss: float = 0.2) -> None:
        self.cluster.loss, self.may_lose_objects = loss, "object" in harms
        for _ in range(HARMFUL_STEPS):
            match self.dice.randrange(8):
                case 0:
                    self.cluster.control()
                case 1:
                    self.run_pods(0.3)
                case 2 | 3:
                    self.watch(self.dice.choice(["objects", "pods"]))
                case 4 | 5:
                    await self.reconcile()
                case 6:
                    self.hear()
                case _:
                    if self.dice.random() < 0.3:
                        self.harm(harms)
        self.cluster.loss = 0.0

    async def come_to_an_end(self) -> None:
        for _ in range(CALM_STEPS):
            self.cluster.control()
            self.run_pods(0.7)
            self.watch_all()
            await self.reconcile()
            self.hear()
            self.cluster.second += 5
            if self.job.is_final and not self.running() and self.held.observed.pods.keys() == self.cluster.pods.keys():
                break
        tasks = [self.job.task(number) for number in range(self.job.spec.size)]
        assert [task.state for task in tasks] == [State.SUCCEEDED] * len(tasks), (tasks, list(self.cluster.objects))
        assert not self.running()


SHAPES = {
    "array": a_job(4, cluster="k", image="i", name="a"),
    "array that is tried again": a_job(4, cluster="k", image="i", name="a", retries=2),
    "groups": a_job(groups=(a_group("w", count=3),), cluster="k", image="i", name="a"),
    "array of trainings": a_job(3, cluster="k", image="i", training=Training()),
    "groups of trainings": a_job(groups=(a_group("w", count=2),), cluster="k", image="i", training=Training()),
    "groups of several": a_job(groups=(a_group("m"), a_group("w", count=2, completions=3)), cluster="k", image="i"),
}
GANGS = {
    "gang in a Job": a_job(groups=(a_group(completions=2),), gang=True, cluster="k", image="i"),
    "gang in a JobSet": a_job(groups=(a_group(count=2),), gang=True, cluster="k", image="i"),
    "training": a_job(1, cluster="k", image="i", training=Training()),
}


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def begin(shape: str, seed: int) -> World:
        world = World((SHAPES | GANGS)[shape], tmp_path, seed)
        for module in (reconciler, carrying_out, last_words):
            monkeypatch.setattr(module, "clocks", lambda: world.clocks())
        return world

    return begin


@pytest.mark.parametrize("seed", range(WORLDS))
@pytest.mark.parametrize("shape", SHAPES | GANGS)
def test_whatever_is_lost_every_task_succeeds_once_and_under_its_own_number(shape: str, seed: int, play: Any) -> None:
    async def story(world: World) -> None:
        await world.live_through(["delete", "drain", "object", "restart", "restart"])
        await world.come_to_an_end()

    asyncio.run(story(play(shape, seed)))


@pytest.mark.parametrize("seed", range(WORLDS))
@pytest.mark.parametrize("shape", SHAPES)
def test_a_task_whose_pod_nobody_touched_runs_once(shape: str, seed: int, play: Any) -> None:
    async def story(world: World) -> None:
        await world.live_through(["delete", "drain", "restart"])
        await world.come_to_an_end()
        begun = [task for task, _ in world.begun]
        assert [task for task in set(begun) - world.harmed if begun.count(task) > 1] == []

    asyncio.run(story(play(shape, seed)))


@pytest.mark.parametrize("shape", SHAPES | GANGS)
def test_an_object_that_is_deleted_before_anything_began_is_made_again(shape: str, play: Any) -> None:
    async def story(world: World) -> None:
        await world.reconcile()
        world.cluster.control()
        world.watch("pods")
        (name,) = world.cluster.objects
        world.cluster.delete_object(name)
        await world.come_to_an_end()
        assert {task for task, _ in world.begun} == set(range(world.job.spec.size))

    asyncio.run(story(play(shape, 0)))


@pytest.mark.parametrize("shape", ["groups", "groups of several"])
def test_one_lost_pod_costs_one_task(shape: str, play: Any) -> None:
    """Its JobSet stays, and so do those that have ended and those that run."""

    async def story(world: World) -> None:
        await world.reconcile()
        world.cluster.control()
        world.run_pods(1.0)
        first, lost, *_ = world.cluster.pods.values()
        world.cluster.end_pod(first)
        world.cluster.delete_pod(lost["metadata"]["name"])
        await world.come_to_an_end()
        begun = [task for task, _ in world.begun]
        again = world.task_of(lost)
        assert {task: begun.count(task) for task in begun} == {**dict.fromkeys(begun, 1), again: 2}
        assert [world.job.task(task).attempt for task in sorted(set(begun))] == [
            1 + (task == again) for task in sorted(set(begun))
        ]
        assert len(world.cluster.objects) == 1

    asyncio.run(story(play(shape, 0)))
