"""Items some at a time: databases take only so many parameters in a statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def batched(items: Iterable[Item], size: int) -> Iterator[tuple[Item, ...]]:
    """Yield items in tuples of at most this size."""
    rest = iter(items)
    while some := tuple(islice(rest, size)):
        yield some
