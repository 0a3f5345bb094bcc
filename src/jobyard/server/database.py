"""Database: how is it opened? SQLite in WAL mode with full syncs; new ones directly, older ones through Alembic."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, insert, inspect, select
from sqlalchemy.exc import DatabaseError

from jobyard.errors import UserError
from jobyard.server.journal import refuse_other_versions
from jobyard.server.schema import HEAD, alembic_version, metadata

_MIGRATIONS = Path(__file__).with_name("migrations")


def open_database(url: str) -> Engine:
    """An engine on a database of the newest form. Raises UserError with a sentence where that cannot be."""
    with opened(url) as engine:
        return engine


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    """As `open_database`. Where it is refused, here or inside the `with`, the file and its WAL stay as they were."""
    if not url.startswith("sqlite:"):
        raise UserError(f"database {url.split(':')[0]!r} is not supported yet; leave --db out to use SQLite")
    path = Path(url.removeprefix("sqlite:///"))
    _refuse_lost(path)
    _keep_private(str(path))
    engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": 30})
    event.listen(engine, "connect", _read_any_text)
    event.listen(engine, "connect", _set_pragmas)
    try:
        with _unchanged_if_refused(path, engine) as reader:
            _refuse_other_forms(reader)
            with engine.begin() as connection:
                _bring_up_to_date(connection)
            yield engine
    except DatabaseError as error:
        raise _unreadable(path, error) from error


@contextmanager
def _unchanged_if_refused(path: Path, engine: Engine) -> Iterator[Connection]:
    """A connection that can only read. Nobody else is the last one to close meanwhile, which would write the WAL back.

    It makes an empty WAL and the WAL's index where there are none: they go with it.
    """
    address = f"{path.absolute().as_uri()}?mode=ro"
    wal, index = (path.with_name(f"{path.name}-{side}") for side in ("wal", "shm"))
    made = [each for each in (wal, index) if not each.exists()]
    reading = create_engine("sqlite://", creator=lambda: sqlite3.connect(address, uri=True), poolclass=NullPool)
    event.listen(reading, "connect", _read_any_text)
    try:
        with reading.connect() as reader:
            try:
                yield reader
            except BaseException:
                engine.dispose()
                raise
    except BaseException:
        for each in made:
            if each.exists() and (each == index or not each.stat().st_size):  # never what somebody has written
                each.unlink()
        raise


def _unreadable(path: Path, error: DatabaseError) -> UserError:
    """A sentence for a damaged page or a foreign file: what is wrong with it, and what to do."""
    way_out = f"put a copy of it back, or mend it: sqlite3 {path} .recover | sqlite3 NEW, and put NEW in its place"
    return UserError(f"the yard's database {path} cannot be opened: {error.orig}; {way_out}")


# Files that a used yard has beside its database.
_TRACES = ("snapshot.json", "snapshot.pickle", "agent/jobs", "mirror")


def _refuse_lost(path: Path) -> None:
    """A yard whose database is lost must not look like a new yard."""
    if any(each.exists() and each.stat().st_size for each in (path, path.with_name(f"{path.name}-wal"))):
        return
    for trace in (path.parent / name for name in _TRACES):
        if trace.is_file() or (trace.is_dir() and any(trace.iterdir())):
            what = "empty" if path.exists() else "missing"
            way_out = f"put a copy of it back, or move {path.parent} away to begin anew"
            raise UserError(f"the yard's database {path} is {what}, but {trace} shows that it had jobs; {way_out}")


def _keep_private(path: str) -> None:
    """The journal holds the variables that jobs were given. SQLite gives its side files the mode of the database."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        os.chmod(path, 0o600)
    except OSError as error:
        raise UserError(f"the yard's database {path} cannot be used: {error.strerror}") from error


def _read_any_text(connection: sqlite3.Connection, _record: object) -> None:
    # A damaged row may not be UTF-8 any more: it must be found and reported, and must not stop the reading.
    connection.text_factory = lambda raw: raw.decode(errors="surrogateescape")


def _set_pragmas(connection: sqlite3.Connection, _record: object) -> None:
    cursor = connection.cursor()
    # WAL and FULL together: what a commit has returned from survives a power cut.
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _refuse_other_forms(connection: Connection) -> None:
    tables = inspect(connection).get_table_names()
    if not tables:
        return
    version = _version(connection, tables)
    if version is not None and version not in _known_forms():
        way_out = "start it with that version, or choose another yard with --yard"
        raise UserError(f"the yard's database is of a newer yard (form {version}, ours {HEAD}); {way_out}")
    refuse_other_versions(connection)


def _version(connection: Connection, tables: list[str]) -> str | None:
    return connection.scalar(select(alembic_version.c.version_num)) if "alembic_version" in tables else None


def _bring_up_to_date(connection: Connection) -> None:
    tables = inspect(connection).get_table_names()
    if not tables:
        metadata.create_all(connection)
        alembic_version.create(connection)
        connection.execute(insert(alembic_version).values(version_num=HEAD))
    elif _version(connection, tables) != HEAD:
        migrate(connection)


def _known_forms() -> set[str]:
    return {path.name.partition("_")[0] for path in (_MIGRATIONS / "versions").glob("[0-9]*.py")}


def migrate(connection: Connection, to: str = "head") -> None:
    """Run Alembic up to a form; the newest, if none is named. Imported only here: it costs a third of a second."""
    command = import_module("alembic.command")
    config = import_module("alembic.config").Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, to)
