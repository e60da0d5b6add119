from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from engines.files.listing import FileMark
from metastore.database import encoding
from selector.join_keys import Bins, KeySample, KeyStatistics
from selector.row_sample import RowSample, SampleColumn
from selector.statistics import TEXT_KEY_BYTES, CommonValues, Histogram
from tests.metastore.same import assert_same

TEXT_KEYS = np.dtype(f"S{TEXT_KEY_BYTES}")
TYPES = (np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_), TEXT_KEYS)
BINS = 5

any_array = st.sampled_from(TYPES).flatmap(
    lambda kind: arrays.arrays(kind, arrays.array_shapes(max_dims=2, min_side=0))
)
numbers = st.floats(allow_nan=False)
texts = st.text(st.characters(codec="utf-8"), max_size=5)
counts = st.floats(0, 2.0**40).map(float) | st.integers(0, 2**40).map(float)
sorted_keys = st.one_of(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, unique=True).map(
        lambda v: np.array(sorted(v))
    ),
    st.lists(st.binary(max_size=TEXT_KEY_BYTES), min_size=2).map(lambda v: np.sort(np.array(v, dtype=TEXT_KEYS))),
)


def _cut(group: str, version: int) -> st.SearchStrategy[Bins]:
    return sorted_keys.map(lambda keys: Bins(np.unique(keys)[:BINS], group, version))


