"""A statement is gone with its rows and its plan once it has ended and its client is done with it."""

from __future__ import annotations

import httpx
import pytest

from tests.gateway.drivers.hs2.conftest import Drivers
from tests.gateway.left_behind import nothing_left

hive = pytest.importorskip("pyhive.hive", reason="needs the extra hive")
pytestmark = pytest.mark.e2e
SQL = "SELECT isbn FROM books WHERE id = 4"
FAILING = (
    "SELECT nothing FROM books",
    "SELECT 1 / 0 AS x FROM books WHERE 1 / 0 > 3",  # fails in the engine
    "CREATE TABLE copied AS SELECT 1 AS one",  # for which there is no engine
)


def test_of_a_query_over_http_nothing_is_left(bookshop: Drivers) -> None:
    with httpx.Client(base_url=f"http://{bookshop.host}:{bookshop.http_port}", timeout=60) as client, nothing_left():
        for wait_s in (30.0, 0.0):
            assert "id" in client.post("/v1/queries", json={"sql": SQL, "wait_s": wait_s}).json()
        for sql in FAILING:
            assert "error" in client.post("/v1/queries", json={"sql": sql, "wait_s": 30.0}).json()


def test_of_a_closed_session_nothing_is_left(bookshop: Drivers) -> None:
    with nothing_left(), hive.connect(bookshop.host, bookshop.port) as connection:
        for asynchronous in (False, True):
            with connection.cursor() as cursor:
                cursor.execute(SQL, async_=asynchronous)
                cursor.poll()
                assert len(cursor.fetchall()) == 1
                cursor.fetch_logs()
