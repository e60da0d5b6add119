"""Gateways: where others reach them, and until when they count as alive."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("gateways", sa.Column("name", sa.String(length=64), nullable=True))
    op.add_column("gateways", sa.Column("address", sa.String(length=255), nullable=True))
    op.add_column("gateways", sa.Column("alive_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("gateways", sa.Column("report", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("gateways") as gateways:
        for column in ("report", "alive_until", "address", "name"):
            gateways.drop_column(column)
