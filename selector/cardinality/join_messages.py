"""A relation's rows over the cells of a key class, and what joins tell each other about them.

What a join does to one side is a ``Message``: by what factor the rows of each cell grow, which part of their keys meets
anything at all. A table passes messages on to its other keys by the rows of its samples, each of which meets its own
cell of every key; so a tree of joins is a product of vectors (belief propagation on a factor graph, as FactorJoin has
it; Wu et al., SIGMOD 2023).
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

LEAST = 1e-9  # nothing is divided by less


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """Columns of a relation that are joined together, over the cells of their class; None where there is none."""

    columns: tuple[PlanColumn, ...]
    cells: KeyClass | None


Array = Floats | Callable[[], Floats]  # or how to compute it


class Later:
    """An array that may be given as a function, which is called when somebody asks for the first time.

    How many keys a join leaves and how many rows at most are computations over all sampled rows, and most messages are
    only asked for expected rows.
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
    """A relation's rows by the cells of one of its keys.

    rows, ndv, largest, upper: shape (cells.count,): expected rows, different keys, the most rows that one key may have,
    and an upper bound of the rows. domain: different keys that there may be, in any member of the class.
    """

    cells: KeyClass
    rows: Floats
    ndv: Later = Later()
    domain: Floats  # type: ignore[misc]  # what is computed later has no default either
    largest: Later = Later()
    upper: Later = Later()


@dataclass(frozen=True, slots=True, eq=False)
class KeyRows:
    """Rows of a relation that were sampled by their key.

    share: chance of a key that has no cell for itself. line, chance: shape (keys,), increasing places of sampled keys,
    and the number by which each was chosen. rows: shape (keys,), how many rows the relation has of each.
    """

    share: float
    line: Floats
    chance: Floats
    rows: Floats


@dataclass(frozen=True, eq=False)
class Message:
    """What a join does to the rows of one side.

    key: of that side. factor, kept, upper: shape (cells.count,), or (1,) where the key has no class: by what the rows
    of a cell are multiplied, which share of its keys meets anything, the largest factor. null: for rows without a key.
    told: sampled rows that stand behind it; infinite where nothing was sampled in part.
    """

    key: Key
    factor: Floats
    match_share: Later = Later()
    upper: Later = Later()
    null: float = 0.0
    effective_rows: float = math.inf

    @property
    def later(self) -> tuple[Callable[[], Floats], Callable[[], Floats]]:
        """Return how to compute what is kept, and the largest factor."""
        return lambda: self.match_share, lambda: self.upper

    def of(self, key: Key) -> Message:
        """Return the same about another relation's key."""
        return Message(key, self.factor, *self.later, null=self.null, effective_rows=self.effective_rows)

    @property
    def tells_cells_apart(self) -> bool:
        """Tell whether its arrays have an entry per cell."""
        return self.key.cells is not None


def expected_distinct(ndv: Floats | float, rows: Floats | float, share: Floats | float) -> Floats | float:
    """Return the different values that are expected among a share of the rows: d (1 - (1 - s)^(n / d)).

    Every value is taken to have n / d rows; Yao, "Approximating Block Accesses in Database Organizations", 1977.
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
    """Return the rows of two relations together; which keys both have is a matter of chance."""
    domain = np.maximum(a.domain, b.domain)

    def ndv() -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            shared = np.where(domain > 0.0, a.ndv * b.ndv / domain, 0.0)
        return np.minimum(domain, a.ndv + b.ndv - shared)

    return KeyVector(a.cells, a.rows + b.rows, ndv, domain, lambda: a.largest + b.largest, lambda: a.upper + b.upper)


def applied(
    spread: KeyVector, factor: Floats, match_share: Callable[[], Floats], upper: Callable[[], Floats]
) -> KeyVector:
    """Return a relation's rows after a join. factor, kept, upper: as in ``Message``."""
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
    """Return a share of a relation's rows, which may be more than 1, as many of each cell."""
    rows, part = spread.rows * share, np.full(spread.rows.shape, min(1.0, share))

    def ndv() -> Floats:
        return distinct_of(spread.ndv, spread.rows, part)

    return KeyVector(spread.cells, rows, ndv, spread.domain, lambda: spread.largest, lambda: spread.upper)


def weighted_mean(values: Floats, weights: Floats) -> float:
    """Return the mean of values, and the plain one where all weights are 0."""
    whole = float(weights.sum())
    return float((values * weights).sum()) / whole if whole > 0.0 else float(values.mean())
