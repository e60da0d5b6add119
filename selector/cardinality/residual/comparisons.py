"""Comparisons of expressions of two relations, and the values that these have on sampled rows.

An expression of one column is evaluated once for each different value, so that comparing thousands of rows with
thousands means to compare their different values, and then to look numbers up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sqlglot import exp

from selector.cardinality.keys.classes import Bools, Places
from selector.cardinality.predicates.evaluate import values_of
from selector.cardinality.predicates.vectors import Kind, NotEvaluable, Vector, aligned
from selector.row_sample import RowSample, SampleColumn
from selector.statistics import TableStatistics

MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
}
NEGATED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """``sides[0] kind sides[1]``, each an expression of the columns of one relation."""

    kind: type[exp.Expr]
    sides: tuple[exp.Expr, exp.Expr]

    @property
    def mirrored(self) -> Comparison:
        """Return the same with its sides exchanged."""
        return Comparison(MIRRORED[self.kind], (self.sides[1], self.sides[0]))


def comparisons_in(expression: exp.Expr) -> tuple[list[Comparison], bool] | None:
    """Return the comparisons that a condition is, and whether it says that not all of them hold; None for others."""
    negated = isinstance(expression, exp.Not)
    inner = expression.this.unnest() if negated else expression
    if isinstance(inner, exp.Between):
        low, high = inner.args["low"], inner.args["high"]
        return [Comparison(exp.GTE, (inner.this, low)), Comparison(exp.LTE, (inner.this, high))], negated
    kind = type(inner)
    if kind not in MIRRORED:
        return None
    return [Comparison(NEGATED[kind] if negated else kind, (inner.this, inner.expression))], False


@dataclass(frozen=True, slots=True, eq=False)
class Numbered:
    """The values of an expression on sampled rows.

    values: different ones, or one per row. codes: shape (rows,), where each row's value stands in them. nulls: shape
    (rows,). column: whose values they are as they stand; None for a computed one.
    """

    values: Vector
    codes: Places
    nulls: Bools
    column: SampleColumn | None = None

    def ordered(self) -> Numbered:
        """Return the same with different, increasing values."""
        if self.column is not None:
            return self
        known, places = np.unique(np.asarray(self.values.values), return_inverse=True)
        return replace(self, values=replace(self.values, values=known), codes=places.astype(np.intp)[self.codes])


def numbered(expression: exp.Expr, sample: RowSample, statistics: TableStatistics, dialect: str) -> Numbered | None:
    """Return the values of an expression on sampled rows; None where they cannot be told."""
    types = {name: column.data_type for name, column in statistics.columns.items()}
    by_lower = {name.lower(): name for name in sample.columns}
    names = {by_lower.get(column.name.lower()) for column in expression.find_all(exp.Column)}
    name = names.pop() if len(names) == 1 else None
    if name is None:
        found = values_of(expression, sample, types, dialect=dialect)
        if found is None or np.ndim(found.values) == 0:
            return None
        nulls = np.array(np.broadcast_to(found.nulls, (sample.rows,)), dtype=np.bool_)
        return Numbered(_without(found, nulls), np.arange(sample.rows, dtype=np.intp), nulls)
    column = sample.columns[name]
    count = column.size
    each = SampleColumn(column.packed, np.arange(count + 1).astype(np.uint32))  # every value once, and NULL
    found = values_of(expression, RowSample(count + 1, 1.0, {name: each}), types, dialect=dialect)
    if found is None or np.ndim(found.values) == 0:
        return None
    nulls = np.array(np.broadcast_to(found.nulls, (count + 1,)), dtype=np.bool_)
    codes = column.codes.astype(np.intp)
    if count and isinstance(expression.unnest(), exp.Column):
        return Numbered(replace(found, values=found.values[:count]), np.minimum(codes, count - 1), nulls[codes], column)
    return Numbered(_without(found, nulls), codes, nulls[codes])


def _without(found: Vector, nulls: Bools) -> Vector:
    """Return values of which those of NULLs can be ordered like all others."""
    if found.kind is Kind.TEXT:
        return replace(found, values=np.where(nulls, "", found.values).astype(object), nulls=nulls)
    return replace(found, values=np.asarray(found.values, dtype=np.float64), nulls=nulls)


def ranks_among(reference: Numbered, other: Numbered) -> Places:
    """Return where the values of an expression lie among those of another one, shape (values of ``other``,).

    2 i + 1 where it equals value i of the reference, whose values increase, and 2 i where it lies below it. Raises
    NotEvaluable for values of different kinds.
    """
    if reference.column is not None and reference.column is other.column:
        return 2 * np.arange(reference.column.values.size, dtype=np.intp) + 1
    mine, theirs = aligned(reference.values, other.values)
    if (mine.kind is Kind.TEXT) is not (theirs.kind is Kind.TEXT):
        raise NotEvaluable(theirs.kind.value)
    below = np.searchsorted(mine.values, theirs.values, side="left")
    found: Places = below + np.searchsorted(mine.values, theirs.values, side="right")
    return found
