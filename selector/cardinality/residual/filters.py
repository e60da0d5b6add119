"""Selectivity of filters above other nodes than scans: on joined rows, and on groups.

A condition on one scan's columns is estimated by that scan, given its own filters, so that no condition is counted
twice. Comparisons of the same two relations are estimated together, on pairs of their sampled rows. Conditions on
counts of groups are estimated from the distribution of group sizes, other conditions on groups by their form.

It is long because a condition may be about groups, ranks, marks of joins, one relation's rows or those of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from sqlglot import exp

from selector.cardinality.derived import Groups
from selector.cardinality.groups import HavingCondition
from selector.cardinality.join_messages import Floats
from selector.cardinality.predicates.conditions import Condition, parsed
from selector.cardinality.predicates.evaluate import constant
from selector.cardinality.predicates.selectivity import (
    EQUAL_SHARE,
    OTHER_SHARE,
    RANGE_SHARE,
    Selectivity,
)
from selector.cardinality.predicates.vectors import OPERATORS, Bools
from selector.cardinality.relation import Relation
from selector.cardinality.residual.aggregate_conditions import Measured, measured_apart
from selector.cardinality.residual.joined import Pair, Place
from selector.cardinality.residual.pairs import PairCondition, pair_selectivity, sides_of
from selector.cardinality.union import Union
from selector.plan import MARK, PlanColumn, PlanNode

_RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank)
_RANGES = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)


def residual_selectivity(
    predicates: Sequence[str],
    columns: Sequence[PlanColumn],
    below: Relation,
    *,
    dialect: str,
    joined: Joined | None = None,
    measured: Measured | None = None,
) -> Selectivity:
    """Return the selectivity of predicates (SQL texts, ANDed) on a relation's rows.

    columns: of the filter's input. joined: the sides, if the predicates are those of a join.
    measured: estimates conditions on aggregates; None: not available.
    """
    row_filter = _RowFilter(columns, below, dialect, joined=joined)
    measured_shares, others = measured_apart(list(_conjuncts(predicates, dialect)), measured, None)
    return _together([*_measured_shares(measured_shares), *row_filter.shares(others, apart=True)])


def group_selectivity(
    predicates: Sequence[str], node: PlanNode, groups: Groups, *, dialect: str, measured: Measured | None = None
) -> Selectivity:
    """Return the selectivity of predicates on groups. node: the grouping. measured: as for rows."""
    share = _GroupFilter(node, groups, dialect).share
    conjuncts = list(_conjuncts(predicates, dialect))
    measured_shares, others = measured_apart(conjuncts, measured, lambda one: share(one).selectivity)
    return _together([*_measured_shares(measured_shares), *map(share, others)])


def _measured_shares(measured_shares: Iterable[tuple[Condition, float]]) -> list[_Share]:
    """Return conditions on aggregates, with their selectivity by samples."""
    return [_Share(selectivity, f"samples of {condition.text}") for condition, selectivity in measured_shares]


def size_condition(predicates: Sequence[str], *, dialect: str) -> Callable[[Floats], Bools] | None:
    """Return a function that tells which group sizes pass a condition on count(*); None for any other condition."""
    conditions = list(_conjuncts(predicates, dialect))
    if len(conditions) != 1 or isinstance(conditions[0], str):
        return None
    having = HavingCondition.read(conditions[0])
    number = having.number(dialect) if having is not None else None
    if having is None or number is None or having.kind is not exp.Count or having.argument is not None:
        return None
    compare = OPERATORS[having.comparison]
    return lambda rows: np.asarray(compare(np.round(rows), number), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Joined:
    """Sides of a join.

    columns: of the left and the right side.
    equal: its keys, pairs (column of the left, column of the right).
    """

    columns: tuple[Sequence[PlanColumn], Sequence[PlanColumn]]
    equal: Sequence[Pair]


@dataclass(frozen=True, slots=True)
class _Share:
    """Selectivity of a conjunct, 0..1.

    basis: statistics it rests on, in words.
    unanswered: text of the conjunct, if no statistic answers it; else None.
    pairs: condition to evaluate on samples of two relations; then ``selectivity`` is a guess by the form.
    """

    selectivity: float
    basis: str = ""
    unanswered: str | None = None
    pairs: PairCondition | None = None


def _conjuncts(predicates: Sequence[str], dialect: str) -> Iterator[Condition | str]:
    for text in predicates:
        yield from parsed(text, dialect) or (text,)


def _together(shares: Sequence[_Share]) -> Selectivity:
    selectivities = sorted(one.selectivity for one in shares)
    return Selectivity(
        math.prod(math.pow(selectivity, 0.5**place) for place, selectivity in enumerate(selectivities)),
        "; ".join(dict.fromkeys(one.basis for one in shares if one.basis)),
        tuple(one.unanswered for one in shares if one.unanswered is not None),
    )


def _without_not(condition: Condition) -> tuple[exp.Expr, bool]:
    """Return a condition's expression without NOT, and whether it had one."""
    expression = condition.expression
    negated = isinstance(expression, exp.Not)
    return expression.this.unnest() if negated else expression, negated


