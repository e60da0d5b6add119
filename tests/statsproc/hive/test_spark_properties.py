from __future__ import annotations

import base64
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from metastore.hive.properties import LONGEST_PROPERTY, cut_property, join_property
from selector.statistics import ColumnStatistics, Histogram, TableStatistics
from sql.tables import Column
from statsproc.hive.spark_properties import (
    BINS,
    COLUMNS,
    Bins,
    bins_of,
    decode_bins,
    encode_bins,
    histogram_of,
    read_statistics,
    write_statistics,
)

ROWS = 1_000
# Of 20,000 rows of id % 13, written by ANALYZE of Spark 4.3
BY_SPARK = (
    "TFo0QmxvY2smPQAAAOAXAADvMVYP/wVAU69evXr17AAAAP5DFmwjB+kAAAgA////////////////////1AMCAB8BCAD/////////21AB/////0xaNEJs"
    "b2NrFgAAAAAAAAAAAAAAAA=="
)
SECONDS_2020 = 1_577_836_800  # 2020-01-01, the column's only value


def test_what_spark_wrote() -> None:
    bins = decode_bins(BY_SPARK)
    assert bins.height == 20_000 / BINS
    assert np.all(bins.lower == SECONDS_2020 * 1e6)
    assert np.all(bins.upper == SECONDS_2020 * 1e6)
    assert np.all(bins.ndv == 1)
    histogram = histogram_of(bins)
    assert histogram is not None
    assert histogram.share_below(SECONDS_2020 * 1e6) == 0.0
    assert histogram.share_up_to(SECONDS_2020 * 1e6) == 1.0


@given(
    st.integers(1, 5_000).flatmap(
        lambda bins: st.tuples(
            arrays(np.float64, bins, elements=st.floats(allow_nan=False)), arrays(np.int64, bins), st.floats(0, 1e18)
        )
    )
)
def test_histograms_survive_the_way_there_and_back(drawn: tuple[np.ndarray, np.ndarray, float]) -> None:
    ends, ndv, height = drawn
    found = decode_bins(encode_bins(Bins(height, ends, ends[::-1], ndv)))
    assert found.height == height
    assert np.array_equal(found.lower, ends)
    assert np.array_equal(found.upper, ends[::-1])
    assert np.array_equal(found.ndv, ndv)


@pytest.mark.parametrize("place", [3, 12, 20, 40, 60])
def test_a_damaged_histogram_is_not_believed(place: int) -> None:
    stream = bytearray(base64.b64decode(BY_SPARK))
    stream[place] ^= 0x55
    with pytest.raises(ValueError, match=r"LZ4|histogram"):
        decode_bins(base64.b64encode(stream).decode())


@pytest.mark.parametrize("text", ["", "!", "AAAA", BY_SPARK[:60]])
def test_what_is_no_histogram(text: str) -> None:
    with pytest.raises(ValueError, match=r"LZ4|histogram"):
        decode_bins(text)


def test_nan_and_infinities_lie_beyond_all_endpoints() -> None:
    lower = np.array([-math.inf, -math.inf, 0.0, 1.0, 2.0, math.inf, math.nan, math.nan])
    upper = np.array([-math.inf, 0.0, 1.0, 2.0, math.inf, math.nan, math.nan, math.nan])
    histogram = histogram_of(Bins(10.0, lower, upper, np.ones(8, dtype=np.int64)))
    assert histogram is not None
    assert histogram.endpoints.tolist() == [0.0, 1.0, 2.0]
    assert histogram.share_below(0.0) == 2 / 8
    assert histogram.share_up_to(2.0) == 4 / 8
    assert histogram.share_up_to(99.0) == 4 / 8
    nothing = np.full(8, math.nan)
    assert histogram_of(Bins(10.0, nothing, nothing, np.ones(8, dtype=np.int64))) is None


