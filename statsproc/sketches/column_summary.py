"""Summary of a column: ``summarise`` a chunk, ``merge`` any number, ``describe`` the whole.

Merging is associative and commutative up to the error that the parts state for themselves, so that chunks, tasks,
files and partitions can be put together in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from selector.hashing import hash_words
from selector.statistics import ColumnStatistics, Keys
from selector.types import BY_NAME, FLOATING, Group, names_of
from statsproc.sketches.byte_strings import Texts
from statsproc.sketches.distinct import KEPT, Distinct, distinct_of, hash_texts, merge_distinct
from statsproc.sketches.equal_runs import runs, runs_of
from statsproc.sketches.histogram import (
    EMPTY,
    POINTS,
    Distribution,
    add_all,
    chosen_runs,
    common_values,
    distribution_of_texts,
    equi_height,
    scaled,
    thin,
)

# Plain names: what a cluster's workers are sent knows no table of types.
TEXTS = frozenset(names_of(Group.TEXT, Group.BINARY))
SUMMARISED = frozenset(name for name, kind in BY_NAME.items() if kind.row.group not in (Group.NESTED, Group.VARIANT))
EXACT = 2.0**53  # integers up to it have a place of their own on the line
TEXTS_AT_ONCE = 1 << 20  # a string takes several times a number's memory while it is looked at
LARGEST_DICTIONARY = 1 << 16  # entries; more are read as plain strings

Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class ColumnSummary:
    """Summary of a column over some rows.

    rows, nulls: number of rows, and of those with NULL.
    not_numbers: rows with NaN, which is a value and not NULL.
    below_all, above_all: rows with negative and positive infinity.
    distribution: distribution of all other values; empty for binary ones.
    distinct: distinct values.
    text_bytes, longest_bytes: total and longest size of strings and binary values.
    minimum, maximum: of strings, as UTF-8.
    """

    rows: int = 0
    nulls: int = 0
    not_numbers: int = 0
    below_all: int = 0
    above_all: int = 0
    distribution: Distribution = EMPTY
    distinct: Distinct = field(default_factory=Distinct)
    text_bytes: int = 0
    longest_bytes: int = 0
    minimum: bytes | None = None
    maximum: bytes | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Non-null numbers of a chunk, unsorted.

    raw: shape (rows,), integers or floats in the order of the values.
    scale: divisor of ``raw``.
    words: shape (rows,), 64 bits that distinguish the values; None: ``raw`` does.
    """

    raw: NDArray[Any]
    scale: float = 1.0
    words: Words | None = None

    def line(self, raw: NDArray[Any]) -> NDArray[np.float64]:
        """Put raw values on the number line."""
        numbers: NDArray[np.float64] = raw.astype(np.float64)
        return numbers / self.scale if self.scale != 1.0 else numbers


def is_text(data_type: str) -> bool:
    """Return whether a type's values are byte strings."""
    return data_type.partition("(")[0] in TEXTS


def is_summarised(data_type: str) -> bool:
    """Return whether columns of a type get statistics; nested ones and intervals do not."""
    return data_type.partition("(")[0] in SUMMARISED


