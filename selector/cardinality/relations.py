"""What comes out of a node as a join sees it: how its rows are spread over the bins of a key.

A join multiplies per bin: with n rows of d different keys on one side and n', d' on the other, n n' / max(d, d') rows
meet, as if the fewer keys were among the more (FactorJoin's expected-value form; Wu et al., SIGMOD 2023). The most
rows of one key give the bound n' max as well. Here are rows as they are read and joined; ``derived`` has what is made
of them by groupings, unions and limits.

It is long because every kind of input of a join answers the same questions, each in its own way.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from selector.cardinality.groups import FEWEST_ROWS, codes_of, codes_together, independent, promised, skew
from selector.cardinality.join_messages import (
    LEAST,
    Floats,
    KeyVector,
    Message,
    applied,
    carried,
    expected_distinct,
    filtered,
    same_bins,
    weighted_mean,
)
from selector.cardinality.predicates.conditions import columns_in
from selector.cardinality.predicates.domain_selectivity import share as share_of
from selector.cardinality.predicates.evaluate import values_of
from selector.cardinality.predicates.selectivity import filter_of
from selector.estimate import bounded_rows
from selector.join_keys import Bins, KeyStatistics
from selector.plan import JoinType, PlanColumn
from selector.statistics import TableStatistics

LEFT_KEPT = (JoinType.LEFT, JoinType.FULL)
RIGHT_KEPT = (JoinType.RIGHT, JoinType.FULL)


class Relation(ABC):
    """Rows that a join can take. rows, upper: expected number and upper bound."""

    rows: float
    upper: float

    @abstractmethod
    def holds(self, column: PlanColumn) -> bool:
        """Return whether a column comes out of it."""

    @abstractmethod
    def vector(self, column: PlanColumn, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's bins after joins did what the messages tell; None where nothing is known."""

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
    def distinct(self, columns: Sequence[PlanColumn]) -> float | None:
        """Return how many different combinations of columns are expected, NULL as a value; None where nobody knows."""

    @abstractmethod
    def base(self, column: PlanColumn) -> Base | None:
        """Return the rows that a column was read from, behind the filters of its scan."""

    @property
    def marked(self) -> tuple[float, ...]:
        """Return the shares of rows that met another one, of each mark join that told which, the last one first."""
        return ()

    def counts_combinations(self, columns: Sequence[PlanColumn]) -> bool:
        """Return whether combinations were seen on a sample; without one they are as many as there may be."""
        return False

    def total(self, messages: Sequence[Message]) -> tuple[float, float]:
        """Return rows and their upper bound after joins did what the messages tell."""
        for message in messages:
            if message.bins is None:
                continue
            spread = self.vector(message.column, messages)
            if spread is None:
                continue
            without = self.vector(message.column)
            nulls = max(0.0, self.rows - float(without.rows.sum())) * message.null if without is not None else 0.0
            return float(spread.rows.sum()) + nulls, float(spread.upper.sum()) + nulls
        rows, upper = self.rows, self.upper
        for message in messages:
            rows, upper = rows * float(message.factor.mean()), upper * float(message.upper.max(initial=0.0))
        return rows, upper


