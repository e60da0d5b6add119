from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.statistics import ColumnStatistics, as_number
from statsproc.sketches.column_summary import (
    ColumnSummary,
    compact,
    constant,
    describe,
    is_summarised,
    merge,
    summarise,
)
from tests.statsproc.truth import RANK_ERROR, check_column, line

MANY = 20_000

DAY = dt.date(1969, 12, 30)
INSTANT = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
LATER = INSTANT + dt.timedelta(seconds=1)
WIDE = Decimal("12345678901234567890123456789012345.678")


def _describe(values: list[Any], data_type: str, arrow: pa.DataType) -> ColumnStatistics:
    return describe(summarise(pa.array(values, arrow), data_type), "c", data_type)


@pytest.mark.parametrize(
    ("data_type", "arrow", "values", "minimum", "maximum"),
    [
        ("boolean", pa.bool_(), [True, None, False, True], 0.0, 1.0),
        ("tinyint", pa.int8(), [-128, None, 127, 127], -128.0, 127.0),
        ("bigint", pa.int64(), [-(2**63), None, 2**63 - 1, 2**63 - 1], -(2.0**63), 2.0**63),
        ("float", pa.float32(), [-0.5, None, 1.5, 1.5], -0.5, 1.5),
        ("decimal(10,2)", pa.decimal128(10, 2), [Decimal("-1.25"), None, Decimal("0.10"), Decimal("0.10")], -1.25, 0.1),
        ("decimal(38,3)", pa.decimal128(38, 3), [-WIDE, None, WIDE, WIDE], -float(WIDE), float(WIDE)),
        ("date", pa.date32(), [DAY, None, dt.date(1970, 1, 2), dt.date(1970, 1, 2)], -2.0, 1.0),
        ("timestamp", pa.timestamp("us", tz="UTC"), [INSTANT, None, LATER, LATER], -1.0, 999_999.0),
        ("timestamp_ntz", pa.timestamp("us"), [INSTANT, None, LATER, LATER], -1.0, 999_999.0),
        ("string", pa.string(), ["", None, "zoë", "zoë"], "", "zoë"),
        ("string", pa.large_string(), ["a", None, "b" * 300, "b" * 300], "a", "b" * 300),
        ("binary", pa.binary(), [b"\x00", None, b"\xff\xff", b"\xff\xff"], None, None),
    ],
)  # fmt: skip
def test_every_type(
    data_type: str, arrow: pa.DataType, values: list[Any], minimum: float | str, maximum: float | str
) -> None:
    found = _describe(values, data_type, arrow)
    assert (found.nulls, found.ndv) == (1, 2.0)
    if data_type in ("string", "binary"):
        assert (found.minimum, found.maximum) == (minimum, maximum)
        lengths = [len(value.encode() if isinstance(value, str) else value) for value in values if value is not None]
        assert (found.average_length, found.maximum_length) == (sum(lengths) / 3, max(lengths))
        assert (found.histogram is None) == (data_type == "binary")
    else:
        assert found.histogram is not None
        assert (found.minimum, found.maximum) == pytest.approx((minimum, maximum), rel=1e-15)
        low = found.histogram.endpoints[0]
        assert found.histogram.share_up_to(low) == pytest.approx(1 / 3)
        assert (found.average_length, found.maximum_length) == (None, None)


def test_literals_land_on_the_values_of_the_column() -> None:
    prices = [Decimal(cents) / 100 for cents in range(1, 20_000, 7)]
    found = summarise(pa.array(prices, pa.decimal128(38, 2)), "decimal(38,2)").distribution.values
    assert set(found) <= {as_number(str(price), "decimal(38,2)") for price in prices}


def test_nan_and_infinities_are_rows_but_not_in_the_histogram() -> None:
    values = [np.nan, -np.inf, 1.0, 2.0, np.inf, None, -np.nan, 0.0, -0.0, 3.0]
    found = _describe(values, "double", pa.float64())
    present = 9
    assert (found.nulls, found.minimum, found.maximum) == (1, 0.0, 3.0)
    assert found.ndv == len({"NaN", "-inf", "inf", 0, 1, 2, 3})
    assert found.histogram is not None
    assert np.all(np.isfinite(found.histogram.endpoints))
    assert found.histogram.share_below(0.0) == 1 / present  # -inf
    assert found.histogram.share_up_to(3.0) == pytest.approx(6 / present)  # NaN and inf lie above


