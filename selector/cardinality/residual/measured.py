"""Aggregates of a table's rows by key, for keys of which samples have all rows, or many of them.

If the sample holds every row of the table, they are exact. Else the sample by key has all rows of a share of the keys,
the same keys in every table; for popular keys, which that sample leaves out, the row sample is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from selector.cardinality.groups import MANY_ROWS
from selector.cardinality.keys.classes import Bools, Member, Places, sampled_keys
from selector.cardinality.relation import Scanned
from selector.join_keys import Bins, chance_of
from selector.key_line import Floats
from selector.row_sample import RowSample

_Values = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """Aggregate of each group.

    values, nulls: shape (groups,).
    data_type: Spark's short form.
    empty: value for a group without rows; None: NULL.
    """

    values: _Values
    nulls: Bools
    data_type: str
    empty: float | None = None

    def at(self, places: Places) -> Measure:
        """Return the aggregates of groups by number; -1: a group without rows."""
        has_rows = places >= 0
        values = np.append(self.values, self.values[:1] if self.values.size else np.zeros(1))[places]
        nulls = np.append(self.nulls, True)[places]
        if self.empty is not None:
            values, nulls = np.where(has_rows, values, self.empty), np.where(has_rows, nulls, False)
        return Measure(values, nulls, self.data_type, self.empty)


@dataclass(frozen=True, slots=True, eq=False)
class KeyMeasures:
    """Aggregates of the keys that samples cover.

    line: shape (keys,), places of the keys, increasing.
    popular: shape (keys,), True for a key that is covered because of its many rows.
    share: probability of a key without a bin of its own to be covered.
    places: shape (keys,), its group in ``measures``; -1 for a key without rows behind the filters.
    bins: of the key, if the keys are those of a sample by key; else None.
    """

    line: Floats
    popular: Bools
    share: float
    places: Places
    measures: tuple[Measure, ...]
    bins: Bins | None = None

    @property
    def is_whole(self) -> bool:
        """Tell whether every key is covered."""
        return self.share >= 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Sampled rows of covered keys.

    of_rows: shape (rows,), index in ``line`` of each row's key.
    standing: shape (rows,), number of rows of the table that each one represents.
    """

    sample: RowSample
    rows: Places
    line: Floats
    popular: Bools
    of_rows: Places
    standing: Floats


def measured(calls: Sequence[exp.Expr], base: Scanned, keys: tuple[str, ...]) -> KeyMeasures | None:
    """Return aggregates of a table's filtered rows by the columns of a key; None: no sample, or not computable."""
    member = Member(base.statistics, keys)
    sample = base.statistics.sample
    parts: list[_Rows] = []
    share = 1.0
    if member.is_whole:
        assert sample is not None
        parts = [_all_rows(sample, keys)]
    else:
        counted = member.counted
        if counted is not None and counted.sample is not None and _holds(counted.sample.rows, keys):
            share = counted.sample.share
            parts.append(_chosen(member, share))
        else:
            share = 0.0
        if sample is not None and _holds(sample, keys):
            parts.append(_popular(member, sample, parts[0].line if parts else np.empty(0)))
            if not share and parts[0].rows.size == np.count_nonzero(has_key(sample, keys)):
                share = 1.0  # all keys have many rows
    lines, popular, places, groups = [], [], [], 0
    measures: list[list[Measure]] = []
    for part in parts:
        mask = base.filtered.sampled(part.sample)
        if mask is None:
            return None
        survives = mask[part.rows]
        sampled_groups, codes = np.unique(part.of_rows[survives], return_inverse=True)
        rows = part.rows[survives]
        weights = part.standing[survives]
        size = int(sampled_groups.size)
        own = [measure_of(call, part.sample, rows, codes, size, base, weights) for call in calls]
        if any(one is None for one in own):
            return None
        measures.append([one for one in own if one is not None])
        place = np.full(part.line.size, -1, dtype=np.intp)
        place[sampled_groups] = groups + np.arange(size)
        groups += size
        lines.append(part.line)
        popular.append(part.popular)
        places.append(place)
    if not parts or not sum(line.size for line in lines):
        return None
    order = np.argsort(np.concatenate(lines), kind="stable")
    return KeyMeasures(
        np.concatenate(lines)[order],
        np.concatenate(popular)[order],
        share,
        np.concatenate(places)[order],
        tuple(_together(parts_of_measure) for parts_of_measure in zip(*measures, strict=True)),
        member.bins if 0.0 < share < 1.0 else None,
    )


