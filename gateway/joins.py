"""What queries teach about keys: which columns are joined, learned once and told to the metastore."""

from __future__ import annotations

import datetime as dt
import threading
from collections import OrderedDict

from gateway.sql.statement import CheckedStatement
from metastore.store import Metastore
from selector.joins import join_pairs
from selector.keys import KeyPair

FINGERPRINTS = 4_096


def joined_columns(statement: CheckedStatement) -> tuple[KeyPair, ...]:
    """Return the pairs of stored columns that a statement joins."""
    columns = {table.name: frozenset(column.name.lower() for column in table.columns) for table in statement.tables}
    return join_pairs(statement.tree, columns)


class JoinLearner:
    """Learns from statements that run. Thread-safe; each fingerprint is read once, each pair written once."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore
        self._read: OrderedDict[str, None] = OrderedDict()
        self._known: set[KeyPair] = set()
        self._lock = threading.Lock()

    def learn(self, statement: CheckedStatement) -> None:
        """Keep what a statement joins."""
        with self._lock:
            if statement.fingerprint in self._read:
                return
            self._read[statement.fingerprint] = None
            if len(self._read) > FINGERPRINTS:
                self._read.popitem(last=False)
        pairs = joined_columns(statement)
        with self._lock:
            new = set(pairs) - self._known
        if new:
            self._metastore.keys.learn(new, source="history", at=dt.datetime.now(dt.UTC))
            with self._lock:
                self._known |= new
