"""Sampled rows of the two sides of a join, and their keys."""

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

PRIOR_ROWS = 0.5  # weight of the expected selectivity, in sampled rows
FEW_ROWS = 500  # of each side, from which a prior is computed

Pairs = Sequence[tuple[PlanColumn, PlanColumn]]


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Sampled rows of one side.

    weights: shape (sample.rows,), 0 for rows that filters drop.
    share: probability of a row, or of its key, to be sampled.
    by_key: the sample was drawn by key.
    guessed: shape (sample.rows,), True for rows that have a weight although filters drop them; None: none.
    """

    base: Scanned
    sample: RowSample
    weights: Floats
    share: float
    by_key: bool
    guessed: Bools | None = None

    def filled_up(self, others: Bools) -> Side:
        """Return the side with further rows that together count as PRIOR_ROWS, if few survive the filters."""
        survives = self.weights > 0.0
        rows, more = int(survives.sum()), spread_evenly(np.flatnonzero(others & ~survives))
        if rows >= FEW_ROWS or not more.size:
            return self
        weights, guessed = self.weights.copy(), np.zeros(survives.size, dtype=np.bool_)
        weights[more] = PRIOR_ROWS / more.size * (float(weights.sum()) / rows if rows else 1.0)
        guessed[more] = True
        return replace(self, weights=weights, guessed=guessed)

    @property
    def is_whole(self) -> bool:
        """Tell whether the sample has all rows."""
        return not self.by_key and self.share >= 1.0


Sides = tuple[Side, Side]


@dataclass(frozen=True, slots=True, eq=False)
class EqualKeys:
    """Keys of both sides that are equal in all pairs of rows."""

    members: tuple[Member, Member]

    @classmethod
    def of(cls, sides: Sides, keys: Pairs) -> EqualKeys | None:
        """Return the keys of two sides; None without any, or if they have no line in common."""
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
        """Return the number of each sampled row's key, the same on both sides; -1 for keys that do not count.

        popular: True: only keys with a bin of their own count; False: only others; None: all.
        below: only keys with a smaller hash count.
        """
        mine, theirs = (
            sampled_keys(side.sample, member.columns) for side, member in zip(sides, self.members, strict=True)
        )
        place = np.minimum(np.searchsorted(theirs.line, mine.line), theirs.line.size - 1)
        is_shared = theirs.line[place] == mine.line
        if popular is not None:
            alone = np.logical_or.reduce([_alone(member.bins, mine.line) for member in self.members])
            is_shared &= alone == popular
        if below < 1.0:
            is_shared &= mine.chance < below
        counts = np.zeros(theirs.line.size, dtype=np.bool_)
        counts[place[is_shared]] = True
        number = np.where(is_shared, place, -1)[mine.of_rows]
        other = np.where(counts, np.arange(theirs.line.size), -1)[theirs.of_rows]
        key_numbers = []
        for numbers, side, member in zip((number, other), sides, self.members, strict=True):
            missing = np.logical_or.reduce([side.sample.columns[name].nulls for name in member.columns])
            key_numbers.append(np.where(missing, -1, numbers))
        return key_numbers[0], key_numbers[1]


def _alone(bins: Bins | None, line: Floats) -> Bools:
    """Return True for each place with a bin of its own."""
    if bins is None:
        return np.zeros(line.size, dtype=np.bool_)
    at = bins.of(line)
    is_alone: Bools = bins.alone[at] & (bins.starts[at] == line)
    return is_alone


def spread_evenly(places: Places) -> Places:
    """Return FEW_ROWS evenly spaced ones of some places, or all if there are fewer."""
    if places.size <= FEW_ROWS:
        return places
    spread: Places = places[np.linspace(0, places.size - 1, FEW_ROWS).astype(np.intp)]
    return spread
