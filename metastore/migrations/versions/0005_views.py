"""views."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

import metastore.database.models

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "catalog_views",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("sql", sa.Text(), nullable=False),
        sa.Column("dialect", sa.String(length=32), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("created_at", metastore.database.models.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_catalog_views")),
    )


def downgrade() -> None:
    op.drop_table("catalog_views")
