"""Which columns are joined with which, and how the keys of each group are cut into bins."""

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
    """What was learned about joins, once from any source, and the newest bins of each key group."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def learn(self, pairs: Iterable[KeyPair], *, source: str, at: dt.datetime) -> int:
        """Keep pairs of joined columns; returns how many were new. source: "declared", "history" or "workload"."""
        told = set(pairs)
        if told <= set(self.pairs()):
            return 0  # as for most statements: nothing to write, nobody to wait for
        with Session(self._engine) as session, session.begin():
            wait_for_writers(session)
            new = sorted(told - _pairs(session))
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
        """Return all pairs in order, each with where it was learned from first."""
        with Session(self._engine) as session:
            rows = session.scalars(select(KeyPairRow))
            return dict(sorted((_pair(row), row.source) for row in rows))

    def forget(self, pair: KeyPair) -> bool:
        """Forget a pair; returns whether it was there."""
        with Session(self._engine) as session, session.begin():
            gone = session.execute(delete(KeyPairRow).filter_by(**_place(pair)).returning(KeyPairRow.source))
            return gone.first() is not None

    def bins(self) -> dict[str, Bins]:
        """Return the newest bins of every key group, by its name."""
        with Session(self._engine) as session:
            rows = session.scalars(select(KeyGroupRow).order_by(KeyGroupRow.name))
            return {row.name: encoding.bins_of(row.starts, group=row.name, version=row.version) for row in rows}

    def put_bins(self, bins: Bins) -> Bins:
        """Replace the bins of a key group; returns them with the version they were given, one up from the last."""
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
