"""how often misestimates changed, so that not each statement has to ask for its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("catalog_version", sa.Column("misestimates", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    op.drop_column("catalog_version", "misestimates")
