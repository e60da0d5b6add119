"""Comparisons of expressions of two relations, and their values on sampled rows.

An expression of one column is evaluated once for each distinct value, so that comparing thousands of rows with
thousands compares distinct values, and then looks codes up.
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
        """Same comparison with its sides exchanged."""
        return Comparison(MIRRORED[self.kind], (self.sides[1], self.sides[0]))


def comparisons_in(expression: exp.Expr) -> tuple[list[Comparison], bool] | None:
    """Return a condition as comparisons, and True if it is the negation of their conjunction; None for any other."""
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
    """Values of an expression on sampled rows.

    values: distinct values, or one per row.
    codes: shape (rows,), index of each row's value.
    nulls: shape (rows,), True for NULL.
    column: the column that the expression consists of; None: computed.
    """

    values: Vector
    codes: Places
    nulls: Bools
    column: SampleColumn | None = None

    def ordered(self) -> Numbered:
        """Return the same with distinct, increasing values."""
        if self.column is not None:
            return self
        distinct, places = np.unique(np.asarray(self.values.values), return_inverse=True)
        return replace(self, values=replace(self.values, values=distinct), codes=places.astype(np.intp)[self.codes])


def numbered(expression: exp.Expr, sample: RowSample, statistics: TableStatistics, dialect: str) -> Numbered | None:
    """Return the values of an expression on sampled rows; None: not evaluable."""
    types = {name: column.data_type for name, column in statistics.columns.items()}
    by_lower = {name.lower(): name for name in sample.columns}
    names = {by_lower.get(column.name.lower()) for column in expression.find_all(exp.Column)}
    name = names.pop() if len(names) == 1 else None
    if name is None:
        vector = values_of(expression, sample, types, dialect=dialect)
        if vector is None or np.ndim(vector.values) == 0:
            return None
        nulls = np.array(np.broadcast_to(vector.nulls, (sample.rows,)), dtype=np.bool_)
        return Numbered(_without(vector, nulls), np.arange(sample.rows, dtype=np.intp), nulls)
    column = sample.columns[name]
    count = column.size
    distinct_values = SampleColumn(
        column.packed, np.arange(count + 1).astype(np.uint32)
    )  # each distinct value, and NULL
    vector = values_of(expression, RowSample(count + 1, 1.0, {name: distinct_values}), types, dialect=dialect)
    if vector is None or np.ndim(vector.values) == 0:
        return None
    nulls = np.array(np.broadcast_to(vector.nulls, (count + 1,)), dtype=np.bool_)
    codes = column.codes.astype(np.intp)
    if count and isinstance(expression.unnest(), exp.Column):
        values = replace(vector, values=vector.values[:count])
        return Numbered(values, np.minimum(codes, count - 1), nulls[codes], column)
    return Numbered(_without(vector, nulls), codes, nulls[codes])


def _without(vector: Vector, nulls: Bools) -> Vector:
    """Return values with a sortable placeholder for NULLs."""
    if vector.kind is Kind.TEXT:
        return replace(vector, values=np.where(nulls, "", vector.values).astype(object), nulls=nulls)
    return replace(vector, values=np.asarray(vector.values, dtype=np.float64), nulls=nulls)


def ranks_among(reference: Numbered, other: Numbered) -> Places:
    """Return the ranks of an expression's values among those of another one, shape (values of ``other``,).

    2 i + 1 for a value equal to value i of the reference, whose values increase, and 2 i for one just below it. Raises
    NotEvaluable for values of different kinds.
    """
    if reference.column is not None and reference.column is other.column:
        return 2 * np.arange(reference.column.values.size, dtype=np.intp) + 1
    mine, theirs = aligned(reference.values, other.values)
    if (mine.kind is Kind.TEXT) is not (theirs.kind is Kind.TEXT):
        raise NotEvaluable(theirs.kind.value)
    below = np.searchsorted(mine.values, theirs.values, side="left")
    ranks: Places = below + np.searchsorted(mine.values, theirs.values, side="right")
    return ranks
