"""The journal keeps what it acknowledged, whole batches only, and its tables are those that Alembic makes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, event, insert, inspect, text
from sqlalchemy.exc import DatabaseError, OperationalError

from jobyard.errors import Bug, UserError
from jobyard.model.events import (
    AttemptsFinished,
    AttemptsProgressed,
    AttemptsStarted,
    AttemptsWithdrawn,
    CancelRequested,
    ClusterAdded,
    ClusterRemoved,
    DeadlinePassed,
    Event,
    Finished,
    JobAnnotated,
    JobQuarantined,
    JobsForgotten,
    JobSized,
    JobSubmitted,
    NodeAdded,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    NodeResumed,
    NodeWentAway,
    PriorityChanged,
    Progressed,
    RetryDelayPassed,
    RetryRequested,
    ScaleRequested,
    SlotClosed,
    SlotMoved,
    SlotOpened,
    SlotReserved,
    Started,
    TasksAssigned,
    UseMeasured,
    YieldRequested,
)
from jobyard.model.job import Dependency, Reason
from jobyard.model.node import ClusterConfig, NodeConfig, Taint
from jobyard.model.resources import DeviceSlice, Placement, Resources
from jobyard.model.task import AttemptId, Outcome, Slot
from jobyard.model.training import Elastic, Epoch, Progress, Size, Training
from jobyard.server import database, schema
from jobyard.server.checksums import jobs_column, row_checksum
from jobyard.server.database import migrate, open_database, opened
from jobyard.server.journal import KINDS, VERSION, Journal
from jobyard.server.schema import HEAD, metadata
from tests.builders import a_node
from tests.unit.server.running import a_batch, an_array

SLOT = Slot("1", "ab", 0, Placement("here", Resources(500, 1024, 1, 2048), (DeviceSlice(0, 2048),)), replica=2)
ATTEMPT = AttemptId("ab", 3, 2)
PROGRESS = Progress(3, 9, 100, 0.5, can_yield=True, metrics={"loss": 0.25}, history=(Epoch(1, 2.5, 10, {"a": 1.0}),))
EVENTS: list[Event] = [
    NodeJoined(a_node(gpus=2), 1.5),
    JobSubmitted("ab", 1, a_batch("echo ä\u2028", "true", after=(Dependency("x", False),), env={"K": "V"}), 2.0, "key"),
    JobSubmitted("cd", 2, an_array("echo", 5, gang=True), 2.5),
    SlotOpened(SLOT, 3.0),
    TasksAssigned("1", ((0, 3), (7, 7)), 3.0),
    AttemptsStarted((Started(ATTEMPT, 4.25), Started(ATTEMPT, 4.25, "job-ab-a2-3-x7k2p")), 4.5),
    AttemptsFinished((Finished(ATTEMPT, Outcome(4.25, 5.0, None, 9, Reason.OUT_OF_MEMORY, "oh", 12, 34)),), 5.0),
    AttemptsWithdrawn((ATTEMPT,), 6.0, "given back"),
    CancelRequested("ab", 7.0, (1, 2), True, "enough"),
    RetryRequested("ab", ((0, 1),), 8.0),
    DeadlinePassed("ab", 9.0),
    RetryDelayPassed("ab", 9.25),
    PriorityChanged("ab", -3, 9.5),
    JobAnnotated("ab", {"some.where/name": "value", "gone": None}, 9.6),
    JobQuarantined("ab", 9.75, "row 3 is damaged"),
    JobsForgotten(("ab", "cd"), 9.8, "ada"),
    SlotClosed("1", 10.0),
    NodeLost("here", 11.0, "gone"),
    NodeAdded(NodeConfig("there", "there.example", "ada", 2222, "~/.ssh/id", ("big",)), 12.0),
    NodeDrained("there", 13.0),
    NodeResumed("there", 14.0),
    NodeWentAway("there", 15.0, "no route"),
    NodeRemoved("there", 16.0),
    AttemptsProgressed((Progressed(ATTEMPT, PROGRESS),), 17.0),
    AttemptsFinished((Finished(ATTEMPT, Outcome(4.25, 5.0, 85, reason=Reason.PREEMPTED, progress=PROGRESS)),), 17.5),
    YieldRequested("ab", Reason.RESIZING, "room", 18.0, Size(2, 4), to_the_back=True),
    YieldRequested("ab", Reason.RESIZING, "more", 18.0, stops_for="cd", claim=(Placement("here", Resources(1000)),)),
    UseMeasured("ab", 100, 2000, None, 18.5),
    ScaleRequested("ab", Size(1, 2), 19.0),
    ScaleRequested("ab", None, 19.5),
    JobSized("ab", Size(2, 4), 20.0),
    SlotReserved("1", SLOT.placement, 21.0),
    JobSubmitted("ef", 3, an_array("echo", 1, training=Training(5), elastic=Elastic((1, 8), (1, 4))), 22.0),
    ClusterAdded(ClusterConfig("prod", "~/.kube/config", "admin@prod", "team", "results", "queue"), 23.0),
    NodeJoined(replace(a_node("prod/n1"), taints=(Taint("gpu", "yes", "NoExecute"),), is_queue=True), 23.5),
    SlotMoved("1", "prod/n2", 24.0),
    ClusterRemoved("prod", 25.0),
]


def a_journal(path: Path) -> Journal:
    return Journal(open_database(f"sqlite:///{path / 'yard.db'}"))


def test_every_kind_of_event_comes_back_as_it_was(tmp_path: Path) -> None:
    assert {type(item).__name__ for item in EVENTS} == {name for name, kind in KINDS.items() if not kind.ephemeral}
    journal = a_journal(tmp_path)
    journal.append(EVENTS[:5], 1.0)
    last = journal.append(EVENTS[5:], 2.0)
    (_, first), (seq, second) = a_journal(tmp_path).read()
    assert first + second == EVENTS
    assert seq == last


def test_reading_goes_on_after_a_row(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    numbers = [journal.append([event], 0.0) for event in EVENTS]
    assert [seq for seq, _ in journal.read(after=numbers[9])] == numbers[10:]


def test_a_failed_commit_leaves_nothing(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    journal = Journal(engine)
    journal.append(EVENTS[:1], 0.0)

    def fail(_connection: object) -> None:
        raise OperationalError("COMMIT", {}, Exception("disk I/O error"))

    event.listen(engine, "commit", fail)
    with pytest.raises(DatabaseError):
        journal.append(EVENTS, 0.0)
    event.remove(engine, "commit", fail)
    assert [batch for _, batch in journal.read()] == [EVENTS[:1]]


@pytest.mark.parametrize("lost_bytes", [1, 100, 4096])
def test_a_torn_commit_is_lost_whole_and_what_came_before_stays(tmp_path: Path, lost_bytes: int) -> None:
    """As a power cut leaves it: the last pages of the write-ahead log never reached the disk."""
    journal = a_journal(tmp_path)
    journal.append(EVENTS[:2], 0.0)
    journal.append(EVENTS, 0.0)
    torn = tmp_path / "torn"
    torn.mkdir()
    for name in ("yard.db", "yard.db-wal"):
        shutil.copy(tmp_path / name, torn / name)
    with (torn / "yard.db-wal").open("r+b") as log:
        log.truncate((torn / "yard.db-wal").stat().st_size - lost_bytes)
    batches = [batch for _, batch in a_journal(torn).read()]
    assert batches[0] == EVENTS[:2]
    assert batches[1:] in ([], [EVENTS])


def test_commits_survive_a_power_cut(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    with engine.connect() as connection:
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
        assert connection.scalar(text("PRAGMA synchronous")) == 2  # FULL


def test_a_fact_is_written_once(tmp_path: Path) -> None:
    assert a_journal(tmp_path).fact("yard_id", "first") == "first"
    assert a_journal(tmp_path).fact("yard_id", "second") == "first"


def test_the_newest_form_is_alembics_head() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(database.__file__).with_name("migrations")))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_migrating_leads_to_the_tables_of_a_new_yard(tmp_path: Path) -> None:
    migrated = create_engine(f"sqlite:///{tmp_path / 'migrated.db'}")
    with migrated.begin() as connection:
        migrate(connection)
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    fresh = open_database(f"sqlite:///{tmp_path / 'fresh.db'}")
    shapes = []
    for engine in (migrated, fresh):
        found = inspect(engine)
        shapes.append(
            {
                table: (
                    [(c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(table)],
                    found.get_pk_constraint(table)["constrained_columns"],
                    [constraint["column_names"] for constraint in found.get_unique_constraints(table)],
                )
                for table in found.get_table_names()
            }
        )
    assert shapes[0] == shapes[1]
    Journal(migrated).append(EVENTS, 0.0)
    migrated.dispose()
    assert [batch for _, batch in Journal(open_database(f"sqlite:///{tmp_path / 'migrated.db'}")).read()] == [EVENTS]


@pytest.mark.parametrize("harm", ["replace(events, 'NodeJoined', 'NodeJoines')", "cast(x'5bff' as text)", "x'00'", "7"])
def test_a_damaged_row_is_found_and_names_the_jobs_it_concerns(tmp_path: Path, harm: str) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    journal = Journal(engine)
    journal.append(EVENTS[:1], 1.0, ["ab", "cd"])
    journal.append(EVENTS[:2], 2.0, ["ef"])
    with engine.begin() as connection:
        connection.execute(text(f"update journal set events = {harm} where seq = 1"))
    first, second = journal.rows()
    assert (first.damage, first.events, first.jobs) == ("row 1 is damaged", [], frozenset(("ab", "cd")))
    assert (second.damage, second.events) == ("", EVENTS[:2])
    with pytest.raises(Bug, match="row 1 is damaged"):
        list(journal.read())
    assert [seq for seq, _ in journal.read(after=1)] == [2]


@pytest.mark.parametrize("column", ["at = at + 1", "version = 0", "checksum = ''", "covers = 0"])
def test_a_row_is_checked_whole(tmp_path: Path, column: str) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    Journal(engine).append(EVENTS, 1.0)
    with engine.begin() as connection:
        connection.execute(text(f"update journal set {column}"))
    (row,) = Journal(engine).rows()
    assert row.damage == "row 1 is damaged"


def test_a_base_that_says_that_it_is_none_is_damaged(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    Journal(engine).append(EVENTS, 1.0)
    Journal(engine).append_base(1, {}, 2.0)
    with engine.begin() as connection:
        connection.execute(text("update journal set covers = case seq when 1 then 0 end"))
    assert [row.damage for row in Journal(engine).rows()] == ["row 1 is damaged", "row 2 is damaged"]
    (base,) = Journal(engine).bases()
    assert base.damage == "row 1 is damaged: it says that it is a base"


def test_which_jobs_a_row_concerns_has_a_checksum_of_its_own(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    Journal(engine).append(EVENTS, 1.0, ["ab"])
    with engine.begin() as connection:
        connection.execute(text("update journal set jobs = replace(jobs, 'ab', 'ac')"))
    assert [row.jobs for row in Journal(engine).rows()] == [None]


def test_rows_that_are_missing_are_told(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    journal = Journal(engine)
    for item in EVENTS[:6]:
        journal.append([item], 1.0)
    with engine.begin() as connection:
        connection.execute(text("delete from journal where seq in (2, 4, 5)"))
    assert [(row.seq, row.damage) for row in journal.rows() if row.damage] == [
        (2, "row 2 is missing"),
        (5, "rows 4 to 5 are missing"),
    ]


@pytest.mark.parametrize(
    ("version", "body", "told"),
    [
        (VERSION - 1, "[]", r"of an older yard \(its format is 1, ours 2"),
        (VERSION + 1, "[]", r"of a newer yard \(its format is 3, ours 2"),
        (VERSION, '[["JobPraised", {}]]', "of a newer yard .*no event 'JobPraised' is known here"),
        (VERSION, '[["NodeLost", {"node": "n", "at": 1.0, "by": "x"}]]', "of a newer yard .*unknown field 'by'"),
    ],
)
def test_a_row_of_another_yard_is_refused_with_the_way_out(tmp_path: Path, version: int, body: str, told: str) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    values = {"at": 1.0, "version": version, "events": body}
    stamp = {"checksum": row_checksum(version, 1.0, body), "jobs": jobs_column(None)}
    with engine.begin() as connection:
        connection.execute(insert(schema.journal).values(**values, **stamp))
    with pytest.raises(UserError, match=f"row 1 {told}.*; start it with that version"):
        list(Journal(engine).rows())


def test_rows_from_before_checksums_are_stamped_as_they_are(tmp_path: Path) -> None:
    old = create_engine(f"sqlite:///{tmp_path / 'yard.db'}")
    with old.begin() as connection:
        migrate(connection, "0001")
        body = json.dumps([["NodeLost", {"node": "n", "at": 1.0}]])
        rows = [{"at": float(n), "version": VERSION, "events": body} for n in range(2500)]
        connection.execute(text("insert into journal (at, version, events) values (:at, :version, :events)"), rows)
    old.dispose()
    found = list(a_journal(tmp_path).rows())
    assert len(found) == 2500
    assert all((row.damage, row.events, row.jobs) == ("", [NodeLost("n", 1.0)], None) for row in found)


def test_tables_with_older_rows_are_left_as_they_are(tmp_path: Path) -> None:
    old = create_engine(f"sqlite:///{tmp_path / 'yard.db'}")
    with old.begin() as connection:
        migrate(connection, "0003")
        connection.execute(
            text("insert into journal (at, version, events, checksum, jobs) values (1.0, 1, '[]', :checksum, '')"),
            {"checksum": row_checksum(1, 1.0, "[]")},
        )
    with pytest.raises(UserError, match="of an older yard"):
        a_journal(tmp_path)
    with old.connect() as connection:
        assert connection.scalar(text("select version_num from alembic_version")) == "0003"
    old.dispose()


NEWER_FORM = "update alembic_version set version_num = '9999'"
NEWER_EVENT = """[["JobPraised", {}]]"""


@pytest.mark.parametrize("is_crashed", [True, False])
@pytest.mark.parametrize(
    ("version", "events", "change", "told"),
    [
        (VERSION - 1, "[]", "select 1", "older yard"),
        (VERSION + 1, "[]", "select 1", "newer yard"),
        (VERSION, NEWER_EVENT, "select 1", "newer yard"),
        (VERSION, "[]", NEWER_FORM, "newer yard"),
    ],
)
def test_what_is_refused_stays_as_it_was(
    tmp_path: Path, version: int, events: str, change: str, told: str, is_crashed: bool
) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    Journal(engine).append(EVENTS, 0.0)
    with engine.connect() as connection:
        connection.exec_driver_sql("pragma wal_checkpoint")  # so that the rest is in the WAL alone
    with engine.begin() as connection:
        row = {"at": 1.0, "version": version, "events": events, "checksum": row_checksum(version, 1.0, events)}
        connection.execute(insert(schema.journal).values(**row, jobs=jobs_column(None)))
        connection.execute(text(change))
    if not is_crashed:
        engine.dispose()
    left = tmp_path / "left"
    left.mkdir()
    for path in tmp_path.glob("yard.db*"):
        shutil.copy(path, left)
    (left / "yard.db-shm").unlink(missing_ok=True)  # SQLite makes it anew
    before = {path.name: path.read_bytes() for path in left.iterdir()}
    assert len(before) == (2 if is_crashed else 1)
    with pytest.raises(UserError, match=told), opened(f"sqlite:///{left / 'yard.db'}") as found:
        list(Journal(found).rows())
    assert {path.name: path.read_bytes() for path in left.iterdir()} == before


def test_the_version_of_a_damaged_row_says_nothing(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    Journal(engine).append(EVENTS, 0.0)
    with engine.begin() as connection:
        connection.execute(text("update journal set version = 77"))
    engine.dispose()
    assert [row.damage for row in a_journal(tmp_path).rows()] == ["row 1 is damaged"]


def test_opening_twice_changes_nothing(tmp_path: Path) -> None:
    a_journal(tmp_path).append(EVENTS, 0.0)
    assert len(list(a_journal(tmp_path).read())) == 1


def test_a_file_that_is_no_database_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "yard.db").write_bytes(b"nonsense" * 200)
    with pytest.raises(UserError, match=r"yard\.db cannot be opened"):
        a_journal(tmp_path)


def test_a_database_that_is_not_supported_is_named() -> None:
    with pytest.raises(UserError, match="mysql"):
        open_database("mysql://root:geheim@host/db")
