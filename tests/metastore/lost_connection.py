"""Ends connections that stay open, as a database does that is started again."""

from __future__ import annotations

from sqlalchemy import Engine, text

from metastore.database.kept_connection import KeptConnection


def lose(engine: Engine, kept: KeptConnection) -> None:
    """Have the database end a connection, or as much as SQLite has of that."""
    held = kept._connection
    assert held is not None
    if engine.dialect.name == "postgresql":
        (pid,) = held.execute(text("SELECT pg_backend_pid()")).one()
        held.rollback()
        with engine.connect() as other:
            other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
    else:
        held.connection.driver_connection.close()  # type: ignore[union-attr]
