"""Pieces of DuckDB's text with the type that Spark gives to them, and what cannot be said in DuckDB's words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from engines.duckdb.writer.kinds import BINARY, NULL, STRING, Kind
from engines.errors import NoEquivalent
from sql.guards import OTHER_MEANING

JUST_ONE = range(1, 2)  # argument
_TEXT = re.compile(r"'(?:[^']|'')*'")


@dataclass(frozen=True, slots=True)
class Value:
    """A written expression.

    text: DuckDB's SQL; it needs no further brackets.
    kind: its type in Spark.
    held: decimal type that DuckDB computes, if its precision differs from Spark's; the scale is the same.
    literal: text of a string literal.
    whole: value of a whole number's literal.
    """

    text: str
    kind: Kind
    held: Kind | None = None
    literal: str | None = None
    whole: int | None = None

    @property
    def decimal(self) -> Kind:
        """The decimal that DuckDB has in its hands."""
        return self.held or self.kind

    @property
    def is_literal(self) -> bool:
        """Tell whether the value stands in the statement itself."""
        return self.literal is not None or self.whole is not None or self.kind == NULL

    @property
    def is_constant(self) -> bool:
        """Tell whether the text names no column, so that DuckDB folds it away."""
        return '"' not in _TEXT.sub("", self.text)

    def computed(self) -> Value:
        """Return the value as that of an expression: Spark counts the digits of a bare literal only."""
        if self.whole is None:
            return self
        return Value(f"CAST({self.text} AS {self.kind.duckdb})", self.kind, held=self.held)

    def exactly(self) -> str:
        """Return the text with exactly the type of its kind."""
        if self.held is not None and self.held != self.kind:
            return f"CAST({self.text} AS {self.kind.duckdb})"
        return self.text


def require(condition: bool, what: str) -> None:
    """Raise NoEquivalent with what it is about unless a condition holds."""
    if not condition:
        raise NoEquivalent(what)


def require_count(values: Sequence[object], counts: range, function: str) -> None:
    """Raise NoEquivalent for a call with a number of arguments that a function does not take: Spark says so."""
    require(len(values) in counts, f"{function} with {len(values)} arguments.")


def quoted_name(name: str) -> str:
    """Quote an identifier. Raises NoEquivalent where it is empty, as Spark names a column of ``''``."""
    require(name != "", "a column without a name.")
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """Quote a string."""
    return "'" + text.replace("'", "''") + "'"


def string(text: str) -> Value:
    """Return a string literal."""
    return Value(quoted_text(text), STRING, literal=text)


def raise_at_runtime(what: str, kind: Kind) -> str:
    """Return SQL that fails at run time on DuckDB, for a value that only Spark evaluates correctly.

    what: subject of the error message.
    kind: type of the value that the SQL replaces. It is a cast of a text that cannot be read as that type. (error()
    would fail too, but DuckDB counts it as volatile, does not move an expression that holds it, and computes it twice.)
    """
    message = quoted_text(OTHER_MEANING + what)
    if kind in (STRING, BINARY):
        return f"CAST(CAST({message} AS INTEGER) AS {kind.duckdb})"
    return f"CAST({message} AS {kind.duckdb})"


def guard(bad: str, what: str, good: str, kind: Kind) -> str:
    """Return SQL that evaluates to ``good`` and fails at run time where ``bad`` is true.

    what: subject of the error message. kind: type of ``good``.
    """
    return f"CASE WHEN {bad} THEN {raise_at_runtime(what, kind)} ELSE {good} END"


def at_least_zero(value: Value) -> str:
    """Return a count that is not negative, or NULL."""
    if value.whole is not None:
        return str(max(value.whole, 0))
    return f"CASE WHEN {value.text} < 0 THEN 0 ELSE {value.text} END"


def listed(values: Sequence[Value]) -> str:
    """Return texts with commas between."""
    return ", ".join(value.text for value in values)
