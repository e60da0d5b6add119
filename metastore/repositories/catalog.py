"""The catalog: registered tables with their location, columns and partitions."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Engine, Row, Select, delete, or_, select, update
from sqlalchemy.orm import Session

from metastore.database.annotations import decode_annotations, encode_annotations
from metastore.database.batches import batched
from metastore.database.grants import forget_grants, move_grants
from metastore.database.models import (
    AddedCatalogRow,
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
from metastore.errors import AlreadyExists, NoDatabase, TableChanged, TableHeld
from metastore.records import CatalogTable, Inspection, Partition
from selector.join_keys import ColumnRef, KeyPair
from selector.quoting import InvalidName, require_name
from sql.tables import (
    NOT_ANNOTATED,
    SNAPSHOT_MARK,
    Annotations,
    Column,
    InvalidTable,
    TableSource,
    catalog_of,
    database_of,
)

VERSION_ROW = 1
_VERSIONS = CatalogVersionRow.metadata.tables[CatalogVersionRow.__tablename__]
_VERSION = select(_VERSIONS.c.version)
READ_AT_ONCE = 500  # tables
LONGEST_OF_CATALOGS = 80
"""Characters of a name in an Iceberg catalog; tables with longer ones are left out."""

OwnerCheck = Callable[[str | None], None]
"""Called with the owner of a table, view or database before it is changed, in the same transaction; an error stops it.

