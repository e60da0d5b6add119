"""Where the time goes: calls that are watched while a real gateway serves real requests."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any


class Stopwatch:
    """Adds up what each stage takes ITSELF, without the watched calls inside it. Thread-safe."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()
        self._thread = threading.local()

    @contextmanager
    def watching(self, watched: Sequence[tuple[object, str, str]]) -> Iterator[None]:
        """Watch calls for as long as this lasts: (object, class or module; name of the function there; stage)."""
        with ExitStack() as stack:
            for owner, name, stage in watched:
                stack.enter_context(self._watched(owner, name, stage))
            yield

    @contextmanager
    def _watched(self, owner: object, name: str, stage: str) -> Iterator[None]:
        function = getattr(owner, name)
        own = name in vars(owner)  # else it is the class's, seen through an instance

        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            with self._time(stage):
                return function(*arguments, **options)

        setattr(owner, name, timed)
        try:
            yield
        finally:
            if own:
                setattr(owner, name, function)
            else:
                delattr(owner, name)

    @contextmanager
    def _time(self, stage: str) -> Iterator[None]:
        inner: list[float] = self._thread.__dict__.setdefault("inner", [])  # of the calls that this thread is in
        inner.append(0.0)
        begun = time.perf_counter()
        try:
            yield
        finally:
            elapsed_s = time.perf_counter() - begun
            itself_s = elapsed_s - inner.pop()
            if inner:
                inner[-1] += elapsed_s
            with self._lock:
                self.seconds[stage] = self.seconds.get(stage, 0.0) + itself_s
