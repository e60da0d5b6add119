"""Inner joins of sampled rows, which find all matches if the other tables have complete samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from selector.cardinality.keys.classes import Places, row_line
from selector.cardinality.relation import Scanned
from selector.cardinality.residual.measured import has_key
from selector.plan import PlanColumn
from selector.row_sample import RowSample

MOST_ROWS = 400_000  # joined rows, upper bound for the time of an estimate

Place = tuple[str | None, int | None]  # a scan: its table and its number
Pair = tuple[PlanColumn, PlanColumn]


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Joined rows.

    of_scans: by scan: the scan, its sample, and the number of the sampled row in each joined row.
    share: sampled share of all joined rows, 0..1.
    """

    of_scans: dict[Place, tuple[Scanned, RowSample, Places]]
    share: float


def is_whole(base: Scanned) -> bool:
    """Return whether the sample holds every row of a table."""
    sample = base.statistics.sample
    return sample is not None and sample.share >= 1.0 and sample.rows == base.statistics.rows


def joined_rows(bases: dict[Place, Scanned], pairs: Sequence[Pair]) -> Joined | None:
    """Return the join of sampled rows. pairs: columns that are equal.

    None: more than one sample is partial, a column was not sampled, or there are more than MOST_ROWS rows.
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
        joined = _met(rows, samples, place, keys)
        if joined is None:
            return None
        rows = joined
    return Joined({place: (bases[place], samples[place][0], own) for place, own in rows.items()}, share)


def _place(column: PlanColumn) -> Place:
    return column.table, column.scan


def _next(rows: dict[Place, Places], pairs: Sequence[Pair]) -> tuple[Place, list[Pair]] | None:
    """Return the next scan to join, with pairs of columns (of a joined scan, of the next one); None without one."""
    pairs_of: dict[Place, list[Pair]] = {}
    for a, b in (*pairs, *((b, a) for a, b in pairs)):
        if _place(a) in rows and _place(b) not in rows:
            pairs_of.setdefault(_place(b), []).append((a, b))
    return next(iter(pairs_of.items()), None)


def _met(
    rows: dict[Place, Places], samples: dict[Place, tuple[RowSample, Places]], place: Place, keys: Sequence[Pair]
) -> dict[Place, Places] | None:
    """Return the rows joined with those of one more scan; None: a column was not sampled, or too many rows."""
    lhs_lines, rhs_lines, lhs_has_key, rhs_has_key = [], [], [], []
    sample, own = samples[place]
    for a, b in keys:
        other = samples[_place(a)][0]
        if a.name not in other.columns or b.name not in sample.columns:
            return None
        lhs_lines.append(row_line(other, [a.name])[rows[_place(a)]])
        lhs_has_key.append(has_key(other, [a.name])[rows[_place(a)]])
        rhs_lines.append(row_line(sample, [b.name])[own])
        rhs_has_key.append(has_key(sample, [b.name])[own])
        if (other.columns[a.name].values.dtype == object) != (sample.columns[b.name].values.dtype == object):
            return None
    lhs_complete, rhs_complete = np.logical_and.reduce(lhs_has_key), np.logical_and.reduce(rhs_has_key)
    code = np.zeros(lhs_complete.size + rhs_complete.size, dtype=np.int64)
    for one, other_line in zip(lhs_lines, rhs_lines, strict=True):
        line_codes = np.unique(np.concatenate([one, other_line]), return_inverse=True)[1]
        code = np.unique(code * (line_codes.max(initial=0) + 1) + line_codes, return_inverse=True)[1].astype(np.int64)
    mine, theirs = code[: lhs_complete.size], code[lhs_complete.size :][rhs_complete]
    own = own[rhs_complete]
    order = np.argsort(theirs, kind="stable")
    ordered = theirs[order]
    start, end = np.searchsorted(ordered, mine, "left"), np.searchsorted(ordered, mine, "right")
    count = np.where(lhs_complete, end - start, 0)
    total = int(count.sum())
    if total > MOST_ROWS:
        return None
    repeated = np.repeat(np.arange(mine.size), count)
    before = np.repeat(np.cumsum(count) - count, count)
    met = order[np.repeat(start, count) + np.arange(total) - before]
    return {**{other_place: at[repeated] for other_place, at in rows.items()}, place: own[met]}
