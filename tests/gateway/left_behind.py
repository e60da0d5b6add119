"""What statements leave in memory once nobody refers to them, before the garbage collector comes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.statements.statement import Run
from tests.waiting import wait_until


def _statements() -> list[Run]:
    return [each for each in gc.get_objects() if isinstance(each, Run)]


@contextmanager
def nothing_left() -> Iterator[None]:
    """Assert that of the statements that run meanwhile nothing is left, without a garbage collection."""
    before = _statements()
    gc.disable()
    try:
        yield
        wait_until(lambda: all(each in before for each in _statements()), "the statements are gone", within_s=20.0)
    finally:
        gc.enable()
