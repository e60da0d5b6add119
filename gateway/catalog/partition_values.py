"""Values of partition folders, read by the type of their column: ``p=01`` and ``p=1`` are the same partition.

A constant of a statement is read in the same way, as Spark's CAST reads it before it names the folder.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from metastore.discovery.inspection import DEFAULT_PARTITION
from selector.types import Group, parse

_DAY = re.compile(r"(\d{4})(?:-(\d{1,2}))?(?:-(\d{1,2}))?(?:[ T](.*))?")
_TRUTHS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}


def value_of(text: str | None, data_type: str) -> object:
    """Return a value that is equal for all texts of one partition, None for NULL; where nothing fits, the text."""
    if text is None or text == DEFAULT_PARTITION:
        return None
    if data_type == "string":
        return text or None  # Spark names both folders alike
    try:
        return _read(text.strip(), data_type)
    except (ValueError, OverflowError, InvalidOperation):
        return text


def _read(text: str, data_type: str) -> object:
    column_type = parse(data_type)
    match column_type.kind.row.group:
        case Group.WHOLE:
            return int(text)
        case Group.FLOATING:
            number = float(text)
            return "NaN" if math.isnan(number) else number
        case Group.BOOLEAN:
            return _TRUTHS.get(text.lower(), text)
        case Group.DATE:
            return _time(text).date()
        case Group.MOMENT:
            return _time(text)
        case Group.DECIMAL:
            return Decimal(text).quantize(Decimal(1).scaleb(-(column_type.scale or 0)), ROUND_HALF_UP)
    return text


def _time(text: str) -> dt.datetime:
    """Read a moment whose end may be left out, in UTC."""
    day = _DAY.fullmatch(text)
    if day is None:
        raise ValueError(text)
    year, month, date = (int(part or 1) for part in day.groups()[:3])
    clock = dt.time.fromisoformat(day.group(4) or "00:00")
    time = dt.datetime.combine(dt.date(year, month, date), clock)
    try:
        return time.astimezone(dt.UTC).replace(tzinfo=None) if time.tzinfo else time
    except OverflowError as error:  # it has no date in UTC
        raise ValueError(text) from error
