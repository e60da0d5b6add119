"""Values as JSON can carry them exactly, for every interface that writes JSON."""

from __future__ import annotations

import base64
import datetime as dt
import math
from decimal import Decimal
from typing import Any

from pyarrow import MonthDayNano

from gateway.presentation.intervals import day_time, year_month

MICROSECOND, MICROSECONDS = dt.timedelta(microseconds=1), 1_000_000  # and how many a second has


def json_value(value: Any) -> Any:
    """Return one value as JSON can carry it exactly."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            return value.isoformat(sep=" ")
        case dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            return day_time(value // MICROSECOND, MICROSECONDS)
        case MonthDayNano():
            return year_month(value.months)
        case bytes():
            return base64.b64encode(value).decode()
        case list():
            return [json_value(item) for item in value]
        case tuple():
            return [json_value(item) for item in value]
        case dict():
            return {str(key): json_value(item) for key, item in value.items()}
        case _:
            return str(value)
