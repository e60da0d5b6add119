"""A dictionary of bounded size, from which the entry goes that was used longest ago."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """At most ``size`` entries; reading one with ``get``, or setting it, counts as its use. Not thread-safe."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def get(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]
        """Return a value, and note that it was used."""
        if key not in self:
            return default
        self.move_to_end(key)
        return self[key]

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._size:
            self.popitem(last=False)
