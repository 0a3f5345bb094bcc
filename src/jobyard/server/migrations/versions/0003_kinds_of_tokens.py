"""Migration 3, kinds of tokens: older tokens are members; the yard's owner makes admins, over the Unix socket."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("kind", sa.String(16), nullable=False, server_default="member"))


def downgrade() -> None:
    with op.batch_alter_table("tokens") as tokens:
        tokens.drop_column("kind")
