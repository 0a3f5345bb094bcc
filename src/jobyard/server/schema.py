"""Database schema: which tables does a yard have? The newest form; `migrations/` leads there from every older one."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, MetaData, String, Table, Text

HEAD = "0004"  # the newest migration; a test compares it with Alembic's own answer

metadata = MetaData()

journal = Table(
    "journal",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("version", Integer, nullable=False),  # of the events' JSON
    Column("events", Text, nullable=False),
    Column("checksum", String(16), nullable=False),
    # The jobs that the row concerns, with a checksum of their own: where the rest is damaged, all else goes on.
    Column("jobs", Text, nullable=False),
    # Of a base: the number of the last row whose events its state holds. A replay begins after that.
    Column("covers", Integer),
)
Index("journal_bases", journal.c.covers, sqlite_where=journal.c.covers.is_not(None))

# A line for each job that has ended, for simulations of days whose rows are gone.
history = Table(
    "history",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("finished_at", Float, nullable=False, index=True),
    Column("body", Text, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", String(200), nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
    Column("last_used_at", Float),
    Column("kind", String(16), nullable=False, server_default="member"),
)

facts = Table(
    "facts",
    metadata,
    Column("name", String(50), primary_key=True),
    Column("value", Text, nullable=False),
)

alembic_version = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
