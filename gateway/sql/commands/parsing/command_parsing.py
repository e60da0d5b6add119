"""Statements that are no queries, in the words of Impala's and Hive's users: statistics, the catalog, the session.

    COMPUTE STATS t [(c, ...)] [TABLESAMPLE SYSTEM(p) [REPEATABLE(n)]]      REFRESH t [PARTITION (p = 1, ...)]
    COMPUTE INCREMENTAL STATS t [PARTITION (p = 1, ...)]                    INVALIDATE METADATA [t]
    DROP STATS t                                                            ALTER TABLE | VIEW t SET OWNER USER name
    DROP INCREMENTAL STATS t PARTITION (p = 1, ...)
    ALTER TABLE t SET TBLPROPERTIES ('numRows' = 'n')
    ALTER TABLE t SET COLUMN STATS c ('numDVs' = 'n', ...)
    USE d      SET [ALL | -v]      SET name      SET name = value     RESET [name]
    SHOW ...   DESCRIBE | DESC ...   which show_parsing.py reads

They are the same in every dialect: names plain, in backquotes or in double quotes; texts in either kind of quotes.
"""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import TokenType

from engines.protocol import TableSource
from gateway.errors import (
    SyntaxInvalid,
    ValueOutOfRange,
)
from gateway.sql.commands.commands import (
    Command,
    ComputeIncrementalStats,
    ComputeStats,
    DropIncrementalStats,
    DropStats,
    Refresh,
    ResetOptions,
    SetOption,
    ShowOptions,
    UseDatabase,
)
from gateway.sql.commands.parsing.relation_reader import Context, RelationReader
from gateway.sql.commands.parsing.show_parsing import ShowReader
from gateway.sql.commands.parsing.token_reader import words_of
from gateway.sql.nodes import position_at
from gateway.sql.parsing import require_length
from metastore.records import SMALLEST_SHARE

_FIRST_WORD = re.compile(r"(?:[\s;]++|--[^\n]*+|/\*(?s:.)*?\*/)*+([A-Za-z]+)")
_VERBS = frozenset({"COMPUTE", "DROP", "SHOW", "REFRESH", "INVALIDATE", "DESCRIBE", "DESC", "USE"})
_OPTION_VERBS = frozenset({"SET", "RESET"})
_ASKING_VERBS = frozenset({"SHOW", "DESCRIBE", "DESC"})
_QUICK_VERBS = _OPTION_VERBS | _ASKING_VERBS | {"USE"}
_QUERY_VERBS = frozenset({"SELECT", "WITH", "VALUES"})
_OPTION_NAME = r"[\w.:$-]+"
_SET = re.compile(rf"(?:(?P<all>ALL|-v)|(?P<name>{_OPTION_NAME})\s*(?:=(?P<value>.*))?)?", re.DOTALL | re.IGNORECASE)
_TIME_ZONE = re.compile(r"TIME\s++ZONE\b\s*+(?P<zone>.*)", re.DOTALL | re.IGNORECASE)
TIME_ZONE_KEY = "spark.sql.session.timeZone"
SERVER_TIME_ZONE = "UTC"  # of a gateway, wherever it stands
_RESET = re.compile(rf"(?P<name>{_OPTION_NAME})?")


def parse(sql: str, context: Context) -> Command | None:
    """Return the command in a text, None where it is none of ours. Raises SqlError with what is wrong and where."""
    first = _FIRST_WORD.match(sql)
    if first is None or first[1].upper() not in _VERBS | _OPTION_VERBS:
        return None
    require_length(sql, context.limits)
    if first[1].upper() in _OPTION_VERBS:
        return _option(sql, first)
    words = words_of(sql, context.limits)
    if first[1].upper() in _ASKING_VERBS:
        return ShowReader(sql, words, context).command()
    return _CommandReader(sql, words, context).command()


def is_quick(sql: str) -> bool:
    """Tell whether a text starts as a command does that only looks something up, or changes a session."""
    first = _FIRST_WORD.match(sql)
    return first is not None and first[1].upper() in _QUICK_VERBS


def is_query(sql: str) -> bool:
    """Tell whether a text starts as nothing does but queries, which have rows."""
    first = _FIRST_WORD.match(sql)
    return first is not None and first[1].upper() in _QUERY_VERBS


def _option(sql: str, verb: re.Match[str]) -> Command:
    """Read what follows SET or RESET: a value is any text up to the end, as Hive has it, and needs no quotes."""
    rest = sql[verb.end() :].strip().rstrip(";").strip()
    resets = verb[1].upper() == "RESET"
    zone = None if resets else _TIME_ZONE.fullmatch(rest)
    if zone is not None and zone["zone"] and not zone["zone"].startswith("="):
        local = zone["zone"].upper() == "LOCAL"
        return SetOption(TIME_ZONE_KEY, SERVER_TIME_ZONE if local else _unquoted(zone["zone"].strip()))
    found = (_RESET if resets else _SET).fullmatch(rest)
    if found is None:
        message = f"Syntax error: {verb[1].upper()} takes {'a name' if resets else 'name = value'}."
        raise SyntaxInvalid(message, position_at(sql, verb.start(1)))
    name = found["name"] and found["name"].removeprefix("hiveconf:")
    if resets:
        return ResetOptions(name)
    if found["value"] is not None:
        return SetOption(name, _unquoted(found["value"].strip()))
    what = (found["all"] or "").lower()
    return ShowOptions(name, meanings=what == "-v", everything=what == "all")


def _unquoted(text: str) -> str:
    """Take quotes away that stand around the whole of a value, as Impala's users write them."""
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


class _CommandReader(RelationReader):
    """Reads one command."""

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
        if self._words("USE"):
            return UseDatabase(self._database())
        if self._words("REFRESH"):
            return self._refresh()
        if self._words("INVALIDATE"):
            self._need("METADATA")
            return Refresh(self._table(to_mend=True).name if self._more() else None)
        return None

    # ------------------------------------------------------------------ commands

    def _compute(self) -> ComputeStats | ComputeIncrementalStats:
        incremental = self._words("INCREMENTAL")
        self._need("STATS")
        table = self._table()
        if incremental:
            conditions = self._conditions(table) if self._more() else ()
            return ComputeIncrementalStats(table.name, conditions)
        columns = self._columns(table) if self._sign(TokenType.L_PAREN) else ()
        return ComputeStats(table.name, columns, self._sample() if self._more() else None)

    def _drop_incremental(self) -> DropIncrementalStats:
        self._need("STATS")
        table = self._table()
        return DropIncrementalStats(table.name, self._conditions(table))

    def _refresh(self) -> Refresh:
        self._words("TABLE")
        table = self._table(to_mend=True)
        if self._more():
            self._conditions(table)  # only to find mistakes: looking at a whole table is cheap enough
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
