"""The doors themselves: each lets a statement in and tells a refusal."""

from __future__ import annotations

import pytest

from tests.attacks.doors import Door, Refused, Served
from tests.gateway.conftest import BOOKS


def test_each_door_answers(door: Door, duckdb_gateway: Served) -> None:
    assert duckdb_gateway.ask(door, "SELECT count(*) AS n FROM books") == [(BOOKS,)]
    assert duckdb_gateway.ask(door, "SELECT `price` FROM books LIMIT 0", dialect="impala") == []


def test_each_door_tells_a_refusal(door: Door, duckdb_gateway: Served) -> None:
    with pytest.raises(Refused, match="nowhere") as caught:
        duckdb_gateway.ask(door, "SELECT 1 FROM nowhere")
    assert caught.value.code == "UNKNOWN_TABLE" or caught.value.sqlstate == "42S02"


def test_flight_binds_parameters(duckdb_gateway: Served) -> None:
    assert duckdb_gateway.ask(Door.FLIGHT, "SELECT ? AS text", parameters=["it's `${x}`"]) == [("it's `${x}`",)]


@pytest.mark.spark
def test_each_door_reaches_spark(door: Door, spark_gateway: Served) -> None:
    assert spark_gateway.ask(door, "SELECT count(*) AS n FROM books", engine="spark") == [(BOOKS,)]
