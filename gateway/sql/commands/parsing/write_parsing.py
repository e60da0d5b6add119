"""Statements that write rows, in the words of Spark's, Hive's and Impala's users; others of tables are read with them.

    INSERT INTO | OVERWRITE [TABLE] t [(c, ...)] [PARTITION (p = 1, q)] [(c, ...)] query
    FROM source INSERT INTO | OVERWRITE [TABLE] t ... SELECT ... [INSERT ...]
    TRUNCATE TABLE [IF EXISTS] t [PARTITION (p = 1)]

The head is read here, word by word; the query behind it is checked like any other, in the statement's dialect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from engines.protocol import TableSource
from gateway.errors import NotAllowed, UnknownColumn
from gateway.sql.commands.commands import CreateView, DropView
from gateway.sql.commands.definitions import RegisterTable
from gateway.sql.commands.parsing.relation_reader import Context
from gateway.sql.commands.parsing.table_parsing import TableReader
from gateway.sql.commands.parsing.token_reader import words_of
from gateway.sql.commands.parsing.view_parsing import blanked
from gateway.sql.commands.writes import (
    OVERWRITES,
    InsertInto,
    InsertIntoSeveral,
    Overwrite,
    Truncate,
    Write,
)
from gateway.sql.dialects.names import HIVE, IMPALA
from gateway.sql.parsing import require_length

_WRITES = re.compile(
    r"(?:[\s;]++|--[^\n]*+|/\*(?s:.)*?\*/)*+(?:FROM|INSERT|TRUNCATE|DROP\s+(?:TABLE|VIEW)"
    r"|CREATE\s+(?:OR\s+REPLACE\s+)?(?:EXTERNAL\s+)?(?:GLOBAL\s+)?(?:TEMP(?:ORARY)?\s+)?(?:TABLE|VIEW))\b",
    re.IGNORECASE,
)
_BEFORE_VIEW = ("OR", "REPLACE", "GLOBAL", "TEMPORARY", "TEMP")


def parse(sql: str, context: Context) -> Write | RegisterTable | CreateView | DropView | None:
    """Return the write in a text, None where it is none. Raises SqlError with what is wrong and where."""
    if _WRITES.match(sql) is None:
        return None
    require_length(sql, context.limits)
    tokens = words_of(sql, context.limits)
    inserts = _inserts(tokens) if tokens[0].text.upper() == "FROM" else []
    if tokens[0].text.upper() == "FROM" and not inserts:  # a query
        return None

    def reader(text: str, words: Sequence[Token]) -> _WriteReader:
        return _WriteReader(text, words, context)

    if not inserts:
        return reader(sql, tokens).write()
    source = tokens[0].start, inserts[0].start
    found = []
    for insert, following in zip(inserts, [*(each.start for each in inserts[1:]), len(sql)], strict=True):
        text = sql[: source[1]] + blanked(sql[source[1] : insert.start]) + sql[insert.start : following]
        found.append(reader(text, words_of(text, context.limits)).insert_from(source))
    return InsertIntoSeveral(tuple(found))


def _inserts(tokens: Sequence[Token]) -> list[Token]:
    """Return the words INSERT that stand in no bracket."""
    found, depth = [], 0
    for token, following in pairwise(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        insert = token.token_type is TokenType.VAR and token.text.upper() == "INSERT"
        if insert and not depth and following.text.upper() in ("INTO", "OVERWRITE"):
            found.append(token)
    return found


class _WriteReader(TableReader):
    """Reads one statement that writes."""

    def write(self) -> Write | RegisterTable | CreateView | DropView:
        if self._words("CREATE"):
            return self._create_view() if self._makes_view() else self._create()
        if self._words("DROP", "TABLE"):
            return self._drop()
        if self._words("DROP", "VIEW"):
            return self._drop_view()
        if self._words("TRUNCATE"):
            return self._truncate()
        self._need("INSERT")
        return self._insert()

    def insert_from(self, source: tuple[int, int]) -> InsertInto:
        """Read the one INSERT of a text whose query reads what stands between two places before it."""
        self._source = source
        self._at = next(at for at, token in enumerate(self._tokens) if token.start >= source[1])
        self._need("INSERT")
        return self._insert()

    def _makes_view(self) -> bool:
        words = (token.text.upper() for token in self._tokens[self._at :])
        return next((word for word in words if word not in _BEFORE_VIEW), "") == "VIEW"

    def _truncate(self) -> Truncate:
        self._words("TABLE")
        if_exists = self._words("IF", "EXISTS")
        where = self._token()
        name = self._full_name()
        target = self._catalog.get(name) if if_exists else self._found(name, [name], where)
        partitions = (self._conditions(target),) if self._more() and target is not None else None
        if target is not None:
            self._end()
        return Truncate(name, target, partitions, if_exists=if_exists)

    def _insert(self) -> InsertInto:
        overwrite = self._words("OVERWRITE")
        if not overwrite:
            self._need("INTO")
        self._words("TABLE")
        target = self._table()
        named = self._column_list(target)
        where = self._token()
        constants, dynamic = self._values(target) if self._words("PARTITION") else ({}, ())
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
        mode = (
            (self._context.partitions.overwrite or OVERWRITES.get(self._dialect, Overwrite.STATIC))
            if overwrite
            else None
        )
        return InsertInto(target, self._query(), named or tuple(free), constants, mode)

    def _check_dynamic(self, target: TableSource, constants: Mapping[str, str | None], where: Token) -> None:
        """Refuse rows that choose their partitions where the session does not want that."""
        if all(name in constants for name in target.partition_columns):
            return
        if not self._context.partitions.dynamic:
            message = "hive.exec.dynamic.partition is false: give all partition columns values, PARTITION (p = 1)."
            raise NotAllowed(message, self._position(where))
        if self._context.partitions.strict and not constants:
            message = (
                "hive.exec.dynamic.partition.mode is strict: give at least one partition column a value, "
                "PARTITION (p = 1, q), or SET it to nonstrict."
            )
            raise NotAllowed(message, self._position(where))

    def _values(self, target: TableSource) -> tuple[dict[str, str | None], tuple[str, ...]]:
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
        if self._dialect == IMPALA:
            return constants, tuple(dynamic)
        if self._dialect == HIVE and in_order != tuple(dynamic):
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
