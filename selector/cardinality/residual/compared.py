"""Joint selectivity of comparisons on the pairs of two relations' rows.

Without equal keys, every sampled row is paired with every other. With equal keys, only sampled rows of the same key
are; if neither sample has all rows, samples by key have all rows of a key, so that row samples are used for popular
keys only. In a self-join, a sampled row is always paired with itself, but with other rows only if they were sampled.
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

NEAREST = 4  # sampled values on each side of an unsampled constant that stand for it
MANY_ROWS = 400  # effective rows of samples by key, from which on row samples are not used


@dataclass(frozen=True, slots=True)
class Compared:
    """Conjunction of comparisons of two relations' rows.

    places: a column of each side, which identifies its scan.
    texts: conditions that the comparisons come from.
    negated: not all comparisons hold, and none of them is NULL.
    keys: pairs of columns of the two scans that are equal in all pairs of rows.
    """

    comparisons: tuple[Comparison, ...]
    places: tuple[PlanColumn, PlanColumn]
    texts: tuple[str, ...]
    negated: bool = False
    keys: Pairs = ()

    def __and__(self, other: Compared) -> Compared:
        """Return the conjunction of both, which compare the same two relations in any order."""
        same = (self.places[0].table, self.places[0].scan) == (other.places[0].table, other.places[0].scan)
        more = other.comparisons if same else tuple(one.mirrored for one in other.comparisons)
        return replace(self, comparisons=(*self.comparisons, *more), texts=(*self.texts, *other.texts))

    def share(self, below: Relation, *, dialect: str) -> float | None:
        """Return the selectivity; None: no samples, or not evaluable. below: the join of both relations."""
        try:
            share = _Samples(below, self._complement, dialect).share()
        except NotEvaluable:
            return None
        return share.held * share.present if share is not None else None

    @property
    def _complement(self) -> Compared:
        """Same condition, with a single ``<>`` as a negated ``=``, whose values are adjacent when sorted."""
        if len(self.comparisons) == 1 and self.comparisons[0].kind is exp.NEQ and not self.negated:
            return replace(self, comparisons=(Comparison(exp.EQ, self.comparisons[0].sides),), negated=True)
        return self


@dataclass(frozen=True, slots=True)
class _Samples:
    """Estimator of comparisons on samples of both relations."""

    below: Relation
    compared: Compared
    dialect: str

    def share(self) -> Share | None:
        """Return the selectivity on pairs; None: no samples."""
        sides = self._sides()
        if sides is None:
            return None
        values = self._values(sides)
        equal = EqualKeys.of(sides, self.compared.keys)
        every = Meeting.of(sides)
        some = every.thinned()
        held = self._by_form()
        if len(values) > 1:
            selectivities = [count_pairs(some, (one,)).share(Share(RANGE_SHARE, 1.0)).held for one in values]
            held = _together(selectivities, negated=self.compared.negated)
        present = math.prod(self._present(side, number) for number, side in enumerate(sides))
        prior = self._count(every if equal is None else some, values).share(Share(held, present))
        return prior if equal is None else self._with_equal_keys(sides, equal, values).share(prior)

    def _present(self, side: Side, number: int) -> float:
        """Return the share of a side's rows without NULL in a compared column, by column statistics."""
        place, statistics = self.compared.places[number], side.base.statistics
        nulls = 0
        for name in self._names(number):
            domain = side.base.allowed(replace(place, name=name))
            if domain is None or domain.nulls:
                nulls = max(nulls, statistics.columns[name].nulls)
        return 1.0 - min(1.0, nulls / max(1, statistics.rows))

    def _by_form(self) -> float:
        """Return the selectivity of the comparisons by their form."""
        forms: dict[type[exp.Expr], float] = {exp.EQ: EQUAL_SHARE, exp.NEQ: 1.0 - EQUAL_SHARE}
        selectivities = [forms.get(one.kind, RANGE_SHARE) for one in self.compared.comparisons]
        return _together(selectivities, negated=self.compared.negated)

    def _with_equal_keys(self, sides: Sides, equal: EqualKeys, values: Sequence[Values]) -> Counted:
        chosen = None if any(side.is_whole for side in sides) else self._sides(equal.members)
        if chosen is not None:
            share = min(side.share for side in chosen)
            meeting = Meeting.of(chosen, equal.numbers(chosen, popular=False, below=share))
            by_key = self._count(meeting, self._values(chosen)).times(1.0 / share)
            if (
                by_key.effective_rows >= MANY_ROWS
                or by_key.effective_rows
                >= self._count(Meeting.of(sides, equal.numbers(sides, popular=False)), values).effective_rows
            ):
                popular = self._count(Meeting.of(sides, equal.numbers(sides, popular=True)), values)
                return by_key + popular.times(1.0 / (sides[0].share * sides[1].share))
        return self._count(Meeting.of(sides, equal.numbers(sides)), values)

    def _count(self, meets: Meeting, values: Sequence[Values]) -> Counted:
        return count_pairs(meets, values, negated=self.compared.negated)

    def _values(self, sides: Sides) -> list[Values]:
        """Return the values of all comparisons. Raises NotEvaluable."""
        values = []
        for comparison in self.compared.comparisons:
            lhs, rhs = (
                numbered(expression, side.sample, side.base.statistics, self.dialect)
                for expression, side in zip(comparison.sides, sides, strict=True)
            )
            if lhs is None or rhs is None:
                raise NotEvaluable("a side of a comparison")
            values.append(Values(comparison, (lhs, rhs)))
        return values

    def _sides(self, members: tuple[Member, Member] | None = None) -> Sides | None:
        """Return the sampled rows of both sides; None without any. members: keys of the samples; None: row samples."""
        sides = []
        for number, place in enumerate(self.compared.places):
            member = members[number] if members is not None else None
            sampled = self.below.sampled(place, member.columns if member is not None else ())
            if sampled is None:
                return None
            statistics, weights = sampled[0].statistics, sampled[1]
            by_key = member.counted.sample if member is not None and member.counted is not None else None
            sample = by_key.rows if by_key is not None else statistics.sample
            assert sample is not None
            share = by_key.share if by_key is not None else min(1.0, sample.rows / max(1, statistics.rows))
            side = Side(sampled[0], sample, weights, share, by_key is not None)
            sides.append(side if side.is_whole else side.filled_up(self._within(sampled[0], sample, number)))
        return sides[0], sides[1]

    def _within(self, base: Scanned, sample: RowSample, number: int) -> Bools:
        """Return True for each sampled row that survives the filters on the compared columns alone.

        If these keep no sampled value, the rows with the nearest values survive.
        """
        survives = np.ones(sample.rows, dtype=np.bool_)
        for name in self._names(number) & set(sample.columns):
            domain, column = base.allowed(replace(self.compared.places[number], name=name)), sample.columns[name]
            if domain is None:
                continue
            places = places_of(column.values)
            is_held = domain.holds_each(places)
            if domain.cuts and not is_held.any():
                at = int(np.searchsorted(places, domain.cuts[0][0]))
                is_held[max(0, at - NEAREST) : at + NEAREST] = True
            survives &= np.append(is_held, domain.nulls)[column.codes]
        return survives

    def _names(self, number: int) -> set[str]:
        """Return the names of the compared columns of a side."""
        sides = [one.sides[number] for one in self.compared.comparisons]
        lower = {column.name.lower() for side in sides for column in side.find_all(exp.Column)}
        base = self.below.base(self.compared.places[number])
        return {name for name in base.statistics.columns if name.lower() in lower} if base is not None else set()


def _together(shares: Sequence[float], *, negated: bool) -> float:
    """Return the joint selectivity of several comparisons, by exponential back-off."""
    selectivity = math.prod(math.pow(share, 0.5**place) for place, share in enumerate(sorted(shares)))
    return 1.0 - selectivity if negated else selectivity
