"""Summaries of join keys: rows per bin, a sketch of distinct keys, and rows chosen by their key."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from selector.hashing import hash_words
from selector.join_keys import Bins, KeySample, KeyStatistics, chance_of
from selector.key_line import line_of_hashes, line_together
from statsproc.sketches.byte_strings import Texts
from statsproc.sketches.column_summary import is_text, numbers_of
from statsproc.sketches.distinct import Distinct, distinct_of, hash_texts, merge_distinct
from statsproc.sketches.sample import sampled_rows

KEYS_KEPT = 1 << 16  # different keys of a column, each with its exact rows
POPULAR_KEPT = 1024
HEAVY_KEYS = 500  # a bin of their own
KEY_RANGES = 200
KEY_ROWS = 4_000  # about so many rows are chosen by their key
KEY_VALUES = 240_000  # of all columns, for all keys of a table together
FEW_ROWS = 4  # of a popular key, which are all chosen

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Bins in which a table's keys are counted. bins: by name of the key."""

    bins: Mapping[str, Bins] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Tells cuts apart; only what was counted under the same one can be merged."""
        starts = [(name, cut.starts.tobytes()) for name, cut in sorted(self.bins.items())]
        return f"{zlib.crc32(repr(starts).encode()):08x}" if starts else ""


@dataclass(frozen=True, slots=True, eq=False)
class KeyRows:
    """Rows chosen by their key: those of keys whose chance is below the share, and of popular keys with few rows.

    share: 0..1; 0: no rows were chosen.
    line: shape (rows,), places of the keys.
    popular: shape (rows,), the key has a bin for itself.
    columns: arrays of as many rows, as in ``Sampled``.
    """

    share: float = 0.0
    line: Floats = field(default_factory=lambda: np.empty(0))
    popular: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    columns: Mapping[str, pa.Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class KeySummary:
    """Summary of a key column over some rows.

    distinct: sketch of the keys.
    popular, popular_rows: shape (n,), keys with most rows, in order of keys, and their rows; the rows of a key that is
        popular in some chunks only are too few.
    rows: shape (bins,), exact; empty before there are bins.
    chosen: rows chosen by their key.
    """

    distinct: Distinct
    popular: Floats = field(default_factory=lambda: np.empty(0))
    popular_rows: Floats = field(default_factory=lambda: np.empty(0))
    rows: Floats = field(default_factory=lambda: np.empty(0))
    chosen: KeyRows = field(default_factory=KeyRows)


def key_line(present: pa.Array, data_type: str) -> Floats:
    """Put non-null keys on the line of keys: numbers as they are, strings by their hash."""
    if not len(present):
        return np.empty(0)
    if is_text(data_type):
        if pa.types.is_dictionary(present.type):
            of_entries = line_of_hashes(hash_texts(Texts.of(present.dictionary)))
            line: Floats = of_entries[present.indices.to_numpy()]
            return line
        return line_of_hashes(hash_texts(Texts.of(present)))
    numbers = numbers_of(present)
    return numbers.line(numbers.raw)


def line_of_rows(column: pa.Array, data_type: str) -> Floats:
    """Return the place of every row's key, shape (rows,); NaN for NULL."""
    line = np.full(len(column), np.nan)
    line[column.is_valid().to_numpy(zero_copy_only=False)] = key_line(column.drop_null(), data_type)
    return line


def line_of_columns(lines: Sequence[Floats]) -> Floats:
    """Return the places of keys of several columns from those of each, NaN where one of them is."""
    missing = np.isnan(lines).any(axis=0)
    together = line_together([np.where(missing, 0.0, line) for line in lines])
    return np.where(missing, np.nan, together)


def summarise_key(line: Floats, bins: Bins | None) -> KeySummary:
    """Summarise the keys of a chunk by themselves. line: shape (rows,), NaN for NULL."""
    keys, held = np.unique(line[~np.isnan(line)], return_counts=True)
    distinct = distinct_of(hash_words(keys.view(np.uint64)), held.astype(np.int64), keys=keys, capacity=KEYS_KEPT)
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


def choose_rows(line: Floats, bins: Bins, share: float) -> tuple[NDArray[np.intp], KeyRows]:
    """Return the rows of a chunk that are chosen by their key, and their keys. line: shape (rows,), NaN for NULL."""
    present = np.flatnonzero(~np.isnan(line))
    of_rows = bins.of(line[present])
    popular = bins.alone[of_rows]
    held = np.bincount(of_rows, minlength=bins.count)[of_rows]
    chosen = np.where(popular, held <= FEW_ROWS, chance_of(line[present]) < share)
    rows = present[chosen]
    return rows, KeyRows(share, line[rows], popular[chosen])


