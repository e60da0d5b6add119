"""folders that the gateway made, commits of writes, locations with their links followed."""

from __future__ import annotations

import logging
import os
import re

import sqlalchemy as sa
from alembic import op

import metastore.database.models

revision = "0007"
down_revision = "0008"
branch_labels = None
depends_on = None

log = logging.getLogger("metastore.migrations")

_QUERY_ID = re.compile(r"\d{8}_\d{6}_[0-9a-f]{10}")
_PINNED = (
    "table %s was registered at %s, which leads by a link to %s; from now on it is the latter. If the link is moved on "
    "purpose, drop %s and register the folder again after each move."
)
_UNRECORDED = (
    "%s looks like a folder that a statement made, but no record of that statement is left: DROP TABLE %s will keep "
    "its files. Delete the folder yourself once the table is dropped."
)


def upgrade() -> None:
    op.create_table(
        "managed_folders",
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("query_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", metastore.database.models.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("location", name=op.f("pk_managed_folders")),
    )
    op.create_table(
        "table_commits",
        sa.Column("query_id", sa.String(length=64), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=True),
        sa.Column("replaced", sa.JSON(), nullable=True),
        sa.Column("begun_at", metastore.database.models.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("query_id", name=op.f("pk_table_commits")),
    )
    connection = op.get_bind()
    tables = sa.table("catalog_tables", sa.column("id", sa.Integer()), sa.column("name"), sa.column("location"))
    for table_id, name, location in connection.execute(sa.select(tables.c.id, tables.c.name, tables.c.location)).all():
        # From now on a location is where its files are: one that leads through a link later was moved by somebody.
        followed = os.path.realpath(location)
        if followed != location:
            connection.execute(sa.update(tables).where(tables.c.id == table_id).values(location=followed))
            log.warning(_PINNED, name, location, followed, name)
        _tell_unrecorded(connection, name, followed)


def _tell_unrecorded(connection: sa.Connection, name: str, location: str) -> None:
    """Log a table whose folder a statement made that is no longer in the history, which alone would show that."""
    query_id = os.path.basename(location).removeprefix(f"{name}-")
    if not _QUERY_ID.fullmatch(query_id):
        return
    queries = sa.table("queries", sa.column("id"))
    if connection.execute(sa.select(queries.c.id).where(queries.c.id == query_id)).first() is None:
        log.warning(_UNRECORDED, location, name)


def downgrade() -> None:
    op.drop_table("table_commits")
    op.drop_table("managed_folders")
