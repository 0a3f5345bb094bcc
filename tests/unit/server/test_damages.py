"""A row that is damaged holds its jobs, or makes the yard one to look at; it is never passed over in silence."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from jobyard.engine import invariants
from jobyard.engine.yard_state import YardState
from jobyard.errors import Bug, NotFound, Unwritable, UserError
from jobyard.executors.fake import FakeMachine
from jobyard.model.events import (
    AttemptsFinished,
    CancelRequested,
    Event,
    JobSubmitted,
    NodeDrained,
    SlotClosed,
    SlotOpened,
)
from jobyard.model.job import Reason, State
from jobyard.server.database import open_database
from jobyard.server.history import History
from jobyard.server.journal import Journal
from jobyard.server.loop import YardLoop
from jobyard.server.snapshots import Snapshots
from jobyard.server.views import reason_of_job
from tests.unit.server.running import a_batch, a_yard
from tests.waiting import PATIENCE_SECONDS


def damage(directory: Path, row: int) -> None:
    """One bit less, as a disk may do it."""
    (directory / "snapshot").unlink(missing_ok=True)  # it would know better
    with sqlite3.connect(directory / "yard.db") as database:
        database.execute("update journal set events = substr(events, 2) where seq = ?", (row,))
    database.close()


def row_of(engine: Engine, kind: type[Event], job: str) -> int:
    """The row in which this was written of a job."""
    for row in Journal(engine).rows():
        if row.jobs and job in row.jobs and any(isinstance(event, kind) for event in row.events):
            return row.seq
    raise AssertionError(f"no {kind.__name__} of {job}")


@pytest.mark.parametrize("kind", [JobSubmitted, SlotOpened, AttemptsFinished])
async def test_the_jobs_of_a_damaged_row_are_held_and_the_others_go_on(tmp_path: Path, kind: type[Event]) -> None:
    machine = FakeMachine(tmp_path / "machine")
    async with a_yard(tmp_path, machine) as yard:
        before = await yard.submit("true")
        await yard.ended(before)
        bad = await yard.submit("true")
        await yard.ended(bad)
        later = await yard.submit("sleep 0.3; exit 3")
        await yard.running(later)
        row = row_of(yard.engine, kind, bad)
    damage(tmp_path, row)
    async with a_yard(tmp_path, machine) as yard:
        assert [(each.row, each.sentence, each.jobs) for each in yard.loop.damages][:1] == [
            (row, f"row {row} is damaged", frozenset((bad,)))
        ]
        assert not yard.loop.read_only
        assert (yard.job(before).state, await yard.ended(later)) == (State.SUCCEEDED, State.FAILED)
        assert not yard.job(bad).is_final
        assert reason_of_job(yard.loop.planner, yard.job(bad))[0] is Reason.HELD
        assert [job.number for job in yard.loop.state.jobs.values()] == [1, 2, 3]
        assert await yard.ended(await yard.submit("true")) is State.SUCCEEDED
        invariants.check(yard.loop.state)
        yard.loop.save_snapshot()
        assert not (tmp_path / "snapshot").exists()  # the next server is to know as well
        await yard.cancel(bad)
        assert await yard.ended(bad) is State.CANCELLED
    async with a_yard(tmp_path, machine) as yard:
        assert yard.job(bad).is_final
        assert await yard.ended(await yard.submit("true")) is State.SUCCEEDED


async def test_a_row_of_the_whole_yard_makes_it_one_to_look_at_until_it_is_accepted(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path / "machine")
    async with a_yard(tmp_path, machine) as yard:
        job = await yard.submit("sleep 0.2")
        await yard.running(job)
        yard.loop.report([NodeDrained("elsewhere", 1.0)])
        await yard.until(lambda: "elsewhere" in yard.loop.state.places.drained)
        row = yard.loop.seq
    damage(tmp_path, row)
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    loop = YardLoop(Journal(engine), Snapshots(tmp_path / "snapshot", "build", "yard"), History(engine))
    assert f"yard doctor --accept {row}" in loop.read_only
    assert list(loop.state.jobs) == [job]
    assert await loop.has_node(3600.0)  # nobody is waited for who is not spoken to
    with pytest.raises(Unwritable, match=f"row {row} is damaged"):
        await loop.ask(lambda state, now: ((), None))
    with pytest.raises(NotFound, match="not damaged"):
        await loop.accept(row - 1, "ada")
    await loop.accept(row, "ada")
    assert not loop.read_only
    await loop.close()
    with engine.connect() as connection:
        told = connection.scalar(text("select value from facts where name like 'accepted row %'"))
    assert '"who": "ada"' in str(told)
    engine.dispose()
    async with a_yard(tmp_path, machine) as yard:
        assert [each.is_accepted for each in yard.loop.damages] == [True]
        assert await yard.ended(job) is State.SUCCEEDED


async def test_a_row_that_is_damaged_while_the_server_runs_stops_it_and_everybody_is_told(tmp_path: Path) -> None:
    def spoiling(state: YardState, now: float) -> tuple[Sequence[Event], None]:
        return [SlotClosed("none", now)], None  # the server goes back to what is on disk

    async with a_yard(tmp_path) as yard:
        yard.loop.report([NodeDrained("elsewhere", 1.0)])
        await yard.until(lambda: "elsewhere" in yard.loop.state.places.drained)
        job = await yard.submit("sleep 0.3")
        await yard.running(job)
        await yard.loop.journalled()
        row = next(each.seq for each in yard.journal.rows() if NodeDrained("elsewhere", 1.0) in each.events)
        damage(tmp_path, row)
        async with asyncio.timeout(PATIENCE_SECONDS):
            broken, waiting = await asyncio.gather(yard.loop.ask(spoiling), yard.submit("true"), return_exceptions=True)
        assert isinstance(broken, Bug)
        assert isinstance(waiting, Unwritable)
        assert f"yard doctor --accept {row}" in str(waiting)
        assert not tasks_of_executors()
        await yard.loop.accept(row, "ada")
        assert tasks_of_executors() == ["executor of here", "observe here"]
        assert await yard.ended(job) is State.SUCCEEDED
        assert await yard.ended(await yard.submit("true")) is State.SUCCEEDED
        yard.loop.save_snapshot()
        assert (tmp_path / "snapshot").exists()
    async with a_yard(tmp_path) as yard:  # a server that begins with the snapshot knows of it
        assert [(each.row, each.is_accepted) for each in yard.loop.damages] == [(row, True)]


def tasks_of_executors() -> list[str]:
    names = (task.get_name() for task in asyncio.all_tasks())
    return sorted(name for name in names if name.startswith(("executor of", "observe")))


def test_a_row_that_cannot_be_carried_out_holds_its_jobs(tmp_path: Path) -> None:
    journal = Journal(open_database(f"sqlite:///{tmp_path / 'yard.db'}"))
    journal.append([JobSubmitted("good", 1, a_batch("true"), 1.0)], 1.0, ["good"])
    journal.append([JobSubmitted("bad", 2, a_batch("true"), 1.0)], 1.0, ["bad"])
    journal.append([SlotClosed("7", 2.0), CancelRequested("good", 3.0)], 2.0, ["bad", "good"])
    journal.append([SlotClosed("8", 2.0)], 2.0, ["lost"])
    seq, state, damages = Snapshots(tmp_path / "none", "build", "yard").restore(journal)
    assert (seq, [(each.row, each.jobs) for each in damages]) == (
        4,
        [(3, frozenset(("bad", "good"))), (4, frozenset(("lost",)))],
    )
    assert "row 3 cannot be carried out (SlotClosed: KeyError('7'))" in state.quarantined["bad"]
    assert state.jobs["good"].state is State.CANCELLED  # what a user asked for ends it
    assert (state.jobs["lost"].number, state.jobs["lost"].spec.name) == (3, "(damaged)")


@pytest.mark.parametrize("trace", ["snapshot.json", "agent/jobs/ab", "mirror/x"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_database_that_is_gone_is_no_new_yard(tmp_path: Path, trace: str, is_there: bool) -> None:
    (tmp_path / trace).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / trace).write_text("something")
    path = tmp_path / "yard.db"
    if is_there:
        path.touch()
    told = f"is {'empty' if is_there else 'missing'}, but .* had jobs; put a copy of it back, or move"
    with pytest.raises(UserError, match=told):
        open_database(f"sqlite:///{path}")
    assert path.exists() is is_there


def test_a_database_of_a_newer_yard_is_refused_with_the_way_out(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    with engine.begin() as connection:
        connection.execute(text("update alembic_version set version_num = '9999'"))
    engine.dispose()
    with pytest.raises(UserError, match=r"newer yard .form 9999, ours .*; start it with that version"):
        open_database(f"sqlite:///{tmp_path / 'yard.db'}")
