"""What a task makes of a chunk that has keys: what is read, and which rows are chosen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from selector.join_keys import Bins
from sql.tables import Column, TableSource
from statsproc.read.files import TableChunk
from statsproc.read.partitions import with_partition
from statsproc.read.task import Wanted, summarise_chunk
from statsproc.sketches.join_keys import Cut, KeyRows, describe_key
from statsproc.sketches.table_summary import TableSummary, encode, merge_tables

ROWS = 400
TABLE = pa.table(
    {
        "shop": pa.array([None if n % 10 == 0 else n % 7 for n in range(ROWS)], pa.int32()),
        "book": [None if n % 11 == 0 else f"book {n % 40}" for n in range(ROWS)],
        "price": np.arange(ROWS) + 0.5,
        "cover": pa.array([b"-"] * ROWS, pa.binary()),
    }
)
TYPES = {"shop": "int", "book": "string", "price": "double", "cover": "binary"}
LINE = Bins(np.linspace(-1.0, 2.0**53, 9), "g", 1)
CUT = Cut(dict.fromkeys(("shop", "book", "shop,book"), LINE))
WANTED = Wanted(TYPES, tuple(CUT.bins), CUT, sample_share=0.1, key_share=0.5)


@dataclass
class Watched:
    """A chunk that notes what is read of it."""

    read: list[str] = field(default_factory=list)
    name: str = "data"
    folder: str = ""
    rows: int = ROWS

    def column(self, name: str) -> pa.ChunkedArray:
        self.read.append(name)
        return TABLE.column(name)


def _summary(wanted: Wanted = WANTED, table: pa.Table = TABLE) -> TableSummary:
    return summarise_chunk(TableChunk("data", "", table), wanted)


def test_columns_are_read_once_and_those_of_keys_once_more() -> None:
    chunk = Watched()
    summarise_chunk(chunk, WANTED)
    assert chunk.read == ["shop", "book", *TYPES]
    chunk = Watched()
    summarise_chunk(chunk, Wanted(TYPES, ("shop,book",)))
    assert sorted(chunk.read[:2]) == ["book", "shop"]
    assert chunk.read[2:] == list(TYPES)


@pytest.mark.parametrize("key", CUT.bins)
def test_rows_of_chosen_keys_are_whole_and_none_of_them_is_null(key: str) -> None:
    chosen = _summary().keys[key].chosen
    assert set(chosen.columns) == {"shop", "book", "price"}
    held = list(zip(*(chosen.columns[name].to_pylist() for name in key.split(",")), strict=True))
    assert 0 < len(held) < ROWS
    assert all(None not in values for values in held)
    whole = list(zip(*(TABLE.column(name).to_pylist() for name in key.split(",")), strict=True))
    rows = [row for row, values in enumerate(whole) if values in set(held)]
    assert chosen.columns["price"].to_pylist() == [row + 0.5 for row in rows]
    assert chosen.columns["book"].to_pylist() == [TABLE.column("book")[row].as_py() for row in rows]


def test_nothing_is_chosen_without_a_share_or_a_cut() -> None:
    for wanted in (Wanted(TYPES, tuple(CUT.bins), CUT), Wanted(TYPES, tuple(CUT.bins), key_share=0.5)):
        found = _summary(wanted)
        assert set(found.keys) == set(CUT.bins)
        assert all((key.chosen.share, key.chosen.line.size) == (0.0, 0) for key in found.keys.values())


def test_a_name_with_a_comma_is_a_column_where_there_is_one() -> None:
    table = pa.table({"a": [1, 2], "a,b": [3, 3], "b": [4, 4]})
    types = dict.fromkeys(table.column_names, "bigint")
    for columns, different in ((types, 1), ({"a": "bigint", "b": "bigint"}, 2)):
        found = _summary(Wanted(columns, ("a,b",)), table)
        assert found.keys["a,b"].distinct.count == different


def test_partition_columns_are_in_the_rows_that_are_chosen() -> None:
    columns = (*(Column(name, kind) for name, kind in TYPES.items()), Column("day", "date"), Column("land", "string"))
    source = TableSource("sales", "/data/sales", "parquet", columns, partition_columns=("day", "land"))
    halves = [TABLE.slice(0, ROWS // 2), TABLE.slice(ROWS // 2)]
    values = [{"day": "1970-01-03", "land": "fr"}, {"day": "__HIVE_DEFAULT_PARTITION__", "land": "be"}]
    parts = [with_partition(_summary(table=half), source, of) for half, of in zip(halves, values, strict=True)]
    whole = merge_tables(parts)
    for name in CUT.bins:
        key = describe_key(whole.keys[name], name, CUT).sample
        assert key is not None
        first = key.rows.columns["price"].rows.astype(float) < ROWS // 2
        assert 0 < first.sum() < first.size
        day, land = (key.rows.columns[column] for column in ("day", "land"))
        np.testing.assert_array_equal(day.nulls, ~first)
        assert set(day.rows[first]) == {2.0}
        np.testing.assert_array_equal(land.rows, np.where(first, "fr", "be"))


def test_a_part_that_chose_nothing_gets_no_columns_of_its_folder() -> None:
    source = TableSource("sales", "/data/sales", "parquet", (Column("day", "int"),), partition_columns=("day",))
    part = with_partition(_summary(Wanted(TYPES, tuple(CUT.bins), CUT)), source, {"day": "1"})
    assert all(key.chosen.columns == KeyRows().columns for key in part.keys.values())
    assert part.columns["day"].rows == ROWS


def test_helpers_find_what_one_thread_finds() -> None:
    """Whatever the order in which they come to an end."""
    table = pa.table({name: np.random.default_rng(n).integers(0, 9_000, 2_000) for n, name in enumerate("abcdef")})
    chunk, wanted = TableChunk("data", "", table), Wanted(dict.fromkeys("abcdef", "bigint"), sample_share=0.5)
    with ThreadPoolExecutor(4) as helpers:
        found = summarise_chunk(chunk, wanted, helpers)
    assert encode(found) == encode(summarise_chunk(chunk, wanted))
    assert list(found.columns) == list("abcdef")


def test_an_error_in_a_helper_is_raised() -> None:
    chunk = TableChunk("data", "", pa.table({"a": pa.array([[1]])}))
    with ThreadPoolExecutor(1) as helpers, pytest.raises(TypeError, match="no numbers in list"):
        summarise_chunk(chunk, Wanted({"a": "bigint"}), helpers)
