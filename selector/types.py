"""Types of columns: one grammar for all that clients, files and catalogs say, and one value for what they mean.

    type    boolean | tinyint | smallint | int | bigint | float | double | string | binary | date | void | variant
            | decimal [(precision [, scale])] | char (length) | varchar (length) | time [(precision)]
            | timestamp | timestamp_ntz | array <type> | map <type, type> | struct <[name [:] type, ...]>
    also    byte, short, integer, long, real, bool, dec, numeric, character, timestamp_ltz,
            timestamp with local time zone, timestamp without time zone

Text is read once, where it comes in. Whatever goes to an engine is written from the value, in the engine's words, with
every name in quotes, so that no text of a client's is ever part of a statement.

The parser looks at each character a bounded number of times, and nests at most MAX_DEPTH deep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache

from selector.quoting import InvalidName, Quote, duckdb_name, require_name, spark_name

MAX_DEPTH = 64  # as deep as Arrow's own messages go
MAX_CHARACTERS = 1 << 18
MAX_PRECISION = 38
MAX_TIME_PRECISION = 6
MAX_LENGTH = 2**31 - 1
_KEPT_CHARACTERS = 200  # of a text whose type is remembered
_MOST_DIGITS = 10
_LONGEST_WORD = 40  # that a message quotes


class InvalidType(ValueError):
    """A text that is no type. message: why, for people; at: the place in the text, counted from zero."""

    def __init__(self, message: str, at: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


class NoSuchType(ValueError):
    """An engine has no such type; the argument is the type."""


class Kind(StrEnum):
    """The names that Spark prints."""

    BOOLEAN = "boolean"
    TINYINT = "tinyint"
    SMALLINT = "smallint"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    CHAR = "char"
    VARCHAR = "varchar"
    BINARY = "binary"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    VOID = "void"
    VARIANT = "variant"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


_NAMES: Mapping[str, Kind] = {
    **{kind.value: kind for kind in Kind},
    "bool": Kind.BOOLEAN,
    "byte": Kind.TINYINT,
    "short": Kind.SMALLINT,
    "integer": Kind.INT,
    "long": Kind.BIGINT,
    "real": Kind.FLOAT,
    "dec": Kind.DECIMAL,
    "numeric": Kind.DECIMAL,
    "character": Kind.CHAR,
    "timestamp_ltz": Kind.TIMESTAMP,
}
_ZONES = {("with", "local", "time", "zone"): Kind.TIMESTAMP, ("without", "time", "zone"): Kind.TIMESTAMP_NTZ}
_HINTS = {"text": "string", "datetime": "timestamp", "number": "decimal", "int64": "bigint", "int32": "int"}
_NESTED = (Kind.ARRAY, Kind.MAP, Kind.STRUCT)

_DUCKDB: Mapping[Kind, str] = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.TINYINT: "TINYINT",
    Kind.SMALLINT: "SMALLINT",
    Kind.INT: "INTEGER",
    Kind.BIGINT: "BIGINT",
    Kind.FLOAT: "FLOAT",
    Kind.DOUBLE: "DOUBLE",
    Kind.STRING: "VARCHAR",
    Kind.CHAR: "VARCHAR",
    Kind.VARCHAR: "VARCHAR",
    Kind.BINARY: "BLOB",
    Kind.DATE: "DATE",
    Kind.TIME: "TIME",
    Kind.TIMESTAMP: "TIMESTAMPTZ",
    Kind.TIMESTAMP_NTZ: "TIMESTAMP",
}
_IMPALA: Mapping[Kind, str] = {
    **{kind: kind.value.upper() for kind in (Kind.BOOLEAN, Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)},
    **{kind: kind.value.upper() for kind in (Kind.FLOAT, Kind.DOUBLE, Kind.STRING, Kind.BINARY, Kind.DATE)},
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.TIMESTAMP_NTZ: "TIMESTAMP",
}


@dataclass(frozen=True, slots=True)
class Field:
    """A part of a nested type: of a struct by its name; an array's ``element``, a map's ``key`` and ``value``."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class DataType:
    """One type. precision, scale: digits of a decimal; precision alone: of a time, or characters of char and varchar.

    fields: of a nested type, as many as its kind has.
    """

    kind: Kind
    precision: int | None = None
    scale: int | None = None
    fields: tuple[Field, ...] = ()

    @property
    def is_nested(self) -> bool:
        """An array, a map or a struct."""
        return self.kind in _NESTED

    @property
    def is_text(self) -> bool:
        """Any text; lengths are not checked."""
        return self.kind in (Kind.STRING, Kind.CHAR, Kind.VARCHAR)

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
        return self.kind + self._sizes()

    def duckdb(self) -> str:
        """Write it for a statement of DuckDB's. Raises NoSuchType."""
        match self.kind:
            case Kind.ARRAY:
                return f"{self.fields[0].type.duckdb()}[]"
            case Kind.MAP:
                return f"MAP({', '.join(field.type.duckdb() for field in self.fields)})"
            case Kind.STRUCT if self.fields:
                return f"STRUCT({', '.join(f'{duckdb_name(f.name)} {f.type.duckdb()}' for f in self.fields)})"
            case Kind.DECIMAL:
                return f"DECIMAL{self._sizes()}"
            case kind if kind in _DUCKDB:
                return _DUCKDB[kind]
        raise NoSuchType(str(self))

    def impala(self) -> str:
        """Write it for a statement of Impala's. Raises NoSuchType."""
        match self.kind:
            case Kind.ARRAY | Kind.MAP:
                return f"{self.kind.upper()}<{','.join(field.type.impala() for field in self.fields)}>"
            case Kind.STRUCT if self.fields:
                return f"STRUCT<{','.join(f'{spark_name(f.name)}:{f.type.impala()}' for f in self.fields)}>"
            case Kind.DECIMAL | Kind.CHAR | Kind.VARCHAR:
                return f"{self.kind.upper()}{self._sizes()}"
            case kind if kind in _IMPALA:
                return _IMPALA[kind]
        raise NoSuchType(str(self))

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


