"""Waiting for what other threads and processes bring about."""

from __future__ import annotations

import time
from collections.abc import Callable

WITHIN_S = 60.0


def wait_until(happened: Callable[[], bool], what: str = "it", within_s: float = WITHIN_S) -> None:
    """Wait for something to happen. what: says so where it does not."""
    give_up_s = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < give_up_s, f"not within {within_s:g} s: {what}"
        time.sleep(0.02)
