"""A text of several statements, cut where the gateway's own tokenizer sees a semicolon; and a place in such a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len

from gateway.cli.text.layout import printable

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

SHOWN = 76  # cells of a line that an error points into
BEFORE = 50  # of them at most in front of the place


@dataclass(frozen=True, slots=True)
class Place:
    """A line and a column, counted from one."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass(frozen=True, slots=True)
class ScriptStatement:
    """One statement of a script. start: position of its first word in the script."""

    sql: str
    start: Place = Place(1, 1)

    def place_in_script(self, place: Place) -> Place:
        """Return where in the script a place of the statement is."""
        if place.line > 1:
            return Place(self.start.line + place.line - 1, place.column)
        return Place(self.start.line, self.start.column + place.column - 1)


def statements_of(script: str, dialect: str) -> Iterator[ScriptStatement]:
    """Yield the statements of a script, in order.

    One that cannot be cut, since a quote is not closed, is yielded as it is: the gateway says what is wrong.
    """
    if ";" not in script.rstrip().rstrip(";"):
        if script.strip():
            yield ScriptStatement(script)
        return
    from sqlglot.tokenizer_core import TokenType

    tokens = tokens_of(script, dialect)
    if tokens is None:
        yield ScriptStatement(script)
        return
    first = last = None
    lines = _LineCounter(script)
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            first = token.start if first is None else first
            last = token.end
        elif first is not None and last is not None:
            yield ScriptStatement(script[first : last + 1], lines.place(first))
            first = last = None
    if first is not None and last is not None:
        yield ScriptStatement(script[first : last + 1], lines.place(first))


def tokens_of(text: str, dialect: str) -> Sequence[Token] | None:
    """Cut a text into tokens, without comments; None where a quote or a comment is not closed."""
    from sqlglot.errors import TokenError

    from sql.dialects.names import DIALECTS, SPARK
    from sql.parsing import reader_of

    tokenizer = reader_of(dialect if dialect in DIALECTS else SPARK)
    try:
        return tokenizer.tokenize(text)
    except TokenError:
        return None


def ends_statement(text: str, dialect: str) -> bool:
    """Tell whether a text ends with a semicolon that ends a statement: one outside of strings and comments."""
    if ";" not in text:
        return False
    from sqlglot.tokenizer_core import TokenType

    tokens = tokens_of(text, dialect)
    return tokens is not None and len(tokens) > 0 and tokens[-1].token_type is TokenType.SEMICOLON


class _LineCounter:
    """Turns growing offsets into places, reading each character once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._offset = 0
        self._line = 1
        self._line_start = 0

    def place(self, offset: int) -> Place:
        """Return the place of an offset that is not smaller than the one before."""
        self._line += self._text.count("\n", self._offset, offset)
        self._line_start = max(self._line_start, self._text.rfind("\n", self._offset, offset) + 1)
        self._offset = offset
        return Place(self._line, offset - self._line_start + 1)


def pointed_at(script: str, place: Place) -> tuple[str, str] | None:
    """Return the line of a place, or the part around it, and a caret under it; None where the place is not there."""
    lines = script.split("\n")
    if not script or not 1 <= place.line <= len(lines) or not 1 <= place.column <= len(lines[place.line - 1]) + 1:
        return None
    line = lines[place.line - 1]
    before, after = line[: place.column - 1], line[place.column - 1 :]
    shown = printable(before[-BEFORE:].replace("\t", " "))
    rest = printable(after[: SHOWN - min(len(before), BEFORE)].replace("\t", " ").rstrip("\r"))
    return shown + rest, " " * cell_len(shown) + "^"
