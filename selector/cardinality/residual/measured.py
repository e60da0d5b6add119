"""Aggregates of a table's rows by key, as far as samples hold all rows of a key, or many of them.

Of a table of which the sample holds every row they are exact. Of others the rows that were chosen by their key tell
them of a share of all keys, the same keys in every table; of popular keys the row sample does, if those were too large
to be chosen.
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
from selector.cardinality.predicates.evaluate import values_of
from selector.cardinality.relation import Scanned
from selector.join_keys import Bins, chance_of
from selector.key_line import Floats
from selector.row_sample import RowSample, SampleColumn

_Values = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """An aggregate of each group. values: shape (groups,); nulls: alike. data_type: Spark's short form.

    empty: of a group without rows; None for NULL.
    """

    values: _Values
    nulls: Bools
    data_type: str
    empty: float | None = None

    def at(self, places: Places) -> Measure:
        """Return those of some groups; -1 for one without rows."""
        there = places >= 0
        values = np.append(self.values, self.values[:1] if self.values.size else np.zeros(1))[places]
        nulls = np.append(self.nulls, True)[places]
        if self.empty is not None:
            values, nulls = np.where(there, values, self.empty), np.where(there, nulls, False)
        return Measure(values, nulls, self.data_type, self.empty)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The keys of a table whose rows are known.

    line: shape (keys,), their places, increasing. popular: shape (keys,), whether a key is known because of its many
    rows. share: chance of any key to be known that has no bin for itself. places: shape (keys,), its group in
    ``measures``; -1 for a key of which filters leave no row. bins: of the key, where some keys were chosen.
    """

    line: Floats
    popular: Bools
    share: float
    places: Places
    measures: tuple[Measure, ...]
    bins: Bins | None = None

    @property
    def is_whole(self) -> bool:
        """Tell whether every key is known."""
        return self.share >= 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Sampled rows of keys that are known.

    of_rows, standing: shape (rows,), the place in ``line`` of each one's key, and how many rows it stands for.
    """

    sample: RowSample
    rows: Places
    line: Floats
    popular: Bools
    of_rows: Places
    standing: Floats


def measured(calls: Sequence[exp.Expr], base: Scanned, keys: tuple[str, ...], *, dialect: str) -> Known | None:
    """Return aggregates of a table's filtered rows by the columns of a key; None where nothing tells."""
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
                share = 1.0  # all keys that there are have many rows
    lines, popular, places, groups = [], [], [], 0
    found: list[list[Measure]] = []
    for part in parts:
        mask = base.filtered.sampled(part.sample)
        if mask is None:
            return None
        kept = mask[part.rows]
        there, codes = np.unique(part.of_rows[kept], return_inverse=True)
        rows = part.rows[kept]
        weights = part.standing[kept]
        own = [measure_of(call, part.sample, rows, codes, int(there.size), base, weights, dialect) for call in calls]
        if any(one is None for one in own):
            return None
        found.append([one for one in own if one is not None])
        place = np.full(part.line.size, -1, dtype=np.intp)
        place[there] = groups + np.arange(there.size)
        groups += int(there.size)
        lines.append(part.line)
        popular.append(part.popular)
        places.append(place)
    if not parts or not sum(line.size for line in lines):
        return None
    order = np.argsort(np.concatenate(lines), kind="stable")
    return Known(
        np.concatenate(lines)[order],
        np.concatenate(popular)[order],
        share,
        np.concatenate(places)[order],
        tuple(_together(each) for each in zip(*found, strict=True)),
        member.bins if 0.0 < share < 1.0 else None,
    )


def _together(parts: Sequence[Measure]) -> Measure:
    values = np.concatenate([part.values for part in parts])
    return Measure(values, np.concatenate([part.nulls for part in parts]), parts[0].data_type, parts[0].empty)


def _holds(sample: RowSample, keys: Sequence[str]) -> bool:
    return all(name in sample.columns for name in keys)


