"""Pairs of sampled rows of two relations, and for how many of them comparisons hold.

The rows of one side are ordered by their key and by the value that most comparisons are about; then those that a row of
the other side meets, and those among them for which these comparisons hold, stand together, and sums of weights count
them. What other comparisons keep of these pairs is counted on pairs drawn from them.
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

DRAWN_PAIRS = 1 << 14  # on which further comparisons are counted, at most
_GOLDEN = (5.0**0.5 - 1.0) / 2.0  # multiples of it are spread evenly over 0..1, whatever steps the rows have


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """A comparison and the values of its sides."""

    comparison: Comparison
    sides: tuple[Numbered, Numbered]

    def holds(self, left: Places, right: Places) -> Bools:
        """Return for which pairs of sampled rows it holds; none of their values is NULL."""
        reference = self.sides[0].ordered()
        ranks = ranks_among(reference, self.sides[1])
        mine = 2 * reference.codes[left] + 1
        found: Bools = OPERATORS[self.comparison.kind](mine, ranks[self.sides[1].codes[right]])
        return found


@dataclass(frozen=True, slots=True)
class Share:
    """What is kept of pairs. present: share of pairs without NULL. held: share of these that is kept."""

    held: float
    present: float


@dataclass(frozen=True, slots=True)
class Counted:
    """Sums of weights of pairs of rows: of all, of those without NULL, of those that are kept.

    squares: shape (3, 2): of these three and of each side, the sum of the squared weights of the pairs in which each
    row is. by_key: whether only rows of the same key meet. whole: whether these are all pairs there are.
    """

    pairs: float
    present: float
    kept: float
    squares: NDArray[np.float64]
    by_key: bool
    whole: bool

    def times(self, factor: float) -> Counted:
        """Return the same with all weights multiplied."""
        squares = self.squares * (factor * factor)
        return replace(
            self, pairs=self.pairs * factor, present=self.present * factor, kept=self.kept * factor, squares=squares
        )

    def __add__(self, other: Counted) -> Counted:
        """Return both together."""
        return replace(
            self,
            pairs=self.pairs + other.pairs,
            present=self.present + other.present,
            kept=self.kept + other.kept,
            squares=self.squares + other.squares,
        )

    @property
    def told(self) -> float:
        """Return how many rows tell what is kept."""
        return float(_rows_that_tell(self.present, self.squares[1]).min())

    def share(self, prior: Share) -> Share:
        """Return what is kept. prior: what is expected, which counts as PRIOR_ROWS rows."""
        if self.pairs <= 0.0:
            return prior
        present = min(1.0, self.present / self.pairs)
        held = min(1.0, max(0.0, self.kept / self.present)) if self.present > 0.0 else prior.held
        if self.whole:
            return Share(held, present)
        rows = float(_rows_that_tell(self.pairs, self.squares[0]).min())
        return Share(self._held(held, prior.held), _with_prior(present, rows, prior.present))

    def _held(self, held: float, prior: float) -> float:
        """Return the share that is kept of pairs without NULL.

        Where all rows meet, pairs that are kept are those of some rows of one side with some of the other; how many
        these are is told by all rows of each side.
        """
        rows, hits = _rows_that_tell(self.present, self.squares[1]), _rows_that_tell(self.kept, self.squares[2])
        if self.by_key or self.present <= 0.0:
            return _with_prior(held, self.told, prior)
        within = held * float(np.prod(rows / hits)) if np.all(hits > 0.0) else 1.0  # of those rows' pairs
        return min(1.0, within * float(np.prod((hits + PRIOR_ROWS * math.sqrt(prior)) / (rows + PRIOR_ROWS))))


def _rows_that_tell(weight: float, squares: Floats) -> Floats:
    """Return how many rows of each side stand behind pairs: as many as would tell as much if all counted alike.

    Kish, "Survey Sampling", 1965. weight: of all pairs. squares: shape (2,), of both sides.
    """
    return np.divide(weight * weight, squares, out=np.zeros(2), where=squares > 0.0)


def _with_prior(share: float, rows: float, prior: float) -> float:
    return (share * rows + PRIOR_ROWS * prior) / (rows + PRIOR_ROWS)


@dataclass(frozen=True, slots=True, eq=False)
class Meeting:
    """Rows of two sides that meet if their keys are equal.

    rows, weights, keys: of each side, shape (n,): sampled rows, increasing, and what each stands for. keys: None where
    all rows meet. guessed: of each side, which rows stand for one together. itself: what a pair counts of which both
    rows are the same sampled row; 1 if there is no such pair. whole: whether these are all rows.
    """

    rows: tuple[Places, Places]
    weights: tuple[Floats, Floats]
    keys: tuple[Places, Places] | None
    guessed: tuple[Bools | None, Bools | None]
    itself: float
    whole: bool

    @classmethod
    def of(cls, sides: Sides, keys: tuple[Places, Places] | None = None) -> Meeting:
        """Let rows meet. keys: of each side, shape (its sample's rows,), negative for a row that meets none.

        A row is sampled together with itself more often than two rows are by 1 / share.
        """
        same = sides[0].sample is sides[1].sample and not sides[0].by_key
        left, right = (
            np.flatnonzero(side.weights if keys is None else np.where(keys[n] >= 0, side.weights, 0.0))
            for n, side in enumerate(sides)
        )
        return cls(
            (left, right),
            (sides[0].weights[left], sides[1].weights[right]),
            (keys[0][left], keys[1][right]) if keys is not None else None,
            (_some(sides[0].guessed, left), _some(sides[1].guessed, right)),
            sides[0].share if same else 1.0,
            all(side.is_whole for side in sides),
        )

    def where(self, left: Bools | Places, right: Bools | Places) -> Meeting:
        """Return some of the rows of each side."""
        return replace(
            self,
            rows=(self.rows[0][left], self.rows[1][right]),
            weights=(self.weights[0][left], self.weights[1][right]),
            keys=(self.keys[0][left], self.keys[1][right]) if self.keys is not None else None,
            guessed=(_some(self.guessed[0], left), _some(self.guessed[1], right)),
        )

    def thinned(self) -> Meeting:
        """Return every so many rows, of which none is taken to meet itself; there are few where some are guessed."""
        left, right = (
            np.arange(rows.size) if guessed is not None else spread_evenly(np.arange(rows.size))
            for rows, guessed in zip(self.rows, self.guessed, strict=True)
        )
        return replace(self.where(left, right), itself=0.0 if self.itself < 1.0 else 1.0)

    def alike(self) -> tuple[Places, Places]:
        """Return the places of rows that meet themselves, on both sides, if that is told."""
        none = np.empty(0, dtype=np.intp)
        if self.itself >= 1.0 or not self.rows[0].size or not self.rows[1].size:
            return none, none
        place = np.minimum(np.searchsorted(self.rows[1], self.rows[0]), self.rows[1].size - 1)
        same = self.rows[1][place] == self.rows[0]
        if self.keys is not None:
            same &= self.keys[1][place] == self.keys[0]
        left = np.flatnonzero(same)
        return left, place[left]

    def each(self) -> tuple[Floats, Floats]:
        """Return the weights of the pairs in which each row is, of both sides."""
        if self.keys is None:
            found = [mine * float(other.sum()) for mine, other in (self.weights, self.weights[::-1])]
        else:
            size = max(int(key.max(initial=0)) for key in self.keys) + 1
            held = [np.bincount(key, own, minlength=size) for key, own in zip(self.keys, self.weights, strict=True)]
            found = [self.weights[n] * held[1 - n][self.keys[n]] for n in (0, 1)]
        left, right = self.alike()
        less = (1.0 - self.itself) * self.weights[0][left] * self.weights[1][right]
        found[0][left] -= less
        found[1][right] -= less
        return found[0], found[1]

    def squares(self, each: tuple[Floats, Floats]) -> list[float]:
        """Return the sums of squares of what rows of each side weigh. each: of both sides, shape (n,)."""
        found = []
        for weights, guessed in zip(each, self.guessed, strict=True):
            together = float(weights[guessed].sum()) if guessed is not None else 0.0
            alone = weights[~guessed] if guessed is not None else weights
            found.append(float((alone * alone).sum()) + together * together)
        return found


def _some(flags: Bools | None, rows: Bools | Places) -> Bools | None:
    return flags[rows] if flags is not None else None


def count_pairs(meets: Meeting, compared: Sequence[Values], *, negated: bool = False) -> Counted:
    """Count pairs of rows, each weighing as much as its rows."""
    each = meets.each()
    pairs = present = float(each[0].sum())
    squares = [meets.squares(each)]
    nulls = [np.logical_or.reduce([one.sides[n].nulls for one in compared])[meets.rows[n]] for n in (0, 1)]
    if any(missing.any() for missing in nulls):
        meets = meets.where(~nulls[0], ~nulls[1])
        each = meets.each()
        present = float(each[0].sum())
    hits = _kept(meets, compared)
    if negated:
        hits = np.maximum(each[0] - hits[0], 0.0), np.maximum(each[1] - hits[1], 0.0)
    squares += [meets.squares(each), meets.squares(hits)]
    by_key = meets.keys is not None
    return Counted(pairs, present, float(hits[0].sum()), np.array(squares), by_key, meets.whole)


def _kept(meets: Meeting, compared: Sequence[Values]) -> tuple[Floats, Floats]:
    """Return the weights of pairs for which all comparisons hold, of each row of both sides; no value is NULL."""
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
    each = of_others * (sums[last] - sums[first])
    whole, rest = float(each.sum()), [one for one in compared if one not in leading]
    if whole <= 0.0:
        return none
    if not rest:
        met = np.bincount(first, of_others, order.size + 1) - np.bincount(last, of_others, order.size + 1)
        mine = np.zeros(order.size)
        mine[order] = weights[order] * np.maximum(np.cumsum(met)[:-1], 0.0)
        found = (each, mine) if side else (mine, each)
        left, right = meets.alike()
        if left.size:
            rows = meets.rows[0][left]
            holds = np.logical_and.reduce([one.holds(rows, rows) for one in compared])
            less = (1.0 - meets.itself) * meets.weights[0][left] * meets.weights[1][right] * holds
            found[0][left] -= less
            found[1][right] -= less
        return np.maximum(found[0], 0.0), np.maximum(found[1], 0.0)
    meeting = last - first
    if int(meeting.sum()) <= DRAWN_PAIRS:
        theirs = np.repeat(np.arange(meeting.size), meeting)
        own = np.arange(theirs.size) - np.repeat(np.cumsum(meeting) - meeting - first, meeting)
        counts = of_others[theirs] * weights[order[own]]
    else:
        theirs, own = _drawn(each, of_others, sums, first, last)
        counts = np.full(theirs.size, whole / theirs.size)
    places_of_pairs = (theirs, order[own]) if side else (order[own], theirs)
    left, right = meets.rows[0][places_of_pairs[0]], meets.rows[1][places_of_pairs[1]]
    counts = counts * np.logical_and.reduce([one.holds(left, right) for one in rest])
    if meets.itself < 1.0:
        counts = np.where(left == right, counts * meets.itself, counts)
    of_rows = [
        np.bincount(place, counts, minlength=rows.size).astype(np.float64)
        for place, rows in zip(places_of_pairs, meets.rows, strict=True)
    ]
    return of_rows[0], of_rows[1]


def _leading(compared: Sequence[Values], rows: Sequence[Places]) -> tuple[int, list[Values]]:
    """Return by whose values rows are ordered: a side, and the comparisons of one of its expressions.

    That is the expression with most bounds. What decides between several depends neither on the order of comparisons
    nor on that of the sides.
    """
    found: dict[tuple[int, str], list[Values]] = {}
    for one in compared:
        if one.comparison.kind is not exp.NEQ:
            for side, expression in enumerate(one.comparison.sides):
                found.setdefault((side, expression.sql()), []).append(one)
    sizes = [(-of_side.size, int(of_side.sum())) for of_side in rows]
    if not found:
        return min((0, 1), key=lambda side: sizes[side]), []

    def rank(asked: tuple[int, str]) -> tuple[int, str, tuple[int, int]]:
        bounds = sum(2 if one.comparison.kind is exp.EQ else 1 for one in found[asked])
        return -bounds, asked[1], sizes[asked[0]]

    best = min(found, key=rank)
    return best[0], found[best]


def _bounds(side: int, leading: Sequence[Values], ordered: Places, other: Places) -> tuple[int, Places, Places, Places]:
    """Return which values the rows of the ordered side have, and for each row of the other from which to which.

    Also how many values there are; without a comparison all are one.
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


def _drawn(each: Floats, weights: Floats, sums: Floats, first: Places, last: Places) -> tuple[Places, Places]:
    """Draw pairs by their weights: a row of one side, and a place in the order of the other's.

    each: the weights of all pairs of a row. sums: of the other side's weights, up to each place. first, last: which of
    its places a row meets.
    """
    numbers = np.arange(DRAWN_PAIRS)
    ends = np.cumsum(each)
    at = (numbers + np.mod((numbers + 0.5) * _GOLDEN, 1.0)) / DRAWN_PAIRS * ends[-1]
    row = np.minimum(np.searchsorted(ends, at, side="right"), each.size - 1)
    beyond = (at - (ends[row] - each[row])) / weights[row] + sums[first[row]]
    place = np.searchsorted(sums, beyond, side="right") - 1
    return row, np.clip(place, first[row], last[row] - 1)
