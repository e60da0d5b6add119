"""owners of tables, views, schedules and jobs; whether a query's user had shown a password."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0006"
branch_labels = None
depends_on = None

OWNED = ("catalog_tables", "catalog_views", "schedules", "statistics_jobs")


def upgrade() -> None:
    for table in OWNED:
        op.add_column(table, sa.Column("owner", sa.String(length=255), nullable=True))
    op.add_column("queries", sa.Column("authenticated", sa.Boolean(), nullable=False, server_default=sa.true()))


def downgrade() -> None:
    op.drop_column("queries", "authenticated")  # not in a batch, which would copy the table and so empty its children
    for table in reversed(OWNED):
        op.drop_column(table, "owner")
