from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.join_keys import Bins, chance_of
from selector.key_line import line_of_sample, line_of_texts, line_together
from statsproc.sketches.join_keys import (
    FEW_ROWS,
    HEAVY_KEYS,
    KEY_RANGES,
    KEY_ROWS,
    KEY_VALUES,
    Cut,
    Floats,
    KeyRows,
    KeySummary,
    after,
    choose_rows,
    cut_keys,
    describe_key,
    key_line,
    line_of_columns,
    line_of_rows,
    merge_keys,
    merge_rows,
    rows_of_keys,
    summarise_key,
)
from statsproc.sketches.sample import sampled_rows, take_rows

SHARE = 0.3  # chance of a key in the tests of chosen rows
POPULAR = 1_000.0  # a key with a bin for itself, above all others
BINS = Bins(np.array([0.0, POPULAR, np.nextafter(POPULAR, np.inf)]), "t.k", 1)

keys = st.lists(st.none() | st.integers(-20, 20), max_size=80)


def _line(values: list[int | None] | pa.Array) -> Floats:
    return line_of_rows(pa.array(values, pa.int64()), "bigint")


def _cut(*columns: list[int | None]) -> Bins:
    found = cut_keys([summarise_key(_line(column), None) for column in columns], "t.k")
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
        parts = [summarise_key(_line(part), bins) for part in (column[:at], column[at:])]
        for merged in (merge_keys(parts), merge_keys(parts[::-1])):
            found = describe_key(merged, "k", Cut({"k": bins}))
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
        assert bins.alone[first]
    found = describe_key(summarise_key(_line(sales), bins), "k", Cut({"k": bins}))
    assert found.rows.sum() == len(sales)
    assert found.ndv.sum() == values.size


@settings(deadline=None)
@given(st.lists(st.integers(-20, 20), min_size=1, max_size=40), st.lists(st.integers(-60, -21), min_size=1, max_size=5))
def test_later_keys_below_all_others_are_not_taken_for_a_popular_one(
    values: list[int | None], later: list[int]
) -> None:
    bins = _cut(values)
    of_later = bins.of(np.array(later, dtype=float))
    assert not bins.alone[of_later].any()
    found = describe_key(summarise_key(_line([*values, *later]), bins), "k", Cut({"k": bins}))
    assert found.ndv[of_later[0]] == len(set(later))


def test_many_keys_are_estimated_per_bin() -> None:
    values = np.random.default_rng(1).permutation(500_000).tolist()
    bins = _cut(values)
    found = describe_key(summarise_key(_line(values), bins), "k", Cut({"k": bins}))
    assert found.rows.sum() == len(values)
    assert found.ndv.sum() == pytest.approx(len(values), rel=0.03)
    assert np.all(found.ndv <= found.rows)


def test_counts_are_scaled_up_from_the_share_that_was_read() -> None:
    values: list[int | None] = [n % 10 for n in range(200)]
    bins = _cut(values)
    found = describe_key(summarise_key(_line(values), bins), "k", Cut({"k": bins}), share=0.25)
    assert found.rows.sum() == 4 * len(values)
    assert found.largest.max() == 4 * 20


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
        summary = summarise_key(line_of_rows(nothing, "bigint"), bins)
        found = describe_key(summary, "k", Cut({"k": bins}))
        assert (found.rows.sum(), found.ndv.sum(), found.largest.sum()) == (0, 0, 0)
        merged = merge_keys([summary] * 2)
        assert describe_key(merged, "k", Cut({"k": bins})).rows.sum() == 0
        assert cut_keys([merged], "t.k") is None
    assert cut_keys([], "t.k") is None


def test_the_next_place() -> None:
    assert after(np.array([1.0]))[0] == 1.0 + np.finfo(float).eps
    assert after(np.array([np.finfo(float).max]))[0] == np.inf


def test_cuts_are_told_apart() -> None:
    bins = Bins(np.array([0.0, 5.0]), "t.k", 1)
    cut = Cut({"k": bins})
    assert cut.identity == Cut({"k": Bins(np.array([0.0, 5.0]), "t.k", 7)}).identity
    others = [Cut({"j": bins}), Cut({"k": Bins(np.array([0.0, 6.0]))}), Cut({"k": bins, "j": bins}), Cut()]
    assert len({one.identity for one in (cut, *others)}) == len(others) + 1
    assert Cut().identity == ""


