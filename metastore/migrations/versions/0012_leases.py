"""what each attempt was leased: memory and threads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("lease_bytes", sa.BigInteger(), nullable=True))
    op.add_column("attempts", sa.Column("threads", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("attempts", "threads")
    op.drop_column("attempts", "lease_bytes")