class Base(Relation):
    """The rows of a table that a scan's filters leave."""

    def __init__(
        self, statistics: TableStatistics, predicates: Sequence[str], scan: int | None, *, dialect: str
    ) -> None:
        self._statistics = statistics
        self._predicates = tuple(predicates)
        self._dialect = dialect
        self._scan = scan
        self.filtered = filtered = filter_of(self._predicates, statistics, dialect=dialect)
        self._vectors: dict[tuple[str, tuple[int, ...]], tuple[Sequence[Message], KeyVector]] = {}
        self._carried: dict[tuple[str, int], tuple[Message, tuple[Floats, Floats, Floats]]] = {}
        self._kept: dict[str, Floats] = {}
        self.rows = statistics.rows * filtered.share
        self.upper = self.rows

    def behind(self, predicates: Sequence[str]) -> Base:
        """Return the rows that further filters leave."""
        return Base(self._statistics, (*self._predicates, *predicates), self._scan, dialect=self._dialect)

    def holds(self, column: PlanColumn) -> bool:
        """Return whether a column comes out of it."""
        return column.table == self._statistics.table and column.scan == self._scan

    def vector(self, column: PlanColumn, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's bins."""
        key = self._statistics.keys.get(column.name)
        if key is None:
            return None
        asked = (column.name, tuple(map(id, messages)))  # a message lives as long as what it led to
        if asked not in self._vectors:
            if messages:
                before = self.vector(column, messages[:-1])
                assert before is not None
                found = self._after(before, column.name, key, messages[-1])
            else:
                found = filtered(key, self._given(column.name))
            self._vectors[asked] = tuple(messages), found
        return self._vectors[asked][1]

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the different values that the filters leave."""
        known = self._statistics.columns.get(column.name)
        if not self.holds(column):
            return None
        if known is None:
            return self._groups((column.name,), filtered=True)
        spread = self.vector(column)
        if spread is not None:
            return max(1.0, float(spread.ndv.sum()))
        left = float(expected_distinct(known.ndv, float(self._statistics.rows), self.filtered.share))
        return max(1.0, min(left, self.domain(column) or left))

    def domain(self, column: PlanColumn) -> float | None:
        """Return the different values that filters on the column itself leave."""
        known = self._statistics.columns.get(column.name)
        if known is None or not self.holds(column):
            return None
        domain = self.filtered.domains.get(column.name)
        kept = share_of(domain, known, self._statistics.rows) if domain is not None else None
        return max(1.0, known.ndv * (kept.share if kept is not None else 1.0))

    def present(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is not NULL."""
        known = self._statistics.columns.get(column.name)
        return 1.0 - known.nulls / self._statistics.rows if known is not None and self._statistics.rows else 1.0

    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return how many different combinations of columns there may be, before filters."""
        found = self._groups(tuple(dict.fromkeys(column.name for column in columns)), filtered=False)
        return max(1.0, float(self._statistics.rows) if found is None else found)

    def distinct(self, columns: Sequence[PlanColumn]) -> float | None:
        """Return how many different combinations of columns the filters leave."""
        return self._groups(tuple(dict.fromkeys(column.name for column in columns)), filtered=True)

    def counts_combinations(self, columns: Sequence[PlanColumn]) -> bool:
        """Return whether there is a sample."""
        return self._statistics.sample is not None

    def base(self, column: PlanColumn) -> Base | None:
        """Return itself for its columns."""
        return self if self.holds(column) else None

    def moments(self, expression: str) -> tuple[float, float] | None:
        """Return mean and standard deviation of an expression (SQL text) on the sampled rows that are kept."""
        sample = self._statistics.sample
        found = values_of(expression, sample, dict(self._types), dialect=self._dialect) if sample is not None else None
        if sample is None or found is None or not found.kind.is_number:
            return None
        mask = self.filtered.sampled()
        there = np.logical_not(np.broadcast_to(found.nulls, (sample.rows,)))
        values = np.broadcast_to(np.asarray(found.values, dtype=np.float64), (sample.rows,))
        kept = values[there & mask] if mask is not None and np.any(there & mask) else values[there]
        return (float(kept.mean()), float(kept.std())) if kept.size else None

    @property
    def _types(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, column.data_type) for name, column in self._statistics.columns.items())

    def _groups(self, names: tuple[str, ...], *, filtered: bool) -> float | None:
        """Return how many groups the rows fall into by columns or expressions (SQL text) of them."""
        counts = [self._values(name, filtered=filtered) for name in names]
        known = [count for count in counts if count is not None]
        if len(known) < len(counts):
            return None
        rows = self.rows if filtered else float(self._statistics.rows)
        least, most = max(known, default=1.0), min(math.prod(known), max(1.0, rows))
        computed = any(name not in self._statistics.columns for name in names)
        if len(names) < 2 and not computed:
            return min(least, most)
        found = self._sampled_groups(names, known, filtered=filtered)
        if found is None and not filtered:
            found = most
        if found is None:  # one after the other counts less: columns of one table are rarely independent
            found = math.prod(math.pow(count, 0.5**place) for place, count in enumerate(sorted(known, reverse=True)))
        return min(max(found, 1.0 if computed else least), most)

    def _values(self, name: str, *, filtered: bool) -> float | None:
        """Return the values of a column, NULL among them, or the most that an expression may have."""
        known = self._statistics.columns.get(name)
        if known is not None:
            column = PlanColumn(name, known.data_type, self._statistics.table, self._scan)
            return (
                (self.ndv(column) or 1.0) + (known.nulls > 0) if filtered else max(1.0, known.ndv) + (known.nulls > 0)
            )
        used = columns_in(name, self._dialect)
        if used is None:
            return None
        counts = [self._values(one, filtered=filtered) if one in self._statistics.columns else None for one in used]
        found = [count for count in counts if count is not None]
        return math.prod(found) if len(found) == len(counts) else None

    def _sampled_groups(self, names: tuple[str, ...], counts: Sequence[float], *, filtered: bool) -> float | None:
        """Return the groups that the sample promises; None without one that tells."""
        statistics, sample = self._statistics, self._statistics.sample
        code = codes_together(names, sample, self._types, self._dialect) if sample is not None else None
        if sample is None or code is None or not sample.rows:
            return None
        whole = float(statistics.rows)
        mask = self.filtered.sampled() if filtered and self.filtered.share < 1.0 else None
        rows, seen = (self.rows, mask) if mask is not None and mask.sum() >= FEWEST_ROWS else (whole, None)
        found = promised(code, seen, rows, guess=independent(counts, rows))
        largest = max(
            statistics.columns.keys() & set(names), key=lambda name: statistics.columns[name].ndv, default=None
        )
        alone = codes_of(largest, sample, self._types, self._dialect) if largest is not None else None
        if alone is not None and largest is not None and sample.rows < statistics.rows:
            each = skew(alone, whole, statistics.columns[largest].ndv + (statistics.columns[largest].nulls > 0))
            found = rows * math.pow(min(1.0, found / rows), each)
        return (
            found if seen is not None or not filtered else float(expected_distinct(found, whole, self.filtered.share))
        )

    def _after(self, spread: KeyVector, name: str, key: KeyStatistics, message: Message) -> KeyVector:
        if message.bins is None:
            return applied(spread, message.factor, message.kept, message.upper)
        if message.column.name == name and same_bins(message.bins, key.bins):
            return applied(spread, message.factor, message.kept, message.upper)
        together = key.given.get(message.column.name)
        if together is None or not same_bins(together.buckets, message.bins):
            other = self.vector(message.column)
            weights = other.rows if other is not None else np.ones(message.factor.size)
            share = float(weights.sum()) / max(1e-9, self.rows) if other is not None else 1.0
            factor, kept, upper = (
                np.atleast_1d(weighted_mean(values, weights) * min(1.0, share) + message.null * max(0.0, 1.0 - share))
                for values in (message.factor, message.kept, message.upper)
            )
            return applied(spread, factor, kept, upper)
        asked = name, id(message)
        if asked not in self._carried:
            self._carried[asked] = message, carried(together, message, self._given(message.column.name))
        return applied(spread, *self._carried[asked][1])

    def _given(self, key: str) -> Floats:
        if key not in self._kept:
            self._kept[key] = self.filtered.given(key)
        return self._kept[key]


class Joined(Relation):
    """Two relations joined by equality of keys: (column of the left one, column of the right one)."""

    def __init__(
        self,
        left: Relation,
        right: Relation,
        keys: Sequence[tuple[PlanColumn, PlanColumn]],
        kind: JoinType,
        *,
        share: float = 1.0,
    ) -> None:
        """Join. share: of the pairs that further conditions leave."""
        self._left, self._right = left, right
        self._keys = tuple(keys)
        self._kind = kind
        self._share = share
        self._sent: dict[tuple[bool, tuple[int, ...]], tuple[Sequence[Message], Message]] = {}
        self._part: dict[bool, float] = {}
        to_left = kind not in (JoinType.RIGHT_SEMI, JoinType.RIGHT_ANTI)
        self.by_bins = self._message(to_left=to_left).bins is not None
        rows, upper = (left if to_left else right).total([self._message(to_left=to_left)])
        if kind in RIGHT_KEPT:
            alone, _ = right.total([self._unmatched(to_left=False)])
            rows, upper = rows + alone, upper + alone
        self.rows, self.upper = bounded_rows(rows), max(bounded_rows(rows), bounded_rows(upper))

    def holds(self, column: PlanColumn) -> bool:
        """Return whether a column comes out of it."""
        return self._left.holds(column) or self._right.holds(column)

    def vector(self, column: PlanColumn, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's bins; messages for the other side's columns go through this join."""
        to_left = self._left.holds(column)
        side, other = (self._left, self._right) if to_left else (self._right, self._left)
        if not to_left and not other.holds(column) and not side.holds(column):
            return None
        there = [message for message in messages if other.holds(message.column)]
        here = [message for message in messages if not other.holds(message.column)]
        return side.vector(column, [*here, self._message(to_left=to_left, beyond=there)])

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the different values that are left."""
        spread = self.vector(column)
        if spread is not None:
            return max(1.0, min(self.rows, float(spread.ndv.sum())))
        to_left = self._left.holds(column)
        side = self._left if to_left else self._right
        found = side.ndv(column)
        if found is None:
            return None
        return max(1.0, min(float(expected_distinct(found, side.rows, self._kept(to_left=to_left))), self.rows))

    def domain(self, column: PlanColumn) -> float | None:
        """Return the different values before other filters and joins."""
        return (self._left if self._left.holds(column) else self._right).domain(column)

    def present(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is not NULL before joins."""
        return (self._left if self._left.holds(column) else self._right).present(column)

    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return how many different combinations of columns there may be, before filters."""
        here = [column for column in columns if self._left.holds(column)]
        there = [column for column in columns if not self._left.holds(column)]
        product = (self._left.combinations(here) if here else 1.0) * (self._right.combinations(there) if there else 1.0)
        return max(1.0, product)

    def distinct(self, columns: Sequence[PlanColumn]) -> float | None:
        """Return how many different combinations are left; equal keys are taken from the side that says least."""
        found = [count for same in self._equal(columns) if (count := self._combined(same)) is not None]
        return min(found, default=None)

    def _equal(self, columns: Sequence[PlanColumn]) -> Iterator[Sequence[PlanColumn]]:
        """Yield the columns, and the same with an inner join's keys all taken from one side."""
        yield columns
        if self._kind is JoinType.INNER and len(columns) > 1:
            for pairs in (self._keys, tuple((right, left) for left, right in self._keys)):
                other = {_place(here): there for here, there in pairs}
                if any(_place(column) in other for column in columns):
                    yield tuple(dict.fromkeys(other.get(_place(column), column) for column in columns))

    def _combined(self, columns: Sequence[PlanColumn]) -> float | None:
        """Return how many combinations are left: of each side those of rows that meet any, and all pairs."""
        if len(columns) == 1:
            return self.ndv(columns[0])
        counts = []
        for to_left, side in ((True, self._left), (False, self._right)):
            own = [column for column in columns if self._left.holds(column) is to_left]
            if own:
                found = side.distinct(own)
                if found is None:
                    return None
                counts.append(float(expected_distinct(found, side.rows, self._kept(to_left=to_left))))
        return max(1.0, min(independent(counts, self.rows) if len(counts) > 1 else counts[0], self.rows))

    def base(self, column: PlanColumn) -> Base | None:
        """Return the rows that a column was read from."""
        return self._left.base(column) or self._right.base(column)

    @property
    def marked(self) -> tuple[float, ...]:
        """Return the shares of rows that met another one."""
        below = (*self._left.marked, *self._right.marked)
        if self._kind is not JoinType.MARK:
            return below
        met = self.chosen(JoinType.SEMI)
        return (min(1.0, met.rows / self.rows) if self.rows > 0.0 else 0.0, *below)

    @property
    def is_marking(self) -> bool:
        """Whether it tells which rows met another one, and drops none."""
        return self._kind is JoinType.MARK

    def counts_combinations(self, columns: Sequence[PlanColumn]) -> bool:
        """Return whether combinations were seen on a sample on both sides."""
        sides = (
            (side, [one for one in columns if self._left.holds(one) is left])
            for left, side in ((True, self._left), (False, self._right))
        )
        return all(side.counts_combinations(own) for side, own in sides if own)

    def chosen(self, kind: JoinType) -> Joined:
        """Return the same join of another kind."""
        return Joined(self._left, self._right, self._keys, kind, share=self._share)

    def _kept(self, *, to_left: bool) -> float:
        """Return the share of a side's rows that come out at least once."""
        if to_left not in self._part:
            side, message = (self._left if to_left else self._right), self._message(to_left=to_left)
            rows, _ = side.total([replace(message, factor=message.kept, upper=np.ones_like(message.kept))])
            self._part[to_left] = min(1.0, rows / side.rows) if side.rows > 0.0 else 1.0
        return self._part[to_left]

    def _message(self, *, to_left: bool, beyond: Sequence[Message] = ()) -> Message:
        """Return what the join does to one side. beyond: what other joins did to the other side."""
        asked = (to_left, tuple(map(id, beyond)))  # a message lives as long as what it led to
        if asked not in self._sent:
            self._sent[asked] = tuple(beyond), self._by_kind(self._met(to_left, beyond), to_left=to_left)
        return self._sent[asked][1]

    def _unmatched(self, *, to_left: bool) -> Message:
        """Return what is left of a side when all rows that meet another one are taken away."""
        met = self._met(to_left, ())
        alone = np.clip(1.0 - met.kept, 0.0, 1.0)
        return replace(met, factor=alone, kept=alone, upper=np.ones_like(alone), null=1.0)

    def _met(self, to_left: bool, beyond: Sequence[Message]) -> Message:
        """Return what an inner join does to one side."""
        here, there = (self._left, self._right) if to_left else (self._right, self._left)
        pairs = self._keys if to_left else tuple((b, a) for a, b in self._keys)
        column, other = pairs[0]
        mine, theirs = here.vector(column), there.vector(other, beyond)
        if mine is not None and theirs is not None and same_bins(mine.bins, theirs.bins):
            domain = np.maximum(np.maximum(mine.domain, theirs.domain), 1e-9)
            factor = theirs.rows / domain
            kept = np.minimum(1.0, theirs.ndv / domain)
            upper = np.minimum(theirs.largest, theirs.upper)
            bins: Bins | None = mine.bins
        else:
            rows, most_rows = there.total(beyond)
            my_domain, their_domain = here.domain(column), there.domain(other)
            if my_domain is None and their_domain is None:
                my_domain = their_domain = max(1.0, min(here.rows, rows))
            domain_size = max(my_domain or 1.0, their_domain or 1.0, 1.0)
            their_ndv = there.ndv(other)
            both = here.present(column) * there.present(other)
            factor = np.array([both * rows / domain_size])
            found = min(1.0, (their_ndv if their_ndv is not None else max(1.0, rows)) / domain_size)
            kept = np.array([found if both > 0.0 else 0.0])
            upper, bins = np.array([most_rows]), None
        if len(pairs) > 1:
            factor, kept = self._further(here, there, pairs, factor, kept)
        return Message(column, bins, factor * self._share, kept, upper)

    def _further(
        self,
        here: Relation,
        there: Relation,
        pairs: Sequence[tuple[PlanColumn, PlanColumn]],
        factor: Floats,
        kept: Floats,
    ) -> tuple[Floats, Floats]:
        """Take the keys behind the first one into account, as far as they make combinations more numerous.

        Of several keys together there are no more combinations than rows; with a unique combination on one side every
        row of the other meets one at most. Where both sides were sampled the fewer are among the more.
        """
        first = max(here.combinations([pairs[0][0]]), there.combinations([pairs[0][1]]))
        mine, theirs = [a for a, _ in pairs], [b for _, b in pairs]
        seen = here.counts_combinations(mine) and there.counts_combinations(theirs)
        both = (max if seen else min)(here.combinations(mine), there.combinations(theirs))
        narrower = min(1.0, first / max(first, both))
        return factor * narrower, np.minimum(kept, factor * narrower)

    def _by_kind(self, met: Message, *, to_left: bool) -> Message:
        """Turn what an inner join does to one side into what this kind of join does."""
        kind, ones = self._kind, np.ones_like(met.kept)
        each = np.maximum(
            1.0, met.factor / np.maximum(met.kept * max(self._share, LEAST), LEAST)
        )  # rows that one meets
        matching = met.kept * (1.0 - np.power(1.0 - min(1.0, self._share), each))
        if kind in (JoinType.SEMI, JoinType.RIGHT_SEMI):
            return replace(met, factor=matching, kept=matching, upper=ones)
        if kind in (JoinType.ANTI, JoinType.RIGHT_ANTI):
            left = np.clip(1.0 - matching, 0.0, 1.0)
            return replace(met, factor=left, kept=left, upper=ones, null=1.0)
        if kind in (JoinType.MARK, JoinType.SINGLE):
            return replace(met, factor=ones, kept=ones, upper=ones, null=1.0)
        if kind in (LEFT_KEPT if to_left else RIGHT_KEPT):
            with_alone = met.factor + np.clip(1.0 - met.kept, 0.0, 1.0)
            return replace(met, factor=with_alone, kept=ones, upper=np.maximum(met.upper, 1.0), null=1.0)
        return met


def _place(column: PlanColumn) -> tuple[str | None, str, int | None]:
    """Return where a column was read, whatever type a plan gives it."""
    return column.table, column.name, column.scan
