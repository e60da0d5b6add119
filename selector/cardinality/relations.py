"""What comes out of a node as a join sees it: how its rows are spread over the bins of a key.

A join multiplies per bin: with n rows of d different keys on one side and n', d' on the other, n n' / max(d, d') rows
meet, as if the fewer keys were among the more (FactorJoin's expected-value form; Wu et al., SIGMOD 2023). The most
rows of one key give the bound n' max as well. What a join does to its left side is a ``Message``: by what factor the
rows of each bin grow, which part of them meets anything at all. A message reaches the side's other keys through the
counts of both keys together, so that a chain of joins is a product of small matrices and no row is ever looked at.

The file is long as scans, joins and groupings hand each other the same bins, and what they mean stands here once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from selector.cardinality.conditions import columns_in
from selector.cardinality.evaluate import values_of
from selector.cardinality.groups import FEWEST_ROWS, Sizes, codes_of, codes_together, independent, promised, skew
from selector.cardinality.predicates import filter_of
from selector.cardinality.shares import share as share_of
from selector.keys import Bins, ConditionalCounts, KeyStatistics, association
from selector.plan import JoinType, PlanColumn
from selector.statistics import TableStatistics

Floats = NDArray[np.float64]

LEAST = 1e-9  # nothing is divided by less
LEFT_KEPT = (JoinType.LEFT, JoinType.FULL)
RIGHT_KEPT = (JoinType.RIGHT, JoinType.FULL)


@dataclass(frozen=True, slots=True, eq=False)
class KeyVector:
    """A relation's rows by the bins of one of its keys.

    rows, ndv, largest, upper: shape (bins,): expected rows, different keys, the most rows that one key may have, and
    an upper bound of the rows. domain: different keys before any filter or join.
    """

    bins: Bins
    rows: Floats
    ndv: Floats
    domain: Floats
    largest: Floats
    upper: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """What a join does to the rows of one side.

    column: of that side. factor, kept, upper: shape (bins,), or (1,) where nothing is known by bins: by what the rows
    of a bin are multiplied, which share of its keys meets anything, the largest factor. null: for rows without a key.
    bins: of the first three, None where they do not tell bins apart.
    """

    column: PlanColumn
    bins: Bins | None
    factor: Floats
    kept: Floats
    upper: Floats
    null: float = 0.0


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
                found = _filtered(key, self._given(column.name))
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
        left = float(survivors(known.ndv, float(self._statistics.rows), self.filtered.share))
        return max(1.0, min(left, self.domain(column) or left))

    def domain(self, column: PlanColumn) -> float | None:
        """Return the different values that filters on the column itself leave."""
        known = self._statistics.columns.get(column.name)
        if known is None or not self.holds(column):
            return None
        region = self.filtered.regions.get(column.name)
        kept = share_of(region, known, self._statistics.rows) if region is not None else None
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
        return found if seen is not None or not filtered else float(survivors(found, whole, self.filtered.share))

    def _after(self, spread: KeyVector, name: str, key: KeyStatistics, message: Message) -> KeyVector:
        if message.bins is None:
            return _applied(spread, message.factor, message.kept, message.upper)
        if message.column.name == name and _same(message.bins, key.bins):
            return _applied(spread, message.factor, message.kept, message.upper)
        together = key.given.get(message.column.name)
        if together is None or not _same(together.buckets, message.bins):
            other = self.vector(message.column)
            weights = other.rows if other is not None else np.ones(message.factor.size)
            share = float(weights.sum()) / max(1e-9, self.rows) if other is not None else 1.0
            factor, kept, upper = (
                np.atleast_1d(_mean(values, weights) * min(1.0, share) + message.null * max(0.0, 1.0 - share))
                for values in (message.factor, message.kept, message.upper)
            )
            return _applied(spread, factor, kept, upper)
        asked = name, id(message)
        if asked not in self._carried:
            self._carried[asked] = message, _through(together, message, self._given(message.column.name))
        return _applied(spread, *self._carried[asked][1])

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
        self.rows, self.upper = rows, max(rows, upper)

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
        return max(1.0, min(float(survivors(found, side.rows, self._kept(to_left=to_left))), self.rows))

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
        """Return how many different combinations are left: of each side those of rows that meet any, and all pairs."""
        if len(columns) == 1:
            return self.ndv(columns[0])
        counts = []
        for to_left, side in ((True, self._left), (False, self._right)):
            own = [column for column in columns if self._left.holds(column) is to_left]
            if own:
                found = side.distinct(own)
                if found is None:
                    return None
                counts.append(float(survivors(found, side.rows, self._kept(to_left=to_left))))
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
        if mine is not None and theirs is not None and _same(mine.bins, theirs.bins):
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


class Derived(Relation):
    """Rows that something else than a join made of another relation's: their number is known, keys go along."""

    def __init__(self, source: Relation, rows: float, *, upper: float | None = None) -> None:
        self._source = source
        self.rows = rows
        self.upper = max(rows, min(source.upper, source.upper if upper is None else upper))

    def holds(self, column: PlanColumn) -> bool:
        """Return whether a column comes out of it."""
        return self._source.holds(column)

    def vector(self, column: PlanColumn, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's bins, spread as they were below."""
        spread = self._source.vector(column, messages)
        if spread is None:
            return None
        share = self.rows / max(1e-9, self._source.rows)
        ndv = survivors(spread.ndv, spread.rows, np.full(spread.ndv.shape, min(1.0, share)))
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
        return max(1.0, min(float(survivors(found, self._source.rows, min(1.0, share))), self.rows))

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
            found = _applied(found, message.factor, message.kept, message.upper)
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
        self.rows, self.upper = sum(part.rows for part in parts), sum(part.upper for part in parts)

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
            if spread is None or (found is not None and not _same(spread.bins, found.bins)):
                return None
            found = spread if found is None else _added(found, spread)
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
        self.rows = rows
        self.upper = max(rows, upper if upper is not None else rows)
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


def survivors(ndv: Floats | float, rows: Floats | float, share: Floats | float) -> Floats | float:
    """Return the different values that are expected among a share of the rows: d (1 - (1 - s)^(n / d)).

    Every value is taken to have n / d rows; Yao, "Approximating Block Accesses in Database Organizations", 1977.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(np.asarray(ndv) > 0.0, np.asarray(rows) / np.maximum(ndv, 1e-9), 0.0)
        left = ndv * -np.expm1(each * np.log1p(-np.clip(share, 0.0, 1.0 - 1e-12)))
    return np.minimum(left, ndv) if isinstance(ndv, np.ndarray) else float(min(float(left), ndv))


def _added(a: KeyVector, b: KeyVector) -> KeyVector:
    """Return the rows of two relations together; which keys both have is a matter of chance."""
    domain = np.maximum(a.domain, b.domain)
    with np.errstate(divide="ignore", invalid="ignore"):
        shared = np.where(domain > 0.0, a.ndv * b.ndv / domain, 0.0)
    ndv = np.minimum(domain, a.ndv + b.ndv - shared)
    return KeyVector(a.bins, a.rows + b.rows, ndv, domain, a.largest + b.largest, a.upper + b.upper)


def _filtered(key: KeyStatistics, given: Floats) -> KeyVector:
    rows = key.rows * given
    ndv = survivors(key.ndv, key.rows, given)
    assert isinstance(ndv, np.ndarray)
    return KeyVector(
        key.bins, rows, ndv, key.ndv, np.minimum(key.largest, key.rows), np.minimum(key.rows, np.ceil(rows))
    )


def _applied(spread: KeyVector, factor: Floats, kept: Floats, upper: Floats) -> KeyVector:
    ndv = survivors(spread.ndv, spread.rows, kept)
    assert isinstance(ndv, np.ndarray)
    most = np.where(kept > 0.0, np.maximum(upper, 0.0), 0.0)
    rows, largest, upper_rows = spread.rows * factor, spread.largest * most, spread.upper * most
    return KeyVector(spread.bins, rows, ndv, spread.domain, largest, upper_rows)


def _through(together: ConditionalCounts, message: Message, given: Floats) -> tuple[Floats, Floats, Floats]:
    """Carry a message from one key of a table to another, through the rows that hold both.

    given: what the table's filters leave of each bin of the message's key: it reaches those rows only.
    """
    weights = np.empty((4, given.size + 1))
    left, told = weights[0], weights[1:]
    left[:-1], left[-1] = given, given.mean()
    for part, (values, null) in zip(told, _parts(message), strict=True):
        part[:-1], part[-1] = values, null
    known = association(together)
    varied = _vary(told, left * known.rows)
    told *= left
    if known.tells_nothing_of(varied):
        held, *parts = (weights @ known.rows)[:, None]
    else:
        held, *parts = together.weighted(weights)
    whole = max(float(held.sum()), LEAST)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor, kept, upper = (np.where(held > 0.0, part / held, part.sum() / whole) for part in parts)
    return factor, np.clip(kept, 0.0, 1.0), np.maximum(upper, factor)


def _vary(values: Floats, weights: Floats) -> float:
    """Return the largest squared coefficient of variation of several values. values: shape (n, weights.size)."""
    whole = float(weights.sum())
    if whole <= 0.0:
        return 0.0
    means = np.maximum(values @ weights / whole, LEAST)
    return float((np.square(values / means[:, None] - 1.0) @ weights).max()) / whole


def _parts(message: Message) -> tuple[tuple[Floats, float], ...]:
    return (message.factor, message.null), (message.kept, min(1.0, message.null)), (message.upper, message.null)


def _same(a: Bins, b: Bins) -> bool:
    return a is b or (a.group == b.group and a.version == b.version and a.count == b.count and bool(a.group))


def _mean(values: Floats, weights: Floats) -> float:
    whole = float(weights.sum())
    return float((values * weights).sum()) / whole if whole > 0.0 else float(values.mean())
