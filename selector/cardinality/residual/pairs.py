"""Selectivity of conditions on the rows of two relations, evaluated on pairs of their sampled rows.

With equal keys, only sampled rows of the same key are paired. Their prior are pairs regardless of keys, whose prior are
pairs regardless of filters, since few sampled rows may survive. In a self-join, a sampled row is always paired with
itself, but with other rows only if they were sampled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlglot import exp

from selector.cardinality.join_messages import Floats
from selector.cardinality.keys.classes import Places
from selector.cardinality.predicates.conditions import Condition
from selector.cardinality.predicates.evaluate import truth
from selector.cardinality.relation import Relation, Scanned
from selector.cardinality.residual.joined import Pair, Place, is_whole, key_codes, matches
from selector.plan import PlanColumn
from selector.row_sample import RowSample, SampleColumn

MOST_PAIRS = 1 << 14  # on which a condition is evaluated
PRIOR_ROWS = 0.5  # weight of the expected selectivity, in sampled rows
_COMPARISONS = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ, exp.NEQ)


@dataclass(frozen=True, slots=True)
class PairCondition:
    """Comparison of the rows of two scans.

    test: the condition; the name of each column says whose it is, as ``_name`` does.
    scans: a column of each scan, in the same order for all conditions on these scans.
    """

    text: str
    test: exp.Expr
    scans: tuple[PlanColumn, PlanColumn]

    @classmethod
    def of(cls, condition: Condition, columns: Sequence[PlanColumn]) -> PairCondition | None:
        """Return a comparison of two scans; None for any other condition. columns: that it reads."""
        sides = sides_of(condition.expression)
        if sides is None:
            return None
        scans = [_read_by(side, columns, is_right=bool(number)) for number, side in enumerate(sides)]
        lhs, rhs = scans
        if lhs is None or rhs is None or _place(lhs) == _place(rhs):
            return None
        scan_of = {id(column): scan for side, scan in zip(sides, (lhs, rhs), strict=True) for column in _columns(side)}
        test = condition.expression.copy()
        for column, copied in zip(_columns([condition.expression]), _columns([test]), strict=True):
            scan = scan_of[id(column)]
            copied.replace(exp.column(exp.to_identifier(_name(scan, column.name), quoted=True)))
        first, second = sorted((lhs, rhs), key=lambda column: (column.table or "", column.scan or 0))
        return cls(condition.text, test, (first, second))


def sides_of(expression: exp.Expr) -> tuple[list[exp.Expr], list[exp.Expr]] | None:
    """Return the expressions on both sides of a comparison; None for any other condition."""
    inner = expression.this.unnest() if isinstance(expression, exp.Not) else expression
    if isinstance(inner, exp.Between):
        return [inner.this], [inner.args["low"], inner.args["high"]]
    return ([inner.this], [inner.expression]) if isinstance(inner, _COMPARISONS) else None


def _columns(side: Sequence[exp.Expr]) -> list[exp.Column]:
    return [column for expression in side for column in expression.find_all(exp.Column)]


def _read_by(side: Sequence[exp.Expr], columns: Sequence[PlanColumn], *, is_right: bool) -> PlanColumn | None:
    """Return a column of the only scan that one side of a comparison reads; None if there are several.

    If both sides read columns of the same name, they take turns.
    """
    names = [column.name.lower() for column in _columns(side)]
    own = [column for column in columns if column.name.lower() in names]
    if len({_place(column) for column in own}) == 1:
        return own[0]
    named = [column for column in columns if names and column.name.lower() == names[0]]
    return named[min(int(is_right), len(named) - 1)] if named else None


def _place(column: PlanColumn) -> Place:
    return column.table, column.scan


def _name(scan: PlanColumn, name: str) -> str:
    return f"{scan.table} {scan.scan} {name.lower()}"


def pair_selectivity(
    conditions: Sequence[PairCondition], below: Relation, equal: Sequence[Pair], prior: float, *, dialect: str
) -> float | None:
    """Return the selectivity of conditions on the same two scans, all together; None: no samples, or not evaluable.

    below: the join of both relations. equal: pairs of columns that are equal. prior: selectivity by the form.
    """
    sampled = [below.sampled(scan) for scan in conditions[0].scans]
    if sampled[0] is None or sampled[1] is None:
        return None
    bases = sampled[0][0], sampled[1][0]
    test = exp.and_(*(one.test for one in conditions))
    samples = _Samples(bases, conditions[0].scans, test, dialect)
    weights = sampled[0][1], sampled[1][1]
    selectivity: float | None = prior
    keys = [
        (a.name, b.name) if below.base(a) is bases[0] else (b.name, a.name)
        for a, b in equal
        if {below.base(a), below.base(b)} == set(bases)
    ]
    if not all(is_whole(base) for base in bases):
        every = np.ones(weights[0].size), np.ones(weights[1].size)
        selectivity = samples.selectivity(every, [], prior)
        if keys and selectivity is not None:
            selectivity = samples.selectivity(weights, [], selectivity)
    return samples.selectivity(weights, keys, selectivity) if selectivity is not None else None


@dataclass(frozen=True, slots=True)
class _Samples:
    """Samples of two scans, and a condition on both."""

    bases: tuple[Scanned, Scanned]
    scans: tuple[PlanColumn, PlanColumn]
    test: exp.Expr
    dialect: str

    def selectivity(
        self, weights: tuple[Floats, Floats], keys: Sequence[tuple[str, str]], prior: float
    ) -> float | None:
        """Return the selectivity on the pairs of sampled rows, with a prior; None: not evaluable.

        weights: of the sampled rows of both sides. keys: columns of both sides that are equal in all pairs.
        """
        lhs, rhs = (base.statistics.sample for base in self.bases)
        if lhs is None or rhs is None:
            return None
        rows = np.flatnonzero(weights[0]), np.flatnonzero(weights[1])
        codes: tuple[Places, Places] | None = np.zeros(rows[0].size, np.intp), np.zeros(rows[1].size, np.intp)
        if keys:
            codes = key_codes([(lhs, rows[0], a) for a, _ in keys], [(rhs, rows[1], b) for _, b in keys])
        if codes is None:
            return None
        left, right, pairs = matches(*codes, MOST_PAIRS)
        if not pairs:
            return prior
        places = rows[0][left], rows[1][right]
        holds = truth(self.test, self._paired((lhs, rhs), places), self._types(), dialect=self.dialect)
        if holds is None:
            return None
        weight = weights[0][places[0]] * weights[1][places[1]]
        if lhs is rhs:
            weight = np.where(places[0] == places[1], weight * lhs.rows / max(1, self.bases[0].statistics.rows), weight)
        share = float(weight[holds].sum() / weight.sum())
        if all(is_whole(base) for base in self.bases) and pairs <= MOST_PAIRS:
            return share
        effective_rows = min(_effective_rows(weight, side) for side in (left, right))
        return (share * effective_rows + PRIOR_ROWS * prior) / (effective_rows + PRIOR_ROWS)

    def _paired(self, samples: tuple[RowSample, RowSample], places: tuple[Places, Places]) -> RowSample:
        """Return pairs of sampled rows as one sample with the columns of the condition."""
        names = {column.name for column in self.test.find_all(exp.Column)}
        columns = {}
        for scan, sample, rows in zip(self.scans, samples, places, strict=True):
            for name, column in sample.columns.items():
                if _name(scan, name) in names:
                    columns[_name(scan, name)] = SampleColumn(column.packed, column.codes[rows])
        return RowSample(int(places[0].size), 1.0, columns)

    def _types(self) -> Mapping[str, str]:
        return {
            _name(scan, name): column.data_type
            for scan, base in zip(self.scans, self.bases, strict=True)
            for name, column in base.statistics.columns.items()
        }


def _effective_rows(weight: Floats, rows: Places) -> float:
    """Return the effective sample size: equally weighted rows with the same variance (Kish, "Survey Sampling", 1965).

    weight: of each pair. rows: of one side in each pair.
    """
    of_rows = np.bincount(rows, weight)
    return float(of_rows.sum() ** 2 / math.fsum(of_rows * of_rows))
