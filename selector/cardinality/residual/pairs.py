"""Counts of pairs of sampled rows of two relations that satisfy comparisons.

The rows of one side are sorted by their key and by the value that most comparisons use. Then the matches of a row of
the other side are adjacent, and so are those that satisfy these comparisons; prefix sums of weights count them. Other
comparisons are evaluated on pairs drawn from these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from selector.cardinality.join_messages import Floats
from selector.cardinality.keys.classes import Bools, Places
from selector.cardinality.predicates.vectors import OPERATORS
from selector.cardinality.residual.comparisons import Comparison, Numbered, ranks_among
from selector.cardinality.residual.sides import PRIOR_ROWS, Sides, spread_evenly

DRAWN_PAIRS = 1 << 14  # upper bound of pairs on which further comparisons are evaluated
_GOLDEN = (5.0**0.5 - 1.0) / 2.0  # its multiples modulo 1 are uniform over 0..1


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Comparison with the values of its sides."""

    comparison: Comparison
    sides: tuple[Numbered, Numbered]

    def holds(self, lhs_rows: Places, rhs_rows: Places) -> Bools:
        """Return True for each pair of sampled rows that satisfies it; none of their values is NULL."""
        reference = self.sides[0].ordered()
        ranks = ranks_among(reference, self.sides[1])
        mine = 2 * reference.codes[lhs_rows] + 1
        is_true: Bools = OPERATORS[self.comparison.kind](mine, ranks[self.sides[1].codes[rhs_rows]])
        return is_true


@dataclass(frozen=True, slots=True)
class Share:
    """Selectivity on pairs.

    held: share of pairs without NULL that satisfy the comparisons, 0..1.
    present: share of pairs without NULL, 0..1.
    """

    held: float
    present: float


@dataclass(frozen=True, slots=True)
class Counted:
    """Sums of weights of pairs of rows.

    pairs: of all pairs.
    present: of pairs without NULL.
    matching: of pairs that satisfy the comparisons.
    squares: shape (3, 2): for these three and each side, the sum over its rows of the squared weight of a row's pairs.
    by_key: only rows of the same key are paired.
    whole: the samples have all rows.
    """

    pairs: float
    present: float
    matching: float
    squares: NDArray[np.float64]
    by_key: bool
    whole: bool

    def times(self, factor: float) -> Counted:
        """Return the counts with all weights multiplied."""
        squares = self.squares * (factor * factor)
        return replace(
            self,
            pairs=self.pairs * factor,
            present=self.present * factor,
            matching=self.matching * factor,
            squares=squares,
        )

    def __add__(self, other: Counted) -> Counted:
        """Return the sum of both counts."""
        return replace(
            self,
            pairs=self.pairs + other.pairs,
            present=self.present + other.present,
            matching=self.matching + other.matching,
            squares=self.squares + other.squares,
        )

    @property
    def effective_rows(self) -> float:
        """Effective sample size of ``held``."""
        return float(_effective_rows(self.present, self.squares[1]).min())

    def share(self, prior: Share) -> Share:
        """Return the selectivity. prior: expected selectivity, with the weight of PRIOR_ROWS rows."""
        if self.pairs <= 0.0:
            return prior
        present = min(1.0, self.present / self.pairs)
        held = min(1.0, max(0.0, self.matching / self.present)) if self.present > 0.0 else prior.held
        if self.whole:
            return Share(held, present)
        rows = float(_effective_rows(self.pairs, self.squares[0]).min())
        return Share(self._held(held, prior.held), _with_prior(present, rows, prior.present))

    def _held(self, held: float, prior: float) -> float:
        """Return the selectivity on pairs without NULL.

        If all rows are paired, satisfying pairs consist of some rows of each side; the number of these is estimated on
        each side separately.
        """
        rows, hits = _effective_rows(self.present, self.squares[1]), _effective_rows(self.matching, self.squares[2])
        if self.by_key or self.present <= 0.0:
            return _with_prior(held, self.effective_rows, prior)
        within = held * float(np.prod(rows / hits)) if np.all(hits > 0.0) else 1.0  # of those rows' pairs
        return min(1.0, within * float(np.prod((hits + PRIOR_ROWS * math.sqrt(prior)) / (rows + PRIOR_ROWS))))


