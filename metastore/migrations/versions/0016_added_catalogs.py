"""Iceberg catalogs that commands add."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "added_catalogs",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("warehouse", sa.Text(), nullable=False),
        sa.Column("credential_env", sa.String(length=128), nullable=False),
        sa.Column("credential_file", sa.String(length=128), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_added_catalogs"),
    )


def downgrade() -> None:
    op.drop_table("added_catalogs")
