"""databases: names of two parts for tables and views, comments and properties, the database of a query and of a view.

A table or view whose name has a dot already is in the database that stands before it from now on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sql.tables import DEFAULT_DATABASE

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_NAMED = ("catalog_tables", "catalog_views")


def upgrade() -> None:
    databases = op.create_table(
        "catalog_databases",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_catalog_databases"),
    )
    for table in _NAMED:
        op.add_column(table, sa.Column("annotations", sa.JSON(), nullable=False, server_default="{}"))
    for table in ("catalog_views", "queries"):
        op.add_column(
            table, sa.Column("database", sa.String(length=128), nullable=False, server_default=DEFAULT_DATABASE)
        )
    named = {DEFAULT_DATABASE}
    for table in _NAMED:
        names = sa.select(sa.column("name", sa.String())).select_from(sa.table(table))
        named |= {_database_of(name) for name in op.get_bind().scalars(names)}
    op.bulk_insert(databases, [{"name": name, "comment": "", "properties": {}} for name in sorted(named)])


def _database_of(name: str) -> str:
    database, dot, _ = name.partition(".")
    return database if dot else DEFAULT_DATABASE


def downgrade() -> None:
    op.drop_column("queries", "database")  # not in a batch, which would copy the table and so empty its children
    op.drop_column("catalog_views", "database")
    for table in reversed(_NAMED):
        op.drop_column(table, "annotations")
    op.drop_table("catalog_databases")