def _together(parts: Sequence[Measure]) -> Measure:
    values = np.concatenate([part.values for part in parts])
    return Measure(values, np.concatenate([part.nulls for part in parts]), parts[0].data_type, parts[0].empty)


def _holds(sample: RowSample, keys: Sequence[str]) -> bool:
    return all(name in sample.columns for name in keys)


def has_key(sample: RowSample, keys: Sequence[str]) -> Bools:
    """Return True for each row with a key without NULL, shape (rows,)."""
    missing: Bools = np.logical_or.reduce([sample.columns[name].nulls for name in keys])
    return ~missing


def _all_rows(sample: RowSample, keys: tuple[str, ...]) -> _Rows:
    keys_of_sample, rows = sampled_keys(sample, keys), np.flatnonzero(has_key(sample, keys))
    nowhere = np.zeros(keys_of_sample.line.size, dtype=np.bool_)
    return _Rows(sample, rows, keys_of_sample.line, nowhere, keys_of_sample.of_rows[rows], np.ones(rows.size))


def _chosen(member: Member, share: float) -> _Rows:
    """Return the rows of the sample by key: of keys drawn by hash, and of popular keys that are complete."""
    counted = member.counted
    assert counted is not None
    assert counted.sample is not None
    sample, keys = counted.sample.rows, member.columns
    keys_of_sample = sampled_keys(sample, keys)
    has_value = has_key(sample, keys)
    rows_of_key = np.bincount(keys_of_sample.of_rows[has_value], minlength=keys_of_sample.line.size)
    bins = counted.bins.of(keys_of_sample.line)
    alone = counted.bins.alone[bins]
    complete = alone & (rows_of_key >= np.floor(counted.rows[bins]))
    wanted = (rows_of_key > 0) & (complete | (~alone & (keys_of_sample.chance < share)))
    return _only(
        sample, keys_of_sample.line, keys_of_sample.of_rows, wanted, complete, has_value, np.ones(rows_of_key.size)
    )


def chosen_rows(member: Member) -> tuple[RowSample, Floats, float] | None:
    """Return the sample by key, the number of keys that each row's key represents, and the share of rows not covered.

    A key that is not complete represents 0 keys. Popular keys that the sample leaves out are not covered. None: the
    table has no sample by this key.
    """
    counted = member.counted
    if counted is None or counted.sample is None or not _holds(counted.sample.rows, member.columns):
        return None
    part = _chosen(member, counted.sample.share)
    standing = np.zeros(part.sample.rows)
    standing[part.rows] = np.where(part.popular, 1.0, 1.0 / counted.sample.share)[part.of_rows]
    is_sampled = np.zeros(counted.bins.count, dtype=np.bool_)
    is_sampled[counted.bins.of(part.line[part.popular])] = True
    missing = float(counted.rows[counted.bins.alone & ~is_sampled].sum())
    return part.sample, standing, missing / max(1.0, float(counted.rows.sum()))


def _popular(member: Member, sample: RowSample, beside: Floats) -> _Rows:
    """Return rows of the row sample with a popular key. beside: keys that are covered already.

    A popular key has a bin of its own, which has its number of rows, or many rows in the sample.
    """
    keys_of_sample = sampled_keys(sample, member.columns)
    has_value = has_key(sample, member.columns)
    rows_of_key = np.bincount(keys_of_sample.of_rows[has_value], minlength=keys_of_sample.line.size)
    standing = np.full(rows_of_key.size, member.statistics.rows / max(1, sample.rows))
    wanted = rows_of_key >= MANY_ROWS
    counted = member.counted
    if counted is not None:
        bins = counted.bins.of(keys_of_sample.line)
        alone = counted.bins.alone[bins] & (rows_of_key > 0)
        wanted |= alone
        standing = np.where(alone, counted.rows[bins] / np.maximum(rows_of_key, 1), standing)
    wanted &= ~np.isin(keys_of_sample.line, beside)
    return _only(sample, keys_of_sample.line, keys_of_sample.of_rows, wanted, wanted, has_value, standing)


