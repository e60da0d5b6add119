"""Whole rows of a table, sampled: each column's different values, and which of them each row holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_SHORT_CODES = 1 << 16  # different values that codes of two bytes tell apart


@dataclass(frozen=True, slots=True, eq=False)
class SampleColumn:
    """One column of a row sample, its different values numbered.

    values: shape (n,), different, increasing: float64 on the type's line, or objects of type ``str`` (whole, up to 256
    characters) for strings. codes: shape (rows,), unsigned: where each row's value stands in ``values``; n for NULL.
    """

    values: NDArray[np.float64] | NDArray[np.object_]
    codes: NDArray[np.uint16] | NDArray[np.uint32]

    @classmethod
    def of(cls, values: NDArray[np.float64] | NDArray[np.object_], nulls: NDArray[np.bool_]) -> SampleColumn:
        """Return the column of some rows: shape (rows,); of NULLs ``values`` may hold anything."""
        there: Any = values[~nulls]
        known, places = np.unique(there, return_inverse=True)
        codes: Any = np.full(nulls.size, known.size, dtype=np.uint16 if known.size < MOST_SHORT_CODES else np.uint32)
        codes[~nulls] = places
        return cls(known, codes)

    @property
    def nulls(self) -> NDArray[np.bool_]:
        """Whether each row is NULL, shape (rows,)."""
        missing: NDArray[np.bool_] = self.codes == self.values.size
        return missing

    @property
    def rows(self) -> NDArray[np.float64] | NDArray[np.object_]:
        """The value of each row, shape (rows,); of NULLs anything."""
        return self.padded[self.codes]

    @property
    def padded(self) -> NDArray[np.float64] | NDArray[np.object_]:
        """The different values and one that stands for NULL, shape (n + 1,)."""
        text = self.values.dtype == object
        return np.append(self.values, "" if text else 0.0).astype(object if text else np.float64)

    @property
    def held(self) -> NDArray[np.intp]:
        """How many rows hold each value, and how many are NULL, shape (n + 1,)."""
        return np.bincount(self.codes, minlength=self.values.size + 1)


@dataclass(frozen=True, slots=True, eq=False)
class RowSample:
    """Whole rows, each of the table's taken with the same chance.

    share: that chance, 0..1. The rows of neighbouring row groups stand together, in the order of their file: a column
    whose values lie together there is told by it.
    """

    rows: int
    share: float
    columns: Mapping[str, SampleColumn]
