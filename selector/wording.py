"""Bytes, seconds and probabilities as sentences have them."""

from __future__ import annotations

import datetime as dt

EPOCH_DATE = dt.date(1970, 1, 1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)
MIB = 1 << 20


def mebibytes(count: int) -> str:
    """Write bytes for people."""
    return f"{count / MIB:,.0f} MiB" if count >= 10 * MIB else f"{count / MIB:,.1f} MiB"


def seconds_of(seconds: float) -> str:
    """Write seconds for people."""
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2f} s"


def percent(share: float) -> str:
    """Write a probability for people: nothing is certain."""
    if share >= 0.995:
        return "more than 99 %"
    return "less than 1 %" if share < 0.01 else f"{100 * share:.0f} %"
