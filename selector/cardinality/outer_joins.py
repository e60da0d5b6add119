"""Outer, semi, anti, mark and single joins, whose rows are derived from the inner join of the same keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from selector.cardinality.groups import independent
from selector.cardinality.inner_joins import InnerJoins
from selector.cardinality.join_messages import LEAST, Floats, Key, KeyVector, Message
from selector.cardinality.keys.classes import KeyClasses, origin
from selector.cardinality.matching import Pairs, has_cells, join_message
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
    """Two relations joined by equality of keys, as any kind of join but INNER and CROSS."""

    def __init__(
        self, lhs: Relation, rhs: Relation, pairs: Pairs, kind: JoinType, classes: KeyClasses, *, share: float = 1.0
    ) -> None:
        """Join. pairs: (column of lhs, column of rhs). share: selectivity of further conditions, 0..1."""
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
        """Return the rows, consistent over kinds of joins: LEFT = INNER + ANTI, SEMI + ANTI = the left side.

        Sets ``_by_side`` and ``_alone``: the output rows with a row of each side, and those without a match.
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
        """Return the correction of a side's rows by messages, so that they add up to ``_by_side``."""
        target_rows = self._by_side.get(to_left)
        if target_rows is None:
            return 1.0
        if to_left not in self._scales:
            estimated = (self._left if to_left else self._right).total([self._message(to_left=to_left)])[0]
            self._scales[to_left] = target_rows / estimated if estimated > 0.0 else 1.0
        return self._scales[to_left]

    def _divided(self, inner: float, *, to_left: bool) -> tuple[float, float]:
        """Return the rows of a side with a match, and those without one; the fewer are estimated, the rest follows.

        inner: matching pairs, an upper bound of the rows with a match.
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
        """Tell whether it is estimated cell by cell."""
        return has_cells(self._left, self._right, self._pairs, self._classes)

    @property
    def is_read(self) -> bool:
        """Tell whether all its rows are rows of tables."""
        return self._left.is_read and self._right.is_read

    def holds(self, column: PlanColumn) -> bool:
        """Return whether the relation outputs a column."""
        return self._left.holds(column) or self._right.holds(column)

    def vector(self, key: Key, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's cells; messages for the other side's columns go through this join."""
        to_left = self._left.holds(key.columns[0])
        side, other = (self._left, self._right) if to_left else (self._right, self._left)
        if not side.holds(key.columns[0]):
            return None
        to_other = [message for message in messages if message.key.columns and other.holds(message.key.columns[0])]
        to_side = [message for message in messages if message not in to_other]
        spread = side.vector(key, [*to_side, self._message(to_left=to_left, beyond=to_other)])
        return replace(spread, rows=spread.rows * self._scale(to_left=to_left)) if spread is not None else None

    def possible_keys(self, key: Key) -> Floats | None:
        """Return the number of possible keys in each cell of a key."""
        side = self._left if self._left.holds(key.columns[0]) else self._right
        return side.possible_keys(key) if side.holds(key.columns[0]) else None

    def total(self, messages: Sequence[Message]) -> tuple[float, float]:
        """Return rows and their upper bound, after the joins that sent the messages."""
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
        """Return the NDV of a column behind the join."""
        return self.distinct([column])

    def domain(self, column: PlanColumn) -> float | None:
        """Return the NDV of a column before joins and filters on other columns."""
        return (self._left if self._left.holds(column) else self._right).domain(column)

    def present(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is not NULL before joins."""
        return (self._left if self._left.holds(column) else self._right).present(column)

    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return the number of combinations of columns that are possible, before filters."""
        lhs_columns = [column for column in columns if self._left.holds(column)]
        rhs_columns = [column for column in columns if not self._left.holds(column)]
        sides = ((self._left, lhs_columns), (self._right, rhs_columns))
        return max(1.0, math.prod(side.combinations(own) for side, own in sides if own))

    def distinct(self, columns: Sequence[PlanColumn], messages: Sequence[Message] = ()) -> float | None:
        """Return the number of combinations behind the join: those of each side's rows, combined independently."""
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
        """Return the filtered scan that a column was read from."""
        return self._left.base(column) or self._right.base(column)

    def bases(self, columns: Sequence[PlanColumn]) -> list[tuple[Scanned, tuple[PlanColumn, ...]]] | None:
        """Return each scan that has all the columns."""
        for side in (self._left, self._right):
            if all(side.holds(column) for column in columns):
                return side.bases(columns)
        return None

    def allowed(self, column: PlanColumn) -> Domain | None:
        """Return the domain of a column of the left side; None if unmatched rows of the right side are added."""
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
        """Return the share of rows with a match in each mark join."""
        below = (*self._left.marked, *self._right.marked)
        if self._kind is not JoinType.MARK:
            return below
        matched = OuterJoin(self._left, self._right, self._pairs, JoinType.SEMI, self._classes, share=self._share)
        return (min(1.0, matched.rows / self.rows) if self.rows > 0.0 else 0.0, *below)

    @property
    def is_marking(self) -> bool:
        """Tell whether it is a mark join."""
        return self._kind is JoinType.MARK

    def counts_combinations(self, columns: Sequence[PlanColumn]) -> bool:
        """Return whether the combinations come from a sample on both sides."""
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
        """Return the rows before a semi-join with another relation, if they are joined with it anyway."""
        if self._kind is JoinType.RIGHT_SEMI and self._left.is_made_of(other):
            return self._right.without(other)
        if self._kind is JoinType.SEMI and self._right.is_made_of(other):
            return self._left.without(other)
        return self

    def nulls(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is NULL, for unmatched rows of the other side included."""
        if self.rows <= 0.0:
            return 0.0
        on_left = self._left.holds(column)
        side, alone = self._left if on_left else self._right, min(self._alone.get(not on_left, 0.0), self.rows)
        if any(origin(column) in (origin(a), origin(b)) for a, b in self._pairs):  # a row without a key meets none
            lost = (*BOTH_LIMITED, JoinType.RIGHT if on_left else JoinType.LEFT)
            return min(1.0, (alone + (self._kind not in lost) * side.rows * side.nulls(column)) / self.rows)
        return min(1.0, (alone + (self.rows - alone) * side.nulls(column)) / self.rows)

    def sampled(self, column: PlanColumn, key: tuple[str, ...] = ()) -> tuple[Scanned, Floats] | None:
        """Return the scan that a column was read from, with the weights of its sampled rows before the join."""
        return (self._left if self._left.holds(column) else self._right).sampled(column, key)

    def _message(self, *, to_left: bool, beyond: Sequence[Message] = ()) -> Message:
        """Return the effect of the join on one side. beyond: messages to the other side."""
        cache_key = (to_left, tuple(map(id, beyond)))  # a message lives as long as what it led to
        if cache_key not in self._sent:
            self._sent[cache_key] = tuple(beyond), self._by_kind(self._met(to_left, beyond), beyond, to_left=to_left)
        return self._sent[cache_key][1]

    def _met(self, to_left: bool, beyond: Sequence[Message]) -> Message:
        """Return the effect of an inner join on one side."""
        side, other = (self._left, self._right) if to_left else (self._right, self._left)
        pairs = self._pairs if to_left else tuple((b, a) for a, b in self._pairs)
        inner = join_message(side, other, pairs, self._classes, beyond)
        factor, rows = inner.factor * self._share, inner.effective_rows
        return Message(inner.key, factor, *inner.later, null=inner.null, effective_rows=rows)

    def _matching(self, matched: Message) -> Floats:
        """Return the share of each cell's keys with a match that satisfies the further conditions."""
        matched_rows = np.maximum(  # matches of a row that has any
            1.0, matched.factor / np.maximum(matched.match_share * max(self._share, LEAST), LEAST)
        )
        matching: Floats = matched.match_share * (1.0 - np.power(1.0 - min(1.0, self._share), matched_rows))
        return matching

    def _by_kind(self, matched: Message, beyond: Sequence[Message], *, to_left: bool) -> Message:
        """Return the effect of this kind of join on one side, from that of the inner join.

        A row without a match has NULLs for the other side, so that messages from beyond apply their ``null`` to it.
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
    """Apply the keys' domains of the preserved side to the other side, and vice versa where the kind allows."""
    for a, b in pairs:
        lhs_domain, rhs_domain = lhs.allowed(a), rhs.allowed(b)
        if lhs_domain is not None and rhs_domain is not None and lhs_domain.text is not rhs_domain.text:
            continue
        if lhs_domain is not None and kind not in (*RIGHT_KEPT, JoinType.RIGHT_ANTI):
            rhs = rhs.within(b, lhs_domain if rhs_domain is None else lhs_domain & rhs_domain)
        if rhs_domain is not None and (kind in BOTH_LIMITED or kind in (JoinType.RIGHT, JoinType.RIGHT_ANTI)):
            lhs = lhs.within(a, rhs_domain if lhs_domain is None else lhs_domain & rhs_domain)
    return lhs, rhs
