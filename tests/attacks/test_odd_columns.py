"""Columns that tables have no type for: each is refused by its name, and the others of its file can be read."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path

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
WITHOUT_A_TYPE = {"wide": "a DECIMAL of 50 digits", "half": "a FLOAT16", "nested": "a DECIMAL of 50 digits"}
OTHERS = {"id": "bigint", "at": "time(6)", "lasts": "bigint", "long": "decimal(38,2)"}


@pytest.fixture(scope="session")
def odd_gateway(duckdb_gateway: Served, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Give the gateway a table ``odd`` of files that have such columns beside its own."""
    odd = tmp_path_factory.mktemp("odd")
    pq.write_table(pa.table(COLUMNS), odd / "a.parquet")
    columns = [{"name": name, "type": kind} for name, kind in OTHERS.items()]
    duckdb_gateway.register("odd", odd, format="parquet", columns=columns)
    return duckdb_gateway


@pytest.mark.parametrize(("column", "kind"), WITHOUT_A_TYPE.items())
def test_such_a_column_is_no_part_of_a_table(duckdb_gateway: Served, tmp_path: Path, column: str, kind: str) -> None:
    pq.write_table(pa.table({name: COLUMNS[name] for name in ("id", column)}), tmp_path / "a.parquet")
    with pytest.raises(Refused, match=f"holds {kind} in the column {column}, .* with the other columns alone"):
        duckdb_gateway.register("never", tmp_path)


def test_an_interval_that_duckdb_wrote_is_no_part_of_a_table(duckdb_gateway: Served, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS id, INTERVAL 1 MONTH AS span) TO '{tmp_path / 'a.parquet'}'")
    with pytest.raises(Refused, match=r"holds an interval in the column span, .* with the other columns alone"):
        duckdb_gateway.register("never", tmp_path)


def test_the_others_are_read_through_each_door(door: Door, odd_gateway: Served) -> None:
    assert odd_gateway.ask(door, "SELECT count(*), max(id) FROM odd") == [(ROWS, ROWS - 1)]
    with pytest.raises(Refused, match="a column of type time"):  # which Spark may answer
        odd_gateway.ask(door, "SELECT at FROM odd")
    (lasts, long), *_ = odd_gateway.ask(door, "SELECT lasts, long FROM odd")
    assert (lasts, Decimal(long)) == (1_000_000, Decimal(10) ** 30)


@pytest.mark.parametrize("form", ["json", "csv", "arrow"])
def test_each_form_of_a_result_has_the_others(odd_gateway: Served, form: str) -> None:
    with odd_gateway.http() as client:
        sent = client.post("/v1/queries", json={"sql": "SELECT id, lasts, long FROM odd", "wait_s": 60}).json()
        reply = client.get(f"/v1/queries/{sent['id']}/result", params={"format": form}).raise_for_status()
    if form == "arrow":
        assert pa.ipc.open_stream(io.BytesIO(reply.content)).read_all().num_rows == ROWS
    else:
        assert reply.text.count("1000000000000000000000000000000.00") == ROWS


@pytest.mark.parametrize(("column", "kind"), [("wide", "binary"), ("lasts", "bigint"), ("half", "float")])
def test_statistics_of_such_a_column_do_not_end_the_job_of_its_table(column: str, kind: str) -> None:
    assert summarise(one_array(COLUMNS[column]), kind).rows == ROWS
