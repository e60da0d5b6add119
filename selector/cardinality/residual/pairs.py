"""Which share of the pairs of two relations' rows comparisons keep, all of them together.

The rows of one side are ordered by their key and by the value that most comparisons are about; then those that a row of
the other side meets, and those among them for which these comparisons hold, stand together, and sums of weights count
them. What other comparisons keep of these pairs is counted on pairs drawn from them.

Without equal keys every sampled row meets every other. With equal keys only sampled rows of the same key meet; where
neither sample has all rows, rows chosen by their key are complete, so that the others are only asked about popular
keys. In a table that is joined with itself a sampled row always meets itself, and others only if they were sampled.

It is long because pairs are counted without making them, for equal keys of any number and any kind of comparison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from selector.cardinality.join_messages import Floats
from selector.cardinality.keys.classes import Bools, Member, Places, sampled_keys
from selector.cardinality.predicates.domains import places_of
from selector.cardinality.predicates.selectivity import EQUAL_SHARE, RANGE_SHARE
from selector.cardinality.predicates.vectors import OPERATORS, NotEvaluable
from selector.cardinality.relation import Relation, Scanned
from selector.cardinality.residual.comparisons import Comparison, Numbered, numbered, ranks_among
from selector.join_keys import Bins, key_order
from selector.plan import PlanColumn
from selector.row_sample import RowSample

PRIOR_ROWS = 0.5  # so many sampled rows is what the form of comparisons is worth
MANY_ROWS = 400  # of rows chosen by their key that meet others, from which on no others are asked
FEW_ROWS = 500  # of each side, which tell a prior
DRAWN_PAIRS = 1 << 14  # on which further comparisons are counted, at most
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
            found = _Samples(below, self._complement, dialect).share()
        except NotEvaluable:
            return None
        return found.held * found.present if found is not None else None

    @property
    def _complement(self) -> Compared:
        """Return the same, with ``<>`` alone as what is not equal: equal values stand together."""
        if len(self.comparisons) == 1 and self.comparisons[0].kind is exp.NEQ and not self.negated:
            return replace(self, comparisons=(Comparison(exp.EQ, self.comparisons[0].sides),), negated=True)
        return self


@dataclass(frozen=True, slots=True)
class _Samples:
    """What samples of both relations tell of comparisons."""

    below: Relation
    compared: Compared
    dialect: str

    def share(self) -> Share | None:
        """Return the share of pairs that is kept; None without samples."""
        sides = self._sides()
        if sides is None:
            return None
        values = self._values(sides)
        equal = _EqualKeys.of(sides, self.compared.keys)
        every = _Meeting.of(sides)
        some = every.thinned()
        held = self._by_form()
        if len(values) > 1:
            each = [_count(some, (one,)).share(Share(RANGE_SHARE, 1.0)).held for one in values]
            held = _together(each, negated=self.compared.negated)
        present = math.prod(self._present(side, number) for number, side in enumerate(sides))
        prior = self._count(every if equal is None else some, values).share(Share(held, present))
        return prior if equal is None else self._with_equal_keys(sides, every, equal, values).share(prior)

    def _present(self, side: _Side, number: int) -> float:
        """Return the share of a side's rows of which no compared column is NULL, as far as no sample is needed."""
        place, statistics = self.compared.places[number], side.base.statistics
        nulls = 0
        for name in self._names(number):
            domain = side.base.allowed(replace(place, name=name))
            if domain is None or domain.nulls:
                nulls = max(nulls, statistics.columns[name].nulls)
        return 1.0 - min(1.0, nulls / max(1, statistics.rows))

    def _by_form(self) -> float:
        """Return the share that comparisons keep by their form."""
        forms: dict[type[exp.Expr], float] = {exp.EQ: EQUAL_SHARE, exp.NEQ: 1.0 - EQUAL_SHARE}
        each = [forms.get(one.kind, RANGE_SHARE) for one in self.compared.comparisons]
        return _together(each, negated=self.compared.negated)

    def _with_equal_keys(self, sides: _Sides, every: _Meeting, equal: _EqualKeys, values: Sequence[_Values]) -> Counted:
        chosen = None if any(side.is_whole for side in sides) else self._sides(equal.members)
        if chosen is not None:
            share = min(side.share for side in chosen)
            there = _Meeting.of(chosen, equal.numbers(chosen, popular=False, below=share))
            by_key = self._count(there, self._values(chosen)).times(1.0 / share)
            if (
                by_key.told >= MANY_ROWS
                or by_key.told >= self._count(_Meeting.of(sides, equal.numbers(sides, popular=False)), values).told
            ):
                popular = self._count(_Meeting.of(sides, equal.numbers(sides, popular=True)), values)
                return by_key + popular.times(1.0 / (sides[0].share * sides[1].share))
        return self._count(_Meeting.of(sides, equal.numbers(sides)), values)

    def _count(self, meets: _Meeting, values: Sequence[_Values]) -> Counted:
        return _count(meets, values, negated=self.compared.negated)

    def _values(self, sides: _Sides) -> list[_Values]:
        """Return the values of all comparisons. Raises NotEvaluable where they cannot be told."""
        found = []
        for comparison in self.compared.comparisons:
            left, right = (
                numbered(expression, side.sample, side.base.statistics, self.dialect)
                for expression, side in zip(comparison.sides, sides, strict=True)
            )
            if left is None or right is None:
                raise NotEvaluable("a side of a comparison")
            found.append(_Values(comparison, (left, right)))
        return found

    def _sides(self, members: tuple[Member, Member] | None = None) -> _Sides | None:
        """Return the sampled rows of both sides; None without any. members: the keys by which they were chosen."""
        found = []
        for number, place in enumerate(self.compared.places):
            member = members[number] if members is not None else None
            told = self.below.sampled(place, member.columns if member is not None else ())
            if told is None:
                return None
            statistics, weights = told[0].statistics, told[1]
            by_key = member.counted.sample if member is not None and member.counted is not None else None
            sample = by_key.rows if by_key is not None else statistics.sample
            assert sample is not None
            share = by_key.share if by_key is not None else min(1.0, sample.rows / max(1, statistics.rows))
            side = _Side(told[0], sample, weights, share, by_key is not None)
            found.append(side if side.is_whole else side.filled_up(self._within(told[0], sample, number)))
        return found[0], found[1]

    def _within(self, base: Scanned, sample: RowSample, number: int) -> Bools:
        """Return the sampled rows that filters on the compared columns keep, whatever other filters do."""
        found = np.ones(sample.rows, dtype=np.bool_)
        for name in self._names(number) & set(sample.columns):
            domain, column = base.allowed(replace(self.compared.places[number], name=name)), sample.columns[name]
            if domain is not None:
                found &= np.append(domain.holds_each(places_of(column.values)), domain.nulls)[column.codes]
        return found

    def _names(self, number: int) -> set[str]:
        """Return the compared columns of a side."""
        sides = [one.sides[number] for one in self.compared.comparisons]
        lower = {column.name.lower() for side in sides for column in side.find_all(exp.Column)}
        base = self.below.base(self.compared.places[number])
        return {name for name in base.statistics.columns if name.lower() in lower} if base is not None else set()


