"""Union of relations, without removal of duplicates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from selector.cardinality.join_messages import (
    Key,
    KeyVector,
    Message,
    added,
)
from selector.cardinality.keys.classes import origin
from selector.cardinality.predicates.domains import Domain
from selector.cardinality.relation import Relation, Scanned
from selector.estimate import bounded_rows
from selector.plan import PlanColumn


class Union(Relation):
    """Rows of several relations; a column of the first one stands for those at its position in the others."""

    def __init__(self, parts: Sequence[Relation], columns: Sequence[Sequence[PlanColumn]]) -> None:
        """Unite relations. columns: of each relation, in order."""
        self._parts = tuple(parts)
        self._places = {origin(column): place for place, column in reversed(list(enumerate(columns[0])))}
        self._columns = columns
        self._messages: dict[tuple[int, int], tuple[Message, Message]] = {}
        self.rows = bounded_rows(sum(part.rows for part in parts))
        self.upper = bounded_rows(sum(part.upper for part in parts))

    def in_branch(self, number: int, column: PlanColumn) -> PlanColumn | None:
        """Return the column of one relation that a column of the union stands for; None without one."""
        return next(iter(self._of(self._parts[number], column)), None)

    @property
    def branches(self) -> list[tuple[Relation, Sequence[PlanColumn]]]:
        """Return the relations with their columns, in order."""
        return list(zip(self._parts, self._columns, strict=True))

    def holds(self, column: PlanColumn) -> bool:
        """Return whether every relation has the column."""
        return len(self._alike(column)) == len(self._parts)

    def vector(self, key: Key, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's cells; None if a relation has none."""
        total: KeyVector | None = None
        for part in self._parts:
            own_key = self._key_of(part, key)
            translated = [self._message_of(part, message) for message in messages]
            own_messages = [message for message in translated if message is not None]
            if own_key is None or len(own_messages) < len(messages):
                return None
            spread = part.vector(own_key, own_messages)
            if spread is None:
                return None
            total = spread if total is None else added(total, spread)
        return total

    def total(self, messages: Sequence[Message]) -> tuple[float, float]:
        """Return rows and their upper bound, after the joins that sent the messages."""
        rows = upper = 0.0
        for part in self._parts:
            translated = [self._message_of(part, message) for message in messages]
            own_messages = [message for message in translated if message is not None]
            if len(own_messages) < len(messages):
                return super().total(messages)
            own_rows, own_upper = part.total(own_messages)
            rows, upper = rows + own_rows, upper + own_upper
        return rows, upper

    def _message_of(self, part: Relation, message: Message) -> Message | None:
        """Return a message with the key of one relation; None if it lacks the columns."""
        own = self._key_of(part, message.key)
        if own is None:
            return None
        cache_key = id(part), id(message)
        if cache_key not in self._messages:
            self._messages[cache_key] = message, message.of(own)
        return self._messages[cache_key][1]

    def _key_of(self, part: Relation, key: Key) -> Key | None:
        columns = [mine for column in key.columns for mine in self._of(part, column)]
        return Key(tuple(columns), key.cells) if len(columns) == len(key.columns) else None

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the NDV: expected distinct values if the relations draw independently from one domain."""
        return self._any(column, [part.ndv(own) for part, own in self._alike(column)])

    def domain(self, column: PlanColumn) -> float | None:
        """Return the NDV of a column before joins and filters on other columns."""
        part_domains = [part.domain(own) for part, own in self._alike(column)]
        known_domains = [domain for domain in part_domains if domain is not None]
        return max(known_domains) if known_domains and len(known_domains) == len(self._parts) else None

    def present(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is not NULL."""
        present_rows = sum(part.rows * part.present(own) for part, own in self._alike(column))
        return present_rows / self.rows if self.rows > 0.0 else 1.0

    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return the number of combinations of columns that are possible."""
        return max(1.0, self.rows)

    def distinct(self, columns: Sequence[PlanColumn], messages: Sequence[Message] = ()) -> float | None:
        """Return the number of combinations: the sum over the relations, as if none was in several of them."""
        if len(columns) == 1 and not messages:
            return self.ndv(columns[0])
        total = 0.0
        for part in self._parts:
            own = [mine for column in columns for mine in self._of(part, column)]
            part_distinct = part.distinct(own) if len(own) == len(columns) else None
            if part_distinct is None:
                return None
            total += part_distinct
        return max(1.0, min(total, self.rows))

    def base(self, column: PlanColumn) -> Scanned | None:
        """Return None: the rows come from several scans."""
        return None

    def bases(self, columns: Sequence[PlanColumn]) -> list[tuple[Scanned, tuple[PlanColumn, ...]]] | None:
        """Return each scan that has all the columns, with their names there."""
        bases: list[tuple[Scanned, tuple[PlanColumn, ...]]] = []
        for part in self._parts:
            own = [mine for column in columns for mine in self._of(part, column)]
            part_bases = part.bases(own) if len(own) == len(columns) else None
            if part_bases is None:
                return None
            bases += part_bases
        return bases

    def allowed(self, column: PlanColumn) -> Domain | None:
        """Return the union of the relations' domains of a column; None if one has none."""
        part_domains = [part.allowed(own) for part, own in self._alike(column)]
        known_domains = [domain for domain in part_domains if domain is not None]
        if len(known_domains) < len(self._parts) or len({domain.text for domain in known_domains}) > 1:
            return None
        return reduce(Domain.__or__, known_domains)

    def within(self, column: PlanColumn, domain: Domain | None) -> Relation:
        """Return the rows whose column lies in a domain, or is not NULL."""
        if not self.holds(column):
            return self
        parts = [part.within(own, self._narrower(part.allowed(own), domain)) for part, own in self._alike(column)]
        if all(limited is part for limited, part in zip(parts, self._parts, strict=True)):
            return self
        return Union(parts, self._columns)

    @staticmethod
    def _narrower(part_domain: Domain | None, domain: Domain | None) -> Domain | None:
        if part_domain is None or domain is None or part_domain.text is not domain.text:
            return domain
        return part_domain & domain

    def _alike(self, column: PlanColumn) -> list[tuple[Relation, PlanColumn]]:
        return [(part, own) for part in self._parts for own in self._of(part, column)]

    def _of(self, part: Relation, column: PlanColumn) -> list[PlanColumn]:
        place = self._places.get(origin(column))
        columns = self._columns[self._parts.index(part)]
        if place is None or place >= len(columns) or not part.holds(columns[place]):
            return []
        return [columns[place]]

    def _any(self, column: PlanColumn, part_ndvs: Sequence[float | None]) -> float | None:
        ndvs = [ndv for ndv in part_ndvs if ndv is not None]
        if not ndvs or len(ndvs) < len(self._parts):
            return None
        domain = max(self.domain(column) or sum(ndvs), *ndvs)
        return max(1.0, min(self.rows, domain * (1.0 - math.prod(1.0 - ndv / domain for ndv in ndvs))))