# ---------------------------------------------------------------------- keys of several columns


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-3, 3) | st.integers(-(2**53), 2**53),
            st.none() | st.text(max_size=3) | st.text(min_size=30, max_size=70),
            st.none() | st.sampled_from([0.0, -0.0, 0.5, float("nan")]),
        ),
        min_size=1,
        max_size=20,
    ),
    st.booleans(),
)
def test_the_estimator_puts_keys_where_the_job_put_them(rows: list[tuple[Any, ...]], dictionary: bool) -> None:
    """What the estimator reckons from sampled values is the job's, to the bit, for one column and for several."""
    whole, texts, numbers = (
        pa.array([row[at] for row in rows], kind) for at, kind in enumerate((pa.int64(), pa.string(), pa.float64()))
    )
    columns = {"w": (whole, "bigint"), "t": (texts, "string"), "n": (numbers, "double")}
    stored = texts.dictionary_encode() if dictionary else texts
    lines = [line_of_rows(stored if name == "t" else array, kind) for name, (array, kind) in columns.items()]
    every = np.arange(len(rows))
    sample = sampled_rows({name: take_rows(array, every, kind) for name, (array, kind) in columns.items()}, 1.0)
    seen = [np.append(line_of_sample(column), np.nan)[column.codes] for column in sample.columns.values()]
    for by_job, by_estimator in zip(lines, seen, strict=True):
        np.testing.assert_array_equal(by_job, by_estimator)
    together = line_of_columns(lines)
    missing = np.array([any(value is None or value != value for value in row) for row in rows])
    np.testing.assert_array_equal(np.isnan(together), missing)
    np.testing.assert_array_equal(together[~missing], line_together([line[~missing] for line in seen]))
    same = {
        tuple(0.0 if value == 0 else value for value in row)
        for row, gone in zip(rows, missing, strict=True)
        if not gone
    }
    assert np.unique(together[~missing]).size == len(same)


@given(st.lists(st.text(max_size=300) | st.integers(250, 260).map(lambda n: "x" * n), max_size=10))
def test_strings_of_any_length_have_one_place(texts: list[str]) -> None:
    by_job = line_of_rows(pa.array(texts, pa.string()), "string")
    np.testing.assert_array_equal(by_job, line_of_texts([text.encode() for text in texts]))


# ---------------------------------------------------------------------- rows that are chosen by their key


def _chosen(values: list[int | None], *, share: float = SHARE, bins: Bins = BINS) -> KeyRows:
    """Choose rows of a chunk, with a column that holds their keys and one that numbers them."""
    line = _line(values)
    rows, found = choose_rows(line, bins, share)
    columns = {"k": pa.array(line[rows]), "row": pa.array(rows)}
    return KeyRows(found.share, found.line, found.popular, columns)


def _light(values: list[int | None], share: float) -> list[float]:
    """Return the keys below the popular one that a share chooses, a row each."""
    line = np.array([value for value in values if value is not None and value < POPULAR], dtype=float)
    return sorted(line[chance_of(line) < share].tolist())


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(0, 60), max_size=120), st.integers(0, 2 * FEW_ROWS), st.floats(0.0, 1.0))
def test_keys_are_chosen_whole_by_chance_and_popular_ones_with_few_rows(
    values: list[int | None], popular_rows: int, share: float
) -> None:
    rows, found = choose_rows(_line([*values, *[int(POPULAR)] * popular_rows]), BINS, share)
    assert np.all(np.diff(rows) > 0)
    np.testing.assert_array_equal(found.line, _line([*values, *[int(POPULAR)] * popular_rows])[rows])
    assert sorted(found.line[~found.popular].tolist()) == _light(values, share)
    assert found.popular.sum() == (popular_rows if popular_rows <= FEW_ROWS else 0)
    assert set(found.line[found.popular]) <= {POPULAR}


def test_the_share_is_that_of_keys_and_the_same_in_every_table() -> None:
    line = np.arange(0.0, 900.0)
    ours, theirs = (choose_rows(some, BINS, SHARE)[1] for some in (line, line[300:]))
    assert ours.line.size == pytest.approx(SHARE * line.size, abs=5 * np.sqrt(SHARE * line.size))
    np.testing.assert_array_equal(ours.line[ours.line >= 300.0], theirs.line)


def test_missing_keys_are_never_chosen() -> None:
    values = pa.array([None, float("nan"), 1.0, None, float("nan")])
    rows, found = choose_rows(line_of_rows(values, "double"), BINS, 1.0)
    assert rows.tolist() == [2]
    assert found.line.tolist() == [1.0]
    either = line_of_columns([np.array([1.0, np.nan, 1.0]), np.array([np.nan, 1.0, 1.0])])
    assert choose_rows(either, BINS, 1.0)[0].tolist() == [2]


