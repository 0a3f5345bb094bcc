"""Many jobs are cancelled in one step."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from jobyard.engine import planner as planning
from jobyard.errors import NotFound, UserError
from jobyard.model.job import State
from jobyard.model.limits import PAGE_MOST
from jobyard.scheduling.cycle import plan
from jobyard.server.routes.cancel import cancel_jobs
from jobyard.wire.reading import read
from jobyard.wire.requests import CancelJobs
from tests.unit.server.running import a_request, a_yard


async def test_many_jobs_end_in_one_row_of_the_journal_and_are_planned_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_yard(tmp_path) as yard:
        jobs = [await yard.submit("sleep 60", cpus=4) for _ in range(30)]
        await yard.running(jobs[0])
        running = [job for job in jobs if yard.job(job).state is not State.PENDING]
        waiting = [job for job in jobs if job not in running]
        before, planned = yard.loop.seq, Mock(side_effect=plan)
        monkeypatch.setattr(planning, "plan", planned)
        answer = await cancel_jobs(a_request(yard), CancelJobs((*waiting, waiting[0])))
        assert {view["id"]: view["state"] for view in json.loads(bytes(answer.body))} == dict.fromkeys(
            waiting, State.CANCELLED
        )
        assert planned.call_count == 1
        assert yard.loop.seq == before + 1
        assert len(yard.loop.state.unfinished) == len(running) > 0
        await cancel_jobs(a_request(yard), CancelJobs(tuple(jobs), force=True))
        for job in running:
            assert await yard.ended(job) is State.CANCELLED


async def test_none_is_cancelled_where_one_is_not_known(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("sleep 60")
        with pytest.raises(NotFound, match="nojob"):
            await cancel_jobs(a_request(yard), CancelJobs((job, "nojob")))
        assert yard.job(job).stop is None
        await yard.cancel(job, force=True)


def body_of(jobs: int) -> bytes:
    return json.dumps({"jobs": ["job"] * jobs}).encode()


def test_no_more_jobs_are_cancelled_in_one_request_than_a_page_has() -> None:
    assert len(read(CancelJobs, body_of(PAGE_MOST)).jobs) == PAGE_MOST
    with pytest.raises(UserError, match=rf"^CancelJobs.jobs: {PAGE_MOST + 1} items; give at most {PAGE_MOST}$"):
        read(CancelJobs, body_of(PAGE_MOST + 1))
