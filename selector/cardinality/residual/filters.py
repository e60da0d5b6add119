"""What a filter keeps that stands above other nodes than scans: of joined rows, and of groups.

Of rows, each comparison is answered by the rows that its column was read from, behind the filters that are in force
there already: what a scan keeps of a condition is not taken off once more. Comparisons of the same two relations are
answered together, by pairs of their rows. Of groups, how many rows they have tells which of their counts, sums and
averages are large enough.

It is long because a condition may be about groups, ranks, marks of joins, one relation's rows or those of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from selector.cardinality.derived import Groups
from selector.cardinality.groups import HavingCondition
from selector.cardinality.predicates.conditions import Condition, parsed
from selector.cardinality.predicates.evaluate import constant
from selector.cardinality.predicates.selectivity import (
    EQUAL_SHARE,
    OTHER_SHARE,
    RANGE_SHARE,
    Selectivity,
)
from selector.cardinality.predicates.vectors import OPERATORS
from selector.cardinality.relation import Relation
from selector.cardinality.residual.asked import Measured, measured_together
from selector.cardinality.residual.compared import Compared
from selector.cardinality.residual.comparisons import comparisons_in
from selector.cardinality.residual.sides import Pairs
from selector.cardinality.union import Union
from selector.plan import MARK, Operator, PlanColumn, PlanNode

Floats = NDArray[np.float64]

Place = tuple[str | None, int | None]  # the table and the number of a scan

_RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank)
_RANGES = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)


def kept_above(
    predicates: Sequence[str],
    columns: Sequence[PlanColumn],
    below: Relation,
    *,
    dialect: str,
    joined: Joined | None = None,
    measured: Measured | None = None,
) -> Selectivity:
    """Return the share of a relation's rows that predicates (SQL texts, ANDed) keep. columns: that come in.

    joined: the sides of a join, if it is one that asks. measured: the share that a condition on aggregates keeps.
    """
    above = _Above(columns, below, dialect, joined=joined)
    found, others = measured_together(list(_conjuncts(predicates, dialect)), measured, None, dialect)
    return _together([*_told(found), *above.shares(others, apart=True)])


def kept_groups(
    predicates: Sequence[str], node: PlanNode, groups: Groups, *, dialect: str, measured: Measured | None = None
) -> Selectivity:
    """Return the share of groups that predicates keep. node: that made them. measured: as for rows."""
    share = _OfGroups(node, groups, dialect).share
    conjuncts = list(_conjuncts(predicates, dialect))
    found, others = measured_together(conjuncts, measured, lambda one: share(one).kept, dialect)
    return _together([*_told(found), *map(share, others)])


def _told(found: Iterable[tuple[Condition, float]]) -> list[_Share]:
    """Return what samples keep of conditions on aggregates."""
    return [_Share(kept, f"samples of {one.text}") for one, kept in found]


def size_condition(predicates: Sequence[str], *, dialect: str) -> Callable[[Floats], NDArray[np.bool_]] | None:
    """Return which numbers of rows a condition on groups keeps; None for one that is about anything else."""
    conditions = list(_conjuncts(predicates, dialect))
    if len(conditions) != 1 or isinstance(conditions[0], str):
        return None
    asked = HavingCondition.read(conditions[0])
    number = asked.number(dialect) if asked is not None else None
    if asked is None or number is None or asked.kind is not exp.Count or asked.argument is not None:
        return None
    compare = OPERATORS[asked.comparison]
    return lambda rows: np.asarray(compare(np.round(rows), number), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Joined:
    """A join. columns: of its left and its right side. equal: its keys, pairs (column of the left, of the right)."""

    columns: tuple[Sequence[PlanColumn], Sequence[PlanColumn]]
    equal: Pairs


@dataclass(frozen=True, slots=True)
class _Share:
    """A conjunct's answer.

    unanswered: its text, where nothing answers it; then it keeps all rows. compared: what samples of two relations are
    to compare; ``kept`` is what it keeps by its form.
    """

    kept: float
    basis: str = ""
    unanswered: str | None = None
    compared: Compared | None = None


def _conjuncts(predicates: Sequence[str], dialect: str) -> Iterator[Condition | str]:
    for text in predicates:
        yield from parsed(text, dialect) or (text,)


def _together(found: Sequence[_Share]) -> Selectivity:
    kept = sorted(one.kept for one in found)
    return Selectivity(
        math.prod(math.pow(share, 0.5**place) for place, share in enumerate(kept)),
        "; ".join(dict.fromkeys(one.basis for one in found if one.basis)),
        tuple(one.unanswered for one in found if one.unanswered is not None),
    )


def _unknown(text: str) -> _Share:
    return _Share(1.0, f"no statistic answers {text}", text)


@dataclass(slots=True)
class _Above:
    """Answers conditions on joined rows. seen: how often a name was met within one branch, whose columns take turns."""

    columns: Sequence[PlanColumn]
    below: Relation
    dialect: str
    seen: dict[str, int] = field(default_factory=dict)
    joined: Joined | None = None

    def shares(self, conditions: Iterable[Condition | str], *, apart: bool = False) -> list[_Share]:
        """Return what conjuncts keep, those that compare the same two relations together.

        apart: whether each conjunct is one of the plan's texts, in which names begin anew.
        """
        found = []
        for condition in conditions:
            if apart:
                self.seen.clear()
            found.append(self.share(condition))
        return self._compared_together(found)

    def _compared_together(self, shares: Sequence[_Share]) -> list[_Share]:
        """Put comparisons of the same two relations together, if samples of both tell."""
        found = [one for one in shares if one.compared is None]
        together: dict[frozenset[Place], list[_Share]] = {}
        for one in shares:
            if one.compared is not None:
                places = frozenset((column.table, column.scan) for column in one.compared.places)
                together.setdefault(places, []).append(one)
        for same in together.values():
            for compared, members in _merged(same):
                kept = compared.share(self.below, dialect=self.dialect)
                basis = f"samples of both sides of {'; '.join(compared.texts)}"
                found += members if kept is None else [_Share(kept, basis)]
        return found

    def share(self, condition: Condition | str) -> _Share:
        """Return what a conjunct keeps."""
        if isinstance(condition, str):
            return _unknown(condition)
        if isinstance(self.below, Union):
            return self._of_all(condition, self.below)
        if condition.alternatives:
            dropped, parts = 1.0, []
            for branch in condition.alternatives:
                marks = self.seen.get(MARK, 0)  # a mark stands once in the condition, other names in every branch
                self.seen.clear()
                self.seen[MARK] = marks
                each = self.shares(branch)
                parts += each
                dropped *= 1.0 - math.prod(one.kept for one in each)
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
        found = [source for source in sources if source is not None]
        if not found or len(found) < len(sources):
            return self._by_form(condition, found)
        null = self._null(condition, found[0])
        if null is not None:
            return null
        if len({(source.table, source.scan) for source in found}) == 1:
            base = self.below.base(found[0])
            if base is not None:
                before, behind = base.filtered, base.behind([condition.text]).filtered
                kept = min(1.0, behind.share / before.share) if before.share > 0.0 else 1.0
                new = tuple(text for text in behind.unanswered if text not in before.unanswered)
                return _Share(kept, behind.basis, new[0] if new else None)
        return self._between(condition, found)

    def _null(self, condition: Condition, column: PlanColumn) -> _Share | None:
        """Return what IS NULL keeps, or IS NOT NULL; joins add NULLs and take them away."""
        expression = condition.expression
        negated = isinstance(expression, exp.Not)
        inner = expression.this.unnest() if negated else expression
        if not isinstance(inner, exp.Is) or not isinstance(inner.expression, exp.Null):
            return None
        if not isinstance(inner.this.unnest(), exp.Column):
            return None
        named = [one for one in dict.fromkeys(self.columns) if one.name.lower() == column.name.lower() and one.table]
        nulls = max(self.below.nulls(one) for one in named or [column])  # of others the engine asks below the join
        return _Share(1.0 - nulls if negated else nulls, f"NULLs of {column.name}")

    def _marked(self, condition: Condition) -> _Share | None:
        """Return what is kept of rows that a join marked, or of the others."""
        expression = condition.expression
        negated = isinstance(expression, exp.Not)
        column = expression.this.unnest() if negated else expression
        if not isinstance(column, exp.Column) or column.name != MARK:
            return None
        turn = self.seen.get(MARK, 0)
        self.seen[MARK] = turn + 1
        if turn >= len(self.below.marked):
            return _unknown(condition.text)
        met = self.below.marked[turn]
        return _Share(1.0 - met if negated else met, "rows that met another one")

    def _of_all(self, condition: Condition, union: Union) -> _Share:
        """Return what a conjunct keeps of several relations' rows, in each by its own columns."""
        kept, shares = 0.0, []
        for part, columns in union.branches:
            own = {mine.name.lower(): theirs.name for mine, theirs in zip(self.columns, columns, strict=False)}
            renamed = condition.expression.transform(lambda node, own=own: _renamed(node, own))
            read = parsed(renamed.sql(dialect=self.dialect), self.dialect) or (condition.text,)
            each = _Above(columns, part, self.dialect).shares(read, apart=True)
            share = math.prod(one.kept for one in each)
            shares += each
            kept += share * part.rows
        unanswered = next((condition.text for one in shares if one.unanswered is not None), None)
        if unanswered is not None and kept >= union.rows:
            return _unknown(unanswered)
        basis = "; ".join(dict.fromkeys(one.basis for one in shares if one.basis))
        return _Share(min(1.0, kept / union.rows) if union.rows > 0.0 else 1.0, basis)

    def _ranked(self, condition: Condition) -> _Share | None:
        """Return what is kept of rows by their rank in a window: so many of each partition."""
        expression = condition.expression
        window = expression.this.unnest() if isinstance(expression, exp.LT | exp.LTE | exp.EQ) else None
        if not isinstance(window, exp.Window) or not isinstance(window.this, _RANKS):
            return None
        found = constant(expression.expression, dialect=self.dialect)
        number = found.item() if found is not None and found.is_constant and found.kind.is_number else None
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
        each = sizes.first_rows(last) - (sizes.first_rows(last - 1.0) if isinstance(expression, exp.EQ) else 0.0)
        return _Share(min(1.0, each * partitions / self.below.rows), "ranks in a window")

    def _shifted(self, condition: Condition) -> _Share | None:
        """Return what is kept of rows by whether another one stands before or behind it in its partition."""
        expression = condition.expression
        negated = isinstance(expression, exp.Not)
        inner = expression.this.unnest() if negated else expression
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
        """Return the columns that a window is partitioned by, and those of them that are known."""
        by = [
            self._source(column.name.lower())
            for part in window.args.get("partition_by") or ()
            for column in part.find_all(exp.Column)
        ]
        return by, [column for column in by if column is not None and self.below.holds(column)]

    def _partitions(self, by: Sequence[PlanColumn | None], keys: Sequence[PlanColumn]) -> float | None:
        """Return how many partitions there are; None where nobody knows."""
        return self.below.distinct(keys) if keys and len(keys) == len(by) else None if by else 1.0

    def _ordered(self, window: exp.Window) -> list[PlanColumn | None]:
        order = window.args.get("order")
        return [self._source(column.name.lower()) for column in order.find_all(exp.Column)] if order is not None else []

    def _ties(
        self, window: exp.Window, columns: Sequence[PlanColumn | None], expression: exp.Expr, number: float
    ) -> float | None:
        """Return the share of rows up to a rank, or at it, as the ranks of sampled rows tell; None if they do not.

        Rows that are equal share a rank. One sampled row at a rank stands for itself, several for as many as their
        share of the sample.
        """
        known = [column for column in columns if column is not None]
        if isinstance(window.this, exp.RowNumber) or len(known) < len(columns) or not known:
            return None
        found = self.below.sampled(known[0]) if len({(one.table, one.scan) for one in known}) == 1 else None
        order = window.args.get("order")
        if found is None or order is None:
            return None
        base, weights = found
        most = number - 1.0 if isinstance(expression, exp.LT) else number
        dense = isinstance(window.this, exp.DenseRank)
        by = [part.sql(dialect=self.dialect) for part in window.args.get("partition_by") or ()]
        keys = [(one.this.sql(dialect=self.dialect), bool(one.args.get("desc"))) for one in order.expressions]
        kept = base.ranked(by, keys, weights > 0.0, most, dense=dense)
        if kept is None or not isinstance(expression, exp.EQ):
            return kept
        before = base.ranked(by, keys, weights > 0.0, most - 1.0, dense=dense) if most > 1.0 else 0.0
        return None if before is None else max(0.0, kept - before)

    def _source(self, name: str) -> PlanColumn | None:
        """Return the column of a name; of several the next one."""
        named = [column for column in dict.fromkeys(self.columns) if column.name.lower() == name and column.table]
        if not named:
            return None
        turn = self.seen.get(name, 0)
        self.seen[name] = turn + 1
        return named[turn % len(named)]

    def _by_form(self, condition: Condition, known: Sequence[PlanColumn]) -> _Share:
        """Return what a comparison with a computed value keeps, by its form; any other condition keeps all."""
        expression = condition.expression
        negated = isinstance(expression, exp.Not)
        inner = expression.this.unnest() if negated else expression
        if isinstance(inner, exp.EQ | exp.NEQ):
            kept = 1.0 / max((self.below.domain(column) or 1.0 for column in known), default=1.0 / EQUAL_SHARE)
            negated ^= isinstance(inner, exp.NEQ)
        elif isinstance(inner, _RANGES):
            kept = RANGE_SHARE
        else:
            return _unknown(condition.text)
        basis = f"form of {condition.text}"
        return _Share(1.0 - kept if negated else kept, basis, condition.text)

    def _between(self, condition: Condition, columns: Sequence[PlanColumn]) -> _Share:
        """Return what a comparison of two relations keeps by its form, and what samples of both are to compare."""
        expression = condition.expression
        negated = isinstance(expression, exp.Not)
        inner = expression.this.unnest() if negated else expression
        kept = OTHER_SHARE
        if isinstance(inner, exp.EQ | exp.NEQ):
            kept = 1.0 / max((self.below.domain(column) or 1.0 for column in columns), default=1.0)
            kept = kept if isinstance(inner, exp.EQ) else 1.0 - kept
        elif isinstance(inner, _RANGES):
            kept = RANGE_SHARE
        share = _Share(1.0 - kept if negated else kept, f"form of {condition.text}")
        return replace(share, compared=self._compared(condition, columns))

    def _of_sides(self, condition: Condition) -> tuple[PlanColumn, PlanColumn] | None:
        """Return a column of each side of a join that a condition compares, the left one with the right one.

        None for any other condition. Engines print it in that order, without the names of tables.
        """
        found = comparisons_in(condition.expression)
        if found is None or self.joined is None:
            return None
        sides = []
        for number, columns in enumerate(self.joined.columns):
            names = {column.name.lower() for one in found[0] for column in one.sides[number].find_all(exp.Column)}
            known = [column for column in columns if column.name.lower() in names and column.table is not None]
            places = {(column.table, column.scan) for column in known}
            if len(places) != 1 or len({column.name.lower() for column in known}) < len(names):
                return None
            sides.append(known[0])
        return sides[0], sides[1]

    def _compared(self, condition: Condition, columns: Sequence[PlanColumn]) -> Compared | None:
        """Return the comparisons of two relations that a condition is; None for any other condition."""
        found = comparisons_in(condition.expression)
        if found is None:
            return None
        comparisons, negated = found
        read = [[_read_by(one.sides[n], columns, is_right=bool(n)) for one in comparisons] for n in (0, 1)]
        left, right = read[0][0], read[1][0]
        places = [{(one.table, one.scan) if one is not None else None for one in side} for side in read]
        if left is None or right is None or any(len(own) > 1 for own in places) or places[0] == places[1]:
            return None
        bases = self.below.base(left), self.below.base(right)
        equal = [
            pair if self.below.base(pair[0]) is bases[0] else (pair[1], pair[0])
            for pair in (self.joined.equal if self.joined is not None else ())
            if {self.below.base(column) for column in pair} == set(bases)
        ]
        return Compared(tuple(comparisons), (left, right), (condition.text,), negated=negated, keys=tuple(equal))


