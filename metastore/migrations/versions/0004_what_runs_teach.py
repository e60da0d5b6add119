"""what runs teach."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("queries", schema=None) as batch_op:
        batch_op.add_column(sa.Column("template", sa.String(length=64), nullable=True))
        batch_op.add_column(sa.Column("expected_bytes", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("upper_bytes", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("holder", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("limit_bytes", sa.BigInteger(), nullable=True))
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.create_index("ix_attempts_engine", ["engine", "started_at"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.drop_index("ix_attempts_engine")
    with op.batch_alter_table("queries", schema=None) as batch_op:
        batch_op.drop_column("limit_bytes")
        batch_op.drop_column("holder")
        batch_op.drop_column("upper_bytes")
        batch_op.drop_column("expected_bytes")
        batch_op.drop_column("template")
