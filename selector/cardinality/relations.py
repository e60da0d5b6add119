"""What comes out of a node as a join sees it: how its rows are spread over the bins of a key.

A join multiplies per bin: with n rows of d different keys on one side and n', d' on the other, n n' / max(d, d') rows
meet, as if the fewer keys were among the more (FactorJoin's expected-value form; Wu et al., SIGMOD 2023). The most
rows of one key give the bound n' max as well. What a join does to its left side is a ``Message``: by what factor the
rows of each bin grow, which part of them meets anything at all. A message reaches the side's other keys through the
counts of both keys together, so that a chain of joins is a product of small matrices and no row is ever looked at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from selector.cardinality.predicates import filter_of
from selector.cardinality.shares import share as share_of
from selector.keys import Bins, ConditionalCounts, KeyStatistics
from selector.plan import JoinType, PlanColumn
from selector.statistics import TableStatistics

Floats = NDArray[np.float64]

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
        self._plain: dict[str, KeyVector] = {}
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
        if column.name not in self._plain:
            self._plain[column.name] = _filtered(key, self._given(column.name))
        spread = self._plain[column.name]
        for message in messages:
            spread = self._after(spread, column.name, key, message)
        return spread

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the different values that the filters leave."""
        known = self._statistics.columns.get(column.name)
        if known is None:
            return None
        spread = self.vector(column)
        if spread is not None:
            return max(1.0, float(spread.ndv.sum()))
        return max(1.0, float(survivors(known.ndv, float(self._statistics.rows), self.filtered.share)))

    def domain(self, column: PlanColumn) -> float | None:
        """Return the different values that filters on the column itself leave."""
        known = self._statistics.columns.get(column.name)
        if known is None:
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
        product = 1.0
        for column in columns:
            known = self._statistics.columns.get(column.name)
            product *= known.ndv if known is not None else self._statistics.rows
        return max(1.0, min(product, float(self._statistics.rows)))

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
        return _applied(spread, *_through(together, message, self._given(message.column.name)))

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
        self._sent: dict[bool, Message] = {}
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
        found = (self._left if self._left.holds(column) else self._right).ndv(column)
        return None if found is None else max(1.0, min(found, self.rows))

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

    def _message(self, *, to_left: bool, beyond: Sequence[Message] = ()) -> Message:
        """Return what the join does to one side. beyond: what other joins did to the other side."""
        if beyond:
            return self._by_kind(self._met(to_left, beyond), to_left=to_left)
        if to_left not in self._sent:
            self._sent[to_left] = self._by_kind(self._met(to_left, ()), to_left=to_left)
        return self._sent[to_left]

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
            found = min(1.0, (their_ndv if their_ndv is not None else domain_size) / domain_size)
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
        row of the other meets one at most.
        """
        first = max(here.combinations([pairs[0][0]]), there.combinations([pairs[0][1]]))
        both = min(here.combinations([a for a, _ in pairs]), there.combinations([b for _, b in pairs]))
        narrower = min(1.0, first / max(first, both))
        return factor * narrower, np.minimum(kept, factor * narrower)

    def _by_kind(self, met: Message, *, to_left: bool) -> Message:
        """Turn what an inner join does to one side into what this kind of join does."""
        kind, ones = self._kind, np.ones_like(met.kept)
        matching = met.kept * min(1.0, self._share)
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


class Groups(Derived):
    """Rows of a grouping: of each combination of its keys there is one."""

    def __init__(self, source: Relation, rows: float, keys: Sequence[PlanColumn], *, upper: float) -> None:
        """Group. rows, upper: how many groups are expected, and at most."""
        super().__init__(source, rows, upper=upper)
        self._keys = frozenset(_origin(key) for key in keys)

    def holds(self, column: PlanColumn) -> bool:
        """Return whether a column comes out of it: a key does."""
        return _origin(column) in self._keys and super().holds(column)

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
    left = np.append(given, float(given.mean()))
    held = together.weighted(left)
    parts = [together.weighted(left * np.append(values, null)) for values, null in _parts(message)]
    whole = max(float(held.sum()), 1e-9)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor, kept, upper = (np.where(held > 0.0, part / held, part.sum() / whole) for part in parts)
    return factor, np.clip(kept, 0.0, 1.0), np.maximum(upper, factor)


def _parts(message: Message) -> tuple[tuple[Floats, float], ...]:
    return (message.factor, message.null), (message.kept, min(1.0, message.null)), (message.upper, message.null)


def _same(a: Bins, b: Bins) -> bool:
    return a is b or (a.group == b.group and a.version == b.version and a.count == b.count and bool(a.group))


def _mean(values: Floats, weights: Floats) -> float:
    whole = float(weights.sum())
    return float((values * weights).sum()) / whole if whole > 0.0 else float(values.mean())