Parameters named ``check`` below are of this type.
"""
OwnedRow = TypeVar("OwnedRow", TableRow, ViewRow, DatabaseRow)

Annotate = Callable[[Annotations], Annotations]
"""Returns the new annotations of a table or view for the old ones."""


class Catalog:
    """Registered tables. Names are unique without regard to case and kept in lower case."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._cache: dict[int, tuple[Row[Any], CatalogTable]] = {}  # by the table's id, with the row of its reading

    def put(
        self,
        inspection: Inspection,
        *,
        at: dt.datetime,
        new: bool = False,
        instead_of: CatalogTable | None = None,
        owner: str | None = None,
        annotations: Annotations | None = None,
        check: OwnerCheck = lambda _: None,
    ) -> CatalogTable:
        """Register a table, or update it after another inspection.

        Statistics stay active while all their columns stay as they were. Their mergeable parts are deleted with any
        change of columns.

        at: when the inspection began.
        new: the table must not exist yet.
        instead_of: the inspected table, which must still be registered; a later inspection of it is not overwritten.
            None: any table is replaced.
        owner: of a new table.
        annotations: None: unchanged.

        Raises AlreadyExists for a view's name, and for a table's if it has to be new; TableChanged if the table is not
        the inspected one; InvalidTable, NoDatabase.
        """
        source = inspection.source
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
            after = [(c.name, c.declared_type) for c in source.columns]
            if row.id is not None and before != after:
                if not set(before) <= set(after):
                    row.statistics_version = None
                session.execute(delete(StatisticsPartRow).where(StatisticsPartRow.table_id == row.id))
            row.location, row.format, row.options = source.location, source.format, dict(source.options)
            row.files, row.bytes, row.rows = inspection.files, inspection.bytes, inspection.rows
            row.registered_at, row.declared = at, inspection.declared
            row.identifiers = list(source.identifiers)
            session.flush()
            session.execute(delete(ColumnRow).where(ColumnRow.table_id == row.id))
            session.execute(delete(PartitionRow).where(PartitionRow.table_id == row.id))
            session.expire(row, ["columns", "partitions"])
            session.add_all(
                ColumnRow(
                    table_id=row.id,
                    ordinal=ordinal,
                    name=column.name,
                    data_type=column.declared_type,
                    partition=column.name in source.partition_columns,
                )
                for ordinal, column in enumerate(source.columns)
            )
            session.add_all(
                PartitionRow(table_id=row.id, path=p.path, values=dict(p.values), files=p.files, bytes=p.bytes)
                for p in inspection.partitions
            )
            session.flush()
            return _record(row)

    def replace_names(self, catalog: str, names: Mapping[str, Sequence[str]], *, is_added: bool = False) -> bool:
        """Have the tables of an Iceberg catalog by name, and return True if any came or went.

        names: of its tables, by namespace. New ones have no columns; those that are gone lose their statistics, as
            does one whose exact name is another one now.
        is_added: by a command: once the catalog is dropped, nothing changes.
        """
        with Session(self._engine) as session, session.begin():
            wait_for_writers(session)
            if is_added and session.get(AddedCatalogRow, catalog) is None:
                return False
            return replace_names_in(session, catalog, names)

    def get(self, name: str) -> CatalogTable | None:
        """Return one table, or None."""
        with Session(self._engine) as session:
            row = session.scalar(select(TableRow).where(TableRow.name == name.lower()))
            return _record(row) if row else None

    def list(self) -> tuple[CatalogTable, ...]:
        """Return all tables by name. Columns and partitions are read of tables that changed since the last call."""
        with Session(self._engine) as session:
            rows = session.execute(select(*TableRow.__table__.columns).order_by(TableRow.name)).all()
            with self._lock:
                cached = self._cache
            tables = {row.id: cached[row.id] for row in rows if row.id in cached and cached[row.id][0] == row}
            changed = {row.id: row for row in rows if row.id not in tables}
            for ids in batched(changed, READ_AT_ONCE):
                for table_row in session.scalars(select(TableRow).where(TableRow.id.in_(ids))):
                    tables[table_row.id] = (changed[table_row.id], _record(table_row))
        with self._lock:
            self._cache = tables
        return tuple(sorted((table for _, table in tables.values()), key=lambda table: table.name))

    def remove(self, name: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Remove a table, its statistics and its join keys; its files stay. Returns False if there is none."""
        with Session(self._engine) as session, session.begin():
            wait_for_writers(session)
            row = session.scalar(select(TableRow).where(TableRow.name == name.lower()))
            if row is None:
                return False
            check(row.owner)
            advance_version(session)
            session.delete(row)
            forget_grants(session, row.name)
            session.execute(
                delete(KeyPairRow).where(or_(KeyPairRow.left_table == row.name, KeyPairRow.right_table == row.name))
            )
            return True

    def rename(self, name: str, new_name: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Give a table another full name, also in another database. Returns False if there is none.

        Statistics, files, join keys and schedules follow. Raises AlreadyExists, NoDatabase, and TableHeld while a
        statistics job works on it.
        """
        old, new = name.lower(), new_name.lower()
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.scalar(select(TableRow).where(TableRow.name == old))
            if row is None:
                return False
            check(row.owner)
            require_database(session, new)
            require_free(session, new)
            if session.get(TableLockRow, old) is not None:
                raise TableHeld(old)
            row.name = new
            move_grants(session, old, new)
            _rename_in_keys(session, old, new)
            for schedule in session.scalars(select(ScheduleRow)):
                schedule.tables = [new if table == old else table for table in schedule.tables]
                schedule.awaited = [new if table == old else table for table in schedule.awaited]
            return True

    def set_owner(self, name: str, owner: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Set a table's owner. Returns False if there is no such table."""
        return change_owned(self._engine, _row_of(name), check, lambda row: setattr(row, "owner", owner))

    def annotate(self, name: str, change: Annotate, *, check: OwnerCheck = lambda _: None) -> bool:
        """Change a table's annotations. Returns False if there is no such table."""
        return change_owned(self._engine, _row_of(name), check, lambda row: annotate_row(row, change))

    def version(self) -> int:
        """Return a number that grows with every change of tables or statistics."""
        with self._engine.connect() as connection:
            return connection.scalar(_VERSION) or 0


def replace_names_in(session: Session, catalog: str, names: Mapping[str, Sequence[str]]) -> bool:
    """Do what ``Catalog.replace_names`` says, in the caller's transaction."""
    usable = {namespace: some for namespace, some in names.items() if _is_usable(namespace)}
    databases = _identifiers_by_name(catalog, usable)
    tables = _identifiers_by_name(
        catalog,
        (
            f"{namespace}.{name}"
            for namespace, some in usable.items()
            for name in some
            if _is_usable(name) and "." not in name
        ),
    )
    registered = session.execute(
        select(TableRow.name, TableRow.identifiers).where(TableRow.name.startswith(f"{catalog}.", autoescape=True))
    )
    before = {name: identifiers for name, identifiers in registered if catalog_of(name) == catalog}
    spaces = {
        row.name: row
        for row in session.scalars(
            select(DatabaseRow).where(DatabaseRow.name.startswith(f"{catalog}.", autoescape=True))
        )
    }
    if (before, {name: row.identifiers for name, row in spaces.items()}) == (tables, databases):
        return False
    advance_version(session)
    gone_tables = {name for name, identifiers in before.items() if tables.get(name) != identifiers}
    for gone in batched(sorted(gone_tables), READ_AT_ONCE):
        for table_row in session.scalars(select(TableRow).where(TableRow.name.in_(gone))):
            session.delete(table_row)
        session.execute(
            delete(KeyPairRow).where(or_(KeyPairRow.left_table.in_(gone), KeyPairRow.right_table.in_(gone)))
        )
    session.flush()
    for name, identifiers in databases.items():
        if name not in spaces:
            session.add(DatabaseRow(name=name, comment="", properties={}, identifiers=identifiers))
        else:
            spaces[name].identifiers = identifiers
    annotations = encode_annotations(NOT_ANNOTATED)
    now = dt.datetime.fromtimestamp(0, dt.UTC)
    session.add_all(
        TableRow(
            name=name,
            location=f"catalog:{name}",
            format="iceberg",
            options={},
            files=0,
            bytes=0,
            registered_at=now,
            declared=False,
            annotations=annotations,
            identifiers=identifiers,
        )
        for name, identifiers in sorted(tables.items())
        if before.get(name) != identifiers
    )
    session.flush()
    session.execute(delete(DatabaseRow).where(DatabaseRow.name.in_(spaces.keys() - databases.keys())))
    return True


def _rename_in_keys(session: Session, old: str, new: str) -> None:
    """Write a table's new name into the pairs of columns that it is joined by."""
    pairs = session.scalars(
        select(KeyPairRow).where(or_(KeyPairRow.left_table == old, KeyPairRow.right_table == old))
    ).all()
    for pair in pairs:
        renamed = KeyPair.of(
            *(
                ColumnRef(new if table == old else table, column)
                for table, column in ((pair.left_table, pair.left_column), (pair.right_table, pair.right_column))
            )
        )
        session.delete(pair)
        session.flush()
        session.merge(
            KeyPairRow(
                left_table=renamed.left.table,
                left_column=renamed.left.column,
                right_table=renamed.right.table,
                right_column=renamed.right.column,
                source=pair.source,
                learned_at=pair.learned_at,
            )
        )


def _is_usable(name: str) -> bool:
    try:
        require_name(name)
    except InvalidName:
        return False
    return len(name) <= LONGEST_OF_CATALOGS and SNAPSHOT_MARK not in name


def _identifiers_by_name(catalog: str, exact_names: Iterable[str]) -> dict[str, list[str]]:
    """Return the identifiers of tables or namespaces by their names here; none for one that is spelled as here."""
    identifiers: dict[str, list[str]] = {}
    for exact in sorted(exact_names):
        identifiers.setdefault(f"{catalog}.{exact.lower()}", []).append(exact)
    return {
        name: exact if [name] != [f"{catalog}.{one}" for one in exact] else [] for name, exact in identifiers.items()
    }


def advance_version(session: Session) -> None:
    """Mark that the catalog or its statistics changed, in the caller's transaction."""
    session.execute(
        update(CatalogVersionRow)
        .where(CatalogVersionRow.id == VERSION_ROW)
        .values(version=CatalogVersionRow.version + 1)
    )


def require_database(session: Session, full_name: str) -> None:
    """Raise NoDatabase if the database of a full name does not exist."""
    database = database_of(full_name)
    if session.get(DatabaseRow, database) is None:
        raise NoDatabase(database)


def require_free(session: Session, name: str) -> None:
    """Raise AlreadyExists if a table or view has a full name."""
    table_id = session.scalar(select(TableRow.id).where(TableRow.name == name))
    if table_id is not None or session.get(ViewRow, name) is not None:
        raise AlreadyExists(name)


def annotate_row(row: TableRow | ViewRow, change: Annotate) -> None:
    """Change the annotations of a row."""
    row.annotations = encode_annotations(change(decode_annotations(row.annotations)))


def wait_for_writers(session: Session) -> None:
    """Lock the catalog, statistics, keys and locks against other writers until the caller's transaction ends."""
    session.execute(
        update(CatalogVersionRow).where(CatalogVersionRow.id == VERSION_ROW).values(version=CatalogVersionRow.version)
    )


def is_registered(inspected: CatalogTable, row: TableRow) -> bool:
    """Return True if an inspected table still has the same location, format and columns."""
    now = _record(row)
    return (now.source, now.declared) == (inspected.source, inspected.declared)


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
        identifiers=tuple(row.identifiers),
    )


def _row_of(name: str) -> Select[TableRow]:
    return select(TableRow).where(TableRow.name == name.lower())


def change_owned(engine: Engine, rows: Select[OwnedRow], check: OwnerCheck, change: Callable[[OwnedRow], None]) -> bool:
    """Change the one row of a SELECT. Returns False if it has none."""
    with Session(engine) as session, session.begin():
        advance_version(session)  # first: other writers wait
        row = session.scalar(rows)
        if row is not None:
            check(row.owner)
            change(row)
        return row is not None
