"""/clusters: the Kubernetes clusters of a yard; adding and removing them."""

from __future__ import annotations

import os
import time
from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.errors import UserError
from jobyard.executors.protocol import InNamespace
from jobyard.executors.registry import executor_class
from jobyard.model.node import ClusterConfig
from jobyard.model.units import show_jobs_are
from jobyard.server import clusters
from jobyard.server.declarations import answers, takes
from jobyard.server.problems import problem
from jobyard.server.rights import admin_of, check_owner
from jobyard.server.routes.answers import Selector, answer, yard_of
from jobyard.server.yard import Yard
from jobyard.wire.requests import AddCluster
from jobyard.wire.views import ClusterRemoved, ClusterView

router = APIRouter()
JOIN_SECONDS = 20.0
PROBLEM_SECONDS = 2.0  # a link with a problem for so long does not recover by itself
END_SECONDS = 60.0  # for cancelled jobs to be gone from there


@router.get("/clusters")
@answers(list[ClusterView])
async def list_clusters(request: Request) -> Response:
    yard = yard_of(request)
    with yard.lifetime.request():
        return answer([_view(yard, config) for config in clusters.all_clusters(yard.loop.state)])


@router.post("/clusters", status_code=201)
@answers(ClusterView, 201)
async def add_cluster(request: Request, asked: Annotated[AddCluster, takes(AddCluster)]) -> Response:
    """A new one stays only if it has answered; of one of a known name, what is said changes."""
    by = admin_of(request, "add clusters")
    yard = yard_of(request)
    # It may name programs, which run with the server's rights.
    way_out = "leave it out to use the cluster that the server runs in, or add this one on the server's machine"
    check_owner(by, "kubeconfig", asked.config.kubeconfig, way_out)
    executor_class(clusters.KUBERNETES)  # without its library nothing is added
    with yard.lifetime.request():
        config = clusters.changed_config(yard.loop.state, asked.config)
        _check_kubeconfig(config)
        known = clusters.find_cluster(yard.loop.state, config.id)
        await _use(yard, config, by.name)
        why = await _problem(yard, config.id)
        if why and not asked.force:
            if known is None:
                await _let_go(yard, config.id, by.name)
                raise UserError(f"cluster {config.id} was not added: {why}")
            if known != config:
                await _use(yard, known, by.name)
                raise UserError(f"cluster {config.id} was not changed: {why}")
        return answer(_view(yard, config), 201)


async def _use(yard: Yard, config: ClusterConfig, by: str) -> None:
    await yard.loop.ask(clusters.add_cluster(config, yard.machines.this_machine, by))
    yard.machines.add_cluster(config)


@router.delete("/clusters/{cluster}")
@answers(ClusterRemoved)
async def remove_cluster(request: Request, cluster: Selector, force: bool = False) -> Response:
    by = admin_of(request, "remove clusters").name
    yard = yard_of(request)
    with yard.lifetime.request():
        clusters.known_cluster(yard.loop.state, cluster)
        jobs = clusters.unfinished_jobs(yard.loop.state, cluster)
        if jobs and not force:
            unfinished = f"{show_jobs_are(len(jobs))} not finished on {cluster}"
            title = f"{unfinished}; wait for the end, or remove it with --force, which cancels"
            return problem("bad_request", title, 409)
        await yard.loop.ask(clusters.cancel_jobs(cluster, by))
        await _ended(yard, cluster)
        await _let_go(yard, cluster, by)
        return answer(ClusterRemoved(cluster, tuple(jobs)))


def _check_kubeconfig(config: ClusterConfig) -> None:
    for path in config.kubeconfig.split(os.pathsep) if config.kubeconfig else []:
        if not os.path.isabs(path) or not os.access(path, os.R_OK):
            raise UserError(f"kubeconfig {path}: the yard's server cannot read it there; give a path that it can")


async def _problem(yard: Yard, cluster: str) -> str:
    """Waits until the cluster is connected, or has a problem that stays; empty: it is connected."""
    deadline = time.monotonic() + JOIN_SECONDS
    since: float | None = None
    while (executor := yard.loop.executor_of(cluster)) is not None:
        status, now = executor.status(), time.monotonic()
        if status.is_connected:
            await yard.loop.has_joined(cluster, PROBLEM_SECONDS)  # so that what it has can be told
            return ""
        since = (since or now) if status.problem else None
        if now > deadline or (since is not None and now - since > PROBLEM_SECONDS):
            return status.problem or "it does not answer"
        await yard.loop.feed.moment()
    return "it was removed meanwhile"


async def _ended(yard: Yard, cluster: str) -> None:
    """Waits until cancelled jobs are gone from the cluster, as long as it is connected."""
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        await yard.loop.journalled()  # only then executors are told what has ended
        executor = yard.loop.executor_of(cluster)
        if executor is None or not executor.status().is_connected:
            return
        is_tidy = not isinstance(executor, InNamespace) or executor.is_tidy
        if is_tidy and not clusters.unfinished_jobs(yard.loop.state, cluster):
            return
        await yard.loop.feed.moment()


async def _let_go(yard: Yard, cluster: str, by: str) -> None:
    await yard.loop.ask(clusters.remove_cluster(cluster, by))
    yard.machines.remove(cluster)


def _view(yard: Yard, config: ClusterConfig) -> ClusterView:
    why = yard.machines.problems.get(config.id, "")
    return clusters.cluster_view(yard.loop.state, config, yard.loop.executor_of(config.id), why)
