"""Hive's own column statistics: its Thrift objects to ours and back.

Which of the union's seven kinds holds a column follows from its type; Hive and Impala agree, and keep timestamps as
whole seconds among the integers. In all of them -1, or nothing, stands for unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from selector.statistics import ColumnStatistics, CommonValues
from selector.types import Group, kind_named
from sql.tables import Column

MICROSECONDS = 1_000_000
LONG_MAX = 2**63 - 1


class Unreadable(ValueError):
    """A column's statistics say too little, or something else than its type; the message says what."""


def kind_of(data_type: str) -> str:
    """Return the class of a type: types of a class have the same statistics, such as ``int`` and ``bigint``."""
    named_kind = kind_named(data_type.lower())
    if named_kind is None:
        name = data_type.lower().partition("(")[0].partition("<")[0].strip()
        return "nested" if name in _NESTED else name
    return _ALIKE.get(named_kind.row.group, named_kind.value)


_NESTED = ("uniontype", "nested")
_ALIKE: Mapping[Group, str] = {
    Group.WHOLE: "whole number",
    Group.FLOATING: "floating point",
    Group.TEXT: "string",
    Group.MOMENT: "timestamp",
    Group.NESTED: "nested",
    Group.VARIANT: "nested",
}

_FIELDS = {
    **dict.fromkeys(("whole number", "timestamp"), "longStats"),
    **{"floating point": "doubleStats", "decimal": "decimalStats", "date": "dateStats"},
    **{"boolean": "booleanStats", "string": "stringStats", "binary": "binaryStats"},
}


def from_hive(hive_object: Any, column: Column) -> ColumnStatistics:
    """Read a ColumnStatisticsObj. Raises Unreadable."""
    kind = kind_of(column.data_type)
    if kind not in _READERS:
        raise Unreadable(f"Hive keeps no statistics of {column.data_type}")
    data = getattr(hive_object.statsData, _FIELDS[kind])
    if data is None:
        raise Unreadable(f"Hive's statistics are not of {column.data_type}")
    return _READERS[kind](column, data)


def to_hive(types: Any, column: ColumnStatistics, hive_type: str, rows: int) -> Any:
    """Write a ColumnStatisticsObj. types: the module of the Thrift classes; rows: of the table. Raises Unreadable."""
    kind = kind_of(hive_type)
    if kind not in _WRITERS:
        raise Unreadable(f"Hive keeps no statistics of {hive_type}")
    data = types.ColumnStatisticsData(**{_FIELDS[kind]: _WRITERS[kind](types, column, rows)})
    return types.ColumnStatisticsObj(colName=column.name.lower(), colType=hive_type, statsData=data)


def _require_known(count: int | None, what: str) -> int:
    if count is None or count < 0:
        raise Unreadable(f"Hive does not know its {what}")
    return count


def _numeric(value: Callable[[Any], float]) -> Callable[[Column, Any], ColumnStatistics]:
    def read(column: Column, data: Any) -> ColumnStatistics:
        ends = [value(end) if end is not None else None for end in (data.lowValue, data.highValue)]
        minimum, maximum = (end if end is not None and math.isfinite(end) else None for end in ends)
        return ColumnStatistics(
            name=column.name,
            data_type=column.data_type,
            nulls=_require_known(data.numNulls, "nulls"),
            ndv=float(_require_known(data.numDVs, "distinct values")),
            minimum=minimum,
            maximum=maximum,
        )

    return read


def _read_boolean(column: Column, data: Any) -> ColumnStatistics:
    counts = {1.0: _require_known(data.numTrues, "true values"), 0.0: _require_known(data.numFalses, "false values")}
    held = sorted((value for value, rows in counts.items() if rows), key=lambda value: -counts[value])
    return ColumnStatistics(
        name=column.name,
        data_type=column.data_type,
        nulls=_require_known(data.numNulls, "nulls"),
        ndv=float(len(held)),
        minimum=min(held, default=None),
        maximum=max(held, default=None),
        common=CommonValues(np.array(held), np.array([counts[value] for value in held], dtype=np.int64)),
    )


def _read_string(column: Column, data: Any) -> ColumnStatistics:
    return ColumnStatistics(
        name=column.name,
        data_type=column.data_type,
        nulls=_require_known(data.numNulls, "nulls"),
        ndv=float(_require_known(data.numDVs, "distinct values")),
        average_length=_length(data.avgColLen),
        maximum_length=_length(data.maxColLen),
    )