@settings(deadline=None)
@given(
    st.lists(st.none() | st.integers(0, 60) | st.just(int(POPULAR)), max_size=120),
    st.integers(0, 120),
    st.integers(0, 120),
    st.tuples(st.floats(0.1, 1.0), st.floats(0.1, 1.0), st.floats(0.1, 1.0)),
)
def test_merged_rows_are_those_of_the_smallest_share(
    values: list[int | None], one: int, other: int, shares: tuple[float, float, float]
) -> None:
    low, high = sorted((min(one, len(values)), min(other, len(values))))
    split = [values[:low], values[low:high], values[high:]]
    parts = [_chosen(part, share=share) for part, share in zip(split, shares, strict=True)]
    for merged in (merge_rows(parts), merge_rows([merge_rows(parts[:2]), parts[2]])):
        assert merged.share == min(shares)
        assert sorted(merged.line[~merged.popular].tolist()) == _light(values, min(shares))
        assert merged.columns["k"].to_pylist() == merged.line.tolist()
        held = [part.count(int(POPULAR)) for part in split]
        if all(rows <= FEW_ROWS for rows in held) and sum(held) <= FEW_ROWS:
            assert merged.popular.sum() == sum(held)  # whatever its chance
        assert merged.popular.sum() <= FEW_ROWS


def test_a_popular_key_with_few_rows_stays_when_the_share_becomes_smaller() -> None:
    chance = float(chance_of(np.array([POPULAR]))[0])
    some: list[int | None] = list(range(50))
    wide, narrow = _chosen([*some, int(POPULAR)], share=(1.0 + chance) / 2), _chosen(some, share=chance / 2)
    merged = merge_rows([wide, narrow])
    assert merged.line[merged.popular].tolist() == [POPULAR]


def test_what_is_twice_as_much_as_wanted_is_halved() -> None:
    bins = Bins(np.array([-1.0, 1e9]))
    parts = [
        _chosen(list(range(first, first + KEY_ROWS)), share=1.0, bins=bins) for first in range(0, 12_000, KEY_ROWS)
    ]
    assert merge_rows(parts[:2]).share == 1.0
    merged = merge_rows(parts)
    assert merged.share == 0.5
    assert merged.line.tolist() == [n for n in range(12_000) if chance_of(np.array([float(n)]))[0] < 0.5]
    one_key = KeyRows(1.0, np.full(3 * KEY_ROWS, 7.0), np.zeros(3 * KEY_ROWS, dtype=np.bool_), {})
    assert merge_rows([one_key]).line.size == 0  # whole, or not at all


def test_rows_of_a_wide_table_are_fewer_and_popular_keys_stay() -> None:
    rows, columns = 3_000, 200
    line = np.arange(float(rows))
    popular = line < 2_900
    wide = {f"c{n}": pa.array(line) for n in range(columns)}
    merged = merge_rows([KeyRows(1.0, line, popular, wide)])
    assert (merged.share, merged.line.size) == (1.0, rows)
    light = merge_rows([KeyRows(1.0, line, ~popular, wide)])
    assert light.popular.sum() == rows - popular.sum()
    assert (~light.popular).sum() <= 2 * KEY_VALUES // columns < popular.sum()
    assert rows_of_keys(columns, [_cut(list(range(5_000)))] * 3) == KEY_VALUES // columns // 3


def test_where_a_part_chose_nothing_nothing_is_known() -> None:
    assert merge_rows([_chosen([1, 2, 3]), KeyRows()]).columns == {}
    assert merge_rows([]).line.size == 0


def _summary(parts: list[list[int | None]]) -> KeySummary:
    found = []
    for values in parts:
        counted = summarise_key(_line(values), BINS)
        found.append(KeySummary(counted.distinct, rows=counted.rows, chosen=_chosen(values)))
    return merge_keys(found)


@pytest.mark.parametrize(
    ("parts", "there"),
    [
        ([FEW_ROWS], True),
        ([1, 1, 0, 2], True),
        ([FEW_ROWS + 1], False),
        ([FEW_ROWS, 1], False),
        ([FEW_ROWS, FEW_ROWS, 1], False),  # dropped when merged, and met again
        ([2, FEW_ROWS + 1], False),  # rows are missing of what is popular in one chunk only
        ([FEW_ROWS + 1, 2], False),
    ],
)
def test_popular_keys_are_told_only_if_all_their_rows_are_there(parts: list[int], there: bool) -> None:
    light: list[int | None] = list(range(40))
    values: list[list[int | None]] = [[*light, *[int(POPULAR)] * held] for held in parts]
    found = describe_key(_summary(values), "k", Cut({"k": BINS})).sample
    assert found is not None
    assert found.share == found.rows.share == SHARE
    line = found.rows.columns["k"].rows.astype(float)
    assert np.count_nonzero(line == POPULAR) == (sum(parts) if there else 0)
    assert sorted(line[line < POPULAR].tolist()) == _light(light * len(parts), SHARE)


def test_who_has_no_sample_of_a_key() -> None:
    summary, cut = _summary([list(range(40))]), Cut({"k": BINS})
    assert describe_key(summary, "k", cut).sample is not None
    assert describe_key(summary, "k", cut, share=0.5).sample is None  # of a key's rows some were not read
    assert describe_key(summary, "k", cut, sampled=False).sample is None
    assert describe_key(_summary([[None, None]]), "k", cut).sample is None
    assert describe_key(summarise_key(_line([1]), BINS), "k", cut).sample is None
