"""Columns of results as numbers, booleans, texts and bytes: the types that JSON, CSV and HiveServer2 can carry.

Whole columns are converted by Arrow's kernels. Python's dates are not used: they end at the years 1 and 9999, and
Spark's do not. docs/clients/README.md has the text of each type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engines.arrow_types import arrow_type, data_type

PLAIN = frozenset((pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.binary()))
"""Types of plain columns."""

NANOSECONDS = 1_000_000_000  # of a second
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": NANOSECONDS}
PLAIN_SCALE = 6  # Arrow writes decimals with more digits after the point as 1E-7 where they are small
DAY_S = 86_400
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, which Arrow writes as Spark does
_DAYS_TO_MARCH = 719_468  # from 0000-03-01 to 1970-01-01
_DAYS_OF_ERA, _YEARS_OF_ERA = 146_097, 400  # after which the calendar repeats

Texts = Callable[[pa.Array], pa.Array]


def plain(array: pa.Array, moments: Texts | None = None) -> pa.Array:
    """Return a column that is not nested as one of PLAIN.

    moments: writes dates, times of day and timestamps; None: as HiveServer2 sends them.
    """
    types = pa.types
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if types.is_dictionary(array.type) or types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array) if types.is_run_end_encoded(array.type) else array.dictionary_decode()
    kind = array.type
    if kind in PLAIN:
        return array
    if types.is_decimal(kind):
        return _decimals(array)
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
        return (moments or spark_moments)(array)
    if types.is_null(kind) or kind == pa.uint64():
        return array.cast(pa.string())
    if types.is_duration(kind):
        per_s = PER_SECOND[kind.unit]
        return _written(array.cast(pa.int64()), lambda count: day_time(count, per_s))
    if types.is_interval(kind):
        return _written(array, lambda value: year_month(value.months))
    target = arrow_type(data_type(kind))
    if target == pa.float32():
        target = pa.float64()
    return array.cast(target if target in PLAIN else pa.string())


def day_time(count: int, per_s: int) -> str:
    """Write an interval of days as Hive does: ``1 02:03:04.000000000``. count: of units; per_s: units in a second."""
    seconds, part = divmod(abs(count), per_s)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    nanoseconds = part * (NANOSECONDS // per_s)
    return f"{'-' if count < 0 else ''}{days} {hour:02}:{minute:02}:{second:02}.{nanoseconds:09}"


def year_month(months: int) -> str:
    """Write an interval of months as Hive does: ``1-2``."""
    years, rest = divmod(abs(months), 12)
    return f"{'-' if months < 0 else ''}{years}-{rest}"


def spark_moments(array: pa.Array) -> pa.Array:
    """Write dates and timestamps as Spark does: in UTC, with as many digits of a second as there are."""
    texts = moment_texts(array)
    if not pa.types.is_timestamp(array.type) or array.type.unit == "s":
        return texts
    return pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")


def moment_texts(array: pa.Array) -> pa.Array:
    """Write dates and times in UTC, with all digits that their unit has: ``+10000-01-01 00:00:00.000000``."""
    kind = array.type
    if pa.types.is_time(kind):
        return array.cast(pa.string())
    if not has_four_digit_years(array):
        return _of_any_year(*_counted(array))
    return array.cast(pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else pa.date32()).cast(pa.string())


def has_four_digit_years(array: pa.Array) -> bool:
    """Tell whether all dates or timestamps of a column are of the years 1 to 9999, which Arrow writes as Spark does."""
    counts, per_day = _counted(array)
    ends = pc.min_max(counts).as_py()
    if ends["min"] is None:
        return True
    return bool(FIRST_DAY * per_day <= ends["min"] and ends["max"] < (LAST_DAY + 1) * per_day)


def _counted(array: pa.Array) -> tuple[pa.Array, int]:
    """Return days, or parts of a day, since 1970; and the number of parts in a day."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return array.cast(pa.int64()), DAY_S * PER_SECOND[kind.unit]
    return array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), 1


def _of_any_year(counts: pa.Array, per_day: int) -> pa.Array:
    """Write dates and times of any year, which has a sign behind 9999. counts: days since 1970, or parts of them."""
    values = counts.fill_null(0).to_numpy(zero_copy_only=False)
    days, parts = np.divmod(values, per_day)
    eras, day_of_era = np.divmod(days + _DAYS_TO_MARCH, _DAYS_OF_ERA)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)  # from March on
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = np.where(month < 10, month + 3, month - 9)
    year = year_of_era + eras * _YEARS_OF_ERA + (month <= 2)
    rows = zip(year.tolist(), month.tolist(), day.tolist(), parts.tolist(), counts.is_valid().to_pylist(), strict=True)
    per_s = per_day // DAY_S
    return pa.array(
        [
            f"{_year(y)}-{m:02}-{d:02}{_clock(part, per_s) if per_s else ''}" if is_valid else None
            for y, m, d, part, is_valid in rows
        ],
        pa.string(),
    )


def _year(year: int) -> str:
    return f"+{year}" if year > 9_999 else f"-{-year:04}" if year < 0 else f"{year:04}"


def _clock(part: int, per_s: int) -> str:
    seconds, fraction = divmod(part, per_s)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    digits = f".{fraction:0{len(str(per_s)) - 1}}" if per_s > 1 else ""
    return f" {hour:02}:{minute:02}:{second:02}{digits}"


def _written(array: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else write(value) for value in array.to_pylist()], pa.string())


def _decimals(array: pa.Array) -> pa.Array:
    """Write decimals with all the digits after the point that their type has."""
    scale = array.type.scale
    if 0 <= scale <= PLAIN_SCALE:
        return array.cast(pa.string())
    if scale < 0:
        return array.cast(pa.decimal256(76, 0)).cast(pa.string())
    if not (pa.types.is_decimal128(array.type) or pa.types.is_decimal256(array.type)):
        array = array.cast(pa.decimal128(array.type.precision, scale))
    whole = (pa.decimal256 if array.type.bit_width == 256 else pa.decimal128)(array.type.precision, 0)
    unscaled = pa.Array.from_buffers(whole, len(array), array.buffers(), offset=array.offset).cast(pa.string())
    sign = pc.if_else(pc.starts_with(unscaled, "-"), "-", "")
    digits = pc.ascii_lpad(pc.ascii_ltrim(unscaled, "-"), scale + 1, "0").cast(pa.binary())
    before, after = pc.binary_slice(digits, 0, -scale), pc.binary_slice(digits, -scale)
    return pc.binary_join_element_wise(sign, before.cast(pa.string()), ".", after.cast(pa.string()), "")