@pytest.mark.parametrize("values", [[], [None, None]])
@pytest.mark.parametrize(("data_type", "arrow"), [("double", pa.float64()), ("string", pa.string())])
def test_columns_without_values(values: list[Any], data_type: str, arrow: pa.DataType) -> None:
    found = _describe(values, data_type, arrow)
    assert (found.nulls, found.ndv) == (len(values), 0.0)
    assert (found.minimum, found.maximum, found.histogram, found.average_length) == (None, None, None, None)


def test_only_nan() -> None:
    found = _describe([np.nan], "double", pa.float64())
    assert (found.ndv, found.minimum, found.histogram) == (1.0, None, None)


def test_no_more_values_than_there_is_room_for() -> None:
    days = np.random.default_rng(1).integers(-20_000, 20_000, 400_000).astype(np.int32)
    distinct = np.unique(days).size
    found = describe(summarise(pa.array(days, pa.date32()), "date"), "c", "date")
    assert distinct * 0.96 < found.ndv <= days.max() - days.min() + 1


def test_slices_and_chunks_are_summarised_as_they_are() -> None:
    texts = pa.array(["aa", "b", None, "cccc", "d"])
    sliced = describe(summarise(texts.slice(1, 3), "string"), "c", "string")
    assert (sliced.minimum, sliced.maximum, sliced.nulls, sliced.average_length) == ("b", "cccc", 1, 2.5)
    decimals = pa.array([Decimal(1), Decimal(2), Decimal(3)], pa.decimal128(20, 0))
    parts = pa.chunked_array([decimals.slice(1, 1), decimals.slice(2)])
    found = describe(summarise(parts, "decimal(20,0)"), "c", "decimal(20,0)")
    assert (found.minimum, found.maximum, found.ndv) == (2.0, 3.0, 2.0)


def test_nested_columns_are_left_out() -> None:
    assert is_summarised("decimal(38,18)")
    assert is_summarised("varchar(20)")
    assert not any(is_summarised(kind) for kind in ("struct<a:int>", "array<int>", "map<int,int>", "interval day"))


numbers = st.lists(st.one_of(st.none(), st.floats(), st.integers(-3, 3).map(float)), max_size=120)
texts = st.lists(st.one_of(st.none(), st.text(max_size=40)), max_size=60)
cuts = st.lists(st.integers(0, 120), max_size=5)


def _split(array: pa.Array, at: list[int]) -> list[pa.Array]:
    bounds = [0, *sorted(min(cut, len(array)) for cut in at), len(array)]
    return [array[low:high] for low, high in pairwise(bounds)]


def _same(a: ColumnStatistics, b: ColumnStatistics) -> None:
    for part in ("nulls", "ndv", "minimum", "maximum", "average_length", "maximum_length"):
        assert getattr(a, part) == getattr(b, part)
    assert (a.histogram is None) == (b.histogram is None)
    if a.histogram is not None and b.histogram is not None:
        np.testing.assert_array_equal(a.histogram.endpoints, b.histogram.endpoints)
        np.testing.assert_allclose(a.histogram.below, b.histogram.below, atol=1e-12)  # type: ignore[arg-type]
        np.testing.assert_allclose(a.histogram.up_to, b.histogram.up_to, atol=1e-12)  # type: ignore[arg-type]
    assert (a.common is None) == (b.common is None)
    if a.common is not None and b.common is not None:
        assert sorted(zip(a.common.values.tolist(), a.common.rows.tolist(), strict=True)) == sorted(
            zip(b.common.values.tolist(), b.common.rows.tolist(), strict=True)
        )


@settings(deadline=None)
@given(numbers, cuts, st.randoms())
def test_any_split_of_numbers_is_the_whole(values: list[float | None], at: list[int], random: Any) -> None:
    array = pa.array(values, pa.float64())
    whole = describe(summarise(array, "double"), "c", "double")
    parts = [summarise(part, "double") for part in _split(array, at)]
    random.shuffle(parts)
    _same(describe(merge([compact(part) for part in parts]), "c", "double"), whole)
    _same(describe(merge([parts[0], merge(parts[1:])]), "c", "double"), whole)
    _same(describe(merge([merge(parts[:-1]), parts[-1]]), "c", "double"), whole)


