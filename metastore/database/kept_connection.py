"""A connection that stays open: to take one from the pool and to give it back takes as long as a small write."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

IDLE_S = 1.0  # after which the connection is tested before it is used


class KeptConnection:
    """A connection for one thread at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._used_s = 0.0

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """Use it, or a new one in the place of one that was lost. What fails on it ends it. Raises SQLAlchemyError."""
        if self._connection is not None and time.monotonic() > self._used_s + IDLE_S and not self._answers():
            self.close()
        if self._connection is None:
            self._connection = self._engine.connect()
        try:
            yield self._connection
        except BaseException:
            self.close()
            raise
        self._used_s = time.monotonic()

    def close(self) -> None:
        """Give it back, not to be used again by anybody: nobody knows what state it is in."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def _answers(self) -> bool:
        assert self._connection is not None
        try:
            self._connection.exec_driver_sql("SELECT 1")
            self._connection.rollback()
        except SQLAlchemyError:
            return False
        return True
