from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from sql.tables import Column
from statsproc.data.ingest import Ingested, IngestFailed, ingest, parse_columns, quarantine_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = parse_columns("id bigint, title string, price decimal(5,2), day date, sold boolean")

GOOD = [
    "1|plain|1.5|2024-01-02|true",
    "2||||",
    '3|"with | and ""quotes"""|12.50|1969-12-31|false',
    '4|""|0|2024-02-29|true',
    "5|zoë|-999.99|0001-01-01|false",
]
ROWS = [
    (1, "plain", "1.50", "2024-01-02", True),
    (2, None, None, None, None),
    (3, 'with | and "quotes"', "12.50", "1969-12-31", False),
    (4, "", "0.00", "2024-02-29", True),
    (5, "zoë", "-999.99", "0001-01-01", False),
]
BAD = {
    "x|a|1|2024-01-01|true": 'column id: expected bigint, found "x"',
    "6|a|1000|2024-01-01|true": 'column price: expected decimal(5,2), found "1000"',
    "6|a|1.005|2024-01-01|true": 'column price: expected decimal(5,2), found "1.005"',
    "6|a|1|2024-02-30|true": 'column day: expected date, found "2024-02-30"',
    "6|a|1|2024-01-01|maybe": 'column sold: expected boolean, found "maybe"',
    "99999999999999999999|a|1|2024-01-01|true": 'column id: expected bigint, found "99999999999999999999"',
    "6|a|1|2024-01-01": "expected 5 fields, found 4",
    "6|a|1|2024-01-01|true|": "expected 5 fields, found 6",
    "": "expected 5 fields, found 1",
    '6|"open|1|2024-01-01|true': "a quote is not closed, or text follows a closed one",
    '6|"a"b|1|2024-01-01|true': "a quote is not closed, or text follows a closed one",
    '""|a|1|2024-01-01|true': 'column id: expected bigint, found ""',
}


def _write(folder: Path, lines: list[str], name: str = "a.txt") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def _rows(folder: Path) -> list[tuple[object, ...]]:
    rows = sorted(pq.read_table(folder).to_pylist(), key=lambda row: row["id"])
    return [
        (r["id"], r["title"], r["price"] and str(r["price"]), r["day"] and r["day"].isoformat(), r["sold"])
        for r in ({**row, "price": None if row["price"] is None else str(row["price"])} for row in rows)
    ]


def _quarantined(result: Ingested) -> dict[str, str]:
    assert result.quarantine is not None
    lines = [line for file in result.quarantine.glob("*.json") for line in file.read_text().splitlines()]
    found = [json.loads(line) for line in lines]
    return {row["line"]: row["reason"] for row in found}


def test_columns_are_read_from_text() -> None:
    assert COLUMNS[2] == Column("price", "decimal(5,2)")
    assert parse_columns("Id BIGINT,p Decimal(10, 2)") == (Column("Id", "bigint"), Column("p", "decimal(10,2)"))


@pytest.mark.parametrize("text", ["id", "id bigunt", "id array<int>", "", "id int,, x int", "a int, A int"])
def test_columns_that_cannot_be(text: str) -> None:
    with pytest.raises(IngestFailed):
        parse_columns(text)


@pytest.mark.spark
def test_no_line_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    source = _write(tmp_path / "in", [*GOOD[:2], *BAD, *GOOD[2:]])
    result = ingest(spark, source, tmp_path / "out", COLUMNS)
    assert (result.rows_in, result.rows_out, result.rows_quarantined) == (len(GOOD) + len(BAD), len(GOOD), len(BAD))
    assert _rows(tmp_path / "out") == ROWS
    assert _quarantined(result) == BAD
    assert result.quarantine == quarantine_folder(tmp_path / "out")


@pytest.mark.spark
def test_bytes_that_are_no_text(spark: SparkSession, tmp_path: Path) -> None:
    source = _write(tmp_path / "in", GOOD)
    (source / "b.txt").write_bytes(b"6|caf\xe9|1|2024-01-01|true\n")
    result = ingest(spark, source, tmp_path / "out", COLUMNS)
    assert (result.rows_out, result.rows_quarantined) == (len(GOOD), 1)
    assert list(_quarantined(result).values()) == ["not UTF-8 text"]


@pytest.mark.spark
def test_other_delimiters_and_headers(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        _write(tmp_path / "in", ["id;n", "1;2", "3;"], name)
    result = ingest(
        spark, tmp_path / "in", tmp_path / "out", parse_columns("id int, n int"), delimiter=";", header=True
    )
    assert result == Ingested(4, 4, 0, None)
    assert sorted(pq.read_table(tmp_path / "out").column("id").to_pylist()) == [1, 1, 3, 3]


@pytest.mark.spark
def test_a_new_run_replaces_table_and_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert ingest(spark, _write(tmp_path / "in", [*GOOD, *BAD]), out, COLUMNS).rows_quarantined == len(BAD)
    result = ingest(spark, _write(tmp_path / "in", GOOD), out, COLUMNS)
    assert result == Ingested(len(GOOD), len(GOOD), 0, None)
    assert not quarantine_folder(out).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


@pytest.mark.spark
def test_a_run_that_fails_leaves_the_old_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    source = _write(tmp_path / "in", GOOD)
    ingest(spark, source, out, COLUMNS)

    def lose(*_: object) -> tuple[int, int]:
        raise OSError("no space left on device")

    monkeypatch.setattr("statsproc.data.ingest._write_good", lose)
    with pytest.raises(OSError, match="no space"):
        ingest(spark, source, out, COLUMNS)
    assert len(_rows(out)) == len(GOOD)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


@pytest.mark.spark
def test_what_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(IngestFailed, match="holds no files"):
        ingest(spark, tmp_path / "nowhere", tmp_path / "out", COLUMNS)
    with pytest.raises(IngestFailed, match="cannot be a delimiter"):
        ingest(spark, tmp_path, tmp_path / "out", COLUMNS, delimiter='"')
