from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.join_keys import Bins, chance_of
from statsproc.read.files import TableChunk
from statsproc.read.task import Wanted, summarise_chunk, summarise_chunks
from statsproc.sketches.column_summary import describe
from statsproc.sketches.join_keys import Cut, KeyRows
from statsproc.sketches.table_summary import (
    FORMAT,
    TableSummary,
    UnreadableSummary,
    compact_table,
    decode,
    encode,
    merge_tables,
)
from tests.statsproc.truth import check_column, line

TYPES = {"k": "bigint", "x": "double", "s": "string", "b": "binary"}
BINS = Bins(np.array([0.0, 1.0, np.nextafter(1.0, 2.0), 4.0]), "t.k", 1)
TEXT_BINS = Bins(np.linspace(0.0, 2.0**53, 5), "t.s", 1)
CUT = Cut({"k": BINS, "s": TEXT_BINS, "k,s": replace(TEXT_BINS, group="t.k,s")})
WANTED = Wanted(TYPES, tuple(CUT.bins), CUT, sample_share=0.5, key_share=0.6)

rows = st.lists(
    st.tuples(
        st.none() | st.integers(0, 6), st.none() | st.floats(), st.none() | st.text(max_size=9), st.binary(max_size=3)
    ),
    max_size=50,
)


def _table(values: list[tuple[Any, ...]]) -> pa.Table:
    kinds = (pa.int64(), pa.float64(), pa.string(), pa.binary())
    columns = list(zip(*values, strict=True)) or [()] * len(kinds)
    return pa.table({n: pa.array(c, t) for n, c, t in zip(TYPES, columns, kinds, strict=True)})


def _summary(values: list[tuple[Any, ...]], place: str = "here") -> TableSummary:
    return summarise_chunk(TableChunk(place, "", _table(values)), WANTED)


def _check(found: TableSummary, values: list[tuple[Any, ...]]) -> None:
    assert found.rows == len(values)
    for at, (name, data_type) in enumerate(TYPES.items()):
        column = [value[at].encode() if isinstance(value[at], str) else value[at] for value in values]
        truth = line([float(v) if isinstance(v, int) else v for v in column])
        check_column(describe(found.columns[name], name, data_type), truth, rank_error=len(values) / 50)
    if not values:
        return
    keys = np.array([value[0] for value in values if value[0] is not None], dtype=float)
    key = found.keys["k"]
    np.testing.assert_array_equal(key.rows, np.bincount(BINS.of(keys), minlength=BINS.count))
    assert found.keys["s"].rows.sum() == sum(value[2] is not None for value in values)
    both = [value for value in values if value[0] is not None and value[2] is not None]
    assert found.keys["k,s"].rows.sum() == len(both)
    assert found.keys["k,s"].distinct.count == len({(k, s) for k, _, s, _ in both})
    for name, of_row in (("k", lambda row: row[0]), ("s", lambda row: row[2]), ("k,s", lambda row: (row[0], row[2]))):
        _check_chosen(found.keys[name].chosen, [(of_row(row), row) for row in values])


def _check_chosen(chosen: KeyRows, values: list[tuple[Any, tuple[Any, ...]]]) -> None:
    """Of every key that is in it all rows are there, whole; NULL is no key. values: a key and the row."""
    assert set(chosen.columns) == {"k", "x", "s"}
    assert chosen.share == WANTED.key_share
    held = Counter(map(repr, zip(*(chosen.columns[name].to_pylist() for name in ("k", "s")), strict=True)))
    of_keys: dict[Any, Counter[str]] = {}
    for key, (k, _, s, _) in values:
        if key is not None and (not isinstance(key, tuple) or None not in key):
            of_keys.setdefault(key, Counter())[repr((None if k is None else float(k), s))] += 1
    assert held == sum((rows for rows in of_keys.values() if set(rows) <= set(held)), Counter())
    assert chosen.line.size == held.total()
    known = {place for place, popular in zip(chosen.line, chosen.popular, strict=True) if not popular}
    assert all(place < 0.6 for place in chance_of(np.array(sorted(known))))


