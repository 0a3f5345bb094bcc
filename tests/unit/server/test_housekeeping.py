"""Do the files of forgotten jobs go, here and on machines, and never those of others?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from jobyard.errors import NotFound, UserError
from jobyard.executors.fake import FakeExecutor, FakeMachine
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import Stored, YardView
from jobyard.model.effects import Effect, Forget
from jobyard.model.job import State
from jobyard.server.finding import find_job
from jobyard.server.housekeeping import Housekeeping
from jobyard.server.removing import removable
from jobyard.server.rights import Caller, TokenKind
from tests.unit.server.running import RunningYard, a_yard


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


def keeps(yard: RunningYard) -> Housekeeping:
    return Housekeeping(yard.loop, yard.directory, Mirror(yard.directory / "mirror"))


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
        await keeps(yard).sweep()
        assert [path.exists() for path in paths] == [False, True, True], "of a job that is not known nothing goes"
        assert os.listdir(tmp_path / "mirror" / "trash") == []
        assert yard.job(await yard.submit("true")).number == 3


async def test_a_machine_deletes_what_belongs_to_forgotten_jobs_whenever_it_is_there(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        gone, stays = await yard.submit("true"), await yard.submit("true", snapshot="a" * 64)
        await yard.ended(gone)
        await yard.ended(stays)
        away = StoringExecutor(FakeMachine(tmp_path / "store"), yard.loop)
        away.has = Stored([gone, stays, "0f0f0f0f"], ["a" * 64, "b" * 64])
        housekeeping = keeps(yard)
        await housekeeping.remove([gone])
        await housekeeping.sweep()
        assert away.asked == []
        yard.loop._executors.add(away)
        await housekeeping.sweep()
        assert away.asked == [Forget("store", (gone,), ("b" * 64,))]


async def test_what_runs_is_refused_in_one_sentence_and_the_others_stay(tmp_path: Path) -> None:
    owner = Caller("ada")
    async with a_yard(tmp_path) as yard:
        ended, runs = await yard.submit("true"), await yard.submit("sleep 60")
        await yard.ended(ended)
        await yard.running(runs)
        with pytest.raises(UserError, match=f"^job {runs} is RUNNING; end it first: yard cancel {runs}$"):
            removable(yard.loop.state, [ended, runs], owner)
        assert [job.id for job in removable(yard.loop.state, [ended, "1"], owner)] == [ended]
        with pytest.raises(UserError, match="was not submitted with the token of 'bob'"):
            removable(yard.loop.state, [ended], Caller("bob", "t1", TokenKind.MEMBER))
        assert await keeps(yard).remove([ended, runs]) == (ended,), "what was tried again meanwhile stays"
        await yard.cancel(runs, force=True)