def _unknown(text: str) -> _Share:
    return _Share(1.0, f"no statistic answers {text}", text)


@dataclass(slots=True)
class _RowFilter:
    """Estimator of conditions on joined rows.

    seen: occurrences of each name so far; the columns of one name take turns.
    """

    columns: Sequence[PlanColumn]
    below: Relation
    dialect: str
    seen: dict[str, int] = field(default_factory=dict)
    joined: Joined | None = None

    def shares(self, conditions: Iterable[Condition | str], *, apart: bool = False) -> list[_Share]:
        """Return the selectivity of conjuncts, those that compare the same two relations together.

        apart: each conjunct is a text of its own in the plan, so that ``seen`` starts anew.
        """
        shares = []
        for condition in conditions:
            if apart:
                self.seen.clear()
            shares.append(self.share(condition))
        return self._compared_together(shares)

    def _compared_together(self, shares: Sequence[_Share]) -> list[_Share]:
        """Return the same, with comparisons of the same two relations merged if both have samples."""
        answered = [one for one in shares if one.pairs is None]
        together: dict[tuple[Place, ...], list[_Share]] = {}
        for one in shares:
            if one.pairs is not None:
                places = tuple((column.table, column.scan) for column in one.pairs.scans)
                together.setdefault(places, []).append(one)
        equal = self.joined.equal if self.joined is not None else ()
        for same in together.values():
            conditions = [one.pairs for one in same if one.pairs is not None]
            prior = _together(same).share
            selectivity = pair_selectivity(conditions, self.below, equal, prior, dialect=self.dialect)
            basis = f"samples of both sides of {'; '.join(one.text for one in conditions)}"
            answered += same if selectivity is None else [_Share(selectivity, basis)]
        return answered

    def share(self, condition: Condition | str) -> _Share:
        """Return the selectivity of a conjunct."""
        if isinstance(condition, str):
            return _unknown(condition)
        if isinstance(self.below, Union):
            return self._of_all(condition, self.below)
        if condition.alternatives:
            dropped, parts = 1.0, []
            for branch in condition.alternatives:
                marks = self.seen.get(MARK, 0)  # a mark occurs once in the condition, other names in every branch
                self.seen.clear()
                self.seen[MARK] = marks
                branch_shares = self.shares(branch)
                parts += branch_shares
                dropped *= 1.0 - math.prod(one.selectivity for one in branch_shares)
            unanswered = next((condition.text for one in parts if one.unanswered is not None), None)
            if unanswered is not None:
                return _unknown(unanswered)
            basis = "; ".join(dict.fromkeys(one.basis for one in parts if one.basis))
            return _Share(1.0 - dropped, basis)
        marked = self._marked(condition)
        if marked is not None:
            return marked
        windowed = self._ranked(condition) or self._shifted(condition)
        if windowed is not None:
            return windowed
        of_sides = self._of_sides(condition)
        if of_sides is not None:
            return self._between(condition, of_sides)
        sources = [self._source(column.name.lower()) for column in condition.expression.find_all(exp.Column)]
        columns = [source for source in sources if source is not None]
        if not columns or len(columns) < len(sources):
            return self._by_form(condition, columns)
        null = self._null(condition, columns[0])
        if null is not None:
            return null
        if len({(source.table, source.scan) for source in columns}) == 1:
            base = self.below.base(columns[0])
            if base is not None:
                before, behind = base.filtered, base.behind([condition.text]).filtered
                selectivity = min(1.0, behind.share / before.share) if before.share > 0.0 else 1.0
                new = tuple(text for text in behind.unanswered if text not in before.unanswered)
                return _Share(selectivity, behind.basis, new[0] if new else None)
        return self._between(condition, columns)

    def _null(self, condition: Condition, column: PlanColumn) -> _Share | None:
        """Return the selectivity of IS NULL or IS NOT NULL behind joins; None for any other condition."""
        inner, negated = _without_not(condition)
        if not isinstance(inner, exp.Is) or not isinstance(inner.expression, exp.Null):
            return None
        if not isinstance(inner.this.unnest(), exp.Column):
            return None
        named = [one for one in dict.fromkeys(self.columns) if one.name.lower() == column.name.lower() and one.table]
        nulls = max(self.below.nulls(one) for one in named or [column])  # of others, the engine filters below the join
        return _Share(1.0 - nulls if negated else nulls, f"NULLs of {column.name}")

    def _marked(self, condition: Condition) -> _Share | None:
        """Return the selectivity of the mark of a join, or of its negation; None for any other condition."""
        column, negated = _without_not(condition)
        if not isinstance(column, exp.Column) or column.name != MARK:
            return None
        turn = self.seen.get(MARK, 0)
        self.seen[MARK] = turn + 1
        if turn >= len(self.below.marked):
            return _unknown(condition.text)
        met = self.below.marked[turn]
        return _Share(1.0 - met if negated else met, "rows that met another one")

    def _of_all(self, condition: Condition, union: Union) -> _Share:
        """Return the selectivity of a conjunct on a union, from that on each branch."""
        kept_rows, shares = 0.0, []
        for part, columns in union.branches:
            own = {mine.name.lower(): theirs.name for mine, theirs in zip(self.columns, columns, strict=False)}
            renamed = condition.expression.transform(lambda node, own=own: _renamed(node, own))
            read = parsed(renamed.sql(dialect=self.dialect), self.dialect) or (condition.text,)
            part_shares = _RowFilter(columns, part, self.dialect).shares(read, apart=True)
            share = math.prod(one.selectivity for one in part_shares)
            shares += part_shares
            kept_rows += share * part.rows
        unanswered = next((condition.text for one in shares if one.unanswered is not None), None)
        if unanswered is not None and kept_rows >= union.rows:
            return _unknown(unanswered)
        basis = "; ".join(dict.fromkeys(one.basis for one in shares if one.basis))
        return _Share(min(1.0, kept_rows / union.rows) if union.rows > 0.0 else 1.0, basis)

    def _ranked(self, condition: Condition) -> _Share | None:
        """Return the selectivity of a condition on a rank in a window; None for any other condition."""
        expression = condition.expression
        window = expression.this.unnest() if isinstance(expression, exp.LT | exp.LTE | exp.EQ) else None
        if not isinstance(window, exp.Window) or not isinstance(window.this, _RANKS):
            return None
        value = constant(expression.expression, dialect=self.dialect)
        number = value.item() if value is not None and value.is_constant and value.kind.is_number else None
        if number is None or self.below.rows <= 0.0:
            return None
        by, keys = self._partitioned(window)
        tied = self._ties(window, [*by, *self._ordered(window)], expression, float(number))
        if tied is not None:
            return _Share(tied, "ranks in a window, on the sample")
        partitions = self._partitions(by, keys)
        if partitions is None:
            return None
        last = max(0.0, float(number) - isinstance(expression, exp.LT))
        sizes = Groups(self.below, partitions, keys, upper=self.below.upper).sizes
        rows = sizes.first_rows(last) - (sizes.first_rows(last - 1.0) if isinstance(expression, exp.EQ) else 0.0)
        return _Share(min(1.0, rows * partitions / self.below.rows), "ranks in a window")

    def _shifted(self, condition: Condition) -> _Share | None:
        """Return the selectivity of IS NULL on lag or lead; None for any other condition."""
        inner, negated = _without_not(condition)
        window = inner.this.unnest() if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null) else None
        if not isinstance(window, exp.Window) or not isinstance(window.this, exp.Lag | exp.Lead):
            return None
        offset = constant(window.this.args.get("offset") or exp.Literal.number(1), dialect=self.dialect)
        steps = offset.item() if offset is not None and offset.is_constant and offset.kind.is_number else None
        by, keys = self._partitioned(window)
        partitions = self._partitions(by, keys)
        if steps is None or partitions is None or window.this.args.get("default") is not None or self.below.rows <= 0.0:
            return None
        first = Groups(self.below, partitions, keys, upper=self.below.upper).sizes.first_rows(float(steps))
        nulls = min(1.0, first * partitions / self.below.rows)
        return _Share(1.0 - nulls if negated else nulls, "partitions of a window")

    def _partitioned(self, window: exp.Window) -> tuple[list[PlanColumn | None], list[PlanColumn]]:
        """Return the columns of PARTITION BY, and those of them that the relation outputs."""
        by = [
            self._source(column.name.lower())
            for part in window.args.get("partition_by") or ()
            for column in part.find_all(exp.Column)
        ]
        return by, [column for column in by if column is not None and self.below.holds(column)]

    def _partitions(self, by: Sequence[PlanColumn | None], keys: Sequence[PlanColumn]) -> float | None:
        """Return the number of partitions; None: unknown."""
        return self.below.distinct(keys) if keys and len(keys) == len(by) else None if by else 1.0

    def _ordered(self, window: exp.Window) -> list[PlanColumn | None]:
        order = window.args.get("order")
        return [self._source(column.name.lower()) for column in order.find_all(exp.Column)] if order is not None else []

    def _ties(
        self, window: exp.Window, columns: Sequence[PlanColumn | None], expression: exp.Expr, number: float
    ) -> float | None:
        """Return the share of rows up to a rank, or at it, by the ranks of sampled rows; None: no sample.

        Equal rows share a rank. A single sampled row at a rank counts as one row, several are scaled up.
        """
        own_columns = [column for column in columns if column is not None]
        if isinstance(window.this, exp.RowNumber) or len(own_columns) < len(columns) or not own_columns:
            return None
        scans = {(column.table, column.scan) for column in own_columns}
        sampled = self.below.sampled(own_columns[0]) if len(scans) == 1 else None
        order = window.args.get("order")
        if sampled is None or order is None:
            return None
        base, weights = sampled
        most = number - 1.0 if isinstance(expression, exp.LT) else number
        dense = isinstance(window.this, exp.DenseRank)
        by = [part.sql(dialect=self.dialect) for part in window.args.get("partition_by") or ()]
        keys = [(one.this.sql(dialect=self.dialect), bool(one.args.get("desc"))) for one in order.expressions]
        up_to_rank = base.ranked(by, keys, weights > 0.0, most, dense=dense)
        if up_to_rank is None or not isinstance(expression, exp.EQ):
            return up_to_rank
        before = base.ranked(by, keys, weights > 0.0, most - 1.0, dense=dense) if most > 1.0 else 0.0
        return None if before is None else max(0.0, up_to_rank - before)

    def _source(self, name: str) -> PlanColumn | None:
        """Return the column of a name; if there are several, the next one."""
        named = [column for column in dict.fromkeys(self.columns) if column.name.lower() == name and column.table]
        if not named:
            return None
        turn = self.seen.get(name, 0)
        self.seen[name] = turn + 1
        return named[turn % len(named)]

    def _by_form(self, condition: Condition, columns: Sequence[PlanColumn]) -> _Share:
        """Return the selectivity of a comparison with a computed value by its form; 1 for any other condition."""
        inner, negated = _without_not(condition)
        if isinstance(inner, exp.EQ | exp.NEQ):
            selectivity = 1.0 / max((self.below.domain(column) or 1.0 for column in columns), default=1.0 / EQUAL_SHARE)
            negated ^= isinstance(inner, exp.NEQ)
        elif isinstance(inner, _RANGES):
            selectivity = RANGE_SHARE
        else:
            return _unknown(condition.text)
        basis = f"form of {condition.text}"
        return _Share(1.0 - selectivity if negated else selectivity, basis, condition.text)

    def _between(self, condition: Condition, columns: Sequence[PlanColumn]) -> _Share:
        """Return the selectivity of a comparison of two relations by its form, with what to evaluate on samples."""
        inner, negated = _without_not(condition)
        selectivity = OTHER_SHARE
        if isinstance(inner, exp.EQ | exp.NEQ):
            selectivity = 1.0 / max((self.below.domain(column) or 1.0 for column in columns), default=1.0)
            selectivity = selectivity if isinstance(inner, exp.EQ) else 1.0 - selectivity
        elif isinstance(inner, _RANGES):
            selectivity = RANGE_SHARE
        share = _Share(1.0 - selectivity if negated else selectivity, f"form of {condition.text}")
        return replace(share, pairs=PairCondition.of(condition, columns))

    def _of_sides(self, condition: Condition) -> tuple[PlanColumn, PlanColumn] | None:
        """Return a column of each side of a join that a condition compares, (left, right).

        None for any other condition. Engines print it in that order, without the names of tables.
        """
        compared = sides_of(condition.expression)
        if compared is None or self.joined is None:
            return None
        sides = []
        for expressions, columns in zip(compared, self.joined.columns, strict=True):
            names = {column.name.lower() for one in expressions for column in one.find_all(exp.Column)}
            own_columns = [column for column in columns if column.name.lower() in names and column.table is not None]
            places = {(column.table, column.scan) for column in own_columns}
            if len(places) != 1 or len({column.name.lower() for column in own_columns}) < len(names):
                return None
            sides.append(own_columns[0])
        return sides[0], sides[1]