def _length(length: Any) -> Any:
    return length if length is not None and length >= 0 else None


def _read_decimal(value: Any) -> float:
    return float(Decimal(int.from_bytes(value.unscaled, "big", signed=True)).scaleb(-value.scale))


_READERS: dict[str, Callable[[Column, Any], ColumnStatistics]] = {
    "whole number": _numeric(float),
    "timestamp": _numeric(lambda seconds: float(seconds * MICROSECONDS)),
    "floating point": _numeric(float),
    "decimal": _numeric(_read_decimal),
    "date": _numeric(lambda date: float(date.daysSinceEpoch)),
    "boolean": _read_boolean,
    "string": _read_string,
}


def _ends(column: ColumnStatistics) -> tuple[float | None, float | None]:
    """Return minimum and maximum where they are numbers that Hive can hold."""
    low, high = (
        end if isinstance(end, float | int) and math.isfinite(end) else None for end in (column.minimum, column.maximum)
    )
    return low, high


def _counts(column: ColumnStatistics) -> dict[str, int]:
    return {"numNulls": column.nulls, "numDVs": round(column.ndv)}


def _write_long(types: Any, column: ColumnStatistics, rows: int) -> Any:
    low, high = (None if end is None else max(-LONG_MAX, min(LONG_MAX, int(end))) for end in _ends(column))
    return types.LongColumnStatsData(lowValue=low, highValue=high, **_counts(column))


def _write_timestamp(types: Any, column: ColumnStatistics, rows: int) -> Any:
    low, high = _ends(column)
    return types.LongColumnStatsData(
        lowValue=None if low is None else math.floor(low / MICROSECONDS),
        highValue=None if high is None else math.ceil(high / MICROSECONDS),
        **_counts(column),
    )


def _write_double(types: Any, column: ColumnStatistics, rows: int) -> Any:
    low, high = _ends(column)
    return types.DoubleColumnStatsData(lowValue=low, highValue=high, **_counts(column))


def _write_decimal(types: Any, column: ColumnStatistics, rows: int) -> Any:
    low, high = (None if end is None else _decimal(types, end) for end in _ends(column))
    return types.DecimalColumnStatsData(lowValue=low, highValue=high, **_counts(column))


def _decimal(types: Any, value: float) -> Any:
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * 10 ** max(0, exponent) * (-1 if sign else 1)
    size = unscaled.bit_length() // 8 + 1
    return types.Decimal(unscaled=unscaled.to_bytes(size, "big", signed=True), scale=max(0, -exponent))


def _write_date(types: Any, column: ColumnStatistics, rows: int) -> Any:
    low, high = (None if end is None else types.Date(daysSinceEpoch=int(end)) for end in _ends(column))
    return types.DateColumnStatsData(lowValue=low, highValue=high, **_counts(column))


def _write_string(types: Any, column: ColumnStatistics, rows: int) -> Any:
    return types.StringColumnStatsData(**_lengths(column), **_counts(column))


def _write_binary(types: Any, column: ColumnStatistics, rows: int) -> Any:
    return types.BinaryColumnStatsData(**_lengths(column), numNulls=column.nulls)


def _lengths(column: ColumnStatistics) -> dict[str, Any]:
    if column.average_length is None or column.maximum_length is None:
        if column.ndv > 0:
            raise Unreadable("its lengths are not known")
        return {"avgColLen": 0.0, "maxColLen": 0}
    return {"avgColLen": column.average_length, "maxColLen": column.maximum_length}


def _write_boolean(types: Any, column: ColumnStatistics, rows: int) -> Any:
    values = rows - column.nulls
    if column.common is not None:
        trues = int(column.common.rows[column.common.values == 1.0].sum())
    elif column.histogram is not None:
        trues = round(values * (1.0 - column.histogram.share_below(1.0)))
    elif column.ndv <= 1:
        trues = values if column.maximum == 1.0 else 0
    else:
        raise Unreadable("how many are true is not known")
    return types.BooleanColumnStatsData(numTrues=trues, numFalses=values - trues, numNulls=column.nulls)


_WRITERS: dict[str, Callable[[Any, ColumnStatistics, int], Any]] = {
    "whole number": _write_long,
    "timestamp": _write_timestamp,
    "floating point": _write_double,
    "decimal": _write_decimal,
    "date": _write_date,
    "boolean": _write_boolean,
    "string": _write_string,
    "binary": _write_binary,
}
