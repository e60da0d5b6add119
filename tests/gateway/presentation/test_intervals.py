"""Intervals as texts, and in JSON."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from gateway.presentation.values.json_values import json_column
from gateway.presentation.values.plain_columns import day_time, year_month

DAY_S = 86_400


@pytest.mark.parametrize(
    ("count", "per_s", "text"),
    [
        (DAY_S + 7_384, 1, "1 02:03:04.000000000"),
        (-1, 1_000_000_000, "-0 00:00:00.000000001"),
        (1_500, 1_000, "0 00:00:01.500000000"),
        (-(2**63), 1_000_000, "-106751991 04:00:54.775808000"),
    ],
)
def test_days(count: int, per_s: int, text: str) -> None:
    assert day_time(count, per_s) == text


def test_months() -> None:
    assert [year_month(months) for months in (14, -1, 0, -(2**31))] == ["1-2", "-0-1", "0-0", "-178956970-8"]


def test_json_has_the_same_texts() -> None:
    days, months = dt.timedelta(days=1, hours=2), pa.MonthDayNano([-14, 0, 0])
    assert json_column(pa.array([{"x": [days, None], "m": months}])) == [
        {"x": ["1 02:00:00.000000000", None], "m": "-1-2"}
    ]