def _read_by(side: exp.Expr, columns: Sequence[PlanColumn], *, is_right: bool) -> PlanColumn | None:
    """Return a column of the scan whose columns one side of a comparison reads; None if there are several.

    Where both sides read columns of one name they take turns.
    """
    names = {column.name.lower() for column in side.find_all(exp.Column)}
    own = [column for column in columns if column.name.lower() in names]
    if len({(column.table, column.scan) for column in own}) == 1:
        return own[0]
    read = side.find(exp.Column)
    named = [column for column in columns if read is not None and column.name.lower() == read.name.lower()]
    return named[min(int(is_right), len(named) - 1)] if named else None


def _merged(shares: Sequence[_Share]) -> list[tuple[Compared, list[_Share]]]:
    """Return what is to be compared of two relations, with the conjuncts that it is.

    All comparisons that must hold are one; a condition by which not all of its comparisons hold is one for itself.
    """
    found = [(one.compared, [one]) for one in shares if one.compared is not None and one.compared.negated]
    hold = [(one.compared, one) for one in shares if one.compared is not None and not one.compared.negated]
    if hold:
        found.append((reduce(Compared.__and__, (compared for compared, _ in hold)), [share for _, share in hold]))
    return found


def _renamed(node: exp.Expr, names: Mapping[str, str]) -> exp.Expr:
    """Return a column under another name, or the constant that stands in its place."""
    name = names.get(node.name.lower()) if isinstance(node, exp.Column) else None
    if name is None:
        return node
    return exp.Literal.string(name[1:-1]) if name.startswith("'") else exp.column(exp.to_identifier(name))


