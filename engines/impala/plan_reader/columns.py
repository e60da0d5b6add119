"""Columns as Impala's EXPLAIN names them, followed to the tables that they come from.

A name stands bare, behind the alias that its scan prints, or, from Calcite, behind its table's full name; of several
scans of one table Calcite numbers the name (``shop.books_0.id``) without printing the number beside the scan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from engines.impala.plan_reader.texts import words
from selector.plan import PlanColumn, TableShape

_NAME = re.compile(r"(?:(?:`[^`]+`|[A-Za-z_]\w*)\.)*(?:`[^`]+`|[A-Za-z_]\w*)$")
_NUMBER = re.compile(r"_\d{1,4}$")


@dataclass(slots=True)
class Scan:
    """A scan as names can be told by it. names: what stands before a column's dot; own: columns it names itself."""

    table: str | None
    names: frozenset[str]
    types: Mapping[str, str]
    own: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, bracket: str, tables: Sequence[TableShape], texts: Iterable[str], *, numbered: bool) -> Scan:
        """Return the scan of ``table alias``; texts: what it prints of its columns. numbered: as Calcite does."""
        source = bracket.split(", ")[0].split()
        printed = source[0].replace("`", "") if source else ""
        shape = _shape(printed, tables)
        names = {source[1]} if len(source) > 1 else {printed, printed.rpartition(".")[2]}
        scan = cls(shape.name if shape else printed or None, frozenset(names), shape.columns if shape else {})
        for word in words(texts):
            before, _, column = word.rpartition(".")
            if not before or before in names or (numbered and _NUMBER.sub("", before) == printed):
                scan.own.add(column)
        return scan

    def has(self, column: str) -> bool:
        """Tell whether a bare name may be one of this scan's columns."""
        return column in self.types if self.types else column in self.own


@dataclass(slots=True)
class Visible:
    """What names below a node can mean. renamed: keys of an aggregate that its second phase calls otherwise."""

    scans: tuple[Scan, ...] = ()
    renamed: Mapping[str, PlanColumn] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Sequence[Visible]) -> Visible:
        """Return what the names of several inputs can mean."""
        if len(parts) == 1:
            return parts[0]
        renamed = {name: column for part in parts for name, column in part.renamed.items()}
        return cls(tuple(scan for part in parts for scan in part.scans), renamed)

    def column(self, text: str, *, numbered: bool) -> PlanColumn:
        """Tell which table a column comes from; an expression and what cannot be told have none."""
        renamed = self.renamed.get(text)
        if renamed is not None:
            return renamed
        if not _NAME.match(text):
            return PlanColumn(text)
        before, _, column = text.replace("`", "").rpartition(".")
        if before:
            candidates = [scan for scan in self.scans if before in scan.names]
            if not candidates and numbered and "." in before:
                unnumbered = _NUMBER.sub("", before)
                candidates = [scan for scan in self.scans if unnumbered in scan.names]
        else:
            candidates = [scan for scan in self.scans if scan.has(column)]
            if not candidates and any(scan.has(column.lower()) for scan in self.scans):
                column = column.lower()  # of a union Calcite prints the names in capitals
                candidates = [scan for scan in self.scans if scan.has(column)]
            if not candidates and len(self.scans) == 1 and not self.scans[0].types:
                candidates = list(self.scans)
        tables = {scan.table for scan in candidates}
        if len(tables) != 1:
            return PlanColumn(column if candidates else text.replace("`", ""))
        return PlanColumn(column, candidates[0].types.get(column), candidates[0].table)


def _shape(printed: str, tables: Iterable[TableShape]) -> TableShape | None:
    """Return the table of this name; the catalog may call it without its database."""
    last = printed.rpartition(".")[2]
    candidates = [table for table in tables if table.name in (printed, last)]
    return next(
        (table for table in candidates if table.name == printed), candidates[0] if len(candidates) == 1 else None
    )
