"""how often misestimates changed is not counted any more: each statement asks for its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("catalog_version", "misestimates")


def downgrade() -> None:
    op.add_column("catalog_version", sa.Column("misestimates", sa.BigInteger(), server_default="0", nullable=False))
