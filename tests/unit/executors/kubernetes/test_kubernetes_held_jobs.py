"""Whose turn is it, and is no job looked at twice at once?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PATIENCE_SECONDS

from jobyard.errors import Unavailable
from jobyard.executors.kubernetes.held_job import HeldJob
from jobyard.executors.kubernetes.held_jobs import HeldJobs
from jobyard.executors.kubernetes.kinds import KINDS
from jobyard.executors.mirror import Mirror

Object = dict[str, Any]


def an_object(name: str, job: str, **metadata: Any) -> Object:
    return {"metadata": {"name": name, "labels": {"job": job}, **metadata}, "status": {}, "spec": {}}


def job_of(seen: Object) -> str:
    return str(seen["metadata"]["labels"]["job"])


@pytest.fixture
def jobs(tmp_path: Path) -> HeldJobs:
    return HeldJobs("k", Mirror(tmp_path), lambda events: None, job_of)


@asynccontextmanager
async def working(
    jobs: HeldJobs, reconcile: Callable[[HeldJob], Awaitable[None]], several: int = 2
) -> AsyncIterator[None]:
    workers = [asyncio.create_task(jobs.work(reconcile)) for _ in range(several)]
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


class Turns:
    """Reconciles a job when the test says so."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.may_end = asyncio.Semaphore(0)
        self.at_once = 0

    async def __call__(self, held: HeldJob) -> None:
        self.at_once += 1
        assert self.at_once == 1
        self.begun.put_nowait(held.id)
        await self.may_end.acquire()
        self.at_once -= 1


async def test_what_changes_while_a_job_is_reconciled_gives_it_one_more_turn(jobs: HeldJobs) -> None:
    turns = Turns()
    jobs.touch("a")
    jobs.touch("a")
    async with working(jobs, turns):
        assert await turns.begun.get() == "a"
        for _ in range(3):
            jobs.touch("a")
            await asyncio.sleep(0)
        assert not jobs.is_tidy
        turns.may_end.release()
        assert await turns.begun.get() == "a"
        turns.may_end.release()
        while not jobs.is_tidy:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert turns.begun.empty()


@pytest.mark.parametrize("error", [Unavailable("not now"), KeyError("a bug of ours")])
async def test_what_fails_is_tried_again_and_others_go_on(
    jobs: HeldJobs, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    reconciled: asyncio.Queue[str] = asyncio.Queue()
    errors = [error]

    async def reconcile(held: HeldJob) -> None:
        if held.id == "bad" and errors:
            raise errors.pop()
        reconciled.put_nowait(held.id)

    again = jobs.again
    monkeypatch.setattr(jobs, "again", lambda job_id: again(job_id, 0.0))
    jobs.touch("bad")
    jobs.touch("good")
    async with working(jobs, reconcile, several=1):
        assert [await reconciled.get(), await reconciled.get()] == ["good", "bad"]


def test_a_slot_that_opens_or_closes_makes_it_its_jobs_turn(jobs: HeldJobs) -> None:
    jobs.open("s1", "a")
    assert jobs._queued == {"a"}
    jobs._queued.clear()
    jobs.close("s1")
    jobs.close("unknown")
    assert jobs._queued == {"a"}


def test_everybody_is_who_has_an_object_or_an_open_slot(jobs: HeldJobs) -> None:
    jobs.of("a")
    jobs.open("s0", "gone")
    jobs._queued.clear()
    jobs.reopen({"s1": "b"})
    jobs.touch_all()
    assert jobs._queued == {"a", "b"}


def test_what_is_seen_goes_to_its_job_and_what_is_nobodys_to_none(jobs: HeldJobs) -> None:
    jobs.object_changed(KINDS["Job"], an_object("o1", "a"), False)
    jobs.object_changed(KINDS["Job"], an_object("o2", ""), False)
    assert ([held.id for held in jobs], "a" in jobs, "" in jobs) == (["a"], True, False)
    assert list(jobs.of("a").observed.objects) == ["o1"]


def test_a_workload_belongs_to_the_job_of_its_owner(jobs: HeldJobs) -> None:
    jobs.object_changed(KINDS["Job"], an_object("o1", "a"), False)
    jobs.object_changed(KINDS["Job"], an_object("o2", "b"), False)
    jobs._queued.clear()
    jobs.workload_changed(an_object("w", "", ownerReferences=[{"name": "o2"}]), False)
    assert jobs._queued == {"b"}


def test_who_is_let_go_is_held_no_longer(jobs: HeldJobs) -> None:
    first = jobs.of("a")
    assert jobs.of("a") is first
    jobs.let_go("a")
    jobs.let_go("a")
    assert "a" not in jobs
