"""Names that mean something else to an engine, and files that come to have the names of others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.gateway.house import House

pytestmark = pytest.mark.spark


def numbers(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def ids(house: House, table: str) -> list[int]:
    return [row["id"] for row in house.both(f"SELECT id FROM {table} ORDER BY id")]


def test_files_whose_names_are_patterns(house: House, tmp_path: Path) -> None:
    names = ("h[1]", "h1", "{a,b}", "a", "q?", "q1", "*", "j\\k")
    for number, name in enumerate(names):
        pq.write_table(numbers(number), tmp_path / f"{name}.parquet")
    house.register("patterns", tmp_path)
    assert ids(house, "patterns") == list(range(len(names)))
    house.done("CREATE TABLE patterns_copy AS SELECT * FROM patterns")
    assert ids(house, "patterns_copy") == list(range(len(names)))


def test_a_version_that_was_taken_back_by_hand(house: House, tmp_path: Path) -> None:
    write_deltalake(tmp_path, numbers(1))
    write_deltalake(tmp_path, numbers(2), mode="append")
    house.register("taken_back", tmp_path)
    assert ids(house, "taken_back") == [1, 2]
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    write_deltalake(tmp_path, numbers(30), mode="append")
    assert ids(house, "taken_back") == [1, 30]
    house.done("UPDATE taken_back SET id = id + 100")
    assert ids(house, "taken_back") == [101, 130]


def test_a_backup_in_the_place_of_a_table(house: House, tmp_path: Path) -> None:
    table, backup = tmp_path / "t", tmp_path / "backup"
    write_deltalake(table, numbers(1))
    shutil.copytree(table, backup)
    write_deltalake(table, numbers(2), mode="append")
    house.register("restored", table)
    assert ids(house, "restored") == [1, 2]
    shutil.rmtree(table)
    shutil.copytree(backup, table)
    write_deltalake(table, numbers(40), mode="append")
    assert ids(house, "restored") == [1, 40]


def test_an_iceberg_folder_that_went_back(house: House, tmp_path: Path) -> None:
    house.done(f"CREATE TABLE went_back (id BIGINT) USING iceberg LOCATION '{tmp_path / 't'}'")
    for number in (1, 2):
        house.done(f"INSERT INTO went_back VALUES ({number})")
    assert ids(house, "went_back") == [1, 2]
    assert len(house.done("SELECT * FROM went_back.files")) == 2
    (tmp_path / "t" / "metadata" / "v3.metadata.json").unlink()
    assert ids(house, "went_back") == [1]
    house.done("INSERT INTO went_back VALUES (60)")
    assert ids(house, "went_back") == [1, 60]
    (file,) = house.done("SELECT max(record_count) AS m, count(*) AS n FROM went_back.files")
    assert file == {"m": 1, "n": 2}


def test_a_table_that_is_made_anew_each_night(house: House, tmp_path: Path) -> None:
    place = f"USING iceberg LOCATION '{tmp_path / 't'}'"
    for columns, values, row in (
        ("id BIGINT", "(1)", {"id": 1}),
        ("id BIGINT", "(7)", {"id": 7}),
        ("id BIGINT, x STRING", "(8, 'a')", {"id": 8, "x": "a"}),
    ):
        house.done("DROP TABLE IF EXISTS nightly")
        shutil.rmtree(tmp_path / "t", ignore_errors=True)
        house.done(f"CREATE TABLE nightly ({columns}) {place}")
        house.done(f"INSERT INTO nightly VALUES {values}")
        assert house.both("SELECT * FROM nightly") == [row]


def test_rows_are_changed_by_place_and_not_by_what_they_say_of_it(house: House) -> None:
    """A column has the name by which Spark knows where a row lies."""
    house.done("CREATE TABLE forged (id BIGINT, _metadata STRUCT<file_path: STRING, row_index: BIGINT>) USING iceberg")
    house.done(
        "INSERT INTO forged SELECT id, named_struct('file_path', 'x', 'row_index', 0L) FROM "
        "(SELECT explode(sequence(0L, 4L)) AS id)"
    )
    (file,) = house.done("SELECT file_path FROM forged.files")
    uri = f"file://{file['file_path']}"
    house.done(f"INSERT INTO forged SELECT 10L, named_struct('file_path', '{uri}', 'row_index', 2L)")
    house.done("DELETE FROM forged WHERE id IN (3, 10)")
    assert ids(house, "forged") == [0, 1, 2, 4]
