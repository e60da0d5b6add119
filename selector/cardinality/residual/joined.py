"""Rows that inner joins make of sampled rows: these meet all that they should where other tables are there whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from selector.cardinality.keys.classes import Places, row_line
from selector.cardinality.relation import Scanned
from selector.cardinality.residual.measured import has_key
from selector.plan import PlanColumn
from selector.row_sample import RowSample

MOST_ROWS = 400_000  # joined rows; more take longer than an estimate may

Place = tuple[str | None, int | None]  # a scan: its table and its number
Pair = tuple[PlanColumn, PlanColumn]


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Joined rows. of_scans: of each scan its rows, the sample they stand in, and which of it each joined row has.

    share: of the joined rows that there are, 1 if these are all of them.
    """

    of_scans: dict[Place, tuple[Scanned, RowSample, Places]]
    share: float


def is_whole(base: Scanned) -> bool:
    """Return whether the sample holds every row of a table."""
    sample = base.statistics.sample
    return sample is not None and sample.share >= 1.0 and sample.rows == base.statistics.rows


def joined_rows(bases: dict[Place, Scanned], pairs: Sequence[Pair]) -> Joined | None:
    """Join sampled rows. pairs: columns that are equal.

    None where samples do not hold what these rows meet, and where they meet too much.
    """
    samples: dict[Place, tuple[RowSample, Places]] = {}
    partial = [place for place, base in bases.items() if not is_whole(base)]
    if len(partial) > 1:
        return None
    share = 1.0
    for place, base in bases.items():
        sample = base.statistics.sample
        mask = base.filtered.sampled() if sample is not None else None
        if sample is None or mask is None:
            return None
        samples[place] = sample, np.flatnonzero(mask)
        if place in partial:
            share = sample.rows / max(1, base.statistics.rows)
    first = partial[0] if partial else max(bases, key=lambda place: samples[place][1].size)
    rows: dict[Place, Places] = {first: samples[first][1]}
    while len(rows) < len(bases):
        step = _next(rows, pairs)
        if step is None:
            return None
        place, keys = step
        found = _met(rows, samples, place, keys)
        if found is None:
            return None
        rows = found
    return Joined({place: (bases[place], samples[place][0], own) for place, own in rows.items()}, share)


def _place(column: PlanColumn) -> Place:
    return column.table, column.scan


def _next(rows: dict[Place, Places], pairs: Sequence[Pair]) -> tuple[Place, list[Pair]] | None:
    """Return a relation that is joined with those that are there, and by which columns: (theirs, its own)."""
    found: dict[Place, list[Pair]] = {}
    for a, b in (*pairs, *((b, a) for a, b in pairs)):
        if _place(a) in rows and _place(b) not in rows:
            found.setdefault(_place(b), []).append((a, b))
    return next(iter(found.items()), None)


def _met(
    rows: dict[Place, Places], samples: dict[Place, tuple[RowSample, Places]], place: Place, keys: Sequence[Pair]
) -> dict[Place, Places] | None:
    """Return the rows with those of one more relation that they meet."""
    here, there, known_here, known_there = [], [], [], []
    sample, own = samples[place]
    for a, b in keys:
        other = samples[_place(a)][0]
        if a.name not in other.columns or b.name not in sample.columns:
            return None
        here.append(row_line(other, [a.name])[rows[_place(a)]])
        known_here.append(has_key(other, [a.name])[rows[_place(a)]])
        there.append(row_line(sample, [b.name])[own])
        known_there.append(has_key(sample, [b.name])[own])
        if (other.columns[a.name].values.dtype == object) != (sample.columns[b.name].values.dtype == object):
            return None
    left, right = np.logical_and.reduce(known_here), np.logical_and.reduce(known_there)
    code = np.zeros(left.size + right.size, dtype=np.int64)
    for one, other_line in zip(here, there, strict=True):
        each = np.unique(np.concatenate([one, other_line]), return_inverse=True)[1]
        code = np.unique(code * (each.max(initial=0) + 1) + each, return_inverse=True)[1].astype(np.int64)
    mine, theirs = code[: left.size], code[left.size :][right]
    own = own[right]
    order = np.argsort(theirs, kind="stable")
    ordered = theirs[order]
    start, end = np.searchsorted(ordered, mine, "left"), np.searchsorted(ordered, mine, "right")
    count = np.where(left, end - start, 0)
    total = int(count.sum())
    if total > MOST_ROWS:
        return None
    repeated = np.repeat(np.arange(mine.size), count)
    before = np.repeat(np.cumsum(count) - count, count)
    met = order[np.repeat(start, count) + np.arange(total) - before]
    return {**{known: at[repeated] for known, at in rows.items()}, place: own[met]}