def _renamed(node: exp.Expr, names: Mapping[str, str]) -> exp.Expr:
    """Return a column with its name in a union's branch, or the constant in its place."""
    name = names.get(node.name.lower()) if isinstance(node, exp.Column) else None
    if name is None:
        return node
    return exp.Literal.string(name[1:-1]) if name.startswith("'") else exp.column(exp.to_identifier(name))


@dataclass(frozen=True, slots=True)
class _GroupFilter:
    """Estimator of conditions on the groups of a node."""

    node: PlanNode
    groups: Groups
    dialect: str

    def share(self, condition: Condition | str) -> _Share:
        """Return the selectivity of a conjunct."""
        if isinstance(condition, str):
            return _unknown(condition)
        having = HavingCondition.read(condition)
        if having is None:
            below = self.node.children[0] if self.node.children else self.node
            (share,) = _RowFilter([*self.node.columns, *below.columns], self.groups, self.dialect).shares([condition])
            return share
        number = having.number(self.dialect) if having.kind is exp.Count else None
        if number is not None:
            return _Share(having.counted(self.groups.sizes, number), "sizes of groups")
        selectivity = EQUAL_SHARE if having.comparison is exp.EQ else RANGE_SHARE
        return _Share(selectivity, f"form of {condition.text}", condition.text)