@settings(deadline=None, max_examples=60)
@given(rows, st.lists(st.integers(0, 50), max_size=4), st.randoms())
def test_any_split_in_any_order_is_the_whole(values: list[tuple[Any, ...]], cuts: list[int], random: Any) -> None:
    bounds = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    parts = [_summary(values[low:high], f"{low}") for low, high in pairwise(bounds)]
    random.shuffle(parts)
    parts = [decode(encode(compact_table(part))) for part in parts]
    for merged in (merge_tables(parts), merge_tables([parts[0], merge_tables(parts[1:] or [TableSummary()])])):
        _check(merged, values)
        assert set(merged.sample.columns) == {"k", "x", "s"}
        assert all(len(column) == merged.sample.tickets.size for column in merged.sample.columns.values())


@settings(deadline=None, max_examples=60)
@given(rows)
def test_a_summary_travels_unchanged(values: list[tuple[Any, ...]]) -> None:
    sent = _summary(values)
    arrived = decode(encode(sent))
    assert encode(arrived) == encode(sent)
    _check(arrived, values)
    assert (arrived.cut, arrived.rows) == (sent.cut, sent.rows)
    for name, key in sent.keys.items():
        np.testing.assert_array_equal(arrived.keys[name].chosen.line, key.chosen.line)
        np.testing.assert_array_equal(arrived.keys[name].chosen.popular, key.chosen.popular)
    np.testing.assert_array_equal(arrived.sample.tickets, sent.sample.tickets)
    assert {n: c.to_pylist() for n, c in arrived.sample.columns.items() if n != "x"} == {
        n: c.to_pylist() for n, c in sent.sample.columns.items() if n != "x"
    }


def test_awkward_names_travel() -> None:
    names = ("a.b", "", 'é`"\n', "c0", "c0.values")
    table = pa.table({name: [n] for n, name in enumerate(names)})
    sent = summarise_chunk(TableChunk("x", "", table), Wanted(dict.fromkeys(names, "bigint"), sample_share=1.0))
    arrived = decode(encode(sent))
    assert list(arrived.columns) == list(names)
    assert [arrived.columns[name].distribution.values.tolist() for name in names] == [[n] for n in range(len(names))]
    assert {name: column.to_pylist() for name, column in arrived.sample.columns.items()} == {
        name: [n] for n, name in enumerate(names)
    }


@pytest.mark.parametrize(
    "damage", [lambda stored: b"", lambda stored: b"nonsense", lambda stored: stored[: len(stored) // 2]]
)
def test_what_cannot_be_read_says_so(damage: Any) -> None:
    with pytest.raises(UnreadableSummary):
        decode(damage(encode(_summary([(1, 2.0, "x", b"")]))))


def test_a_summary_of_another_version_says_so() -> None:
    batch = pa.RecordBatch.from_pylist([{"name": "", "type": "", "data": json.dumps({"format": FORMAT + 1}).encode()}])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    with pytest.raises(UnreadableSummary, match=f"has format {FORMAT + 1}, not {FORMAT}"):
        decode(sink.getvalue().to_pybytes())


def test_columns_and_keys_that_are_not_in_all_parts_are_left_out() -> None:
    one, other = _summary([(1, 2.0, "x", b"")]), _summary([(2, 3.0, "y", b"")])
    fewer = replace(other, columns={"k": other.columns["k"]}, keys={})
    merged = merge_tables([one, fewer])
    assert (list(merged.columns), merged.keys, merged.rows) == (["k"], {}, 2)
    cut_anew = merge_tables([one, replace(other, cut="another")])
    assert (cut_anew.keys, cut_anew.cut) == ({}, "")


def test_parts_without_rows_have_no_say() -> None:
    one = _summary([(1, 2.0, "x", b"")])
    assert merge_tables([TableSummary(), one, TableSummary()]) is one
    assert merge_tables([]).rows == 0


def test_chunks_of_a_partition_are_put_together() -> None:
    chunks = [TableChunk(f"{n}", f"day={n // 20}", _table([(n % 7, float(n), "s", b"")])) for n in range(40)]
    found = dict(summarise_chunks(chunks, WANTED))
    assert {folder: summary.rows for folder, summary in found.items()} == {"day=0": 20, "day=1": 20}
    assert found["day=1"].columns["x"].distribution.values[0] == 20.0