def merge_keys(parts: Sequence[KeySummary]) -> KeySummary:
    """Merge the summaries of disjoint rows, which were counted over the same bins."""
    binned = [part for part in parts if part.rows.size]
    keys, place = np.unique(np.concatenate([part.popular for part in parts]), return_inverse=True)
    held = np.bincount(place, weights=np.concatenate([part.popular_rows for part in parts]), minlength=keys.size)
    popular, popular_rows = _most(keys, held.astype(np.float64))
    return KeySummary(
        distinct=merge_distinct([part.distinct for part in parts], capacity=KEYS_KEPT),
        popular=popular,
        popular_rows=popular_rows,
        rows=np.sum([part.rows for part in binned], axis=0) if binned else np.empty(0),
        chosen=merge_rows([part.chosen for part in parts]),
    )


def rows_of_keys(columns: int, bins: Iterable[Bins]) -> int:
    """Return about how many rows are chosen by each of a table's keys. bins: theirs; few keys need no ranges."""
    keys = sum(1 for cut in bins if cut.count > 2 * int(cut.alone.sum()) + 2)
    return min(KEY_ROWS, KEY_VALUES // max(1, columns * keys))


def merge_rows(parts: Sequence[KeyRows]) -> KeyRows:
    """Merge the chosen rows of disjoint parts of a table.

    All are brought to the smallest share; keys that are not popular are halved while they have twice the rows that are
    wanted. A popular key goes once it has more than a few rows.
    """
    share = min((part.share for part in parts), default=0.0)
    if share <= 0.0:
        return KeyRows()
    names = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
    line = np.concatenate([part.line for part in parts])
    popular = np.concatenate([part.popular for part in parts])
    _, place, held = np.unique(line[popular], return_inverse=True, return_counts=True)
    few = np.flatnonzero(popular)[held[place] <= FEW_ROWS]
    light = np.flatnonzero(~popular)
    light = light[chance_of(line[light]) < share]
    most = 2 * min(KEY_ROWS, KEY_VALUES // max(1, len(names)))
    while light.size > most:
        share /= 2
        light = light[chance_of(line[light]) < share]
    chosen = np.sort(np.concatenate([few, light]))
    columns = {name: pa.concat_arrays([part.columns[name] for part in parts]).take(pa.array(chosen)) for name in names}
    return KeyRows(share, line[chosen], popular[chosen], columns)


def describe_key(
    summary: KeySummary, name: str, cut: Cut, *, share: float = 1.0, sampled: bool = True
) -> KeyStatistics:
    """Turn the summary of a whole key column into its statistics.

    share: of the table that was read; counts are scaled up from it. sampled: False where the table's own sample has all
    of its rows, so that those chosen by the key tell nothing more.
    """
    bins = cut.bins[name]
    held = summary.rows / share
    keys, hash_share = summary.distinct.keys, summary.distinct.share
    assert keys is not None
    at = bins.of(keys)
    ndv = np.bincount(at, minlength=bins.count) / hash_share
    largest = np.zeros(bins.count)
    np.maximum.at(largest, at, summary.distinct.rows / share)
    ndv = np.where(held > 0.0, np.clip(ndv, 1.0, np.maximum(held, 1.0)), 0.0)
    alone = bins.alone
    ndv[alone & (held > 0.0)] = 1.0
    if summary.distinct.rows.max(initial=0) <= 1:  # no key was seen twice: all are taken to be unique
        ndv = held.copy()
    largest = np.where(alone, held, np.maximum(largest, held / np.maximum(ndv, 1.0)))
    sample = None
    if sampled and share >= 1.0:  # of a part of the table no key's rows are known to be all
        chosen = _whole_keys(summary.chosen, bins, summary.rows)
        if chosen.line.size and chosen.columns:
            sample = KeySample(chosen.share, sampled_rows(chosen.columns, chosen.share))
    return KeyStatistics(bins, held, ndv, largest, sample)


def _whole_keys(chosen: KeyRows, bins: Bins, rows: Floats) -> KeyRows:
    """Leave out popular keys of which not all rows were chosen. rows: shape (bins,)."""
    of_rows = bins.of(chosen.line)
    missing = np.bincount(of_rows, minlength=bins.count) < rows
    whole = np.flatnonzero(~(chosen.popular & missing[of_rows]))
    columns = {name: column.take(pa.array(whole)) for name, column in chosen.columns.items()}
    return KeyRows(chosen.share, chosen.line[whole], chosen.popular[whole], columns)


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


def _starts(line: Floats, weight: Floats, heavy: NDArray[np.intp], ranges: int) -> Floats:
    """Return where bins start. line: different values in order; heavy: those that get one for themselves."""
    light = weight.copy()
    light[heavy] = 0.0
    running = np.cumsum(light)
    starts = [line[:1] - 1.0, line[heavy], after(line[heavy])]  # what lies below all is not taken for a popular key
    if running[-1] > 0.0:
        quantiles = np.linspace(0.0, running[-1], ranges + 1)[:-1]
        starts.append(line[np.minimum(np.searchsorted(running, quantiles, side="right"), line.size - 1)])
    return np.unique(np.concatenate(starts))


def after(values: Floats) -> Floats:
    """Return the next place on the line behind each value."""
    with np.errstate(over="ignore"):  # behind the largest one lies infinity
        return np.asarray(np.nextafter(values, np.inf))
