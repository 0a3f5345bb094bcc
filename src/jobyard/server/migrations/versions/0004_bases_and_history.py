"""Migration 4, bases and history: a row may be a base (the whole state) to replay from; ended jobs leave a line."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("journal", sa.Column("covers", sa.Integer))
    op.create_index("journal_bases", "journal", ["covers"], sqlite_where=sa.text("covers is not null"))
    op.create_table(
        "history",
        sa.Column("job", sa.String(64), primary_key=True),
        sa.Column("finished_at", sa.Float, nullable=False, index=True),
        sa.Column("body", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("history")
    op.drop_index("journal_bases", "journal")
    with op.batch_alter_table("journal") as journal:
        journal.drop_column("covers")
