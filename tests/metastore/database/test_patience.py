"""A PostgreSQL that hangs: calls end, slow queries do not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from metastore.database.connection import make_engine
from tests.postgresql import PostgreSQL, postgresql

LIMIT_S = 5.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    with postgresql() as running:
        yield running


@pytest.fixture
def engine(server: PostgreSQL) -> Iterator[Engine]:
    opened = make_engine(server.url)
    yield opened
    opened.dispose()


def answered(engine: Engine, sql: str = "SELECT 1") -> int:
    with engine.connect() as connection:
        return int(connection.scalar(text(sql)) or 0)


def test_a_slow_query_goes_on(engine: Engine) -> None:
    assert answered(engine, "SELECT count(*) FROM (SELECT pg_sleep(4.5)) AS s") == 1


def test_a_call_of_a_server_that_hangs_ends(server: PostgreSQL, engine: Engine) -> None:
    assert answered(engine) == 1
    took_s = list[float]()

    def call(sql: str = "SELECT 1") -> None:
        began_s = time.monotonic()
        with pytest.raises(OperationalError):
            answered(engine, sql)
        took_s.append(time.monotonic() - began_s)

    running = threading.Thread(target=call, args=("SELECT pg_sleep(20)",))
    running.start()
    time.sleep(0.5)
    with server.paused():
        threads = [threading.Thread(target=call) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in (running, *threads):
            thread.join(30)
        call()  # at once, or within the limit again
    assert len(took_s) == 7
    assert max(took_s) < LIMIT_S + 0.5
    time.sleep(1.1)
    assert answered(engine) == 1


def test_an_open_transaction_of_a_server_that_hangs_ends(server: PostgreSQL, engine: Engine) -> None:
    with pytest.raises(OperationalError), engine.begin() as connection:
        connection.execute(text("SELECT 1"))
        with server.paused():
            began_s = time.monotonic()
            try:
                connection.execute(text("SELECT 2"))
            finally:
                assert time.monotonic() - began_s < LIMIT_S
    time.sleep(1.1)
    assert answered(engine) == 1
