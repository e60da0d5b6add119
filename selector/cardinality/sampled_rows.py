"""Surviving sampled rows of a scan, and the effect of joins on each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import numpy as np

from selector.cardinality.join_messages import Floats, Message
from selector.cardinality.keys.classes import KeyClass, Places
from selector.cardinality.predicates.vectors import Bools, every_row
from selector.row_sample import RowSample

MOST_CACHED = 64  # arrays with a number per row, per cache
Part = Literal["factor", "match_share", "upper"]
_CacheKey = TypeVar("_CacheKey")
_CacheValue = TypeVar("_CacheValue")


class SampledRows:
    """Rows of a table's sample that survive the filters of a scan.

    mask: shape (sample.rows,), True for surviving rows.
    rows: shape (surviving rows,), their numbers.
    """

    def __init__(self, sample: RowSample, mask: Bools) -> None:
        """Select the rows of a mask, shape (sample.rows,)."""
        self.sample = sample
        self.mask = mask
        self.is_all = bool(mask.all())
        self.rows = every_row(mask.size)[1] if self.is_all else np.flatnonzero(mask)
        self._codes: dict[tuple[int, tuple[str, ...]], tuple[KeyClass, Places]] = {}
        self._held: dict[tuple[int, tuple[str, ...]], tuple[KeyClass, Places]] = {}
        self._row_values: dict[tuple[Part, int], tuple[Message, Floats]] = {}
        self._products: dict[tuple[Part, tuple[int, ...]], tuple[Sequence[Message], Floats]] = {}

    def codes(self, cells: KeyClass, names: tuple[str, ...]) -> Places:
        """Return the cell of each row's key, shape (surviving rows,). names: of the key's columns."""
        cache_key = id(cells), names
        if cache_key not in self._codes:
            self._codes[cache_key] = cells, cells.codes(self.sample, names, None if self.is_all else self.rows)
        return self._codes[cache_key][1]

    def held(self, cells: KeyClass, names: tuple[str, ...]) -> Places:
        """Return the number of rows in each cell, shape (cells.count,). names: of the key's columns."""
        cache_key = id(cells), names
        if cache_key not in self._held:
            self._held[cache_key] = cells, self.summed(cells, names).astype(np.intp)
        return self._held[cache_key][1]

    def summed(self, cells: KeyClass, names: tuple[str, ...], values: Floats | None = None) -> Floats:
        """Return the sum of values over the rows of each cell, shape (cells.count,).

        values: shape (surviving rows,); None: 1 for each row.
        """
        return np.bincount(self.codes(cells, names), values, minlength=cells.count + 1)[:-1].astype(np.float64)

    def holds(self, names: Sequence[str]) -> bool:
        """Return whether the sample has all the columns."""
        return all(name in self.sample.columns for name in names)

    def factors(self, messages: Sequence[Message]) -> Floats:
        """Return the product of the messages' factors for each row, shape (surviving rows,)."""
        return self._product(messages, "factor")

    def chances(self, messages: Sequence[Message]) -> Floats:
        """Return the probability of each row to have a match in all joins, shape (surviving rows,)."""
        return self._product(messages, "match_share")

    def uppers(self, messages: Sequence[Message]) -> Floats:
        """Return the upper bound of ``factors``, shape (surviving rows,)."""
        return self._product(messages, "upper")

    def _product(self, messages: Sequence[Message], part: Part) -> Floats:
        cache_key = part, tuple(map(id, messages))
        if cache_key not in self._products:
            row_values = [self._of_rows(message, part) for message in messages]
            product = np.ones(self.rows.size) if not row_values or row_values[0].ndim == 0 else row_values[0]
            for number, values in enumerate(row_values):
                if number or not values.ndim:
                    product = product * values
            _remember(self._products, cache_key, (tuple(messages), product))
        return self._products[cache_key][1]

    def _of_rows(self, message: Message, part: Part) -> Floats:
        """Return one array of a message by rows, shape (surviving rows,); shape () if it is the same for all."""
        cache_key = part, id(message)
        if cache_key not in self._row_values:
            values: Floats = getattr(message, part)
            names = tuple(column.name for column in message.key.columns)
            if message.key.cells is None or not self.holds(names):
                row_values = np.asarray(values.mean())
            else:
                null = message.null if part != "match_share" else min(1.0, message.null)
                row_values = np.append(values, null)[self.codes(message.key.cells, names)]
            _remember(self._row_values, cache_key, (message, row_values))
        return self._row_values[cache_key][1]


def _remember(cache: dict[_CacheKey, _CacheValue], cache_key: _CacheKey, value: _CacheValue) -> None:
    """Cache a value, and drop the oldest one beyond MOST_CACHED."""
    if len(cache) >= MOST_CACHED:
        del cache[next(iter(cache))]
    cache[cache_key] = value
