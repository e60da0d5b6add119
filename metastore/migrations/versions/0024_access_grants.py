"""Grants and roles that statements give."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "access_grants",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("grantee", sa.String(length=300), nullable=False),
        sa.Column("privilege", sa.String(length=16), nullable=False),
        sa.Column("column", sa.String(length=255), nullable=False),
        sa.Column("granted_by", sa.String(length=255), nullable=False),
        sa.Column("granted_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", "grantee", "privilege", "column", name="pk_access_grants"),
    )
    op.create_table(
        "access_roles",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_access_roles"),
    )
    op.create_table(
        "access_role_members",
        sa.Column("role", sa.String(length=255), nullable=False),
        sa.Column("member", sa.String(length=300), nullable=False),
        sa.PrimaryKeyConstraint("role", "member", name="pk_access_role_members"),
    )


def downgrade() -> None:
    op.drop_table("access_role_members")
    op.drop_table("access_roles")
    op.drop_table("access_grants")
