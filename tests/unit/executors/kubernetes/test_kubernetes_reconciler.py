"""What does the yard make of events of a cluster that come in a rare order? A played cluster tells them so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.builders import a_group, a_job
from tests.unit.executors.kubernetes.played_cluster import ends_told

from jobyard.executors.kubernetes.executor import KubernetesExecutor
from jobyard.executors.kubernetes.held_job import HeldJob
from jobyard.executors.kubernetes.kinds import KINDS, merged
from jobyard.executors.kubernetes.reconciler import Reconciler
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import JobFacts, LiveAttempt, SubmittedJob
from jobyard.kubernetes.api import Api
from jobyard.manifests.kinds import with_kind
from jobyard.model.effects import JobEnded
from jobyard.model.events import AttemptsAwaited, AttemptsFinished, AttemptsStarted, AttemptsWithdrawn, Event
from jobyard.model.job import JobSpec, Reason
from jobyard.model.node import ClusterConfig
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Slot
from jobyard.model.training import Elastic, Size, Training

Object = dict[str, Any]
JOB = "abcd1234"
EARLY = "2026-01-01T00:00:00Z"


class PlayedApi:
    """Takes everything. What is read of a pod's output never ends by itself."""

    namespace = "ns"

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.made: dict[str, Object] = {}

    async def apply(self, path: str, body: Object) -> Object:
        metadata = {**body["metadata"], "uid": path, "creationTimestamp": EARLY}
        self.made[path] = {**body, "metadata": metadata}
        return self.made[path]

    async def patch(self, path: str, body: Object) -> Object:
        self.made[path] = merged(self.made[path], body)
        return self.made[path]

    async def create(self, path: str, body: Object) -> Object:
        return body

    async def delete(self, path: str, **_: Any) -> None:
        self.deleted.append(path.rpartition("/")[2])

    async def log(self, *_: Any, **__: Any) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""


class Play:
    """One job, and the yard as it sees the job."""

    def __init__(self, directory: Path, spec: JobSpec, *, is_simulated: bool = True, sees_all: bool = True) -> None:
        self.spec = spec
        self.live: list[LiveAttempt] = []
        self.now = JobFacts(False, is_fresh=True)
        self.told: list[Event] = []
        self.troubles: list[str] = []
        self.api = PlayedApi()
        self.held = HeldJob(JOB, Mirror(directory), self.told.extend, lambda job: None)
        yard = cast(Any, self)
        self._reconciler = Reconciler(
            ClusterConfig("k"),
            "y1",
            yard,
            self.told.extend,
            lambda job, seconds: None,
            lambda kind: sees_all,
            lambda node: is_simulated,
        )

    def facts(self, job_id: str) -> JobFacts:
        return self.now._replace(slots=len(self.live))

    def job(self, job_id: str) -> SubmittedJob:
        return SubmittedJob(job_id, 1, self.spec)

    def live_of(self, job_id: str) -> Sequence[LiveAttempt]:
        return self.live

    def is_ended(self, job_id: str, task: int) -> bool:
        return False

    def inherited_env(self, spec: JobSpec) -> Mapping[str, str]:
        return spec.submitter.inherited_env

    def resumes_at(self, attempt: AttemptId, node: str) -> int | None:
        return None

    def count_error(self, what: str, sentence: str, error: Exception | None = None) -> None:
        self.troubles.append(sentence)

    async def reconcile(self, *live: LiveAttempt) -> list[Event]:
        """Answers with what the yard is told of, but for what is awaited."""
        self.live = list(live)
        self.told.clear()
        await self._reconciler.reconcile(cast(Api, self.api), self.held)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [event for event in self.told if not isinstance(event, AttemptsAwaited)]

    @property
    def newest(self) -> str:
        return list(self.held.observed.objects)[-1]


def live(task: int, number: int = 1, pod: str = "", **more: Any) -> LiveAttempt:
    slot = Slot(str(task + 1), JOB, 0, Placement("k/n1", Resources(cpu_millis=1000)))
    is_stopping = more.pop("is_stopping", False)
    return LiveAttempt(AttemptId(JOB, task, number), slot, is_stopping, pod=pod, is_running=bool(pod), **more)


def a_pod(name: str, phase: str, labels: dict[str, str], **metadata: Any) -> Object:
    state = {"running": {"startedAt": EARLY}} if phase == "Running" else {}
    return {
        "metadata": {"name": name, "uid": name, "labels": labels, **metadata},
        "spec": {"nodeName": "n1", "containers": [{"name": "task"}]},
        "status": {"phase": phase, "containerStatuses": [{"name": "task", "state": state}]},
    }


