"""Statements that are no queries, in the words of Impala's users: statistics, and what the catalog knows.

    COMPUTE STATS t [(c, ...)] [TABLESAMPLE SYSTEM(p) [REPEATABLE(n)]]      SHOW TABLE STATS t
    COMPUTE INCREMENTAL STATS t [PARTITION (p = 1, ...)]                    SHOW COLUMN STATS t
    DROP STATS t                                                            SHOW TABLES [[LIKE] 'x*|y']
    DROP INCREMENTAL STATS t PARTITION (p = 1, ...)                         DESCRIBE t
    ALTER TABLE t SET TBLPROPERTIES ('numRows' = 'n')                       REFRESH t [PARTITION (p = 1, ...)]
    ALTER TABLE t SET COLUMN STATS c ('numDVs' = 'n', ...)                  INVALIDATE METADATA [t]

They are the same in every dialect: names plain, in backquotes or in double quotes; texts in either kind of quotes.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, NoReturn

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from engines.protocol import TableSource
from gateway.sql.commands import (
    Command,
    ComputeIncrementalStats,
    ComputeStats,
    Condition,
    Describe,
    DropIncrementalStats,
    DropStats,
    Refresh,
    SetColumnStats,
    SetRows,
    ShowColumnStats,
    ShowTables,
    ShowTableStats,
    Test,
)
from gateway.sql.errors import (
    MultipleStatements,
    NotAllowed,
    StatementTooLong,
    SyntaxInvalid,
    UnknownColumn,
    UnknownProperty,
    UnknownTable,
    ValueOutOfRange,
    did_you_mean,
)
from gateway.sql.names import DEFAULT_DATABASE
from gateway.sql.parsing import ParserLimits, require_length
from gateway.sql.position import position_at
from metastore.records import SMALLEST_SHARE, Position

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

_FIRST_WORD = re.compile(r"(?:[\s;]++|--[^\n]*+|/\*(?s:.)*?\*/)*+([A-Za-z]+)")
_VERBS = frozenset({"COMPUTE", "DROP", "SHOW", "ALTER", "REFRESH", "INVALIDATE", "DESCRIBE", "DESC"})
_INTEGER_TYPES = ("tinyint", "smallint", "int", "bigint")

_COMPARISONS: Mapping[TokenType, Test] = {
    TokenType.EQ: operator.eq,
    TokenType.NEQ: operator.ne,
    TokenType.LT: operator.lt,
    TokenType.LTE: operator.le,
    TokenType.GT: operator.gt,
    TokenType.GTE: operator.ge,
}


class _Words(Tokenizer):
    """Cuts a command into words: none is reserved, so that a table may be called ``stats``."""

    QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'", '"']
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`"]
    STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]
    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        "<=": TokenType.LTE,
        ">=": TokenType.GTE,
        "<>": TokenType.NEQ,
        "!=": TokenType.NEQ,
        "==": TokenType.EQ,
    }
    COMMANDS: ClassVar[set[TokenType]] = set()


def parse(sql: str, *, catalog: Mapping[str, TableSource], limits: ParserLimits) -> Command | None:
    """Return the command in a text, None where it is none of ours. Raises SqlError with what is wrong and where."""
    first = _FIRST_WORD.match(sql)
    if first is None or first[1].upper() not in _VERBS:
        return None
    require_length(sql, limits)
    try:
        tokens = _Words().tokenize(sql)
    except TokenError as error:
        raise SyntaxInvalid(f"Syntax error: {str(error).splitlines()[0]}") from error
    if len(tokens) > limits.tokens:
        raise StatementTooLong(f"The statement has more than {limits.tokens:,} words and signs.")
    while tokens and tokens[0].token_type is TokenType.SEMICOLON:
        del tokens[0]
    return _Reader(sql, tokens, catalog).command()


class _Reader:
    """Reads tokens from left to right; each method takes what its name says or raises with the word that is wrong."""

    def __init__(self, sql: str, tokens: Sequence[Token], catalog: Mapping[str, TableSource]) -> None:
        self._sql = sql
        self._tokens = tokens
        self._catalog = catalog
        self._at = 0

    def command(self) -> Command | None:
        found = self._command()
        if found is not None:
            self._end()
        return found

    def _command(self) -> Command | None:
        if self._words("COMPUTE"):
            return self._compute()
        if self._words("DROP", "STATS"):
            return DropStats(self._table().name)
        if self._words("DROP", "INCREMENTAL"):
            return self._drop_incremental()
        if self._words("SHOW", "TABLE", "STATS"):
            return ShowTableStats(self._table().name)
        if self._words("SHOW", "COLUMN", "STATS"):
            return ShowColumnStats(self._table().name)
        if self._words("SHOW", "TABLES"):
            return self._show_tables()
        if self._words("ALTER", "TABLE"):
            return self._alter()
        if self._words("REFRESH"):
            return self._refresh()
        if self._words("INVALIDATE"):
            self._need("METADATA")
            return Refresh(self._table().name if self._more() else None)
        if self._words("DESCRIBE") or self._words("DESC"):
            return Describe(self._table().name)
        return None

    # ------------------------------------------------------------------ commands

    def _compute(self) -> ComputeStats | ComputeIncrementalStats:
        incremental = self._words("INCREMENTAL")
        self._need("STATS")
        table = self._table()
        if incremental:
            conditions = self._partition(table) if self._more() else ()
            return ComputeIncrementalStats(table.name, conditions)
        columns = self._columns(table) if self._sign(TokenType.L_PAREN) else ()
        return ComputeStats(table.name, columns, self._sample() if self._more() else None)

    def _drop_incremental(self) -> DropIncrementalStats:
        self._need("STATS")
        table = self._table()
        return DropIncrementalStats(table.name, self._partition(table))

    def _show_tables(self) -> ShowTables:
        if self._words("IN") or self._words("FROM"):
            token = self._token()
            if self._name().lower() != DEFAULT_DATABASE:
                raise UnknownTable(f"There is no database {token.text}; there is default.", self._position(token))
        self._words("LIKE")
        return ShowTables(self._text("a pattern") if self._more() else None)

    def _alter(self) -> SetRows | SetColumnStats:
        table = self._table()
        verb = self._token()
        if not self._words("SET"):
            message = "ALTER TABLE is not allowed but for SET TBLPROPERTIES and SET COLUMN STATS."
            raise NotAllowed(message, self._position(verb))
        if self._words("TBLPROPERTIES"):
            where = self._token()
            values = self._properties((ROWS_KEY,))
            if ROWS_KEY not in values:
                raise UnknownProperty(f"There is nothing to set without {ROWS_KEY}.", self._position(where))
            return SetRows(table.name, int(values[ROWS_KEY]))
        self._need("COLUMN")
        self._need("STATS")
        column = self._column(table)
        values = self._properties(tuple(COLUMN_KEYS))
        return SetColumnStats(table.name, column, {COLUMN_KEYS[key]: value for key, value in values.items()})

    def _refresh(self) -> Refresh:
        self._words("TABLE")
        table = self._table()
        if self._more():
            self._partition(table)  # only to find mistakes: looking at a whole table is cheap enough
        return Refresh(table.name)

    # ------------------------------------------------------------------ parts of commands

    def _columns(self, table: TableSource) -> tuple[str, ...]:
        """Read the rest of a list of columns; an empty one is allowed, as in Impala, and means all."""
        if self._sign(TokenType.R_PAREN):
            return ()
        columns = [self._column(table)]
        while self._sign(TokenType.COMMA):
            columns.append(self._column(table))
        self._need_sign(TokenType.R_PAREN, ")")
        return tuple(dict.fromkeys(columns))

    def _sample(self) -> float:
        self._need("TABLESAMPLE")
        self._need("SYSTEM")
        self._need_sign(TokenType.L_PAREN, "(")
        where = self._token()
        percent = self._number()
        if not SMALLEST_SHARE <= percent / 100 <= 1:
            raise ValueOutOfRange(
                f"A sample is at least {100 * SMALLEST_SHARE:g} and at most 100 percent.", self._position(where)
            )
        self._need_sign(TokenType.R_PAREN, ")")
        if self._words("REPEATABLE"):  # every sample is: which row groups are read follows from the files
            self._need_sign(TokenType.L_PAREN, "(")
            self._number()
            self._need_sign(TokenType.R_PAREN, ")")
        return percent / 100

    def _partition(self, table: TableSource) -> tuple[Condition, ...]:
        where = self._token()
        self._need("PARTITION")
        if not table.partition_columns:
            raise NotAllowed(f"The table {table.name} is not partitioned.", self._position(where))
        self._need_sign(TokenType.L_PAREN, "(")
        conditions = [self._condition(table)]
        while self._sign(TokenType.COMMA) or self._words("AND"):
            conditions.append(self._condition(table))
        self._need_sign(TokenType.R_PAREN, ")")
        return tuple(conditions)

    def _condition(self, table: TableSource) -> Condition:
        token = self._token()
        column = self._column(table)
        position = self._position(token)
        if column not in table.partition_columns:
            known = ", ".join(table.partition_columns)
            raise UnknownColumn(f"{column} is not a partition column; those are {known}.", position)
        if self._words("IS"):
            test: Test = operator.ne if self._words("NOT") else operator.eq
            self._need("NULL")
            return Condition(column, test, None, position)
        sign = self._token()
        if sign.token_type not in _COMPARISONS:
            self._unexpected("a comparison")
        self._at += 1
        data_type = next(each.data_type for each in table.columns if each.name == column)
        return Condition(column, _COMPARISONS[sign.token_type], self._partition_value(data_type), position)

    def _partition_value(self, data_type: str) -> int | str | None:
        if self._words("NULL"):
            return None
        token = self._token()
        text = self._literal()
        if data_type not in _INTEGER_TYPES:
            return text
        try:
            return int(text)
        except ValueError:
            raise ValueOutOfRange(f"{text} is not a whole number.", self._position(token)) from None

    def _properties(self, known: Sequence[str]) -> dict[str, float]:
        """Read ``('key' = 'value', ...)`` and return the values by the known keys' own spelling."""
        found: dict[str, float] = {}
        self._need_sign(TokenType.L_PAREN, "(")
        self._property(known, found)
        while self._sign(TokenType.COMMA):
            self._property(known, found)
        self._need_sign(TokenType.R_PAREN, ")")
        return found

    def _property(self, known: Sequence[str], found: dict[str, float]) -> None:
        token = self._token()
        name = self._text("the name of a property")
        key = next((key for key in known if key.lower() == name.lower()), None)
        if key is None and not (ROWS_KEY in known and name.upper() == MARK_KEY):
            raise UnknownProperty(f"{name} cannot be set; {', '.join(known)} can.", self._position(token))
        self._need_sign(TokenType.EQ, "=")
        where = self._token()
        text = self._literal()
        if key is None:
            return
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value < LARGEST or (key in WHOLE_NUMBERS and value != int(value)):
            kind = "a whole number" if key in WHOLE_NUMBERS else "a number"
            raise ValueOutOfRange(f"{key} is {kind} of at least 0, not {text}.", self._position(where))
        found[key] = value

    def _table(self) -> TableSource:
        token = self._token()
        parts = [self._name()]
        while self._sign(TokenType.DOT):
            parts.append(self._name())
        table = self._catalog.get(parts[-1].lower())
        if table is None or [part.lower() for part in parts[:-1]] not in ([], [DEFAULT_DATABASE]):
            message = f"There is no table {'.'.join(parts)}{did_you_mean(parts[-1], self._catalog)}"
            raise UnknownTable(message, self._position(token))
        return table

    def _column(self, table: TableSource) -> str:
        """Read the name of a table's column and return it as the catalog spells it."""
        token = self._token()
        spelled = {column.name.lower(): column.name for column in table.columns}
        name = self._name()
        if name.lower() not in spelled:
            message = f"There is no column {name} in {table.name}{did_you_mean(name, spelled)}"
            raise UnknownColumn(message, self._position(token))
        return spelled[name.lower()]

    # ------------------------------------------------------------------ tokens

    def _token(self) -> Token:
        """Return the next token; at the end an empty one that stands there."""
        if self._at < len(self._tokens):
            return self._tokens[self._at]
        return Token(TokenType.SEMICOLON, "", start=len(self._sql.rstrip()), end=len(self._sql))

    def _more(self) -> bool:
        return self._token().token_type is not TokenType.SEMICOLON

    def _words(self, *words: str) -> bool:
        """Take some words if they are next, all or none."""
        ahead = self._tokens[self._at : self._at + len(words)]
        if len(ahead) < len(words) or not all(map(_is_word, ahead, words)):
            return False
        self._at += len(words)
        return True

    def _need(self, word: str) -> None:
        if not self._words(word):
            self._unexpected(word)

    def _sign(self, kind: TokenType) -> bool:
        if self._token().token_type is not kind:
            return False
        self._at += 1
        return True

    def _need_sign(self, kind: TokenType, sign: str) -> None:
        if not self._sign(kind):
            self._unexpected(sign)

    def _name(self) -> str:
        token = self._token()
        quoted = token.token_type is TokenType.STRING and self._sql[token.start] == '"'
        if not quoted and token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER):
            self._unexpected("a name")
        self._at += 1
        return token.text

    def _text(self, what: str) -> str:
        token = self._token()
        if token.token_type is not TokenType.STRING:
            self._unexpected(what)
        self._at += 1
        return token.text

    def _number(self) -> float:
        token = self._token()
        if token.token_type is not TokenType.NUMBER:
            self._unexpected("a number")
        self._at += 1
        try:
            return float(token.text)
        except ValueError:
            raise SyntaxInvalid(f"Syntax error: {token.text} is not a number.", self._position(token)) from None

    def _literal(self) -> str:
        """Read a text, or a number as it is written."""
        sign = "-" if self._sign(TokenType.DASH) else ""
        token = self._token()
        if token.token_type is not TokenType.NUMBER and (sign or token.token_type is not TokenType.STRING):
            self._unexpected("a value")
        self._at += 1
        return sign + token.text

    def _end(self) -> None:
        if self._more():
            self._unexpected("the end")
        for token in self._tokens[self._at :]:
            if token.token_type is not TokenType.SEMICOLON:
                raise MultipleStatements("One statement at a time; this text holds more.", self._position(token))

    def _unexpected(self, wanted: str) -> NoReturn:
        token = self._token()
        near = f"near '{token.text}'" if token.text else "at the end"
        raise SyntaxInvalid(f"Syntax error {near}: {wanted} is expected here.", self._position(token))

    def _position(self, token: Token) -> Position:
        return position_at(self._sql, token.start)


def _is_word(token: Token, word: str) -> bool:
    return token.token_type is TokenType.VAR and token.text.upper() == word
