"""A relation's rows over the bins of a key, and what joins tell each other about them.

What a join does to its left side is a ``Message``: by what factor the rows of each bin grow, which part of them meets
anything at all. A message reaches the side's other keys through the counts of both keys together, so that a chain of
joins is a product of small matrices and no row is ever looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selector.join_keys import Bins, ConditionalCounts, KeyStatistics, association
from selector.plan import PlanColumn

Floats = NDArray[np.float64]

LEAST = 1e-9  # nothing is divided by less


@dataclass(frozen=True, slots=True, eq=False)
class KeyVector:
    """A relation's rows by the bins of one of its keys.

    rows, ndv, largest, upper: shape (bins,): expected rows, different keys, the most rows that one key may have, and
    an upper bound of the rows. domain: different keys before any filter or join.
    """

    bins: Bins
    rows: Floats
    ndv: Floats
    domain: Floats
    largest: Floats
    upper: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """What a join does to the rows of one side.

    column: of that side. factor, kept, upper: shape (bins,), or (1,) where nothing is known by bins: by what the rows
    of a bin are multiplied, which share of its keys meets anything, the largest factor. null: for rows without a key.
    bins: of the first three, None where they do not tell bins apart.
    """

    column: PlanColumn
    bins: Bins | None
    factor: Floats
    kept: Floats
    upper: Floats
    null: float = 0.0


def expected_distinct(ndv: Floats | float, rows: Floats | float, share: Floats | float) -> Floats | float:
    """Return the different values that are expected among a share of the rows: d (1 - (1 - s)^(n / d)).

    Every value is taken to have n / d rows; Yao, "Approximating Block Accesses in Database Organizations", 1977.
    """
    if (share.min(initial=1.0) if isinstance(share, np.ndarray) else share) >= 1.0:
        return ndv
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(np.asarray(ndv) > 0.0, np.asarray(rows) / np.maximum(ndv, 1e-9), 0.0)
        left = ndv * -np.expm1(each * np.log1p(-np.clip(share, 0.0, 1.0 - 1e-12)))
    return np.minimum(left, ndv) if isinstance(ndv, np.ndarray) else float(min(float(left), ndv))


def added(a: KeyVector, b: KeyVector) -> KeyVector:
    """Return the rows of two relations together; which keys both have is a matter of chance."""
    domain = np.maximum(a.domain, b.domain)
    with np.errstate(divide="ignore", invalid="ignore"):
        shared = np.where(domain > 0.0, a.ndv * b.ndv / domain, 0.0)
    ndv = np.minimum(domain, a.ndv + b.ndv - shared)
    return KeyVector(a.bins, a.rows + b.rows, ndv, domain, a.largest + b.largest, a.upper + b.upper)


def filtered(key: KeyStatistics, given: Floats) -> KeyVector:
    """Return the rows of a table by a key's bins. given: shape (bins,): the share that filters leave of each."""
    rows = key.rows * given
    ndv = expected_distinct(key.ndv, key.rows, given)
    assert isinstance(ndv, np.ndarray)
    return KeyVector(
        key.bins, rows, ndv, key.ndv, np.minimum(key.largest, key.rows), np.minimum(key.rows, np.ceil(rows))
    )


def applied(spread: KeyVector, factor: Floats, kept: Floats, upper: Floats) -> KeyVector:
    """Return a relation's rows after a join. factor, kept, upper: shape (bins,), as in ``Message``."""
    ndv = expected_distinct(spread.ndv, spread.rows, kept)
    assert isinstance(ndv, np.ndarray)
    most = np.where(kept > 0.0, np.maximum(upper, 0.0), 0.0)
    rows, largest, upper_rows = spread.rows * factor, spread.largest * most, spread.upper * most
    return KeyVector(spread.bins, rows, ndv, spread.domain, largest, upper_rows)


def carried(together: ConditionalCounts, message: Message, given: Floats) -> tuple[Floats, Floats, Floats]:
    """Carry a message from one key of a table to another, through the rows that hold both.

    given: what the table's filters leave of each bin of the message's key: it reaches those rows only.
    """
    weights = np.empty((4, given.size + 1))
    left, told = weights[0], weights[1:]
    left[:-1], left[-1] = given, given.mean()
    for part, (values, null) in zip(told, _parts(message), strict=True):
        part[:-1], part[-1] = values, null
    known = association(together)
    varied = _vary(told, left * known.rows)
    told *= left
    if known.tells_nothing_of(varied):
        held, *parts = (weights @ known.rows)[:, None]
    else:
        held, *parts = together.weighted(weights)
    whole = max(float(held.sum()), LEAST)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor, kept, upper = (np.where(held > 0.0, part / held, part.sum() / whole) for part in parts)
    return factor, np.clip(kept, 0.0, 1.0), np.maximum(upper, factor)


def _vary(values: Floats, weights: Floats) -> float:
    """Return the largest squared coefficient of variation of several values. values: shape (n, weights.size)."""
    whole = float(weights.sum())
    if whole <= 0.0:
        return 0.0
    means = np.maximum(values @ weights / whole, LEAST)
    return float((np.square(values / means[:, None] - 1.0) @ weights).max()) / whole


def _parts(message: Message) -> tuple[tuple[Floats, float], ...]:
    return (message.factor, message.null), (message.kept, min(1.0, message.null)), (message.upper, message.null)


def same_bins(a: Bins, b: Bins) -> bool:
    """Tell whether two vectors over these bins may be held against each other, bin by bin."""
    return a is b or (a.group == b.group and a.version == b.version and a.count == b.count and bool(a.group))


def weighted_mean(values: Floats, weights: Floats) -> float:
    """Return the mean of values, and the plain one where all weights are 0."""
    whole = float(weights.sum())
    return float((values * weights).sum()) / whole if whole > 0.0 else float(values.mean())
