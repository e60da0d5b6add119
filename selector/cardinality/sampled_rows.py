"""Sampled rows that filters keep, and what joins do to each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import numpy as np

from selector.cardinality.join_messages import Floats, Message
from selector.cardinality.keys.classes import KeyClass, Places
from selector.cardinality.predicates.vectors import Bools, every_row
from selector.row_sample import RowSample

MOST_KEPT = 64  # arrays of a number per row
Part = Literal["factor", "kept", "upper"]
_Asked = TypeVar("_Asked")
_Known = TypeVar("_Known")


class SampledRows:
    """Rows of one sample of a table. rows: shape (kept,), which of them filters keep."""

    def __init__(self, sample: RowSample, mask: Bools) -> None:
        """Keep rows. mask: shape (sample.rows,)."""
        self.sample = sample
        self.mask = mask
        self.is_all = bool(mask.all())
        self.rows = every_row(mask.size)[1] if self.is_all else np.flatnonzero(mask)
        self._codes: dict[tuple[int, tuple[str, ...]], tuple[KeyClass, Places]] = {}
        self._held: dict[tuple[int, tuple[str, ...]], tuple[KeyClass, Places]] = {}
        self._told: dict[tuple[Part, int], tuple[Message, Floats]] = {}
        self._products: dict[tuple[Part, tuple[int, ...]], tuple[Sequence[Message], Floats]] = {}

    def codes(self, cells: KeyClass, names: tuple[str, ...]) -> Places:
        """Return the cells of the kept rows' keys, shape (kept,). names: of the key's columns."""
        asked = id(cells), names
        if asked not in self._codes:
            self._codes[asked] = cells, cells.codes(self.sample, names, None if self.is_all else self.rows)
        return self._codes[asked][1]

    def held(self, cells: KeyClass, names: tuple[str, ...]) -> Places:
        """Return how many of the kept rows lie in each cell, shape (cells.count,). names: of the key's columns."""
        asked = id(cells), names
        if asked not in self._held:
            self._held[asked] = cells, self.summed(cells, names).astype(np.intp)
        return self._held[asked][1]

    def summed(self, cells: KeyClass, names: tuple[str, ...], values: Floats | None = None) -> Floats:
        """Return the sum of some values of the kept rows, 1 if not told, over each cell, shape (cells.count,).

        values: shape (kept,).
        """
        return np.bincount(self.codes(cells, names), values, minlength=cells.count + 1)[:-1].astype(np.float64)

    def holds(self, names: Sequence[str]) -> bool:
        """Return whether columns were sampled."""
        return all(name in self.sample.columns for name in names)

    def factors(self, messages: Sequence[Message]) -> Floats:
        """Return by what messages multiply each row, shape (kept,)."""
        return self._product(messages, "factor")

    def chances(self, messages: Sequence[Message]) -> Floats:
        """Return the chance of each row to be left by messages, shape (kept,)."""
        return self._product(messages, "kept")

    def uppers(self, messages: Sequence[Message]) -> Floats:
        """Return the most by which messages may multiply each row, shape (kept,)."""
        return self._product(messages, "upper")

    def _product(self, messages: Sequence[Message], part: Part) -> Floats:
        asked = part, tuple(map(id, messages))
        if asked not in self._products:
            each = [self._of_rows(message, part) for message in messages]
            found = np.ones(self.rows.size) if not each or each[0].ndim == 0 else each[0]
            for number, values in enumerate(each):
                if number or not values.ndim:
                    found = found * values
            _remember(self._products, asked, (tuple(messages), found))
        return self._products[asked][1]

    def _of_rows(self, message: Message, part: Part) -> Floats:
        """Return what a message says of each row, shape (kept,); shape () where it says the same of all."""
        asked = part, id(message)
        if asked not in self._told:
            values: Floats = getattr(message, part)
            names = tuple(column.name for column in message.key.columns)
            if message.key.cells is None or not self.holds(names):
                found = np.asarray(values.mean())
            else:
                null = message.null if part != "kept" else min(1.0, message.null)
                found = np.append(values, null)[self.codes(message.key.cells, names)]
            _remember(self._told, asked, (message, found))
        return self._told[asked][1]


def _remember(known: dict[_Asked, _Known], asked: _Asked, found: _Known) -> None:
    """Keep what was computed, and no more than the last MOST_KEPT of it."""
    if len(known) >= MOST_KEPT:
        del known[next(iter(known))]
    known[asked] = found
