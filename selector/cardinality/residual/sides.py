"""Sampled rows of two relations that a join puts together, and the keys by which they meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from selector.cardinality.join_messages import Floats
from selector.cardinality.keys.classes import Bools, Member, Places, sampled_keys
from selector.cardinality.relation import Scanned
from selector.join_keys import Bins, key_order
from selector.plan import PlanColumn
from selector.row_sample import RowSample

PRIOR_ROWS = 0.5  # so many sampled rows is what is expected without them worth
FEW_ROWS = 500  # of each side, which tell a prior

Pairs = Sequence[tuple[PlanColumn, PlanColumn]]


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Sampled rows of one side. weights: shape (sample.rows,), 0 for those that filters drop.

    share: the chance of a row, or of its key, to be sampled. by_key: whether rows were chosen by their key. guessed:
    shape (sample.rows,), which rows have a weight although filters drop them.
    """

    base: Scanned
    sample: RowSample
    weights: Floats
    share: float
    by_key: bool
    guessed: Bools | None = None

    def filled_up(self, others: Bools) -> Side:
        """Return the same, of which other rows count together as PRIOR_ROWS where filters keep only few."""
        kept = self.weights > 0.0
        rows, more = int(kept.sum()), spread_evenly(np.flatnonzero(others & ~kept))
        if rows >= FEW_ROWS or not more.size:
            return self
        weights, guessed = self.weights.copy(), np.zeros(kept.size, dtype=np.bool_)
        weights[more] = PRIOR_ROWS / more.size * (float(weights.sum()) / rows if rows else 1.0)
        guessed[more] = True
        return replace(self, weights=weights, guessed=guessed)

    @property
    def is_whole(self) -> bool:
        """Tell whether these are all rows that filters keep."""
        return not self.by_key and self.share >= 1.0


Sides = tuple[Side, Side]


@dataclass(frozen=True, slots=True, eq=False)
class EqualKeys:
    """Columns that are equal in all pairs, as keys of both sides."""

    members: tuple[Member, Member]

    @classmethod
    def of(cls, sides: Sides, keys: Pairs) -> EqualKeys | None:
        """Return the keys of two sides; None without any, and where they have no line in common."""
        ordered = sorted(dict.fromkeys(keys), key=lambda pair: key_order(pair[0].name, pair[1].name))
        members = (
            Member(sides[0].base.statistics, tuple(a.name for a, _ in ordered)),
            Member(sides[1].base.statistics, tuple(b.name for _, b in ordered)),
        )
        for member, side in zip(members, sides, strict=True):
            if not all(name in side.sample.columns for name in member.columns):
                return None
        return cls(members) if ordered and members[0].types == members[1].types else None

    def numbers(self, sides: Sides, *, popular: bool | None = None, below: float = 1.0) -> tuple[Places, Places]:
        """Return a number for the key of each sampled row, the same on both sides; -1 for those that do not count.

        popular: whether keys that have a bin for themselves count, or all others; None for all. below: how far the
        chances go of keys that count.
        """
        mine, theirs = (
            sampled_keys(side.sample, member.columns) for side, member in zip(sides, self.members, strict=True)
        )
        place = np.minimum(np.searchsorted(theirs.line, mine.line), theirs.line.size - 1)
        there = theirs.line[place] == mine.line
        if popular is not None:
            alone = np.logical_or.reduce([_alone(member.bins, mine.line) for member in self.members])
            there &= alone == popular
        if below < 1.0:
            there &= mine.chance < below
        counts = np.zeros(theirs.line.size, dtype=np.bool_)
        counts[place[there]] = True
        number = np.where(there, place, -1)[mine.of_rows]
        other = np.where(counts, np.arange(theirs.line.size), -1)[theirs.of_rows]
        found = []
        for numbers, side, member in zip((number, other), sides, self.members, strict=True):
            missing = np.logical_or.reduce([side.sample.columns[name].nulls for name in member.columns])
            found.append(np.where(missing, -1, numbers))
        return found[0], found[1]


def _alone(bins: Bins | None, line: Floats) -> Bools:
    """Return which places have a bin for themselves."""
    if bins is None:
        return np.zeros(line.size, dtype=np.bool_)
    at = bins.of(line)
    found: Bools = bins.alone[at] & (bins.starts[at] == line)
    return found


def spread_evenly(places: Places) -> Places:
    """Return FEW_ROWS of some places, spread evenly, or all if there are no more."""
    if places.size <= FEW_ROWS:
        return places
    found: Places = places[np.linspace(0, places.size - 1, FEW_ROWS).astype(np.intp)]
    return found
