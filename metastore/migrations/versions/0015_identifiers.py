"""exact names of the tables and namespaces of Iceberg catalogs, which may have capital letters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_NAMED = ("catalog_tables", "catalog_databases")


def upgrade() -> None:
    for table in _NAMED:
        op.add_column(table, sa.Column("identifiers", sa.JSON(), nullable=False, server_default="[]"))


def downgrade() -> None:
    for table in reversed(_NAMED):
        op.drop_column(table, "identifiers")
