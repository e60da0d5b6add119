"""Statistics of tables: the values that a statistics job writes and the estimator reads.

Histograms, minima and maxima live on one number line per type, so that every comparison is one of floats:
numbers as they are, booleans as 0 and 1, dates as days since 1970-01-01, timestamps as microseconds since
then (UTC). ``as_number`` takes a literal there. Strings have a line of their own: their first bytes, UTF-8, in byte
order, as engines compare them; ``as_text_key`` takes a string there.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selector.join_keys import KeyStatistics
from selector.row_sample import RowSample
from selector.wording import EPOCH, EPOCH_DATE, MICROSECOND

TEXT_KEY_BYTES = 32  # strings that agree in so many bytes count as one value of a histogram
MOST_TEXT_BYTES = 256  # and in so many as one value of a sample

BOUNDS_SOURCE = "bounds"
"""Source of statistics that follow from the bounds in a lake table's log."""

Keys = NDArray[np.float64] | NDArray[np.bytes_]

Key = float | bytes  # a place on a column's line
Literal = bool | int | float | str | Decimal | dt.date | dt.datetime


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Equi-height: every bucket holds the same share of the non-null rows.

    endpoints: shape (buckets + 1,), float64 or, of strings, ``S32``; non-decreasing; a popular value repeats, as in
        the paper's Figure 5: [8, 23, 23, 23, 27, 45].
    below, up_to: shape (buckets + 1,), the shares of rows strictly below and at most each endpoint. Where a
        builder does not count them they follow from the endpoints' ranks, as in the paper; counted ones
        remove the error of a whole bucket that a popular value makes there, and let a builder make every value of
        a column with few of them an endpoint. NaN and infinities count as rows above all endpoints.
    """

    endpoints: Keys
    below: NDArray[np.float64] | None = None
    up_to: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if self.endpoints.ndim != 1 or self.endpoints.size < 2:
            raise ValueError("a histogram needs at least one bucket, that is two endpoints")
        if self.endpoints.dtype.kind == "f" and not np.all(np.isfinite(self.endpoints)):
            raise ValueError("endpoints must be finite")
        if np.any(self.endpoints[1:] < self.endpoints[:-1]):  # type: ignore[operator]
            raise ValueError("endpoints must not decrease")
        if (self.below is None) != (self.up_to is None):
            raise ValueError("below and up_to come together")
        if self.below is None or self.up_to is None:
            ranks = np.arange(self.endpoints.size, dtype=np.float64) / self.buckets
            first = np.searchsorted(self.endpoints, self.endpoints, side="left")
            last = np.searchsorted(self.endpoints, self.endpoints, side="right") - 1
            object.__setattr__(self, "below", ranks[first])
            object.__setattr__(self, "up_to", ranks[last])
        elif self.below.shape != self.endpoints.shape or self.up_to.shape != self.endpoints.shape:
            raise ValueError("below and up_to must have the shape of endpoints")

    @property
    def buckets(self) -> int:
        """Tell how many buckets there are."""
        return int(self.endpoints.size) - 1

    def share_below(self, x: Key) -> float:
        """Share of non-null rows < x; between two endpoints it is interpolated."""
        return self._share(x, inclusive=False)

    def share_up_to(self, x: Key) -> float:
        """Share of non-null rows <= x."""
        return self._share(x, inclusive=True)

    def _share(self, x: Key, *, inclusive: bool) -> float:
        assert self.below is not None
        assert self.up_to is not None
        right = int(np.searchsorted(self.endpoints, x, side="left"))
        if right == self.endpoints.size:
            return float(self.up_to[-1])
        if self.endpoints[right] == x:
            return float(self.up_to[right] if inclusive else self.below[right])
        if right == 0:
            return 0.0
        start, end = self.up_to[right - 1], self.below[right]
        return float(start + (end - start) * way_between(self.endpoints[right - 1], self.endpoints[right], x))


@dataclass(frozen=True, slots=True, eq=False)
class CommonValues:
    """The most common values of a column, most common first.

    values: shape (n,), on the column's line: float64, or ``S32`` for strings. rows: shape (n,), int64, how many rows
    hold each of them: exact in a column of few values, else short by at most 1 / 8192 of the table's rows; scaled up
    where a build read a share.
    """

    values: Keys
    rows: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.values.shape != self.rows.shape or self.values.ndim != 1:
            raise ValueError("each common value needs its number of rows")


@dataclass(frozen=True, slots=True, eq=False)
class ColumnStatistics:
    """One column of one build.

    data_type: Spark's short form. nulls: rows. ndv: distinct values without NULL.
    minimum, maximum: on the type's number line, or text for strings; None where every row is NULL.
    average_length, maximum_length: bytes of strings and binary values (UTF-8), without NULLs.
    manual: names of the fields that a person set; they hold until the next build.
    """

    name: str
    data_type: str
    nulls: int
    ndv: float
    minimum: float | str | None = None
    maximum: float | str | None = None
    average_length: float | None = None
    maximum_length: int | None = None
    histogram: Histogram | None = None
    common: CommonValues | None = None
    manual: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class TableStatistics:
    """One build of one table's statistics.

    version: grows by one with each published build. bytes, files: of the table's data files.
    row_group_rows: rows of the largest Parquet row group, None for other formats.
    share: of the table that was read, 0..1; counts are scaled up from it. notes: what was left out, in words.
    keys: by column, for columns that are joined. manual: as for columns, ``rows`` is the only field.
    source: who built it: ``spark`` (this project's job), ``hive`` (ANALYZE, read from Hive's metastore), ``manual``,
        BOUNDS_SOURCE.
    """

    table: str
    version: int
    rows: int
    bytes: int
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)
    row_group_rows: int | None = None
    built_at: dt.datetime | None = None
    source: str = "spark"
    files: int = 0
    share: float = 1.0
    notes: tuple[str, ...] = ()
    manual: frozenset[str] = frozenset()
    sample: RowSample | None = None
    keys: Mapping[str, KeyStatistics] = field(default_factory=dict)


def as_text_key(text: str) -> bytes:
    """Put a string on the line of strings, where histograms know the beginnings of longer ones."""
    return text.encode("utf-8")[:MOST_TEXT_BYTES].rstrip(b"\0")


def way_between(low: Any, high: Any, x: Any) -> float:
    """Return how far x lies between two places of a line, 0..1."""
    if isinstance(low, bytes):
        common = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
        low, high, x = (_fraction(key[common:]) for key in (low, high, x))
        return float(min(1.0, max(0.0, (x - low) / (high - low)))) if high > low else 0.5
    return float((x / 2 - low / 2) / (high / 2 - low / 2))  # halves: no overflow


def _fraction(key: bytes) -> float:
    return int.from_bytes(key[:8].ljust(8, b"\0"), "big") / 2.0**64


def as_key(value: Literal, data_type: str) -> Key | None:
    """Put a literal on the line of a column's type; None if it has no place there."""
    if data_type == "string":
        return as_text_key(value) if isinstance(value, str) else None
    return as_number(value, data_type)


def as_number(value: Literal, data_type: str) -> float | None:
    """Put a literal on the number line of a column's type; None if it has no place there."""
    try:
        if data_type == "date":
            return float((_as_date(value) - EPOCH_DATE).days)
        if data_type.startswith("timestamp"):
            return float((_as_datetime(value) - EPOCH) / MICROSECOND)
        if isinstance(value, str) or not isinstance(value, dt.date):
            number = float(Decimal(value) if isinstance(value, str) else value)
            return number if np.isfinite(number) else None
    except (ValueError, InvalidOperation, TypeError, OverflowError):
        return None
    return None


def _as_datetime(value: Literal) -> dt.datetime:
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value.strip())
    if isinstance(value, dt.datetime):
        return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    raise TypeError(f"{value!r} is not a time")


def _as_date(value: Literal) -> dt.date:
    return _as_datetime(value).date()
