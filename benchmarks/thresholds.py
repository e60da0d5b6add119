"""Constants to compare a column with: over its whole range, none of them twice."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence


def spread(values: Sequence[float], count: int, *, seed: int) -> list[float]:
    """Choose a value out of each of ``count`` quantiles of a column's DIFFERENT values, in order.

    Quantiles of the rows would leave the rare values out, where a relative error is largest, and would choose a
    popular one several times. Fewer values than that are all chosen.
    """
    distinct = sorted(set(values))
    if len(distinct) <= count:
        return distinct
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    ends = [len(distinct) * quantile // count for quantile in range(count + 1)]
    return [distinct[chance.randrange(low, high)] for low, high in itertools.pairwise(ends)]
