"""Parts of Parquet files: together they are the file, and a copy without some columns is right for all others."""

from __future__ import annotations

import itertools
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore.objects.ranges import FRAME, gaps, merged, parts_of, split, stored_names

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda two: (min(two), max(two))))


@given(RANGES, st.integers(0, 5))
def test_merged_ranges_hold_the_same_bytes_and_the_gaps_that_are_allowed(
    ranges: list[tuple[int, int]], gap: int
) -> None:
    exact = {at for begin, end in ranges for at in range(begin, end)}
    result = merged(ranges, gap=gap)
    held = {at for begin, end in result for at in range(begin, end)}
    assert exact <= held
    assert all(second[0] > first[1] + gap for first, second in itertools.pairwise(result))
    assert {at for begin, end in gaps(merged(ranges), 61) for at in range(begin, end)} == set(range(61)) - exact
    assert {at for begin, end in split(merged(ranges), 7) for at in range(begin, end)} == exact


@pytest.fixture(params=[{}, {"write_page_index": True}, {"use_dictionary": False, "compression": "none"}])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    rows = pa.table(
        {
            "id": range(50_000),
            "s": pa.array([{"x": i, "y": [i, i + 1]} for i in range(50_000)]),
            "name": [f"name {i % 1_000}" for i in range(50_000)],
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(rows, path, row_group_size=20_000, **request.param)
    return path


def rows(sql: str) -> list[tuple[object, ...]]:
    return duckdb.execute(sql).fetchall()


@pytest.mark.parametrize("column", ["id", "s", "name"])
def test_a_copy_with_one_column_reads_like_the_file(file: Path, tmp_path: Path, column: str) -> None:
    content = file.read_bytes()
    parts = parts_of(pq.read_metadata(file), len(content))
    assert sum(part.bytes for part in parts.values()) == len(content)
    assert parts.keys() == {FRAME, "id", "s", "name"}
    sparse = bytearray(len(content))
    for name in (FRAME, column):
        for begin, end in parts[name].ranges:
            sparse[begin:end] = content[begin:end]
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(sparse)
    sql = f"SELECT {column} FROM read_parquet('{{}}') ORDER BY hash({column}::VARCHAR)"
    assert rows(sql.format(copy)) == rows(sql.format(file))
    assert pq.read_table(copy, columns=[column]).equals(pq.read_table(file, columns=[column]))
    other = "id" if column == "name" else "name"
    with pytest.raises(duckdb.Error):
        rows(sql.replace(column, other).format(copy))


@settings(max_examples=20)
@given(st.sets(st.sampled_from(["ID", "s", "Name", "none"])), st.sets(st.sampled_from([1, 2, 9])))
def test_columns_are_found_by_name_in_any_case_or_by_id(names: set[str], ids: set[int]) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int32(), metadata={"PARQUET:field_id": "1"}),
            pa.field("s", pa.struct([pa.field("id", pa.int32(), metadata={"PARQUET:field_id": "9"})])),
            pa.field("name", pa.string(), metadata={"PARQUET:field_id": "2"}),
        ]
    )
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    found = stored_names(pq.read_metadata(pa.BufferReader(sink.getvalue())), names, ids)
    by_name = {name.lower() for name in names} & {"id", "s", "name"}
    assert found == by_name | {{1: "id", 2: "name"}[one] for one in ids if one != 9}