def _together(shares: Sequence[float], *, negated: bool) -> float:
    """Return the share that several comparisons keep: the first counts whole, others less and less."""
    kept = math.prod(math.pow(share, 0.5**place) for place, share in enumerate(sorted(shares)))
    return 1.0 - kept if negated else kept


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
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

    def filled_up(self, others: Bools) -> _Side:
        """Return the same, of which other rows count together as PRIOR_ROWS where filters keep only few."""
        kept = self.weights > 0.0
        rows, more = int(kept.sum()), _every(np.flatnonzero(others & ~kept))
        if rows >= FEW_ROWS or not more.size:
            return self
        weights, guessed = self.weights.copy(), np.zeros(kept.size, dtype=np.bool_)
        weights[more] = PRIOR_ROWS / more.size * (float(weights.sum()) / rows if rows else 1.0)
        guessed[more] = True
        return replace(self, weights=weights, guessed=guessed)

    @property
    def is_whole(self) -> bool:
        return not self.by_key and self.share >= 1.0


_Sides = tuple[_Side, _Side]


@dataclass(frozen=True, slots=True, eq=False)
class _EqualKeys:
    """Columns that are equal in all pairs, as keys of both sides."""

    members: tuple[Member, Member]

    @classmethod
    def of(cls, sides: _Sides, keys: Pairs) -> _EqualKeys | None:
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
class _Meeting:
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
    def of(cls, sides: _Sides, keys: tuple[Places, Places] | None = None) -> _Meeting:
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

    def where(self, left: Bools | Places, right: Bools | Places) -> _Meeting:
        """Return some of the rows of each side."""
        return replace(
            self,
            rows=(self.rows[0][left], self.rows[1][right]),
            weights=(self.weights[0][left], self.weights[1][right]),
            keys=(self.keys[0][left], self.keys[1][right]) if self.keys is not None else None,
            guessed=(_some(self.guessed[0], left), _some(self.guessed[1], right)),
        )

    def thinned(self) -> _Meeting:
        """Return every so many rows, of which none is taken to meet itself; there are few where some are guessed."""
        left, right = (
            np.arange(rows.size) if guessed is not None else _every(np.arange(rows.size))
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


def _every(places: Places) -> Places:
    """Return FEW_ROWS of some places, spread evenly, or all if there are no more."""
    if places.size <= FEW_ROWS:
        return places
    found: Places = places[np.linspace(0, places.size - 1, FEW_ROWS).astype(np.intp)]
    return found


def _some(flags: Bools | None, rows: Bools | Places) -> Bools | None:
    return flags[rows] if flags is not None else None


def _count(meets: _Meeting, compared: Sequence[_Values], *, negated: bool = False) -> Counted:
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


def _kept(meets: _Meeting, compared: Sequence[_Values]) -> tuple[Floats, Floats]:
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
