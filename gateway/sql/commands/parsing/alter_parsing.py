"""Statements that change what there is, in the words of Spark's, Hive's and Impala's users.

    ALTER TABLE t RENAME TO u                              ALTER VIEW v RENAME TO w
    ALTER TABLE t ADD [COLUMNS] (c type, ...)              ALTER VIEW v [(c, ...)] AS query
    ALTER TABLE | VIEW t SET | UNSET TBLPROPERTIES (...)   ALTER TABLE | VIEW t SET OWNER USER name
    ALTER TABLE t ADD [IF NOT EXISTS] PARTITION (p = 1)    ALTER TABLE t SET COLUMN STATS c ('numDVs' = 'n', ...)
    ALTER TABLE t DROP [IF EXISTS] PARTITION (p = 1), ...  ALTER TABLE t RECOVER PARTITIONS      MSCK REPAIR TABLE t
    ALTER TABLE t CHANGE [COLUMN] c c type COMMENT '...'   ALTER TABLE t ALTER COLUMN c COMMENT '...'
    COMMENT ON TABLE | VIEW | COLUMN | DATABASE x IS '...' | NULL
    ANALYZE TABLE t [PARTITION (p = 1)] COMPUTE STATISTICS [NOSCAN | FOR COLUMNS c, ... | FOR ALL COLUMNS]
    ANALYZE TABLES [IN d] COMPUTE STATISTICS [NOSCAN]

CACHE, LOCK, GRANT and their likes are refused with what is done instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from engines.protocol import Column, TableSource
from engines.table_names import database_of
from gateway.errors import NotAllowed, TableExists, UnknownColumn, UnknownProperty, UnknownTable, ValueOutOfRange
from gateway.sql.commands.commands import (
    ComputeIncrementalStats,
    ComputeStats,
    CreateView,
    Refresh,
    SetColumnStats,
    SetOwner,
    SetRows,
)
from gateway.sql.commands.definitions import (
    AddPartitions,
    AnalyzeTables,
    Condition,
    Definition,
    OwnedKind,
    Rename,
    SetComment,
    SetProperties,
    UnsetProperties,
)
from gateway.sql.commands.parsing.relation_reader import Context
from gateway.sql.commands.parsing.table_parsing import TableReader
from gateway.sql.commands.parsing.token_reader import words_of
from gateway.sql.commands.writes import AddColumns, Truncate
from gateway.sql.names import did_you_mean
from gateway.sql.parsing import require_length

ROWS_KEY = "numRows"
MARK_KEY = (
    "STATS_GENERATED_VIA_STATS_TASK"  # Impala's users set it beside numRows for Hive's sake; it says nothing here
)
COLUMN_KEYS: Mapping[str, str] = {  # Impala's name -> the statistics' own
    "numDVs": "ndv",
    "numNulls": "nulls",
    "avgSize": "average_length",
    "maxSize": "maximum_length",
}
LARGEST = 2.0**63  # of whole numbers, not to be reached
WHOLE_NUMBERS = frozenset({ROWS_KEY, "numDVs", "numNulls", "maxSize"})

_IN_MEMORY = "The fast engine keeps what it reads in memory by itself; leave this statement away."
_LOCKS = "Writes to one table take turns by themselves, and readers need no lock; leave this statement away."
_ROLES = (
    "Roles are given in the gateway's settings (authentication.roles) or the users file, not by statements; "
    "an owner is set with ALTER TABLE ... SET OWNER USER."
)
_REFUSED = {
    "CACHE": _IN_MEMORY,
    "UNCACHE": _IN_MEMORY,
    "LOCK": _LOCKS,
    "UNLOCK": _LOCKS,
    "GRANT": _ROLES,
    "REVOKE": _ROLES,
}
_START = re.compile(
    r"(?:[\s;]++|--[^\n]*+|/\*(?s:.)*?\*/)*+(?:ALTER\s+(?:TABLE|VIEW)|COMMENT\s+ON|ANALYZE|MSCK|CACHE|UNCACHE|LOCK|UNLOCK"
    r"|GRANT|REVOKE|(?:CREATE|DROP)\s+ROLE)\b",
    re.IGNORECASE,
)

Alteration = (
    Definition
    | AddColumns
    | AnalyzeTables
    | ComputeIncrementalStats
    | ComputeStats
    | CreateView
    | Refresh
    | SetColumnStats
    | SetOwner
    | SetRows
    | Truncate
)


def parse(sql: str, context: Context) -> Alteration | None:
    """Return what a text changes, None where it is no such statement. Raises SqlError with what is wrong and where."""
    if _START.match(sql) is None:
        return None
    require_length(sql, context.limits)
    return _AlterReader(sql, words_of(sql, context.limits), context).alteration()


class _AlterReader(TableReader):
    """Reads one statement that changes what there is."""

    def alteration(self) -> Alteration:
        where = self._token()
        if self._words("ALTER", "VIEW"):
            found = self._alter_view()
        elif self._words("ALTER", "TABLE"):
            found = self._alter_table()
        elif self._words("COMMENT", "ON"):
            found = self._comment_on()
        elif self._words("ANALYZE"):
            found = self._analyze()
        elif self._words("MSCK"):
            self._words("REPAIR")
            self._need("TABLE")
            found = self._repaired(self._table(to_mend=True))
        else:
            raise NotAllowed(_REFUSED.get(where.text.upper(), _ROLES), self._position(where))
        if not isinstance(found, CreateView):  # its query is read to the end
            self._end()
        return found

    # ------------------------------------------------------------------ tables

    def _alter_table(self) -> Alteration:
        token = self._token()
        name, parts = self._visible_name()
        if name in self._views:
            return self._alter_named_view(name, token)
        verb = self._token()
        if self._words("RECOVER", "PARTITIONS"):
            return Refresh(self._found(name, parts, token, to_mend=True).name)
        table = self._found(name, parts, token)
        if self._words("RENAME"):
            return self._rename(OwnedKind.TABLE, table.name)
        if self._words("ADD"):
            return self._add(table)
        if self._words("REPLACE", "COLUMNS"):
            message = "Columns that files have stay; make a table of a query: CREATE OR REPLACE TABLE ... AS SELECT."
            raise NotAllowed(message, self._position(verb))
        if self._words("DROP"):
            return self._drop_partitions(table, verb)
        if self._words("CHANGE"):
            self._words("COLUMN")
            return self._change(table)
        if self._words("ALTER"):
            self._words("COLUMN")
            return self._alter_column(table)
        if self._words("UNSET", "TBLPROPERTIES"):
            if_exists = self._words("IF", "EXISTS")
            return UnsetProperties(OwnedKind.TABLE, table.name, self._keys(), if_exists)
        if not self._words("SET"):
            message = (
                "ALTER TABLE is not allowed but for RENAME, ADD COLUMNS, CHANGE, ADD | DROP PARTITION, RECOVER "
                "PARTITIONS, SET TBLPROPERTIES, UNSET TBLPROPERTIES, SET COLUMN STATS and SET OWNER."
            )
            raise NotAllowed(message, self._position(verb))
        if self._words("OWNER"):
            return self._owner(table.name, OwnedKind.TABLE)
        if self._words("TBLPROPERTIES"):
            return self._set_properties(table)
        if not self._words("COLUMN", "STATS"):
            message = "Of a table, TBLPROPERTIES, COLUMN STATS and OWNER can be SET; its files stay as they are."
            raise NotAllowed(message, self._position(verb))
        column = self._column(table)
        return SetColumnStats(table.name, column, self._figures())

    def _rename(self, kind: OwnedKind, name: str) -> Rename:
        self._need("TO")
        where = self._token()
        new = self._new_name()
        if new in self._catalog or new in self._views:
            what = "table" if new in self._catalog else "view"
            raise TableExists(f"There is a {what} {new} already.", self._position(where))
        return Rename(kind, name, new)

    def _add(self, table: TableSource) -> AddColumns | AddPartitions:
        where = self._token()
        if_not_exists = self._words("IF", "NOT", "EXISTS")
        if self._token().text.upper() == "PARTITION":
            return self._add_partitions(table, if_not_exists=if_not_exists)
        if not self._words("COLUMNS"):
            self._words("COLUMN")
        if_not_exists = self._words("IF", "NOT", "EXISTS") or if_not_exists
        if self._sign(TokenType.L_PAREN):
            told = self._definitions(types_needed=True)
            if not self._words("CASCADE"):
                self._words("RESTRICT")
        else:
            at = self._token()
            told = (self._definition(self._column_name(), at, type_needed=True),)
        known = {column.name.lower() for column in table.columns}
        new = [each for each in told if each.name.lower() not in known]
        if len(new) < len(told) and not if_not_exists:
            twice = next(each for each in told if each.name.lower() in known)
            raise NotAllowed(f"There is a column {twice.name} already.", self._position(twice.where))
        if table.format not in ("parquet", "orc"):
            message = f"Columns are added to tables in Parquet or ORC, whose files have names; this is {table.format}."
            raise NotAllowed(message, self._position(where))
        columns = tuple(Column(each.name, str(each.type)) for each in new)
        return AddColumns(table, columns, {each.name: each.comment for each in new if each.comment})

    def _add_partitions(self, table: TableSource, *, if_not_exists: bool) -> AddPartitions:
        partitions = []
        while self._token().text.upper() == "PARTITION":
            partitions.append(self._one_partition(table))
            where = self._token()
            if self._words("LOCATION"):
                message = "Partitions lie below their table's folder; register files that lie elsewhere as a table."
                raise NotAllowed(message, self._position(where))
            self._sign(TokenType.COMMA)
        return AddPartitions(table.name, tuple(partitions), if_not_exists)

    def _one_partition(self, table: TableSource) -> dict[str, str | None]:
        """Read the values of all partition columns."""
        where = self._token()
        values: dict[str, str | None] = {}
        for condition in self._conditions(table):
            if not condition.is_equality or condition.column in values:
                raise NotAllowed("A partition that is added has one value of each column.", condition.position)
            values[condition.column] = None if condition.value is None else str(condition.value)
        missing = [name for name in table.partition_columns if name not in values]
        if missing:
            raise NotAllowed(f"PARTITION names each partition column; {missing[0]} is missing.", self._position(where))
        return values

    def _drop_partitions(self, table: TableSource, verb: Token) -> Truncate:
        if_exists = self._words("IF", "EXISTS")
        if self._token().text.upper() != "PARTITION":
            message = "Columns that files have stay; make a table of a query: CREATE OR REPLACE TABLE ... AS SELECT."
            raise NotAllowed(message, self._position(verb))
        groups: list[tuple[Condition, ...]] = [self._conditions(table)]
        while self._sign(TokenType.COMMA):
            groups.append(self._conditions(table))
        self._words("PURGE")
        return Truncate(table.name, table, tuple(groups), if_exists=if_exists)

    def _change(self, table: TableSource) -> SetComment:
        """Read Hive's CHANGE: a column's name, then its definition, in which only the comment may be another one."""
        column = self._column(table)
        where = self._token()
        again = self._name()
        told = self._definition(again, where, type_needed=True)
        known = next(each for each in table.columns if each.name == column)
        if again.lower() != column.lower() or told.type is None or str(told.type) != str(known.type):
            message = (
                f"{column} is {known.data_type} in the table's files, and stays that; only its comment can be changed. "
                "For other names or types make a table of a query: CREATE OR REPLACE TABLE ... AS SELECT."
            )
            raise NotAllowed(message, self._position(where))
        self._refuse_place(column)
        return SetComment(OwnedKind.TABLE, table.name, told.comment, column)

    def _alter_column(self, table: TableSource) -> SetComment:
        column = self._column(table)
        self._refuse_place(column)
        where = self._token()
        if not self._words("COMMENT") and not self._words("SET", "COMMENT"):
            message = f"Of {column}, only the comment can be changed: its name and type are those of the table's files."
            raise NotAllowed(message, self._position(where))
        return SetComment(OwnedKind.TABLE, table.name, self._text("a text"), column)

    def _refuse_place(self, column: str) -> None:
        where = self._token()
        if self._words("FIRST") or self._words("AFTER"):
            raise NotAllowed(f"{column} stays where it is among the columns.", self._position(where))

    def _set_properties(self, table: TableSource) -> SetRows | SetProperties:
        """Read a table's properties, of which numRows is a statistic."""
        found: dict[str, str] = {}
        rows: int | None = None
        self._need_sign(TokenType.L_PAREN, "(")
        while True:
            key = self._key()
            self._need_sign(TokenType.EQ, "=")
            where = self._token()
            value = self._literal()
            if key.lower() == ROWS_KEY.lower():
                rows = int(self._figure(ROWS_KEY, value, where))
            else:
                found[key] = value
            if self._sign(TokenType.R_PAREN):
                break
            self._need_sign(TokenType.COMMA, ", or )")
        if rows is not None and all(key.upper() == MARK_KEY for key in found):
            return SetRows(table.name, rows)
        return SetProperties(OwnedKind.TABLE, table.name, found, rows)

    def _figures(self) -> dict[str, float]:
        """Read figures of a column by Impala's names; return them by the statistics' own."""
        found: dict[str, float] = {}
        self._need_sign(TokenType.L_PAREN, "(")
        while True:
            token = self._token()
            name = self._text("the name of a property")
            key = next((key for key in COLUMN_KEYS if key.lower() == name.lower()), None)
            if key is None:
                message = f"{name} cannot be set; {', '.join(COLUMN_KEYS)} can."
                raise UnknownProperty(message, self._position(token))
            self._need_sign(TokenType.EQ, "=")
            where = self._token()
            found[COLUMN_KEYS[key]] = self._figure(key, self._literal(), where)
            if self._sign(TokenType.R_PAREN):
                return found
            self._need_sign(TokenType.COMMA, ")")

    def _figure(self, key: str, text: str, where: Token) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value < LARGEST or (key in WHOLE_NUMBERS and value != int(value)):
            kind = "a whole number" if key in WHOLE_NUMBERS else "a number"
            raise ValueOutOfRange(f"{key} is {kind} of at least 0, not {text}.", self._position(where))
        return value

    # ------------------------------------------------------------------ views

    def _alter_view(self) -> Alteration:
        token = self._token()
        name, _ = self._visible_name()
        if name not in self._views:
            raise UnknownTable(f"There is no view {name}{did_you_mean(name, self._views)}", self._position(token))
        return self._alter_named_view(name, token)

    def _alter_named_view(self, name: str, token: Token) -> Alteration:
        view = self._views[name]
        verb = self._token()
        if self._words("AS"):
            return self._view(view.name, (), None, temporary=view.temporary, replace=True)
        if self._sign(TokenType.L_PAREN):
            columns = tuple(self._view_columns())
            self._need("AS")
            return self._view(view.name, columns, None, temporary=view.temporary, replace=True)
        if view.temporary:
            message = f"{view.name} is this session's temporary view; only its query can be changed: ALTER VIEW ... AS."
            raise UnknownTable(message, self._position(token))
        if self._words("SET", "OWNER"):
            return self._owner(name, OwnedKind.VIEW)
        if self._words("RENAME"):
            return self._rename(OwnedKind.VIEW, name)
        if self._words("SET", "TBLPROPERTIES"):
            return SetProperties(OwnedKind.VIEW, name, self._properties())
        if self._words("UNSET", "TBLPROPERTIES"):
            if_exists = self._words("IF", "EXISTS")
            return UnsetProperties(OwnedKind.VIEW, name, self._keys(), if_exists)
        message = "ALTER VIEW is not allowed but for AS query, RENAME TO, SET | UNSET TBLPROPERTIES and SET OWNER."
        raise NotAllowed(message, self._position(verb))

    # ------------------------------------------------------------------ the others

    def _comment_on(self) -> SetComment:
        where = self._token()
        column = None
        if self._words("DATABASE") or self._words("SCHEMA"):
            kind, name = OwnedKind.DATABASE, self._database()
        elif self._words("COLUMN"):
            kind, name, column = self._column_of()
        elif self._words("TABLE") or self._words("VIEW"):
            name = self._shown()
            kind = OwnedKind.VIEW if name in self._views else OwnedKind.TABLE
            if name in self._views and self._views[name].temporary:
                raise NotAllowed("A temporary view has no comment.", self._position(where))
        else:
            self._unexpected("TABLE, VIEW, COLUMN or DATABASE")
        self._need("IS")
        return SetComment(kind, name, "" if self._words("NULL") else self._text("a text, or NULL,"), column)

    def _column_of(self) -> tuple[OwnedKind, str, str]:
        """Read a column behind the name of its table or view."""
        where = self._token()
        *parts, wanted = self._parts()
        if not parts:
            raise NotAllowed("Name the column's table, too: COMMENT ON COLUMN t.c IS ...", self._position(where))
        name = self._naming.full(parts)
        view = self._views.get(name)
        columns = view.columns if view is not None else self._found(name, parts, where).columns
        spelled = {column.name.lower(): column.name for column in columns}
        if wanted.lower() not in spelled:
            message = f"There is no column {wanted} in {name}{did_you_mean(wanted, spelled)}"
            raise UnknownColumn(message, self._position(where))
        kind = OwnedKind.VIEW if view is not None else OwnedKind.TABLE
        return kind, name, spelled[wanted.lower()]

    def _analyze(self) -> Alteration:
        if self._words("TABLES"):
            database = self._database() if self._words("IN") or self._words("FROM") else self._naming.database
            scan = self._compute_statistics()
            tables = [
                name for name, table in self._catalog.items() if database_of(name) == database and not table.defect
            ]
            return AnalyzeTables(tuple(sorted(tables)), scan)
        self._need("TABLE")
        where = self._token()
        name, parts = self._visible_name()
        if name in self._views:
            raise NotAllowed(f"{name} is a view; statistics are of tables.", self._position(where))
        table = self._found(name, parts, where)
        conditions: Sequence[Condition] = ()
        if self._token().text.upper() == "PARTITION":
            conditions = self._conditions(table, values_needed=False)
        if not self._compute_statistics():
            return Refresh(table.name)
        columns: tuple[str, ...] = ()
        if self._words("FOR"):
            if self._words("ALL"):
                self._need("COLUMNS")
            else:
                self._need("COLUMNS")
                columns = self._named_columns(table) if self._more() else ()
        if conditions:
            return ComputeIncrementalStats(table.name, tuple(conditions))
        return ComputeStats(table.name, columns)

    def _compute_statistics(self) -> bool:
        """Read the rest but for columns; tell whether rows are to be read."""
        self._need("COMPUTE")
        if not self._words("STATISTICS"):
            self._need("STATS")
        return not self._words("NOSCAN")

    def _named_columns(self, table: TableSource) -> tuple[str, ...]:
        columns = [self._column(table)]
        while self._sign(TokenType.COMMA):
            columns.append(self._column(table))
        return tuple(dict.fromkeys(columns))

    def _repaired(self, table: TableSource) -> Refresh:
        if any(self._words(word) for word in ("ADD", "DROP", "SYNC")):
            self._need("PARTITIONS")
        return Refresh(table.name)
