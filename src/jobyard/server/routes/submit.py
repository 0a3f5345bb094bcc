"""POST /jobs: submit a job, or show what submitting would do (dry run)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.errors import Unavailable, Unwritable, UserError
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.job import JobSpec
from jobyard.server.clusters import cluster_named, with_cluster
from jobyard.server.commands import checked_spec, digest_of, made_before, submit
from jobyard.server.containers import machines_for
from jobyard.server.declarations import answers, takes
from jobyard.server.dry_run import NO_ID, dry_run, needs_no_cluster
from jobyard.server.from_token import NOTHING_SENT, submitted_by
from jobyard.server.queries import has_job_with, shown_job
from jobyard.server.rights import caller_of
from jobyard.server.routes.answers import answer, yard_of
from jobyard.server.sending import check_tree, may_travel, with_its_tree
from jobyard.server.spec_checks import check_submit
from jobyard.server.yard import Yard
from jobyard.wire.requests import API, SubmitJob
from jobyard.wire.views import JobView, PlanView

router = APIRouter()
NODE_SECONDS = 20.0
CLUSTER_SECONDS = 5.0
CHANGE_SECONDS = 1.0  # from a change of a cluster to what the yard knows
RUNTIME_SECONDS = 0.5  # from what an agent told to what the yard knows


@router.post("/jobs", status_code=201)
@answers(JobView, 201, {200: PlanView})
async def submit_job(request: Request, asked: Annotated[SubmitJob, takes(SubmitJob, check_submit)]) -> Response:
    yard = yard_of(request)
    caller = caller_of(request)
    asked = replace(asked, spec=submitted_by(caller, asked.spec))
    digest = await asyncio.to_thread(digest_of, asked.spec) if asked.key else ""  # before the yard changes it
    with yard.lifetime.request():
        if yard.loop.read_only:
            raise Unwritable(yard.loop.read_only)
        if known := "" if asked.dry_run else await _made_before(yard, asked, digest):
            return _made(yard, known)
        await _check_nodes(yard)
        if not (asked.render and needs_no_cluster(yard.loop.state, asked.spec)):
            await _check_cluster(yard, asked.spec)
        await _ask_for_runtimes(yard, asked.spec)
        travels = may_travel(yard.loop.state, asked.spec)
        if travels and not caller.is_owner:
            asked = replace(asked, spec=asked.spec.with_notes(NOTHING_SENT))
        elif travels:
            checked_spec(yard.loop.state, asked.spec)  # first, so that no large tree is read for nothing
            see_tree = check_tree if asked.dry_run else with_its_tree
            asked = replace(asked, spec=await asyncio.to_thread(see_tree, asked.spec, Path(yard.directory)))
        if asked.dry_run:
            return answer(dry_run(yard.loop, asked))
        async with yard.environments.kept(asked.spec, partial(has_job_with, yard.loop)) as spec:
            return _made(yard, await yard.loop.ask(submit(replace(asked, spec=spec), digest)))


def _made(yard: Yard, job: str) -> Response:
    return answer(shown_job(yard.loop, job), 201, {"Location": f"{API}/jobs/{job}"})


async def _made_before(yard: Yard, asked: SubmitJob, digest: str) -> str:
    """Before all checks: what the yard would refuse by now does not concern a job that is there."""
    if not asked.key:
        return ""
    await yard.loop.journalled()  # what is not on disk may still be undone
    return made_before(yard.loop.state, asked, digest)


async def _check_nodes(yard: Yard) -> None:
    if not yard.loop.executors:
        ways = "yard clusters add, or yard nodes add HOST"
        raise UserError(f"the yard has no machine and no cluster; add one: {ways}")
    if not await yard.loop.has_node(NODE_SECONDS):
        problems = "; ".join(executor.status().problem for executor in yard.loop.executors)
        raise Unavailable(f"the yard has no node yet: {problems or 'the agent does not answer'}")


async def _check_cluster(yard: Yard, spec: JobSpec) -> None:
    """The cluster is asked before the job is accepted: what it would refuse is reported now."""
    if not cluster_named(yard.loop.state, spec.on):
        return
    spec = with_cluster(yard.loop.state, spec)
    await yard.loop.has_joined(spec.cluster, CLUSTER_SECONDS)  # as after a start; if it does not join, the job waits
    spec = await _checked_after_changes(yard, spec)
    executor = yard.loop.executor_of(spec.cluster)
    if executor is None:
        raise UserError(f"cluster {spec.cluster}: {yard.machines.problems.get(spec.cluster, 'it is not used now')}")
    await executor.check(SubmittedJob(NO_ID, 0, spec))


async def _checked_after_changes(yard: Yard, spec: JobSpec) -> JobSpec:
    """Check again after a moment: a new label, taint or node may not have reached the yard yet."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CHANGE_SECONDS):
            while True:
                with suppress(UserError):
                    return checked_spec(yard.loop.state, spec)
                await yard.loop.feed.change()
    return checked_spec(yard.loop.state, spec)


async def _ask_for_runtimes(yard: Yard, spec: JobSpec) -> None:
    """Ask machines for a container runtime, only where a job wants one and none is known."""
    asked = machines_for(yard.loop.state, spec)
    if not spec.container.on_machines or any(node.runtime for node in asked):
        return
    executors = [executor for node in asked if (executor := yard.loop.executor_of(node.id))]
    await asyncio.gather(*(executor.check(SubmittedJob(NO_ID, 0, spec)) for executor in executors))
    with suppress(TimeoutError):
        async with asyncio.timeout(RUNTIME_SECONDS):
            while not any(node.runtime for node in machines_for(yard.loop.state, spec)):
                await yard.loop.feed.change()
