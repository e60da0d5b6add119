"""What a name means: columns of sources with their types, names given in the select list, what is around a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.sql.portable.kinds import Kind
from gateway.sql.portable.values import NotPortable, Value, quoted_name


@dataclass(frozen=True, slots=True)
class Output:
    """One column that a query gives: its name, its type, and the decimal that DuckDB has for it."""

    name: str
    kind: Kind
    held: Kind | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A table, sub-query or common table expression under its name in FROM."""

    name: str
    columns: tuple[Output, ...]

    def find(self, name: str) -> Output | None:
        """Return a column; names have no case."""
        return next((column for column in self.columns if column.name.lower() == name), None)


@dataclass(slots=True)
class Scope:
    """Where one SELECT's names are looked up.

    merged: columns that USING made one of two. given: values under the names that the select list gave them so far.
    """

    sources: list[Source] = field(default_factory=list)
    parent: Scope | None = None
    queries: Mapping[str, tuple[Output, ...]] = field(default_factory=dict)
    merged: dict[str, Output] = field(default_factory=dict)
    given: dict[str, Value] = field(default_factory=dict)

    def column(self, name: str, table: str) -> Value | None:
        """Return the column that a name means here or further out; None where it is none."""
        scope: Scope | None = self
        while scope is not None:
            found = scope._own(name.lower(), table.lower())
            if found is not None:
                text = quoted_name(name) if not table else f"{quoted_name(table)}.{quoted_name(name)}"
                return Value(text, found.kind, held=found.held)
            scope = scope.parent
        return None

    def has(self, name: str) -> bool:
        """Tell whether FROM has a column of a name."""
        return self._own(name.lower(), "") is not None

    def query(self, name: str) -> tuple[Output, ...] | None:
        """Return the columns of a common table expression."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.queries:
                return scope.queries[name]
            scope = scope.parent
        return None

    def star(self, table: str = "") -> Iterator[tuple[str, Output]]:
        """Yield what a star stands for, with its text: columns that USING made one first."""
        if not table:
            for column in self.merged.values():
                yield quoted_name(column.name), column
        for source in self.sources:
            if not table or source.name == table.lower():
                for column in source.columns:
                    if table or column.name.lower() not in self.merged:
                        yield f"{quoted_name(source.name)}.{quoted_name(column.name)}", column

    def _own(self, name: str, table: str) -> Output | None:
        if not table and name in self.merged:
            return self.merged[name]
        found: Sequence[Output] = [
            column
            for source in self.sources
            if not table or source.name == table
            if (column := source.find(name)) is not None
        ]
        if len(found) > 1:
            raise NotPortable(f"the name {name}, which more than one table has.")
        return found[0] if found else None
