"""POST /jobs: submit, or look at what submitting would do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from fastapi import APIRouter, Request, Response

from jobyard.errors import Unavailable
from jobyard.server.commands import checked_spec, submit
from jobyard.server.dry_run import dry_run
from jobyard.server.routes.shared import answer, body_of, caller_of, selected, view_of, yard_of
from jobyard.server.sending import may_travel, with_its_tree
from jobyard.wire.requests import API, SubmitJob

router = APIRouter()
NODE_SECONDS = 20.0


@router.post("/jobs", status_code=201)
async def submit_job(request: Request) -> Response:
    yard = yard_of(request)
    asked = await body_of(SubmitJob, request)
    asked = replace(asked, spec=replace(asked.spec, user=caller_of(request)))
    with yard.lifetime.request():
        if not await yard.loop.has_node(NODE_SECONDS):
            problems = "; ".join(executor.status().problem for executor in yard.loop.executors)
            raise Unavailable(f"the yard has no node yet: {problems or 'the agent does not answer'}")
        if asked.dry_run:
            return answer(dry_run(yard.loop, asked))
        if may_travel(yard.loop.state, asked.spec):
            checked_spec(yard.loop.state, asked.spec)  # before a large tree is read for nothing
            spec = await asyncio.to_thread(with_its_tree, asked.spec, Path(yard.directory))
            asked = replace(asked, spec=spec)
        job_id = await yard.loop.ask(submit(asked))
        view = view_of(yard, selected(yard, job_id))
        return answer(view, 201, {"Location": f"{API}/jobs/{job_id}"})
