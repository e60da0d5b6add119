"""Statements with parameters: every ``?`` is replaced by its value, as a literal of the statement's dialect.

The result is a text like any other: it is parsed, checked and recorded as if somebody had typed it. A ``?`` within a
text, a name or a comment is not a parameter.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from gateway.errors import NotOffered
from sql import parsing
from sql.dialects.names import DIALECTS
from sql.errors import SyntaxInvalid, ValueOutOfRange
from sql.parsing import ParserLimits, require_length

LONGEST_DECIMAL = 38
NULL = "NULL"
_WITH_LITERALS = (
    *(pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view),
    *(pa.types.is_date, pa.types.is_timestamp),
)


@dataclass(frozen=True, slots=True)
class Template:
    """A statement with parameters. places: positions of each ? in the text."""

    sql: str
    dialect: str
    places: tuple[int, ...]

    def filled(self, literals: Sequence[str]) -> str:
        """Return the statement with its values, one for each parameter."""
        if len(literals) != len(self.places):
            wanted, sent = len(self.places), len(literals)
            raise ValueOutOfRange(f"Parameters of the statement: {wanted}, values sent: {sent}. Send one for each.")
        pieces, start = [], 0
        for place, literal in zip(self.places, literals, strict=True):
            pieces += [self.sql[start:place], literal]
            start = place + 1
        return "".join([*pieces, self.sql[start:]])


def template(sql: str, dialect: str, limits: ParserLimits) -> Template:
    """Find a statement's parameters. Raises SqlError."""
    read = parsing.reader_of(dialect)
    require_length(sql, limits)
    try:
        tokens = read.tokenize(sql)
    except TokenError as error:
        raise SyntaxInvalid(f"Syntax error: {str(error).splitlines()[0]}") from error
    places = tuple(token.start for token in tokens if token.token_type is TokenType.PLACEHOLDER)
    return Template(sql, dialect, places)


def literals(values: pa.Table, dialect: str) -> list[str]:
    """Return one row of values as literals. Raises NotOffered, ValueOutOfRange."""
    if values.num_rows != 1:
        raise NotOffered(f"A statement takes one row of parameters, and {values.num_rows} were sent.")
    for field in values.schema:
        if not any(is_kind(field.type) for is_kind in _WITH_LITERALS):
            raise ValueOutOfRange(f"A parameter cannot have Arrow's type {field.type}.")
    return [literal(column[0], DIALECTS[dialect]) for column in values.columns]


def literal(value: pa.Scalar, dialect: str) -> str:
    """Return a value as a literal. Raises ValueOutOfRange.

    value: of a type that has literals. dialect: the parser's name of it.

    The type of a whole number follows from its digits. A negative one has brackets, so that ``1-?`` does not become a
    comment.
    """
    plain = _plain(value)
    match plain:
        case None:
            return NULL
        case bool():
            return "TRUE" if plain else "FALSE"
        case int():
            return str(plain) if plain >= 0 else f"({plain})"
        case float() if not math.isfinite(plain):
            return _cast(str(plain).replace("inf", "Infinity").replace("nan", "NaN"), "DOUBLE", dialect)
        case float():
            written = repr(plain) if "e" in repr(plain) else f"{plain!r}E0"
            return written if plain >= 0 else f"({written})"
        case Decimal() if value.type.precision <= LONGEST_DECIMAL:
            return _cast(f"{plain:f}", f"DECIMAL({value.type.precision}, {max(0, value.type.scale)})", dialect)
        case str():
            return exp.Literal.string(plain).sql(dialect=dialect)
        case bytes():
            return exp.Unhex(this=exp.Literal.string(plain.hex().upper())).sql(dialect=dialect)
        case dt.datetime():
            return _moment(plain, dialect)
        case dt.date():
            return _cast(plain.isoformat(), "DATE", dialect)
    raise ValueOutOfRange(f"A decimal parameter has more than {LONGEST_DECIMAL} digits.")


def without_rows(sql: str, dialect: str, limits: ParserLimits) -> str:
    """Return a query with the same columns, and no rows. Raises SqlError."""
    tree, _ = parsing.parse(sql, dialect, limits)
    if not isinstance(tree, exp.Query):
        return sql  # VALUES, whose rows are in the text
    return tree.limit(0).sql(dialect=parsing.reader_of(dialect), comments=False)


def _plain(value: pa.Scalar) -> object:
    """Return a value as a Python object, times in microseconds."""
    try:
        if pa.types.is_timestamp(value.type):
            value = value.cast(pa.timestamp("us", tz=value.type.tz))
        return value.as_py()
    except (pa.ArrowInvalid, ValueError, OverflowError) as error:
        raise ValueOutOfRange(f"A parameter has no literal: {error}.") from error


def _moment(value: dt.datetime, dialect: str) -> str:
    if value.tzinfo is None:
        return _cast(value.isoformat(" "), exp.DType.TIMESTAMPNTZ, dialect)
    try:
        in_utc = value.astimezone(dt.UTC)
    except OverflowError as error:
        raise ValueOutOfRange(f"A parameter has no literal: {value} has no date in UTC.") from error
    return _cast(in_utc.isoformat(" "), exp.DType.TIMESTAMPTZ, dialect)


def _cast(text: str, kind: str | exp.DType, dialect: str) -> str:
    return exp.cast(exp.Literal.string(text), kind).sql(dialect=dialect)
