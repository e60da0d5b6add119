"""What SHOW lists, under the headings that clients of each dialect look for.

https://impala.apache.org/docs/build/html/topics/impala_show.html,
https://spark.apache.org/docs/latest/sql-ref-syntax-aux-show.html, and of Hive its own server's. Two things differ for
Spark's clients: SHOW TABLES and SHOW VIEWS have Hive's one column, which drivers of HiveServer2 read, and paths are
relative to the table, because places on the server stay inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import assert_never

import pyarrow as pa

from gateway.catalog.registration import Registration
from gateway.catalog.snapshot import CatalogView, RelationKind
from gateway.commands.describing import information
from gateway.commands.relations import Relations, matching
from gateway.errors import TableUnreadable
from gateway.sql.allowlist import function_names
from gateway.sql.commands.commands import (
    FunctionKind,
    Listing,
    RightsKind,
    ShowCatalogs,
    ShowColumns,
    ShowColumnStats,
    ShowDatabases,
    ShowFiles,
    ShowFunctions,
    ShowNamespace,
    ShowPartitions,
    ShowRights,
    ShowTableExtended,
    ShowTables,
    ShowTableStats,
)
from gateway.sql.commands.definitions import Condition
from gateway.sql.dialects.hive_functions import usable_names
from gateway.sql.dialects.names import HIVE, HIVES, IMPALA
from gateway.sql.duckdb.functions.aggregates import AGGREGATES, WINDOWS
from gateway.sql.names import CATALOG
from gateway.statements.statement import Run
from gateway.statistics.tables import NO_POLICY, column_stats, rows_of, size_text, table_stats, texts_of
from metastore.discovery.inspection import InspectionFailed, data_files
from metastore.records import CatalogTable, Partition
from metastore.store import Metastore

MOST_FILES = 100_000  # that are listed
DATABASES = {HIVE: ("database_name",), IMPALA: ("name", "comment")}
TABLES = {IMPALA: ("name",)}
COLUMNS = {HIVE: ("field",)}
FUNCTIONS = {HIVE: ("tab_name",), IMPALA: ("return type", "signature", "binary type", "is persistent")}
TABLES_IN_FULL = ("namespace", "tableName", "isTemporary", "information")
FILES = ("Path", "Size", "Partition", "EC Policy")
_GRANTED = ("principal_name", "principal_type", "privilege", "grant_option", "grant_time", "grantor")
RIGHTS: Mapping[RightsKind, Sequence[str]] = {
    RightsKind.ROLES: ("role",),
    RightsKind.CURRENT_ROLES: ("role",),
    RightsKind.ROLE_GRANT: ("role", "grant_option", "grant_time", "grantor"),
    RightsKind.PRINCIPALS: (
        "principal_name",
        "principal_type",
        "grant_option",
        "grantor",
        "grantor_type",
        "grant_time",
    ),
    RightsKind.GRANT: ("database", "table", "partition", "column", *_GRANTED),
}
IMPALAS_RIGHTS: Mapping[RightsKind, Sequence[str]] = {
    **RIGHTS,
    RightsKind.ROLES: ("role_name",),
    RightsKind.CURRENT_ROLES: ("role_name",),
    RightsKind.GRANT: (
        *("principal_name", "principal_type", "scope", "database", "table", "column", "uri", "storage_type"),
        *("storage_uri", "privilege", "grant_option", "create_time"),
    ),
}


class Lister:
    """Answers SHOW. Thread-safe."""

    def __init__(
        self, metastore: Metastore, catalog: CatalogView, relations: Relations, registration: Registration
    ) -> None:
        self._metastore = metastore
        self._catalog = catalog
        self._relations = relations
        self._registration = registration

    def answer(self, command: Listing, run: Run) -> pa.Table:
        """Return the rows. Raises SqlError for what is gone since its name was read."""
        dialect = run.statement.dialect
        match command:
            case ShowDatabases():
                return self._databases(command, dialect)
            case ShowCatalogs():
                return texts_of(("catalog",), [[name] for name in matching([CATALOG], command.pattern)])
            case ShowNamespace():
                return texts_of(("catalog", "namespace"), [[CATALOG, run.statement.database]])
            case ShowTables():
                return self._tables(command, run)
            case ShowTableExtended():
                return self._tables_in_full(command, run)
            case ShowColumns():
                columns = self._relations.relation(command.table, run.statement.session).columns
                return texts_of(COLUMNS.get(dialect, ("col_name",)), [[column.name] for column in columns])
            case ShowPartitions():
                return self._partitions(command, dialect)
            case ShowFiles():
                return self._files(command, run)
            case ShowFunctions():
                return _functions(command, dialect)
            case ShowRights():
                return texts_of((IMPALAS_RIGHTS if dialect == IMPALA else RIGHTS)[command.kind], [])
            case ShowTableStats():
                return self._table_stats(self._relations.table(command.table))
            case ShowColumnStats():
                table = self._relations.table(command.table)
                return column_stats(table, self._metastore.statistics.current(table.name))
            case _:
                assert_never(command)

    def _databases(self, command: ShowDatabases, dialect: str) -> pa.Table:
        known = self._catalog.current().databases
        names = matching(sorted(known), command.pattern)
        headings = DATABASES.get(dialect, ("namespace",))
        return texts_of(headings, [[name, known[name].comment][: len(headings)] for name in names])

    def _tables(self, command: ShowTables, run: Run) -> pa.Table:
        names = {
            each.name
            for each in self._catalog.current().relations_for(run.statement.session)
            if each.database == command.database and (each.kind is RelationKind.VIEW or not command.views_only)
        }
        headings = TABLES.get(run.statement.dialect, ("tab_name",))
        return texts_of(headings, [[name] for name in matching(sorted(names), command.pattern)])

    def _tables_in_full(self, command: ShowTableExtended, run: Run) -> pa.Table:
        found = self._relations.in_database(command.database, command.pattern, run.statement.session)
        namespaces, names, own = (pa.string(), pa.string(), pa.bool_())
        schema = pa.schema(list(zip(TABLES_IN_FULL, (namespaces, names, own, pa.string()), strict=True)))
        told = [information(each.as_told_to(run.statement)) for each in found]
        rows = [[each.database, each.name, not each.database, text] for each, text in zip(found, told, strict=True)]
        return rows_of(schema, rows)

    def _partitions(self, command: ShowPartitions, dialect: str) -> pa.Table:
        table = self._relations.table(command.table)
        meant = _meant(table, command.conditions)
        if dialect != IMPALA:
            return texts_of(("partition",), [[each.path] for each in meant])
        if not command.conditions:
            return self._table_stats(table)
        size, files = sum(each.bytes for each in meant), sum(each.files for each in meant)
        return self._table_stats(replace(table, partitions=meant, bytes=size, files=files), whole=False)

    def _table_stats(self, table: CatalogTable, *, whole: bool = True) -> pa.Table:
        """Return a row per partition, and a total. whole: all partitions are there, and statistics count their rows."""
        build = self._metastore.statistics.current(table.name) if whole else None
        parts = {part.folder: part for part in self._metastore.statistics.part_marks(table.name)}
        return table_stats(table, build, parts)

    def _files(self, command: ShowFiles, run: Run) -> pa.Table:
        table = self._relations.table(command.table)
        self._registration.require_unchanged((table.source,))
        root = Path(table.source.location)
        folders = {each.path for each in _meant(table, command.conditions)} if command.conditions else None
        try:
            found = data_files(root, run.require)
        except InspectionFailed as error:
            raise TableUnreadable(str(error).replace(table.source.location, table.name)) from error
        files = [file for file in found if folders is None or file.folder in folders]
        if len(files) > MOST_FILES:
            message = f"{table.name} has {len(files):,} files, of which {MOST_FILES:,} can be listed: give a PARTITION."
            raise TableUnreadable(message)
        rows = [[file.mark(root).path, size_text(file.bytes), file.folder, NO_POLICY] for file in files]
        return texts_of(FILES, rows)


def _meant(table: CatalogTable, conditions: Sequence[Condition]) -> tuple[Partition, ...]:
    """Return the partitions for which all conditions hold."""
    return tuple(each for each in table.partitions if all(condition.holds(each) for condition in conditions))


def _functions(command: ShowFunctions, dialect: str) -> pa.Table:
    """Return names of functions; Impala shows those of a database, of which only its own built-in ones has any."""
    kinds = {FunctionKind.AGGREGATE: AGGREGATES.keys(), FunctionKind.ANALYTIC: WINDOWS.keys()}
    usable = usable_names(dialect) if dialect in HIVES else function_names()
    names = [name for name in usable if command.kind not in kinds or name in kinds[command.kind]]
    found = matching(names, command.pattern)
    if dialect == IMPALA:
        rows = [["", f"{name}(...)", "BUILTIN", "true"] for name in found] if command.of_builtins else []
        return texts_of(FUNCTIONS[IMPALA], rows)
    return texts_of(
        FUNCTIONS.get(dialect, ("function",)), [[n] for n in found if command.kind is not FunctionKind.USER]
    )