def has_key(sample: RowSample, keys: Sequence[str]) -> Bools:
    """Return which rows have a key without NULL, shape (rows,)."""
    missing: Bools = np.logical_or.reduce([sample.columns[name].nulls for name in keys])
    return ~missing


def _all_rows(sample: RowSample, keys: tuple[str, ...]) -> _Rows:
    known, rows = sampled_keys(sample, keys), np.flatnonzero(has_key(sample, keys))
    nowhere = np.zeros(known.line.size, dtype=np.bool_)
    return _Rows(sample, rows, known.line, nowhere, known.of_rows[rows], np.ones(rows.size))


def _chosen(member: Member, share: float) -> _Rows:
    """Return the rows that were chosen by their key: of those below a share, and of popular ones that are complete."""
    counted = member.counted
    assert counted is not None
    assert counted.sample is not None
    sample, keys = counted.sample.rows, member.columns
    known = sampled_keys(sample, keys)
    there = has_key(sample, keys)
    held = np.bincount(known.of_rows[there], minlength=known.line.size)
    bins = counted.bins.of(known.line)
    alone = counted.bins.alone[bins]
    complete = alone & (held >= np.floor(counted.rows[bins]))
    wanted = (held > 0) & (complete | (~alone & (known.chance < share)))
    return _only(sample, known.line, known.of_rows, wanted, complete, there, np.ones(held.size))


def chosen_rows(member: Member) -> tuple[RowSample, Floats, float] | None:
    """Return the rows that were chosen by a key, and how many keys that of each stands for: 0 if it is not complete.

    With the share of all rows whose keys are so popular that they were not chosen. None where nobody chose any.
    """
    counted = member.counted
    if counted is None or counted.sample is None or not _holds(counted.sample.rows, member.columns):
        return None
    part = _chosen(member, counted.sample.share)
    standing = np.zeros(part.sample.rows)
    standing[part.rows] = np.where(part.popular, 1.0, 1.0 / counted.sample.share)[part.of_rows]
    there = np.zeros(counted.bins.count, dtype=np.bool_)
    there[counted.bins.of(part.line[part.popular])] = True
    missing = float(counted.rows[counted.bins.alone & ~there].sum())
    return part.sample, standing, missing / max(1.0, float(counted.rows.sum()))


def _popular(member: Member, sample: RowSample, beside: Floats) -> _Rows:
    """Return rows of the row sample whose key is popular. beside: keys that are known already.

    That is one with a bin for itself, which tells how many rows it has, or with many rows in the sample.
    """
    known = sampled_keys(sample, member.columns)
    there = has_key(sample, member.columns)
    held = np.bincount(known.of_rows[there], minlength=known.line.size)
    standing = np.full(held.size, member.statistics.rows / max(1, sample.rows))
    wanted = held >= MANY_ROWS
    counted = member.counted
    if counted is not None:
        bins = counted.bins.of(known.line)
        alone = counted.bins.alone[bins] & (held > 0)
        wanted |= alone
        standing = np.where(alone, counted.rows[bins] / np.maximum(held, 1), standing)
    wanted &= ~np.isin(known.line, beside)
    return _only(sample, known.line, known.of_rows, wanted, wanted, there, standing)


def _only(
    sample: RowSample, line: Floats, of_rows: Places, wanted: Bools, popular: Bools, there: Bools, standing: Floats
) -> _Rows:
    """Return the rows of wanted keys. standing: shape (keys,), how many rows one of each key stands for."""
    number = np.cumsum(wanted) - 1
    rows = np.flatnonzero(there & wanted[of_rows])
    key = of_rows[rows]
    return _Rows(sample, rows, line[wanted], popular[wanted], number[key].astype(np.intp), standing[key])


def one_group(calls: Sequence[exp.Expr], base: Scanned, *, dialect: str) -> tuple[Measure, ...] | None:
    """Return aggregates of all of a table's filtered rows together."""
    sample = base.statistics.sample
    mask = base.filtered.sampled() if sample is not None else None
    if sample is None or mask is None:
        return None
    rows = np.flatnonzero(mask)
    scale = base.rows / rows.size if rows.size else 1.0
    codes, weights = np.zeros(rows.size, dtype=np.intp), np.full(rows.size, scale)
    found = [measure_of(call, sample, rows, codes, 1, base, weights, dialect) for call in calls]
    return None if any(one is None for one in found) else tuple(one for one in found if one is not None)


