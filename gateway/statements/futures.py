"""Futures that belong to one statement, which is to go once nobody needs it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class ReleasingFuture(Future[T]):
    """A future that lets go of each callback once it was called.

    ``Future`` keeps them. A callback that refers to what the future belongs to so holds all of that, a statement with
    its rows and its plan, until the next full garbage collection.
    """

    def add_done_callback(self, fn: Callable[[Future[T]], Any]) -> None:
        """Have something called with this future once it is done, or now if it is."""
        waiting = [fn]
        super().add_done_callback(lambda done: waiting.pop()(done))