def _effective_rows(weight: float, squares: Floats) -> Floats:
    """Return the effective sample size of each side, shape (2,): equally weighted rows with the same variance.

    Kish, "Survey Sampling", 1965. weight: of all pairs. squares: shape (2,), as in ``Counted``.
    """
    return np.divide(weight * weight, squares, out=np.zeros(2), where=squares > 0.0)


def _with_prior(share: float, rows: float, prior: float) -> float:
    return (share * rows + PRIOR_ROWS * prior) / (rows + PRIOR_ROWS)


@dataclass(frozen=True, slots=True, eq=False)
class Meeting:
    """Rows of two sides that are paired if their keys are equal. Arrays are given for each side, shape (n,).

    rows: numbers of sampled rows, increasing.
    weights: number of rows that each one represents.
    keys: number of each row's key; None: all rows are paired.
    guessed: True for rows that together count as one; None: none.
    itself: weight of a pair of a sampled row with itself; 1 if there is no such pair.
    whole: the samples have all rows.
    """

    rows: tuple[Places, Places]
    weights: tuple[Floats, Floats]
    keys: tuple[Places, Places] | None
    guessed: tuple[Bools | None, Bools | None]
    itself: float
    whole: bool

    @classmethod
    def of(cls, sides: Sides, keys: tuple[Places, Places] | None = None) -> Meeting:
        """Pair the rows of two sides. keys: of each side, shape (its sample's rows,), negative: not paired.

        A row is sampled together with itself 1 / share times as often as two different rows are.
        """
        same = sides[0].sample is sides[1].sample and not sides[0].by_key
        lhs_rows, rhs_rows = (
            np.flatnonzero(side.weights if keys is None else np.where(keys[n] >= 0, side.weights, 0.0))
            for n, side in enumerate(sides)
        )
        return cls(
            (lhs_rows, rhs_rows),
            (sides[0].weights[lhs_rows], sides[1].weights[rhs_rows]),
            (keys[0][lhs_rows], keys[1][rhs_rows]) if keys is not None else None,
            (_some(sides[0].guessed, lhs_rows), _some(sides[1].guessed, rhs_rows)),
            sides[0].share if same else 1.0,
            all(side.is_whole for side in sides),
        )

    def where(self, lhs: Bools | Places, rhs: Bools | Places) -> Meeting:
        """Return the pairing of some rows of each side."""
        return replace(
            self,
            rows=(self.rows[0][lhs], self.rows[1][rhs]),
            weights=(self.weights[0][lhs], self.weights[1][rhs]),
            keys=(self.keys[0][lhs], self.keys[1][rhs]) if self.keys is not None else None,
            guessed=(_some(self.guessed[0], lhs), _some(self.guessed[1], rhs)),
        )

    def thinned(self) -> Meeting:
        """Return the pairing of evenly spaced rows, none with itself; sides with guessed rows are small already."""
        lhs, rhs = (
            np.arange(rows.size) if guessed is not None else spread_evenly(np.arange(rows.size))
            for rows, guessed in zip(self.rows, self.guessed, strict=True)
        )
        return replace(self.where(lhs, rhs), itself=0.0 if self.itself < 1.0 else 1.0)

    def alike(self) -> tuple[Places, Places]:
        """Return the indices, on both sides, of sampled rows that are paired with themselves."""
        none = np.empty(0, dtype=np.intp)
        if self.itself >= 1.0 or not self.rows[0].size or not self.rows[1].size:
            return none, none
        place = np.minimum(np.searchsorted(self.rows[1], self.rows[0]), self.rows[1].size - 1)
        same = self.rows[1][place] == self.rows[0]
        if self.keys is not None:
            same &= self.keys[1][place] == self.keys[0]
        lhs = np.flatnonzero(same)
        return lhs, place[lhs]

    def each(self) -> tuple[Floats, Floats]:
        """Return the total weight of each row's pairs, for both sides."""
        if self.keys is None:
            pair_weights = [mine * float(other.sum()) for mine, other in (self.weights, self.weights[::-1])]
        else:
            size = max(int(key.max(initial=0)) for key in self.keys) + 1
            key_weights = [
                np.bincount(key, own, minlength=size) for key, own in zip(self.keys, self.weights, strict=True)
            ]
            pair_weights = [self.weights[n] * key_weights[1 - n][self.keys[n]] for n in (0, 1)]
        lhs, rhs = self.alike()
        less = (1.0 - self.itself) * self.weights[0][lhs] * self.weights[1][rhs]
        pair_weights[0][lhs] -= less
        pair_weights[1][rhs] -= less
        return pair_weights[0], pair_weights[1]

    def squares(self, pair_weights: tuple[Floats, Floats]) -> list[float]:
        """Return the sum of squared weights of each side. pair_weights: of both sides, shape (n,)."""
        sums = []
        for weights, guessed in zip(pair_weights, self.guessed, strict=True):
            together = float(weights[guessed].sum()) if guessed is not None else 0.0
            alone = weights[~guessed] if guessed is not None else weights
            sums.append(float((alone * alone).sum()) + together * together)
        return sums


