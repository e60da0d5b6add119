"""What is kept of a column while it is read: ``summarise`` a batch, ``merge`` two, ``describe`` the whole.

Merging is associative and commutative up to the error that the parts state for themselves, so that batches,
tasks and partitions can be put together in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from selector.statistics import ColumnStatistics
from statsproc.distinct import Hashes, distinct_values, hash_texts, hash_words, merge_smallest, smallest
from statsproc.histogram import EMPTY, POINTS, Distribution, add, distribution_of, equi_height, thin

_NUMBERS = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date"})
_TIMES = frozenset({"timestamp", "timestamp_ntz"})
_TEXTS = frozenset({"string", "binary"})


def _no_hashes() -> Hashes:
    return np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnSummary:
    """A column over some rows.

    not_numbers: rows with NaN, which is a value and not NULL. below_all, above_all: negative and positive
        infinities. distribution: all other numbers; empty for strings.
    hashes: the smallest ones of the different values. text_bytes, longest_bytes: of strings and binary values.
    minimum, maximum: of strings, as UTF-8.
    """

    rows: int = 0
    nulls: int = 0
    not_numbers: int = 0
    below_all: int = 0
    above_all: int = 0
    distribution: Distribution = EMPTY
    hashes: Hashes = field(default_factory=_no_hashes)
    text_bytes: int = 0
    longest_bytes: int = 0
    minimum: bytes | None = None
    maximum: bytes | None = None


def is_summarised(data_type: str) -> bool:
    """Return whether columns of a type get statistics; nested ones do not."""
    return data_type in _NUMBERS | _TIMES | _TEXTS or data_type.startswith("decimal(")


def summarise(values: pa.Array | pa.ChunkedArray, data_type: str) -> ColumnSummary:
    """Summarise a batch of a column. data_type: Spark's short form."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    present = values.drop_null()
    nulls = len(values) - len(present)
    if data_type in _TEXTS:
        return _summarise_texts(present, len(values), nulls, ordered=data_type == "string")
    numbers, words = _on_number_line(present, data_type)
    finite = numbers[np.isfinite(numbers)]
    return ColumnSummary(
        rows=len(values),
        nulls=nulls,
        not_numbers=int(np.count_nonzero(np.isnan(numbers))),
        below_all=int(np.count_nonzero(numbers == -np.inf)),
        above_all=int(np.count_nonzero(numbers == np.inf)),
        distribution=distribution_of(finite),
        hashes=smallest(hash_words(words)),
    )


def merge(a: ColumnSummary, b: ColumnSummary) -> ColumnSummary:
    """Put the summaries of disjoint rows together."""
    return ColumnSummary(
        rows=a.rows + b.rows,
        nulls=a.nulls + b.nulls,
        not_numbers=a.not_numbers + b.not_numbers,
        below_all=a.below_all + b.below_all,
        above_all=a.above_all + b.above_all,
        distribution=add(a.distribution, b.distribution),
        hashes=merge_smallest(a.hashes, b.hashes),
        text_bytes=a.text_bytes + b.text_bytes,
        longest_bytes=max(a.longest_bytes, b.longest_bytes),
        minimum=min((text for text in (a.minimum, b.minimum) if text is not None), default=None),
        maximum=max((text for text in (a.maximum, b.maximum) if text is not None), default=None),
    )


def merge_all(parts: Iterable[ColumnSummary]) -> ColumnSummary:
    """Put any number of summaries together; none at all is a column without rows."""
    return reduce(merge, parts, ColumnSummary())


def compact(summary: ColumnSummary) -> ColumnSummary:
    """Make a summary small enough to travel."""
    return replace(summary, distribution=thin(summary.distribution, POINTS))


