from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.statistics import ColumnStatistics, as_number
from statsproc.scan import decode, encode
from statsproc.summary import (
    ColumnSummary,
    compact,
    describe,
    is_summarised,
    merge,
    merge_all,
    summarise,
)

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
        assert found.histogram is None
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
    assert not any(is_summarised(kind) for kind in ("struct<a:int>", "array<int>", "map<int,int>", "void", "time(6)"))


numbers = st.lists(st.one_of(st.none(), st.floats(), st.integers(-3, 3).map(float)), max_size=120)
texts = st.lists(st.one_of(st.none(), st.text(max_size=20)), max_size=60)


def _same(a: ColumnStatistics, b: ColumnStatistics) -> None:
    for part in ("nulls", "ndv", "minimum", "maximum", "average_length", "maximum_length"):
        assert getattr(a, part) == getattr(b, part)
    assert (a.histogram is None) == (b.histogram is None)
    if a.histogram is not None and b.histogram is not None:
        np.testing.assert_array_equal(a.histogram.endpoints, b.histogram.endpoints)
        for x in a.histogram.endpoints:
            assert a.histogram.share_below(x) == pytest.approx(b.histogram.share_below(x), abs=1e-12)
            assert a.histogram.share_up_to(x) == pytest.approx(b.histogram.share_up_to(x), abs=1e-12)


@settings(deadline=None)
@given(numbers, st.integers(0, 120), st.integers(0, 120))
def test_any_split_of_numbers_is_the_whole(values: list[float | None], first: int, second: int) -> None:
    array = pa.array(values, pa.float64())
    low, high = sorted((first, second))
    parts = [array[:low], array[low:high], array[high:]]
    whole = describe(summarise(array, "double"), "c", "double")
    merged = merge_all(compact(summarise(part, "double")) for part in parts)
    _same(describe(merged, "c", "double"), whole)
    a, b, c = (summarise(part, "double") for part in parts)
    _same(describe(merge(c, merge(b, a)), "c", "double"), whole)


@settings(deadline=None)
@given(texts, st.integers(0, 60))
def test_any_split_of_texts_is_the_whole(values: list[str | None], cut: int) -> None:
    array = pa.array(values, pa.string())
    merged = merge(summarise(array[:cut], "string"), summarise(array[cut:], "string"))
    _same(describe(merged, "c", "string"), describe(summarise(array, "string"), "c", "string"))


@settings(deadline=None)
@given(numbers, texts)
def test_summaries_travel_unchanged(some: list[float | None], other: list[str | None]) -> None:
    sent = [summarise(pa.array(some, pa.float64()), "double"), summarise(pa.array(other, pa.string()), "string")]
    arrived = dict(decode(encode(sent)))
    for ordinal, (summary, data_type) in enumerate(zip(sent, ("double", "string"), strict=True)):
        _same(describe(arrived[ordinal], "c", data_type), describe(summary, "c", data_type))
        assert (arrived[ordinal].rows, arrived[ordinal].not_numbers) == (summary.rows, summary.not_numbers)


def test_nothing_at_all() -> None:
    assert merge_all(()).rows == ColumnSummary().rows == 0
