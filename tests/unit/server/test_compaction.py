"""The journal does not grow for ever: a base is the whole state, and rows that no start needs are gone."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import Engine

from jobyard.engine import saved_state
from jobyard.engine.handling import handle
from jobyard.engine.yard_state import YardState
from jobyard.model.events import (
    AttemptsFinished,
    CancelRequested,
    Event,
    Finished,
    NodeJoined,
    RetryRequested,
    SlotClosed,
    SlotOpened,
    TasksAssigned,
)
from jobyard.model.job import State
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Outcome, Slot
from jobyard.server import compaction
from jobyard.server.compaction import compact
from jobyard.server.damages import Restored, why_read_only
from jobyard.server.database import open_database
from jobyard.server.history import History
from jobyard.server.journal import Journal
from jobyard.server.snapshots import Snapshots
from tests.builders import a_job, a_node, submitted
from tests.unit.server.running import a_yard

T = TypeVar("T")
EVERY = 10
SOON = 4_000_000_000.0  # later than any clock that runs this: nothing is too old


class Keeper:
    """A journal that is written by hand and compacted as the server does it, with a live state beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.engine: Engine = open_database(f"sqlite:///{directory / 'yard.db'}")
        self.journal, self.history = Journal(self.engine), History(self.engine)
        self.live = YardState()
        self.jobs = 0
        self.append(NodeJoined(a_node(), 1.0))

    def append(self, *events: Event) -> None:
        for event in events:
            handle(self.live, event)
        self.journal.append(events, 1.0, None)

    def add_jobs(self, count: int) -> None:
        """Each of them is three rows: it is submitted, runs, and has ended."""
        for _ in range(count):
            self.jobs += 1
            job, now = f"j{self.jobs}", SOON + self.jobs
            slot = Slot(str(self.jobs), job, 0, Placement("here", Resources(1000)))
            self.append(submitted(job, self.jobs, a_job(), now))
            self.append(SlotOpened(slot, now), TasksAssigned(slot.id, ((0, 0),), now))
            done = Outcome(now, now + 1, 0)
            self.append(AttemptsFinished((Finished(AttemptId(job, 0, 1), done),), now), SlotClosed(slot.id, now))

    def restore(self) -> Restored:
        return Snapshots(self.directory / "none", "build", "yard").restore(self.journal)

    def compact(self, unread_after: int = sys.maxsize) -> None:
        compact(self.journal, self.history, self.restore(), run, unread_after)

    def rows(self) -> list[int]:
        with sqlite3.connect(self.directory / "yard.db") as database:
            found = [seq for (seq,) in database.execute("select seq from journal order by seq")]
        database.close()
        return found

    def damage(self, row: int) -> None:
        with sqlite3.connect(self.directory / "yard.db") as database:
            database.execute("update journal set events = substr(events, 2) where seq = ?", (row,))
        database.close()


def run(work: Callable[[], T]) -> T:
    return work()


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    monkeypatch.setattr(compaction, "BASE_EVERY_ROWS", EVERY)
    monkeypatch.setattr(compaction, "_ROWS_AT_ONCE", 3)
    return Keeper(tmp_path)


def assert_whole(keeper: Keeper) -> None:
    restored = keeper.restore()
    assert saved_state.save(restored.state) == saved_state.save(keeper.live)
    assert not restored.damages


def test_a_start_needs_the_last_base_and_the_rows_after_it(keeper: Keeper) -> None:
    keeper.add_jobs(3)
    keeper.compact()
    assert keeper.journal.base_rows() == [(11, 10)]
    keeper.add_jobs(1)
    assert_whole(keeper)
    keeper.compact()  # too early for another
    assert len(keeper.journal.base_rows()) == 1
    with sqlite3.connect(keeper.directory / "yard.db") as database:
        database.execute("delete from journal where seq <= 10")
    database.close()
    assert_whole(keeper)


def test_rows_before_the_last_but_one_are_gone_and_the_events_begin_with_the_oldest(keeper: Keeper) -> None:
    for _ in range(4):
        keeper.add_jobs(4)
        keeper.compact()
    (last, covers), (before, until) = keeper.journal.base_rows()
    assert keeper.rows() == list(range(until + 1, last + 1))
    assert before in keeper.rows()
    assert_whole(keeper)
    seen = [seq for seq, _ in keeper.journal.read(0)]
    assert seen == keeper.rows()
    assert covers < last


def test_rows_that_somebody_has_yet_to_read_stay(keeper: Keeper) -> None:
    for _ in range(4):
        keeper.add_jobs(4)
        keeper.compact(unread_after=5)
    assert keeper.rows()[0] == 6
    assert_whole(keeper)
    keeper.add_jobs(4)
    keeper.compact()
    assert keeper.rows()[0] > 6


