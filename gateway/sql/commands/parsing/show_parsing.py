"""Statements that only ask: what there is, what it is like, and where a statement would run.

SHOW DATABASES | SCHEMAS | NAMESPACES | CATALOGS [[LIKE] 'x*|y']      SHOW CURRENT DATABASE | SCHEMA | NAMESPACE
SHOW TABLES | VIEWS [IN | FROM d] [[LIKE] 'x*|y']                     SHOW TABLE EXTENDED [IN | FROM d] LIKE 'x*|y'
SHOW COLUMNS IN | FROM t [IN | FROM d]                                SHOW CREATE TABLE | VIEW t
SHOW PARTITIONS t [PARTITION (p = 1, ...)]                            SHOW FILES IN t [PARTITION (p = 1, ...)]
SHOW TBLPROPERTIES t [('key')]                                        SHOW TABLE STATS t    SHOW COLUMN STATS t
SHOW [USER | SYSTEM | ALL | AGGREGATE | ANALYTIC] FUNCTIONS [IN | FROM d] [[LIKE] 'x*|y']
SHOW ROLES | CURRENT ROLES | ROLE GRANT ... | PRINCIPALS ... | GRANT ...
DESCRIBE | DESC [TABLE] [EXTENDED | FORMATTED] t [c]                  DESCRIBE FUNCTION [EXTENDED] f
EXPLAIN [EXTENDED | FORMATTED | COST | CODEGEN] statement

What is said of databases is in database_parsing.py.
"""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import Token, TokenType

from gateway.errors import NotAllowed, UnknownColumn
from gateway.sql import parsing
from gateway.sql.commands.commands import (
    Describe,
    DescribeFunction,
    Description,
    FunctionKind,
    Listing,
    RightsKind,
    ShowCatalogs,
    ShowColumns,
    ShowColumnStats,
    ShowCreate,
    ShowDatabases,
    ShowFiles,
    ShowFunctions,
    ShowNamespace,
    ShowPartitions,
    ShowProperties,
    ShowRights,
    ShowTableExtended,
    ShowTables,
    ShowTableStats,
)
from gateway.sql.commands.parsing.relation_reader import RelationReader
from gateway.sql.names import did_you_mean
from gateway.sql.nodes import position_at
from metastore.records import View

BUILTINS = "_impala_builtins"  # Impala's database of its own functions

_GAP = r"(?:[\s;]++|--[^\n]*+|/\*(?s:.)*?\*/)"
_EXPLAIN = re.compile(
    rf"{_GAP}*+EXPLAIN\b(?:{_GAP}++(?P<details>EXTENDED|FORMATTED|COST|CODEGEN)\b(?!\s*+[.=(]))?", re.IGNORECASE
)
_RUNS = re.compile(rf"{_GAP}*+(?P<verb>ANALYZE|EXPLAIN)\b", re.IGNORECASE)


def explained(sql: str) -> tuple[str, bool] | None:
    """Return the statement behind EXPLAIN, with blanks before it, and whether details are asked for.

    None where a text does not begin with EXPLAIN.
    """
    head = _EXPLAIN.match(sql)
    if head is None:
        return None
    rest = sql[head.end() :]
    other = _RUNS.match(rest)
    if other is not None:
        message = f"EXPLAIN {other['verb'].upper()} is not allowed: EXPLAIN runs nothing, and takes one statement."
        raise NotAllowed(message, position_at(sql, head.end() + other.start("verb")))
    return re.sub(r"[^\n]", " ", sql[: head.end()]) + rest, head["details"] is not None