def _some(flags: Bools | None, rows: Bools | Places) -> Bools | None:
    return flags[rows] if flags is not None else None


def count_pairs(meets: Meeting, compared: Sequence[Values], *, negated: bool = False) -> Counted:
    """Return the counts of pairs, each with the product of its rows' weights."""
    pair_weights = meets.each()
    pairs = present = float(pair_weights[0].sum())
    squares = [meets.squares(pair_weights)]
    nulls = [np.logical_or.reduce([one.sides[n].nulls for one in compared])[meets.rows[n]] for n in (0, 1)]
    if any(missing.any() for missing in nulls):
        meets = meets.where(~nulls[0], ~nulls[1])
        pair_weights = meets.each()
        present = float(pair_weights[0].sum())
    hits = _matching_weights(meets, compared)
    if negated:
        hits = np.maximum(pair_weights[0] - hits[0], 0.0), np.maximum(pair_weights[1] - hits[1], 0.0)
    squares += [meets.squares(pair_weights), meets.squares(hits)]
    by_key = meets.keys is not None
    return Counted(pairs, present, float(hits[0].sum()), np.array(squares), by_key, meets.whole)


def _matching_weights(meets: Meeting, compared: Sequence[Values]) -> tuple[Floats, Floats]:
    """Return the weight of each row's satisfying pairs, for both sides; no value is NULL."""
    none = np.zeros(meets.rows[0].size), np.zeros(meets.rows[1].size)
    if not none[0].size or not none[1].size:
        return none
    side, leading = _leading(compared, meets.rows)
    size, codes, low, high = _bounds(side, leading, meets.rows[side], meets.rows[1 - side])
    weights, of_others = meets.weights[side], meets.weights[1 - side]
    if meets.keys is None:
        order = np.argsort(codes, kind="stable")
        ends = np.append(0, np.cumsum(np.bincount(codes, minlength=size)))
        first, last = ends[low], ends[high]
    else:
        places = meets.keys[side] * (size + 1) + codes
        order = np.argsort(places, kind="stable")
        starts = meets.keys[1 - side] * (size + 1)
        first, last = (np.searchsorted(places[order], starts + bound) for bound in (low, high))
    sums = np.append(0.0, np.cumsum(weights[order]))
    pair_weights = of_others * (sums[last] - sums[first])
    whole, rest = float(pair_weights.sum()), [one for one in compared if one not in leading]
    if whole <= 0.0:
        return none
    if not rest:
        met = np.bincount(first, of_others, order.size + 1) - np.bincount(last, of_others, order.size + 1)
        mine = np.zeros(order.size)
        mine[order] = weights[order] * np.maximum(np.cumsum(met)[:-1], 0.0)
        matching = (pair_weights, mine) if side else (mine, pair_weights)
        lhs, rhs = meets.alike()
        if lhs.size:
            rows = meets.rows[0][lhs]
            holds = np.logical_and.reduce([one.holds(rows, rows) for one in compared])
            less = (1.0 - meets.itself) * meets.weights[0][lhs] * meets.weights[1][rhs] * holds
            matching[0][lhs] -= less
            matching[1][rhs] -= less
        return np.maximum(matching[0], 0.0), np.maximum(matching[1], 0.0)
    meeting = last - first
    if int(meeting.sum()) <= DRAWN_PAIRS:
        theirs = np.repeat(np.arange(meeting.size), meeting)
        own = np.arange(theirs.size) - np.repeat(np.cumsum(meeting) - meeting - first, meeting)
        counts = of_others[theirs] * weights[order[own]]
    else:
        theirs, own = _drawn(pair_weights, of_others, sums, first, last)
        counts = np.full(theirs.size, whole / theirs.size)
    places_of_pairs = (theirs, order[own]) if side else (order[own], theirs)
    lhs, rhs = meets.rows[0][places_of_pairs[0]], meets.rows[1][places_of_pairs[1]]
    counts = counts * np.logical_and.reduce([one.holds(lhs, rhs) for one in rest])
    if meets.itself < 1.0:
        counts = np.where(lhs == rhs, counts * meets.itself, counts)
    of_rows = [
        np.bincount(place, counts, minlength=rows.size).astype(np.float64)
        for place, rows in zip(places_of_pairs, meets.rows, strict=True)
    ]
    return of_rows[0], of_rows[1]


