"""Sessions of drivers, which any gateway continues once theirs is gone; releases that can use this schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "driver_sessions",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("authenticated", sa.Boolean(), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("credential", sa.String(length=64), nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_driver_sessions"),
    )
    op.create_index("ix_driver_sessions_expires_at", "driver_sessions", ["expires_at"])
    support = op.create_table(
        "schema_support",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("oldest", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_schema_support"),
    )
    op.bulk_insert(support, [{"id": 1, "oldest": revision}])


def downgrade() -> None:
    op.drop_table("schema_support")
    op.drop_table("driver_sessions")
