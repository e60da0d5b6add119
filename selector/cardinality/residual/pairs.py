"""Which share of the pairs of two relations' rows comparisons keep, all of them together.

The rows of one side are ordered by their key and by the value that most comparisons are about; then those that a row of
the other side meets, and those among them for which these comparisons hold, stand together, and sums of weights count
them. What other comparisons keep of these pairs is counted on pairs drawn from them.

Without equal keys every sampled row meets every other. With equal keys only sampled rows of the same key meet; where
neither sample has all rows, rows chosen by their key are complete, so that the others are only asked about popular
keys. In a table that is joined with itself a sampled row always meets itself, and others only if they were sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sqlglot import exp

from selector.cardinality.join_messages import Floats
from selector.cardinality.keys.classes import Bools, Member, Places, sampled_keys
from selector.cardinality.predicates.selectivity import EQUAL_SHARE, RANGE_SHARE
from selector.cardinality.predicates.vectors import OPERATORS, NotEvaluable
from selector.cardinality.relation import Relation
from selector.cardinality.residual.comparisons import Comparison, Numbered, numbered, ranks_among
from selector.join_keys import Bins, key_order
from selector.plan import PlanColumn
from selector.row_sample import RowSample
from selector.statistics import TableStatistics

PRIOR_ROWS = 0.5  # so many sampled rows is what the form of comparisons is worth
DRAWN_PAIRS = 1 << 14
_GOLDEN = (5.0**0.5 - 1.0) / 2.0  # multiples of it are spread evenly over 0..1, whatever steps the rows have

Pairs = Sequence[tuple[PlanColumn, PlanColumn]]


@dataclass(frozen=True, slots=True)
class Compared:
    """Comparisons of two relations' rows that all hold; or, negated, do not all hold though none of them is NULL.

    places: a column of each side, which tells where its rows were read. keys: pairs of columns of these that are equal
    in all pairs of rows. texts: of the conditions that these are.
    """

    comparisons: tuple[Comparison, ...]
    places: tuple[PlanColumn, PlanColumn]
    texts: tuple[str, ...]
    negated: bool = False
    keys: Pairs = ()

    def __and__(self, other: Compared) -> Compared:
        """Return that both hold; they compare the same two relations, be it in another order."""
        same = (self.places[0].table, self.places[0].scan) == (other.places[0].table, other.places[0].scan)
        more = other.comparisons if same else tuple(one.mirrored for one in other.comparisons)
        return replace(self, comparisons=(*self.comparisons, *more), texts=(*self.texts, *other.texts))

    def share(self, below: Relation, *, dialect: str) -> float | None:
        """Return the share of pairs that is kept; None where samples do not tell. below: both relations."""
        try:
            return self._complement._share(below, dialect)
        except NotEvaluable:
            return None

    @property
    def _complement(self) -> Compared:
        """Return the same, with ``<>`` alone as what is not equal: equal values stand together."""
        if len(self.comparisons) == 1 and self.comparisons[0].kind is exp.NEQ and not self.negated:
            return replace(self, comparisons=(Comparison(exp.EQ, self.comparisons[0].sides),), negated=True)
        return self

    def _share(self, below: Relation, dialect: str) -> float | None:
        sides = _sides(below, self.places)
        if sides is None:
            return None
        everywhere = self._counted(sides, None, dialect)
        prior = everywhere.share(_by_form(self.comparisons, negated=self.negated))
        equal = _EqualKeys.of(sides, self.keys)
        if equal is None:
            return prior
        return self._with_equal_keys(below, sides, equal, dialect).share(prior)

    def _with_equal_keys(self, below: Relation, sides: _Sides, equal: _EqualKeys, dialect: str) -> Counted:
        chosen = _sides(below, self.places, equal.members)
        if chosen is None or any(side.is_whole for side in sides):
            return self._counted(sides, equal.numbers(sides), dialect)
        share = min(side.share for side in chosen)
        by_key = self._counted(chosen, equal.numbers(chosen, popular=False, below=share), dialect).times(1.0 / share)
        by_rows = self._counted(sides, equal.numbers(sides, popular=False), dialect)
        rest = by_key if by_key.told >= by_rows.told else by_rows
        return self._counted(sides, equal.numbers(sides, popular=True), dialect) + rest

    def _counted(self, sides: _Sides, keys: tuple[Places, Places] | None, dialect: str) -> Counted:
        compared = []
        for comparison in self.comparisons:
            values = [
                numbered(expression, side.sample, side.statistics, dialect)
                for expression, side in zip(comparison.sides, sides, strict=True)
            ]
            if values[0] is None or values[1] is None:
                raise NotEvaluable("a side of a comparison")
            compared.append(_Values(comparison, (values[0], values[1])))
        return _count(sides, keys, compared, negated=self.negated)


def _by_form(comparisons: Sequence[Comparison], *, negated: bool) -> float:
    """Return the share of pairs that comparisons keep by their form: the first counts whole, others less and less."""
    forms: dict[type[exp.Expr], float] = {exp.EQ: EQUAL_SHARE, exp.NEQ: 1.0 - EQUAL_SHARE}
    kept = 1.0
    for place, share in enumerate(sorted(forms.get(comparison.kind, RANGE_SHARE) for comparison in comparisons)):
        kept *= share ** (0.5**place)
    return 1.0 - kept if negated else kept


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """Sampled rows of one side. weights: shape (sample.rows,), 0 for those that filters drop.

    share: the chance of a row, or of its key, to be sampled.
    """

    statistics: TableStatistics
    sample: RowSample
    weights: Floats
    share: float
    by_key: bool

    @property
    def is_whole(self) -> bool:
        return not self.by_key and self.share >= 1.0


_Sides = tuple[_Side, _Side]


def _sides(
    below: Relation, places: tuple[PlanColumn, PlanColumn], members: tuple[Member, Member] | None = None
) -> _Sides | None:
    """Return the sampled rows of both sides. members: the keys by which they were chosen."""
    found = []
    for number, place in enumerate(places):
        member = members[number] if members is not None else None
        told = below.sampled(place, member.columns if member is not None else ())
        if told is None:
            return None
        base, weights = told
        statistics = base.statistics
        if member is None:
            sample = statistics.sample
            assert sample is not None
            share = min(1.0, sample.rows / max(1, statistics.rows))
        else:
            counted = member.counted
            assert counted is not None
            assert counted.sample is not None
            sample, share = counted.sample.rows, counted.sample.share
        found.append(_Side(statistics, sample, weights, share, member is not None))
    return found[0], found[1]


@dataclass(frozen=True, slots=True, eq=False)
class _EqualKeys:
    """Columns that are equal in all pairs, as keys of both sides."""

    members: tuple[Member, Member]

    @classmethod
    def of(cls, sides: _Sides, keys: Pairs) -> _EqualKeys | None:
        """Return the keys of two sides; None without any, and where they have no line in common."""
        ordered = sorted(dict.fromkeys(keys), key=lambda pair: key_order(pair[0].name, pair[1].name))
        members = (
            Member(sides[0].statistics, tuple(a.name for a, _ in ordered)),
            Member(sides[1].statistics, tuple(b.name for _, b in ordered)),
        )
        for member, side in zip(members, sides, strict=True):
            if not all(name in side.sample.columns for name in member.columns):
                return None
        return cls(members) if ordered and members[0].types == members[1].types else None

    def numbers(self, sides: _Sides, *, popular: bool | None = None, below: float = 1.0) -> tuple[Places, Places]:
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


# ---------------------------------------------------------------------- counting


@dataclass(frozen=True, slots=True, eq=False)
class _Values:
    """A comparison and the values of its sides."""

    comparison: Comparison
    sides: tuple[Numbered, Numbered]

    def holds(self, left: Places, right: Places) -> Bools:
        """Return for which pairs of rows it holds; none of their values is NULL."""
        reference = self.sides[0].ordered()
        ranks = ranks_among(reference, self.sides[1])
        mine = 2 * reference.codes[left] + 1
        found: Bools = OPERATORS[self.comparison.kind](mine, ranks[self.sides[1].codes[right]])
        return found


@dataclass(frozen=True, slots=True)
class Counted:
    """Sums of weights of pairs of rows: of all, of those that are kept.

    rows, squares: of each side, sums of the weights of the pairs in which each row is, and of their squares. whole:
    whether these are all pairs there are.
    """

    pairs: float
    kept: float
    rows: tuple[float, float]
    squares: tuple[float, float]
    whole: bool

    def times(self, factor: float) -> Counted:
        """Return the same with all weights multiplied."""
        rows, squares = (
            (part[0] * scale, part[1] * scale) for part, scale in ((self.rows, factor), (self.squares, factor * factor))
        )
        return Counted(self.pairs * factor, self.kept * factor, rows, squares, self.whole)

    def __add__(self, other: Counted) -> Counted:
        """Return both together."""
        rows, squares = (
            (mine[0] + theirs[0], mine[1] + theirs[1])
            for mine, theirs in ((self.rows, other.rows), (self.squares, other.squares))
        )
        return Counted(self.pairs + other.pairs, self.kept + other.kept, rows, squares, self.whole and other.whole)

    @property
    def told(self) -> float:
        """Return how many rows of a side tell it: as many as would tell as much if all counted alike (Kish, 1965)."""
        return min(
            rows * rows / squares if squares > 0.0 else 0.0
            for rows, squares in zip(self.rows, self.squares, strict=True)
        )

    def share(self, prior: float) -> float:
        """Return the share that is kept. prior: what it is expected to be, which counts as PRIOR_ROWS rows."""
        if self.pairs <= 0.0:
            return prior
        kept = min(1.0, max(0.0, self.kept / self.pairs))
        return kept if self.whole else (kept * self.told + PRIOR_ROWS * prior) / (self.told + PRIOR_ROWS)


def _count(sides: _Sides, keys: tuple[Places, Places] | None, compared: Sequence[_Values], *, negated: bool) -> Counted:
    """Count pairs of rows, each weighing as much as its rows. keys: numbers of equal keys, negative for none."""
    meets = _Meeting.of(sides, keys)
    there = meets.where(*(~np.logical_or.reduce([one.sides[n].nulls for one in compared]) for n in (0, 1)))
    kept = _kept(there, compared)
    each = meets.each()
    return Counted(
        meets.pairs,
        there.pairs - kept if negated else kept,
        (float(each[0].sum()), float(each[1].sum())),
        (float((each[0] * each[0]).sum()), float((each[1] * each[1]).sum())),
        all(side.is_whole for side in sides),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Meeting:
    """Rows of two sides that meet if their keys are equal.

    weights, keys: of each side, shape (its sample's rows,); rows without weight do not count. keys: None where all
    rows meet. itself: what a pair counts of which both rows are the same sampled row; 1 if there is no such pair.
    """

    weights: tuple[Floats, Floats]
    keys: tuple[Places, Places] | None
    itself: float

    @classmethod
    def of(cls, sides: _Sides, keys: tuple[Places, Places] | None) -> _Meeting:
        """Let rows meet. A row is sampled together with itself more often than two rows are by 1 / share."""
        same = sides[0].sample is sides[1].sample and not sides[0].by_key
        found = cls((sides[0].weights, sides[1].weights), keys, sides[0].share if same else 1.0)
        return found.where(*(key >= 0 for key in keys)) if keys is not None else found

    def where(self, left: Bools, right: Bools) -> _Meeting:
        """Return the pairs of some rows of each side."""
        weights = np.where(left, self.weights[0], 0.0), np.where(right, self.weights[1], 0.0)
        return _Meeting(weights, self.keys, self.itself)

    @property
    def alike(self) -> Places:
        """Return the rows that meet themselves, if that is told."""
        if self.itself >= 1.0:
            return np.empty(0, dtype=np.intp)
        both = (self.weights[0] > 0.0) & (self.weights[1] > 0.0)
        return np.flatnonzero(both & (self.keys[0] == self.keys[1]) if self.keys is not None else both)

    def each(self) -> tuple[Floats, Floats]:
        """Return the weights of the pairs in which each row is, of both sides."""
        if self.keys is None:
            found = [mine * float(other.sum()) for mine, other in (self.weights, self.weights[::-1])]
        else:
            keys = [np.maximum(key, 0) for key in self.keys]
            size = max(int(key.max(initial=0)) for key in keys) + 1
            held = [np.bincount(key, own, minlength=size) for key, own in zip(keys, self.weights, strict=True)]
            found = [self.weights[n] * held[1 - n][keys[n]] for n in (0, 1)]
        alike = self.alike
        less = (1.0 - self.itself) * self.weights[0][alike] * self.weights[1][alike]
        for pairs in found:
            pairs[alike] -= less
        return found[0], found[1]

    @property
    def pairs(self) -> float:
        """Return the weight of all pairs."""
        return float(self.each()[0].sum())


def _kept(meets: _Meeting, compared: Sequence[_Values]) -> float:
    """Return the weight of the pairs for which all comparisons hold; no value is NULL."""
    rows = [np.flatnonzero(own) for own in meets.weights]
    if not rows[0].size or not rows[1].size:
        return 0.0
    side, leading = _leading(compared, rows)
    ordered, other = rows[side], rows[1 - side]
    size, codes, low, high = _bounds(side, leading, ordered, other)
    weights = meets.weights[side][ordered]
    if meets.keys is None:
        order = np.argsort(codes, kind="stable")
        ends = np.append(0, np.cumsum(np.bincount(codes, minlength=size)))
        first, last = ends[low], ends[high]
    else:
        places = meets.keys[side][ordered] * (size + 1) + codes
        order = np.argsort(places, kind="stable")
        starts = meets.keys[1 - side][other] * (size + 1)
        first, last = (np.searchsorted(places[order], starts + bound) for bound in (low, high))
    sums = np.append(0.0, np.cumsum(weights[order]))
    of_others = meets.weights[1 - side][other]
    each = of_others * (sums[last] - sums[first])
    whole, rest = float(each.sum()), [one for one in compared if one not in leading]
    if whole <= 0.0:
        return 0.0
    if not rest:
        alike = meets.alike
        if alike.size:
            holds = np.logical_and.reduce([one.holds(alike, alike) for one in compared])
            whole -= (1.0 - meets.itself) * float((meets.weights[0] * meets.weights[1])[alike[holds]].sum())
        return max(0.0, whole)
    if int((last - first).sum()) <= DRAWN_PAIRS:
        theirs = np.repeat(np.arange(other.size), last - first)
        mine = (
            np.arange(theirs.size) - np.repeat(np.cumsum(last - first) - (last - first), last - first) + first[theirs]
        )
        counts = of_others[theirs] * weights[order[mine]]
    else:
        theirs, mine = _drawn(each, of_others, sums, first, last)
        counts = np.full(theirs.size, whole / theirs.size)
    pairs = other[theirs], ordered[order[mine]]
    left, right = pairs if side else pairs[::-1]
    holds = np.logical_and.reduce([one.holds(left, right) for one in rest])
    if meets.itself < 1.0:
        counts = np.where(left == right, counts * meets.itself, counts)
    return float(counts[holds].sum())


def _leading(compared: Sequence[_Values], rows: Sequence[Places]) -> tuple[int, list[_Values]]:
    """Return by whose values rows are ordered: a side, and the comparisons of one of its expressions.

    That is the expression with most bounds. What decides between several does not depend on the order of comparisons.
    """
    found: dict[tuple[int, str], list[_Values]] = {}
    for one in compared:
        if one.comparison.kind is not exp.NEQ:
            for side, expression in enumerate(one.comparison.sides):
                found.setdefault((side, expression.sql()), []).append(one)
    if not found:
        return 0, []

    def rank(asked: tuple[int, str]) -> tuple[int, str, int]:
        bounds = sum(2 if one.comparison.kind is exp.EQ else 1 for one in found[asked])
        return -bounds, asked[1], -rows[asked[0]].size

    best = min(found, key=rank)
    return best[0], found[best]


def _bounds(
    side: int, leading: Sequence[_Values], ordered: Places, other: Places
) -> tuple[int, Places, Places, Places]:
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
