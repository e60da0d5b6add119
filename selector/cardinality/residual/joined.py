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
_GOLDEN = (5.0**0.5 - 1.0) / 2.0  # its multiples modulo 1 are uniform over 0..1

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
    sample, own = samples[place]
    codes = key_codes(
        [(samples[_place(a)][0], rows[_place(a)], a.name) for a, _ in keys], [(sample, own, b.name) for _, b in keys]
    )
    if codes is None:
        return None
    lhs, rhs, pairs = matches(*codes, MOST_ROWS)
    if pairs > MOST_ROWS:
        return None
    return {**{other_place: at[lhs] for other_place, at in rows.items()}, place: own[rhs]}


Key = Sequence[tuple[RowSample, Places, str]]  # by column: the sample, the numbers of its rows, and the column's name


def key_codes(lhs: Key, rhs: Key) -> tuple[Places, Places] | None:
    """Return a number for the key of each row of two sides, the same for equal keys; -1: NULL.

    None: a column was not sampled, or the types differ.
    """
    sides = list(zip(lhs, rhs, strict=True))
    for (sample, _, name), (other, _, other_name) in sides:
        if name not in sample.columns or other_name not in other.columns:
            return None
        if sample.columns[name].is_text != other.columns[other_name].is_text:
            return None
    code = np.zeros(lhs[0][1].size + rhs[0][1].size, dtype=np.intp)
    complete = np.ones(code.size, dtype=np.bool_)
    for both in sides:
        line = np.concatenate([row_line(sample, [name])[rows] for sample, rows, name in both])
        complete &= np.concatenate([has_key(sample, [name])[rows] for sample, rows, name in both])
        own = np.unique(line, return_inverse=True)[1]
        code = np.unique(code * (own.max(initial=0) + 1) + own, return_inverse=True)[1].astype(np.intp)
    code = np.where(complete, code, -1)
    return code[: lhs[0][1].size], code[lhs[0][1].size :]


def matches(lhs: Places, rhs: Places, most: int) -> tuple[Places, Places, int]:
    """Return the pairs of rows with equal keys, as indices of both sides, and their number.

    lhs, rhs: number of each row's key; negative: no pair. most: if there are more pairs, so many are drawn evenly.
    """
    order = np.argsort(rhs, kind="stable")
    start, end = np.searchsorted(rhs[order], lhs, "left"), np.searchsorted(rhs[order], lhs, "right")
    last = np.cumsum(np.where(lhs >= 0, end - start, 0))
    total = int(last[-1]) if last.size else 0
    at = np.arange(min(total, most))
    if total > most:
        at = ((at + np.mod((at + 0.5) * _GOLDEN, 1.0)) / most * total).astype(np.intp)
    own = np.searchsorted(last, at, side="right")
    return own, order[end[own] - (last[own] - at)], total
