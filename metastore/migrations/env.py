"""Alembic's environment: runs on the connection that ``metastore.database.connection`` hands over, or on a URL."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlalchemy import Connection

from metastore.database.connection import make_engine
from metastore.database.models import Base, UtcDateTime


def _render(kind: str, item: Any, _: Any) -> str | Literal[False]:
    """Write our own column types as the plain ones below them: migrations outlive the models."""
    return "sa.DateTime(timezone=True)" if kind == "type" and isinstance(item, UtcDateTime) else False


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        compare_type=True,
        render_item=_render,
    )
    with context.begin_transaction():
        context.run_migrations()


open_connection = context.config.attributes.get("connection")
if isinstance(open_connection, Connection):
    _migrate(open_connection)
else:
    url = context.config.get_main_option("sqlalchemy.url")
    if not url:
        raise SystemExit("No database is given: set sqlalchemy.url.")
    engine = make_engine(url)
    with engine.connect() as connection:
        _migrate(connection)
    engine.dispose()
