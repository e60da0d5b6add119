"""Answers that were compared with another engine's: cases that differ, and counts by day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "parity_cases",
        sa.Column("query_id", sa.String(length=64), nullable=False),
        sa.Column("template", sa.String(length=64), nullable=False),
        sa.Column("sql", sa.Text(), nullable=False),
        sa.Column("dialect", sa.String(length=32), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("authenticated", sa.Boolean(), nullable=False),
        sa.Column("engine", sa.String(length=64), nullable=False),
        sa.Column("other", sa.String(length=64), nullable=False),
        sa.Column("difference", sa.Text(), nullable=False),
        sa.Column("rows", sa.JSON(), nullable=False),
        sa.Column("other_rows", sa.JSON(), nullable=False),
        sa.Column("snapshots", sa.JSON(), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("found_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("released_by", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("query_id", name="pk_parity_cases"),
    )
    op.create_index("ix_parity_cases_template", "parity_cases", ["template"])
    op.create_table(
        "parity_counts",
        sa.Column("day", sa.String(length=8), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("day", "outcome", name="pk_parity_counts"),
    )


def downgrade() -> None:
    op.drop_table("parity_counts")
    op.drop_index("ix_parity_cases_template", table_name="parity_cases")
    op.drop_table("parity_cases")
