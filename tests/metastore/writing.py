"""Writing into the query log step by step, each of them durable before the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metastore.repositories.queries import Queries


class AtOnce:
    """What a ``QueryWriter`` writes, for tests that read it back."""

    def __init__(self, queries: Queries) -> None:
        self._writer = queries.writer

    def __getattr__(self, step: str) -> Callable[..., bool]:
        def written(*arguments: Any, **options: Any) -> bool:
            return self._writer.wait(getattr(self._writer, step)(*arguments, **options))

        return written


def at_once(queries: Queries) -> AtOnce:
    """Return what writes steps and waits for each."""
    return AtOnce(queries)
