"""Columns that no engine has a type for: each is refused by its name, and the others of its table are answered."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statsproc.sketches.column_summary import one_array, summarise
from tests.attacks.doors import Door, Refused, Served

ROWS = 3
TEN_DIGITS_MORE = Decimal(10) ** 45
COLUMNS = {
    "id": pa.array(range(ROWS), pa.int64()),
    "at": pa.array([dt.time(1, 2, 3, 456)] * ROWS, pa.time64("us")),
    "lasts": pa.array([dt.timedelta(seconds=1)] * ROWS, pa.duration("us")),
    "wide": pa.array([TEN_DIGITS_MORE] * ROWS, pa.decimal256(50, 2)),
    "long": pa.array([Decimal(10) ** 30] * ROWS, pa.decimal256(38, 2)),
    "half": pa.array([0.5] * ROWS, pa.float16()),
    "nested": pa.array([{"w": TEN_DIGITS_MORE}] * ROWS, pa.struct([("w", pa.decimal256(50, 2))])),
}
REFUSED = {"odd": ("wide", "*"), "spans": ("span", "*")}


@pytest.fixture(scope="session")
def odd_gateway(duckdb_gateway: Served, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Give the gateway two tables with such columns: ``odd`` of Arrow's writer, ``spans`` of DuckDB's."""
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    odd, spans = tmp_path_factory.mktemp("odd"), tmp_path_factory.mktemp("spans")
    pq.write_table(pa.table(COLUMNS), odd / "a.parquet")
    rows = f"SELECT range AS id, INTERVAL 1 MONTH AS span FROM range({ROWS})"
    duckdb.sql(f"COPY ({rows}) TO '{spans / 'a.parquet'}'")
    duckdb_gateway.register("odd", odd)
    duckdb_gateway.register("spans", spans)
    return duckdb_gateway


def test_each_door_refuses_such_a_column_alone(door: Door, odd_gateway: Served) -> None:
    for table, columns in REFUSED.items():
        for column in columns:
            with pytest.raises(Refused, match=r"it cannot read the column \w+: .* Leave the column out") as caught:
                odd_gateway.ask(door, f"SELECT {column} FROM {table}")
            assert caught.value.code == "UNSUPPORTED_FEATURE" or caught.value.sqlstate == "0A000"
        assert odd_gateway.ask(door, f"SELECT count(*), max(id) FROM {table}") == [(ROWS, ROWS - 1)]
    for other in ("at", "nested"):  # which Spark may answer
        with pytest.raises(Refused, match=r"a column of type (time|struct)"):
            odd_gateway.ask(door, f"SELECT {other} FROM odd")
    (half, lasts, long), *_ = odd_gateway.ask(door, "SELECT half, lasts, long FROM odd")
    assert (half, lasts, Decimal(long)) == (0.5, 1_000_000, Decimal(10) ** 30)


@pytest.mark.parametrize("form", ["json", "csv", "arrow"])
def test_each_form_of_a_result_has_the_others(odd_gateway: Served, form: str) -> None:
    with odd_gateway.http() as client:
        sent = client.post("/v1/queries", json={"sql": "SELECT id, half, lasts, long FROM odd", "wait_s": 60}).json()
        reply = client.get(f"/v1/queries/{sent['id']}/result", params={"format": form}).raise_for_status()
    if form == "arrow":
        assert pa.ipc.open_stream(io.BytesIO(reply.content)).read_all().num_rows == ROWS
    else:
        assert reply.text.count("1000000000000000000000000000000.00") == ROWS


@pytest.mark.parametrize(("column", "kind"), [("wide", "binary"), ("lasts", "bigint"), ("half", "float")])
def test_statistics_of_such_a_column_do_not_end_the_job_of_its_table(column: str, kind: str) -> None:
    assert summarise(one_array(COLUMNS[column]), kind).rows == ROWS
