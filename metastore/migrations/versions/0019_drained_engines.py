"""Engines that take no new statements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "drained_engines",
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("engine", name="pk_drained_engines"),
    )


def downgrade() -> None:
    op.drop_table("drained_engines")