def summarise(values: pa.Array | pa.ChunkedArray, data_type: str) -> ColumnSummary:
    """Summarise a chunk of a column. data_type: Spark's short form."""
    array = one_array(values)
    present = array.drop_null() if array.null_count else array
    size, nulls = len(array), array.null_count
    if not len(present):
        return ColumnSummary(rows=size, nulls=nulls)
    if is_text(data_type):
        return _summarise_texts(present, size, nulls, ordered=data_type != "binary")
    if data_type in FLOATING and pa.types.is_integer(present.type):
        present = present.cast(pa.float64(), safe=False)  # a file of a narrower type
    numbers = numbers_of(present)
    different, starts, ends = runs_of(numbers.raw)
    not_numbers = below_all = above_all = 0
    held = ends - starts
    if numbers.words is None:
        distinct = distinct_of(hash_words(_words(different)), held)
    else:
        distinct = distinct_of(hash_words(numbers.words))
    if different.dtype.kind == "f":
        finite = np.isfinite(different)
        if not finite.all():
            not_numbers = int(held[np.isnan(different)].sum())
            below_all = int(held[different == -np.inf].sum())
            above_all = int(held[different == np.inf].sum())
            starts, ends, different = starts[finite] - below_all, ends[finite] - below_all, different[finite]
    chosen = chosen_runs(starts, ends, rows=numbers.raw.size)
    return ColumnSummary(
        rows=size,
        nulls=nulls,
        not_numbers=not_numbers,
        below_all=below_all,
        above_all=above_all,
        distribution=_distribution(
            numbers.line(different[chosen]), starts[chosen].astype(np.float64), ends[chosen].astype(np.float64)
        ),
        distinct=distinct,
    )


def constant(value: pa.Scalar, rows: int, data_type: str) -> ColumnSummary:
    """Summarise a column that holds one value in all of its rows, as a partition's does."""
    one = summarise(pa.array([value.as_py()], type=value.type), data_type)
    if one.nulls or not rows:
        return ColumnSummary(rows=rows, nulls=rows)
    return replace(
        one,
        rows=rows,
        distribution=scaled(one.distribution, rows),
        distinct=Distinct(one.distinct.hashes, one.distinct.rows * rows, one.distinct.limit),
        text_bytes=one.text_bytes * rows,
    )


def merge(parts: Sequence[ColumnSummary]) -> ColumnSummary:
    """Merge the summaries of disjoint rows; of none, a column without rows."""
    if len(parts) == 1:
        return parts[0]
    return ColumnSummary(
        rows=sum(part.rows for part in parts),
        nulls=sum(part.nulls for part in parts),
        not_numbers=sum(part.not_numbers for part in parts),
        below_all=sum(part.below_all for part in parts),
        above_all=sum(part.above_all for part in parts),
        distribution=add_all([part.distribution for part in parts]),
        distinct=merge_distinct([part.distinct for part in parts]),
        text_bytes=sum(part.text_bytes for part in parts),
        longest_bytes=max((part.longest_bytes for part in parts), default=0),
        minimum=min((part.minimum for part in parts if part.minimum is not None), default=None),
        maximum=max((part.maximum for part in parts if part.maximum is not None), default=None),
    )


def compact(summary: ColumnSummary, *, points: int = POINTS, capacity: int = KEPT) -> ColumnSummary:
    """Make a summary small enough to keep or to travel."""
    return replace(
        summary,
        distribution=thin(summary.distribution, points),
        distinct=merge_distinct([summary.distinct], capacity=capacity),
    )


def describe(summary: ColumnSummary, name: str, data_type: str, *, share: float = 1.0) -> ColumnStatistics:
    """Turn the summary of a whole column into its statistics.

    share: of the table that was read; rows are scaled up from it. Minimum and maximum of numbers are the finite ones;
    of binary values none are kept. Shares of the histogram are shares of all non-null rows: infinities count where
    they lie, and NaN above everything, as engines sort it.
    """
    present = summary.rows - summary.nulls
    distribution = summary.distribution
    lowest: float | str | None = None
    highest: float | str | None = None
    average: float | None = None
    longest: int | None = None
    if is_text(data_type):
        if summary.minimum is not None and summary.maximum is not None:
            lowest, highest = (end.decode("utf-8", "replace") for end in (summary.minimum, summary.maximum))
        if present:
            average, longest = summary.text_bytes / present, summary.longest_bytes
    elif distribution.values.size:
        lowest, highest = float(distribution.values[0]), float(distribution.values[-1])
    places = _places(distribution, data_type) if share >= 1.0 else np.inf  # more may lie beyond what was read
    ndv = min(_ndv(summary, share), present / share, places)
    return ColumnStatistics(
        name=name,
        data_type=data_type,
        nulls=round(summary.nulls / share),
        ndv=ndv,
        minimum=lowest,
        maximum=highest,
        average_length=average,
        maximum_length=longest,
        histogram=equi_height(distribution, rows=present, rows_before=summary.below_all) if present else None,
        common=common_values(scaled(distribution, 1.0 / share), ndv=ndv),
    )


