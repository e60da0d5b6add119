"""A connection that stays open: one that was lost while nobody used it is nobody's error."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from metastore.database import kept_connection
from metastore.database.kept_connection import KeptConnection
from tests.clock import set_clock
from tests.metastore.lost_connection import lose


def ask(kept: KeptConnection) -> None:
    with kept.use() as connection, connection.begin():
        assert connection.execute(text("SELECT 1")).scalar_one() == 1


def test_it_is_the_same_until_something_fails_on_it(engine: Engine) -> None:
    kept = KeptConnection(engine)
    ask(kept)
    first = kept._connection
    ask(kept)
    assert kept._connection is first
    with pytest.raises(SQLAlchemyError), kept.use() as connection:
        connection.execute(text("SELECT nothing FROM nowhere"))
    assert kept._connection is None
    ask(kept)
    assert kept._connection is not first
    kept.close()


def test_one_that_was_lost_while_it_was_idle_is_opened_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptConnection(engine)
    ask(kept)
    used_s = kept._used_s
    lose(engine, kept)
    set_clock(monkeypatch, kept_connection, lambda: used_s + 2 * kept_connection.IDLE_S)
    ask(kept)
    kept.close()
