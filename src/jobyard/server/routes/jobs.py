"""GET /jobs...: lists, one job, its tasks, and a stream of its changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response

from jobyard.errors import NotFound, UserError
from jobyard.model.job import State
from jobyard.model.limits import NAME_MOST, PAGE_MOST
from jobyard.server import queries
from jobyard.server.declarations import EventStream, answers
from jobyard.server.limits import VIEWS_AT_ONCE
from jobyard.server.routes.answers import COUNT_MOST, Selector, Tasks, answer, event, event_stream, yard_of
from jobyard.server.yard import Yard
from jobyard.wire.requests import TOTAL
from jobyard.wire.views import JobView, TaskView

router = APIRouter()
T = TypeVar("T")
Count = Annotated[int, Query(ge=0, le=COUNT_MOST)]
LAST_LINES_MOST = 100
WATCH_SECONDS = 0.1  # at most ten views a second
NEXT = "Yard-Next"  # the header of a page that is not the last: what to ask for the next one with


def _states(text: str) -> list[State]:
    try:
        return [State(part.strip().upper()) for part in text.split(",")] if text else []
    except ValueError:
        known = ", ".join(state.lower() for state in State)
        raise UserError(f"state {text!r} is unknown; known: {known}") from None


@router.get("/jobs")
@answers(list[JobView])
async def list_jobs(
    request: Request,
    all: bool = False,
    state: str = "",
    limit: Count = PAGE_MOST,
    user: str = "",
    unfinished: bool = False,
    before: Annotated[int | None, Query(ge=0, le=COUNT_MOST)] = None,
    name: Annotated[str, Query(max_length=NAME_MOST)] = "",
    since: Annotated[float, Query(ge=0, allow_inf_nan=False)] = 0.0,
) -> Response:
    """A page of at most 1000, the newest first. Where there are more, `Yard-Next` is the `before` of the next page.

    By number and not by position: jobs that come meanwhile move nothing. `Yard-Total` counts all that are wanted.
    """
    yard = yard_of(request)
    wanted = set(_states(state))
    is_asked = all or unfinished or bool(wanted) or bool(name) or since > 0
    filter = queries.JobFilter(wanted, user, unfinished, is_asked, name, since)
    with yard.lifetime.request():
        page = queries.job_page(yard.loop, filter, before, min(limit, PAGE_MOST))
        headers = {TOTAL: str(page.total)}
        return await _page(page.jobs, lambda job: queries.shown_in_list(yard.loop, job), page.next_before, headers)


async def _page(
    items: Sequence[T], view: Callable[[T], Any], more: int | None, headers: Mapping[str, str] = MappingProxyType({})
) -> Response:
    """Made in portions, and written as JSON in a thread: a long list does not block other requests."""
    views = []
    for index, item in enumerate(items, 1):
        views.append(view(item))
        if index % VIEWS_AT_ONCE == 0:
            await asyncio.sleep(0)
    following = {} if more is None else {NEXT: str(more)}
    return await asyncio.to_thread(answer, views, 200, {**headers, **following})


@router.get("/jobs/{selector}")
@answers(JobView)
async def show_job(request: Request, selector: Selector, live: bool = False) -> Response:
    """`live`: select as for a change, where a name means the job that has not ended."""
    yard = yard_of(request)
    with yard.lifetime.request():
        view = queries.shown_job(yard.loop, selector, live=live)
        return answer(replace(_with_missing(yard, view), notes=(*view.notes, *yard.housekeeping.notes_on(view.id))))


def _with_missing(yard: Yard, view: JobView) -> JobView:
    """With what is missing of the files of its output."""
    return replace(view, not_written=yard.output_files.missing(view.id))


@router.get("/jobs/{selector}/tasks")
@answers(list[TaskView])
async def list_tasks(
    request: Request,
    selector: Selector,
    state: str = "",
    limit: Count = 100,
    offset: Count = 0,
    last_line: bool = False,
    task: Tasks = "",
    paths: bool = False,
) -> Response:
    """A page of at most 1000. Where there are more, `Yard-Next` is the `offset` of the next page.

    `last_line`: also what each wrote last; a page has at most 100 then, for each is a file to read. `task`: only these,
    as in `3,7-9`. `paths`: also which files of the server have their output.
    """
    yard = yard_of(request)
    with yard.lifetime.request():
        job = queries.submitted_job(yard.loop, selector).id
        limit = min(limit, LAST_LINES_MOST if last_line else PAGE_MOST)
        numbers = queries.task_numbers(yard.loop, job, _states(state), limit + 1, offset, task)
        more = offset + limit if limit and len(numbers) > limit else None
        shown = partial(queries.shown_task, yard.loop, job, with_last_line=last_line, with_paths=paths)
        return await _page(numbers[:limit], shown, more)


@router.get("/jobs/{selector}/watch")
@answers(EventStream(JobView))
async def watch_job(request: Request, selector: Selector) -> Response:
    yard = yard_of(request)
    job_id = queries.submitted_job(yard.loop, selector).id

    async def changes() -> AsyncGenerator[str, None]:
        before = ""
        while True:
            change = asyncio.ensure_future(yard.loop.feed.change())
            try:
                try:
                    view = queries.shown_job(yard.loop, job_id)
                except NotFound:  # removed as soon as it had ended
                    return
                if view.state.is_final:
                    view = replace(view, not_written=await yard.output_files.written(job_id))
                message = event("job", view)
                if message != before:
                    yield message
                    before = message
                if view.state.is_final:
                    return
                await change
            finally:
                change.cancel()
            await _pause(yard, job_id)

    return event_stream(yard, changes())


async def _pause(yard: Yard, job_id: str) -> None:
    """Between two views, at most ten a second; the view of a job that has ended is sent at once."""
    with suppress(TimeoutError):
        async with asyncio.timeout(WATCH_SECONDS):
            while not queries.has_ended(yard.loop, job_id):
                await yard.loop.feed.change()