def one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, its dictionary small or none."""
    if isinstance(values, pa.ChunkedArray):
        if values.num_chunks == 1:
            values = values.chunk(0)
        else:
            values = values.unify_dictionaries() if pa.types.is_dictionary(values.type) else values
            values = values.combine_chunks()
            values = values.chunk(0) if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_duration(values.type):
        return values.cast(pa.int64())
    if pa.types.is_decimal256(values.type) and values.type.precision > 38:  # which no engine can read
        return values.cast(pa.large_string()).cast(pa.large_binary())
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        return values.cast(pa.large_binary() if pa.types.is_binary_view(values.type) else pa.large_string())
    if pa.types.is_dictionary(values.type) and len(values.dictionary) > LARGEST_DICTIONARY:
        return values.dictionary_decode()
    return values


def numbers_of(present: pa.Array) -> Values:
    """Return non-null values as numbers that sort alike and tell each other apart."""
    types, kind = pa.types, present.type
    if types.is_floating(kind):
        raw = present.to_numpy(zero_copy_only=False) + 0.0  # minus zero is zero
        return Values(np.where(np.isnan(raw), np.nan, raw) if np.isnan(raw).any() else raw)  # one NaN only
    if types.is_integer(kind):
        return Values(present.to_numpy(zero_copy_only=False))
    if types.is_boolean(kind):
        return Values(present.cast(pa.int8()).to_numpy())
    if types.is_decimal(kind):
        return _decimals(present)
    if types.is_date(kind):
        return Values(present.cast(pa.date32()).view(pa.int32()).to_numpy())
    if types.is_timestamp(kind):
        if kind.unit != "us":
            present = present.cast(pa.timestamp("us", tz=kind.tz), safe=False)
        return Values(present.view(pa.int64()).to_numpy())
    if types.is_time(kind):
        return Values(present.cast(pa.time64("us"), safe=False).view(pa.int64()).to_numpy())
    raise TypeError(f"no numbers in {kind}")


def _distribution(values: Keys, below: NDArray[np.float64], up_to: NDArray[np.float64]) -> Distribution:
    """Make a distribution of points in order; some may have become equal on the line."""
    starts, ends = runs(values)
    return Distribution(values[starts], below[starts], up_to[ends - 1])


def _words(different: NDArray[Any]) -> Words:
    """Return 64 bits that tell values apart, the same for every width of a type."""
    if different.dtype.kind == "f":
        return different.astype(np.float64).view(np.uint64)
    if different.dtype == np.uint64:
        return different
    return different.astype(np.int64).view(np.uint64)


def _ndv(summary: ColumnSummary, share: float) -> float:
    """Return the different values of the whole column, of which a share of the rows was read.

    Haas and Stokes, "Estimating the number of classes in a finite population", 1998 (their Duj1, as in PostgreSQL):
    n d / (n - f1 + f1 n / N) for d values in n rows of N, f1 of them in one row only.
    """
    seen = summary.distinct.count
    if share >= 1.0 or not seen:
        return seen
    rows = float(summary.rows - summary.nulls)
    once = summary.distinct.once
    return max(seen, rows * seen / (rows - once + once * share))


def _places(distribution: Distribution, data_type: str) -> float:
    """Return how many values there can be at all between the smallest and the largest."""
    if not distribution.values.size or is_text(data_type) or data_type in FLOATING:
        return np.inf
    step = 10.0 ** -int(data_type.rstrip(")").split(",")[1]) if data_type.startswith("decimal(") else 1.0
    if max(abs(distribution.values[0]), abs(distribution.values[-1])) >= EXACT * step:
        return np.inf
    return float(round((distribution.values[-1] - distribution.values[0]) / step)) + 1.0


def _summarise_texts(present: pa.Array, rows: int, nulls: int, *, ordered: bool) -> ColumnSummary:
    if pa.types.is_dictionary(present.type):
        held = np.bincount(present.indices.to_numpy(), minlength=len(present.dictionary))
        used = np.flatnonzero(held)
        entries = present.dictionary if used.size == held.size else present.dictionary.take(pa.array(used))
        return _summarise_entries(entries, held[used].astype(np.int64), rows, nulls, ordered=ordered)
    if pa.types.is_fixed_size_binary(present.type):
        present = present.cast(pa.binary())
    if len(present) > TEXTS_AT_ONCE:
        starts = range(0, len(present), TEXTS_AT_ONCE)
        cut = [present.slice(start, TEXTS_AT_ONCE) for start in starts]
        parts = [_summarise_texts(part, len(part), 0, ordered=ordered) for part in cut]
        return replace(merge(parts), rows=rows, nulls=nulls)
    texts = Texts.of(present)
    low, high = texts.ends() if ordered else (None, None)
    return ColumnSummary(
        rows=rows,
        nulls=nulls,
        distribution=distribution_of_texts(texts, low, high) if low is not None and high is not None else EMPTY,
        distinct=distinct_of(hash_texts(texts)),
        text_bytes=int(texts.lengths.sum()),
        longest_bytes=texts.longest,
        minimum=low,
        maximum=high,
    )


def _summarise_entries(
    entries: pa.Array, held: NDArray[np.int64], rows: int, nulls: int, *, ordered: bool
) -> ColumnSummary:
    """Summarise strings by the entries of their dictionary. held: rows of each entry, none of them zero."""
    texts = Texts.of(entries)
    hashes = hash_texts(texts)
    low, high = texts.ends() if ordered else (None, None)
    distribution = EMPTY
    if ordered:
        keys = texts.keys()
        order = np.argsort(keys, kind="stable")
        ends = np.cumsum(held[order])
        whole = _distribution(keys[order], (ends - held[order]).astype(np.float64), ends.astype(np.float64))
        chosen = chosen_runs(
            whole.below.astype(np.intp), whole.up_to.astype(np.intp), rows=int(ends[-1]) if ends.size else 0
        )
        distribution = Distribution(whole.values[chosen], whole.below[chosen], whole.up_to[chosen])
    return ColumnSummary(
        rows=rows,
        nulls=nulls,
        distribution=distribution,
        distinct=merge_distinct([distinct_of(hashes, held)]),
        text_bytes=int((texts.lengths * held).sum()),
        longest_bytes=texts.longest,
        minimum=low,
        maximum=high,
    )


def _decimals(present: pa.Array) -> Values:
    """Read unscaled 128-bit integers; where the type fits into 64 bits they stay exact."""
    kind = present.type
    flat = present if kind.bit_width == 128 else present.cast(pa.decimal128(min(38, kind.precision), kind.scale))
    _, buffer = flat.buffers()
    halves = np.frombuffer(buffer, dtype=np.int64, count=2 * len(flat), offset=16 * flat.offset)
    low, high = halves[0::2], halves[1::2]
    scale = 10.0**kind.scale
    if kind.precision <= 18:
        return Values(np.ascontiguousarray(low), scale)
    bits = np.ascontiguousarray(low).view(np.uint64)
    narrow = high == low >> 63
    wide = high.astype(np.float64) * 2.0**64 + bits.astype(np.float64)
    words = np.where(narrow, bits, bits ^ hash_words(high.view(np.uint64)))
    return Values(np.where(narrow, low.astype(np.float64), wide), scale, words)
