"""Functions: their names, and what is known of one.

SHOW [USER | SYSTEM | ALL | AGGREGATE | ANALYTIC] FUNCTIONS [IN | FROM d] [[LIKE] 'x*|y']
DESCRIBE | DESC FUNCTION [EXTENDED] f
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
from sqlglot.tokenizer_core import TokenType

from engines.writing import knows_function
from gateway.commands.command import ShowCommand
from gateway.commands.grammar.reader import Reader
from gateway.commands.relations import matching
from gateway.commands.services import CommandServices
from gateway.statistics.tables import texts_of
from sql.allowlist.functions import AGGREGATES, ANALYTIC, function_names
from sql.dialects.hive_functions import usable_names
from sql.dialects.names import HIVE, HIVES, IMPALA

BUILTINS = "_IMPALA_BUILTINS"  # Impala's database of its own functions
NAMES = {HIVE: ("tab_name",), IMPALA: ("return type", "signature", "binary type", "is persistent")}
DESCRIPTION: Mapping[str, str] = {HIVE: "tab_name"}


class FunctionKind(StrEnum):
    """Kinds of functions; there are built-in ones alone. The value is the word for it."""

    ALL = "ALL"
    SYSTEM = "SYSTEM"
    USER = "USER"
    AGGREGATE = "AGGREGATE"
    ANALYTIC = "ANALYTIC"


@dataclass(frozen=True, slots=True)
class ShowFunctions(ShowCommand):
    """List functions. Impala lists those of a database, of which only its own built-in ones has any."""

    kind: FunctionKind | None = None
    """None where the statement names none."""
    pattern: str | None = None
    """Pattern of their names; None for all."""
    of_builtins: bool = False
    """Impala's database of built-in functions is meant, which has no tables."""

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per function."""
        dialect = services.dialect
        kinds = {FunctionKind.AGGREGATE: AGGREGATES, FunctionKind.ANALYTIC: ANALYTIC}
        usable = _usable(dialect)
        of_kind = [name for name in usable if self.kind not in kinds or name in kinds[self.kind]]
        names = matching(of_kind, self.pattern)
        if dialect == IMPALA:
            rows = [["", f"{name}(...)", "BUILTIN", "true"] for name in names] if self.of_builtins else []
            return texts_of(NAMES[IMPALA], rows)
        rows = [] if self.kind is FunctionKind.USER else [[name] for name in names]
        return texts_of(NAMES.get(dialect, ("function",)), rows)


@dataclass(frozen=True, slots=True)
class DescribeFunction(ShowCommand):
    """Describe a function, whether it exists or not. details: with more."""

    function: str
    details: bool = False

    def run(self, services: CommandServices) -> pa.Table:
        """Return lines of text."""
        name, dialect = self.function.lower(), services.dialect
        heading = DESCRIPTION.get(dialect, "function_desc")
        if name not in _usable(dialect):
            return texts_of((heading,), [[f"Function: {self.function} is not known, or not allowed here."]])
        rewritten = name not in function_names()  # which its dialect says in other words
        on = [
            entry.name for entry in services.engines.values() if rewritten or knows_function(entry.engine.writer, name)
        ]
        lines = [f"Function: {name}", f"Usage: built in; statements in the dialect {dialect} may use it."]
        lines.append(f"Engines: {', '.join(on) or 'none that is here'}")
        if self.details:
            lines.append(
                "Extended Usage: it means the same on each of them; what one has no words for runs on another."
            )
        return texts_of((heading,), [[line] for line in lines])


def _usable(dialect: str) -> Collection[str]:
    return usable_names(dialect) if dialect in HIVES else function_names()


# ---------------------------------------------------------------------- grammar


def parse(reader: Reader) -> ShowFunctions | DescribeFunction | None:
    """Read a statement about functions."""
    if reader.accept("SHOW"):
        return _show(reader)
    reader.name()
    if not reader.has_ahead(2) or not reader.accept("FUNCTION"):  # a table may be called function
        return None
    details = reader.has_ahead(2) and reader.accept("EXTENDED")
    return DescribeFunction(_function(reader), details)


def _show(reader: Reader) -> ShowFunctions | None:
    kind = next((kind for kind in FunctionKind if reader.accept(kind, "FUNCTIONS")), None)
    if kind is None and not reader.accept("FUNCTIONS"):
        return None
    of_builtins = reader.accept("IN", BUILTINS) or reader.accept("FROM", BUILTINS)
    if not of_builtins:
        reader.database_or_current()
    return ShowFunctions(kind, reader.pattern(), of_builtins)


def _function(reader: Reader) -> str:
    """Read a function's name, plain, quoted or with a database before it, or an operator."""
    token = reader.peek()
    if token.token_type is TokenType.STRING:
        return reader.text("a name")
    if token.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
        return reader.name_parts()[-1]
    reader.accept_sign(token.token_type)
    return token.text
