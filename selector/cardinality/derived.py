"""Relations that are neither scans nor joins: groupings, limits, IN lists, and rows with unknown columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from selector.cardinality.base import Base
from selector.cardinality.groups import Sizes, independent
from selector.cardinality.join_messages import (
    LEAST,
    Floats,
    Key,
    KeyRows,
    KeyVector,
    Message,
    applied,
    expected_distinct,
    scaled,
)
from selector.cardinality.keys.classes import KeyClasses, origin
from selector.cardinality.predicates.domains import Domain
from selector.cardinality.relation import Relation, Scanned
from selector.estimate import bounded_rows
from selector.plan import JoinType, PlanColumn


class Derived(Relation):
    """Some rows of another relation: their number is known, and their keys are spread as they were there."""

    def __init__(self, source: Relation, rows: float, *, upper: float | None = None) -> None:
        self._source = source
        self.rows = bounded_rows(rows)
        self.upper = max(self.rows, min(source.upper, source.upper if upper is None else upper))

    def holds(self, column: PlanColumn) -> bool:
        """Return whether the relation outputs a column."""
        return self._source.holds(column)

    def vector(self, key: Key, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's cells, spread as those of the source."""
        spread = self._source.vector(key, messages)
        if spread is None:
            return None
        share = self.rows / max(1e-9, self._source.rows)
        return scaled(spread, share)

    def is_made_of(self, other: Relation) -> bool:
        """Return whether its rows are keys of another relation."""
        return self is other or self._source.is_made_of(other)

    def possible_keys(self, key: Key) -> Floats | None:
        """Return the number of possible keys in each cell of a key."""
        return self._source.possible_keys(key)

    def allowed(self, column: PlanColumn) -> Domain | None:
        """Return the domain of a column behind the filters; None if the filters are no domain."""
        return self._source.allowed(column) if self.holds(column) else None

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the NDV of a column."""
        ndv = self._source.ndv(column)
        return None if ndv is None else max(1.0, min(ndv, self.rows))

    def domain(self, column: PlanColumn) -> float | None:
        """Return the NDV of a column before joins and filters on other columns."""
        return self._source.domain(column)

    def present(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is not NULL."""
        return self._source.present(column)

    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return the number of combinations of columns that are possible."""
        return max(1.0, min(self._source.combinations(columns), self.rows))

    def distinct(self, columns: Sequence[PlanColumn], messages: Sequence[Message] = ()) -> float | None:
        """Return the expected number of combinations in its share of the source's rows."""
        source_distinct = self._source.distinct(columns, messages)
        if source_distinct is None:
            return None
        share = self.rows / max(1e-9, self._source.rows)
        return max(1.0, min(float(expected_distinct(source_distinct, self._source.rows, min(1.0, share))), self.rows))

    def base(self, column: PlanColumn) -> Scanned | None:
        """Return the filtered scan that a column was read from."""
        return self._source.base(column)

    def bases(self, columns: Sequence[PlanColumn]) -> list[tuple[Scanned, tuple[PlanColumn, ...]]] | None:
        """Return each scan that has all the columns."""
        return self._source.bases(columns)

    def nulls(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is NULL."""
        return self._source.nulls(column)

    def sampled(self, column: PlanColumn, key: tuple[str, ...] = ()) -> tuple[Scanned, Floats] | None:
        """Return the scan that a column was read from, with the weights of its sampled rows."""
        return self._source.sampled(column, key)

    @property
    def marked(self) -> tuple[float, ...]:
        """Return the share of rows with a match in each mark join."""
        return self._source.marked

    def counts_combinations(self, columns: Sequence[PlanColumn]) -> bool:
        """Return whether the combinations come from a sample."""
        return self._source.counts_combinations(columns)


class InList(Derived):
    """Rows that a mark join with a list of constants marked."""

    def __init__(self, source: Relation, column: PlanColumn, domain: Domain) -> None:
        """Mark the rows whose column is in the list. domain: the constants."""
        super().__init__(source, source.rows)
        self._column = column
        self._domain = domain

    @property
    def marked(self) -> tuple[float, ...]:
        """Return the share of rows with a match in each mark join."""
        listed_rows = self.chosen(JoinType.SEMI).rows
        return (min(1.0, listed_rows / self.rows) if self.rows > 0.0 else 0.0, *self._source.marked)

    @property
    def is_marking(self) -> bool:
        """Tell whether it is a mark join."""
        return True

    def chosen(self, kind: JoinType, count: int = 1) -> Relation:
        """Return the rows that are in the list, or those that are not."""
        source = self._source.chosen(kind, count - 1) if count > 1 else self._source
        domain = self._domain if kind is JoinType.SEMI else ~self._domain
        allowed = source.allowed(self._column)
        return source.within(self._column, domain if allowed is None else allowed & domain)


class Groups(Derived):
    """Rows of a grouping: one for each combination of its keys."""

    def __init__(
        self,
        source: Relation,
        rows: float,
        keys: Sequence[PlanColumn],
        *,
        upper: float,
        classes: KeyClasses | None = None,
        measures: Mapping[PlanColumn, float] = MappingProxyType({}),
    ) -> None:
        """Group. rows, upper: expected number of groups and upper bound. measures: NDV of each aggregate."""
        super().__init__(source, rows, upper=upper)
        self._classes = classes
        self._keys = dict.fromkeys(origin(key) for key in keys).keys()
        self._measures = measures

    @property
    def sizes(self) -> Sizes:
        """Return the sizes of the groups."""
        if isinstance(self._source, Base):
            sampled_sizes = self._source.group_sizes(self._key_columns, self.rows)
            if sampled_sizes is not None and sampled_sizes.count.size:
                return sampled_sizes
        column = next(iter(self._key_columns), None)
        cells = self._classes.of(column) if self._classes is not None and column is not None else None
        spread = self._source.vector(Key((column,), cells)) if column is not None and len(self._keys) == 1 else None
        if spread is None or not np.any(spread.ndv > 0.0):
            return Sizes.of(self.rows, self._source.rows)
        has_keys = spread.ndv > LEAST
        count, rows = spread.ndv[has_keys], spread.rows[has_keys]
        return Sizes(count, rows / count, spread.largest[has_keys])

    def mean_sizes(self, key: Key) -> Floats | None:
        """Return the mean size of the groups in each cell of the grouping key, shape (cells.count,)."""
        spread = self._source.vector(key) if len(self._keys) == len(key.columns) else None
        return None if spread is None else spread.rows / np.maximum(spread.ndv, LEAST)

    @property
    def _key_columns(self) -> list[PlanColumn]:
        return [PlanColumn(name, None, table, scan) for table, name, scan in self._keys]

    def holds(self, column: PlanColumn) -> bool:
        """Return whether a column is a grouping key or an aggregate with an NDV."""
        return column in self._measures or (origin(column) in self._keys and super().holds(column))

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the NDV of a grouping key or an aggregate."""
        measured_values = self._measures.get(column)
        return super().ndv(column) if measured_values is None else max(1.0, min(measured_values, self.rows))

    def distinct(self, columns: Sequence[PlanColumn], messages: Sequence[Message] = ()) -> float | None:
        """Return the number of combinations of columns; of all grouping keys, the number of groups."""
        if self._keys <= {origin(column) for column in columns}:
            return max(1.0, min(self.total(messages)[0], self.rows) if messages else self.rows)
        measured = [column for column in columns if column in self._measures]
        keys = [column for column in columns if column not in self._measures]
        counts = [self._measures[column] for column in measured]
        if keys:
            key_combinations = super().distinct(keys, messages)
            if key_combinations is None:
                return None
            counts.append(key_combinations)
        return max(1.0, min(independent(counts, self.rows), self.rows))

    def vector(self, key: Key, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the groups by a key's cells; for the whole grouping key, each cell has as many as it has keys."""
        if len(self._keys) > len(key.columns):
            return super().vector(key, messages)
        spread = self._source.vector(key)
        if spread is None:
            return None
        part = min(1.0, self.rows / max(1e-9, float(spread.ndv.sum())))
        groups, most = spread.ndv * part, np.minimum(1.0, spread.ndv)
        key_vector = KeyVector(spread.cells, groups, groups, spread.domain, most, np.maximum(spread.ndv, groups))
        others = []
        for message in messages:
            if message.key.cells is key.cells and message.key.columns == key.columns:
                key_vector = applied(key_vector, message.factor, *message.later)
            else:  # for some of the grouping keys: the effect on a cell's groups is that on its rows
                others.append(message)
        after = self._source.vector(key, others) if others else None
        if after is None:
            return key_vector
        factor = after.rows / np.maximum(spread.rows, LEAST)
        return applied(
            key_vector,
            factor,
            lambda: np.minimum(1.0, after.ndv / np.maximum(spread.ndv, LEAST)),
            lambda: np.maximum(factor, after.largest / np.maximum(spread.largest, LEAST)),
        )

    def key_rows(self, key: Key, messages: Sequence[Message] = ()) -> KeyRows | None:
        """Return the groups in a sample that was drawn by the grouping key."""
        source_rows = self._source.key_rows(key) if len(self._keys) == len(key.columns) and not messages else None
        return None if source_rows is None else replace(source_rows, rows=np.minimum(source_rows.rows, 1.0))

    def domain(self, column: PlanColumn) -> float | None:
        """Return the NDV of a column before other joins, at most the number of groups."""
        source_domain = self._source.domain(column)
        return None if source_domain is None else max(1.0, min(source_domain, self.rows))


class GroupsOfSize(Derived):
    """Groups that pass a condition on their size."""

    def __init__(self, groups: Groups, rows: float, keeps_size: Callable[[Floats], NDArray[np.bool_]]) -> None:
        """Filter. rows: expected groups. keeps_size: tells for an array of sizes which ones pass."""
        super().__init__(groups, rows)
        self._groups = groups
        self._keeps_size = keeps_size

    def vector(self, key: Key, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the groups by a key's cells: those of cells whose mean size passes."""
        spread, sizes = self._groups.vector(key, messages), self._groups.mean_sizes(key)
        if spread is None or sizes is None:
            return super().vector(key, messages)
        is_kept = self._keeps_size(sizes)
        kept_rows = float((spread.rows * is_kept).sum())
        if kept_rows <= 0.0:
            return super().vector(key, messages)
        part = np.minimum(1.0, is_kept * min(1.0, self.rows / kept_rows))
        return replace(spread, rows=spread.rows * part, ndv=spread.ndv * part)


class Opaque(Relation):
    """Rows with unknown distribution of their columns."""

    def __init__(self, rows: float, *, upper: float | None = None, members: Sequence[Relation] = ()) -> None:
        """Hold a number of rows. members: relations whose columns it outputs, with unknown distribution."""
        self.rows = bounded_rows(rows)
        self.upper = max(self.rows, bounded_rows(upper if upper is not None else rows))
        self._members = tuple(members)

    def holds(self, column: PlanColumn) -> bool:
        """Return whether the relation outputs a column."""
        return any(member.holds(column) for member in self._members)

    def vector(self, key: Key, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return None: unknown."""
        return None

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the NDV of a column, at most the number of rows."""
        for member in self._members:
            if member.holds(column):
                ndv = member.ndv(column)
                return None if ndv is None else max(1.0, min(ndv, self.rows))
        return None

    def domain(self, column: PlanColumn) -> float | None:
        """Return the NDV of a column before joins and filters on other columns."""
        return next((member.domain(column) for member in self._members if member.holds(column)), None)

    def present(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is not NULL before joins."""
        return next((member.present(column) for member in self._members if member.holds(column)), 1.0)

    def nulls(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is NULL before joins."""
        return next((member.nulls(column) for member in self._members if member.holds(column)), 0.0)

    def sampled(self, column: PlanColumn, key: tuple[str, ...] = ()) -> tuple[Scanned, Floats] | None:
        """Return the scan that a column was read from, with the weights of its sampled rows in the member."""
        return next((member.sampled(column, key) for member in self._members if member.holds(column)), None)

    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return the number of combinations of columns that are possible."""
        return max(1.0, self.rows)

    def distinct(self, columns: Sequence[PlanColumn], messages: Sequence[Message] = ()) -> float | None:
        """Return the expected number of combinations: those of the members, combined independently."""
        remaining, counts = list(columns), []
        for member in self._members:
            own = [column for column in remaining if member.holds(column)]
            if own:
                remaining = [column for column in remaining if column not in own]
                member_distinct = member.distinct(own)
                if member_distinct is None:
                    return None
                counts.append(member_distinct)
        return None if remaining else max(1.0, min(independent(counts, self.rows), self.rows))

    def base(self, column: PlanColumn) -> Scanned | None:
        """Return the filtered scan that a column was read from."""
        return next((member.base(column) for member in self._members if member.holds(column)), None)
