"""What a column really holds, as Spark SQL and plain counting tell it, and how near its statistics must come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from selector.statistics import TEXT_KEY_BYTES, ColumnStatistics
from statsproc.read.scan import quoted
from statsproc.sketches.column_summary import is_text
from statsproc.sketches.distinct import KEPT
from statsproc.sketches.histogram import CROWDED, POINTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RANK_ERROR = 1 / POINTS  # of the rows of each chunk, and therefore of all rows
TEXT_RANK_ERROR = 1 / CROWDED  # strings that agree in a word
NDV_ERROR = 5 / np.sqrt(KEPT)  # five standard errors
_LINE = {
    "boolean": "cast({0} as int)",
    "date": "unix_date({0})",
    "timestamp": "unix_micros({0})",
    "timestamp_ntz": "unix_micros(cast({0} as timestamp))",
}


@dataclass(frozen=True)
class Truth:
    """A column. values: those that are not NULL, as floats of the type's line or as bytes."""

    rows: int
    values: list[Any]

    @property
    def nulls(self) -> int:
        return self.rows - len(self.values)

    @property
    def ndv(self) -> int:
        """NaN is one value, and both zeros are one."""
        return len({"nan" if value != value else value for value in self.values})

    @property
    def ordered(self) -> NDArray[Any]:
        """Values on the line in order, NaN last; strings cut as keys are."""
        if self.values and isinstance(self.values[0], bytes):
            return np.sort(np.array([value[:TEXT_KEY_BYTES] for value in self.values], dtype=f"S{TEXT_KEY_BYTES}"))
        return np.sort(np.array(self.values, dtype=np.float64))


def truths_of(rows: DataFrame) -> dict[str, Truth]:
    """Have Spark put all columns on their types' lines."""
    types = dict(rows.dtypes)
    found = rows.selectExpr(*(f"{_line(name, kind)} AS {quoted(name)}" for name, kind in types.items())).toArrow()
    return {name: Truth(found.num_rows, found.column(name).drop_null().to_pylist()) for name in types}


def _line(name: str, data_type: str) -> str:
    """Write a column's place on the line; decimals come whole and are turned to floats here."""
    column = quoted(name)
    if is_text(data_type):
        return f"cast({column} as binary)"
    return _LINE.get(data_type, "{0}").format(column)


def check_column(
    found: ColumnStatistics,
    truth: Truth,
    *,
    rank_error: float = RANK_ERROR,
    ndv_error: float = NDV_ERROR,
) -> None:
    """Compare with the truth; equal where equality is promised, within the stated errors elsewhere."""
    where = f"{found.name} {found.data_type}"
    assert found.nulls == truth.nulls, where
    if truth.ndv <= KEPT:
        assert found.ndv == truth.ndv, where
    else:
        assert found.ndv == pytest.approx(truth.ndv, rel=ndv_error), where
    texts = bool(truth.values) and isinstance(truth.values[0], bytes)
    if texts:
        lengths = [len(value) for value in truth.values]
        assert found.average_length == pytest.approx(sum(lengths) / len(lengths)), where
        assert found.maximum_length == max(lengths), where
    else:
        assert (found.average_length, found.maximum_length) == (None, None), where
    ordered = truth.ordered
    finite = ordered if texts else ordered[np.isfinite(ordered)]
    if found.data_type == "binary" or not finite.size:
        assert (found.minimum, found.maximum, found.histogram, found.common) == (None,) * 4, where
        return
    if texts:
        ends = [end(truth.values).decode("utf-8", "replace") for end in (min, max)]
        assert [found.minimum, found.maximum] == ends, where
    else:
        assert [found.minimum, found.maximum] == pytest.approx([finite[0], finite[-1]], rel=1e-15, abs=0.0), where
    check_histogram(found, ordered, rank_error=max(rank_error, TEXT_RANK_ERROR) if texts else rank_error)
    check_common(found, ordered, exact=truth.ndv <= POINTS)


def check_histogram(found: ColumnStatistics, ordered: NDArray[Any], *, rank_error: float) -> None:
    """Compare the shares at every end point with counted ones."""
    assert found.histogram is not None
    ends: NDArray[Any] = found.histogram.endpoints
    size = ordered.size
    shares = (found.histogram.below, found.histogram.up_to)
    for share, side in zip(shares, ("left", "right"), strict=True):
        assert share is not None
        if ends.dtype.kind == "S":
            truth = np.searchsorted(ordered, ends, side=side) / size  # type: ignore[call-overload]
            np.testing.assert_allclose(share, truth, atol=rank_error + 1e-9, err_msg=found.name)
        else:  # a decimal's value may be off in the last bit
            with np.errstate(over="ignore"):
                lower, higher = ends - np.abs(ends) * 1e-15, ends + np.abs(ends) * 1e-15
            low = np.searchsorted(ordered, lower, side=side) / size  # type: ignore[call-overload]
            high = np.searchsorted(ordered, higher, side=side) / size  # type: ignore[call-overload]
            assert np.all(share >= low - rank_error - 1e-9), found.name
            assert np.all(share <= high + rank_error + 1e-9), found.name


def check_common(found: ColumnStatistics, ordered: NDArray[Any], *, exact: bool) -> None:
    """Compare the rows of common values with counted ones."""
    if found.common is None:
        return
    assert np.all(np.diff(found.common.rows) <= 0)
    counted: Callable[[Any], int] = Counter(ordered.tolist()).__getitem__
    for value, rows in zip(found.common.values.tolist(), found.common.rows.tolist(), strict=True):
        if isinstance(value, float):  # a decimal's value may be off in the last bit
            value = _nearest(ordered, value)
        real = counted(value)
        assert rows == real if exact else abs(rows - real) <= 1 + ordered.size * RANK_ERROR * 2, found.name


def _nearest(ordered: NDArray[Any], value: float) -> float:
    at = int(np.searchsorted(ordered, value))
    around: list[float] = ordered[max(0, at - 1) : at + 1].tolist()
    return min(around, key=lambda other: abs(other - value))


def line(values: Sequence[Any]) -> Truth:
    """Take values that are on the line already; None is NULL."""
    return Truth(len(values), [value for value in values if value is not None])
