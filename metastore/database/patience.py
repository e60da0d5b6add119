"""Calls of PostgreSQL that end although the server does not answer: it may hang, or its network may drop everything.

A call that waits for long asks whether the server still takes connections. So a slow query goes on, and a call of a
server that hangs ends within ``WAIT_S`` and the time of a connection. Others then end at once for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy import Engine, event

WAIT_S = 2.0
CONNECT_S = 2
"""Seconds within which a server answers a new connection: the least that libpq takes."""
AWAY_S = 1.0
"""Time after a server did not answer in which nobody else waits for it."""
RV = TypeVar("RV")


class ServerHangs(psycopg.OperationalError):
    """The server takes no connections, or does not answer them."""

    def __init__(self) -> None:
        super().__init__("the database does not answer")


class Patience:
    """Patience with one server. connect: opens another connection to it. Thread-safe."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._away_until_s = 0.0

    def require(self) -> None:
        """Raise ServerHangs where the server did not answer a moment ago."""
        if time.monotonic() < self._away_until_s:
            raise ServerHangs

    def require_answer(self) -> None:
        """Raise ServerHangs if the server does not answer a new connection."""
        with self._lock:  # one asks for all that wait
            self.require()
            try:
                self._connect().close()
            except psycopg.Error as error:
                if "FATAL:" in str(error):  # it answers, such as that it has no room for another connection
                    return
                self._away_until_s = time.monotonic() + AWAY_S
                raise ServerHangs from error


class PatientConnection(psycopg.Connection[Any]):
    """A connection whose calls end where the server does not answer."""

    patience: Patience | None = None

    def wait(self, gen: PQGen[RV], *arguments: Any, **keywords: Any) -> RV:
        """Wait for a call to complete. Raises ServerHangs, and is closed then."""
        if self.patience is None:
            return super().wait(gen, *arguments, **keywords)
        try:
            return super().wait(_limited(gen, self.patience), *arguments, **keywords)
        except ServerHangs:
            self.pgconn.finish()
            raise


def _limited(gen: PQGen[RV], patience: Patience) -> Generator[Any, Any, RV]:
    """Do as a call does, and look after the server from time to time while it waits."""
    patience.require()
    looked_s = time.monotonic()
    try:
        waits_for = next(gen)
        while True:
            ready = yield waits_for
            if not ready and time.monotonic() - looked_s > WAIT_S:
                patience.require_answer()
                looked_s = time.monotonic()
            waits_for = gen.send(ready)
    except StopIteration as end:
        value: RV = end.value
        return value


def be_patient(engine: Engine) -> None:
    """Have all connections of an engine to PostgreSQL end their calls where the server does not answer."""
    arguments, keywords = engine.dialect.create_connect_args(engine.url)
    patience = Patience(lambda: psycopg.connect(*arguments, **{**keywords, "connect_timeout": CONNECT_S}))

    @event.listens_for(engine, "do_connect")
    def _connect(_: Any, __: Any, own: Any, own_keywords: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        patience.require()
        connection = PatientConnection.connect(*own, **{"connect_timeout": CONNECT_S, **own_keywords})
        connection.patience = patience
        return connection
