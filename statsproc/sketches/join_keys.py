"""Join keys while a table is read: rows per bin, the keys themselves as far as they are kept, counts beside filters."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from selector.join_keys import Bins, ConditionalCounts, KeyStatistics
from selector.statistics import Keys
from statsproc.sketches.byte_strings import Texts
from statsproc.sketches.column_summary import is_text, numbers_of
from statsproc.sketches.distinct import Distinct, distinct_of, hash_texts, hash_words, merge_distinct
from statsproc.sketches.histogram import Distribution

KEYS_KEPT = 1 << 16  # different keys of a column, each with its exact rows
POPULAR_KEPT = 1024
HEAVY_KEYS = 500  # a bin of their own
KEY_RANGES = 200
FILTER_VALUES = 64  # popular values of a filter column with a bucket of their own
FILTER_RANGES = 100
TEXT_VALUES = 1000  # a filter column of strings with more different values gets no buckets; the sample answers it
ROWS_TOGETHER = 1 << 20  # rows of a table that are counted by bin and bucket at once; of larger ones a share
_HASH_SHIFT = np.uint64(11)  # leaves 53 bits, which a float64 holds exactly

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """How a table's rows are counted by bins and buckets.

    bins: of the key columns, by name. buckets: of filter columns. step: every step-th row is counted together.
    """

    bins: Mapping[str, Bins] = field(default_factory=dict)
    buckets: Mapping[str, Bins] = field(default_factory=dict)
    step: int = 1

    @property
    def identity(self) -> str:
        """Tells cuts apart; only what was counted under the same one can be merged."""
        starts = [(name, cut.starts.tobytes()) for name, cut in sorted([*self.bins.items(), *self.buckets.items()])]
        return f"{self.step}:{zlib.crc32(repr(starts).encode()):08x}" if starts else ""


@dataclass(frozen=True, slots=True, eq=False)
class KeySummary:
    """A key column over some rows.

    distinct: the keys. popular, popular_rows: shape (n,), those with most rows, in order of keys; the rows of one that
        is popular in some chunks only are too few. rows: shape (bins,), exact; empty before there are bins.
    together: by other column, shape (buckets + 1, bins), counted over ``looked_at`` of the rows.
    """

    distinct: Distinct
    popular: Floats = field(default_factory=lambda: np.empty(0))
    popular_rows: Floats = field(default_factory=lambda: np.empty(0))
    rows: Floats = field(default_factory=lambda: np.empty(0))
    together: Mapping[str, Floats] = field(default_factory=dict)
    looked_at: int = 0


def key_line(present: pa.Array, data_type: str) -> Floats:
    """Put non-null keys on the line of keys: numbers as they are, strings by their hash."""
    if not len(present):
        return np.empty(0)
    if is_text(data_type):
        if pa.types.is_dictionary(present.type):
            of_entries = _hash_line(hash_texts(Texts.of(present.dictionary)))
            line: Floats = of_entries[present.indices.to_numpy()]
            return line
        return _hash_line(hash_texts(Texts.of(present)))
    numbers = numbers_of(present)
    return numbers.line(numbers.raw)


def summarise_key(column: pa.Array, data_type: str, bins: Bins | None) -> KeySummary:
    """Summarise a chunk of a key column by itself."""
    line = key_line(column.drop_null(), data_type)
    keys, held = np.unique(line[~np.isnan(line)], return_counts=True)
    distinct = distinct_of(hash_words(keys.view(np.uint64)), held.astype(np.int64), keys=keys, kept=KEYS_KEPT)
    popular, popular_rows = _most(keys, held.astype(np.float64))
    if bins is None:
        return KeySummary(distinct, popular, popular_rows)
    rows: Floats = np.bincount(bins.of(keys), weights=held.astype(float), minlength=bins.count).astype(np.float64)
    return KeySummary(distinct, popular, popular_rows, rows)


def _most(keys: Floats, rows: Floats) -> tuple[Floats, Floats]:
    """Return the keys with most rows, in order of keys."""
    if keys.size > POPULAR_KEPT:
        chosen = np.sort(np.argpartition(rows, -POPULAR_KEPT)[-POPULAR_KEPT:])
        keys, rows = keys[chosen], rows[chosen]
    return keys, rows


def codes(column: pa.Array, data_type: str, cut: Bins, *, is_key: bool) -> Codes:
    """Return the bin of every row of a column; NULL and NaN are in the one after the last."""
    found = np.full(len(column), cut.count, dtype=np.int64)
    if not len(column) or column.null_count == len(column):
        return found
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    present = column.drop_null()
    if is_text(data_type) and not is_key:
        entries = present if pa.types.is_dictionary(present.type) else present.dictionary_encode()
        of_entries = cut.of(Texts.of(entries.dictionary).keys())
        found[~nulls] = of_entries[entries.indices.to_numpy()]
        return found
    line = key_line(present, data_type)
    known = cut.of(line)
    found[~nulls] = np.where(np.isnan(line), cut.count, known)
    return found


def count_together(key: Codes, bins: int, other: Codes, buckets: int) -> Floats:
    """Count rows by bucket and bin; the last bucket holds NULLs, rows with a NULL key count nowhere."""
    kept = key < bins
    cells = other[kept] * bins + key[kept]
    return np.bincount(cells, minlength=(buckets + 1) * bins).astype(np.float64).reshape(buckets + 1, bins)


def merge_keys(parts: Sequence[KeySummary]) -> KeySummary:
    """Put the summaries of disjoint rows together; they were counted over the same bins."""
    binned = [part for part in parts if part.rows.size]
    keys, place = np.unique(np.concatenate([part.popular for part in parts]), return_inverse=True)
    held = np.bincount(place, weights=np.concatenate([part.popular_rows for part in parts]), minlength=keys.size)
    popular, popular_rows = _most(keys, held.astype(np.float64))
    return KeySummary(
        distinct=merge_distinct([part.distinct for part in parts], kept=KEYS_KEPT),
        popular=popular,
        popular_rows=popular_rows,
        rows=np.sum([part.rows for part in binned], axis=0) if binned else np.empty(0),
        together={
            name: np.sum([part.together[name] for part in parts], axis=0)
            for name in parts[0].together
            if all(name in part.together for part in parts)
        },
        looked_at=sum(part.looked_at for part in parts),
    )


def describe_key(summary: KeySummary, name: str, cut: Cut, *, rows: int, share: float = 1.0) -> KeyStatistics:
    """Turn the summary of a whole key column into its statistics.

    rows: of the table that were read. share: of the table that was read; counts are scaled up from it.
    """
    bins = cut.bins[name]
    held = summary.rows / share
    keys, kept = summary.distinct.keys, summary.distinct.share
    assert keys is not None
    at = bins.of(keys)
    ndv = np.bincount(at, minlength=bins.count) / kept
    largest = np.zeros(bins.count)
    np.maximum.at(largest, at, summary.distinct.rows / share)
    ndv = np.where(held > 0.0, np.clip(ndv, 1.0, np.maximum(held, 1.0)), 0.0)
    alone = _alone(bins)
    ndv[alone & (held > 0.0)] = 1.0
    if summary.distinct.rows.max(initial=0) <= 1:  # no key was seen twice: all are taken to be unique
        ndv = held.copy()
    largest = np.where(alone, held, np.maximum(largest, held / np.maximum(ndv, 1.0)))
    scale = rows / max(1, summary.looked_at) / share
    given = {
        other: ConditionalCounts.of(
            cut.bins.get(other) or cut.buckets[other], counts * scale, share=min(1.0, 1.0 / scale)
        )
        for other, counts in summary.together.items()
    }
    return KeyStatistics(bins, held, ndv, largest, given)


def cut_keys(members: Sequence[KeySummary], group: str) -> Bins | None:
    """Cut a key group's line: the keys with most rows in any member alone, the others in ranges of equal rows."""
    lines: list[Floats] = []
    rows: list[Floats] = []
    weights: list[Floats] = []
    for member in members:
        keys, held = member.distinct.keys, member.distinct.rows.astype(np.float64)
        if keys is None or not keys.size:
            continue
        lines += [keys, member.popular]
        rows += [held, member.popular_rows]
        weights += [held / held.sum(), np.zeros(member.popular.size)]  # ranges hold keys that are not popular
    if not lines:
        return None
    line, place = np.unique(np.concatenate(lines), return_inverse=True)
    largest, weight = np.zeros(line.size), np.zeros(line.size)
    np.maximum.at(largest, place, np.concatenate(rows))
    np.add.at(weight, place, np.concatenate(weights))
    candidates = np.argsort(-largest, kind="stable")[:HEAVY_KEYS]
    heavy = np.sort(candidates[largest[candidates] > 1.0])
    return Bins(_starts(line, weight, heavy, KEY_RANGES), group)


