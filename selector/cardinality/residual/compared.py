"""Which share of the pairs of two relations' rows comparisons keep, all of them together.

Without equal keys every sampled row meets every other. With equal keys only sampled rows of the same key meet; where
neither sample has all rows, rows chosen by their key are complete, so that the others are only asked about popular
keys. In a table that is joined with itself a sampled row always meets itself, and others only if they were sampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sqlglot import exp

from selector.cardinality.keys.classes import Bools, Member
from selector.cardinality.predicates.domains import places_of
from selector.cardinality.predicates.selectivity import EQUAL_SHARE, RANGE_SHARE
from selector.cardinality.predicates.vectors import NotEvaluable
from selector.cardinality.relation import Relation, Scanned
from selector.cardinality.residual.comparisons import Comparison, numbered
from selector.cardinality.residual.pairs import Counted, Meeting, Share, Values, count_pairs
from selector.cardinality.residual.sides import EqualKeys, Pairs, Side, Sides
from selector.plan import PlanColumn
from selector.row_sample import RowSample

NEAREST = 4  # values on each side of a constant that was not sampled
MANY_ROWS = 400  # of rows chosen by their key that meet others, from which on no others are asked


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
        equal = EqualKeys.of(sides, self.compared.keys)
        every = Meeting.of(sides)
        some = every.thinned()
        held = self._by_form()
        if len(values) > 1:
            each = [count_pairs(some, (one,)).share(Share(RANGE_SHARE, 1.0)).held for one in values]
            held = _together(each, negated=self.compared.negated)
        present = math.prod(self._present(side, number) for number, side in enumerate(sides))
        prior = self._count(every if equal is None else some, values).share(Share(held, present))
        return prior if equal is None else self._with_equal_keys(sides, equal, values).share(prior)

    def _present(self, side: Side, number: int) -> float:
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

    def _with_equal_keys(self, sides: Sides, equal: EqualKeys, values: Sequence[Values]) -> Counted:
        chosen = None if any(side.is_whole for side in sides) else self._sides(equal.members)
        if chosen is not None:
            share = min(side.share for side in chosen)
            there = Meeting.of(chosen, equal.numbers(chosen, popular=False, below=share))
            by_key = self._count(there, self._values(chosen)).times(1.0 / share)
            if (
                by_key.told >= MANY_ROWS
                or by_key.told >= self._count(Meeting.of(sides, equal.numbers(sides, popular=False)), values).told
            ):
                popular = self._count(Meeting.of(sides, equal.numbers(sides, popular=True)), values)
                return by_key + popular.times(1.0 / (sides[0].share * sides[1].share))
        return self._count(Meeting.of(sides, equal.numbers(sides)), values)

    def _count(self, meets: Meeting, values: Sequence[Values]) -> Counted:
        return count_pairs(meets, values, negated=self.compared.negated)

    def _values(self, sides: Sides) -> list[Values]:
        """Return the values of all comparisons. Raises NotEvaluable where they cannot be told."""
        found = []
        for comparison in self.compared.comparisons:
            left, right = (
                numbered(expression, side.sample, side.base.statistics, self.dialect)
                for expression, side in zip(comparison.sides, sides, strict=True)
            )
            if left is None or right is None:
                raise NotEvaluable("a side of a comparison")
            found.append(Values(comparison, (left, right)))
        return found

    def _sides(self, members: tuple[Member, Member] | None = None) -> Sides | None:
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
            side = Side(told[0], sample, weights, share, by_key is not None)
            found.append(side if side.is_whole else side.filled_up(self._within(told[0], sample, number)))
        return found[0], found[1]

    def _within(self, base: Scanned, sample: RowSample, number: int) -> Bools:
        """Return the sampled rows that filters on the compared columns keep, whatever other filters do.

        Where they keep no sampled value, those next to it.
        """
        found = np.ones(sample.rows, dtype=np.bool_)
        for name in self._names(number) & set(sample.columns):
            domain, column = base.allowed(replace(self.compared.places[number], name=name)), sample.columns[name]
            if domain is None:
                continue
            places = places_of(column.values)
            held = domain.holds_each(places)
            if domain.cuts and not held.any():
                at = int(np.searchsorted(places, domain.cuts[0][0]))
                held[max(0, at - NEAREST) : at + NEAREST] = True
            found &= np.append(held, domain.nulls)[column.codes]
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