@dataclass(frozen=True, slots=True)
class _OfGroups:
    """Answers conditions on the groups that a node makes."""

    node: PlanNode
    groups: Groups
    dialect: str

    def share(self, condition: Condition | str) -> _Share:
        """Return what a conjunct keeps."""
        if isinstance(condition, str):
            return _unknown(condition)
        asked = HavingCondition.read(condition)
        number = asked.number(self.dialect) if asked is not None else None
        if asked is None:
            below = self.node.children[0] if self.node.children else self.node
            (found,) = _Above([*self.node.columns, *below.columns], self.groups, self.dialect).shares([condition])
            return found
        if asked.kind is exp.Count:
            if number is None:
                return _unknown(condition.text)
            return _Share(asked.counted(self.groups.sizes, number), "sizes of groups")
        kept = self._of_values(asked, number)
        if kept is None:
            return _unknown(condition.text)
        return _Share(min(1.0, max(0.0, kept)), f"sizes of groups; values of {condition.text}")

    def _of_values(self, asked: HavingCondition, number: float | None) -> float | None:
        """Return the share of groups that a sum, an average, or the smallest or largest value keeps."""
        names = (
            {column.name.lower() for column in asked.argument.find_all(exp.Column)}
            if asked.argument is not None
            else set()
        )
        columns = [column for below in _read(self.node) for column in below.scanned if column.name.lower() in names]
        base = self.groups.rows_of(columns[0]) if columns and len({column.scan for column in columns}) == 1 else None
        if base is None or asked.argument is None:
            return None
        if asked.kind in (exp.Min, exp.Max):
            compared = asked.comparison(this=asked.argument.copy(), expression=asked.value.copy())
            behind = base.behind([compared.sql(dialect=self.dialect)])
            if len(behind.filtered.unanswered) > len(base.filtered.unanswered) or base.rows <= 0.0:
                return None
            return asked.extreme(self.groups.sizes, min(1.0, behind.rows / base.rows))
        moments = base.moments(asked.argument.sql(dialect=self.dialect)) if number is not None else None
        return asked.added(self.groups.sizes, number, *moments) if moments is not None and number is not None else None


def _read(node: PlanNode) -> list[PlanNode]:
    return [below for _, below in node.walk() if below.operator is Operator.SCAN]
