"""GET /healthz, GET /server, POST /server/stop, POST /server/accept: the server about itself."""

from __future__ import annotations

import logging
import os
from typing import Annotated

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from jobyard import __version__
from jobyard.model.units import show_jobs_are
from jobyard.server.clusters import all_clusters
from jobyard.server.declarations import Media, answers, takes
from jobyard.server.problems import problem
from jobyard.server.queries import unfinished_work
from jobyard.server.rights import admin_of
from jobyard.server.routes.answers import answer, yard_of
from jobyard.wire.requests import AcceptRow
from jobyard.wire.views import AgentView, DamageView, ServerView

router = APIRouter()
log = logging.getLogger(__name__)
NODE_SECONDS = 10.0


@router.get("/healthz")
@answers(Media("text/plain; charset=utf-8"))
async def is_healthy() -> Response:
    return PlainTextResponse("ok\n")


@router.get("/server")
@answers(ServerView)
async def show_server(request: Request, wait: bool = False) -> Response:
    """With `wait`, only once the agents have answered (or ten seconds have passed)."""
    yard = yard_of(request)
    if wait:
        with yard.lifetime.request():
            await yard.loop.has_node(NODE_SECONDS)
    return answer(server_view(request))


def server_view(request: Request) -> ServerView:
    yard = yard_of(request)
    statuses = [executor.status() for executor in yard.loop.executors]
    clusters = {config.id for config in all_clusters(yard.loop.state)}
    agents = [status for status in statuses if status.node not in clusters]  # a cluster has no agent of ours
    jobs, tasks = unfinished_work(yard.loop)
    return ServerView(
        pid=os.getpid(),
        build=yard.build,
        version=__version__,
        yard=yard.directory,
        yard_id=yard.yard_id,
        listen=yard.listen,
        started_at=yard.started_at,
        jobs_active=jobs,
        tasks_active=tasks,
        database=yard.database,
        agents=tuple(AgentView(s.node, s.pid, s.build, s.is_connected) for s in agents),
        last_event=yard.loop.seq,
        troubles=yard.loop.error_counts.views(),
        damages=tuple(
            DamageView(each.row, each.sentence, tuple(sorted(each.jobs or ())), each.is_accepted)
            for each in yard.loop.damages
        ),
        read_only=yard.loop.read_only,
        kept=yard.housekeeping.kept,
    )


@router.post("/server/accept")
@answers(ServerView)
async def accept_row(request: Request, asked: Annotated[AcceptRow, takes(AcceptRow)]) -> Response:
    """Go on without a damaged row of the journal. Who said so is written down."""
    by = admin_of(request, "accept a damaged row")
    yard = yard_of(request)
    with yard.lifetime.request():
        await yard.loop.accept(asked.row, str(by))
    return answer(server_view(request))


@router.post("/server/stop")
@answers(ServerView)
async def stop_server(request: Request, force: bool = False) -> Response:
    """While work is pending only with `force`: tasks that run go on, and the next server takes them up again."""
    by = admin_of(request, "stop the server")
    yard = yard_of(request)
    view = server_view(request)
    if view.jobs_active and not force:
        unfinished = f"{show_jobs_are(view.jobs_active)} not finished"
        title = f"{unfinished}; with --force the server stops all the same, and running tasks go on"
        return problem("bad_request", title, 409)
    log.info("%s stops the server", by)
    yard.lifetime.stop()
    return answer(view)
