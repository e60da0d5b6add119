"""Name resolution: columns of sources with their types, aliases of the select list, and scopes of outer queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from engines.duckdb.writer.kinds import Kind
from engines.duckdb.writer.values import Value, quoted_name, require


@dataclass(frozen=True, slots=True)
class Output:
    """Output column of a query: its name, its type, and the decimal type that DuckDB computes for it."""

    name: str
    kind: Kind
    held: Kind | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A table, sub-query or common table expression under its name in FROM."""

    name: str
    columns: tuple[Output, ...]

    def find(self, name: str) -> Output | None:
        """Return a column; names have no case. Raises NoEquivalent where several have it, or had it to DuckDB."""
        columns = [column for column in self.columns if column.name.lower() == name]
        base, _, number = name.rpartition("_")
        is_renamed = number.isdecimal() and base in self.repeated  # DuckDB calls the second k of a query k_1
        require(len(columns) < 2 and not (columns and is_renamed), f"the name {name}, which more than one column has.")
        return columns[0] if columns else None

    @property
    def repeated(self) -> frozenset[str]:
        """The names that more than one column has."""
        counted = Counter(column.name.lower() for column in self.columns)
        return frozenset(name for name, count in counted.items() if count > 1)


@dataclass(slots=True)
class Scope:
    """Scope in which one SELECT's names are resolved.

    sources: sources of FROM, in order.
    parent: scope of the outer query.
    queries: common table expressions, by lower-case name.
    merged: columns that USING merged, the last USING's first.
    joined: sources of these columns, as positions of sources and names.
    hidden: their right sides, visible only by their table's name, the last USING's first.
    aliases: values by the aliases that the select list has defined so far.
    is_expression: the scope belongs to a sub-query of an expression.
    in_filter: the condition of WHERE or HAVING is being written.
    is_correlated: a name in it belongs to an outer query.
    """

    sources: list[Source] = field(default_factory=list)
    parent: Scope | None = None
    queries: Mapping[str, tuple[Output, ...]] = field(default_factory=dict)
    merged: dict[str, Output] = field(default_factory=dict)
    joined: set[tuple[int, str]] = field(default_factory=set)
    hidden: list[tuple[int, str]] = field(default_factory=list)
    aliases: dict[str, Value] = field(default_factory=dict)
    is_expression: bool = False
    in_filter: bool = False
    is_correlated: bool = False

    def column(self, name: str, table: str) -> Value | None:
        """Return the column that a name means here or further out; None where it is none.

        One from further out is written with its table, or DuckDB might take an alias of the inner query for it.
        """
        scope: Scope | None = self
        between: set[str] = set()
        inner: list[Scope] = []
        levels = 0
        while scope is not None:
            levels += scope.is_expression
            output = scope._own(name.lower(), table.lower())
            if output is not None:
                for passed in inner if levels else ():
                    passed.is_correlated = True
                require(levels == 0 or (levels == 1 and self.in_filter), "a column of an outer query outside of WHERE.")
                if scope is not self:
                    table = table or scope._source_of(name.lower())
                    require(bool(table), f"the name {name} of an outer query's source without a name.")
                    require(table.lower() not in between, f"the table {table}, whose name an inner one has too.")
                text = quoted_name(name) if not table else f"{quoted_name(table)}.{quoted_name(name)}"
                return Value(text, output.kind, held=output.held)
            between |= {source.name for source in scope.sources}
            inner.append(scope)
            scope = scope.parent
        return None

    def merge(self, names: Sequence[str], before: int) -> None:
        """Make one column of each two that USING names. before: how many sources stand on its left."""
        hidden, self.hidden = self.hidden, []
        newest = {name: self._one_of_two(name, before) for name in names}
        self.hidden += hidden
        self.merged = newest | {name: column for name, column in self.merged.items() if name not in newest}

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
        """Yield what a star stands for, with its text: what USING joined comes first, also in the star of one table."""
        if not table:
            for column in self.merged.values():
                yield quoted_name(column.name), column
        for place, source in enumerate(self.sources):
            if not table or source.name == table.lower():
                require(not source.repeated, f"a star over {source.name}, of which several columns have one name.")
                rest = [column for column in source.columns if (place, column.name.lower()) not in self.joined]
                prefix = f"{quoted_name(source.name)}." if source.name else ""
                for column in (*(self._joined_of(place) if table else ()), *rest):
                    yield f"{prefix}{quoted_name(column.name)}", column

    def forget(self, before: int) -> None:
        """Take the sources from a place on away; nobody sees them after a join that only asks whether they match."""
        del self.sources[before:]
        self.joined = {(place, name) for place, name in self.joined if place < before}
        self.hidden = [(place, name) for place, name in self.hidden if place < before]

    def _own(self, name: str, table: str) -> Output | None:
        columns = [
            column
            for place, source in enumerate(self.sources)
            if source.name == table or (not table and (place, name) not in self.joined)
            if (column := source.find(name)) is not None
        ]
        if not table and name in self.merged:
            columns.append(self.merged[name])
        require(len(columns) < 2, f"the name {name}, which more than one table has.")
        return columns[0] if columns else None

    def _one_of_two(self, name: str, before: int) -> Output:
        places = [place for place, source in enumerate(self.sources) if source.find(name)]
        free = [place for place in places if (place, name) not in self.joined]
        merged = self.merged.get(name)
        lhs = [merged] if merged else []
        lhs += [column for place in free if place < before and (column := self.sources[place].find(name))]
        rhs = [column for place in free if place >= before and (column := self.sources[place].find(name))]
        require(
            [len(lhs), len(rhs)] == [1, 1] and lhs[0].kind == rhs[0].kind,
            f"USING over {name}.",
        )
        self.joined |= {(place, name) for place in free}
        self.hidden += [(place, name) for place in free if place >= before]
        return lhs[0]

    def _joined_of(self, place: int) -> list[Output]:
        """Return the columns of a source that USING named: those of a right side before those of a left one."""
        hidden = [name for at, name in self.hidden if at == place]
        from_left = [name for name in self.merged if (place, name) in self.joined and name not in hidden]
        return [column for name in hidden + from_left if (column := self.sources[place].find(name))]

    def _source_of(self, name: str) -> str:
        """Return the name of the first source that has a column."""
        return next((source.name for source in self.sources if source.find(name)), "")
