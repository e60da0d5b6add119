"""Spark's types, and which type Spark gives to what is put together from two of them (ANSI mode)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from selector import types

MAX_PRECISION = types.MAX_PRECISION
LEAST_SCALE = 6  # digits after the point that Spark keeps when a decimal grows past 38 digits

_DIGITS = {kind.value: kind.row.digits for kind in types.Kind if kind.row.digits is not None}
_NOT_ATOMIC = (types.Group.NESTED, types.Group.VOID, types.Group.VARIANT, types.Group.CLOCK)
_ATOMIC = frozenset(types.names_of(*(group for group in types.Group if group not in _NOT_ATOMIC)))


@dataclass(frozen=True, slots=True)
class Kind:
    """Data type of Spark. precision, scale: digits of a decimal."""

    name: str
    precision: int = 0
    scale: int = 0

    @property
    def is_whole(self) -> bool:
        """A whole number of fixed width."""
        return self.name in types.WHOLE

    @property
    def is_decimal(self) -> bool:
        """A number with a fixed number of digits after the point."""
        return self.name == "decimal"

    @property
    def is_floating(self) -> bool:
        """A float or a double."""
        return self.name in types.FLOATING

    @property
    def is_number(self) -> bool:
        """Any number."""
        return self.is_whole or self.is_decimal or self.is_floating

    @property
    def is_time(self) -> bool:
        """A date or a timestamp."""
        return self.name in (types.Kind.DATE, *types.MOMENTS)

    @property
    def is_atomic(self) -> bool:
        """A type that both engines have, without parts."""
        return self.is_decimal or self.name in _ATOMIC

    @property
    def duckdb(self) -> str:
        """The same type in DuckDB's words. Raises NoSuchType where it has none."""
        if self.is_decimal:
            return f"DECIMAL({self.precision}, {self.scale})"
        return types.parse(self.name).duckdb()

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.is_decimal else self.name


BOOLEAN, BINARY, STRING = Kind(types.Kind.BOOLEAN), Kind(types.Kind.BINARY), Kind(types.Kind.STRING)
TINYINT, SMALLINT = Kind(types.Kind.TINYINT), Kind(types.Kind.SMALLINT)
INT, BIGINT = Kind(types.Kind.INT), Kind(types.Kind.BIGINT)
FLOAT, DOUBLE = Kind(types.Kind.FLOAT), Kind(types.Kind.DOUBLE)
DATE, TIMESTAMP, TIMESTAMP_NTZ = Kind(types.Kind.DATE), Kind(types.Kind.TIMESTAMP), Kind(types.Kind.TIMESTAMP_NTZ)
NULL = Kind(types.Kind.VOID)


def decimal(precision: int, scale: int) -> Kind:
    """Return a decimal, cut to 38 digits at the front."""
    return Kind("decimal", min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def adjusted(precision: int, scale: int) -> Kind:
    """Return the decimal of a result: one that needs more than 38 digits gives up digits after the point."""
    if precision <= MAX_PRECISION:
        return Kind("decimal", precision, scale)
    whole = precision - scale
    return Kind("decimal", MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, LEAST_SCALE)))


@lru_cache(maxsize=1_024)
def parse_kind(data_type: str) -> Kind:
    """Read a type, such as ``bigint`` or ``decimal(10,2)``; what is nested is a kind by its whole text.

    Raises InvalidType.
    """
    parsed = types.parse(data_type)
    if parsed.kind is types.Kind.DECIMAL:
        return Kind("decimal", parsed.precision or 0, parsed.scale or 0)
    return STRING if parsed.is_text else Kind(str(parsed))


def as_decimal(kind: Kind) -> Kind:
    """Return the decimal that holds every value of a whole number's type."""
    return kind if kind.is_decimal else Kind("decimal", _DIGITS[kind.name], 0)


def common(one: Kind, other: Kind) -> Kind | None:
    """Return the type in which values of both are compared, or stand in one column; None where there is none.

    A float meets nothing but a float without becoming a double.
    """
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    if one.is_number and other.is_number:
        return _common_number(one, other)
    if one == STRING or other == STRING:
        rest = other if one == STRING else one
        if rest.is_whole:
            return BIGINT
        if rest.is_number:
            return DOUBLE
        return rest if rest.is_atomic else None
    if one.is_time and other.is_time:
        return TIMESTAMP if TIMESTAMP in (one, other) else TIMESTAMP_NTZ
    return None


def common_of_all(kinds: Iterable[Kind]) -> Kind | None:
    """Return the common type of several, as Spark finds it: from left to right."""
    shared: Kind | None = NULL
    for kind in kinds:
        shared = common(shared, kind) if shared is not None else None
    return shared


def common_of_rows(kinds: Sequence[Kind]) -> Kind | None:
    """Return the common type of a column of VALUES: there, whole numbers beside a float become floats."""
    if FLOAT in kinds and all(kind in (FLOAT, NULL) or kind.is_whole for kind in kinds):
        return FLOAT
    return common_of_all(kinds)


def _common_number(one: Kind, other: Kind) -> Kind:
    if one.is_floating or other.is_floating:
        return DOUBLE
    if one.is_whole and other.is_whole:
        return max(one, other, key=lambda kind: types.WHOLE.index(kind.name))
    one, other = as_decimal(one), as_decimal(other)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    scale = min(max(one.scale, other.scale), MAX_PRECISION - whole)  # digits before the point come first
    return decimal(whole + scale, scale)
