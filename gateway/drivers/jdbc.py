"""Types of columns and patterns of names as JDBC has them, which both HiveServer2 and Flight SQL speak of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby

LONGEST_TEXT = 2**31 - 1
LONGEST_NAME = 4_096  # of a table, column or function; a pattern with more signs of its own matches none
_NAME = re.compile(r"(\w+)(?:\((\d+),(\d+)\))?")
_ANYTHING = ("%", "*", ".*")
_ONE = "_"
_NOTHING = re.compile(r"(?!)")


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
class Described:
    """A type of Hive's; None where something does not apply to it.

    size: digits, characters or bytes as JDBC counts them. scale: digits after the point. radix: of numbers.
    """

    jdbc: Jdbc
    size: int | None = None
    scale: int | None = None
    radix: int | None = None


KNOWN: Mapping[str, Described] = {
    "boolean": Described(Jdbc.BOOLEAN, 1),
    "tinyint": Described(Jdbc.TINYINT, 3, 0, 10),
    "smallint": Described(Jdbc.SMALLINT, 5, 0, 10),
    "int": Described(Jdbc.INTEGER, 10, 0, 10),
    "bigint": Described(Jdbc.BIGINT, 19, 0, 10),
    "float": Described(Jdbc.REAL, 7, 7, 10),
    "double": Described(Jdbc.DOUBLE, 15, 15, 10),
    "string": Described(Jdbc.VARCHAR, LONGEST_TEXT),
    "timestamp": Described(Jdbc.TIMESTAMP, 29, 9),
    "timestamp_ntz": Described(Jdbc.TIMESTAMP, 29, 9),
    "binary": Described(Jdbc.BINARY, LONGEST_TEXT),
    "array": Described(Jdbc.ARRAY),
    "map": Described(Jdbc.JAVA_OBJECT),
    "struct": Described(Jdbc.STRUCT),
    "decimal": Described(Jdbc.DECIMAL, 38, 18, 10),
    "date": Described(Jdbc.DATE, 10),
    "void": Described(Jdbc.NULL),
}


def describe(name: str) -> Described:
    """Return the type behind a Spark name such as ``decimal(10,2)``; what Hive has no type for comes as a string."""
    found = _NAME.match(name)
    known = KNOWN.get(found[1], KNOWN["string"]) if found else KNOWN["string"]
    if found and known.jdbc is Jdbc.DECIMAL and found[2]:
        return Described(Jdbc.DECIMAL, int(found[2]), int(found[3]), 10)
    return known


def matcher(pattern: str | None) -> re.Pattern[str]:
    """Turn a pattern into one that matches whole names, whatever their case, in a time that grows with both alone.

    ``%`` is any text, ``_`` any sign, a backslash stands before one that is meant itself. Hive's ``*`` and impyla's
    ``.*`` count as ``%``; no pattern, or an empty one, is everything.
    """
    signs = re.findall(r"\\.|\.\*|.", pattern or "%", flags=re.DOTALL)
    if sum(sign not in _ANYTHING for sign in signs) > LONGEST_NAME:
        return _NOTHING
    fixed = [""]  # what stands between any texts
    for is_any, group in groupby(signs, lambda sign: sign in _ANYTHING):
        if is_any:
            fixed.append("")
        else:
            fixed[-1] = "".join("." if sign == _ONE else re.escape(sign[-1]) for sign in group)
    first, *rest = fixed
    # The earliest place of a piece is as good as any other, so nothing is tried twice: (?>...) keeps what it found.
    between = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    last = f".*{rest[-1]}" if rest else ""
    return re.compile(first + between + last, re.IGNORECASE | re.DOTALL)
