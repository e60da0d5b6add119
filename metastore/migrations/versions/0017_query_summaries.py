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
_INDEXED = (
    *("state", "engine", "pool", "reason", "seconds", "attempt_count", "ran_out", "expected_bytes", "peak_bytes"),
    *("within_bound", "alone_engine", "alone_s", "alone_measured", "rows", "template"),
)


def upgrade() -> None:
    for name, kind in _COLUMNS:
        op.add_column("queries", sa.Column(name, kind, nullable=True))
    op.drop_index("ix_queries_submitted_at", table_name="queries")
    op.create_index("ix_queries_summary", "queries", ["submitted_at", *_INDEXED, "id"])


def downgrade() -> None:
    op.drop_index("ix_queries_summary", table_name="queries")
    op.create_index("ix_queries_submitted_at", "queries", ["submitted_at"])
    for name, _ in reversed(_COLUMNS):
        op.drop_column("queries", name)
