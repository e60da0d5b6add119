"""Reads that every statement makes: on one connection that stays open, without a transaction around them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Executable, Row
from sqlalchemy.exc import SQLAlchemyError


class QuickReads:
    """Thread-safe. A connection that was lost is opened again; the read that met this fails or is made once more."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def rows(self, wanted: Executable, values: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """Return what a SELECT finds now. Raises SQLAlchemyError."""
        with self._lock:
            if self._connection is not None:
                try:
                    return self._connection.execute(wanted, values).all()
                except SQLAlchemyError:  # as it was idle, the database may have gone and come back
                    self._drop()
            self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            try:
                return self._connection.execute(wanted, values).all()
            except BaseException:
                self._drop()
                raise

    def close(self) -> None:
        """Give the connection back."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()
