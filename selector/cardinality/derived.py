"""What is made of rows other than by reading and joining them: groupings, unions, limits, and what nobody knows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from selector.cardinality.groups import Sizes, independent
from selector.cardinality.join_messages import (
    LEAST,
    KeyVector,
    Message,
    added,
    applied,
    expected_distinct,
    same_bins,
)
from selector.cardinality.relations import Base, Relation
from selector.estimate import bounded_rows
from selector.plan import PlanColumn


class Derived(Relation):
    """Rows that something else than a join made of another relation's: their number is known, keys go along."""

    def __init__(self, source: Relation, rows: float, *, upper: float | None = None) -> None:
        self._source = source
        self.rows = bounded_rows(rows)
        self.upper = max(self.rows, min(source.upper, source.upper if upper is None else upper))

    def holds(self, column: PlanColumn) -> bool:
        """Return whether a column comes out of it."""
        return self._source.holds(column)

    def vector(self, column: PlanColumn, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's bins, spread as they were below."""
        spread = self._source.vector(column, messages)
        if spread is None:
            return None
        share = self.rows / max(1e-9, self._source.rows)
        ndv = expected_distinct(spread.ndv, spread.rows, np.full(spread.ndv.shape, min(1.0, share)))
        assert isinstance(ndv, np.ndarray)
        return replace(spread, rows=spread.rows * share, ndv=ndv)

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the different values of a column."""
        found = self._source.ndv(column)
        return None if found is None else max(1.0, min(found, self.rows))

    def domain(self, column: PlanColumn) -> float | None:
        """Return the different values before other filters and joins."""
        return self._source.domain(column)

    def present(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is not NULL."""
        return self._source.present(column)

    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return how many different combinations of columns there may be."""
        return max(1.0, min(self._source.combinations(columns), self.rows))

    def distinct(self, columns: Sequence[PlanColumn]) -> float | None:
        """Return how many different combinations are expected in its part of the rows."""
        found = self._source.distinct(columns)
        if found is None:
            return None
        share = self.rows / max(1e-9, self._source.rows)
        return max(1.0, min(float(expected_distinct(found, self._source.rows, min(1.0, share))), self.rows))

    def base(self, column: PlanColumn) -> Base | None:
        """Return the rows that a column was read from."""
        return self._source.base(column)

    @property
    def marked(self) -> tuple[float, ...]:
        """Return the shares of rows that met another one."""
        return self._source.marked

    def counts_combinations(self, columns: Sequence[PlanColumn]) -> bool:
        """Return whether combinations were seen on a sample."""
        return self._source.counts_combinations(columns)


class Groups(Derived):
    """Rows of a grouping: of each combination of its keys there is one."""

    def __init__(
        self,
        source: Relation,
        rows: float,
        keys: Sequence[PlanColumn],
        *,
        upper: float,
        measures: Mapping[PlanColumn, float] = MappingProxyType({}),
    ) -> None:
        """Group. rows, upper: how many groups are expected, and at most. measures: values of what is aggregated."""
        super().__init__(source, rows, upper=upper)
        self._keys = frozenset(_origin(key) for key in keys)
        self._measures = measures

    @property
    def sizes(self) -> Sizes:
        """Return how many rows are in a group."""
        key = next(iter(self._key_columns), None)
        spread = self._source.vector(key) if key is not None and len(self._keys) == 1 else None
        if spread is None or not np.any(spread.ndv > 0.0):
            return Sizes.of(self.rows, self._source.rows)
        there = spread.ndv > LEAST
        count, rows = spread.ndv[there], spread.rows[there]
        return Sizes(count, rows / count, spread.largest[there])

    @property
    def _key_columns(self) -> list[PlanColumn]:
        return [PlanColumn(name, None, table, scan) for table, name, scan in self._keys]

    def rows_of(self, column: PlanColumn) -> Base | None:
        """Return the rows that were grouped, as far as they were read with a column."""
        return self._source.base(column)

    def holds(self, column: PlanColumn) -> bool:
        """Return whether a column comes out of it: a key does, and what is aggregated."""
        return column in self._measures or (_origin(column) in self._keys and super().holds(column))

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the different values of a key, or of what is aggregated."""
        known = self._measures.get(column)
        return super().ndv(column) if known is None else max(1.0, min(known, self.rows))

    def distinct(self, columns: Sequence[PlanColumn]) -> float | None:
        """Return how many different combinations there are: of all keys, as many as groups."""
        if self._keys <= {_origin(column) for column in columns}:
            return max(1.0, self.rows)
        measured = [column for column in columns if column in self._measures]
        keys = [column for column in columns if column not in self._measures]
        counts = [self._measures[column] for column in measured]
        if keys:
            found = super().distinct(keys)
            if found is None:
                return None
            counts.append(found)
        return max(1.0, min(independent(counts, self.rows), self.rows))

    def vector(self, column: PlanColumn, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the groups by a key's bins; of a single key each bin has as many as it has keys."""
        if len(self._keys) > 1:
            return super().vector(column, messages)
        spread = self._source.vector(column)
        if spread is None:
            return None
        part = min(1.0, self.rows / max(1e-9, float(spread.ndv.sum())))
        groups, most = spread.ndv * part, np.minimum(1.0, spread.ndv)
        found = KeyVector(spread.bins, groups, groups, spread.ndv, most, spread.ndv)
        for message in messages:  # all of them are for the key: no other column comes out
            found = applied(found, message.factor, message.kept, message.upper)
        return found

    def domain(self, column: PlanColumn) -> float | None:
        """Return the different values before other joins; there are no more than groups."""
        found = self._source.domain(column)
        return None if found is None else max(1.0, min(found, self.rows))


class Union(Relation):
    """The rows of several relations; a column of the first one stands for those in its place in the others."""

    def __init__(self, parts: Sequence[Relation], columns: Sequence[Sequence[PlanColumn]]) -> None:
        """Put relations together. columns: of each in order."""
        self._parts = tuple(parts)
        self._places = {_origin(column): place for place, column in reversed(list(enumerate(columns[0])))}
        self._columns = columns
        self.rows = bounded_rows(sum(part.rows for part in parts))
        self.upper = bounded_rows(sum(part.upper for part in parts))

    @property
    def branches(self) -> list[tuple[Relation, Sequence[PlanColumn]]]:
        """Return the relations with their columns, in order."""
        return list(zip(self._parts, self._columns, strict=True))

    def holds(self, column: PlanColumn) -> bool:
        """Return whether every relation has such a column."""
        return len(self._alike(column)) == len(self._parts)

    def vector(self, column: PlanColumn, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's bins, if all were counted over the same ones."""
        found: KeyVector | None = None
        for part, own in self._alike(column):
            there = [replace(message, column=mine) for message in messages for mine in self._of(part, message.column)]
            spread = part.vector(own, there) if len(there) == len(messages) else None
            if spread is None or (found is not None and not same_bins(spread.bins, found.bins)):
                return None
            found = spread if found is None else added(found, spread)
        return found

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the different values: of as many as there are, those that any relation has."""
        return self._any(column, [part.ndv(own) for part, own in self._alike(column)])

    def domain(self, column: PlanColumn) -> float | None:
        """Return the different values before other filters and joins."""
        found = [part.domain(own) for part, own in self._alike(column)]
        known = [one for one in found if one is not None]
        return max(known) if known and len(known) == len(self._parts) else None

    def present(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is not NULL."""
        held = sum(part.rows * part.present(own) for part, own in self._alike(column))
        return held / self.rows if self.rows > 0.0 else 1.0

    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return how many different combinations of columns there may be."""
        return max(1.0, self.rows)

    def distinct(self, columns: Sequence[PlanColumn]) -> float | None:
        """Return how many different combinations there are: no value is known to be in several relations."""
        if len(columns) == 1:
            return self.ndv(columns[0])
        total = 0.0
        for part in self._parts:
            own = [mine for column in columns for mine in self._of(part, column)]
            found = part.distinct(own) if len(own) == len(columns) else None
            if found is None:
                return None
            total += found
        return max(1.0, min(total, self.rows))

    def base(self, column: PlanColumn) -> Base | None:
        """Return nothing: its rows were read in several places."""
        return None

    def _alike(self, column: PlanColumn) -> list[tuple[Relation, PlanColumn]]:
        return [(part, own) for part in self._parts for own in self._of(part, column)]

    def _of(self, part: Relation, column: PlanColumn) -> list[PlanColumn]:
        place = self._places.get(_origin(column))
        columns = self._columns[self._parts.index(part)]
        if place is None or place >= len(columns) or not part.holds(columns[place]):
            return []
        return [columns[place]]

    def _any(self, column: PlanColumn, found: Sequence[float | None]) -> float | None:
        known = [one for one in found if one is not None]
        if not known or len(known) < len(self._parts):
            return None
        domain = max(self.domain(column) or sum(known), *known)
        return max(1.0, min(self.rows, domain * (1.0 - math.prod(1.0 - one / domain for one in known))))


class Opaque(Relation):
    """Rows about whose columns nothing is known."""

    def __init__(self, rows: float, *, upper: float | None = None, members: Sequence[Relation] = ()) -> None:
        """Hold a number of rows. members: relations whose columns come out, spread in a way that nobody knows."""
        self.rows = bounded_rows(rows)
        self.upper = max(self.rows, bounded_rows(upper if upper is not None else rows))
        self._members = tuple(members)

    def holds(self, column: PlanColumn) -> bool:
        """Return whether a column comes out of it."""
        return any(member.holds(column) for member in self._members)

    def vector(self, column: PlanColumn, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return nothing."""
        return None

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the different values, at most as many as rows."""
        for member in self._members:
            if member.holds(column):
                found = member.ndv(column)
                return None if found is None else max(1.0, min(found, self.rows))
        return None

    def domain(self, column: PlanColumn) -> float | None:
        """Return the different values before other filters and joins."""
        return next((member.domain(column) for member in self._members if member.holds(column)), None)

    def present(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is not NULL before joins."""
        return next((member.present(column) for member in self._members if member.holds(column)), 1.0)

    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return how many different combinations of columns there may be."""
        return max(1.0, self.rows)

    def distinct(self, columns: Sequence[PlanColumn]) -> float | None:
        """Return how many different combinations are expected: those of the members in all pairs."""
        left, counts = list(columns), []
        for member in self._members:
            own = [column for column in left if member.holds(column)]
            if own:
                left = [column for column in left if column not in own]
                found = member.distinct(own)
                if found is None:
                    return None
                counts.append(found)
        return None if left else max(1.0, min(independent(counts, self.rows), self.rows))

    def base(self, column: PlanColumn) -> Base | None:
        """Return the rows that a column was read from."""
        return next((member.base(column) for member in self._members if member.holds(column)), None)


def _origin(column: PlanColumn) -> tuple[str | None, str, int | None]:
    """Return what a column is, whatever type it was cast to on its way."""
    return column.table, column.name, column.scan
