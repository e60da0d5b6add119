"""Types of columns and patterns of names as JDBC defines them, for HiveServer2 and Flight SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby

from gateway.catalog.snapshot import Relation, RelationKind
from selector.types import DriverType, Kind, decimal_digits, kind_named

LONGEST_NAME = 4_096  # of a table, column or function; a pattern with more characters, wildcards aside, matches none
_ANYTHING = ("%", "*", ".*")
_ONE = "_"
_NOTHING = re.compile(r"(?!)")


DRIVER_TYPES: Mapping[str, DriverType] = {kind.value: kind.row.driver for kind in Kind if kind.row.driver is not None}
"""Types that drivers have; values of all others are sent as strings."""


def describe(name: str) -> DriverType:
    """Return the driver's type for a Spark name such as ``decimal(10,2)``; a string where drivers have none."""
    driver_type = DRIVER_TYPES.get(kind_named(name) or "", DRIVER_TYPES[Kind.STRING])
    digits = decimal_digits(name)
    return replace(driver_type, size=digits[0], scale=digits[1]) if digits is not None else driver_type


def matching(
    relations: Iterable[Relation], *, database: str | None, table: str | None, kinds: Iterable[str] = ()
) -> list[Relation]:
    """Return tables and views whose names match two patterns. kinds: tables, views or both; empty: both."""
    in_database, named, wanted = (
        matcher(database),
        matcher(table),
        {kind.upper() for kind in kinds} or set(RelationKind),
    )
    return [
        relation
        for relation in relations
        if relation.kind in wanted and in_database.fullmatch(relation.database) and named.fullmatch(relation.name)
    ]


def matcher(pattern: str | None) -> re.Pattern[str]:
    """Return a pattern of whole names, in any case, as a regular expression that matches in linear time.

    ``%`` is any text, ``_`` any character; a backslash escapes the next one. Hive's ``*`` and impyla's ``.*`` are the
    same as ``%``. No pattern, or an empty one, matches everything.
    """
    signs = re.findall(r"\\.|\.\*|.", pattern or "%", flags=re.DOTALL)
    if sum(sign not in _ANYTHING for sign in signs) > LONGEST_NAME:
        return _NOTHING
    fixed = [""]  # texts between wildcards
    for is_any, group in groupby(signs, lambda sign: sign in _ANYTHING):
        if is_any:
            fixed.append("")
        else:
            fixed[-1] = "".join("." if sign == _ONE else re.escape(sign[-1]) for sign in group)
    first, *rest = fixed
    # The earliest place of a piece is as good as any other, so nothing is tried twice: (?>...) does not go back.
    between = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    last = f".*{rest[-1]}" if rest else ""
    return re.compile(first + between + last, re.IGNORECASE | re.DOTALL)
