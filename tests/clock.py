"""A clock that tests set, for one module alone: servers of other tests go by the real one, in threads of their own."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest


def set_clock(monkeypatch: pytest.MonkeyPatch, module: ModuleType, monotonic: Callable[[], float]) -> None:
    """Have a module that imports ``time`` for its monotonic clock alone see another one."""
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic))
