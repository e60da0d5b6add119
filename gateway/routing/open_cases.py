"""Templates that stay off an engine, since an answer of it differed from the dependable engine's."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from metastore.database.retry import retry
from metastore.query_log.parity import Parity

KEPT_S = 2.0  # until a case that another gateway found, or released, is known here


class OpenCases:
    """Open cases of the metastore, read again after a short time. Thread-safe."""

    def __init__(self, parity: Parity) -> None:
        self._parity = parity
        self._lock = threading.Lock()
        self._read_s = -KEPT_S
        self._cases: Mapping[tuple[str, str], str] = {}

    def of(self, engine: str, template: str) -> str | None:
        """Return the id of the query whose case keeps a template off an engine; None: there is none."""
        with self._lock:
            if time.monotonic() - self._read_s >= KEPT_S:
                self._cases, self._read_s = retry(self._parity.open_templates), time.monotonic()
            return self._cases.get((engine, template))

    def changed(self) -> None:
        """Have the cases read again at once."""
        with self._lock:
            self._read_s = -KEPT_S