def cut_values(known: Distribution, *, text: bool, ndv: float) -> Bins | None:
    """Cut a filter column's line into buckets; None where it has no values, or too many different strings."""
    if not known.values.size or (text and ndv > TEXT_VALUES):
        return None
    held = known.up_to - known.below
    weight = np.diff(known.below, append=known.rows)
    few = known.values.size <= FILTER_VALUES + FILTER_RANGES
    candidates = np.argsort(-held, kind="stable")[: known.values.size if few else FILTER_VALUES]
    return Bins(_starts(known.values, weight, np.sort(candidates[held[candidates] > 0.0]), FILTER_RANGES))


def _starts(line: NDArray[Any], weight: Floats, heavy: NDArray[np.intp], ranges: int) -> Keys:
    """Return where bins start. line: different values in order; heavy: those that get one for themselves."""
    light = weight.copy()
    light[heavy] = 0.0
    running = np.cumsum(light)
    starts = [line[:1], line[heavy], after(line[heavy])]
    if running[-1] > 0.0:
        quantiles = np.linspace(0.0, running[-1], ranges + 1)[:-1]
        starts.append(line[np.minimum(np.searchsorted(running, quantiles, side="right"), line.size - 1)])
    found: Keys = np.unique(np.concatenate(starts))
    return found


def after(values: NDArray[Any]) -> NDArray[Any]:
    """Return the next place on the line behind each value."""
    if values.dtype.kind == "S":
        return np.strings.add(values, b"\x01").astype(values.dtype)  # what fills its key has none
    with np.errstate(over="ignore"):  # behind the largest one lies infinity
        return np.asarray(np.nextafter(values, np.inf))


def _alone(bins: Bins) -> NDArray[np.bool_]:
    """Return which bins hold a single key."""
    following = after(bins.starts)
    result: NDArray[np.bool_] = np.append(bins.starts[1:] == following[:-1], False)
    return result


def _hash_line(hashes: NDArray[np.uint64]) -> Floats:
    return (hashes >> _HASH_SHIFT).astype(np.float64)
