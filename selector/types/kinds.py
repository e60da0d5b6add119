"""The table of types: one row says what a type is called everywhere, and a new type is one more row.

Each member of Kind is a row. Who needs the types of some sort asks for their group (``names_of(Group.WHOLE)``), and who
reads somebody's words finds a type by them (``BY_NAME``, ``BY_AVRO``, ``by_duckdb``). How a value is encoded on a wire
is no matter of this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum, auto
from types import MappingProxyType

MAX_LENGTH = 2**31 - 1


class Group(StrEnum):
    """Types that are treated alike in most places."""

    BOOLEAN = auto()
    WHOLE = auto()
    FLOATING = auto()
    DECIMAL = auto()
    TEXT = auto()
    BINARY = auto()
    DATE = auto()
    MOMENT = auto()
    CLOCK = auto()
    NESTED = auto()
    VOID = auto()
    VARIANT = auto()


class Jdbc(IntEnum):
    """Numbers of java.sql.Types."""

    TINYINT = -6
    BIGINT = -5
    BINARY = -2
    NULL = 0
    DECIMAL = 3
    INTEGER = 4
    SMALLINT = 5
    REAL = 6  # as Hive's driver has it: FLOAT
    DOUBLE = 8
    VARCHAR = 12
    BOOLEAN = 16
    DATE = 91
    TIMESTAMP = 93
    JAVA_OBJECT = 2000
    STRUCT = 2002
    ARRAY = 2003


@dataclass(frozen=True, slots=True)
class DriverType:
    """A type as HiveServer2, JDBC and Flight SQL describe it; None where something does not apply to it.

    hs2: its number among HiveServer2's TTypeId. jdbc: among java.sql.Types. flight_sql: where Flight SQL has another
    number than JDBC; datetime_subcode: of its times. size: digits, characters or bytes as JDBC counts them.
    scale: digits after the point. radix: of numbers.
    """

    hs2: int
    jdbc: Jdbc
    size: int | None = None
    scale: int | None = None
    radix: int | None = None
    flight_sql: int | None = None
    datetime_subcode: int | None = None

    @property
    def is_number(self) -> bool:
        """Any number."""
        return self.radix is not None

    @property
    def is_text(self) -> bool:
        """Any text, which has a case and can be searched with LIKE."""
        return self.jdbc is Jdbc.VARCHAR

    @property
    def quote(self) -> str | None:
        """Quote around a literal; None: no quote."""
        return "'" if self.is_text else None

    @property
    def scales(self) -> tuple[int, int | None] | tuple[None, None]:
        """The fewest and the most digits after the point, of a number."""
        return (0, self.scale) if self.is_number else (None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRow:
    """Names of one type, apart from Spark's and Hive's name, which is the Kind's.

    also: other words that mean it in a text. mistaken: words of other databases, for which it is suggested.
    arrow: Arrow's name of what its rows come as; a decimal's has no digits, a nested one's no parts.
    arrow_too: of other types that are read as it. duckdb, impala: what a statement says, None where that engine has no
    such type; braces hold digits or a length, or the types inside. duckdb_too: other types of DuckDB's that a plan may
    name for it. avro: types of Avro's that are read as it, with the logical type behind a blank.
    driver: what drivers are told, None where they are told that it is a string. hive: the name of the type that clients
    of Hive and Impala are told instead, where they do not know this one.
    bits: of a whole number. digits: of the decimal that holds all its values, as Spark has it.
    value_bytes, impala_bytes: of a value in memory, in Impala's, None where that depends on the value.
    """

    group: Group
    also: tuple[str, ...] = ()
    mistaken: tuple[str, ...] = ()
    arrow: str
    arrow_too: tuple[str, ...] = ()
    duckdb: str | None
    duckdb_too: tuple[str, ...] = ()
    impala: str | None
    avro: tuple[str, ...] = ()
    driver: DriverType | None = None
    hive: str | None = None
    bits: int | None = None
    digits: int | None = None
    value_bytes: int | None = None
    impala_bytes: int | None = None


class Kind(StrEnum):
    """The types there are, by the names that Spark prints; numbers of a group from the narrowest to the widest."""

    row: TypeRow

    def __new__(cls, name: str, row: TypeRow) -> Kind:
        """Make a member whose value is its name."""
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.row = row
        return kind

    BOOLEAN = (
        "boolean",
        TypeRow(
            group=Group.BOOLEAN,
            also=("bool",),
            arrow="bool",
            duckdb="BOOLEAN",
            impala="BOOLEAN",
            avro=("boolean",),
            driver=DriverType(0, Jdbc.BOOLEAN, 1, flight_sql=-7),
            value_bytes=1,
            impala_bytes=1,
        ),
    )
    TINYINT = (
        "tinyint",
        TypeRow(
            group=Group.WHOLE,
            also=("byte",),
            arrow="int8",
            duckdb="TINYINT",
            duckdb_too=("UTINYINT",),
            impala="TINYINT",
            driver=DriverType(1, Jdbc.TINYINT, 3, 0, 10),
            bits=8,
            digits=3,
            value_bytes=1,
            impala_bytes=1,
        ),
    )
    SMALLINT = (
        "smallint",
        TypeRow(
            group=Group.WHOLE,
            also=("short",),
            arrow="int16",
            arrow_too=("uint8",),
            duckdb="SMALLINT",
            duckdb_too=("USMALLINT",),
            impala="SMALLINT",
            driver=DriverType(2, Jdbc.SMALLINT, 5, 0, 10),
            bits=16,
            digits=5,
            value_bytes=2,
            impala_bytes=2,
        ),
    )
    INT = (
        "int",
        TypeRow(
            group=Group.WHOLE,
            also=("integer",),
            mistaken=("int32",),
            arrow="int32",
            arrow_too=("uint16",),
            duckdb="INTEGER",
            duckdb_too=("UINTEGER",),
            impala="INT",
            avro=("int",),
            driver=DriverType(3, Jdbc.INTEGER, 10, 0, 10),
            bits=32,
            digits=10,
            value_bytes=4,
            impala_bytes=4,
        ),
    )
    BIGINT = (
        "bigint",
        TypeRow(
            group=Group.WHOLE,
            also=("long",),
            mistaken=("int64",),
            arrow="int64",
            arrow_too=("uint32",),
            duckdb="BIGINT",
            duckdb_too=("UBIGINT",),
            impala="BIGINT",
            avro=("long",),
            driver=DriverType(4, Jdbc.BIGINT, 19, 0, 10),
            bits=64,
            digits=20,
            value_bytes=8,
            impala_bytes=8,
        ),
    )
    FLOAT = (
        "float",
        TypeRow(
            group=Group.FLOATING,
            also=("real",),
            arrow="float",
            arrow_too=("halffloat",),
            duckdb="FLOAT",
            impala="FLOAT",
            avro=("float",),
            driver=DriverType(5, Jdbc.REAL, 7, 7, 10),
            value_bytes=4,
            impala_bytes=4,
        ),
    )
    DOUBLE = (
        "double",
        TypeRow(
            group=Group.FLOATING,
            arrow="double",
            duckdb="DOUBLE",
            impala="DOUBLE",
            avro=("double",),
            driver=DriverType(6, Jdbc.DOUBLE, 15, 15, 10),
            value_bytes=8,
            impala_bytes=8,
        ),
    )
    STRING = (
        "string",
        TypeRow(
            group=Group.TEXT,
            mistaken=("text",),
            arrow="string",
            duckdb="VARCHAR",
            impala="STRING",
            avro=("string", "enum"),
            driver=DriverType(7, Jdbc.VARCHAR, MAX_LENGTH),
        ),
    )
    CHAR = (
        "char",
        TypeRow(group=Group.TEXT, also=("character",), arrow="string", duckdb="VARCHAR", impala="CHAR{}"),
    )
    VARCHAR = (
        "varchar",
        TypeRow(group=Group.TEXT, arrow="string", duckdb="VARCHAR", impala="VARCHAR{}"),
    )
    TIMESTAMP = (
        "timestamp",
        TypeRow(
            group=Group.MOMENT,
            also=("timestamp_ltz", "timestamp with local time zone"),
            mistaken=("datetime",),
            arrow="timestamp[us, tz=UTC]",
            duckdb="TIMESTAMPTZ",
            impala="TIMESTAMP",
            avro=("long timestamp-millis", "long timestamp-micros"),
            driver=DriverType(8, Jdbc.TIMESTAMP, 29, 9, datetime_subcode=3),
            value_bytes=8,
            impala_bytes=16,
        ),
    )
    TIMESTAMP_NTZ = (
        "timestamp_ntz",
        TypeRow(
            group=Group.MOMENT,
            also=("timestamp without time zone",),
            arrow="timestamp[us]",
            duckdb="TIMESTAMP",
            impala="TIMESTAMP",
            avro=("long local-timestamp-millis", "long local-timestamp-micros"),
            driver=DriverType(8, Jdbc.TIMESTAMP, 29, 9, datetime_subcode=3),
            hive="timestamp",
            value_bytes=8,
            impala_bytes=16,
        ),
    )
    BINARY = (
        "binary",
        TypeRow(
            group=Group.BINARY,
            arrow="binary",
            duckdb="BLOB",
            impala="BINARY",
            avro=("bytes", "fixed"),
            driver=DriverType(9, Jdbc.BINARY, MAX_LENGTH),
        ),
    )
    ARRAY = (
        "array",
        TypeRow(
            group=Group.NESTED,
            arrow="list",
            duckdb="{}[]",
            impala="ARRAY<{}>",
            driver=DriverType(10, Jdbc.ARRAY, flight_sql=0),
        ),
    )
    MAP = (
        "map",
        TypeRow(
            group=Group.NESTED,
            arrow="map",
            duckdb="MAP({})",
            impala="MAP<{}>",
            driver=DriverType(11, Jdbc.JAVA_OBJECT, flight_sql=0),
        ),
    )
    STRUCT = (
        "struct",
        TypeRow(
            group=Group.NESTED,
            arrow="struct",
            duckdb="STRUCT({})",
            impala="STRUCT<{}>",
            driver=DriverType(12, Jdbc.STRUCT, flight_sql=0),
        ),
    )
    DECIMAL = (
        "decimal",
        TypeRow(
            group=Group.DECIMAL,
            also=("dec", "numeric"),
            mistaken=("number",),
            arrow="decimal128",
            duckdb="DECIMAL{}",
            impala="DECIMAL{}",
            driver=DriverType(15, Jdbc.DECIMAL, 38, 18, 10),
        ),
    )
    DATE = (
        "date",
        TypeRow(
            group=Group.DATE,
            arrow="date32",
            arrow_too=("date64",),
            duckdb="DATE",
            impala="DATE",
            avro=("int date",),
            driver=DriverType(17, Jdbc.DATE, 10, datetime_subcode=1),
            value_bytes=4,
            impala_bytes=4,
        ),
    )
    TIME = (
        "time",
        TypeRow(group=Group.CLOCK, arrow="time64[us]", duckdb="TIME", impala=None, hive="string"),
    )
    VOID = (
        "void",
        TypeRow(
            group=Group.VOID, arrow="null", duckdb=None, impala=None, avro=("null",), driver=DriverType(16, Jdbc.NULL)
        ),
    )
    VARIANT = (
        "variant",
        TypeRow(group=Group.VARIANT, arrow="string", duckdb=None, impala=None, hive="string"),
    )


BY_NAME: Mapping[str, Kind] = MappingProxyType({name: kind for kind in Kind for name in (kind.value, *kind.row.also)})
"""Words of a type, in lower case; some have blanks between them."""

BY_AVRO: Mapping[str, Kind] = MappingProxyType({name: kind for kind in Kind for name in kind.row.avro})

MISTAKEN: Mapping[str, Kind] = MappingProxyType({name: kind for kind in Kind for name in kind.row.mistaken})


def kind_named(text: str) -> Kind | None:
    """Return the kind whose name of one word, in lower case, begins a text such as ``decimal(10,2)``, or None."""
    word = text.partition("(")[0].partition("<")[0].strip()
    return None if " " in word else BY_NAME.get(word)


def names_of(*groups: Group) -> tuple[str, ...]:
    """Return the names of a few groups' types, in the table's order."""
    return tuple(kind.value for kind in Kind if kind.row.group in groups)


WHOLE = names_of(Group.WHOLE)
FLOATING = names_of(Group.FLOATING)
MOMENTS = names_of(Group.MOMENT)

BITS: Mapping[str, int] = MappingProxyType({kind.value: kind.row.bits for kind in Kind if kind.row.bits is not None})
"""Of whole numbers."""

VALUE_BYTES: Mapping[str, int] = MappingProxyType(
    {kind.value: kind.row.value_bytes for kind in Kind if kind.row.value_bytes is not None}
)
"""Of types whose values all take as much memory; a decimal's depend on its digits."""