@given(arrays(np.float64, st.integers(2, 2_000), elements=st.floats(-1e6, 1e6)))
def test_our_histogram_becomes_spark_s_with_the_same_ranks(values: np.ndarray) -> None:
    ordered = np.sort(values)
    known = np.unique(ordered)
    if known.size < 2:
        known = np.repeat(known, 2)
    exact = Histogram(
        known,
        np.searchsorted(ordered, known, side="left") / ordered.size,
        np.searchsorted(ordered, known, side="right") / ordered.size,
    )
    bins = bins_of(exact, rows=values.size, ndv=np.unique(values).size, whole=False)
    assert bins.lower[0] == ordered[0]
    assert bins.upper[-1] == ordered[-1]
    assert np.array_equal(bins.lower[1:], bins.upper[:-1])
    assert np.all(bins.ndv >= 1)
    assert bins.height * BINS == pytest.approx(values.size)
    ranks = np.arange(1, BINS + 1) / BINS
    below = np.searchsorted(ordered, bins.upper, side="left") / ordered.size
    up_to = np.searchsorted(ordered, bins.upper, side="right") / ordered.size
    assert np.all(below <= ranks + 1 / ordered.size + 1e-9)
    assert np.all(up_to >= ranks - 1 / ordered.size - 1e-9)


def test_ndv_of_bins_is_counted_where_every_value_is_known() -> None:
    histogram = Histogram(np.array([1.0, 2.0, 5.0]), np.array([0.0, 0.5, 0.8]), np.array([0.5, 0.8, 1.0]))
    bins = bins_of(histogram, rows=ROWS, ndv=3, whole=True)
    assert set(bins.upper) == {1.0, 2.0, 5.0}
    assert set(bins.ndv) <= {1, 2}


def test_ndv_of_bins_adds_up() -> None:
    keys = Histogram(np.linspace(0.0, 1e6, 11))
    assert bins_of(keys, rows=1e6, ndv=1e6, whole=True).ndv.sum() == pytest.approx(1e6, rel=0.01)
    assert bins_of(keys, rows=1e7, ndv=2e6, whole=False).ndv.sum() == pytest.approx(2e6, rel=0.01)


@pytest.mark.parametrize("length", [0, LONGEST_PROPERTY, LONGEST_PROPERTY + 1, 3 * LONGEST_PROPERTY])
def test_long_properties_are_cut(length: int) -> None:
    value = "x" * length
    properties = cut_property("key", value)
    assert all(len(part) <= LONGEST_PROPERTY for part in properties.values())
    assert join_property({**properties, "keys": "other"}, "key") == value
    if length > LONGEST_PROPERTY:
        del properties["key.part.1"]
        with pytest.raises(ValueError, match=r"key\.part\.1 is missing"):
            join_property(properties, "key")


def test_no_property() -> None:
    assert join_property({"other": "1"}, "key") is None


def _statistics(*columns: ColumnStatistics) -> TableStatistics:
    return TableStatistics("t", 1, ROWS, 2 * ROWS, {column.name: column for column in columns})


@pytest.mark.parametrize(
    ("data_type", "minimum", "maximum", "texts"),
    [
        ("tinyint", -128.0, 127.0, ("-128", "127")),
        ("bigint", -5.0, 2.0**53, ("-5", "9007199254740992")),
        ("double", 1e-300, 1.5, ("1e-300", "1.5")),
        ("float", -0.5, 1e30, ("-0.5", "1e+30")),
        ("decimal(10,2)", -0.01, 142.71, ("-0.01", "142.71")),
        ("decimal(38,0)", 0.0, 1e30, ("0.0", "1" + 30 * "0")),
        ("boolean", 0.0, 1.0, ("false", "true")),
        ("date", -719_162.0, 5_346.0, ("0001-01-01", "1984-08-21")),
        ("timestamp", -1.0, 1.5e15, ("1969-12-31 23:59:59.999999", "2017-07-14 02:40:00.000000")),
        ("timestamp_ntz", 0.0, 1.0, ("1970-01-01 00:00:00.000000", "1970-01-01 00:00:00.000001")),
    ],
)
def test_ends_of_every_type(data_type: str, minimum: float, maximum: float, texts: tuple[str, str]) -> None:
    ours = ColumnStatistics("c", data_type, 10, 20.4, minimum, maximum)
    written = write_statistics({}, _statistics(ours), [Column("c", data_type)])
    assert (written[f"{COLUMNS}c.min"], written[f"{COLUMNS}c.max"]) == texts
    found = read_statistics(written, [Column("c", data_type)])
    assert (found.rows, found.bytes, found.notes) == (ROWS, 2 * ROWS, ())
    column = found.columns["c"]
    assert (column.minimum, column.maximum, column.nulls, column.ndv) == (minimum, maximum, 10, 20.0)
    assert (column.average_length, column.maximum_length) == (None, None)