def measure_of(
    call: exp.Expr,
    sample: RowSample,
    rows: Places,
    codes: Places,
    groups: int,
    base: Scanned,
    weights: Floats,
    dialect: str,
) -> Measure | None:
    """Return an aggregate of some sampled rows of a table by group; None for one that nothing here computes.

    codes, weights: shape (rows,), the group of each of the rows, and how many it stands for.
    """
    argument, types = call.this, {name: column.data_type for name, column in base.statistics.columns.items()}
    all_there = np.zeros(groups, dtype=np.bool_)
    if isinstance(call, exp.Count) and (argument is None or isinstance(argument, exp.Star)):
        return Measure(np.bincount(codes, weights, minlength=groups), all_there, "double", 0.0)
    distinct = isinstance(argument, exp.Distinct)
    if distinct:
        if len(argument.expressions) != 1:
            return None
        argument = argument.expressions[0]
    if argument is None or call.expressions:
        return None
    column, data_type = _values(argument, sample, types, dialect)
    if column is None:
        return None
    there = ~column.nulls[rows]
    own, group, weights = column.codes[rows[there]].astype(np.int64), codes[there], weights[there]
    if distinct and not isinstance(call, exp.Min | exp.Max):
        pairs = np.unique(group.astype(np.int64) * (column.values.size + 1) + own)
        group, own = (pairs // (column.values.size + 1)).astype(np.intp), pairs % (column.values.size + 1)
        weights = np.ones(group.size)
    held = np.bincount(group, weights, minlength=groups)
    if isinstance(call, exp.Count):
        return Measure(held, all_there, "double", 0.0)
    empty = held <= 0.0
    if isinstance(call, exp.Min | exp.Max):
        smallest = isinstance(call, exp.Min)
        place = np.full(groups, column.values.size if smallest else -1, dtype=np.int64)
        (np.minimum if smallest else np.maximum).at(place, group, own)
        return Measure(column.padded[np.where(empty, 0, place)], empty, data_type)
    if column.values.dtype == object or not isinstance(call, exp.Sum | exp.Avg):
        return None
    total = np.bincount(group, np.asarray(column.values, dtype=np.float64)[own] * weights, minlength=groups)
    return Measure(total if isinstance(call, exp.Sum) else total / np.where(empty, 1.0, held), empty, "double")


def _values(
    argument: exp.Expr, sample: RowSample, types: dict[str, str], dialect: str
) -> tuple[SampleColumn | None, str]:
    """Return a column, or the values of an expression as one, with its type."""
    inner = argument.unnest()
    if isinstance(inner, exp.Column):
        name = next((name for name in types if name.lower() == inner.name.lower()), None)
        return (sample.columns.get(name), types[name]) if name is not None else (None, "")
    found = values_of(argument.sql(dialect=dialect), sample, types, dialect=dialect)
    if found is None or not found.kind.is_number:
        return None, ""
    values = np.broadcast_to(np.asarray(found.values, dtype=np.float64), (sample.rows,))
    return SampleColumn.of(values, np.broadcast_to(found.nulls, (sample.rows,))), "double"


def places_in(known: Known, line: Floats) -> tuple[Places, Bools, Bools]:
    """Return what is known of keys: their group or -1, whether it is known at all, and by being popular.

    line: shape (n,), their places. All results have that shape.
    """
    at = np.minimum(np.searchsorted(known.line, line), known.line.size - 1)
    there = known.line[at] == line
    popular = there & known.popular[at]
    if known.bins is not None:
        told = there | ((chance_of(line) < known.share) & ~known.bins.alone[known.bins.of(line)])
    else:
        told = np.ones(line.size, dtype=np.bool_) if known.is_whole else there
    return np.where(there, known.places[at], -1), told, popular
