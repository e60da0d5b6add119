"""Join keys learned from queries: each pair of joined columns is recorded once in the metastore."""

from __future__ import annotations

import datetime as dt
import threading

from cachetools import LRUCache

from engines.compiled import CompiledStatement
from metastore.store import Metastore
from selector.join_keys import KeyPair
from sql.names import base_name

FINGERPRINTS = 4_096


class JoinLearner:
    """Learns from statements that run. Thread-safe; each fingerprint is read once, each pair written once."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore
        self._read: LRUCache[str, None] = LRUCache(FINGERPRINTS)
        self._recorded: set[KeyPair] = set()
        self._lock = threading.Lock()

    def learn(self, statement: CompiledStatement) -> None:
        """Record the joins of a statement."""
        with self._lock:
            if statement.fingerprint in self._read:
                return
            self._read[statement.fingerprint] = None
        with self._lock:
            new = {pair for pair in statement.joined if not _is_of_snapshot(pair)} - self._recorded
        if new:
            self._metastore.keys.learn(new, source="history", at=dt.datetime.now(dt.UTC))
            with self._lock:
                self._recorded |= new


def _is_of_snapshot(pair: KeyPair) -> bool:
    """Return True if a pair names an older snapshot of a table, which the catalog does not have."""
    return any(base_name(column.table) != column.table for column in (pair.left, pair.right))