def _only(
    sample: RowSample, line: Floats, of_rows: Places, wanted: Bools, popular: Bools, has_value: Bools, standing: Floats
) -> _Rows:
    """Return the rows of wanted keys. standing: shape (keys,), number of rows that a row of each key represents."""
    number = np.cumsum(wanted) - 1
    rows = np.flatnonzero(has_value & wanted[of_rows])
    key = of_rows[rows]
    return _Rows(sample, rows, line[wanted], popular[wanted], number[key].astype(np.intp), standing[key])


def one_group(calls: Sequence[exp.Expr], base: Scanned) -> tuple[Measure, ...] | None:
    """Return aggregates over all filtered rows of a table; None: no sample, or not computable."""
    sample = base.statistics.sample
    mask = base.filtered.sampled() if sample is not None else None
    if sample is None or mask is None:
        return None
    rows = np.flatnonzero(mask)
    scale = base.rows / rows.size if rows.size else 1.0
    codes, weights = np.zeros(rows.size, dtype=np.intp), np.full(rows.size, scale)
    measures = [measure_of(call, sample, rows, codes, 1, base, weights) for call in calls]
    return None if any(one is None for one in measures) else tuple(one for one in measures if one is not None)


def measure_of(
    call: exp.Expr,
    sample: RowSample,
    rows: Places,
    codes: Places,
    groups: int,
    base: Scanned,
    weights: Floats,
) -> Measure | None:
    """Return an aggregate of some sampled rows of a table by group; None: not computable.

    codes: shape (rows,), the group of each row. weights: shape (rows,), number of rows that it represents.
    """
    argument, types = call.this, {name: column.data_type for name, column in base.statistics.columns.items()}
    no_nulls = np.zeros(groups, dtype=np.bool_)
    if isinstance(call, exp.Count) and (argument is None or isinstance(argument, exp.Star)):
        return Measure(np.bincount(codes, weights, minlength=groups), no_nulls, "double", 0.0)
    inner = argument.unnest() if argument is not None and not call.expressions else None
    name = (
        next((name for name in types if name.lower() == inner.name.lower()), None)
        if isinstance(inner, exp.Column)
        else None
    )
    column = sample.columns.get(name or "")
    if name is None or column is None:
        return None
    has_value = ~column.nulls[rows]
    own, group, weights = column.codes[rows[has_value]].astype(np.int64), codes[has_value], weights[has_value]
    group_weights = np.bincount(group, weights, minlength=groups)
    if isinstance(call, exp.Count):
        return Measure(group_weights, no_nulls, "double", 0.0)
    empty = group_weights <= 0.0
    if isinstance(call, exp.Min | exp.Max):
        smallest = isinstance(call, exp.Min)
        place = np.full(groups, column.values.size if smallest else -1, dtype=np.int64)
        (np.minimum if smallest else np.maximum).at(place, group, own)
        return Measure(column.padded[np.where(empty, 0, place)], empty, types[name])
    if column.values.dtype == object or not isinstance(call, exp.Sum | exp.Avg):
        return None
    total = np.bincount(group, np.asarray(column.values, dtype=np.float64)[own] * weights, minlength=groups)
    return Measure(total if isinstance(call, exp.Sum) else total / np.where(empty, 1.0, group_weights), empty, "double")


def places_in(key_measures: KeyMeasures, line: Floats) -> tuple[Places, Bools, Bools]:
    """Return for each key its group or -1, whether it is covered, and whether it is covered as a popular key.

    line: shape (n,), places of the keys. All results have that shape.
    """
    at = np.minimum(np.searchsorted(key_measures.line, line), key_measures.line.size - 1)
    is_match = key_measures.line[at] == line
    popular = is_match & key_measures.popular[at]
    if key_measures.bins is not None:
        is_known = is_match | (
            (chance_of(line) < key_measures.share) & ~key_measures.bins.alone[key_measures.bins.of(line)]
        )
    else:
        is_known = np.ones(line.size, dtype=np.bool_) if key_measures.is_whole else is_match
    return np.where(is_match, key_measures.places[at], -1), is_known, popular
