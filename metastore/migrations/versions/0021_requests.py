"""Queries that another gateway runs again, and a secret that gateways share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("queries", sa.Column("request", sa.JSON(), nullable=True))
    op.add_column("queries", sa.Column("taken_over", sa.Integer(), nullable=True))
    op.create_table(
        "member_secret",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("secret", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_member_secret"),
    )


def downgrade() -> None:
    op.drop_table("member_secret")
    with op.batch_alter_table("queries") as queries:
        for column in ("taken_over", "request"):
            queries.drop_column(column)
