"""Statistics of a table from the bounds that its log has of each file, before any job has computed others.

Between the bounds of a file its rows are taken to lie evenly, so that a histogram follows from the files' ranges. Where
each file has one value, as in partition columns, all is exact. The distinct values of other columns are those of the
table's sketches (Iceberg's Puffin files), where its writer made some. Without them, numbers, dates and times are taken
to have as many as rows and range allow, and columns of strings and floating-point numbers have no statistics.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engines.files.manifest import distinct_values
from engines.files.pruning import LEAST, MOST, NULLS, typed_bounds
from selector.statistics import (
    BOUNDS_SOURCE,
    ColumnStatistics,
    CommonValues,
    Histogram,
    Keys,
    TableStatistics,
    as_text_key,
)
from sql.tables import TableSource

BUCKETS = 254
MOST_COMMON = 254
_KEPT = 256


def bounds_statistics(table: TableSource) -> TableStatistics | None:
    """Return the statistics of a snapshot's files; None: the log does not tell the rows. Raises OSError."""
    if table.snapshot is None:
        return None
    return _statistics(table.snapshot.manifest, table.name, tuple((one.name, one.data_type) for one in table.columns))


@lru_cache(_KEPT)
def _statistics(manifest: str, name: str, columns: tuple[tuple[str, str], ...]) -> TableStatistics | None:
    with pa.memory_map(manifest) as source:
        files = pa.ipc.open_file(source).read_all()
    if files["rows"].null_count:
        return None
    deleted = pc.fill_null(pc.list_value_length(files["deleted"]), 0).to_numpy()
    stored = files["rows"].to_numpy()
    rows = stored - deleted
    distinct = distinct_values(files)
    described = {
        column: statistics
        for column, data_type in columns
        if (statistics := _column(files, column, data_type, stored, rows, distinct.get(column))) is not None
    }
    size = int(pc.sum(files["bytes"]).as_py() or 0)
    return TableStatistics(name, 0, int(rows.sum()), size, described, source=BOUNDS_SOURCE, files=len(files))


def _column(
    files: pa.Table,
    name: str,
    data_type: str,
    stored: NDArray[np.int64],
    rows: NDArray[np.int64],
    distinct: float | None,
) -> ColumnStatistics | None:
    """Return statistics of a column; None: the log does not tell enough.

    stored, rows: of each file, with and without those that are deleted. distinct: values of all files of the table.
    """

    def of_sketch(empty: int) -> ColumnStatistics | None:
        if distinct is None:
            return None
        return ColumnStatistics(name, data_type, empty, min(distinct, float(rows.sum() - empty)))

    key = name.lower()
    if LEAST + key not in files.column_names or NULLS + key not in files.column_names:
        return of_sketch(0)
    nulls = files[NULLS + key]
    if nulls.null_count:
        return of_sketch(0)
    share = np.divide(nulls.to_numpy(), stored, out=np.zeros(len(stored)), where=stored > 0)
    filled = np.rint(rows * (1.0 - np.minimum(1.0, share))).astype(np.int64)
    least, most = typed_bounds(files, LEAST + key), typed_bounds(files, MOST + key)
    is_known = pc.and_(pc.is_valid(least), pc.is_valid(most)).to_numpy()
    total, empty = int(filled.sum()), int(rows.sum() - filled.sum())
    if np.any(~is_known & (filled > 0)):
        return of_sketch(empty)
    if total == 0:
        return ColumnStatistics(name, data_type, empty, 0.0)
    has_rows = filled > 0
    filled = filled[has_rows]
    low, high = (_keys(side.filter(pa.array(has_rows))) for side in (least, most))
    if low is None or high is None:
        return of_sketch(empty)
    if np.array_equal(low, high):
        return _of_constants(name, data_type, empty, low, filled)
    if low.dtype.kind != "f":
        return of_sketch(empty)
    begins, ends = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    if np.any(begins > ends):  # whoever wrote them was wrong
        return None
    histogram = _histogram(begins, ends, filled)
    step = 10.0**-least.type.scale if pa.types.is_decimal(least.type) else 1.0
    first, last = float(begins.min()), float(ends.max())
    ndv = min(float(total), (last - first) / step + 1.0, np.inf if distinct is None else distinct)
    return ColumnStatistics(name, data_type, empty, ndv, first, last, histogram=histogram)


