from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.join_keys import Bins
from statsproc.sketches.column_summary import summarise
from statsproc.sketches.histogram import Distribution
from statsproc.sketches.join_keys import (
    HEAVY_KEYS,
    KEY_RANGES,
    Cut,
    after,
    codes,
    count_together,
    cut_keys,
    cut_values,
    describe_key,
    key_line,
    merge_keys,
    summarise_key,
)

keys = st.lists(st.none() | st.integers(-20, 20), max_size=80)


def _keys(values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int64())


def _cut(*columns: list[int | None]) -> Bins:
    found = cut_keys([summarise_key(_keys(column), "bigint", None) for column in columns], "t.k")
    assert found is not None
    return found


@settings(deadline=None)
@given(st.lists(st.integers(-20, 20), min_size=1, max_size=80), keys, st.integers(0, 80))
def test_bins_are_exact(values: list[int | None], others: list[int | None], at: int) -> None:
    """Rows, distinct keys and the largest frequency, for both sides of a join, however a side was split."""
    bins = _cut(values, others)
    assert bins.group == "t.k"
    assert np.all(np.diff(bins.starts) > 0)
    for column in (values, others):
        parts = [summarise_key(_keys(part), "bigint", bins) for part in (column[:at], column[at:])]
        for merged in (merge_keys(parts), merge_keys(parts[::-1])):
            found = describe_key(merged, "k", Cut({"k": bins}), rows=len(column))
            known = np.array([key for key in column if key is not None], dtype=float)
            of_keys = bins.of(known)
            np.testing.assert_array_equal(found.rows, np.bincount(of_keys, minlength=bins.count))
            assert found.rows.sum() == known.size
            for number in range(bins.count):
                _, held = np.unique(known[of_keys == number], return_counts=True)
                assert (found.ndv[number], found.largest[number]) == (held.size, held.max(initial=0))


def test_popular_keys_have_a_bin_for_themselves() -> None:
    source = np.random.default_rng(1)
    sales = source.zipf(1.3, 50_000).clip(max=20_000).tolist()
    bins = _cut(sales, list(range(20_001)))
    assert bins.count <= 2 * HEAVY_KEYS + KEY_RANGES + 1
    values, held = np.unique(sales, return_counts=True)
    for value in values[np.argsort(-held)[:50]]:
        first, last = bins.of(np.array([value, np.nextafter(value, np.inf)], dtype=float))
        assert bins.starts[first] == value
        assert last == first + 1
    found = describe_key(summarise_key(_keys(sales), "bigint", bins), "k", Cut({"k": bins}), rows=len(sales))
    assert found.rows.sum() == len(sales)
    assert found.ndv.sum() == values.size


def test_many_keys_are_estimated_per_bin() -> None:
    values = np.random.default_rng(1).permutation(500_000).tolist()
    bins = _cut(values)
    found = describe_key(summarise_key(_keys(values), "bigint", bins), "k", Cut({"k": bins}), rows=len(values))
    assert found.rows.sum() == len(values)
    assert found.ndv.sum() == pytest.approx(len(values), rel=0.03)
    assert np.all(found.ndv <= found.rows)


@pytest.mark.parametrize(
    ("one", "other", "types"),
    [
        (pa.array([1, None, 3], pa.int32()), pa.array([1.0, 3.0, float("nan")]), ("int", "double")),
        (pa.array(["a", None, "b"]), pa.array(["b", "a", None]).dictionary_encode(), ("string", "varchar(3)")),
        (pa.array([1, 3], pa.decimal128(20, 0)), pa.array([3, 1], pa.uint8()), ("decimal(20,0)", "smallint")),
    ],
)
def test_keys_of_different_types_meet(one: pa.Array, other: pa.Array, types: tuple[str, str]) -> None:
    lines = [key_line(column.drop_null(), kind) for column, kind in zip((one, other), types, strict=True)]
    assert set(lines[0]) == {key for key in lines[1] if key == key}


def test_nothing_but_null() -> None:
    bins = _cut([1, 2, 2])
    for nothing in (pa.nulls(5), pa.nulls(5, pa.int64()), pa.array([], pa.int64())):
        found = describe_key(summarise_key(nothing, "bigint", bins), "k", Cut({"k": bins}), rows=5)
        assert (found.rows.sum(), found.ndv.sum(), found.largest.sum()) == (0, 0, 0)
        merged = merge_keys([summarise_key(nothing, "bigint", bins)] * 2)
        assert describe_key(merged, "k", Cut({"k": bins}), rows=10).rows.sum() == 0
        assert cut_keys([merged], "t.k") is None
        assert set(codes(nothing, "bigint", bins, is_key=True)) <= {bins.count}
    assert cut_keys([], "t.k") is None


def test_rows_are_counted_by_bucket_and_bin() -> None:
    key, other = np.array([0, 1, 1, 2, 2]), np.array([0, 1, 2, 1, 0])  # bin 2 of 2: no key; bucket 2 of 2: NULL
    counts = count_together(key, 2, other, 2)
    assert counts.tolist() == [[1, 0], [0, 1], [0, 1]]


def test_codes_of_every_row() -> None:
    bins = Bins(np.array([0.0, 5.0]))
    found = codes(pa.array([1.0, None, 7.0, float("nan"), -3.0]), "double", bins, is_key=True)
    assert found.tolist() == [0, 2, 1, 2, 0]
    words = Bins(np.array([b"a", b"m"], dtype="S32"))
    for column in (pa.array(["b", None, "z"]), pa.array(["b", None, "z"]).dictionary_encode()):
        assert codes(column, "string", words, is_key=False).tolist() == [0, 2, 1]


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=300))
def test_buckets_of_a_filter_column_begin_at_its_values(values: list[float]) -> None:
    known = summarise(pa.array(values), "double").distribution
    cut = cut_values(known, text=False, ndv=len(set(values)))
    assert cut is not None
    assert set(cut.starts) <= {*known.values, *after(known.values)}
    assert cut.of(np.array([min(values)]))[0] == 0


def test_filter_columns_without_buckets() -> None:
    nothing = Distribution(np.empty(0), np.empty(0), np.empty(0))
    assert cut_values(nothing, text=False, ndv=0) is None
    texts = summarise(pa.array([f"t{n}" for n in range(2000)]), "string").distribution
    assert cut_values(texts, text=True, ndv=2000) is None


def test_the_next_place() -> None:
    assert after(np.array([1.0]))[0] > 1.0
    words: Any = np.array([b"ab", b"x" * 32], dtype="S32")
    assert after(words)[0] > b"ab"
    assert after(words)[1] == b"x" * 32


def test_cuts_are_told_apart() -> None:
    bins = Bins(np.array([0.0, 5.0]), "t.k", 1)
    cut = Cut({"k": bins})
    assert cut.identity == Cut({"k": Bins(np.array([0.0, 5.0]), "t.k", 7)}).identity
    assert len({cut.identity, Cut({"j": bins}).identity, Cut({"k": bins}, step=2).identity, Cut().identity}) == 4
