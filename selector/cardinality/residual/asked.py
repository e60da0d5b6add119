"""Conditions on aggregates as plans print them, and for which sampled rows they hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from selector.cardinality.keys.classes import Bools, Places
from selector.cardinality.predicates.conditions import Condition, parsed
from selector.cardinality.predicates.evaluate import truth
from selector.cardinality.predicates.selectivity import RANGE_SHARE
from selector.cardinality.relation import Scanned
from selector.cardinality.residual.measured import Measure
from selector.cardinality.residual.traced import Tracer, canonical
from selector.plan import Operator, PlanNode
from selector.row_sample import RowSample, SampleColumn

PRIOR_ROWS = 0.5  # so many sampled rows is what a guess is worth

# The share that a condition on aggregates keeps, by it and what is expected without samples; None for any other.
Measured = Callable[[Condition, float], float | None]


@dataclass(frozen=True, slots=True)
class Asked:
    """A condition on aggregates of one grouping. test: it, with columns ``aggregate 0`` and so on in their places.

    calls: the aggregates. spelled: the condition with them. columns: of tables that it names, in lower case.
    passed: a condition of the same form that filters asked of the groups before; those that fail it meet no row.
    """

    grouping: PlanNode
    calls: tuple[exp.Expr, ...]
    test: exp.Expr
    spelled: exp.Expr
    columns: frozenset[str]
    passed: exp.Expr | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads conditions of one plan."""

    tracer: Tracer
    dialect: str

    def spelled(self, predicates: Sequence[str], node: PlanNode) -> list[str]:
        """Return predicates (SQL texts) of a node with the aggregates that computed columns in them are."""
        found = []
        for text in predicates:
            for condition in parsed(text, self.dialect) or ():
                asked = self.read(condition, node)
                found.append(condition.text if asked is None else asked.spelled.sql(dialect=self.dialect))
        return found or list(predicates)

    def read(self, condition: Condition, node: PlanNode) -> Asked | None:
        """Read a condition: aggregates in it, and computed columns, become columns of their own."""
        tables = {column.name.lower() for column in node.columns if column.table is not None}
        tables |= {column.name.lower() for child in node.children for column in child.columns if column.table}
        groupings: list[PlanNode] = []
        unknown = False

        def meant(part: exp.Expr) -> exp.Expr:
            nonlocal unknown
            if not isinstance(part, exp.Column) or part.name.lower() in tables or part.find_ancestor(exp.AggFunc):
                return part
            found = [traced for child in node.children if (traced := self.tracer.named(part.name, child)) is not None]
            if len(found) != 1:
                unknown = True
                return part
            groupings.append(found[0].grouping)
            return exp.paren(found[0].expression.copy())

        expression = canonical(condition.expression)
        if expression.find(exp.Window, exp.Query):
            return None
        test = expression.transform(meant)
        if unknown or not test.find(exp.AggFunc):
            return None
        if not groupings:
            only = [one for child in node.children if (one := self.tracer.grouping(child)) is not None]
            groupings = only if len(only) == 1 else []
        if not groupings or any(one is not groupings[0] for one in groupings):
            return None
        return self._numbered(groupings[0], test)

    def _numbered(self, grouping: PlanNode, spelled: exp.Expr, passed: exp.Expr | None = None) -> Asked:
        """Put columns in the places of aggregates. passed: a condition that groups met before."""
        calls: dict[str, exp.Expr] = {}

        def column(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.AggFunc):
                return part
            text = part.sql(dialect=self.dialect)
            calls.setdefault(text, part.copy())
            return exp.column(exp.to_identifier(f"aggregate {list(calls).index(text)}", quoted=True))

        test = spelled.transform(column)
        before = passed.transform(column) if passed is not None else None
        names = {column.name.lower() for column in test.find_all(exp.Column)}
        own = frozenset(name for name in names if not name.startswith("aggregate "))
        return Asked(grouping, tuple(calls.values()), test, spelled, own, before)

    def with_passed(self, asked: Asked, node: PlanNode) -> Asked:
        """Return a condition with those on the same aggregates that filters below a join ask of the groups before."""
        found: list[exp.Expr] = []
        while node is not asked.grouping:
            if node.operator is Operator.FILTER:
                for text in node.predicates:
                    before = [self.read(one, node) for one in parsed(text, self.dialect) or ()]
                    found += [one.spelled for one in before if one is not None and not one.columns]
            below = [child for child in node.children if self.tracer.grouping(child) is asked.grouping]
            if len(below) != 1:
                break
            node = below[0]
        return self._numbered(asked.grouping, asked.spelled, exp.and_(*found)) if found else asked


def measured_together(
    conjuncts: Sequence[Condition | str],
    measured: Measured | None,
    expected: Callable[[Condition], float] | None,
    dialect: str,
) -> tuple[list[tuple[Condition, float]], list[Condition | str]]:
    """Answer conditions on aggregates, all at once if that can be. Returns them with what they keep, and the others.

    expected: what a condition keeps as far as statistics of groups tell.
    """
    read = [one for one in conjuncts if isinstance(one, Condition)]
    if measured is None or not read:
        return [], list(conjuncts)

    def prior(*parts: Condition) -> float:
        return math.prod(map(expected, parts)) if expected is not None else RANGE_SHARE

    if len(read) > 1:
        every = Condition(exp.and_(*(one.expression for one in read)), frozenset(), dialect)
        kept = measured(every, prior(*read))
        if kept is not None:
            return [(every, kept)], [one for one in conjuncts if isinstance(one, str)]
    found = [(one, kept) for one in read if (kept := measured(one, prior(one))) is not None]
    return found, [one for one in conjuncts if not any(one is other for other, _ in found)]


def answers(
    asked: Asked,
    test: exp.Expr,
    here: Scanned,
    sample: RowSample,
    rows: Places,
    measures: Sequence[Measure],
    *,
    dialect: str,
) -> Bools | None:
    """Return for which rows, each with its aggregates, a condition holds; None where that cannot be told."""
    types = {name: column.data_type for name, column in here.statistics.columns.items()}
    columns = {
        name: SampleColumn(column.packed, column.codes[rows])
        for name, column in sample.columns.items()
        if name.lower() in asked.columns
    }
    if len(columns) < len(asked.columns):
        return None
    for number, measure in enumerate(measures):
        columns[f"aggregate {number}"] = SampleColumn.of(measure.values, measure.nulls)
        types[f"aggregate {number}"] = measure.data_type
    return truth(test, RowSample(int(rows.size), 1.0, columns), types, dialect=dialect)


def with_prior(kept: float, rows: float, prior: float = RANGE_SHARE) -> float:
    """Return a share that so many rows, or keys, tell: none of them that is kept does not mean that there is none.

    The prior is a gamma distribution, ``PRIOR_ROWS`` of its mean being worth one row that is kept; once any is, no
    prior is worth more than all rows together. What is returned is the median, which lies 1 / 3 of a row below the
    mean; errors of estimates are factors.
    """
    expected = max(prior, 1.0 / max(rows, 1.0)) if kept > 0.0 else prior
    known = kept * rows + PRIOR_ROWS - 1.0 / 3.0
    return min(1.0, known / (rows + PRIOR_ROWS / max(expected, 1e-12)))