@settings(deadline=None)
@given(texts, cuts, st.randoms(), st.booleans())
def test_any_split_of_texts_is_the_whole(
    values: list[str | None], at: list[int], random: Any, whole_codes: bool
) -> None:
    array = pa.array(values, pa.string()).dictionary_encode()
    whole = line([None if value is None else value.encode() for value in values])
    parts = [summarise(part if whole_codes else part.dictionary_decode(), "string") for part in _split(array, at)]
    random.shuffle(parts)
    check_column(describe(merge(parts), "c", "string"), whole, rank_error=len(parts) / max(1, len(values)))


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["uniform", "zipf", "sorted", "decimal", "text", "dictionary"]),
    st.lists(st.integers(0, MANY), max_size=7),
    st.randoms(),
)
def test_any_split_of_many_values_is_near_the_whole(seed: int, kind: str, at: list[int], random: Any) -> None:
    """Counts exactly, ranks and distinct values within the stated errors."""
    source = np.random.default_rng(seed)
    data_type = {"decimal": "decimal(12,2)", "text": "string", "dictionary": "string"}.get(kind, "double")
    raw = source.zipf(1.3, MANY).clip(max=10**8) if kind in ("zipf", "dictionary") else source.integers(0, 10**9, MANY)
    if kind == "decimal":
        array = pa.array(raw).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2))
        known: list[Any] = raw.astype(float).tolist()
    elif data_type == "string":
        array = pa.array([f"{n:x}" for n in raw.tolist()])
        known = [value.encode() for value in array.to_pylist()]
        array = array.dictionary_encode() if kind == "dictionary" else array
    else:
        raw = np.sort(raw) if kind == "sorted" else raw
        known = raw.astype(float).tolist()
        array = pa.array(raw.astype(float))
    parts = [compact(summarise(part, data_type)) for part in _split(array, at)]
    random.shuffle(parts)
    truth = line(known)
    for merged in (merge(parts), merge([merge(parts[: len(parts) // 2]), merge(parts[len(parts) // 2 :])])):
        assert merged.rows == MANY
        check_column(describe(merged, "c", data_type), truth, rank_error=2 * RANK_ERROR)


def test_a_constant_is_as_many_rows_of_one_value() -> None:
    for value, data_type in (
        (pa.scalar(7), "bigint"),
        (pa.scalar("é"), "string"),
        (pa.scalar(None, pa.int64()), "bigint"),
    ):
        rows = pa.array([value.as_py()] * 9, value.type)
        _same(
            describe(constant(value, 9, data_type), "c", data_type),
            describe(summarise(rows, data_type), "c", data_type),
        )
    nothing = describe(constant(pa.scalar(7), 0, "bigint"), "c", "bigint")
    assert (nothing.ndv, nothing.nulls, nothing.minimum, nothing.histogram) == (0.0, 0, None, None)


def test_large_numbers_are_told_apart_though_they_share_a_place() -> None:
    values = pa.array([2**63 - 1 - n for n in range(1000)])
    assert describe(summarise(values, "bigint"), "c", "bigint").ndv == 1000


def test_one_value_has_one_hash_in_every_width() -> None:
    widths = [pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.decimal128(19, 0), pa.decimal128(38, 0)]
    parts = [summarise(pa.array([5, 6]).cast(pa.int64()).cast(width), "decimal(38,0)") for width in widths]
    assert merge(parts).distinct.count == 2
    doubles = [summarise(pa.array([5, 6], width), "double") for width in (pa.int32(), pa.float32(), pa.float64())]
    assert merge(doubles).distinct.count == 2


def test_a_share_is_scaled_up() -> None:
    source = np.random.default_rng(2)
    values = source.integers(0, 5_000, 100_000)
    read = pa.array(values[:20_000], mask=source.random(20_000) < 0.25)
    found = describe(summarise(read, "bigint"), "c", "bigint", share=0.2)
    assert found.nulls == round(read.null_count / 0.2)
    assert found.ndv == pytest.approx(np.unique(values).size, rel=0.05)


def test_many_strings_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [f"{n % 700:04}" for n in range(MANY)]
    whole = summarise(pa.array([None, *values]), "string")
    monkeypatch.setattr("statsproc.sketches.column_summary.TEXTS_AT_ONCE", 3_000)
    found = summarise(pa.array([None, *values]), "string")
    assert (found.rows, found.nulls) == (whole.rows, whole.nulls) == (MANY + 1, 1)
    check_column(describe(found, "c", "string"), line([None, *(value.encode() for value in values)]))


def test_values_may_lie_beyond_the_share_that_was_read() -> None:
    """Of ids in the order of the files a share has a part of the range only; there are more of them all the same."""
    rows, share = 10_000, 0.1
    read = summarise(pa.array(range(int(rows * share))), "bigint")
    assert describe(read, "c", "bigint", share=share).ndv == rows
    assert describe(read, "c", "bigint").ndv == rows * share


def test_nothing_at_all() -> None:
    assert merge(()).rows == ColumnSummary().rows == 0