def describe(summary: ColumnSummary, name: str, data_type: str) -> ColumnStatistics:
    """Turn the summary of a whole column into its statistics.

    Minimum and maximum of numbers are the finite ones; of binary values none are kept. Shares of the histogram
    are shares of all non-null rows: infinities count where they lie, and NaN above everything, as engines sort it.
    """
    present = summary.rows - summary.nulls
    known = summary.distribution
    lowest: float | str | None = None
    highest: float | str | None = None
    average: float | None = None
    longest: int | None = None
    if data_type in _TEXTS:
        if summary.minimum is not None and summary.maximum is not None:
            lowest, highest = summary.minimum.decode("utf-8"), summary.maximum.decode("utf-8")
        if present:
            average, longest = summary.text_bytes / present, summary.longest_bytes
    elif known.values.size:
        lowest, highest = float(known.values[0]), float(known.values[-1])
    return ColumnStatistics(
        name=name,
        data_type=data_type,
        nulls=summary.nulls,
        ndv=min(distinct_values(summary.hashes), float(present), _places(known, data_type)),
        minimum=lowest,
        maximum=highest,
        average_length=average,
        maximum_length=longest,
        histogram=equi_height(known, rows=present, rows_before=summary.below_all) if present else None,
    )


def _places(known: Distribution, data_type: str) -> float:
    """Return how many values there can be at all between the smallest and the largest."""
    if not known.values.size or data_type in _TEXTS | {"float", "double"}:
        return np.inf
    step = 10.0 ** -_scale(data_type) if data_type.startswith("decimal(") else 1.0
    return float(round((known.values[-1] - known.values[0]) / step)) + 1.0


def _scale(decimal: str) -> int:
    return int(decimal.rstrip(")").split(",")[1])


def _summarise_texts(present: pa.Array, rows: int, nulls: int, *, ordered: bool) -> ColumnSummary:
    if not len(present):
        return ColumnSummary(rows=rows, nulls=nulls)
    data, starts, lengths = _text_buffers(present)
    ends = pc.min_max(present.cast(pa.large_binary())) if ordered else None
    return ColumnSummary(
        rows=rows,
        nulls=nulls,
        hashes=smallest(hash_texts(data, starts, lengths)),
        text_bytes=int(lengths.sum()),
        longest_bytes=int(lengths.max()),
        minimum=ends["min"].as_py() if ends is not None else None,
        maximum=ends["max"].as_py() if ends is not None else None,
    )


def _text_buffers(present: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    flat = present.cast(pa.large_binary())
    _, offsets, data = flat.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64, count=len(flat) + 1, offset=8 * flat.offset)
    first, last = int(bounds[0]), int(bounds[-1])
    content = np.frombuffer(data, dtype=np.uint8, count=last - first, offset=first) if last > first else None
    starts = bounds[:-1] - first
    return np.empty(0, dtype=np.uint8) if content is None else content, starts, np.diff(bounds)


def _on_number_line(present: pa.Array, data_type: str) -> tuple[NDArray[np.float64], Hashes]:
    """Return values on their type's number line, and 64 bits that tell different values apart."""
    if data_type.startswith("decimal("):
        return _decimals(present, scale=_scale(data_type))
    if data_type in _TIMES:
        zone = present.type.tz
        integers: NDArray[Any] = present.cast(pa.timestamp("us", tz=zone), safe=False).cast(pa.int64()).to_numpy()
    elif data_type == "date":
        integers = present.cast(pa.date32()).cast(pa.int32()).to_numpy()
    elif data_type in ("float", "double"):
        numbers = present.cast(pa.float64()).to_numpy() + 0.0  # minus zero is zero
        words = np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)  # one NaN only
        return numbers, words
    else:
        integers = present.cast(pa.int64()).to_numpy()
    return integers.astype(np.float64), integers.astype(np.int64).view(np.uint64)


def _decimals(present: pa.Array, *, scale: int) -> tuple[NDArray[np.float64], Hashes]:
    flat = present.cast(pa.decimal128(38, scale))
    _, buffer = flat.buffers()
    halves = np.frombuffer(buffer, dtype=np.uint64, count=2 * len(flat), offset=16 * flat.offset)
    low, high = halves[0::2], halves[1::2]
    # two's complement of 128 bits: the halves are read apart and put together on the number line
    narrow = high == np.where(low.view(np.int64) < 0, np.uint64(2**64 - 1), np.uint64(0))
    wide = high.view(np.int64).astype(np.float64) * 2.0**64 + low.astype(np.float64)
    unscaled = np.where(narrow, low.view(np.int64).astype(np.float64), wide)
    return unscaled / 10.0**scale, np.where(narrow, low, low ^ hash_words(high))
