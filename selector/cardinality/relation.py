"""What every input of a join answers: how many rows, over the cells of a key, with how many different values."""

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
    """Rows that a join can take. rows, upper: expected number and upper bound."""

    rows: float
    upper: float

    @abstractmethod
    def holds(self, column: PlanColumn) -> bool:
        """Return whether a column comes out of it."""

    @abstractmethod
    def vector(self, key: Key, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's cells after joins did what the messages tell; None where nothing is known."""

    def possible_keys(self, key: Key) -> Floats | None:
        """Return how many different keys there may be in each cell of a key; None where nothing is known."""
        key_vector = self.vector(key)
        return key_vector.domain if key_vector is not None else None

    def key_rows(self, key: Key, messages: Sequence[Message] = ()) -> KeyRows | None:
        """Return its rows that were sampled by a key, after joins did what the messages tell; None without such."""
        return None

    @abstractmethod
    def ndv(self, column: PlanColumn) -> float | None:
        """Return the different values of a column, at most as many as rows; None where nothing is known."""

    @abstractmethod
    def domain(self, column: PlanColumn) -> float | None:
        """Return the different values before filters on other columns and joins; None where nothing is known."""

    @abstractmethod
    def present(self, column: PlanColumn) -> float:
        """Return the share of rows, 0..1, whose column is not NULL before filters and joins; 1 where nobody knows."""

    @abstractmethod
    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return how many different combinations of columns there may be, before filters."""

    @abstractmethod
    def distinct(self, columns: Sequence[PlanColumn], messages: Sequence[Message] = ()) -> float | None:
        """Return how many different combinations of columns are expected, NULL as a value; None where nobody knows."""

    @abstractmethod
    def base(self, column: PlanColumn) -> Scanned | None:
        """Return the rows that a column was read from, behind the filters of its scan."""

    def bases(self, columns: Sequence[PlanColumn]) -> list[tuple[Scanned, tuple[PlanColumn, ...]]] | None:
        """Return each table that columns were read from together, with its columns; None if they come from several."""
        bases = {self.base(column) for column in columns}
        base = bases.pop() if len(bases) == 1 else None
        return [(base, tuple(columns))] if base is not None else None

    def allowed(self, column: PlanColumn) -> Domain | None:
        """Return what filters leave of a column, if that is a domain."""
        return None

    def within(self, column: PlanColumn, domain: Domain | None) -> Relation:
        """Return the rows whose column lies in a domain, because what they are joined with does; itself if unknown.

        domain: None for any value but NULL.
        """
        return self

    def nulls(self, column: PlanColumn) -> float:
        """Return the share of rows, 0..1, whose column is NULL."""
        return 1.0 - self.present(column)

    def sampled(self, column: PlanColumn, key: tuple[str, ...] = ()) -> tuple[Scanned, Floats] | None:
        """Return the sampled rows that a column was read from, with the weight that each has among these rows.

        key: columns of the same table; then the rows that were chosen by them as a key.
        """
        return None

    def without(self, other: Relation) -> Relation:
        """Return the rows before they were limited to those that meet another relation, with which they are joined."""
        return self

    def is_made_of(self, other: Relation) -> bool:
        """Return whether its rows are keys of another relation."""
        return self is other

    @property
    def is_read(self) -> bool:
        """True if its rows are those of tables and nothing else, so that keys were counted on them."""
        return False

    @property
    def is_marking(self) -> bool:
        """Tell whether it tells which rows met another one, and drops none."""
        return False

    def chosen(self, kind: JoinType, count: int = 1) -> Relation:
        """Return the rows that met another one (SEMI), or none (ANTI), by the last so many joins that mark them."""
        return self

    @property
    def marked(self) -> tuple[float, ...]:
        """Return the shares of rows that met another one, of each mark join that told which, the last one first."""
        return ()

    def counts_combinations(self, columns: Sequence[PlanColumn]) -> bool:
        """Return whether combinations were seen on a sample; without one they are as many as there may be."""
        return False

    def effective_rows(self, messages: Sequence[Message]) -> float:
        """Return how many sampled rows stand behind ``total``; infinite where nothing was sampled in part."""
        return math.inf

    @property
    def name(self) -> tuple[str, int]:
        """Return what tells it from others that are joined: the table that is read, and the number of the scan."""
        return "", 0

    @property
    def max_effective_rows(self) -> float:
        """Return the most that ``effective_rows`` may be, whatever the messages are."""
        return math.inf

    def total(self, messages: Sequence[Message]) -> tuple[float, float]:
        """Return rows and their upper bound after joins did what the messages tell."""
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
    """The rows of a table that a scan's filters leave. filtered: what these are, and how much they leave."""

    statistics: TableStatistics
    filtered: Filtered

    @property
    def is_read(self) -> bool:
        """True if its rows are those of tables and nothing else."""
        return True

    @abstractmethod
    def behind(self, predicates: Sequence[str]) -> Scanned:
        """Return the rows that further filters (SQL texts) leave."""

    @abstractmethod
    def moments(self, expression: str) -> tuple[float, float] | None:
        """Return mean and standard deviation of an expression (SQL text) on the sampled rows that are kept."""

    @abstractmethod
    def ranked(
        self, by: Sequence[str], order: Sequence[tuple[str, bool]], mask: Bools, most: float, *, dense: bool
    ) -> float | None:
        """Return the share of rows whose rank within their partition is at most so large, as the sample tells.

        by: expressions (SQL texts) of the partition. order: expressions, each with whether it falls. mask: sampled rows
        that count. dense: whether equal rows count once.
        """