def array(element: DataType) -> DataType:
    """Return an array."""
    return DataType(Kind.ARRAY, fields=(Field("element", element),))


def map_of(key: DataType, value: DataType) -> DataType:
    """Return a map."""
    return DataType(Kind.MAP, fields=(Field("key", key), Field("value", value)))


def struct(fields: Iterable[tuple[str, DataType]]) -> DataType:
    """Return a struct of names and types."""
    return DataType(Kind.STRUCT, fields=tuple(Field(name, kind) for name, kind in fields))


def parse(text: str) -> DataType:
    """Read a type that is the whole text. Raises InvalidType with what is wrong and where."""
    return _remembered(text) if len(text) <= _KEPT_CHARACTERS else _whole(text)


def parse_at(text: str, start: int) -> tuple[DataType, int]:
    """Read the type that begins at a place in a text; return it and the place behind it. Raises InvalidType."""
    reader = _Reader(text, start)
    return reader.type(), reader.end


def _whole(text: str) -> DataType:
    if len(text) > MAX_CHARACTERS:
        raise InvalidType(f"a type has at most {MAX_CHARACTERS:,} characters, not {len(text):,}")
    reader = _Reader(text, 0)
    found = reader.type()
    reader.finish()
    return found


_remembered = lru_cache(maxsize=4_096)(_whole)


def _is_word(character: str) -> bool:
    return character == "_" or character.isalnum()


def _plain_or_quoted(name: str) -> str:
    plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if plain else spark_name(name)