async def test_the_last_of_a_grown_gang_runs_on_when_its_first_has_ended(tmp_path: Path) -> None:
    small = a_job(
        groups=(a_group(count=1, gpus=1),),
        gang=True,
        cluster="k",
        image="i",
        training=Training(),
        elastic=Elastic(workers=(1, 2)),
    )
    play = Play(tmp_path, small)
    await play.reconcile(live(0))
    old = play.newest
    failed = {"conditions": [{"type": "Failed", "status": "True", "reason": "FailedIndexes"}]}
    play.held.observed.objects[old] = {**play.held.observed.objects[old], "status": failed}
    # 1. It grows: task 0 begins its second attempt, task 1 its first.
    play.spec = small.sized(Size(2, 1))
    play.now = JobFacts(False, attempt=2)
    await play.reconcile(live(0, 2), live(1, 1))
    grown = play.newest
    assert grown != old
    # 2. The pod of task 1 has the number of the whole, and the task begins for the first time.
    pod = f"{grown}-task-1-0-x"
    labels = {
        "jobset.sigs.k8s.io/jobset-name": grown,
        "jobset.sigs.k8s.io/replicatedjob-name": "task",
        "jobset.sigs.k8s.io/job-index": "1",
        "batch.kubernetes.io/job-completion-index": "0",
        "jobyard.dev/attempt": "2",
    }
    play.held.observed.pod_changed(a_pod(pod, "Running", labels), False)
    (begun,) = await play.reconcile(live(0, 2), live(1, 1))
    assert isinstance(begun, AttemptsStarted)
    # 3. Task 0 has ended, and task 1 is about to.
    play.held.observed.pod_changed(a_pod(pod, "Running", labels), False)
    assert await play.reconcile(live(1, 1, pod)) == []
    assert grown not in play.api.deleted


async def test_a_rayjob_runs_when_its_command_is_handed_in_and_says_what_it_waits_for_before(tmp_path: Path) -> None:
    spec = with_kind(a_job(groups=(a_group(count=1),), cluster="k", on="k", image="i", kind="RayJob"))
    play = Play(tmp_path, spec)
    await play.reconcile(live(0), live(1))
    name = play.newest

    def seen(pod: str, phase: str, **labels: str) -> None:
        labels = {"jobyard.dev/object": name, "ray.io/originated-from-cr-name": name, **labels}
        play.held.observed.pod_changed(a_pod(pod, phase, labels), False)

    # 1. Its cluster is up, and nobody has made the pod that hands its command in; then there is no room for it.
    seen("head", "Running", **{"ray.io/node-type": "head"})
    group = {"ray.io/node-type": "worker", "ray.io/group": "worker", "ray.io/worker-group-replica-index": "0"}
    seen("worker", "Running", **group)
    assert await play.reconcile(live(0), live(1)) == []
    assert awaited(play.told) == {"its Ray cluster is up, and its command is still to be handed in"}
    submitter = {"batch.kubernetes.io/job-name": name}
    seen("submitter", "Pending", **submitter)
    assert await play.reconcile(live(0), live(1)) == []
    (sentence,) = awaited(play.told)
    assert sentence.startswith("the pod that hands its command to Ray: ")
    # 2. It runs.
    seen("submitter", "Running", **submitter)
    events = await play.reconcile(live(0), live(1))
    assert [item.unit for event in events if isinstance(event, AttemptsStarted) for item in event.items] == [
        "head",
        "worker",
    ]


async def test_a_rayjob_whose_head_is_lost_is_lost_and_begins_anew(tmp_path: Path) -> None:
    spec = with_kind(a_job(groups=(a_group(count=1),), cluster="k", on="k", image="i", kind="RayJob"))
    play = Play(tmp_path, spec)
    await play.reconcile(live(0), live(1))
    name = play.newest
    labels = {"jobyard.dev/object": name, "ray.io/originated-from-cr-name": name, "ray.io/node-type": "head"}
    play.held.observed.pod_changed(a_pod("head", "Running", labels), False)
    running = [live(0, 1, "head"), live(1, 1, "worker")]
    # 1. It may be about to say that it has ended: then its head goes too.
    play.held.observed.pod_changed(a_pod("head", "Running", labels), True)
    assert await play.reconcile(*running) == []
    # 2. It says nothing.
    play.held.done.since[f"head of {name}"] = 0.0
    await play.reconcile(*running)
    await ends_told()
    (ended,) = [item for event in play.told if isinstance(event, AttemptsFinished) for item in event.items]
    assert (ended.attempt.task, ended.outcome.reason) == (0, Reason.NODE_LOST)


