"""which gateway runs a query, and when each gave its last sign."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

import metastore.database.models

revision = "0009"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "gateways",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("seen_at", metastore.database.models.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gateways")),
    )
    op.add_column("queries", sa.Column("gateway", sa.String(length=64), nullable=True))


def downgrade() -> None:
    op.drop_column("queries", "gateway")  # not in a batch, which would copy the table and so empty its children
    op.drop_table("gateways")
