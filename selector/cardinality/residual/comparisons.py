"""Comparisons of values of two relations, by the ranks that their sampled values have among each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from selector.cardinality.keys.classes import Places
from selector.cardinality.predicates.selectivity import RANGE_SHARE
from selector.cardinality.relation import Scanned

Floats = NDArray[np.float64]

PRIOR_ROWS = 0.5  # so many sampled rows is what the form of a comparison is worth
_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Sampled rows of one side of a comparison. rows, values, weights: shape (n,), weights with the sum 1.

    present: share of the side's rows that are not NULL.
    """

    base: Scanned
    rows: Places
    values: NDArray[Any]
    weights: Floats
    present: float


def compared(
    comparison: type[exp.Expr], left: Side, right: Side, cells: tuple[Places, Places] | None
) -> tuple[float, float] | None:
    """Return the share of pairs of rows for which a comparison holds, and of those without NULL; None without any.

    cells: of each side's rows, where only rows of the same cell meet; else all do, as if they were independent.
    """
    if left.values.dtype != right.values.dtype or not left.values.size or not right.values.size:
        return None
    ranks = _ranks(np.concatenate([left.values, right.values]))
    mine, theirs = ranks[: left.values.size], ranks[left.values.size :]
    wide = int(ranks.max(initial=0)) + 2
    starts = np.zeros(mine.size, dtype=np.int64)
    if cells is not None:
        starts, mine, theirs = cells[0] * wide, cells[0] * wide + mine, cells[1] * wide + theirs
    order = np.argsort(theirs, kind="stable")
    ordered = theirs[order]
    sums = np.append(0.0, np.cumsum(right.weights[order]))
    first, last = (sums[np.searchsorted(ordered, starts + end)] for end in (0, wide))
    met = float((left.weights * (last - first)).sum())
    if met <= 0.0:
        return None
    below, up_to = (
        float((left.weights * (sums[np.searchsorted(ordered, mine, side=side)] - first)).sum()) / met for side in _SIDES
    )
    holds: dict[type[exp.Expr], float] = {
        exp.LT: 1.0 - up_to,
        exp.LTE: 1.0 - below,
        exp.GT: below,
        exp.GTE: up_to,
        exp.EQ: up_to - below,
        exp.NEQ: 1.0 - up_to + below,
    }
    kept = holds[comparison]
    rows = float(min(left.values.size, right.values.size))
    kept = (kept * rows + PRIOR_ROWS * RANGE_SHARE) / (rows + PRIOR_ROWS)
    present = left.present * right.present
    return kept * present, present


def _ranks(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the place of each value among the different ones, shape as ``values``."""
    if values.dtype != object:
        return np.unique(values, return_inverse=True)[1].astype(np.int64)
    texts = values.tolist()  # there are fewer different strings than strings to be sorted
    place = {text: number for number, text in enumerate(sorted(set(texts)))}
    return np.fromiter((place[text] for text in texts), dtype=np.int64, count=len(texts))
