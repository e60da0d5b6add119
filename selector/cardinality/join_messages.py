"""Rows of a relation over the cells of a key class, and the messages that joins send each other.

A ``Message`` is the effect of a join on one side: the factor by which the rows of each cell grow, and the share of its
keys with a match. A table passes messages on to its other keys by its sampled rows, each of which has a cell of every
key; so a tree of joins is a product of vectors (belief propagation on a factor graph, as in FactorJoin; Wu et al.,
SIGMOD 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selector.cardinality.keys.classes import KeyClass
from selector.plan import PlanColumn

Floats = NDArray[np.float64]

LEAST = 1e-9  # smallest divisor


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """Columns of a relation that are joined together.

    cells: the class of the columns; None: they have none.
    """

    columns: tuple[PlanColumn, ...]
    cells: KeyClass | None


Array = Floats | Callable[[], Floats]  # or how to compute it


class Later:
    """Array field that may be set to a function, which is called at the first access.

    Match shares and upper bounds are computed over all sampled rows, and of most messages only the factor is needed.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Floats:
        if instance is None:
            raise AttributeError(self._name)  # there is no default
        fields = vars(instance)
        if callable(fields[self._name]):
            fields[self._name] = fields[self._name]()
        array: Floats = fields[self._name]
        return array

    def __set__(self, instance: object, value: Array) -> None:
        vars(instance)[self._name] = value


@dataclass(frozen=True, eq=False)
class KeyVector:
    """Rows of a relation by the cells of one of its keys. All arrays have the shape (cells.count,).

    rows: expected rows.
    ndv: expected number of different keys.
    domain: number of possible keys, in any member of the class.
    largest: upper bound of the rows of one key.
    upper: upper bound of the rows.
    """

    cells: KeyClass
    rows: Floats
    ndv: Later = Later()
    domain: Floats  # type: ignore[misc]  # what is computed later has no default either
    largest: Later = Later()
    upper: Later = Later()


@dataclass(frozen=True, slots=True, eq=False)
class KeyRows:
    """Rows of a relation in a sample that was drawn by their key. All arrays have the shape (keys,).

    share: probability of a key without a cell of its own to be drawn.
    line: places of the sampled keys, increasing.
    chance: hash of each key, 0..1; keys with a hash below ``share`` are drawn.
    rows: rows of each key.
    """

    share: float
    line: Floats
    chance: Floats
    rows: Floats


@dataclass(frozen=True, eq=False)
class Message:
    """Effect of a join on the rows of one side. Arrays: shape (cells.count,), or (1,) for a key without a class.

    key: columns of that side.
    factor: expected matches per row of a cell.
    match_share: share of a cell's keys with a match, 0..1.
    upper: largest number of matches per row.
    null: factor of rows whose key is NULL.
    effective_rows: effective sample size behind the message; infinite if no sample is partial.
    """

    key: Key
    factor: Floats
    match_share: Later = Later()
    upper: Later = Later()
    null: float = 0.0
    effective_rows: float = math.inf

    @property
    def later(self) -> tuple[Callable[[], Floats], Callable[[], Floats]]:
        """Return functions for ``match_share`` and ``upper``, for a message that changes neither."""
        return lambda: self.match_share, lambda: self.upper

    def of(self, key: Key) -> Message:
        """Return the message with another relation's key."""
        return Message(key, self.factor, *self.later, null=self.null, effective_rows=self.effective_rows)

    @property
    def tells_cells_apart(self) -> bool:
        """Tell whether its arrays have an entry per cell."""
        return self.key.cells is not None


def expected_distinct(ndv: Floats | float, rows: Floats | float, share: Floats | float) -> Floats | float:
    """Return the expected NDV of a share of the rows: d (1 - (1 - s)^(n / d)).

    Every value is assumed to have n / d rows; Yao, "Approximating Block Accesses in Database Organizations", 1977.
    """
    if (share.min(initial=1.0) if isinstance(share, np.ndarray) else share) >= 1.0:
        return ndv
    with np.errstate(divide="ignore", invalid="ignore"):
        rows_per_value = np.where(np.asarray(ndv) > 0.0, np.asarray(rows) / np.maximum(ndv, 1e-9), 0.0)
        distinct = ndv * -np.expm1(rows_per_value * np.log1p(-np.clip(share, 0.0, 1.0 - 1e-12)))
    return np.minimum(distinct, ndv) if isinstance(ndv, np.ndarray) else float(min(float(distinct), ndv))


def distinct_of(ndv: Floats, rows: Floats, share: Floats) -> Floats:
    """Return ``expected_distinct`` of arrays."""
    distinct = expected_distinct(ndv, rows, share)
    assert isinstance(distinct, np.ndarray)
    return distinct


def added(a: KeyVector, b: KeyVector) -> KeyVector:
    """Return the rows of two relations together, whose keys are assumed independent."""
    domain = np.maximum(a.domain, b.domain)

    def ndv() -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            shared = np.where(domain > 0.0, a.ndv * b.ndv / domain, 0.0)
        return np.minimum(domain, a.ndv + b.ndv - shared)

    return KeyVector(a.cells, a.rows + b.rows, ndv, domain, lambda: a.largest + b.largest, lambda: a.upper + b.upper)


def applied(
    spread: KeyVector, factor: Floats, match_share: Callable[[], Floats], upper: Callable[[], Floats]
) -> KeyVector:
    """Return a relation's rows after a join. factor, match_share, upper: as in ``Message``."""
    rows = spread.rows * factor

    def most() -> Floats:
        return np.where(factor > 0.0, np.maximum(upper(), 0.0), 0.0)

    return KeyVector(
        spread.cells,
        rows,
        lambda: distinct_of(spread.ndv, spread.rows, match_share()),
        spread.domain,
        lambda: spread.largest * most(),
        lambda: np.maximum(spread.upper * most(), rows),
    )


def scaled(spread: KeyVector, share: float) -> KeyVector:
    """Return the same share of every cell's rows; it may be more than 1."""
    rows, part = spread.rows * share, np.full(spread.rows.shape, min(1.0, share))

    def ndv() -> Floats:
        return distinct_of(spread.ndv, spread.rows, part)

    return KeyVector(spread.cells, rows, ndv, spread.domain, lambda: spread.largest, lambda: spread.upper)


def weighted_mean(values: Floats, weights: Floats) -> float:
    """Return the mean of values, and the plain one where all weights are 0."""
    whole = float(weights.sum())
    return float((values * weights).sum()) / whole if whole > 0.0 else float(values.mean())