class _Reader:
    """Reads a text from left to right. end: the place behind what was read last."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._at = start
        self._limit = min(len(text), start + MAX_CHARACTERS)
        self.end = start

    def type(self, depth: int = 1) -> DataType:
        start = self._space()
        if depth > MAX_DEPTH:
            raise InvalidType(f"types are nested at most {MAX_DEPTH} deep", start)
        word = self._word()
        kind = _NAMES.get(word.lower())
        if kind is None:
            raise InvalidType(_unknown(word) if word else f"a type is expected, not {self._near()}", start)
        match kind:
            case Kind.ARRAY:
                return array(self._inside(1, depth)[0])
            case Kind.MAP:
                return map_of(*self._inside(2, depth))
            case Kind.STRUCT:
                return self._struct(depth)
            case Kind.DECIMAL:
                sizes = self._sizes(most=2)
                try:
                    return decimal(*sizes) if sizes else decimal(10)
                except InvalidType as error:
                    raise InvalidType(error.message, start) from error
            case Kind.CHAR | Kind.VARCHAR:
                sizes = self._sizes(most=1)
                if not sizes or not 1 <= sizes[0] <= MAX_LENGTH:
                    raise InvalidType(f"{word} needs a length, such as {kind}(20); without one, say string", start)
                return DataType(kind, sizes[0])
            case Kind.TIME:
                sizes = self._sizes(most=1) or [MAX_TIME_PRECISION]
                if sizes[0] > MAX_TIME_PRECISION:
                    raise InvalidType(f"a time has at most {MAX_TIME_PRECISION} digits after the point", start)
                return DataType(kind, sizes[0])
            case Kind.TIMESTAMP if word.lower() == "timestamp":
                return DataType(self._zone())
        return DataType(kind)

    def finish(self) -> None:
        """Raise InvalidType where more follows."""
        if self._space() < len(self._text):
            raise InvalidType(f"nothing may follow the type, but {self._near()} does", self._at)

    def _inside(self, parts: int, depth: int) -> list[DataType]:
        self._need("<")
        found = [self.type(depth + 1)]
        while len(found) < parts:
            self._need(",")
            found.append(self.type(depth + 1))
        self._need(">")
        return found

    def _struct(self, depth: int) -> DataType:
        self._need("<")
        fields: list[tuple[str, DataType]] = []
        names: set[str] = set()
        if self._take(">"):
            return struct(())
        while True:
            start = self._space()
            name = self._name()
            if name.lower() in names:
                raise InvalidType(f"a struct has two fields {name}", start)
            names.add(name.lower())
            self._take(":")
            fields.append((name, self.type(depth + 1)))
            if self._take(">"):
                return struct(fields)
            self._need(",")

    def _name(self) -> str:
        start = self._space()
        quoted = self._text[start : start + 1] == "`"
        name = self._quoted(start) if quoted else self._word()
        if not (quoted or name):
            raise InvalidType(f"a field's name is expected, not {self._near()}", start)
        try:
            return require_name(name)
        except InvalidName as error:
            raise InvalidType(f"a field's name {error}", start) from error

    def _quoted(self, start: int) -> str:
        parts = []
        self._at = start + 1
        while True:
            closing = self._text.find("`", self._at, self._limit)
            if closing < 0:
                raise InvalidType("a name in backquotes does not end", start)
            parts.append(self._text[self._at : closing])
            self._at = self.end = closing + 1
            if self._text[self._at : self._at + 1] != "`":
                return "`".join(parts)
            self._at += 1

    def _sizes(self, *, most: int) -> list[int]:
        """Read numbers in brackets, none where there are no brackets."""
        sizes: list[int] = []
        if not self._take("("):
            return sizes
        while True:
            start = self._space()
            digits = self._word()
            if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
                raise InvalidType(f"a number is expected, not {digits or self._near()}", start)
            sizes.append(int(digits))
            if self._take(")"):
                return sizes
            if len(sizes) == most:
                self._need(")")
            self._need(",")

    def _zone(self) -> Kind:
        """Read what may stand behind the word timestamp."""
        before = self._at, self.end
        words = []
        for _ in range(4):
            self._space()
            words.append(self._word().lower())
            if tuple(words) in _ZONES:
                return _ZONES[tuple(words)]
        self._at, self.end = before
        return Kind.TIMESTAMP

    def _word(self) -> str:
        start = self._at
        while self._at < self._limit and _is_word(self._text[self._at]):
            self._at += 1
        if self._at > start:
            self.end = self._at
        return self._text[start : self._at]

    def _space(self) -> int:
        while self._at < self._limit and self._text[self._at].isspace():
            self._at += 1
        return self._at

    def _take(self, sign: str) -> bool:
        start = self._space()
        if start >= self._limit or self._text[start] != sign:
            return False
        self._at = self.end = start + 1
        return True

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise InvalidType(f"{sign} is expected, not {self._near()}", self._at)

    def _near(self) -> str:
        return repr(self._text[self._at : self._at + 1]) if self._at < self._limit else "the end"


def _unknown(word: str) -> str:
    near = _HINTS.get(word.lower()) or next(iter(get_close_matches(word.lower()[:_LONGEST_WORD], _NAMES, n=1)), "")
    return f"there is no type {word[:_LONGEST_WORD]}" + (f"; did you mean {near}?" if near else "")