@given(st.lists(any_array, max_size=4), st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_arrays_and_their_content_come_back_to_the_bit(values: list[NDArray[Any]], content: Any) -> None:
    found, back = encoding.unpack(encoding.pack(content, values))
    assert found == content
    for a, b in zip(values, back, strict=True):
        assert_same(a, b)
        assert not b.flags.writeable


@given(arrays.arrays(np.float64, 4, elements=st.floats(0, 2.0**33).map(round).map(float)))
def test_whole_numbers_come_back_as_floats(values: NDArray[np.float64]) -> None:
    assert_same(encoding.unpack(encoding.pack(None, [values]))[1][0], values)


def test_counts_that_are_mostly_zero_take_little_room() -> None:
    sparse = np.zeros((131, 700))
    sparse[::10, ::70] = np.arange(140.0).reshape(14, 10)
    assert len(encoding.pack(None, [sparse])) < sparse.nbytes / 500


@given(sorted_keys)
def test_histograms(endpoints: NDArray[Any]) -> None:
    histogram = Histogram(endpoints)
    assert_same(encoding.histogram_of(encoding.histogram_blob(histogram)), histogram)


@given(sorted_keys)
def test_common_values(values: NDArray[Any]) -> None:
    common = CommonValues(values, np.arange(values.size, dtype=np.int64) + (1 << 60))
    assert_same(encoding.common_of(encoding.common_blob(common)), common)


@st.composite
def samples(draw: st.DrawFn) -> RowSample:
    """Rows of numbers and of strings, some of them NULL."""
    rows = draw(st.integers(0, 20))
    columns = {}
    for name in draw(st.lists(st.text(), max_size=3, unique=True)):
        held = draw(st.lists(numbers, min_size=rows, max_size=rows) | st.lists(texts, min_size=rows, max_size=rows))
        values = np.array(held, dtype=object if held and isinstance(held[0], str) else np.float64)
        nulls = draw(arrays.arrays(np.bool_, rows))
        columns[name] = SampleColumn.of(values, nulls)
    return RowSample(rows, draw(st.floats(0.0, 1.0)), columns)


@given(samples())
def test_samples(sample: RowSample) -> None:
    assert_same(encoding.sample_of(encoding.sample_blob(sample)), sample)


def test_samples_that_were_not_coded_stay_readable() -> None:
    """As they were written before: of each column its rows' values, and which of them are NULL."""
    prices, shops = np.array([9.5, 0.0, 1.0, 9.5]), ["b", "", "ü", "b"]
    nulls = np.array([False, True, False, False])
    encoded = [shop.encode() for shop in shops]
    written = [np.array([len(shop) for shop in encoded]), np.frombuffer(b"".join(encoded), np.uint8)]
    content = {"rows": 4, "share": 0.5, "columns": [["price", False], ["shop", True]]}
    found = encoding.sample_of(encoding.pack(content, [nulls, prices, nulls, *written]))
    assert (found.rows, found.share) == (4, 0.5)
    for column, values in ((found.columns["price"], prices.tolist()), (found.columns["shop"], shops)):
        assert column.nulls.tolist() == nulls.tolist()
        assert column.rows[~nulls].tolist() == [value for value, null in zip(values, nulls, strict=True) if not null]
        assert column.values.tolist() == sorted(set(column.rows[~nulls]))


@given(st.data(), _cut("books.id", 3), st.none() | st.tuples(st.floats(0.0, 1.0), samples()))
def test_keys(data: st.DataObject, bins: Bins, chosen: tuple[float, RowSample] | None) -> None:
    rows, ndv, largest = (data.draw(arrays.arrays(np.float64, bins.count, elements=counts)) for _ in range(3))
    key = KeyStatistics(bins, rows, ndv, largest, KeySample(*chosen) if chosen is not None else None)
    blob = encoding.key_blob(key)
    share = encoding.shared_bins(())
    first, second = encoding.key_of(blob, shared=share), encoding.key_of(blob, shared=share)
    assert_same(first, key)
    assert first.bins is second.bins
    assert encoding.key_of(blob, shared=encoding.shared_bins([bins])).bins is bins


def test_keys_that_were_counted_with_other_columns_stay_readable() -> None:
    """As they were written before: the key's cut and those of other columns, its counts, and counts by both."""
    bins, cut = Bins(np.array([0.0, 1.0, 2.0]), "books.id", 3), Bins(np.array([5.0]))
    ends, cells, rows = np.array([2, 3]), np.array([0, 2, 2], np.int32), np.array([1.0, 2.0, 3.0], np.float32)
    content = {"cuts": [["books.id", 3], ["", 0]], "given": ["other"], "shares": [0.5]}
    key = KeyStatistics(bins, np.array([4.0, 0.0, 9.0]), np.array([2.0, 0.0, 3.0]), np.array([3.0, 0.0, 5.0]))
    blob = encoding.pack(content, [bins.starts, cut.starts, key.rows, key.ndv, key.largest, ends, cells, rows])
    assert_same(encoding.key_of(blob, shared=encoding.shared_bins([bins])), key)


def test_bins_of_one_name_that_differ_are_not_taken_for_each_other() -> None:
    share = encoding.shared_bins([Bins(np.array([1.0]), "g", 1)])
    for other in (Bins(np.array([2.0]), "g", 1), Bins(np.array([1.0]), "g", 2), Bins(np.array([1.0]), "", 0)):
        assert share(other) is other


@given(st.lists(st.builds(FileMark, st.text(), st.integers(0, 2**62), st.integers(-(2**62), 2**62))))
def test_marks_of_files(marks: list[FileMark]) -> None:
    assert encoding.marks_of(encoding.marks_blob(marks)) == tuple(marks)


def test_a_blob_of_a_later_form_is_refused() -> None:
    blob = bytearray(encoding.pack(None, []))
    blob[0] = encoding.FORM + 1
    with pytest.raises(ValueError, match="written by a newer version"):
        encoding.unpack(bytes(blob))


def test_the_first_form_stays_readable() -> None:
    """A blob put together by hand, as the module's docstring says."""
    head = json.dumps({"content": "c", "arrays": [["<f8", [3], "|u1"], ["|S32", [1], "|S32"]]}).encode()
    head_part = struct.pack("<Q", len(head)) + head + bytes(-len(head) % 8)
    whole = head_part + bytes([1, 2, 255]) + bytes(5) + "ü".encode() + bytes(30)
    blob = struct.pack("<BQ", 1, len(whole)) + pa.compress(whole, codec="zstd", asbytes=True)
    content, (numbers, texts) = encoding.unpack(blob)
    assert content == "c"
    assert_same(numbers, np.array([1.0, 2.0, 255.0]))
    assert_same(texts, np.array(["ü".encode()], dtype=TEXT_KEYS))
