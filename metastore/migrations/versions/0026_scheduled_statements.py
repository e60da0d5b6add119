"""Scheduled statements: what a schedule runs, and the newest of its queries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("schedules") as schedules:
        schedules.add_column(sa.Column("statements", sa.JSON(), nullable=True))
        schedules.add_column(sa.Column("last_query_id", sa.String(length=64), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("schedules") as schedules:
        schedules.drop_column("last_query_id")
        schedules.drop_column("statements")
