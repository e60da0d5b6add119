"""Statements that write or give queries names, in the words of Spark's and Hive's users.

    CREATE TABLE [IF NOT EXISTS] t [(c type, ...)] [USING | STORED AS parquet | orc] [PARTITIONED BY (c [type], ...)]
        [COMMENT '...'] [AS query]
    INSERT INTO | OVERWRITE [TABLE] t [(c, ...)] [PARTITION (p = 1, q)] [(c, ...)] query
    DROP TABLE [IF EXISTS] t [PURGE]
    CREATE [OR REPLACE] [TEMPORARY] VIEW [IF NOT EXISTS] v [(c, ...)] [COMMENT '...'] AS query
    DROP VIEW [IF EXISTS] v

The head is read here, word by word; the query behind it is checked like any other, in the statement's dialect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from engines.protocol import Column, TableSource
from engines.table_names import database_of, name_in_database
from gateway.errors import NotAllowed, SyntaxInvalid, TableExists, UnknownColumn, UnknownTable
from gateway.sql import parsing, statement
from gateway.sql.commands.commands import CreateView, DropView
from gateway.sql.commands.relation_reader import RelationReader
from gateway.sql.commands.token_reader import words_of
from gateway.sql.commands.writes import (
    AS_THE_DIALECT_HAS_IT,
    OVERWRITES,
    TABLE_FORMATS,
    CreateTable,
    DropTable,
    InsertInto,
    Overwrite,
    PartitionSettings,
    Write,
)
from gateway.sql.names import IN_DEFAULT, Naming, did_you_mean, temporary_name
from gateway.sql.parsing import ParserLimits, require_length
from gateway.sql.position import position_at, position_of
from gateway.sql.statement import CheckedStatement
from gateway.sql.views import below, temporary_in
from metastore.records import View
from selector.quoting import InvalidName, require_name
from selector.types import DataType, InvalidType, Kind, parse_at

_WRITES = re.compile(
    r"(?:[\s;]++|--[^\n]*+|/\*(?s:.)*?\*/)*+(?:CREATE\s+(?:EXTERNAL\s+)?TABLE|INSERT|DROP\s+(?:TABLE|VIEW)"
    r"|CREATE\s+(?:OR\s+REPLACE\s+)?(?:GLOBAL\s+)?(?:TEMP(?:ORARY)?\s+)?VIEW)\b",
    re.IGNORECASE,
)
_TABLE_NAME = re.compile(r"[a-z0-9_]{1,128}")
_QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE"})
Definitions = tuple[tuple[str, DataType | None], ...]

_TYPE_ENDS = frozenset({"COMMENT", "NOT", "DEFAULT", "GENERATED"})


def parse(
    sql: str,
    dialect: str,
    *,
    catalog: Mapping[str, TableSource],
    limits: ParserLimits,
    views: Mapping[str, View] = {},
    partitions: PartitionSettings = AS_THE_DIALECT_HAS_IT,
    naming: Naming = IN_DEFAULT,
    facts: Mapping[str, str] = {},
) -> Write | CreateView | DropView | None:
    """Return the write in a text, None where it is none. Raises SqlError with what is wrong and where."""
    if _WRITES.match(sql) is None:
        return None
    require_length(sql, limits)
    tokens = words_of(sql, limits)
    return _WriteReader(sql, dialect, tokens, catalog, limits, views, partitions, naming, facts).write()


class _WriteReader(RelationReader):
    """Reads one statement that writes."""

    def __init__(
        self,
        sql: str,
        dialect: str,
        tokens: Sequence[Token],
        catalog: Mapping[str, TableSource],
        limits: ParserLimits,
        views: Mapping[str, View],
        partitions: PartitionSettings,
        naming: Naming,
        facts: Mapping[str, str],
    ) -> None:
        super().__init__(sql, tokens, catalog, views, naming)
        self._dialect = dialect
        self._limits = limits
        self._partitions = partitions
        self._facts = facts

    def write(self) -> Write | CreateView | DropView:
        if self._words("CREATE"):
            if self._token().text.upper() in ("TABLE", "EXTERNAL"):
                return self._create()
            return self._create_view()
        if self._words("DROP", "TABLE"):
            return self._drop()
        if self._words("DROP", "VIEW"):
            return self._drop_view()
        self._need("INSERT")
        return self._insert()

    def _create(self) -> CreateTable:
        where = self._token()
        if self._words("EXTERNAL"):
            message = "Tables over files that exist are registered (POST /v1/tables, fusion tables add), not made."
            raise NotAllowed(message, self._position(where))
        self._need("TABLE")
        if_not_exists = self._words("IF", "NOT", "EXISTS")
        where = self._token()
        table = self._new_name()
        if table in self._views or (table in self._catalog and not if_not_exists):
            what = "view" if table in self._views else "table"
            raise TableExists(f"There is a {what} {table} already.", self._position(where))
        columns = self._columns() if self._sign(TokenType.L_PAREN) else ()
        format, folders = self._options()
        query = None
        if self._words("AS") or self._starts_query():
            where = self._token()
            query = self._query()
            if columns:
                raise NotAllowed("A table made from a query has the query's columns.", self._position(where))
        else:
            self._end()
        partition_columns = tuple(name for name, _ in folders)
        columns += tuple(Column(name, str(kind)) for name, kind in folders if kind is not None)
        if query is None:
            if not columns:
                self._unexpected("a list of columns or a query")
            self._check_folders(partition_columns, columns)
        return CreateTable(table, query, columns, partition_columns, format, if_not_exists)

    def _options(self) -> tuple[str, Definitions]:
        format = TABLE_FORMATS[0]
        folders: Definitions = ()
        while True:
            if self._words("USING") or self._words("STORED", "AS"):
                where = self._token()
                format = self._name().lower()
                if format not in TABLE_FORMATS:
                    message = f"Tables are made in {' or '.join(TABLE_FORMATS)}, not in {format}."
                    raise NotAllowed(message, self._position(where))
            elif self._words("PARTITIONED", "BY"):
                self._need_sign(TokenType.L_PAREN, "(")
                folders = self._definitions(types_needed=False)
            elif self._words("COMMENT"):
                self._text("a text")
            elif self._words("LOCATION"):
                message = "Tables are made in the gateway's warehouse; register files that lie elsewhere."
                raise NotAllowed(message, self._position(self._token()))
            else:
                return format, folders

    def _columns(self) -> tuple[Column, ...]:
        return tuple(Column(name, str(kind)) for name, kind in self._definitions(types_needed=True))

    def _definitions(self, *, types_needed: bool) -> Definitions:
        """Read the rest of a list of columns; a type that is not needed and not there is None."""
        columns: dict[str, tuple[str, DataType | None]] = {}
        while True:
            where = self._token()
            name = self._name()
            try:
                require_name(name)
            except InvalidName as error:
                raise NotAllowed(f"The name of a column {error}.", self._position(where)) from error
            if name.lower() in columns:
                raise NotAllowed(f"There are two columns {name}.", self._position(where))
            columns[name.lower()] = name, self._type(needed=types_needed)
            if self._sign(TokenType.R_PAREN):
                return tuple(columns.values())
            self._need_sign(TokenType.COMMA, ", or )")

    def _type(self, *, needed: bool) -> DataType | None:
        """Read a type, and what may be said of a column behind it."""
        where = self._token()
        if not needed and where.token_type in (TokenType.COMMA, TokenType.R_PAREN):
            return None
        try:
            found, end = parse_at(self._sql, where.start)
        except InvalidType as error:
            raise SyntaxInvalid(f"Syntax error: {error.message}.", position_at(self._sql, error.at)) from error
        while self._at < len(self._tokens) and self._token().start < end:
            self._at += 1
        if self._tokens[self._at - 1].end >= end:  # a word of more than the type
            raise SyntaxInvalid("Syntax error: a type is expected here.", self._position(where))
        if self._words("COMMENT"):
            self._text("a text")
        elif self._token().text.upper() in _TYPE_ENDS:
            raise NotAllowed("Columns have no constraints or defaults here.", self._position(self._token()))
        return DataType(Kind.STRING) if found.is_text else found  # lengths are not checked, so none is promised

    def _check_folders(self, folders: Sequence[str], columns: Sequence[Column]) -> None:
        known = [column.name.lower() for column in columns]
        for name in folders:
            if name.lower() not in known:
                raise UnknownColumn(f"There is no column {name}{did_you_mean(name, known)}")
        if len(folders) == len(columns):
            raise NotAllowed("A table needs a column that is not a folder.")

    def _insert(self) -> InsertInto:
        overwrite = self._words("OVERWRITE")
        if not overwrite:
            self._need("INTO")
        self._words("TABLE")
        target = self._table()
        named = self._column_list(target)
        where = self._token()
        constants, dynamic = self._partition(target) if self._words("PARTITION") else ({}, ())
        self._check_dynamic(target, constants, where)
        if named:
            named += tuple(name for name in dynamic if name not in named)
        else:
            named = self._column_list(target)
        free = [column.name for column in target.columns if column.name not in (*constants, *dynamic)] + list(dynamic)
        where = self._token()
        if not self._starts_query() and self._token().token_type is not TokenType.L_PAREN:
            self._unexpected("a query")
        if any(name in constants for name in named):
            raise NotAllowed("A column has a value already.", self._position(where))
        mode = (self._partitions.overwrite or OVERWRITES.get(self._dialect, Overwrite.STATIC)) if overwrite else None
        return InsertInto(target, self._query(), named or tuple(free), constants, mode)

    def _check_dynamic(self, target: TableSource, constants: Mapping[str, str | None], where: Token) -> None:
        """Refuse rows that choose their partitions where the session does not want that."""
        if all(name in constants for name in target.partition_columns):
            return
        if not self._partitions.dynamic:
            message = "hive.exec.dynamic.partition is false: give all partition columns values, PARTITION (p = 1)."
            raise NotAllowed(message, self._position(where))
        if self._partitions.strict and not constants:
            message = (
                "hive.exec.dynamic.partition.mode is strict: give at least one partition column a value, "
                "PARTITION (p = 1, q), or SET it to nonstrict."
            )
            raise NotAllowed(message, self._position(where))

    def _partition(self, target: TableSource) -> tuple[dict[str, str | None], tuple[str, ...]]:
        """Read values of partition columns, and those without one in the order in which the query has them."""
        opening = self._token()
        self._need_sign(TokenType.L_PAREN, "(")
        constants: dict[str, str | None] = {}
        dynamic: list[str] = []
        while True:
            where = self._token()
            name = self._column(target)
            if name not in target.partition_columns:
                raise UnknownColumn(f"{name} is not a partition column of {target.name}.", self._position(where))
            if self._sign(TokenType.EQ):
                constants[name] = None if self._words("NULL") else self._literal()
            else:
                dynamic.append(name)
            if self._sign(TokenType.R_PAREN):
                break
            self._need_sign(TokenType.COMMA, ", or )")
        if sorted((*constants, *dynamic)) != sorted(target.partition_columns):
            message = f"PARTITION names each partition column once: {', '.join(target.partition_columns)}."
            raise NotAllowed(message, self._position(opening))
        in_order = tuple(name for name in target.partition_columns if name in dynamic)
        if self._dialect == "impala":
            return constants, tuple(dynamic)
        if self._dialect == "hive" and in_order != tuple(dynamic):
            message = f"Hive wants partition columns in the table's order: {', '.join(target.partition_columns)}."
            raise NotAllowed(message, self._position(opening))
        return constants, in_order

    def _column_list(self, target: TableSource) -> tuple[str, ...]:
        """Read a list of columns, if there is one."""
        if self._token().token_type is not TokenType.L_PAREN or self._nested():
            return ()
        self._need_sign(TokenType.L_PAREN, "(")
        names: dict[str, None] = {}
        while True:
            where = self._token()
            name = self._column(target)
            if name in names:
                raise NotAllowed(f"The column {name} is named twice.", self._position(where))
            names[name] = None
            if self._sign(TokenType.R_PAREN):
                return tuple(names)
            self._need_sign(TokenType.COMMA, ", or )")

    def _drop(self) -> DropTable:
        if_exists = self._words("IF", "EXISTS")
        where = self._token()
        table = self._full_name()
        self._words("PURGE")
        self._end()
        if table not in self._catalog and not if_exists:
            raise UnknownTable(f"There is no table {table}{did_you_mean(table, self._catalog)}", self._position(where))
        return DropTable(table, existing=table in self._catalog)

    def _create_view(self) -> CreateView:
        replace = self._words("OR", "REPLACE")
        where = self._token()
        if self._words("GLOBAL"):
            raise NotAllowed("There are no global temporary views; leave GLOBAL away.", self._position(where))
        temporary = self._words("TEMPORARY") or self._words("TEMP")
        self._need("VIEW")
        if_not_exists = self._words("IF", "NOT", "EXISTS")
        where = self._token()
        view = self._bare_name() if temporary else self._new_name()
        taken = view in self._views and not (replace or if_not_exists)
        if not temporary and (view in self._catalog or taken):
            what = "table" if view in self._catalog else "view"
            raise TableExists(f"There is a {what} {view} already.", self._position(where))
        columns = self._view_columns() if self._sign(TokenType.L_PAREN) else ()
        if self._words("COMMENT"):
            self._text("a text")
        self._need("AS")
        text = self._rest()
        if not temporary:
            self._refuse_temporary_in(text)
        found_by = temporary_name(view) if temporary else view
        query = self._checked(text, below(self._views, found_by, temporary=temporary))
        sql, database = _stripped(text), self._naming.database
        return CreateView(view, sql, self._dialect, database, query, columns, temporary, replace, if_not_exists)

    def _refuse_temporary_in(self, text: str) -> None:
        """Refuse a session's own view in the query of one that is everybody's: nobody else could read it."""
        place = temporary_in(parsing.parse(text, self._dialect, self._limits)[0], self._views)
        if place is not None:
            message = f"{place.name} is a temporary view, which only this session has; make this one TEMPORARY too."
            raise NotAllowed(message, position_of(place))

    def _view_columns(self) -> tuple[str, ...]:
        names: dict[str, str] = {}
        while True:
            where = self._token()
            name = self._name()
            if name.lower() in names:
                raise NotAllowed(f"There are two columns {name}.", self._position(where))
            names[name.lower()] = name
            if self._words("COMMENT"):
                self._text("a text")
            if self._sign(TokenType.R_PAREN):
                return tuple(names.values())
            self._need_sign(TokenType.COMMA, ", or )")

    def _drop_view(self) -> DropView:
        if_exists = self._words("IF", "EXISTS")
        where = self._token()
        view, parts = self._visible_name()
        self._end()
        if view not in self._views and not if_exists:
            raise UnknownTable(f"There is no view {view}{did_you_mean(view, self._views)}", self._position(where))
        temporary = view in self._views and self._views[view].temporary
        return DropView(parts[-1].lower() if temporary else view, temporary, if_exists)

    # ------------------------------------------------------------------ parts

    def _query(self) -> CheckedStatement:
        return self._checked(self._rest(), self._views)

    def _checked(self, query: str, views: Mapping[str, View]) -> CheckedStatement:
        return statement.check(
            query,
            self._dialect,
            catalog=self._catalog,
            limits=self._limits,
            views=views,
            naming=self._naming,
            facts=self._facts,
        )

    def _rest(self) -> str:
        """Return the rest as a query; what comes before it is blanked, so that positions stay what they are."""
        start = self._token().start
        query = re.sub(r"[^\n]", " ", self._sql[:start]) + self._sql[start:]
        if self._words("VALUES"):  # a query of its own only behind FROM
            query = f"SELECT * FROM ({query.strip().rstrip(';')})"  # noqa: S608 - it is parsed and checked next
        return query

    def _starts_query(self) -> bool:
        return self._token().text.upper() in _QUERY_WORDS

    def _nested(self) -> bool:
        """Tell whether the bracket that comes next opens a query."""
        at = self._at
        while at < len(self._tokens) and self._tokens[at].token_type is TokenType.L_PAREN:
            at += 1
        return at < len(self._tokens) and self._tokens[at].text.upper() in _QUERY_WORDS

    def _new_name(self) -> str:
        """Read the full name of a table or view that is to be made, in a database that is there."""
        where = self._token()
        name = self._full_name()
        self._naming.require(database_of(name), self._position(where))
        return self._well_formed(name_in_database(name), where) and name

    def _bare_name(self) -> str:
        """Read the name of what is in no database."""
        where = self._token()
        parts = self._parts()
        if len(parts) > 1:
            raise NotAllowed("A temporary view is in no database; give it a name of one part.", self._position(where))
        return self._well_formed(parts[0].lower(), where)

    def _well_formed(self, name: str, where: Token) -> str:
        if not _TABLE_NAME.fullmatch(name):
            raise NotAllowed("Such a name has letters, digits and _, at most 128.", self._position(where))
        return name


def _stripped(text: str) -> str:
    """Return a text without white space around it, and without semicolons at its end."""
    end = len(text)
    while end and (text[end - 1] == ";" or text[end - 1].isspace()):
        end -= 1
    return text[:end].lstrip()