def _of_constants(name: str, data_type: str, empty: int, keys: Keys, filled: NDArray[np.int64]) -> ColumnStatistics:
    """Return statistics of a column that has one value in each file; they are exact. empty: rows with NULL."""
    values: Any
    values, of_value = np.unique(keys, return_inverse=True)
    rows = np.bincount(of_value, weights=filled).astype(np.int64)
    up_to = np.cumsum(rows) / rows.sum()
    below = up_to - rows / rows.sum()
    places = _spread(up_to)
    if values.size == 1:
        places = np.array([0, 0])
    histogram = Histogram(values[places], below[places], up_to[places])
    order = np.argsort(-rows, kind="stable")[:MOST_COMMON]
    common = CommonValues(values[order], rows[order])
    first, last = values[0], values[-1]
    ends = (first.decode(errors="replace"), last.decode(errors="replace")) if isinstance(first, bytes) else None
    minimum, maximum = ends if ends is not None else (float(first), float(last))
    return ColumnStatistics(
        name, data_type, empty, float(values.size), minimum, maximum, histogram=histogram, common=common
    )


def _histogram(low: NDArray[np.float64], high: NDArray[np.float64], rows: NDArray[np.int64]) -> Histogram:
    """Return the histogram of files whose rows lie evenly between ``low`` and ``high``."""
    points = np.unique(np.concatenate((low, high)))
    begins, ends = np.searchsorted(points, low), np.searchsorted(points, high)
    is_point = begins == ends
    at_point = np.bincount(begins[is_point], weights=rows[is_point], minlength=points.size)
    density = np.divide(rows, high - low, out=np.zeros(rows.size), where=~is_point)
    change = np.bincount(begins[~is_point], weights=density[~is_point], minlength=points.size)
    change -= np.bincount(ends[~is_point], weights=density[~is_point], minlength=points.size)
    within = np.cumsum(change)[:-1] * np.diff(points)  # rows between two points
    up_to = np.cumsum(at_point) + np.concatenate(([0.0], np.cumsum(np.maximum(0.0, within))))
    total = up_to[-1]
    places = _spread(up_to / total)
    below = (up_to - at_point) / total
    return Histogram(points[places], np.clip(below[places], 0.0, 1.0), np.clip(up_to[places] / total, 0.0, 1.0))


def _spread(up_to: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return places of so many endpoints as a histogram has, at equal heights. up_to: shares of rows."""
    if up_to.size <= BUCKETS + 1:
        return np.arange(up_to.size)
    wanted = np.searchsorted(up_to, np.linspace(0.0, 1.0, BUCKETS + 1))
    return np.unique(np.concatenate(([0], np.minimum(wanted, up_to.size - 1), [up_to.size - 1])))


def _keys(values: pa.ChunkedArray) -> Keys | None:
    """Return values on their column's line (``selector.statistics``); None: the type has none."""
    kind = values.type
    if pa.types.is_string(kind):
        return np.array([as_text_key(text) for text in values.to_pylist()], dtype="S32")
    if pa.types.is_date(kind):
        numbers = values.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        numbers = values.cast(pa.timestamp("us")).cast(pa.int64())
    elif pa.types.is_decimal(kind):
        numbers = values.cast(pa.float64())
    elif pa.types.is_integer(kind):
        numbers = values
    else:
        return None
    return np.asarray(numbers.to_numpy(), dtype=np.float64)  # of large numbers the nearest; a cast would refuse them
