"""Joins that keep rows without a match, or only tell which rows have one: outer, semi, anti, mark and single joins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from selector.cardinality.groups import independent
from selector.cardinality.inner_joins import InnerJoins
from selector.cardinality.join_messages import LEAST, Floats, Key, KeyVector, Message
from selector.cardinality.keys.classes import KeyClasses, origin
from selector.cardinality.matching import Pairs, has_cells, met
from selector.cardinality.predicates.domains import Domain
from selector.cardinality.relation import Relation, Scanned
from selector.estimate import bounded_rows
from selector.plan import JoinType, PlanColumn

LEFT_KEPT = (JoinType.LEFT, JoinType.FULL)
RIGHT_KEPT = (JoinType.RIGHT, JoinType.FULL)
RIGHT_ONLY = (JoinType.RIGHT_SEMI, JoinType.RIGHT_ANTI)
BOTH_LIMITED = (JoinType.SEMI, JoinType.RIGHT_SEMI)
ANTI = (JoinType.ANTI, JoinType.RIGHT_ANTI)
LIMITED = (*BOTH_LIMITED, *ANTI)


class OuterJoin(Relation):
    """Two relations joined by equality of keys: (column of the left one, column of the right one)."""

    def __init__(
        self, lhs: Relation, rhs: Relation, pairs: Pairs, kind: JoinType, classes: KeyClasses, *, share: float = 1.0
    ) -> None:
        """Join. share: of the pairs that further conditions leave."""
        self._left, self._right = _limited(lhs, rhs, pairs, kind)
        self._pairs = tuple(pairs)
        self._kind = kind
        self._classes = classes
        self._share = share
        self._sent: dict[tuple[bool, tuple[int, ...]], tuple[Sequence[Message], Message]] = {}
        to_left = kind not in RIGHT_ONLY
        self._by_side: dict[bool, float] = {}
        self._alone: dict[bool, float] = {}
        self._scales: dict[bool, float] = {}
        self.rows = bounded_rows(self._added_up())
        _, upper = (self._left if to_left else self._right).total([self._message(to_left=to_left)])
        self.upper = max(self.rows, bounded_rows(upper + (self._right.upper if kind in RIGHT_KEPT else 0.0)))

    def _added_up(self) -> float:
        """Return its rows so that kinds of joins add up: LEFT is INNER and ANTI, SEMI and ANTI are the left side.

        Notes how many of them have a row of the left side, and of the right side, and how many have that alone.
        """
        kind = self._kind
        if kind in (JoinType.MARK, JoinType.SINGLE):
            self._by_side[True] = self._left.rows
            return self._left.rows
        inner = InnerJoins.of(self._left, self._right, self._pairs, self._classes, share=self._share).rows
        if kind in LIMITED:
            to_left = kind not in RIGHT_ONLY
            met, alone = self._divided(inner, to_left=to_left)
            self._by_side[to_left] = alone if kind in ANTI else met
            return self._by_side[to_left]
        for to_left, kinds in ((True, LEFT_KEPT), (False, RIGHT_KEPT)):
            met, self._alone[to_left] = self._divided(inner, to_left=to_left) if kind in kinds else (0.0, 0.0)
            inner = max(inner, met)
        self._by_side |= {to_left: inner + alone for to_left, alone in self._alone.items()}
        return inner + sum(self._alone.values())

    def _scale(self, *, to_left: bool) -> float:
        """Return by what the rows of a side must be multiplied, as messages tell of them, to add up."""
        wanted = self._by_side.get(to_left)
        if wanted is None:
            return 1.0
        if to_left not in self._scales:
            estimated = (self._left if to_left else self._right).total([self._message(to_left=to_left)])[0]
            self._scales[to_left] = wanted / estimated if estimated > 0.0 else 1.0
        return self._scales[to_left]

    def _divided(self, inner: float, *, to_left: bool) -> tuple[float, float]:
        """Return how many rows of a side meet another one, and how many meet none; the fewer are looked for.

        inner: pairs, which are at least as many as rows that meet another one.
        """
        side = self._left if to_left else self._right
        matched = self._met(to_left, ())
        matching = self._matching(matched)
        met, alone = (
            side.total([replace(matched, factor=part, match_share=part, upper=np.ones_like(part), null=null)])[0]
            for part, null in ((matching, 0.0), (np.clip(1.0 - matching, 0.0, 1.0), 1.0))
        )
        met = min(met, inner, side.rows) if met <= alone else max(0.0, side.rows - alone)
        return met, side.rows - met

    @property
    def by_bins(self) -> bool:
        """Tell whether it is answered cell by cell."""
        return has_cells(self._left, self._right, self._pairs, self._classes)

    @property
    def is_read(self) -> bool:
        """True if its rows are those of tables and nothing else."""
        return self._left.is_read and self._right.is_read

    def holds(self, column: PlanColumn) -> bool:
        """Return whether a column comes out of it."""
        return self._left.holds(column) or self._right.holds(column)

    def vector(self, key: Key, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's cells; messages for the other side's columns go through this join."""
        to_left = self._left.holds(key.columns[0])
        side, other = (self._left, self._right) if to_left else (self._right, self._left)
        if not side.holds(key.columns[0]):
            return None
        to_other = [message for message in messages if message.key.columns and other.holds(message.key.columns[0])]
        to_side = [message for message in messages if message not in to_other]
        key_vector = side.vector(key, [*to_side, self._message(to_left=to_left, beyond=to_other)])
        return (
            replace(key_vector, rows=key_vector.rows * self._scale(to_left=to_left)) if key_vector is not None else None
        )

    def possible_keys(self, key: Key) -> Floats | None:
        """Return how many different keys there may be in each cell of a key."""
        side = self._left if self._left.holds(key.columns[0]) else self._right
        return side.possible_keys(key) if side.holds(key.columns[0]) else None

    def total(self, messages: Sequence[Message]) -> tuple[float, float]:
        """Return rows and their upper bound after joins did what the messages tell."""
        to_left = self._kind not in RIGHT_ONLY
        side, other = (self._left, self._right) if to_left else (self._right, self._left)
        if not messages or self._kind in RIGHT_KEPT:
            return (self.rows, self.upper) if not messages else super().total(messages)
        to_other = [
            m for m in messages if m.key.columns and not side.holds(m.key.columns[0]) and other.holds(m.key.columns[0])
        ]
        to_side = [message for message in messages if message not in to_other]
        rows, upper = side.total([*to_side, self._message(to_left=to_left, beyond=to_other)])
        rows *= self._scale(to_left=to_left)
        return rows, max(upper, rows)

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the different values that are left."""
        return self.distinct([column])

    def domain(self, column: PlanColumn) -> float | None:
        """Return the different values before other filters and joins."""
        return (self._left if self._left.holds(column) else self._right).domain(column)

    def present(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is not NULL before joins."""
        return (self._left if self._left.holds(column) else self._right).present(column)

    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return how many different combinations of columns there may be, before filters."""
        lhs_columns = [column for column in columns if self._left.holds(column)]
        rhs_columns = [column for column in columns if not self._left.holds(column)]
        product = (self._left.combinations(lhs_columns) if lhs_columns else 1.0) * (
            self._right.combinations(rhs_columns) if rhs_columns else 1.0
        )
        return max(1.0, product)

    def distinct(self, columns: Sequence[PlanColumn], messages: Sequence[Message] = ()) -> float | None:
        """Return how many combinations are left: of each side those of rows that meet any, and all pairs."""
        counts = []
        for to_left, side in ((True, self._left), (False, self._right)):
            own = [column for column in columns if self._left.holds(column) is to_left]
            if own:
                to_other = [m for m in messages if m.key.columns and not side.holds(m.key.columns[0])]
                to_side = [message for message in messages if message not in to_other]
                count = side.distinct(own, [*to_side, self._message(to_left=to_left, beyond=to_other)])
                if count is None:
                    return None
                counts.append(count)
        if not counts:
            return None
        rows = max(1.0, self.total(messages)[0] if messages else self.rows)
        return max(1.0, min(independent(counts, rows) if len(counts) > 1 else counts[0], rows))

    def base(self, column: PlanColumn) -> Scanned | None:
        """Return the rows that a column was read from."""
        return self._left.base(column) or self._right.base(column)

    def bases(self, columns: Sequence[PlanColumn]) -> list[tuple[Scanned, tuple[PlanColumn, ...]]] | None:
        """Return each table that columns were read from together."""
        for side in (self._left, self._right):
            if all(side.holds(column) for column in columns):
                return side.bases(columns)
        return None

    def allowed(self, column: PlanColumn) -> Domain | None:
        """Return what filters leave of a column of the side of which no row is added."""
        return self._left.allowed(column) if self._left.holds(column) and self._kind not in RIGHT_KEPT else None

    def within(self, column: PlanColumn, domain: Domain | None) -> Relation:
        """Return the joined rows whose column lies in a domain, or is not NULL."""
        if not self._left.holds(column) or self._kind in (*RIGHT_KEPT, *RIGHT_ONLY):
            return self
        limited = self._left.within(column, domain)
        if limited is self._left:
            return self
        return OuterJoin(limited, self._right, self._pairs, self._kind, self._classes, share=self._share)

    @property
    def marked(self) -> tuple[float, ...]:
        """Return the shares of rows that met another one."""
        below = (*self._left.marked, *self._right.marked)
        if self._kind is not JoinType.MARK:
            return below
        matched = OuterJoin(self._left, self._right, self._pairs, JoinType.SEMI, self._classes, share=self._share)
        return (min(1.0, matched.rows / self.rows) if self.rows > 0.0 else 0.0, *below)

    @property
    def is_marking(self) -> bool:
        """Tell whether it tells which rows met another one, and drops none."""
        return self._kind is JoinType.MARK

    def counts_combinations(self, columns: Sequence[PlanColumn]) -> bool:
        """Return whether combinations were seen on a sample on both sides."""
        sides = (
            (side, [column for column in columns if self._left.holds(column) is is_left])
            for is_left, side in ((True, self._left), (False, self._right))
        )
        return all(side.counts_combinations(own) for side, own in sides if own)

    def chosen(self, kind: JoinType, count: int = 1) -> Relation:
        """Return the same join of another kind."""
        lhs = self._left.chosen(kind, count - 1) if count > 1 else self._left
        return OuterJoin(lhs, self._right, self._pairs, kind, self._classes, share=self._share)

    def without(self, other: Relation) -> Relation:
        """Return the rows before they were limited to those that meet another relation, with which they are joined."""
        if self._kind is JoinType.RIGHT_SEMI and self._left.is_made_of(other):
            return self._right.without(other)
        if self._kind is JoinType.SEMI and self._right.is_made_of(other):
            return self._left.without(other)
        return self

    def nulls(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is NULL: of the side of which rows are missing, where they are."""
        if self.rows <= 0.0:
            return 0.0
        on_left = self._left.holds(column)
        side, alone = self._left if on_left else self._right, min(self._alone.get(not on_left, 0.0), self.rows)
        if any(origin(column) in (origin(a), origin(b)) for a, b in self._pairs):  # a row without a key meets none
            lost = (*BOTH_LIMITED, JoinType.RIGHT if on_left else JoinType.LEFT)
            return min(1.0, (alone + (self._kind not in lost) * side.rows * side.nulls(column)) / self.rows)
        return min(1.0, (alone + (self.rows - alone) * side.nulls(column)) / self.rows)

    def sampled(self, column: PlanColumn, key: tuple[str, ...] = ()) -> tuple[Scanned, Floats] | None:
        """Return the sampled rows that a column was read from, as if the join kept all alike."""
        return (self._left if self._left.holds(column) else self._right).sampled(column, key)

    def _message(self, *, to_left: bool, beyond: Sequence[Message] = ()) -> Message:
        """Return what the join does to one side. beyond: what other joins did to the other side."""
        cache_key = (to_left, tuple(map(id, beyond)))  # a message lives as long as what it led to
        if cache_key not in self._sent:
            self._sent[cache_key] = tuple(beyond), self._by_kind(self._met(to_left, beyond), beyond, to_left=to_left)
        return self._sent[cache_key][1]

    def _met(self, to_left: bool, beyond: Sequence[Message]) -> Message:
        """Return what an inner join does to one side."""
        side, other = (self._left, self._right) if to_left else (self._right, self._left)
        pairs = self._pairs if to_left else tuple((b, a) for a, b in self._pairs)
        inner = met(side, other, pairs, self._classes, beyond)
        return Message(
            inner.key, inner.factor * self._share, *inner.later, null=inner.null, effective_rows=inner.effective_rows
        )

    def _matching(self, matched: Message) -> Floats:
        """Return the share of each cell's keys that meet a row for which further conditions hold, too."""
        matched_rows = np.maximum(  # rows that one meets
            1.0, matched.factor / np.maximum(matched.match_share * max(self._share, LEAST), LEAST)
        )
        matching: Floats = matched.match_share * (1.0 - np.power(1.0 - min(1.0, self._share), matched_rows))
        return matching

    def _by_kind(self, matched: Message, beyond: Sequence[Message], *, to_left: bool) -> Message:
        """Turn what an inner join does to one side into what this kind of join does.

        A row that meets none has NULLs for the other side: what joins beyond do to NULL they do to it.
        """
        kind, ones = self._kind, np.ones_like(matched.match_share)
        matching = self._matching(matched)
        if kind in (JoinType.SEMI, JoinType.RIGHT_SEMI):
            return replace(matched, factor=matching, match_share=matching, upper=ones)
        if kind in (JoinType.ANTI, JoinType.RIGHT_ANTI):
            unmatched = np.clip(1.0 - matching, 0.0, 1.0)
            return replace(matched, factor=unmatched, match_share=unmatched, upper=ones, null=1.0)
        if kind in (JoinType.MARK, JoinType.SINGLE):
            return replace(matched, factor=ones, match_share=ones, upper=ones, null=1.0)
        if kind in (LEFT_KEPT if to_left else RIGHT_KEPT):
            null = math.prod(message.null for message in beyond)
            alone = np.clip(1.0 - (self._matching(self._met(to_left, ())) if beyond else matching), 0.0, 1.0) * null
            match_share = np.minimum(1.0, matching + np.minimum(alone, 1.0)) if beyond else ones
            upper = np.maximum(matched.upper, null)
            return replace(matched, factor=matched.factor + alone, match_share=match_share, upper=upper, null=null)
        return matched


def _limited(lhs: Relation, rhs: Relation, pairs: Pairs, kind: JoinType) -> tuple[Relation, Relation]:
    """Let what is said about the keys of the rows that stay hold for those that are only looked up, and vice versa."""
    for a, b in pairs:
        lhs_domain, rhs_domain = lhs.allowed(a), rhs.allowed(b)
        if lhs_domain is not None and rhs_domain is not None and lhs_domain.text is not rhs_domain.text:
            continue
        if lhs_domain is not None and kind not in (*RIGHT_KEPT, JoinType.RIGHT_ANTI):
            rhs = rhs.within(b, lhs_domain if rhs_domain is None else lhs_domain & rhs_domain)
        if rhs_domain is not None and (kind in BOTH_LIMITED or kind in (JoinType.RIGHT, JoinType.RIGHT_ANTI)):
            lhs = lhs.within(a, rhs_domain if lhs_domain is None else lhs_domain & rhs_domain)
    return lhs, rhs
