"""what was expected of each attempt, and of each misestimate."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_OF_THE_FIRST = """
    UPDATE attempts SET
        expected_bytes = (SELECT q.expected_bytes FROM queries q WHERE q.id = attempts.query_id),
        limit_bytes = (SELECT q.limit_bytes FROM queries q WHERE q.id = attempts.query_id)
    WHERE ordinal = 1 AND (peak_bytes IS NOT NULL OR failure = 'MEMORY_EXCEEDED')
"""


def _rename_reason(old: str, new: str) -> None:
    """Let decisions that name a reason be read by a release that knows it by another name."""
    text = f"""REPLACE(CAST(decision AS TEXT), '"{old}"', '"{new}"')"""
    value = text if op.get_bind().dialect.name == "sqlite" else f"CAST({text} AS JSON)"
    op.execute(f"UPDATE queries SET decision = {value} WHERE CAST(decision AS TEXT) LIKE '%\"{old}\"%'")  # noqa: S608


def upgrade() -> None:
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.add_column(sa.Column("waited_s", sa.Float(precision=53), nullable=True))
        batch_op.add_column(sa.Column("expected_bytes", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("uncertainty", sa.JSON(none_as_null=True), nullable=True))
        batch_op.add_column(sa.Column("limit_bytes", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("expected_s", sa.Float(precision=53), nullable=True))
    op.execute(_OF_THE_FIRST)  # a second one was on another engine than the estimate was of
    for name in ("expected_bytes", "upper_bytes", "holder", "limit_bytes"):
        op.drop_column("queries", name)  # not in a batch, which would copy the table and so empty its children
    _rename_reason("LOW_CONFIDENCE", "NOT_WORTH_THE_RISK")
    with op.batch_alter_table("misestimates", schema=None) as batch_op:
        batch_op.add_column(sa.Column("model_bytes", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    for new, old in (
        ("NOT_WORTH_THE_RISK", "LOW_CONFIDENCE"),
        ("WORTH_A_TRY", "FITS"),
        ("EXPLORATION", "FITS"),
        ("FASTER_ELSEWHERE", "EXCEEDS_LIMIT"),
    ):
        _rename_reason(new, old)
    with op.batch_alter_table("misestimates", schema=None) as batch_op:
        batch_op.drop_column("model_bytes")
    with op.batch_alter_table("queries", schema=None) as batch_op:
        batch_op.add_column(sa.Column("expected_bytes", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("upper_bytes", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("holder", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("limit_bytes", sa.BigInteger(), nullable=True))
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.drop_column("expected_s")
        batch_op.drop_column("limit_bytes")
        batch_op.drop_column("uncertainty")
        batch_op.drop_column("expected_bytes")
        batch_op.drop_column("waited_s")