def awaited(events: list[Event]) -> set[str]:
    return {item.sentence for event in events if isinstance(event, AttemptsAwaited) for item in event.items}


async def test_pods_whose_object_is_gone_end_when_they_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("HANGING_SECONDS", "GIVE_UP_SECONDS"):
        monkeypatch.setattr(f"jobyard.executors.kubernetes.followers.{pause}", 0.05)
    gang = a_job(groups=(a_group(count=2),), gang=True, cluster="k", image="i", kind="PyTorchJob", training=Training())
    play = Play(tmp_path, gang, is_simulated=False)
    await play.reconcile(live(0), live(1))
    name = play.newest
    pods = [f"{name}-master-0", f"{name}-worker-0"]

    def changed(phase: str, gone: bool, **metadata: Any) -> None:
        for pod, role in zip(pods, ("master", "worker"), strict=True):
            labels = {
                "training.kubeflow.org/job-name": name,
                "training.kubeflow.org/replica-type": role,
                "training.kubeflow.org/replica-index": "0",
            }
            play.held.observed.pod_changed(a_pod(pod, phase, labels, **metadata), gone)

    changed("Running", False)
    going = [live(task, 1, pod, is_stopping=True, is_yielding=True, at_once=True) for task, pod in enumerate(pods)]
    await play.reconcile(*going)
    assert play.api.deleted == [name]
    # 1. The object goes at once, and its pods have their grace.
    play.held.observed.object_changed(KINDS["PyTorchJob"], play.held.observed.objects[name], True)
    changed("Running", False, deletionTimestamp="2026-01-01T01:00:00Z")
    assert await play.reconcile(*going) == []
    # 2. Only then the attempts are over: they were preempted.
    changed("Running", True, deletionTimestamp="2026-01-01T01:00:00Z")
    await play.reconcile(*going)
    await ends_told()
    (first, second) = [item for event in play.told if isinstance(event, AttemptsFinished) for item in event.items]
    assert {first.outcome.reason, second.outcome.reason} == {Reason.PREEMPTED}
    assert play.held.is_empty


@pytest.mark.parametrize(("sees_all", "lost"), [(True, 2), (False, 0)])
async def test_a_gang_whose_object_went_while_nobody_looked_is_lost(tmp_path: Path, sees_all: bool, lost: int) -> None:
    gang = a_job(groups=(a_group(count=2),), gang=True, cluster="k", image="i", kind="PyTorchJob", training=Training())
    play = Play(tmp_path, gang, sees_all=sees_all)
    play.now = JobFacts(False, attempt=1)
    await play.reconcile(live(0, 1, "a-master-0"), live(1, 1, "a-worker-0"))
    await ends_told()
    told = [item for event in play.told if isinstance(event, AttemptsFinished) for item in event.items]
    assert [item.outcome.reason for item in told] == [Reason.NODE_LOST] * lost


@pytest.mark.parametrize("harm", ["evicted", "deleted", "deleted unheard", "none"])
async def test_who_never_had_a_pod_is_lost_with_the_one_that_was_deleted_or_evicted(tmp_path: Path, harm: str) -> None:
    gang = a_job(groups=(a_group(count=2),), gang=True, cluster="k", image="i", kind="PyTorchJob", training=Training())
    play = Play(tmp_path, gang)
    await play.reconcile(live(0), live(1))
    name = play.newest
    labels = {
        "training.kubeflow.org/job-name": name,
        "training.kubeflow.org/replica-type": "master",
        "training.kubeflow.org/replica-index": "0",
    }
    if harm.startswith("deleted"):  # training-operator takes a pod that is about to go for one that failed
        master = a_pod(f"{name}-master-0", "Running", labels, deletionTimestamp="2026-01-01T01:00:00Z")
    else:
        master = a_pod(f"{name}-master-0", "Failed", labels)
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    master["status"]["conditions"] = [evicted] if harm == "evicted" else []
    alive = a_pod(f"{name}-master-0", "Running", labels)
    play.held.observed.pod_changed(alive if harm == "deleted unheard" else master, False)
    failed = {"type": "Failed", "status": "True", "reason": "PyTorchJobFailed", "message": "1 Master failed"}
    seen = play.held.observed.objects[name]
    play.held.observed.object_changed(KINDS["PyTorchJob"], {**seen, "status": {"conditions": [failed]}}, False)
    if harm == "deleted unheard":  # of the object we hear before we do of the pod
        assert await play.reconcile(live(1)) == []
        play.held.observed.pod_changed(master, False)
    await play.reconcile(live(0, 1, f"{name}-master-0"), live(1))
    await ends_told()
    ended = {
        item.attempt.task: item.outcome
        for event in play.told
        if isinstance(event, AttemptsFinished)
        for item in event.items
    }
    assert (ended[1].reason, ended[1].exit_code) == ((None, 1) if harm == "none" else (Reason.NODE_LOST, None))


