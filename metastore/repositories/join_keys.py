"""Pairs of columns that are joined, and the bins of each key group."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import Engine, delete, insert, select
from sqlalchemy.orm import Session

from metastore.database import encoding
from metastore.database.models import KeyGroupRow, KeyPairRow
from metastore.repositories.catalog import wait_for_writers
from selector.join_keys import Bins, ColumnRef, KeyPair


class Keys:
    """Join keys, each stored once with its first source, and the newest bins of each key group."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def learn(self, pairs: Iterable[KeyPair], *, source: str, at: dt.datetime) -> int:
        """Store pairs of joined columns. Returns the number of new ones.

        source: "declared", "history" or "workload".
        """
        learned = set(pairs)
        if learned <= set(self.pairs()):
            return 0  # most statements: no write, no wait for other writers
        with Session(self._engine) as session, session.begin():
            wait_for_writers(session)
            new = sorted(learned - _pairs(session))
            if new:
                session.execute(
                    insert(KeyPairRow), [_place(pair) | {"source": source, "learned_at": at} for pair in new]
                )
            return len(new)

    def pairs(self) -> tuple[KeyPair, ...]:
        """Return all pairs in order."""
        with Session(self._engine) as session:
            return tuple(sorted(_pairs(session)))

    def sources(self) -> dict[KeyPair, str]:
        """Return all pairs in order, each with its first source."""
        with Session(self._engine) as session:
            rows = session.scalars(select(KeyPairRow))
            return dict(sorted((_pair(row), row.source) for row in rows))

    def forget(self, pair: KeyPair) -> bool:
        """Forget a pair. Returns False if there is none."""
        with self._engine.begin() as connection:
            return connection.execute(delete(KeyPairRow).filter_by(**_place(pair))).rowcount > 0

    def bins(self) -> dict[str, Bins]:
        """Return the newest bins of every key group, by its name."""
        with Session(self._engine) as session:
            rows = session.scalars(select(KeyGroupRow).order_by(KeyGroupRow.name))
            return {row.name: encoding.bins_of(row.starts, group=row.name, version=row.version) for row in rows}

    def put_bins(self, bins: Bins) -> Bins:
        """Replace the bins of a key group. Returns them with the next version."""
        if not bins.group:
            raise ValueError("bins need their group's name")
        with Session(self._engine) as session, session.begin():
            wait_for_writers(session)
            row = session.get(KeyGroupRow, bins.group)
            put = replace(bins, version=row.version + 1 if row is not None else 1)
            session.merge(KeyGroupRow(name=put.group, version=put.version, starts=encoding.bins_blob(put)))
            return put


def _pairs(session: Session) -> set[KeyPair]:
    return {_pair(row) for row in session.scalars(select(KeyPairRow))}


def _pair(row: KeyPairRow) -> KeyPair:
    return KeyPair(ColumnRef(row.left_table, row.left_column), ColumnRef(row.right_table, row.right_column))


def _place(pair: KeyPair) -> dict[str, str]:
    return {
        "left_table": pair.left.table,
        "left_column": pair.left.column,
        "right_table": pair.right.table,
        "right_column": pair.right.column,
    }
