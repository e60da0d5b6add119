"""Reads that every statement makes: on one connection that stays open, without a transaction around them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import Engine, Executable, Row
from sqlalchemy.exc import SQLAlchemyError

from metastore.database.kept_connection import KeptConnection


class QuickReads:
    """Thread-safe. A connection that was lost is opened again; the read that met this fails or is made once more."""

    def __init__(self, engine: Engine) -> None:
        self._lock = threading.Lock()
        self._kept = KeptConnection(engine, autocommit=True)

    def rows(self, wanted: Executable, values: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """Return what a SELECT finds now. Raises SQLAlchemyError."""
        with self._lock:
            if self._kept.is_open:
                with suppress(SQLAlchemyError), self._kept.use() as connection:  # the database may come back just now
                    return connection.execute(wanted, values).all()
            with self._kept.use() as connection:
                return connection.execute(wanted, values).all()

    def close(self) -> None:
        """Give the connection back."""
        with self._lock:
            self._kept.close()