async def test_tasks_of_a_training_that_is_no_gang_stay_when_one_of_them_is_tried_again(tmp_path: Path) -> None:
    several = a_job(groups=(a_group(count=2),), cluster="k", image="i", training=Training(), retries=2)
    play = Play(tmp_path, several)
    play.now = JobFacts(False, is_fresh=True)
    await play.reconcile(live(0), live(1))
    name = play.newest
    labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/job-index": "0"}
    play.held.observed.pod_changed(a_pod(f"{name}-0", "Running", labels), False)
    play.now = JobFacts(False, attempt=1)
    assert await play.reconcile(live(0, 1, f"{name}-0"), live(1, 2)) == []
    assert play.api.deleted == []


async def test_a_task_that_is_cancelled_before_its_pod_began_is_let_go_when_that_is_gone(tmp_path: Path) -> None:
    play = Play(tmp_path, a_job(3, cluster="k", image="i"))
    await play.reconcile(*map(live, range(3)))
    array = play.newest
    labels = {"batch.kubernetes.io/job-name": array, "batch.kubernetes.io/job-completion-index": "2"}
    pod = a_pod(f"{array}-2-x", "Pending", labels)
    play.held.observed.pod_changed(pod, False)
    stopping = live(2, is_stopping=True)
    assert await play.reconcile(live(0), live(1), stopping) == []
    # Its failure and its going are heard of at once.
    play.held.observed.pod_changed(pod, True)
    play.held.observed.objects[array] = {**play.held.observed.objects[array], "status": {"failedIndexes": "2"}}
    (told,) = await play.reconcile(live(0), live(1), stopping)
    assert isinstance(told, AttemptsWithdrawn)
    assert told.attempts == (stopping.attempt,)


async def test_a_job_that_cannot_be_written_for_the_cluster_fails_with_the_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> list[Object]:
        raise ValueError("MASTER_PORT is no number")

    monkeypatch.setattr(Reconciler, "build", broken)
    play = Play(tmp_path, a_job(groups=(a_group(count=2),), cluster="k"))
    (ended,) = await play.reconcile(live(0), live(1))
    assert isinstance(ended, AttemptsFinished)
    assert {item.outcome.reason for item in ended.items} == {Reason.REFUSED}
    assert "it cannot be written for the cluster (MASTER_PORT is no number)" in ended.items[1].outcome.message
    assert len(play.troubles) == 1


async def test_nothing_of_a_job_in_quarantine_is_made_or_removed(tmp_path: Path) -> None:
    play = Play(tmp_path, a_job(groups=(a_group(count=2),), cluster="k"))
    play.now = play.now._replace(is_quarantined=True)
    assert await play.reconcile(live(0), live(1)) == []
    assert (play.api.made, play.api.deleted) == ({}, [])


def an_executor(directory: Path, cluster: str = "b") -> KubernetesExecutor:
    yard = Play(directory, a_job(1, cluster="a", image="i"))
    made = KubernetesExecutor(ClusterConfig(cluster, namespace="ns"), cast(Any, yard), "y1", Mirror(directory))
    made._link.api = cast(Any, yard.api)
    return made


@pytest.mark.parametrize(("cluster", "others"), [("a", 0), ("b", 2)])
async def test_pods_of_another_entry_of_the_same_cluster_take_room(tmp_path: Path, cluster: str, others: int) -> None:
    executor = an_executor(tmp_path, cluster)
    node = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "nvidia.com/gpu": "2"}}}
    executor._room.node_changed(node, False)
    pod = a_pod("p", "Running", {"jobyard.dev/yard": "y1", "jobyard.dev/job": JOB}, namespace="ns")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "2"}}
    executor._watches.pod_changed(pod, False)
    told = [event.foreign for event in executor._room.changes([], 0.0) if hasattr(event, "foreign")]
    assert [len(foreign.whole_devices) for foreign in told] == [others]


async def test_a_job_that_ended_while_its_cluster_was_away_is_looked_at_when_it_is_back(tmp_path: Path) -> None:
    executor = an_executor(tmp_path)
    executor._link.is_away = True
    executor.perform([JobEnded("b", JOB)])
    working = asyncio.create_task(executor._jobs.work(executor._reconcile))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    working.cancel()
    assert JOB in executor._jobs
