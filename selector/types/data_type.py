"""A type as a value: its kind, its digits or length, what is inside of it; written in the words of each engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from selector.quoting import Quote, duckdb_name, spark_name
from selector.types.kinds import BY_NAME, VALUE_BYTES, Group, Kind

MAX_PRECISION = 38
LONG_DIGITS = 18  # of decimals that eight bytes hold


class InvalidType(ValueError):
    """A text that is no type. message: why, for people; at: the place in the text, counted from zero."""

    def __init__(self, message: str, at: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


class NoSuchType(ValueError):
    """An engine has no such type; the argument is the type."""


@dataclass(frozen=True, slots=True)
class Field:
    """A part of a nested type: of a struct by its name; an array's ``element``, a map's ``key`` and ``value``."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class DataType:
    """One type.

    precision, scale: digits of a decimal; precision alone: of a time, or characters of char and varchar.
    fields: of a nested type, as many as its kind has.
    collation: of a string, in capitals; "" for Spark's own, which compares bytes.
    """

    kind: Kind
    precision: int | None = None
    scale: int | None = None
    fields: tuple[Field, ...] = ()
    collation: str = ""

    @property
    def is_nested(self) -> bool:
        """An array, a map or a struct."""
        return self.kind.row.group is Group.NESTED

    @property
    def is_text(self) -> bool:
        """Any text."""
        return self.kind.row.group is Group.TEXT

    def __str__(self) -> str:
        """Write Spark's short form, which the gateway shows and stores: names are in quotes where they have to be."""
        return self._spark(_plain_or_quoted)

    def spark(self) -> str:
        """Write it for a statement of Spark's or Hive's."""
        return self._spark(spark_name)

    def _spark(self, quote: Quote) -> str:
        match self.kind:
            case Kind.ARRAY | Kind.MAP:
                return f"{self.kind}<{','.join(field.type._spark(quote) for field in self.fields)}>"
            case Kind.STRUCT:
                return f"struct<{','.join(f'{quote(field.name)}:{field.type._spark(quote)}' for field in self.fields)}>"
        return self.kind + self._sizes() + (f" collate {self.collation}" if self.collation else "")

    def with_plain_texts(self) -> DataType:
        """Return the type with plain strings in place of texts with a length or collation, also inside of others."""
        if self.kind in (Kind.STRING, Kind.CHAR, Kind.VARCHAR):
            return DataType(Kind.STRING)
        return replace(self, fields=tuple(Field(field.name, field.type.with_plain_texts()) for field in self.fields))

    def for_hive(self) -> DataType:
        """Return the type as clients of Hive and Impala know it, also inside of nested ones."""
        if self.kind.row.hive is not None:
            return DataType(BY_NAME[self.kind.row.hive])
        return replace(self, fields=tuple(Field(field.name, field.type.for_hive()) for field in self.fields))

    def duckdb(self) -> str:
        """Write it for a statement of DuckDB's. Raises NoSuchType."""
        parts = [field.type.duckdb() for field in self.fields]
        return self._written(self.kind.row.duckdb, parts, quote=duckdb_name, names_end=" ", parts_end=", ")

    def impala(self) -> str:
        """Write it for a statement of Impala's. Raises NoSuchType."""
        parts = [field.type.impala() for field in self.fields]
        return self._written(self.kind.row.impala, parts, quote=spark_name, names_end=":", parts_end=",")

    def _written(self, form: str | None, parts: list[str], *, quote: Quote, names_end: str, parts_end: str) -> str:
        """Put digits, or the types inside, into an engine's form of the type."""
        if form is None or (self.is_nested and not parts):
            raise NoSuchType(str(self))
        if self.kind is Kind.STRUCT:
            parts = [quote(field.name) + names_end + part for field, part in zip(self.fields, parts, strict=True)]
        return form.format(parts_end.join(parts) if self.is_nested else self._sizes())

    def _sizes(self) -> str:
        if self.precision is None:
            return ""
        return f"({self.precision})" if self.scale is None else f"({self.precision},{self.scale})"


def decimal(precision: int, scale: int = 0) -> DataType:
    """Return a decimal. Raises InvalidType for one that Spark does not have."""
    if not 1 <= precision <= MAX_PRECISION:
        raise InvalidType(f"a decimal has 1 to {MAX_PRECISION} digits, not {precision}")
    if not 0 <= scale <= precision:
        raise InvalidType(f"of a decimal's {precision} digits, {scale} cannot stand after the point")
    return DataType(Kind.DECIMAL, precision, scale)


def decimal_digits(text: str) -> tuple[int, int] | None:
    """Return the digits, and those after the point, of a short form such as ``decimal(10,2)``; None of other types."""
    name, _, sizes = text.removesuffix(")").partition("(")
    precision, _, scale = sizes.replace(" ", "").partition(",")
    return (int(precision), int(scale)) if name == Kind.DECIMAL and (precision + scale).isdecimal() and scale else None


def value_bytes(text: str) -> int | None:
    """Return what a value of a short form takes in memory, None where that depends on the value."""
    digits = decimal_digits(text)
    return VALUE_BYTES.get(text) if digits is None else 8 if digits[0] <= LONG_DIGITS else 16


def array(element: DataType) -> DataType:
    """Return an array."""
    return DataType(Kind.ARRAY, fields=(Field("element", element),))


def map_of(key: DataType, value: DataType) -> DataType:
    """Return a map."""
    return DataType(Kind.MAP, fields=(Field("key", key), Field("value", value)))


def struct(fields: Iterable[tuple[str, DataType]]) -> DataType:
    """Return a struct of names and types."""
    return DataType(Kind.STRUCT, fields=tuple(Field(name, kind) for name, kind in fields))


def _plain_or_quoted(name: str) -> str:
    plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if plain else spark_name(name)
