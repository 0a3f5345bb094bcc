"""Migration 2, checksums: rows of the journal get one, and name their jobs. Old rows are stamped as they are now."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from jobyard.server.checksums import row_checksum

revision = "0002"
down_revision = "0001"

ROWS_AT_ONCE = 1000


def upgrade() -> None:
    with op.batch_alter_table("journal") as table:
        table.add_column(sa.Column("checksum", sa.String(16), nullable=False, server_default=""))
        table.add_column(sa.Column("jobs", sa.Text(), nullable=False, server_default=""))
    with op.batch_alter_table("journal") as table:
        table.alter_column("checksum", server_default=None)
        table.alter_column("jobs", server_default=None)
    _stamp(op.get_bind())


def _stamp(connection: sa.Connection) -> None:
    """Which jobs an old row concerns is not told: that takes a replay."""
    journal = sa.table("journal", *map(sa.column, ("seq", "at", "version", "events", "checksum")))
    columns = (journal.c.seq, journal.c.version, journal.c.at, journal.c.events)
    query = sa.select(*columns).order_by(journal.c.seq).limit(ROWS_AT_ONCE)
    after = 0
    while rows := connection.execute(query.where(journal.c.seq > after)).all():
        stamps = [{"row": seq, "sum": row_checksum(version, at, events)} for seq, version, at, events in rows]
        change = journal.update().where(journal.c.seq == sa.bindparam("row")).values(checksum=sa.bindparam("sum"))
        connection.execute(change, stamps)
        after = rows[-1][0]


def downgrade() -> None:
    with op.batch_alter_table("journal") as table:
        table.drop_column("jobs")
        table.drop_column("checksum")
