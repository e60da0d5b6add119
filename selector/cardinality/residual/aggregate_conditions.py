"""Conditions on aggregates as plans print them, and their evaluation on sampled rows."""

from __future__ import annotations

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

PRIOR_ROWS = 0.5  # weight of a guess, in sampled rows

# (condition, selectivity expected without samples) -> selectivity of a condition on aggregates; None for any other.
Measured = Callable[[Condition, float], float | None]


@dataclass(frozen=True, slots=True)
class AggregateCondition:
    """Condition on aggregates of one grouping.

    calls: the aggregates.
    test: the condition, with columns ``aggregate 0`` and so on in place of the aggregates.
    spelled: the condition with the aggregates.
    columns: names of its table columns, in lower case.
    passed: condition of filters on the groups below, in the form of ``test``; groups that fail it match no row.
    """

    grouping: PlanNode
    calls: tuple[exp.Expr, ...]
    test: exp.Expr
    spelled: exp.Expr
    columns: frozenset[str]
    passed: exp.Expr | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """Parser of conditions on aggregates of one plan."""

    tracer: Tracer
    dialect: str

    def read(self, condition: Condition, node: PlanNode) -> AggregateCondition | None:
        """Return a condition on aggregates of one grouping; None for any other condition."""
        tables = {column.name.lower() for column in node.columns if column.table is not None}
        tables |= {column.name.lower() for child in node.children for column in child.columns if column.table}
        groupings: list[PlanNode] = []
        unknown = False

        def meant(part: exp.Expr) -> exp.Expr:
            nonlocal unknown
            if not isinstance(part, exp.Column) or part.name.lower() in tables or part.find_ancestor(exp.AggFunc):
                return part
            candidates = (self.tracer.named(part.name, child) for child in node.children)
            traced_columns = [traced for traced in candidates if traced is not None]
            if len(traced_columns) != 1:
                unknown = True
                return part
            groupings.append(traced_columns[0].grouping)
            return exp.paren(traced_columns[0].expression.copy())

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

    def _numbered(self, grouping: PlanNode, spelled: exp.Expr, passed: exp.Expr | None = None) -> AggregateCondition:
        """Return a condition with columns in place of aggregates. passed: condition of filters on the groups below."""
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
        return AggregateCondition(grouping, tuple(calls.values()), test, spelled, own, before)

    def with_passed(self, having: AggregateCondition, node: PlanNode) -> AggregateCondition:
        """Return a condition with ``passed`` set to the filters on the same groups below a join."""
        conditions: list[exp.Expr] = []
        while node is not having.grouping:
            if node.operator is Operator.FILTER:
                for text in node.predicates:
                    before = [self.read(one, node) for one in parsed(text, self.dialect) or ()]
                    conditions += [one.spelled for one in before if one is not None and not one.columns]
            below = [child for child in node.children if self.tracer.grouping(child) is having.grouping]
            if len(below) != 1:
                break
            node = below[0]
        return self._numbered(having.grouping, having.spelled, exp.and_(*conditions)) if conditions else having


def measured_apart(
    conjuncts: Sequence[Condition | str],
    measured: Measured | None,
    expected: Callable[[Condition], float] | None,
) -> tuple[list[tuple[Condition, float]], list[Condition | str]]:
    """Return conditions on aggregates with their selectivity, and the other conjuncts.

    expected: selectivity of a condition by statistics of groups; None: not available.
    """
    shares: list[tuple[Condition, float]] = []
    others: list[Condition | str] = []
    for one in conjuncts:
        prior = expected(one) if expected is not None and isinstance(one, Condition) else RANGE_SHARE
        selectivity = measured(one, prior) if measured is not None and isinstance(one, Condition) else None
        if selectivity is None or isinstance(one, str):
            others.append(one)
        else:
            shares.append((one, selectivity))
    return shares, others


def answers(
    having: AggregateCondition,
    test: exp.Expr,
    base: Scanned,
    sample: RowSample,
    rows: Places,
    measures: Sequence[Measure],
    *,
    dialect: str,
) -> Bools | None:
    """Return True for each row that satisfies a condition, given its aggregates; None: not evaluable.

    test: ``having.test`` or ``having.passed``. measures: of each row the aggregates.
    """
    types = {name: column.data_type for name, column in base.statistics.columns.items()}
    columns = {
        name: SampleColumn(column.packed, column.codes[rows])
        for name, column in sample.columns.items()
        if name.lower() in having.columns
    }
    if len(columns) < len(having.columns):
        return None
    for number, measure in enumerate(measures):
        columns[f"aggregate {number}"] = SampleColumn.of(measure.values, measure.nulls)
        types[f"aggregate {number}"] = measure.data_type
    return truth(test, RowSample(int(rows.size), 1.0, columns), types, dialect=dialect)


def with_prior(share: float, rows: float, prior: float = RANGE_SHARE) -> float:
    """Return a share by sampled rows (or keys) and a prior, which is above 0 even if no sampled row passes.

    share: of the sampled rows that pass. rows: their number. prior: expected share.

    The prior is a gamma distribution with the weight of ``PRIOR_ROWS`` passing rows; once a sampled row passes, its
    weight is at most that of all rows. The result is the median, 1 / 3 of a row below the mean, because errors of
    estimates are factors.
    """
    expected = max(prior, 1.0 / max(rows, 1.0)) if share > 0.0 else prior
    hits = share * rows + PRIOR_ROWS - 1.0 / 3.0
    return min(1.0, hits / (rows + PRIOR_ROWS / max(expected, 1e-12)))