def test_strings_have_lengths_and_no_ends() -> None:
    ours = ColumnStatistics("c", "string", 0, 7, "a", "z", 2.5, 9)
    written = write_statistics({}, _statistics(ours), [Column("c", "string")])
    assert f"{COLUMNS}c.min" not in written
    found = read_statistics(written, [Column("c", "string")]).columns["c"]
    assert (found.minimum, found.average_length, found.maximum_length) == (None, 3.0, 9)  # Spark's lengths are whole


def test_ends_that_have_no_text_are_left_out() -> None:
    date = ColumnStatistics("c", "date", 0, 7, 0.0, 1e8)
    written = write_statistics({}, _statistics(date), [Column("c", "date")])
    assert f"{COLUMNS}c.max" not in written
    properties = {f"{COLUMNS}c.{field}": "2" for field in ("version", "distinctCount", "nullCount")}
    for text, data_type in (("NaN", "double"), ("Infinity", "float"), ("+12345-01-01", "date"), ("x", "bigint")):
        found = read_statistics({**properties, f"{COLUMNS}c.max": text}, [Column("c", data_type)])
        assert found.columns["c"].maximum is None
    old = {**properties, f"{COLUMNS}c.version": "1", f"{COLUMNS}c.max": "2020-01-01 00:00:00.0"}
    assert read_statistics(old, [Column("c", "timestamp")]).columns["c"].maximum is None  # in whose time zone?


def test_names_are_compared_without_case_and_written_as_spark_has_them() -> None:
    written = write_statistics({}, _statistics(ColumnStatistics("ID", "int", 0, 7)), [Column("Id", "int")])
    assert f"{COLUMNS}Id.distinctCount" in written
    assert set(read_statistics(written, [Column("iD", "int")]).columns) == {"iD"}


def test_a_dot_in_a_name() -> None:
    columns = [Column("a", "int"), Column("a.b", "int")]
    ours = [ColumnStatistics(column.name, "int", 0, ndv) for ndv, column in enumerate(columns)]
    found = read_statistics(write_statistics({}, _statistics(*ours), columns), columns)
    assert {name: column.ndv for name, column in found.columns.items()} == {"a": 0.0, "a.b": 1.0}


def test_what_was_there_before_goes_and_what_is_not_ours_stays() -> None:
    before = {
        "comment": "kept",
        f"{COLUMNS}other.version": "2",
        f"{COLUMNS}c.histogram.numParts": "9",
        f"{COLUMNS}c.histogram.part.8": "x",
    }
    written = write_statistics(before, _statistics(ColumnStatistics("c", "int", 0, 7)), [Column("c", "int")])
    assert "comment" in written
    assert f"{COLUMNS}other.version" in written
    assert not any(key.startswith(f"{COLUMNS}c.histogram") for key in written)


def test_a_histogram_goes_through_the_properties() -> None:
    random = np.random.default_rng(5)
    histogram = Histogram(np.sort(random.normal(size=BINS + 1)))
    ours = ColumnStatistics("c", "double", 0, ROWS, -9.0, 9.0, histogram=histogram)
    written = write_statistics({}, _statistics(ours), [Column("c", "double")])
    found = read_statistics(written, [Column("c", "double")]).columns["c"].histogram
    assert found is not None
    assert found.endpoints == pytest.approx(histogram.endpoints)


@pytest.mark.parametrize("column", [("c", "boolean"), ("c", "string")])
def test_histograms_that_spark_does_not_have(column: tuple[str, str]) -> None:
    endpoints = np.array([0.0, 1.0]) if column[1] == "boolean" else np.array([b"a", b"z"], dtype="S32")
    ours = ColumnStatistics(*column, nulls=0, ndv=2, histogram=Histogram(endpoints))
    assert f"{COLUMNS}c.histogram" not in write_statistics({}, _statistics(ours), [Column(*column)])


def test_a_column_that_cannot_be_read_is_noted() -> None:
    properties = {f"{COLUMNS}c.{field}": "2" for field in ("version", "distinctCount", "nullCount", "histogram")}
    properties |= {f"{COLUMNS}d.version": "2"}
    found = read_statistics(properties, [Column("c", "int"), Column("d", "int")])
    assert found.columns == {}
    assert [note.split(":")[0] for note in found.notes] == ["c", "d"]
    assert (found.rows, found.bytes) == (None, None)
