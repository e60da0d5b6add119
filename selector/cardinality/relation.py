"""Interface of a join's inputs: rows and distinct values, in total and over the cells of a key."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from selector.cardinality.join_messages import Floats, Key, KeyRows, KeyVector, Message
from selector.cardinality.predicates.domains import Domain
from selector.cardinality.predicates.selectivity import Filtered
from selector.cardinality.predicates.vectors import Bools
from selector.plan import JoinType, PlanColumn
from selector.statistics import TableStatistics


class Relation(ABC):
    """Input of a join.

    rows: expected number.
    upper: upper bound of the number.
    """

    rows: float
    upper: float

    @abstractmethod
    def holds(self, column: PlanColumn) -> bool:
        """Return whether the relation outputs a column."""

    @abstractmethod
    def vector(self, key: Key, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's cells, after the joins that sent the messages; None: unknown."""

    def possible_keys(self, key: Key) -> Floats | None:
        """Return the number of possible keys in each cell of a key, shape (cells.count,); None: unknown."""
        key_vector = self.vector(key)
        return key_vector.domain if key_vector is not None else None

    def key_rows(self, key: Key, messages: Sequence[Message] = ()) -> KeyRows | None:
        """Return the rows of its sample by a key, after the joins that sent the messages; None without one."""
        return None

    @abstractmethod
    def ndv(self, column: PlanColumn) -> float | None:
        """Return the NDV of a column, at most the number of rows; None: unknown."""

    @abstractmethod
    def domain(self, column: PlanColumn) -> float | None:
        """Return the NDV of a column before joins and filters on other columns; None: unknown."""

    @abstractmethod
    def present(self, column: PlanColumn) -> float:
        """Return the share of rows, 0..1, whose column is not NULL before filters and joins; 1 if unknown."""

    @abstractmethod
    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return the number of combinations of columns that are possible, before filters."""

    @abstractmethod
    def distinct(self, columns: Sequence[PlanColumn], messages: Sequence[Message] = ()) -> float | None:
        """Return the expected number of combinations of columns, NULL counted as a value; None: unknown."""

    @abstractmethod
    def base(self, column: PlanColumn) -> Scanned | None:
        """Return the filtered scan that a column was read from; None without exactly one."""

    def bases(self, columns: Sequence[PlanColumn]) -> list[tuple[Scanned, tuple[PlanColumn, ...]]] | None:
        """Return each scan that has all the columns, with their names there; None if several scans share them."""
        bases = {self.base(column) for column in columns}
        base = bases.pop() if len(bases) == 1 else None
        return [(base, tuple(columns))] if base is not None else None

    def allowed(self, column: PlanColumn) -> Domain | None:
        """Return the domain of a column behind the filters; None if the filters are no domain."""
        return None

    def within(self, column: PlanColumn, domain: Domain | None) -> Relation:
        """Return the rows whose column lies in a domain, which a join implies; itself if it cannot apply one.

        domain: None: any value but NULL.
        """
        return self

    def nulls(self, column: PlanColumn) -> float:
        """Return the share of rows, 0..1, whose column is NULL."""
        return 1.0 - self.present(column)

    def sampled(self, column: PlanColumn, key: tuple[str, ...] = ()) -> tuple[Scanned, Floats] | None:
        """Return the scan that a column was read from, with the weight of each of its sampled rows in this relation.

        key: columns of the same table: of the sample that was drawn by them. None: no sample, or unknown weights.
        """
        return None

    def without(self, other: Relation) -> Relation:
        """Return the rows before a semi-join with another relation, if they are joined with it anyway."""
        return self

    def is_made_of(self, other: Relation) -> bool:
        """Return whether its rows are keys of another relation."""
        return self is other

    @property
    def is_read(self) -> bool:
        """Tell whether all its rows are rows of tables, so that key statistics apply to them."""
        return False

    @property
    def is_marking(self) -> bool:
        """Tell whether it is a mark join: it marks the rows with a match and drops none."""
        return False

    def chosen(self, kind: JoinType, count: int = 1) -> Relation:
        """Return the rows with a match (SEMI), or without one (ANTI), in the last ``count`` mark joins."""
        return self

    @property
    def marked(self) -> tuple[float, ...]:
        """Return the share of rows with a match, 0..1, in each mark join, the last one first."""
        return ()

    def counts_combinations(self, columns: Sequence[PlanColumn]) -> bool:
        """Return whether ``combinations`` comes from a sample; else it is an upper bound."""
        return False

    def effective_rows(self, messages: Sequence[Message]) -> float:
        """Return the effective sample size behind ``total``; infinite if no sample is partial."""
        return math.inf

    @property
    def name(self) -> tuple[str, int]:
        """Return the table and the number of the scan, by which joined relations are told apart."""
        return "", 0

    @property
    def max_effective_rows(self) -> float:
        """Return the largest possible ``effective_rows`` for any messages."""
        return math.inf

    def total(self, messages: Sequence[Message]) -> tuple[float, float]:
        """Return rows and their upper bound, after the joins that sent the messages."""
        for message in messages:
            if not message.tells_cells_apart:
                continue
            spread = self.vector(message.key, messages)
            if spread is None:
                continue
            without = self.vector(message.key)
            nulls = max(0.0, self.rows - float(without.rows.sum())) * message.null if without is not None else 0.0
            return float(spread.rows.sum()) + nulls, float(spread.upper.sum()) + nulls
        rows, upper = self.rows, self.upper
        for message in messages:
            rows, upper = rows * float(message.factor.mean()), upper * float(message.upper.max(initial=0.0))
        return rows, max(rows, upper)


class Scanned(Relation):
    """Rows of one scan behind its filters.

    filtered: the filters and their selectivity.
    """

    statistics: TableStatistics
    filtered: Filtered

    @property
    def is_read(self) -> bool:
        """Tell whether all its rows are rows of tables."""
        return True

    @abstractmethod
    def behind(self, predicates: Sequence[str]) -> Scanned:
        """Return the rows behind further filters (SQL texts)."""

    @abstractmethod
    def ranked(
        self, by: Sequence[str], order: Sequence[tuple[str, bool]], mask: Bools, most: float, *, dense: bool
    ) -> float | None:
        """Return the share of rows whose rank within their partition is at most ``most``, by the sample; None: unknown.

        by: expressions (SQL texts) of PARTITION BY.
        order: expressions of ORDER BY, each with True for DESC.
        mask: shape (sampled rows,), True for rows that count.
        dense: equal rows count once, as for dense_rank().
        """
