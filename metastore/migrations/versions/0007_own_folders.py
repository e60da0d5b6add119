"""folders that the gateway made, commits of writes, locations with their links followed."""

from __future__ import annotations

import os

import sqlalchemy as sa
from alembic import op

import metastore.models

revision = "0007"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "managed_folders",
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("query_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", metastore.models.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("location", name=op.f("pk_managed_folders")),
    )
    op.create_table(
        "table_commits",
        sa.Column("query_id", sa.String(length=64), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=True),
        sa.Column("replaced", sa.JSON(), nullable=True),
        sa.Column("begun_at", metastore.models.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("query_id", name=op.f("pk_table_commits")),
    )
    # From now on a location is where its files are: one that leads through a link later was moved by somebody.
    tables = sa.table("catalog_tables", sa.column("id", sa.Integer()), sa.column("location", sa.Text()))
    connection = op.get_bind()
    for table_id, location in connection.execute(sa.select(tables.c.id, tables.c.location)).all():
        followed = os.path.realpath(location)
        if followed != location:
            connection.execute(sa.update(tables).where(tables.c.id == table_id).values(location=followed))


def downgrade() -> None:
    op.drop_table("table_commits")
    op.drop_table("managed_folders")
