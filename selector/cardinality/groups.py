"""Number of groups of a table's rows, their sizes, and the selectivity of conditions on groups (HAVING).

For a sample of n rows in d groups, of which f1 were sampled once and f2 twice, f1^2 / (2 f2 + f1 q / (1 - q)) further
groups are expected, where q is the sampled share (Chao's estimator without replacement; Chao and Lin, Biometrics 2012).
The estimator assumes groups of equal size. The column with the largest NDV shows the error of that assumption: its true
NDV is known, and so is its estimate from the sample. With r rows per value in truth and s by the sample,
log r / log s is assumed to be the same for all columns together; a single column gets its true NDV, and a unique
combination one group per row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from selector.cardinality.predicates.conditions import Condition
from selector.cardinality.predicates.evaluate import constant, values_of
from selector.cardinality.predicates.vectors import Bools
from selector.row_sample import RowSample

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

GUESSED_TWICE = 1.0  # weight of a guess, in groups sampled twice
LEAST_SKEW, MOST_SKEW = 0.25, 8.0
FEWEST_ROWS = 30  # sampled rows, below which groups are not estimated from them
MANY_ROWS = 8  # sampled rows of a group, from which on its size is scaled up from them
LARGEST_SIZE = 20_000  # of a group with fewer than MANY_ROWS sampled rows
_AGGREGATES = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)
_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE}


@lru_cache(maxsize=256)
def codes_of(expression: str, sample: RowSample, types: tuple[tuple[str, str], ...], dialect: str) -> Codes | None:
    """Return a code of each sampled row's value of a column or an expression, shape (rows,); None: not evaluable.

    Equal values have equal codes, from 0 on; NULL is a value like any other. types: (name, type) of each column, in
    Spark's short form.
    """
    column = sample.columns.get(expression)
    if column is not None:
        return column.codes.astype(np.intp)
    vector = values_of(expression, sample, dict(types), dialect=dialect)
    if vector is None:
        return None
    shape = (sample.rows,)
    values: NDArray[Any] = np.broadcast_to(vector.values, shape)
    nulls: Bools = np.broadcast_to(vector.nulls, shape)
    if values.dtype == object:
        seen: dict[object, int] = {}
        code = np.array([seen.setdefault(value, len(seen)) for value in values.tolist()], dtype=np.intp)
    else:
        code = np.unique(values, return_inverse=True)[1].astype(np.intp)
    return np.where(nulls, code.max(initial=-1) + 1, code)


@lru_cache(maxsize=256)
def combined_codes(
    expressions: tuple[str, ...], sample: RowSample, types: tuple[tuple[str, str], ...], dialect: str
) -> Codes | None:
    """Return the codes of combinations of several columns or expressions; None if one is not evaluable."""
    first, *others = expressions
    code = codes_of(first, sample, types, dialect)
    for other in others:
        beside = codes_of(other, sample, types, dialect)
        if code is None or beside is None:
            return None
        code = np.unique(code * (beside.max(initial=0) + 1) + beside, return_inverse=True)[1].astype(np.intp)
    return code


def estimated_groups(code: Codes, mask: Bools | None, rows: float, *, guess: float | None = None) -> float:
    """Return the number of groups among ``rows`` rows, by Chao's estimator.

    code: group of each sampled row. mask: True for sampled rows that count; None: all. guess: prior number of groups.
    """
    group_rows = np.bincount(code if mask is None else code[mask])
    group_rows = group_rows[group_rows > 0]
    drawn, met = int(group_rows.sum()), int(group_rows.size)
    once, twice = float(np.count_nonzero(group_rows == 1)), float(np.count_nonzero(group_rows == 2))
    if drawn >= rows or not once:
        return float(met)
    share = drawn / rows
    unseen, at = once * once, 2.0 * twice + once * share / (1.0 - share)
    if guess is not None:
        unseen += 2.0 * GUESSED_TWICE * max(guess - met, 1.0)
        at += 2.0 * GUESSED_TWICE
    return min(rows, met + unseen / at) if at > 0.0 else rows


def skew(code: Codes, rows: float, ndv: float) -> float:
    """Return log r / log s of a column: true rows per value, and those by the sample. ndv: the true NDV."""
    sampled_rows_per_value = rows / max(1.0, estimated_groups(code, None, rows))
    rows_per_value = rows / max(1.0, ndv)
    if sampled_rows_per_value <= 1.0 or rows_per_value <= 1.0:
        return 1.0
    return min(MOST_SKEW, max(LEAST_SKEW, math.log(rows_per_value) / math.log(sampled_rows_per_value)))


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """Sizes of groups in rows, by classes of groups. All arrays have the shape (classes,).

    count: groups of each class.
    mean, largest: mean and largest size.
    """

    count: Floats
    mean: Floats
    largest: Floats

    @classmethod
    def of(cls, groups: float, rows: float) -> Sizes:
        """Return the sizes if only the number of groups and rows is known."""
        mean = max(1.0, rows / max(groups, 1e-9))
        return cls(np.array([groups]), np.array([mean]), np.array([max(mean, rows)]))

    @classmethod
    def counted(cls, rows: Floats) -> Sizes:
        """Return counted sizes. rows: shape (groups,), rows of each group; 0 if filters dropped all of them."""
        sizes, count = np.unique(rows[rows > 0.0], return_counts=True)
        return cls(count.astype(np.float64), sizes, sizes)

    @classmethod
    def estimated(cls, group_rows: NDArray[np.intp], share: float, groups: float, rows: float) -> Sizes:
        """Return sizes estimated from a sample.

        group_rows: shape (sampled groups,), sampled rows of each. share: of rows sampled. groups, rows: in truth.

        Groups with many sampled rows are scaled up. The sizes of the others, less one, have a negative binomial
        distribution with the mean of the remaining rows and the variance that follows from pairs of sampled rows in
        one group: of s rows, s (s - 1) share^2 pairs are sampled.
        """
        many = group_rows[group_rows >= MANY_ROWS] / share
        few = group_rows[group_rows < MANY_ROWS].astype(np.float64)
        remaining_groups, remaining_rows = max(1.0, groups - many.size), max(1.0, rows - float(many.sum()))
        mean = max(0.0, remaining_rows / remaining_groups - 1.0)
        # E[s (s - 1)] = E[x^2] + E[x], x = s - 1
        pairs = float((few * (few - 1.0)).sum()) / share**2 / remaining_groups
        variance = pairs - mean - mean * mean
        most = int(min(LARGEST_SIZE, math.ceil(mean + 12.0 * math.sqrt(max(variance, mean, 1.0)) + 10.0)))
        sizes = np.arange(1.0, most + 1.0)
        chance = _negative_binomial(sizes - 1.0, mean, variance)
        is_likely = chance > 1e-12
        return cls(
            np.concatenate([remaining_groups * chance[is_likely], np.ones(many.size)]),
            np.concatenate([sizes[is_likely], many]),
            np.concatenate([sizes[is_likely], many]),
        )

    def first_rows(self, most: float) -> float:
        """Return the mean size of groups that are cut to ``most`` rows each."""
        return self._averaged(np.minimum(np.maximum(self.mean, 1.0), most))

    @property
    def different(self) -> float:
        """Upper bound of the number of different sizes."""
        of_class = np.minimum(self.count, np.where(self.largest > self.mean, self.largest, 1.0))
        return min(float(of_class.sum()), float(self.largest.max(initial=1.0)))

    def above(self, size: float) -> float:
        """Return the share of groups that are larger than ``size``.

        In a class with mean m and largest size L, sizes are uniform from 2 m - L to L, or decay from 1 to L.
        """
        mean, most, low = self._shape()
        even = np.clip((most - np.maximum(size, low - 1.0)) / np.maximum(most - low + 1.0, 1e-9), 0.0, 1.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            falling = np.where(size < 1.0, 1.0, np.exp(-(size - 1.0 + 0.5) / np.maximum(mean - 1.0, 1e-9)))
        falling = np.where(size >= most, 0.0, falling)
        return self._averaged(np.where(most <= mean, (mean > size) * 1.0, np.where(low >= 1.0, even, falling)))

    def _shape(self) -> tuple[Floats, Floats, Floats]:
        alone = self.count <= 1.5
        mean = np.maximum(self.mean, 1.0)
        most = np.where(alone & (self.largest > mean), mean, np.maximum(self.largest, mean))
        return mean, most, 2.0 * mean - most

    def _averaged(self, class_values: Floats) -> float:
        whole = float(self.count.sum())
        return float((self.count * class_values).sum()) / whole if whole > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class HavingCondition:
    """Condition on groups: an aggregate compared with a constant.

    kind: class of the aggregate.
    argument: what it aggregates; None for count(*).
    comparison: of the aggregate with the value, in this order.
    """

    kind: type[exp.Expr]
    argument: exp.Expr | None
    comparison: type[exp.Expr]
    value: exp.Expr

    @classmethod
    def read(cls, condition: Condition) -> HavingCondition | None:
        """Return a condition as a comparison of an aggregate; None for any other form."""
        expression = condition.expression
        comparison = type(expression)
        if comparison not in (*_TURNED, exp.EQ):
            return None
        lhs, rhs = expression.this.unnest(), expression.expression.unnest()
        lhs, rhs = _counting(lhs), _counting(rhs)
        if isinstance(rhs, _AGGREGATES):
            lhs, rhs, comparison = rhs, lhs, _TURNED.get(comparison, comparison)
        if not isinstance(lhs, _AGGREGATES) or rhs.find(exp.Column, exp.AggFunc):
            return None
        argument = None if isinstance(lhs.this, exp.Star) or lhs.this is None else lhs.this
        return cls(type(lhs), argument, comparison, rhs)

    def number(self, dialect: str) -> float | None:
        """Return the constant; None if it is no number."""
        vector = constant(self.value, dialect=dialect)
        if vector is None or not vector.is_constant or not vector.kind.is_number:
            return None
        value = vector.item()
        return None if value is None else float(value)

    @property
    def is_above(self) -> bool:
        """Tell whether large values of the aggregate pass."""
        return self.comparison in (exp.GT, exp.GTE)

    def counted(self, sizes: Sizes, number: float) -> float:
        """Return the share of groups that pass a condition on count(*)."""
        if self.comparison is exp.EQ:
            return max(0.0, sizes.above(number - 1.0) - sizes.above(number))
        beyond = sizes.above(number if self.comparison in (exp.GT, exp.LTE) else number - 1.0)
        return beyond if self.is_above else 1.0 - beyond


def _negative_binomial(x: Floats, mean: float, variance: float) -> Floats:
    """Return the probability of each number; by a Poisson distribution if the variance is no larger than the mean."""
    if mean <= 0.0:
        return np.where(x == 0.0, 1.0, 0.0)
    log_factorial = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1.0, x.size)))))
    if variance <= mean * 1.0001:
        logs = x * math.log(mean) - mean - log_factorial
    else:
        shape = mean * mean / (variance - mean)
        rising = np.concatenate(([0.0], np.cumsum(np.log(shape + np.arange(0.0, x.size - 1.0)))))
        logs = rising - log_factorial + shape * math.log(shape / (shape + mean)) + x * math.log(mean / (shape + mean))
    chances: Floats = np.exp(logs)
    return chances / max(float(chances.sum()), 1e-300)


def _counting(expression: exp.Expr) -> exp.Expr:
    """Return count(*) for DuckDB's count_star(), and the aggregate of an unordered window; else the expression."""
    if isinstance(expression, exp.Window) and not expression.args.get("order"):
        expression = expression.this
    is_count_star = isinstance(expression, exp.Anonymous) and str(expression.this).lower() == "count_star"
    return exp.Count(this=exp.Star()) if is_count_star else expression


def independent(counts: Sequence[float], rows: float) -> float:
    """Return the expected number of combinations of independent columns among ``rows`` rows. counts: their NDVs."""
    pairs = math.prod(max(1.0, count) for count in counts)
    return pairs * -math.expm1(-rows / pairs)
