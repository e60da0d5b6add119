"""A fence around the database: a gateway that is no member any more writes nothing, whatever it was about to write.

Every transaction that writes looks for the row of its member, and locks it against removal. So a removal waits for
the transaction, or the transaction finds the row gone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import SQLAlchemyError

_WRITES = ("INSERT", "UPDATE", "DELETE")
_LOOK = {
    "sqlite": "SELECT 1 FROM gateways WHERE id = ?",  # whoever writes is alone
    "postgresql": "SELECT 1 FROM gateways WHERE id = %s FOR KEY SHARE",  # a renewal goes on meanwhile, a removal waits
}
_CHECKED = "fusion.fence"


EPOCH: ContextVar[str | None] = ContextVar("epoch", default=None)
"""The id under which what runs in this context began; None: whichever the gateway has now."""
IDLE = "SET idle_in_transaction_session_timeout = '3s'"
"""A paused member keeps no lock of a transaction for longer, less than a member may be silent."""


class Fenced(SQLAlchemyError):
    """Other members have removed this gateway, which gave no sign of life: nothing of the transaction is written."""

    def __init__(self) -> None:
        super().__init__("this gateway gave no sign of life for too long and joins the others again; try again")


def install(engine: Engine, member: Callable[[], str | None]) -> None:
    """Fence all transactions of a database that write. member: returns the id that they are written under, or None."""

    @event.listens_for(engine, "after_cursor_execute")
    def _look(connection: Connection, _: Any, statement: str, *__: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        current = EPOCH.get() or member()
        if current is None or not statement.startswith(_WRITES):
            return
        transaction = connection.get_transaction()
        if connection.info.get(_CHECKED) is transaction:
            return
        connection.info[_CHECKED] = transaction
        driver = connection.connection.dbapi_connection  # by itself, as it is done for each transaction
        assert driver is not None
        if driver.execute(_LOOK[connection.dialect.name], (current,)).fetchone() is None:
            raise Fenced


def limit_pauses(engine: Engine) -> None:
    """Have PostgreSQL end transactions of a process that was paused; from the next connection on."""

    @event.listens_for(engine, "connect")
    def _limit(connection: Any, _: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        connection.execute(IDLE)
        connection.commit()


def exempt(connection: Connection) -> None:
    """Let the current transaction write without a look."""
    connection.info[_CHECKED] = connection.get_transaction()