class ShowReader(RelationReader):
    """Reads one statement that begins with SHOW or DESCRIBE."""

    def command(self) -> Listing | Description:
        """Return what is asked."""
        found = self._show() if self._words("SHOW") else self._describe()
        self._end()
        return found

    def _show(self) -> Listing | Description:
        where = self._token()
        if self._words("TABLES") or self._words("VIEWS"):
            database = self._database_asked()
            return ShowTables(database, self._pattern(), views_only=where.text.upper() == "VIEWS")
        if self._words("TABLE", "EXTENDED"):
            return ShowTableExtended(self._database_asked(), self._pattern())
        if self._words("TABLE", "STATS"):
            return ShowTableStats(self._table().name)
        if self._words("COLUMN", "STATS"):
            return ShowColumnStats(self._table().name)
        if self._words("DATABASES") or self._words("SCHEMAS") or self._words("NAMESPACES"):
            return ShowDatabases(self._pattern())
        if self._words("CATALOGS"):
            return ShowCatalogs(self._pattern())
        if self._words("COLUMNS"):
            return self._columns_of()
        if self._words("CREATE"):
            if not self._words("VIEW"):
                self._need("TABLE")
            name = self._shown()
            return ShowCreate(name, name not in self._views or not self._selects_all(self._views[name]))
        if self._words("PARTITIONS"):
            table = self._table()
            if not table.partition_columns:
                raise NotAllowed(f"The table {table.name} is not partitioned.", self._position(where))
            return ShowPartitions(table.name, self._conditions(table) if self._more() else ())
        if self._words("FILES"):
            if not self._words("IN"):
                self._need("FROM")
            table = self._table()
            return ShowFiles(table.name, self._conditions(table) if self._more() else ())
        if self._words("TBLPROPERTIES"):
            return ShowProperties(self._shown(), self._key_in_brackets())
        return self._functions() or self._rights() or self._unknown(where)

    def _describe(self) -> Description:
        if not self._words("DESCRIBE"):
            self._need("DESC")
        if self._ahead(2) and self._words("FUNCTION"):
            details = self._ahead(2) and self._words("EXTENDED")
            return DescribeFunction(self._function(), details)
        self._words("TABLE")
        details = self._ahead(2) and (self._words("EXTENDED") or self._words("FORMATTED"))
        name = self._shown()
        return Describe(name, details, self._column_of(name) if self._more() else None)

    # ------------------------------------------------------------------ parts

    def _database_asked(self) -> str:
        return self._database() if self._words("IN") or self._words("FROM") else self._naming.database

    def _pattern(self) -> str | None:
        """Read a pattern; where it is a single word it needs no quotes."""
        self._words("LIKE")
        if not self._more():
            return None
        return self._text("a pattern") if self._token().token_type is TokenType.STRING else self._name()

    def _columns_of(self) -> ShowColumns:
        if not self._words("IN"):
            self._need("FROM")
        token = self._token()
        name, parts = self._visible_name()
        if self._words("IN") or self._words("FROM"):
            name = self._naming.full([self._database(), parts[-1]])
        return ShowColumns(name if name in self._views else self._found(name, parts, token).name)

    def _column_of(self, name: str) -> str:
        """Read the name of a column of a table or view."""
        token = self._token()
        source = self._views.get(name) or self._catalog[name]
        spelled = {column.name.lower(): column.name for column in source.columns}
        column = self._name()
        if column.lower() not in spelled:
            message = f"There is no column {column} in {name}{did_you_mean(column, spelled)}"
            raise UnknownColumn(message, self._position(token))
        return spelled[column.lower()]

    def _selects_all(self, view: View) -> bool:
        """Tell whether a view's columns are those of a ``*``, so that they cannot have other names."""
        query, _ = parsing.parse(view.sql, view.dialect, self._limits)
        return query.is_star

    def _key_in_brackets(self) -> str | None:
        """Read a property's name in brackets, if there is one."""
        if not self._sign(TokenType.L_PAREN):
            return None
        key = self._key()
        self._need_sign(TokenType.R_PAREN, ")")
        return key

    def _functions(self) -> ShowFunctions | None:
        kind = next((each for each in FunctionKind if self._words(each, "FUNCTIONS")), None)
        if kind is None and not self._words("FUNCTIONS"):
            return None
        of_builtins = self._words("IN", BUILTINS.upper()) or self._words("FROM", BUILTINS.upper())
        if not of_builtins:
            self._database_asked()
        return ShowFunctions(kind, self._pattern(), of_builtins)

    def _function(self) -> str:
        """Read a function's name, plain, quoted or with a database before it, or an operator."""
        token = self._token()
        if token.token_type is TokenType.STRING:
            return self._text("a name")
        if token.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
            return self._parts()[-1]
        self._at += 1
        return token.text

    def _rights(self) -> ShowNamespace | ShowRights | None:
        if self._words("CURRENT"):
            if self._words("ROLES"):
                return ShowRights(RightsKind.CURRENT_ROLES)
            if not self._words("DATABASE") and not self._words("SCHEMA"):
                self._need("NAMESPACE")
            return ShowNamespace()
        if self._words("ROLES"):
            return ShowRights(RightsKind.ROLES)
        kind = (
            RightsKind.ROLE_GRANT
            if self._words("ROLE", "GRANT")
            else RightsKind.PRINCIPALS
            if self._words("PRINCIPALS")
            else RightsKind.GRANT
            if self._words("GRANT") or self._words("GRANTS")
            else None
        )
        if kind is None:
            return None
        while self._more():  # of whom and on what: there is nothing to choose from
            self._at += 1
        return ShowRights(kind)

    def _unknown(self, where: Token) -> Listing:
        what = where.text.upper()[:40] or "without a word behind it"
        raise NotAllowed(
            f"SHOW {what} is not known here; SHOW takes DATABASES, TABLES, VIEWS, TABLE EXTENDED, "
            "COLUMNS, CREATE TABLE, PARTITIONS, FILES, TBLPROPERTIES, FUNCTIONS, TABLE STATS, COLUMN STATS, CATALOGS, "
            "CURRENT DATABASE, ROLES and GRANT.",
            self._position(where),
        )
