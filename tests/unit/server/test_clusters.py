"""Clusters in a server: adding and removing them, jobs for them, and what is told of both."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobyard.engine.yard_state import YardState
from jobyard.errors import NotFound, UserError
from jobyard.executors import registry
from jobyard.executors.fake import FakeMachine
from jobyard.model.events import AttemptsAwaited, Awaited, NodeAdded, NodeJoined
from jobyard.model.job import JobSpec, Reason, State
from jobyard.model.kubernetes import SecretMount
from jobyard.model.node import ClusterConfig, Node, NodeConfig, NodeState
from jobyard.model.task import AttemptId
from jobyard.server.clusters import for_cluster, with_cluster
from jobyard.server.commands import checked_spec
from jobyard.server.environments import Environments
from jobyard.server.lifetime import Lifetime
from jobyard.server.log_request import LogRequest
from jobyard.server.logs import LogStream
from jobyard.server.machines import Machines
from jobyard.server.routes import clusters as routes
from jobyard.server.routes import nodes as node_routes
from jobyard.server.routes.submit import submit_job
from jobyard.server.routes.unit import find_unit
from jobyard.server.sending import may_travel
from jobyard.server.views import awaited_view, job_view
from jobyard.server.why_view import why_view
from jobyard.settings import ServerKnobs
from jobyard.wire.requests import AddCluster, SubmitJob
from tests.builders import with_words
from tests.unit.server.fake_cluster import FakeCluster
from tests.unit.server.running import RunningYard, a_batch, a_yard, an_array

LAB = ClusterConfig("lab", namespace="team")
TWO_MORE = [("c", 1000), ("d", 4000)]


@pytest.fixture(autouse=True)
def fake_cluster(monkeypatch: pytest.MonkeyPatch) -> type[FakeCluster]:
    monkeypatch.setitem(registry.KNOWN, "kubernetes", "tests.unit.server.fake_cluster:FakeCluster")
    monkeypatch.setattr(FakeCluster, "refusal", "")
    monkeypatch.setattr(FakeCluster, "problem", "")
    monkeypatch.setattr(FakeCluster, "machine", None)
    monkeypatch.setattr(routes, "PROBLEM_SECONDS", 0.1)
    monkeypatch.setattr("jobyard.server.routes.submit.CHANGE_SECONDS", 0.05)
    return FakeCluster


class Server:
    """The routes of a running yard, without HTTP."""

    def __init__(self, running: RunningYard) -> None:
        self.running = running
        self.loop = running.loop
        self.machines = Machines(running.loop, running.directory, "y1", "here", "", ServerKnobs())
        self._yard = SimpleNamespace(
            loop=running.loop,
            machines=self.machines,
            lifetime=Lifetime(None, lambda: False),
            directory=str(running.directory),
            environments=Environments(running.directory / "environments", 60.0),
        )

    def request(self) -> Any:
        app = SimpleNamespace(state=SimpleNamespace(yard=self._yard))
        return SimpleNamespace(app=app, state=SimpleNamespace())

    async def add(self, config: ClusterConfig = LAB, *, force: bool = False) -> Any:
        return told(await routes.add_cluster(self.request(), AddCluster(config, force)))

    async def submit(self, spec: JobSpec, **asked: Any) -> Any:
        return told(await submit_job(self.request(), SubmitJob(spec, **asked)))


def told(response: Any) -> Any:
    return json.loads(bytes(response.body))


@asynccontextmanager
async def a_server(directory: Path) -> AsyncIterator[Server]:
    async with a_yard(directory, FakeMachine(directory / "machine", cpus=8)) as running:
        yield Server(running)


def on_lab(*lines: str, **spec: Any) -> JobSpec:
    return a_batch(*lines, **{"on": "lab", "image": "demo", "workdir": "/nowhere", **spec})


async def test_a_cluster_is_added_listed_and_removed(tmp_path: Path) -> None:
    async with a_server(tmp_path) as server:
        added = await server.add()
        assert (added["is_connected"], added["server"], added["namespace"]) == (True, "https://fake:6443", "team")
        (listed,) = told(await routes.list_clusters(server.request()))
        assert [listed[key] for key in ("id", "nodes", "nodes_up", "gpus", "gpus_free")] == ["lab", 2, 2, 4, 4]
        nodes = told(await node_routes.list_nodes(server.request()))
        assert [node["id"] for node in nodes] == ["here", "lab/a", "lab/b"]
        await routes.remove_cluster(server.request(), "lab")
        assert server.loop.state.places.clusters == {}
        assert list(server.loop.state.places.nodes) == ["here"]
        assert server.loop.executor_of("lab") is None
        with pytest.raises(NotFound, match="no cluster 'lab'; known: none"):
            await routes.remove_cluster(server.request(), "lab")


async def test_a_cluster_that_cannot_be_used_leaves_nothing_behind_unless_forced(
    tmp_path: Path, fake_cluster: type[FakeCluster]
) -> None:
    fake_cluster.problem = "the certificate of https://fake:6443 is not trusted"
    async with a_server(tmp_path) as server:
        with pytest.raises(UserError, match="cluster lab was not added: the certificate of https://fake"):
            await server.add()
        assert (server.loop.state.places.clusters, server.loop.executor_of("lab")) == ({}, None)
        assert "certificate" in (await server.add(force=True))["problem"]
        assert list(server.loop.state.places.clusters) == ["lab"]


async def test_of_a_known_cluster_only_what_is_said_changes(tmp_path: Path) -> None:
    async with a_server(tmp_path) as server:
        first, second = (tmp_path / name for name in ("first", "second"))
        for file in (first, second):
            file.touch()
        at_first = ClusterConfig("lab", str(first), "gpu", "team", queue="fast")
        await server.add(at_first)
        await server.add(ClusterConfig("lab", storage="disk"))
        assert server.loop.state.places.clusters["lab"] == replace(at_first, storage="disk")
        await server.add(ClusterConfig("lab", context="gpu", namespace="other"))
        assert server.loop.state.places.clusters["lab"] == replace(at_first, storage="disk", namespace="other")
        await server.add(ClusterConfig("lab", str(second), "cpu"))
        assert server.loop.state.places.clusters["lab"] == ClusterConfig("lab", str(second), "cpu", "", "disk", "fast")


async def test_a_known_cluster_that_cannot_be_used_so_stays_as_it_was(
    tmp_path: Path, fake_cluster: type[FakeCluster]
) -> None:
    async with a_server(tmp_path) as server:
        await server.add()
        fake_cluster.problem = "there is no namespace other in it"
        with pytest.raises(UserError, match="cluster lab was not changed: there is no namespace other"):
            await server.add(ClusterConfig("lab", namespace="other"))
        assert server.loop.state.places.clusters["lab"] == LAB


async def test_a_cluster_does_not_move_away_from_its_jobs(tmp_path: Path, fake_cluster: type[FakeCluster]) -> None:
    async with a_server(tmp_path) as server:
        await server.add()
        fake_cluster.machine = None
        await server.submit(on_lab("sleep 1000"))
        refusal = "1 job is not finished in namespace team, and this is namespace other; wait for the end, or"
        with pytest.raises(UserError, match=refusal):
            await server.add(ClusterConfig("lab", namespace="other"))
        await server.add(ClusterConfig("lab", storage="disk"))  # that moves nothing


async def test_without_its_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.KNOWN, "kubernetes", "no_such_library.aio:Executor")
    async with a_server(tmp_path) as server:
        sentence = r"the Kubernetes executor needs its extra; run: pip install 'jobyard\[kubernetes\]'"
        with pytest.raises(UserError, match=sentence):
            await server.add()


@pytest.mark.parametrize("name", ["a/b", "", "here", "local", "gpu", ".x"])
async def test_a_cluster_has_a_name_of_its_own(tmp_path: Path, name: str) -> None:
    async with a_server(tmp_path) as server:
        server.loop.state.places.nodes["m"] = Node("m", "ssh", 1, 1, labels=("gpu",))
        with pytest.raises(UserError, match="cluster name"):
            await server.add(ClusterConfig(name))


async def test_a_kubeconfig_must_be_readable_for_the_server(tmp_path: Path) -> None:
    async with a_server(tmp_path) as server:
        with pytest.raises(UserError, match="kubeconfig /no/such: the yard's server cannot read it"):
            await server.add(replace(LAB, kubeconfig="/no/such"))


async def test_a_job_on_a_cluster_runs_there_and_sends_no_tree(tmp_path: Path) -> None:
    async with a_server(tmp_path) as server:
        await server.add()
        view = await server.submit(on_lab("echo one", "echo two"))
        assert (view["cluster"], view["image"]) == ("lab", "demo")
        assert await server.running.ended(view["id"]) is State.SUCCEEDED
        job = server.running.job(view["id"])
        assert {job.task(number).node for number in (0, 1)} <= {"lab/a", "lab/b"}
        assert [awaited_view(server.loop.state, job, number).unit for number in (0, 1)] == ["pod-0-1", "pod-1-1"]
        assert job.spec.staging.snapshot == ""


async def test_a_job_that_names_no_cluster_never_goes_to_one(tmp_path: Path) -> None:
    async with a_server(tmp_path) as server:
        await server.add()
        view = await server.submit(a_batch("true", workdir=str(tmp_path)))
        await server.running.ended(view["id"])
        assert (view["cluster"], server.running.job(view["id"]).task(0).node) == ("", "here")


async def test_what_the_cluster_refuses_is_told_before_the_job_is_taken(
    tmp_path: Path, fake_cluster: type[FakeCluster]
) -> None:
    async with a_server(tmp_path) as server:
        await server.add()
        fake_cluster.refusal = "namespace team: you may not create jobs there"
        for dry_run in (False, True):
            with pytest.raises(UserError, match="you may not create jobs"):
                await server.submit(on_lab("true"), dry_run=dry_run)
        assert server.loop.state.jobs == {}
        executor: Any = server.loop.executor_of("lab")
        assert {(job.id, job.spec.cluster) for job in executor.checked} == {("00000000", "lab")}


async def test_what_can_never_run_there_is_told(tmp_path: Path) -> None:
    async with a_server(tmp_path) as server:
        await server.add()
        with pytest.raises(UserError, match=r"can never run: .* another cluster with --on"):
            await server.submit(on_lab("true", cpus=3))
        with pytest.raises(UserError, match="start together and do not fit"):
            await server.submit(on_lab("true", "true", "true", cpus=1.5, gang=True))


async def test_nobody_is_refused_for_a_node_that_has_just_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.server.routes.submit.CHANGE_SECONDS", 60.0)
    async with a_server(tmp_path) as server:
        await server.add()
        asked = asyncio.create_task(server.submit(on_lab("true", cpus=3)))
        joined = [NodeJoined(Node(f"lab/{name}", "kubernetes", cpus, 8192), time.time()) for name, cpus in TWO_MORE]
        for event in joined:
            assert not (await asyncio.wait([asked], timeout=0.05))[0]  # the first of them is too small as well
            await server.loop.ask(partial(_tells, event))
        assert (await asked)["cluster"] == "lab"


def _tells(event: NodeJoined, state: YardState, now: float) -> tuple[list[NodeJoined], None]:
    return [event], None


async def test_a_cluster_that_was_not_reached_yet_takes_jobs_that_wait(
    tmp_path: Path, fake_cluster: type[FakeCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.server.routes.submit.CLUSTER_SECONDS", 0.0)
    fake_cluster.problem = "it does not answer"
    async with a_server(tmp_path) as server:
        await server.add(force=True)
        view = await server.submit(on_lab("true", cpus=64))
        assert view["state"] == "PENDING"
        assert why_view(server.loop.planner, server.running.job(view["id"])).sentences[0]


def test_on_means_a_cluster_only_where_it_can() -> None:
    state = RunningState()
    assert with_cluster(state.of(), a_batch("x")).cluster == ""
    assert with_cluster(state.of("lab"), a_batch("x", on="lab")).cluster == "lab"
    assert with_cluster(state.of("lab", "other"), a_batch("x", on="kubernetes")).cluster == "lab"
    assert with_cluster(state.of(machine="kubernetes"), a_batch("x", on="kubernetes")).cluster == ""
    for on, sentence in {
        "kubernetes": "the yard knows no Kubernetes cluster; run: yard clusters add",
    }.items():
        with pytest.raises(UserError, match=sentence):
            with_cluster(state.of(), a_batch("x", on=on))
    for on, sentence in {
        "lab,here": "lab is a cluster, and a job goes to one cluster or to machines",
        "here,kubernetes": "kubernetes is a cluster",
        "lab/a": "Kubernetes chooses the node; name the cluster alone: --on lab",
    }.items():
        with pytest.raises(UserError, match=sentence):
            with_cluster(state.of("lab"), a_batch("x", on=on))


class RunningState:
    def of(self, *clusters: str, machine: str = "here") -> YardState:
        state = YardState()
        state.places.nodes[machine] = Node(machine, "local", 1000, 1000)
        state.places.clusters = {name: ClusterConfig(name) for name in clusters}
        return state


def test_a_secret_that_was_not_made_for_the_job_is_refused() -> None:
    spec = with_words(on_lab("true"), secrets=(SecretMount("shared-config", "file", "/run/x"),))
    with pytest.raises(UserError, match="is not this job's"):
        for_cluster(spec, "lab")
    ours = with_words(spec, secrets=(SecretMount("yard-0123456789abcdef", "file", "/run/x"),))
    assert for_cluster(ours, "lab").kubernetes.secrets == ours.kubernetes.secrets


def test_nothing_is_copied_to_a_cluster_and_machines_use_no_image() -> None:
    state = RunningState().of("lab")
    spec = a_batch("x", on="lab")
    with pytest.raises(UserError, match="--copy-forward: nothing is copied to or from a cluster"):
        with_cluster(state, with_words(spec, copy_forward=("a",)))
    with pytest.raises(UserError, match="--copy-backwards: nothing is copied to or from a cluster"):
        with_cluster(state, with_words(spec, copy_back=("a",)))
    assert not may_travel(state, a_batch("x", on="lab"))
    assert with_cluster(state, spec).staging == spec.staging, "it is as its submitter asked"
    note = "image 'demo' is not used: tasks run as plain processes on machines"
    assert with_cluster(state, a_batch("x", image="demo")).submitter.notes == (note,)
    assert with_cluster(state, a_batch("x", image="demo", notes=(note,))).submitter.notes == (note,)
    assert with_cluster(state, a_batch("x", image="demo", notes=(note, "more"), on="lab")).submitter.notes == ("more",)
    both = a_batch("x", notes=("as processes",), cluster_notes=("as pods",))
    assert with_cluster(state, both).submitter.notes == ("as processes",)
    assert with_cluster(state, replace(both, on="lab")).submitter.notes == ("as pods",)
    assert with_cluster(state, with_words(both, on="lab", cluster_notes=())).submitter.notes == ()
    with pytest.raises(UserError, match="a RayJob runs on a cluster only"):
        with_cluster(state, a_batch("x", kind="RayJob"))


async def test_render_needs_no_cluster_at_all(tmp_path: Path) -> None:
    async with a_server(tmp_path) as server:
        plan = await server.submit(on_lab("true", on="kubernetes"), dry_run=True, render=True)
        assert "kind: Job" in plan["rendered"]
        with pytest.raises(UserError, match="yard clusters add"):
            await server.submit(on_lab("true", on="kubernetes"), dry_run=True)


@pytest.mark.parametrize("asked", [{}, {"dry_run": True}, {"dry_run": True, "render": True}])
async def test_what_a_submit_refuses_a_dry_run_and_a_render_refuse_in_the_same_words(
    tmp_path: Path, fake_cluster: type[FakeCluster], asked: dict[str, bool]
) -> None:
    async with a_server(tmp_path) as server:
        await server.add()
        with pytest.raises(UserError, match=r"job 'batch' can never run: .* ask for less"):
            await server.submit(on_lab("true", cpus=99), **asked)
        fake_cluster.refusal = "cluster lab refuses the Job: exceeded quota"
        with pytest.raises(UserError, match=fake_cluster.refusal):
            await server.submit(on_lab("true"), **asked)
        server.loop.report([NodeAdded(NodeConfig("far", "far.example", labels=("far",)), 1.0)])
        await server.running.until(lambda: "far" in server.loop.state.places.configs)
        with pytest.raises(UserError, match="'gone'"):
            await server.submit(a_batch("true", on="far", workdir=str(tmp_path), copy_forward=("gone",)), **asked)


async def test_a_dry_run_tells_where_there_is_room(tmp_path: Path) -> None:
    async with a_server(tmp_path) as server:
        await server.add()
        plan = await server.submit(on_lab("true", "true"), dry_run=True)
        assert plan["placements"][0].startswith("slot 1: lab/")
        assert server.loop.state.jobs == {}


async def test_removing_is_refused_while_jobs_are_there_and_forced_it_cancels_them(tmp_path: Path) -> None:
    async with a_server(tmp_path) as server:
        await server.add()
        view = await server.submit(on_lab("sleep 60"))
        await server.running.running(view["id"])
        refused = await routes.remove_cluster(server.request(), "lab")
        assert (refused.status_code, "1 job is not finished on lab" in told(refused)["title"]) == (409, True)
        assert told(await routes.remove_cluster(server.request(), "lab", force=True))["cancelled"] == [view["id"]]
        assert await server.running.ended(view["id"]) is State.CANCELLED
        with pytest.raises(UserError, match="there is no node 'lab'"):
            checked_spec(server.loop.state, on_lab("true", workdir=str(tmp_path)))


async def test_why_and_show_tell_the_clusters_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeCluster, "_launch", lambda *_: None)  # it is handed over, and nothing comes
    async with a_server(tmp_path) as server:
        await server.add()
        view = await server.submit(on_lab("true", "true"))
        job = server.running.job(view["id"])
        await server.running.until(lambda: job.tasks.counts[State.STARTING] == 2)
        sentence = "image demo cannot be pulled (ErrImagePull); check its name"
        awaited = tuple(Awaited(AttemptId(job.id, number, 1), Reason.HELD, sentence) for number in (0, 1))
        server.loop.report([AttemptsAwaited(awaited, time.time())])
        await server.running.until(lambda: bool(server.loop.state.cluster_waits))
        state, planner = server.loop.state, server.loop.planner
        assert why_view(planner, job).sentences == (f"2 of 2 tasks wait on lab: {sentence}",)
        assert why_view(planner, job).reason is Reason.HELD
        assert job_view(planner, job).message == f"2 of 2 tasks wait on lab: {sentence}"
        assert [awaited_view(state, job, number).message for number in (0, 1)] == [sentence] * 2
        await server.running.cancel(job.id, force=True)


async def test_the_unit_of_a_task_is_its_pod_or_its_machine(tmp_path: Path) -> None:
    async with a_server(tmp_path) as server:
        await server.add()
        there = await server.submit(on_lab("sleep 60", "sleep 60"))
        here = await server.submit(a_batch("sleep 60", workdir=str(tmp_path)))
        await server.running.until(lambda: server.running.job(there["id"]).tasks.counts[State.RUNNING] == 2)
        await server.running.running(here["id"])
        unit = told(await find_unit(server.request(), there["id"], task="1"))
        assert (unit["cluster"], unit["namespace"], unit["pod"], unit["container"]) == (
            "lab",
            "team",
            "pod-1-1",
            "task",
        )
        machine = told(await find_unit(server.request(), here["id"]))
        assert (machine["cluster"], machine["node"], machine["workdir"]) == ("", "here", str(tmp_path))
        assert machine["process"]["attempt"] == f"{here['id']}.0.1"
        with pytest.raises(UserError, match=f"has 2 tasks; name one: {there['number']}/0"):
            await find_unit(server.request(), there["id"])
        for job in (there, here):
            await server.running.cancel(job["id"], force=True)
            await server.running.ended(job["id"])
        with pytest.raises(UserError, match="was cancelled: it does not run now"):
            await find_unit(server.request(), here["id"])


async def test_logs_are_followed_from_before_the_pod_exists_and_of_an_earlier_attempt(tmp_path: Path) -> None:
    async with a_server(tmp_path) as server:
        await server.add()
        view = await server.submit(on_lab("echo hello; exit 1", retries=1))
        job = server.running.job(view["id"])
        stream = LogStream(server.loop, LogRequest(job, "", None, ["out"], None), follow=True)
        said = [(chunk.attempt, chunk.data) async for chunk in stream.chunks()]
        assert said == [(1, "hello\n"), (2, "hello\n")]
        earlier = LogStream(server.loop, LogRequest(job, "0", 1, ["out"], None), follow=False)
        assert [(chunk.attempt, chunk.data) async for chunk in earlier.chunks()] == [(1, "hello\n")]


async def test_a_restarted_server_finds_its_clusters_nodes_and_pods_again(
    tmp_path: Path, fake_cluster: type[FakeCluster]
) -> None:
    fake_cluster.machine = FakeMachine(tmp_path / "pods")
    async with a_server(tmp_path) as server:
        await server.add()
        view = await server.submit(on_lab("sleep 60"))
        await server.running.running(view["id"])
    fake_cluster.machine.drop()
    async with a_server(tmp_path) as server:
        server.machines.add_cluster(server.loop.state.places.clusters["lab"])
        (live,) = server.loop.live_attempts("lab")
        assert (live.pod, live.is_running, live.slot.placement.node[:4]) == ("pod-0-1", True, "lab/")
        assert (server.loop.live_attempts("here"), server.loop.facts(view["id"]).is_over) == ([], False)
        assert await server.loop.has_joined("lab", 20)
        await server.running.cancel(view["id"], force=True)
        assert await server.running.ended(view["id"]) is State.CANCELLED
        assert server.loop.facts(view["id"]).is_over
    await fake_cluster.machine.close()


async def test_a_node_of_a_cluster_is_drained_by_its_full_name_and_removed_only_with_it(tmp_path: Path) -> None:
    async with a_server(tmp_path) as server:
        await server.add()
        drained = told(await node_routes.drain_node(server.request(), "lab/a"))
        assert drained["state"] == "DRAINING"
        whole = told(await node_routes.drain_node(server.request(), "lab"))
        assert (whole["state"], whole["executor"]) == ("DRAINING", "kubernetes")
        assert server.loop.state.places.nodes["lab/b"].state is NodeState.DRAINING
        await node_routes.resume_node(server.request(), "lab")
        for name in ("lab/b", "lab"):
            with pytest.raises(UserError, match="yard clusters rm lab"):
                await node_routes.remove_node(server.request(), name)


async def test_taken_gpus_are_counted(tmp_path: Path) -> None:
    async with a_server(tmp_path) as server:
        await server.add()
        spec = on_lab("sleep 60")
        group = replace(spec.groups[0], resources=replace(spec.groups[0].resources, gpus=1))
        view = await server.submit(replace(spec, groups=(group,)))
        await server.running.running(view["id"])
        (cluster,) = told(await routes.list_clusters(server.request()))
        assert (cluster["gpus_free"], cluster["jobs"]) == (3, 1)
        nodes = told(await node_routes.list_nodes(server.request()))
        assert [sum(d["is_taken"] for d in node["devices"]) for node in nodes] == [0, 1, 0]
        await server.running.cancel(view["id"], force=True)
        await server.running.ended(view["id"])


async def test_an_array_of_a_cluster_opens_piece_by_piece(tmp_path: Path) -> None:
    async with a_server(tmp_path) as server:
        await server.add()
        view = await server.submit(with_words(an_array("true", 99), on="lab", image="demo"))
        assert await server.running.ended(view["id"]) is State.SUCCEEDED
