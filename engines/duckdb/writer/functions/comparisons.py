"""Comparisons and choices: both sides in the type in which Spark compares them.

Both engines count NaN as equal to itself and as larger than any number, and compare texts by their bytes. A cast is
written only where DuckDB would choose another type by itself: a column without one can be looked up in a file's bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from engines.duckdb.writer.functions.casts import DIGITS_OF_A_DOUBLE, cast
from engines.duckdb.writer.functions.numbers import as_decimal_kind
from engines.duckdb.writer.kinds import BOOLEAN, DOUBLE, NULL, STRING, Kind, common, common_of_all
from engines.duckdb.writer.values import Value, require
from engines.errors import NoEquivalent


def compare(operator: str, lhs: Value, rhs: Value) -> Value:
    """Compare two values."""
    one, other = align(lhs, rhs)
    return Value(f"({one.text} {operator} {other.text})", BOOLEAN)


def align(lhs: Value, rhs: Value) -> tuple[Value, Value]:
    """Return two values as they can be compared. Raises NoEquivalent."""
    kind = common(lhs.kind, rhs.kind)
    if kind is None or not (kind.is_atomic or kind == NULL):
        raise NoEquivalent(f"a comparison of {lhs.kind} and {rhs.kind}.")
    if NULL in (lhs.kind, rhs.kind):
        return lhs, rhs
    require((lhs.kind == BOOLEAN) == (rhs.kind == BOOLEAN), "a comparison with a boolean.")
    if kind.is_decimal:
        one, other = as_decimal_kind(lhs), as_decimal_kind(rhs)
        kind = common(one, other) or kind
        if kind.scale < max(one.scale, other.scale):  # Spark rounds both sides to the digits that are left
            return _rounded(lhs, kind), _rounded(rhs, kind)
    return _beside(lhs, rhs, kind), _beside(rhs, lhs, kind)


def one_of(value: Value, members: Sequence[Value]) -> Value:
    """Tell whether a value is among others."""
    if not members:
        raise NoEquivalent("IN without members.")
    if any(member.kind == STRING for member in members) != (value.kind == STRING):
        kind = common_of_all([value.kind, *(member.kind for member in members)])
        require(kind is not None and kind.is_atomic, "IN over different types.")
        members = [cast(member, kind or STRING) for member in members]
        value = cast(value, kind or STRING)
    elif DOUBLE in (member.kind for member in members):  # one of them is enough
        members = [cast(member, DOUBLE) for member in members]
    aligned = [align(value, member) for member in members]
    this = next((one for one, _ in aligned if one.text != value.text), value)
    text = ", ".join(other.text for _, other in aligned)
    return Value(f"({this.text} IN ({text}))", BOOLEAN)


def in_one_kind(values: Sequence[Value]) -> tuple[list[Value], Kind]:
    """Return values in the one type that a column of all of them has."""
    kind = common_of_all(value.kind for value in values)
    if kind is None or not (kind.is_atomic or kind == NULL):
        raise NoEquivalent(f"a choice between {' and '.join(dict.fromkeys(str(value.kind) for value in values))}.")
    if kind == NULL:
        return list(values), NULL
    if kind.is_decimal:
        return [cast(value, kind) if value.kind == STRING else _rounded(value, kind) for value in values], kind
    aligned = []
    for value in values:
        plain = value.kind in (kind, NULL)
        if plain and value.whole is not None and kind.name == "int":
            aligned.append(Value(f"CAST({value.text} AS INTEGER)", kind))
        else:
            aligned.append(value if plain else cast(value, kind))
    return aligned, kind


def _decimal(value: Value, kind: Kind) -> str:
    return value.text if value.decimal == kind else f"CAST({value.text} AS {kind.duckdb})"


def _rounded(value: Value, kind: Kind) -> Value:
    return value if value.kind == NULL else Value(_decimal(value, kind), kind)


def _beside(value: Value, other: Value, kind: Kind) -> Value:
    """Return a value as it stands in a comparison; numbers that DuckDB compares alike stay as they are."""
    if value.kind in (kind, NULL):
        return value
    if value.kind.is_number and other.kind.is_number:
        wide = value.kind.is_decimal and value.decimal.precision > DIGITS_OF_A_DOUBLE
        other_than_alike = wide or "float" in (value.kind.name, other.kind.name)
        return cast(value, DOUBLE) if kind == DOUBLE and other_than_alike else value
    return cast(value, kind)
