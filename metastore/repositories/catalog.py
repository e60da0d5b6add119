"""The catalog: which tables there are, where they lie and what they hold."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, or_, select, update
from sqlalchemy.orm import Session

from engines.protocol import Column, InvalidTable, TableSource
from engines.table_names import database_of
from metastore.database.annotations import decode_annotations, encode_annotations
from metastore.database.batches import batched
from metastore.database.models import (
    CatalogVersionRow,
    ColumnRow,
    DatabaseRow,
    KeyPairRow,
    PartitionRow,
    ScheduleRow,
    StatisticsPartRow,
    TableLockRow,
    TableRow,
    ViewRow,
)
from metastore.database.quick_reads import QuickReads
from metastore.records import NOT_ANNOTATED, Annotations, CatalogTable, Inspection, Partition
from selector.join_keys import ColumnRef, KeyPair

VERSION_ROW = 1
_VERSIONS = CatalogVersionRow.metadata.tables[CatalogVersionRow.__tablename__]
_VERSION = select(_VERSIONS.c.version, _VERSIONS.c.misestimates)
READ_AT_ONCE = 500  # tables

OwnerCheck = Callable[[str | None], None]
"""Hears who owns what is about to be changed, within the same transaction; what it raises keeps it as it is."""

Annotate = Callable[[Annotations], Annotations]
"""Makes what is said of a table or view from now on of what was said before."""


class AlreadyExists(Exception):
    """The name is taken, by a table or a view. Its argument is the name."""


class NoDatabase(LookupError):
    """A table or view would be made in a database that is not there. Its argument is the database."""


class TableHeld(Exception):
    """A statistics job works on a table that would get another name. Its argument is the name."""


class TableChanged(LookupError):
    """A table is no more what somebody has looked at."""

    def __init__(self, name: str) -> None:
        super().__init__(f"table {name} was dropped or registered in another way meanwhile: try again")


class Catalog:
    """Registered tables. Names are unique without regard to case and kept in lower case."""

    def __init__(self, engine: Engine, quick: QuickReads) -> None:
        self._engine = engine
        self._quick = quick
        self._lock = threading.Lock()
        self._read: dict[int, tuple[Row[Any], CatalogTable]] = {}  # by the table's id, with the row that it was read of

    def put(
        self,
        found: Inspection,
        *,
        at: dt.datetime,
        new: bool = False,
        instead_of: CatalogTable | None = None,
        owner: str | None = None,
        annotations: Annotations | None = None,
        check: OwnerCheck = lambda _: None,
    ) -> CatalogTable:
        """Register a table, or what is new about it.

        owner: of a new one. annotations: None for those that it has. check: hears the owner of one that is there.

        at: when the look at its files began. instead_of: the table that was looked at, which has to be there still;
        where a later look at it is on record already, that one stays. Without it, whatever is there is replaced.

        Raises AlreadyExists for a view's name, and for a table's if it is to be new. Raises TableChanged where the
        table is not what was looked at. Raises InvalidTable for one that cannot be used, and NoDatabase.

        Statistics of columns that all stay as they were remain in force, others are retired. What could be merged into
        them goes once there is any other column.
        """
        source = found.source
        if source.defect:
            raise InvalidTable(source.defect)
        name = source.name.lower()
        with Session(self._engine) as session, session.begin():
            advance_version(session)  # first: other writers wait
            row = session.scalar(select(TableRow).where(TableRow.name == name))
            if session.get(ViewRow, name) is not None:
                raise AlreadyExists(name)
            if row is None:
                if instead_of is not None:
                    raise TableChanged(name)
                require_database(session, name)
                row = TableRow(name=name, owner=owner, annotations=encode_annotations(NOT_ANNOTATED))
                session.add(row)
            elif new:
                raise AlreadyExists(name)
            else:
                if instead_of is not None and not is_registered(instead_of, row):
                    raise TableChanged(name)
                check(row.owner)
                if instead_of is not None and row.registered_at > at:
                    return _record(row)
            if annotations is not None:
                row.annotations = encode_annotations(annotations)
            before = [(c.name, c.data_type) for c in row.columns]
            after = [(c.name, c.data_type) for c in source.columns]
            if row.id is not None and before != after:
                if not set(before) <= set(after):
                    row.statistics_version = None
                session.execute(delete(StatisticsPartRow).where(StatisticsPartRow.table_id == row.id))
            row.location, row.format, row.options = source.location, source.format, dict(source.options)
            row.files, row.bytes, row.rows, row.registered_at = found.files, found.bytes, found.rows, at
            row.declared = found.declared
            session.flush()
            session.execute(delete(ColumnRow).where(ColumnRow.table_id == row.id))
            session.execute(delete(PartitionRow).where(PartitionRow.table_id == row.id))
            session.expire(row, ["columns", "partitions"])
            session.add_all(
                ColumnRow(
                    table_id=row.id,
                    ordinal=ordinal,
                    name=column.name,
                    data_type=column.data_type,
                    partition=column.name in source.partition_columns,
                )
                for ordinal, column in enumerate(source.columns)
            )
            session.add_all(
                PartitionRow(table_id=row.id, path=p.path, values=dict(p.values), files=p.files, bytes=p.bytes)
                for p in found.partitions
            )
            session.flush()
            return _record(row)

    def get(self, name: str) -> CatalogTable | None:
        """Return one table, or None."""
        with Session(self._engine) as session:
            row = session.scalar(select(TableRow).where(TableRow.name == name.lower()))
            return _record(row) if row else None

    def list(self) -> tuple[CatalogTable, ...]:
        """Return all tables by name. Columns and partitions are read of tables that changed since the last time."""
        with Session(self._engine) as session:
            rows = session.execute(select(*TableRow.__table__.columns).order_by(TableRow.name)).all()
            with self._lock:
                known = self._read
            read = {row.id: known[row.id] for row in rows if row.id in known and known[row.id][0] == row}
            changed = {row.id: row for row in rows if row.id not in read}
            for ids in batched(changed, READ_AT_ONCE):
                for found in session.scalars(select(TableRow).where(TableRow.id.in_(ids))):
                    read[found.id] = (changed[found.id], _record(found))
        with self._lock:
            self._read = read
        return tuple(sorted((table for _, table in read.values()), key=lambda table: table.name))

    def remove(self, name: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Forget a table, its statistics and how it is joined; its files stay. Returns whether it was there.

        check: hears its owner.
        """
        with Session(self._engine) as session, session.begin():
            wait_for_writers(session)
            row = session.scalar(select(TableRow).where(TableRow.name == name.lower()))
            if row is None:
                return False
            check(row.owner)
            advance_version(session)
            session.delete(row)
            session.execute(
                delete(KeyPairRow).where(or_(KeyPairRow.left_table == row.name, KeyPairRow.right_table == row.name))
            )
            return True

    def rename(self, name: str, new_name: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Give a table another full name, in whatever database; returns whether it was there. check: hears its owner.

        Its statistics, its files, how it is joined and the schedules that name it follow. Raises AlreadyExists,
        NoDatabase, and TableHeld where a statistics job has it.
        """
        old, new = name.lower(), new_name.lower()
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.scalar(select(TableRow).where(TableRow.name == old))
            if row is None:
                return False
            check(row.owner)
            require_database(session, new)
            taken = session.scalar(select(TableRow.id).where(TableRow.name == new)) is not None
            if taken or session.get(ViewRow, new) is not None:
                raise AlreadyExists(new)
            if session.get(TableLockRow, old) is not None:
                raise TableHeld(old)
            row.name = new
            _rename_in_keys(session, old, new)
            for schedule in session.scalars(select(ScheduleRow)):
                schedule.tables = [new if each == old else each for each in schedule.tables]
                schedule.awaited = [new if each == old else each for each in schedule.awaited]
            return True

    def set_owner(self, name: str, owner: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Give a table to somebody. check: hears whose it was. Returns whether it was there."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.scalar(select(TableRow).where(TableRow.name == name.lower()))
            if row is not None:
                check(row.owner)
                row.owner = owner
            return row is not None

    def annotate(self, name: str, change: Annotate, *, check: OwnerCheck = lambda _: None) -> bool:
        """Change what is said of a table. check: hears its owner. Returns whether it was there."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.scalar(select(TableRow).where(TableRow.name == name.lower()))
            if row is not None:
                check(row.owner)
                row.annotations = encode_annotations(change(decode_annotations(row.annotations)))
            return row is not None

    def version(self) -> int:
        """Return a number that grows with every change of tables or statistics."""
        return self.versions()[0]

    def versions(self) -> tuple[int, int]:
        """Return numbers that grow with every change: of tables or statistics, and of misestimates."""
        found = self._quick.rows(_VERSION)
        return (found[0].version, found[0].misestimates) if found else (0, 0)


def note_misestimates(transaction: Session | Connection) -> None:
    """Mark that misestimates changed, in the caller's transaction."""
    count = CatalogVersionRow.misestimates + 1
    transaction.execute(update(CatalogVersionRow).where(CatalogVersionRow.id == VERSION_ROW).values(misestimates=count))


def _rename_in_keys(session: Session, old: str, new: str) -> None:
    """Write a table's new name into the pairs of columns that it is joined by."""
    pairs = session.scalars(
        select(KeyPairRow).where(or_(KeyPairRow.left_table == old, KeyPairRow.right_table == old))
    ).all()
    for pair in pairs:
        left, right = (
            ColumnRef(new if table == old else table, column)
            for table, column in ((pair.left_table, pair.left_column), (pair.right_table, pair.right_column))
        )
        renamed = KeyPair.of(left, right)
        kept = {"source": pair.source, "learned_at": pair.learned_at}
        session.delete(pair)
        session.flush()
        session.merge(
            KeyPairRow(
                left_table=renamed.left.table,
                left_column=renamed.left.column,
                right_table=renamed.right.table,
                right_column=renamed.right.column,
                **kept,
            )
        )


def advance_version(session: Session) -> None:
    """Mark that the catalog or its statistics changed, in the caller's transaction."""
    session.execute(
        update(CatalogVersionRow)
        .where(CatalogVersionRow.id == VERSION_ROW)
        .values(version=CatalogVersionRow.version + 1)
    )


def require_database(session: Session, full_name: str) -> None:
    """Raise NoDatabase where the database of a full name is not there."""
    database = database_of(full_name)
    if session.get(DatabaseRow, database) is None:
        raise NoDatabase(database)


def wait_for_writers(session: Session) -> None:
    """Let no other process change the catalog, statistics, keys or locks until the caller's transaction ends."""
    session.execute(
        update(CatalogVersionRow).where(CatalogVersionRow.id == VERSION_ROW).values(version=CatalogVersionRow.version)
    )


def is_registered(looked_at: CatalogTable, row: TableRow) -> bool:
    """Tell whether what somebody looked at is still the table: its place, how it is read and its columns."""
    now = _record(row)
    return (now.source, now.declared) == (looked_at.source, looked_at.declared)


def _record(row: TableRow) -> CatalogTable:
    try:
        source = _source(row)
    except InvalidTable as failure:
        source = TableSource(row.name, row.location, row.format, (), defect=str(failure))
    partitions = tuple(Partition(p.path, dict(p.values), p.files, p.bytes) for p in row.partitions)
    return CatalogTable(
        source,
        row.files,
        row.bytes,
        row.rows,
        partitions,
        row.registered_at,
        row.statistics_version,
        declared=row.declared,
        owner=row.owner,
        annotations=decode_annotations(row.annotations),
    )


def _source(row: TableRow) -> TableSource:
    return TableSource(
        name=row.name,
        location=row.location,
        format=row.format,
        columns=tuple(Column(column.name, column.data_type) for column in row.columns),
        partition_columns=tuple(column.name for column in row.columns if column.partition),
        options=dict(row.options),
    )
