"""What JDBC asks about the catalog, over HiveServer2 and Flight SQL alike: types of columns, and names by patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby

from gateway.catalog.snapshot import Relation, RelationKind
from selector.types import DriverType, Kind, decimal_digits, kind_named

LONGEST_NAME = 4_096  # of a table, column or function; a pattern with more signs of its own matches none
_ANYTHING = ("%", "*", ".*")
_ONE = "_"
_NOTHING = re.compile(r"(?!)")


KNOWN: Mapping[str, DriverType] = {kind.value: kind.row.driver for kind in Kind if kind.row.driver is not None}
"""What drivers hear of as a type of its own; all else comes to them as a string."""


def describe(name: str) -> DriverType:
    """Return the type behind a Spark name such as ``decimal(10,2)``; what drivers do not know comes as a string."""
    known = KNOWN.get(kind_named(name) or "", KNOWN[Kind.STRING])
    digits = decimal_digits(name)
    return replace(known, size=digits[0], scale=digits[1]) if digits is not None else known


def matching(
    known: Iterable[Relation], *, database: str | None, table: str | None, kinds: Iterable[str] = ()
) -> list[Relation]:
    """Return tables and views whose names match two patterns. kinds: tables, views or both; none is both."""
    held_by, named, wanted = matcher(database), matcher(table), {kind.upper() for kind in kinds} or set(RelationKind)
    return [
        each
        for each in known
        if each.kind in wanted and held_by.fullmatch(each.database) and named.fullmatch(each.name)
    ]


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
