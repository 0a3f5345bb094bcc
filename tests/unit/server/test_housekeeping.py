"""Do the files of forgotten jobs go, here and on machines, and never those of others?"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jobyard.engine.retention import RetentionRules
from jobyard.errors import NotFound, UserError
from jobyard.executors.fake import FakeExecutor, FakeMachine
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import Stored, YardView
from jobyard.model.effects import Effect, Forget
from jobyard.model.job import Dependency, State
from jobyard.server.finding import find_job
from jobyard.server.housekeeping import Housekeeping, rules_of
from jobyard.server.logs import open_log
from jobyard.server.removing import removable
from jobyard.server.rights import Caller, TokenKind
from jobyard.settings import KeepKnobs
from tests.unit.server.running import RunningYard, a_yard
from tests.waiting import PATIENCE_SECONDS

AS_ALWAYS = rules_of(KeepKnobs())
AT_ONCE = replace(AS_ALWAYS, seconds=0.0)


class StoringExecutor(FakeExecutor):
    """It says what it stores, and is asked to delete."""

    def __init__(self, machine: FakeMachine, yard: YardView) -> None:
        super().__init__("store", machine, yard)
        self.has = Stored([], [])
        self.asked: list[Forget] = []

    async def stored(self) -> Stored | None:
        return self.has

    def perform(self, effects: Sequence[Effect]) -> None:
        self.asked += [effect for effect in effects if isinstance(effect, Forget)]


def keeps(yard: RunningYard, rules: RetentionRules = AS_ALWAYS) -> Housekeeping:
    return Housekeeping(yard.loop, yard.directory, Mirror(yard.directory / "mirror"), rules)


def a_mirrored(yard: RunningYard, job: str) -> Path:
    path = yard.directory / "mirror" / "jobs" / job / "0" / "0.1.out"
    path.parent.mkdir(parents=True)
    path.write_text("output\n")
    return path


async def test_files_of_a_removed_job_go_also_when_the_server_died_before(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        gone, stays = await yard.submit("true"), await yard.submit("true")
        assert await yard.ended(gone) is await yard.ended(stays) is State.SUCCEEDED
        paths = [a_mirrored(yard, gone), a_mirrored(yard, stays), a_mirrored(yard, "0f0f0f0f")]
        assert await keeps(yard).remove([gone], "ada") == (gone,)
        number = yard.job(stays).number - 1
        with pytest.raises(NotFound, match=f"job {number} is gone"):
            find_job(yard.loop.state, str(number))
    async with a_yard(tmp_path, yard.machine) as yard:  # nothing was deleted by the one before
        assert gone not in yard.loop.state.jobs
        await keeps(yard).delete_forgotten()
        assert [path.exists() for path in paths] == [False, True, True], "of a job that is not known nothing goes"
        assert os.listdir(tmp_path / "mirror" / "trash") == []
        assert yard.job(await yard.submit("true")).number == 3


async def test_output_from_other_machines_is_packed_once_its_job_has_ended(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        over, runs = await yard.submit("true"), await yard.submit("sleep 60")
        await yard.ended(over)
        await yard.running(runs)
        paths = [a_mirrored(yard, over), a_mirrored(yard, runs), a_mirrored(yard, "0f0f0f0f")]
        await keeps(yard)._do_it()
        assert [path.exists() for path in paths] == [False, True, True]
        with open_log(paths[0]) as file:
            assert file.read() == b"output\n"


async def test_a_machine_deletes_what_belongs_to_forgotten_jobs_whenever_it_is_there(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        gone, stays = await yard.submit("true"), await yard.submit("true", snapshot="a" * 64)
        await yard.ended(gone)
        await yard.ended(stays)
        away = StoringExecutor(FakeMachine(tmp_path / "store"), yard.loop)
        away.has = Stored([gone, stays, "0f0f0f0f"], ["a" * 64, "b" * 64])
        housekeeping = keeps(yard)
        await housekeeping.remove([gone])
        await housekeeping.delete_forgotten()
        assert away.asked == []
        yard.loop._executors.add(away)
        await housekeeping.delete_forgotten()
        assert away.asked == [Forget("store", (gone,), ("b" * 64,))]


async def test_what_runs_is_refused_in_one_sentence_and_the_others_stay(tmp_path: Path) -> None:
    owner = Caller("ada")
    async with a_yard(tmp_path) as yard:
        ended, runs = await yard.submit("true"), await yard.submit("sleep 60")
        await yard.ended(ended)
        await yard.running(runs)
        with pytest.raises(UserError, match=r"^job 2 is RUNNING; end it first: yard cancel 2$"):
            removable(yard.loop.state, [ended, runs], owner)
        assert [job.id for job in removable(yard.loop.state, [ended, "1"], owner)] == [ended]
        with pytest.raises(UserError, match="was not submitted with the token of 'bob'"):
            removable(yard.loop.state, [ended], Caller("bob", "t1", TokenKind.MEMBER))
        assert await keeps(yard).remove([ended, runs]) == (ended,), "what was tried again meanwhile stays"
        await yard.cancel(runs, force=True)


async def test_by_itself_goes_what_is_too_old_and_never_what_runs_or_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.server.housekeeping.START_SECONDS", 0.0)
    async with a_yard(tmp_path) as yard:
        old, kept, needed = await yard.submit("true"), await yard.submit("true", keep=True), await yard.submit("true")
        for job in (old, kept, needed):
            await yard.ended(job)
        runs = await yard.submit("sleep 60")
        waits = await yard.submit("true", after=(Dependency(needed, False), Dependency(runs, False)))
        path = a_mirrored(yard, old)
        assert await keeps(yard).going() == []
        assert [each.job for each, _ in await keeps(yard, AT_ONCE).going()] == [old]
        os.utime(tmp_path / "stored.json", (1, 1))
        running = asyncio.create_task(keeps(yard, AT_ONCE).run())
        await yard.until(lambda: old not in yard.loop.state.jobs)
        assert set(yard.loop.state.jobs) == {kept, needed, runs, waits}
        async with asyncio.timeout(PATIENCE_SECONDS):
            while path.exists():
                await yard.loop.feed.moment()
        running.cancel()
        await yard.cancel(waits)
        await yard.cancel(runs, force=True)


async def test_a_server_that_follows_another_within_the_hour_does_not_look_again(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        assert keeps(yard)._due - time.monotonic() < 60
        await keeps(yard).going()
        assert keeps(yard)._due - time.monotonic() > 3000


async def test_results_that_nobody_fetched_are_announced_before_they_go(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("true", name="train")
        await yard.ended(job)
        path = tmp_path / "agent" / "jobs" / job / "0" / "0.1.output" / "model"
        path.parent.mkdir(parents=True)
        path.write_text("weights")
        far, near = keeps(yard, AT_ONCE), keeps(yard, replace(AT_ONCE, unfetched_seconds=7 * 86400.0))
        assert await far.going() == await near.going() == [], "nobody has fetched its results"
        assert far.kept is not None
        assert near.kept is not None
        assert (far.kept.jobs, far.kept.leaving, far.notes_on(job)) == (1, (), [])
        assert [(each.id, each.name) for each in near.kept.leaving] == [(job, "train")]
        (note,) = near.notes_on(job)
        assert "results that are only in the yard, and goes in" in note
        near.files.was_fetched(job)
        assert [each.job for each, _ in await near.going()] == [job]
