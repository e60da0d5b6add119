"""How many groups a table's rows fall into, and how many of them a condition on groups keeps.

A sample that has met n rows in d groups, f1 of them once and f2 twice, tells of f1^2 / (2 f2 + f1 q / (1 - q)) more,
where q is the share that was drawn (Chao's estimator without replacement; Chao and Lin, Biometrics 2012). That takes
groups to be of one size. How far they are from it shows at the column with most values: its number is known, and what
the sample tells of it too. With r rows per group where the sample tells s, log r / log s is taken to be the same for
all columns together, which leaves a column by itself as it was counted, and rows of which each is a group.
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

GUESSED_TWICE = 1.0  # so many groups met twice is what a guess is worth
LEAST_SKEW, MOST_SKEW = 0.25, 8.0
FEWEST_ROWS = 30  # of a sample that tell of groups
QUANTILES = 32  # of the sizes of groups
MANY_ROWS = 8  # sampled rows of a group, from which on they tell its size
LARGEST_SIZE = 20_000  # of a group that is not known by itself
_AGGREGATES = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)
_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE}


@lru_cache(maxsize=256)
def codes_of(expression: str, sample: RowSample, types: tuple[tuple[str, str], ...], dialect: str) -> Codes | None:
    """Return which rows of a sample have the same value of a column or an expression; None where it cannot be told.

    Shape (rows,): numbers from 0 on; NULL is a value like any other. types: of the columns, Spark's short form.
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
def codes_together(
    expressions: tuple[str, ...], sample: RowSample, types: tuple[tuple[str, str], ...], dialect: str
) -> Codes | None:
    """Return the same of several columns or expressions together."""
    first, *others = expressions
    code = codes_of(first, sample, types, dialect)
    for other in others:
        beside = codes_of(other, sample, types, dialect)
        if code is None or beside is None:
            return None
        code = np.unique(code * (beside.max(initial=0) + 1) + beside, return_inverse=True)[1].astype(np.intp)
    return code