def test_a_damaged_base_costs_nothing_but_is_told(keeper: Keeper) -> None:
    for _ in range(3):
        keeper.add_jobs(4)
        keeper.compact()
    (last, _), _ = keeper.journal.base_rows()
    keeper.add_jobs(1)
    keeper.damage(last)
    restored = keeper.restore()
    assert saved_state.save(restored.state) == saved_state.save(keeper.live)
    assert [each.sentence for each in restored.damages] == [f"row {last}, a base, is damaged"]
    assert not why_read_only(restored.damages)
    keeper.journal.accept(last, "ada", 1.0)
    assert [each.is_accepted for each in keeper.restore().damages] == [True], "it need not be said at every start"
    keeper.add_jobs(4)
    keeper.compact()
    assert keeper.journal.base_rows()[0][0] > last, "and a new base takes its place"


def test_without_any_whole_base_the_yard_can_only_be_read(keeper: Keeper) -> None:
    for _ in range(3):
        keeper.add_jobs(4)
        keeper.compact()
    for row, _ in keeper.journal.base_rows():
        keeper.damage(row)
    assert "can only be read: journal rows 1 to" in why_read_only(keeper.restore().damages)


def test_no_base_is_written_over_a_damage_that_nobody_accepted(keeper: Keeper) -> None:
    keeper.add_jobs(5)
    keeper.damage(4)
    keeper.compact()
    assert not keeper.journal.base_rows()
    keeper.journal.accept(4, "ada", 1.0)
    keeper.compact()
    assert len(keeper.journal.base_rows()) == 1
    assert [(each.row, each.is_accepted) for each in keeper.restore().damages] == [(4, True)]


def test_a_snapshot_whose_rows_are_gone_is_ignored(keeper: Keeper) -> None:
    snapshots = Snapshots(keeper.directory / "snapshot.json", "build", "yard")
    keeper.add_jobs(1)
    snapshots.renew(keeper.journal)
    for _ in range(4):
        keeper.add_jobs(4)
        keeper.compact()
    restored = snapshots.restore(keeper.journal)
    assert saved_state.save(restored.state) == saved_state.save(keeper.live)
    assert not restored.damages


def test_jobs_that_ended_leave_a_line_without_their_secrets(keeper: Keeper) -> None:
    keeper.append(submitted("long", 100, a_job(env={"API_TOKEN": "hush"}), 1.0))
    keeper.add_jobs(4)
    keeper.append(CancelRequested("long", SOON))
    keeper.compact()
    past = {each.job: each for each in keeper.history.jobs()}
    assert set(past) == {"j1", "j2", "j3", "j4", "long"}
    assert (past["long"].state, past["long"].finished_at) == (State.CANCELLED, SOON)
    assert past["j2"].task_seconds == {"0": 1.0}
    assert past["j2"].groups[0].resources.cpu_millis == 1000
    keeper.engine.dispose()
    with sqlite3.connect(keeper.directory / "yard.db") as database:
        ((text,),) = database.execute("select group_concat(body) from history")
    database.close()
    assert "hush" not in text


def test_history_has_a_time_of_its_own(keeper: Keeper) -> None:
    keeper.add_jobs(4)
    keeper.compact()
    keeper.history.forget(before=SOON + 4)
    assert [each.job for each in keeper.history.jobs()] == ["j3", "j4"]
    assert set(keeper.live.jobs) == {"j1", "j2", "j3", "j4"}
    assert {row["job"] for row in keeper.history.new_of(keeper.live.jobs.values())} == {"j1", "j2"}


def test_what_ended_is_written_once_whenever_it_is_said_to_have_ended(keeper: Keeper) -> None:
    """Its node's clock may be years ahead, and word of an end may come late."""
    keeper.add_jobs(1)
    ended = keeper.live.jobs.values()
    keeper.history.write(keeper.history.new_of(ended))
    keeper.append(submitted("late", 100, a_job(), 1.0), CancelRequested("late", SOON / 2))
    assert {row["job"] for row in keeper.history.new_of(ended)} == {"late"}
    keeper.append(RetryRequested("late", ((0, 0),), SOON), CancelRequested("late", SOON + 1))
    keeper.history.write(keeper.history.new_of(ended))
    assert {each.job: each.finished_at for each in keeper.history.jobs()}["late"] == SOON + 1
    assert not keeper.history.new_of(ended)


async def test_a_running_server_writes_bases_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.server.recording.SNAPSHOT_EVERY_ROWS", 5)
    monkeypatch.setattr(compaction, "BASE_EVERY_ROWS", 5)
    async with a_yard(tmp_path) as yard:
        for _ in range(20):
            assert await yard.ended(await yard.submit("true")) is State.SUCCEEDED
        await yard.until(lambda: len(yard.journal.base_rows()) >= 2)
        wanted = json.loads(json.dumps(saved_state.save(yard.loop.state)))
    (tmp_path / "snapshot").unlink()
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    restored = Snapshots(tmp_path / "none", "build", "yard").restore(Journal(engine))
    found = saved_state.save(restored.state)
    assert [job["id"] for job in found["jobs"]] == [job["id"] for job in wanted["jobs"]]
    assert not restored.damages
    engine.dispose()
