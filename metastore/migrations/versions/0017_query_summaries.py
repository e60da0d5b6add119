"""Summaries of ended queries, for lists, sums and the savings ledger."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_COLUMNS = (
    ("pool", sa.String(length=64)),
    ("reason", sa.String(length=64)),
    ("seconds", sa.Float(53)),
    ("attempt_count", sa.Integer()),
    ("ran_out", sa.Boolean()),
    ("expected_bytes", sa.BigInteger()),
    ("peak_bytes", sa.BigInteger()),
    ("within_bound", sa.Boolean()),
    ("alone_engine", sa.String(length=64)),
    ("alone_s", sa.Float(53)),
    ("alone_measured", sa.Boolean()),
)


def upgrade() -> None:
    for name, kind in _COLUMNS:
        op.add_column("queries", sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    for name, _ in reversed(_COLUMNS):
        op.drop_column("queries", name)