def promised(code: Codes, mask: Bools | None, rows: float, *, guess: float | None = None) -> float:
    """Return how many groups there are among so many rows, of which a sample holds some.

    code: of each sampled row. mask: of those that count. guess: without a sample.
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
    """Return log r / log s of a column: rows per value as they are known, and as the sample tells."""
    sampled_rows_per_value = rows / max(1.0, promised(code, None, rows))
    rows_per_value = rows / max(1.0, ndv)
    if sampled_rows_per_value <= 1.0 or rows_per_value <= 1.0:
        return 1.0
    return min(MOST_SKEW, max(LEAST_SKEW, math.log(rows_per_value) / math.log(sampled_rows_per_value)))


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """How large groups are, by classes of them. count, mean, largest: shape (classes,): groups, and their rows."""

    count: Floats
    mean: Floats
    largest: Floats

    @classmethod
    def of(cls, groups: float, rows: float) -> Sizes:
        """Know only how many there are."""
        mean = max(1.0, rows / max(groups, 1e-9))
        return cls(np.array([groups]), np.array([mean]), np.array([max(mean, rows)]))

    @classmethod
    def counted(cls, rows: Floats) -> Sizes:
        """Know the size of every group. rows: shape (groups,), some of them 0 where filters left none."""
        sizes, count = np.unique(rows[rows > 0.0], return_counts=True)
        return cls(count.astype(np.float64), sizes, sizes)

    @classmethod
    def promised(cls, group_rows: NDArray[np.intp], share: float, groups: float, rows: float) -> Sizes:
        """Know how many sampled rows each group has. held: shape (groups in the sample,). share: of rows sampled.

        Groups of many sampled rows are as large as these tell. The others' sizes, less one, are a negative binomial
        distribution with the mean that is left and the variance that follows from pairs of sampled rows in one group:
        of s rows s (s - 1) share^2 pairs are sampled.
        """
        many = group_rows[group_rows >= MANY_ROWS] / share
        few = group_rows[group_rows < MANY_ROWS].astype(np.float64)
        remaining_groups, remaining_rows = max(1.0, groups - many.size), max(1.0, rows - float(many.sum()))
        mean = max(0.0, remaining_rows / remaining_groups - 1.0)
        pairs = (
            float((few * (few - 1.0)).sum()) / share**2 / remaining_groups
        )  # E[s (s - 1)] = E[x^2] + E[x], x = s - 1
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
        """Return the rows of a group, on average, of which at most so many count."""
        return self._averaged(np.minimum(np.maximum(self.mean, 1.0), most))

    @property
    def different(self) -> float:
        """Tell how many different sizes there are at most."""
        of_class = np.minimum(self.count, np.where(self.largest > self.mean, self.largest, 1.0))
        return min(float(of_class.sum()), float(self.largest.max(initial=1.0)))

    def above(self, size: float) -> float:
        """Return the share of groups that are larger.

        In a class with the mean m and the largest size L they are even from 2 m - L to L, or fall off from 1 to L.
        """
        mean, most, low = self._shape()
        even = np.clip((most - np.maximum(size, low - 1.0)) / np.maximum(most - low + 1.0, 1e-9), 0.0, 1.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            falling = np.where(size < 1.0, 1.0, np.exp(-(size - 1.0 + 0.5) / np.maximum(mean - 1.0, 1e-9)))
        falling = np.where(size >= most, 0.0, falling)
        return self._averaged(np.where(most <= mean, (mean > size) * 1.0, np.where(low >= 1.0, even, falling)))

    def quantiles(self) -> Floats:
        """Return sizes that stand for equally many groups each, shape (classes, QUANTILES)."""
        mean, most, low = (part[:, None] for part in self._shape())
        way = (np.arange(QUANTILES) + 0.5)[None, :] / QUANTILES
        falling = np.minimum(most, 1.0 - np.maximum(mean - 1.0, 0.0) * np.log1p(-way))
        return np.where(most <= mean, mean, np.where(low >= 1.0, low + (most - low) * way, falling))

    def averaged(self, of_sizes: Floats) -> float:
        """Return the mean of something over all groups. of_sizes: of those that ``quantiles`` gives."""
        return self._averaged(of_sizes.mean(axis=1))

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
    """A condition on groups: an aggregate compared with a number. kind: sum and so on; argument: None of count(*)."""

    kind: type[exp.Expr]
    argument: exp.Expr | None
    comparison: type[exp.Expr]
    value: exp.Expr

    @classmethod
    def read(cls, condition: Condition) -> HavingCondition | None:
        """Read a condition; None for one of another form."""
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
        """Return what is compared with; None for anything but a number."""
        vector = constant(self.value, dialect=dialect)
        if vector is None or not vector.is_constant or not vector.kind.is_number:
            return None
        value = vector.item()
        return None if value is None else float(value)

    @property
    def is_above(self) -> bool:
        """Tell whether large values are kept."""
        return self.comparison in (exp.GT, exp.GTE)

    def counted(self, sizes: Sizes, number: float) -> float:
        """Return the share of groups kept by their number of rows."""
        if self.comparison is exp.EQ:
            return max(0.0, sizes.above(number - 1.0) - sizes.above(number))
        beyond = sizes.above(number if self.comparison in (exp.GT, exp.LTE) else number - 1.0)
        return beyond if self.is_above else 1.0 - beyond

    def added(self, sizes: Sizes, number: float, mean: float, deviation: float) -> float:
        """Return the share of groups kept by the sum or the average of numbers with a mean and a deviation."""
        rows = sizes.quantiles()
        centre, spread = (
            (rows * mean, deviation * np.sqrt(rows)) if self.kind is exp.Sum else (mean, deviation / np.sqrt(rows))
        )
        beyond = sizes.averaged(_beyond((number - centre) / np.maximum(spread, 1e-12)))
        return beyond if self.is_above else 1.0 - beyond

    def extreme(self, sizes: Sizes, share: float) -> float:
        """Return the share of groups kept by their smallest or largest value. share: of rows that compare so."""
        rows = sizes.quantiles()
        any_row = (self.kind is exp.Max) is self.is_above
        return sizes.averaged(1.0 - np.power(1.0 - share, rows) if any_row else np.power(share, rows))


def _negative_binomial(x: Floats, mean: float, variance: float) -> Floats:
    """Return the chance of each number; of a Poisson distribution where the variance is no larger than the mean."""
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
    """Return DuckDB's count_star(), and a count over a window, as what they count."""
    if isinstance(expression, exp.Window) and not expression.args.get("order"):
        expression = expression.this
    is_it = isinstance(expression, exp.Anonymous) and str(expression.this).lower() == "count_star"
    return exp.Count(this=exp.Star()) if is_it else expression


def _beyond(deviations: Floats) -> Floats:
    """Return the share of a normal distribution beyond so many standard deviations."""
    return 0.5 * np.array([math.erfc(one / math.sqrt(2.0)) for one in deviations.ravel().tolist()]).reshape(
        deviations.shape
    )


def independent(counts: Sequence[float], rows: float) -> float:
    """Return the expected combinations among so many rows of columns that have nothing to do with each other."""
    pairs = math.prod(max(1.0, count) for count in counts)
    return pairs * -math.expm1(-rows / pairs)