def _leading(compared: Sequence[Values], rows: Sequence[Places]) -> tuple[int, list[Values]]:
    """Return the side whose rows are sorted, and the comparisons of the expression by which they are.

    That is the expression with most bounds. Ties do not depend on the order of comparisons or sides.
    """
    bounds_of: dict[tuple[int, str], list[Values]] = {}
    for one in compared:
        if one.comparison.kind is not exp.NEQ:
            for side, expression in enumerate(one.comparison.sides):
                bounds_of.setdefault((side, expression.sql()), []).append(one)
    sizes = [(-of_side.size, int(of_side.sum())) for of_side in rows]
    if not bounds_of:
        return min((0, 1), key=lambda side: sizes[side]), []

    def rank(expression_key: tuple[int, str]) -> tuple[int, str, tuple[int, int]]:
        bounds = sum(2 if one.comparison.kind is exp.EQ else 1 for one in bounds_of[expression_key])
        return -bounds, expression_key[1], sizes[expression_key[0]]

    best = min(bounds_of, key=rank)
    return best[0], bounds_of[best]


def _bounds(side: int, leading: Sequence[Values], ordered: Places, other: Places) -> tuple[int, Places, Places, Places]:
    """Return the number of values, their codes for the sorted side, and the range of codes for rows of the other side.

    Without a comparison, all rows have one value.
    """
    if not leading:
        none = np.zeros(other.size, dtype=np.intp)
        return 1, np.zeros(ordered.size, dtype=np.intp), none, none + 1
    values = leading[0].sides[side].ordered()
    size = int(np.size(values.values.values))
    low, high = np.zeros(other.size, dtype=np.intp), np.full(other.size, size, dtype=np.intp)
    for one in leading:
        kind = one.comparison.kind if side == 0 else one.comparison.mirrored.kind
        theirs = one.sides[1 - side]
        ranks = ranks_among(values, theirs)[theirs.codes[other]]
        start, end = ranks >> 1, (ranks + 1) >> 1  # of the values that equal it
        if kind in (exp.GT, exp.GTE, exp.EQ):
            low = np.maximum(low, end if kind is exp.GT else start)
        if kind in (exp.LT, exp.LTE, exp.EQ):
            high = np.minimum(high, start if kind is exp.LT else end)
    return size, values.codes[ordered], low, np.maximum(low, high)


def _drawn(pair_weights: Floats, weights: Floats, sums: Floats, first: Places, last: Places) -> tuple[Places, Places]:
    """Return pairs drawn by their weights: rows of one side, and positions in the sorted rows of the other.

    pair_weights: total weight of a row's pairs. weights: of the rows. sums: prefix sums of the other side's weights.
    first, last: range of positions that a row is paired with.
    """
    numbers = np.arange(DRAWN_PAIRS)
    ends = np.cumsum(pair_weights)
    at = (numbers + np.mod((numbers + 0.5) * _GOLDEN, 1.0)) / DRAWN_PAIRS * ends[-1]
    row = np.minimum(np.searchsorted(ends, at, side="right"), pair_weights.size - 1)
    beyond = (at - (ends[row] - pair_weights[row])) / weights[row] + sums[first[row]]
    place = np.searchsorted(sums, beyond, side="right") - 1
    return row, np.clip(place, first[row], last[row] - 1)
