"""A statement that is prepared does its work when it is executed, under that call's time limit."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from tests.attacks.doors import Door, Served
from tests.attacks.test_shares import CROSS_JOIN

adbc_driver_manager = pytest.importorskip("adbc_driver_manager")
pytest.importorskip("adbc_driver_flightsql", reason="no ADBC driver is installed")

TIMEOUT = "adbc.flight.sql.rpc.timeout_seconds.query"
ENDED_WITHIN_S = 40.0


@pytest.mark.parametrize("parameters", [None, [7]], ids=["plain", "bound"])
def test_preparing_runs_nothing_and_executing_obeys_its_limit(
    duckdb_gateway: Served, parameters: list[int] | None
) -> None:
    sql = CROSS_JOIN.replace("= 7", "= ?") if parameters else CROSS_JOIN
    begun = time.monotonic()
    with closing(duckdb_gateway.connect(Door.FLIGHT)) as connection, closing(connection.cursor()) as cursor:
        cursor.adbc_prepare(sql)
        cursor.adbc_statement.set_options(**{TIMEOUT: "2"})
        with pytest.raises(adbc_driver_manager.Error):
            cursor.execute(sql, parameters) if parameters else cursor.execute(sql)
    assert time.monotonic() - begun < ENDED_WITHIN_S
    with duckdb_gateway.http() as client:
        until_s = time.monotonic() + ENDED_WITHIN_S
        while any(q["state"] == "RUNNING" for q in client.get("/v1/queries?limit=5").json()["queries"]):
            assert time.monotonic() < until_s, "it still runs"
            time.sleep(0.1)
