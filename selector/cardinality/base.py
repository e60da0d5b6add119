"""The rows of a table that a scan's filters leave, as joins see them.

Of a table of which the sample holds every row, all is counted on it: what joins do to a row is a product over its keys.
Of a larger table the sampled rows tell how filters and several joins go together, and key statistics tell how many rows
each key has; where few sampled rows are left the latter count for more.

It is long because a scan answers every question of a join in both ways.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from sqlglot import exp

from selector.cardinality.groups import FEWEST_ROWS, Sizes, codes_of, codes_together, independent, promised, skew
from selector.cardinality.join_messages import (
    LEAST,
    Floats,
    Key,
    KeyRows,
    KeyVector,
    Message,
    applied,
    distinct_of,
    expected_distinct,
    weighted_mean,
)
from selector.cardinality.keys.classes import KeyClass, Member, Places, sampled_keys
from selector.cardinality.keys.counts import KeyCounts, counts_of, possible
from selector.cardinality.predicates.conditions import columns_in
from selector.cardinality.predicates.domain_selectivity import line_of
from selector.cardinality.predicates.domain_selectivity import share as share_of
from selector.cardinality.predicates.domains import Domain
from selector.cardinality.predicates.evaluate import values_of
from selector.cardinality.predicates.selectivity import filter_of
from selector.cardinality.predicates.vectors import Bools
from selector.cardinality.relation import Scanned
from selector.cardinality.sampled_rows import SampledRows
from selector.plan import PlanColumn
from selector.statistics import TableStatistics

PRIOR_ROWS = 4.0  # so many sampled rows is what key statistics are worth to a mean over the sample
MANY_ROWS = 400  # sampled rows that are left, from which on they are not compared with anything
CELL_ROWS = 4.0  # and to a mean over the sampled rows of one cell


class Base(Scanned):
    """The rows of a table that a scan's filters leave.

    is_whole: the sample holds every row of the table and answers all filters, so that everything is counted.
    """

    def __init__(
        self,
        statistics: TableStatistics,
        predicates: Sequence[str],
        scan: int | None,
        *,
        dialect: str,
        implied: Mapping[str, Domain] = MappingProxyType({}),
    ) -> None:
        """Read. implied: what joins with other tables leave of columns."""
        self.statistics = statistics
        self._predicates = tuple(predicates)
        self._dialect = dialect
        self.scan = scan
        self._implied = implied
        self.filtered = filtered = filter_of(self._predicates, statistics, dialect=dialect, implied=implied)
        self.rows = statistics.rows * filtered.share
        self.upper = self.rows
        mask, sample = filtered.sampled(), statistics.sample
        self._kept = SampledRows(sample, mask) if sample is not None and mask is not None else None
        self._by_key: dict[str, SampledRows | None] = {}
        there = sample is not None and sample.share >= 1.0 and sample.rows == statistics.rows
        self.is_whole = there and self._kept is not None
        if 0.0 < self.rows < 1.0 and not self.is_whole:  # constants are asked for because they are there
            self.rows = self.upper = 1.0
        self._vectors: dict[tuple[int, tuple[str, ...], tuple[int, ...]], tuple[Sequence[Message], Key, KeyVector]] = {}
        self._means: dict[tuple[int, bool], tuple[Message, float]] = {}
        self._key_rows: dict[str, KeyRows] = {}
        self._behind: dict[tuple[str, ...], Base] = {}
        self._domains: dict[tuple[int, tuple[str, ...]], tuple[KeyClass, Floats]] = {}
        self._complete: dict[tuple[int, tuple[str, ...]], tuple[KeyClass, Places, Floats]] = {}
        self._limited: dict[tuple[str, Domain], Base] = {}
        self._spreads: dict[tuple[int, tuple[str, ...]], tuple[KeyClass, Floats, Floats]] = {}

    def behind(self, predicates: Sequence[str]) -> Base:
        """Return the rows that further filters leave."""
        asked = tuple(predicates)
        if asked not in self._behind:
            together = (*self._predicates, *asked)
            self._behind[asked] = Base(
                self.statistics, together, self.scan, dialect=self._dialect, implied=self._implied
            )
        return self._behind[asked]

    def holds(self, column: PlanColumn) -> bool:
        """Return whether a column comes out of it."""
        return column.table == self.statistics.table and column.scan == self.scan

    def allowed(self, column: PlanColumn) -> Domain | None:
        """Return what filters leave of a column, if that is a domain."""
        return self.filtered.domains.get(column.name) if self.holds(column) else None

    def within(self, column: PlanColumn, domain: Domain | None) -> Base:
        """Return the rows whose column lies in a domain, or is not NULL."""
        known = self.statistics.columns.get(column.name)
        if known is None or not self.holds(column):
            return self
        before = self.filtered.domains.get(column.name)
        if domain is None:
            if not known.nulls or (before is not None and not before.nulls):
                return self
            domain = Domain.everything(text=line_of(known.data_type).text)
        if before == domain:
            return self
        asked = column.name, domain
        if asked not in self._limited:
            known_before = self._implied.get(column.name)
            implied = {**self._implied, column.name: domain if known_before is None else known_before & domain}
            self._limited[asked] = Base(
                self.statistics, self._predicates, self.scan, dialect=self._dialect, implied=implied
            )
        return self._limited[asked]

    # ------------------------------------------------------------------ over the cells of a key

    def vector(self, key: Key, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's cells."""
        cells, member = key.cells, self._member(key)
        if cells is None or member not in cells.members:
            return None
        asked = (
            id(cells),
            member.columns,
            tuple(map(id, messages)),
        )  # what is kept here lives as long as its identity counts
        if asked not in self._vectors:
            counts = counts_of(member, cells)
            found = (
                self._counted(self._kept, cells, member, counts, messages)
                if self._kept is not None and self.is_whole and member.is_whole
                else self._expected(key, cells, member, counts, messages)
            )
            self._vectors[asked] = tuple(messages), key, found
        return self._vectors[asked][2]

    def possible_keys(self, key: Key) -> Floats | None:
        """Return how many different keys there may be in each cell of a key."""
        member = self._member(key)
        if key.cells is None or member not in key.cells.members:
            return None
        return self._domain_of(key.cells, member)

    def _member(self, key: Key) -> Member:
        return Member(self.statistics, tuple(column.name for column in key.columns))

    def _counted(
        self, kept: SampledRows, cells: KeyClass, member: Member, counts: KeyCounts, messages: Sequence[Message]
    ) -> KeyVector:
        """Return the rows by cells as the sample has all of them."""
        possible_ = self._domain_of(cells, member)
        if not messages:
            rows = kept.held(cells, member.columns).astype(np.float64)
            return KeyVector(cells, rows, np.minimum(rows, 1.0), possible_, np.minimum(counts.largest, rows), rows)
        rows = kept.summed(cells, member.columns, kept.factors(messages))

        def ndv() -> Floats:
            left = np.log1p(-np.minimum(kept.chances(messages), 1.0 - 1e-12))
            return 1.0 - np.exp(kept.summed(cells, member.columns, left))

        def upper() -> Floats:
            return np.maximum(rows, kept.summed(cells, member.columns, kept.chances(messages)) * _most(messages))

        return KeyVector(
            cells, rows, ndv, possible_, lambda: np.minimum(counts.largest * _most(messages), upper()), upper
        )

    def _expected(
        self, key: Key, cells: KeyClass, member: Member, counts: KeyCounts, messages: Sequence[Message]
    ) -> KeyVector:
        """Return the rows by cells as key statistics and sampled rows tell."""
        rows, ndv = self._spread(cells, member, counts)
        largest = np.minimum(counts.largest, counts.rows)
        found = KeyVector(
            cells, rows, ndv, self._domain_of(cells, member), largest, np.minimum(counts.rows, np.ceil(rows))
        )
        others = []
        for message in messages:
            if message.key.cells is cells and self._member(message.key) == member:
                found = applied(found, message.factor, *message.later)
            else:
                others.append(message)
        return applied(found, *self._from_elsewhere(key, cells, member, others)) if others else found

    def _domain_of(self, cells: KeyClass, member: Member) -> Floats:
        """Return the different keys that there may be in each cell, as far as filters on the key itself leave them."""
        asked = id(cells), member.columns
        if asked not in self._domains:
            self._domains[asked] = cells, self._possible(cells, member)
        return self._domains[asked][1]

    def _possible(self, cells: KeyClass, member: Member) -> Floats:
        found = possible(cells)
        for part, name in enumerate(member.columns):
            domain = self.filtered.domains.get(name)
            if domain is not None:
                found = found * self._own(cells, member, part, domain)
        return found

    def _own(self, cells: KeyClass, member: Member, part: int, domain: Domain) -> Floats:
        """Return the share of each cell's keys that lie in a domain of one of the key's columns, shape (count,)."""
        known, ranges = cells.kept(part, domain)
        found = np.empty(cells.count)
        found[: known.size] = known
        if ranges is None:  # hashes tell nothing: as many as of the rows that are no known keys
            column = self.statistics.columns[member.columns[part]]
            of_all = share_of(domain, column, self.statistics.rows)
            counts = counts_of(member, cells)
            rest = float(counts.rows[known.size :].sum())
            wanted = (of_all.share if of_all is not None else 1.0) * self.statistics.rows
            wanted -= float(counts.rows[: known.size][known].sum())
            found[known.size :] = min(1.0, max(0.0, wanted / rest)) if rest > 0.0 else 0.0
        else:
            found[known.size :] = ranges
        return found

    def _spread(self, cells: KeyClass, member: Member, counts: KeyCounts) -> tuple[Floats, Floats]:
        """Return what filters leave of each cell, in rows and in different keys."""
        asked = id(cells), member.columns
        if asked in self._spreads:
            return self._spreads[asked][1:]
        own = np.ones(cells.count)
        for part, name in enumerate(member.columns):
            domain = self.filtered.domains.get(name)
            if domain is not None:
                own = own * self._own(cells, member, part, domain)
        given = self._given(cells, member, counts, own)
        ndv = counts.ndv * own
        if not self.filtered.is_only_of(member.columns):
            ndv = distinct_of(ndv, counts.rows * own, given / np.maximum(own, 1e-12))
        self._spreads[asked] = cells, counts.rows * given, ndv
        return self._spreads[asked][1:]

    def _given(self, cells: KeyClass, member: Member, counts: KeyCounts, own: Floats) -> Floats:
        """Return the share of each cell's rows that filters leave, shape (count,).

        Filters on other columns leave equally much of each, as far as sampled rows do not tell of its bin, of the cell
        itself, and of a key of which all rows were sampled.
        """
        if self.filtered.share >= 1.0:
            return np.ones(cells.count)
        present, kept = float((counts.rows * own).sum()), self._kept
        wanted = self.rows * math.prod(self._has_value(name) for name in member.columns)
        if kept is None or not kept.holds(member.columns):
            return own * min(1.0, wanted / present) if present > 0.0 else own
        hits = kept.held(cells, member.columns)
        has_key = wanted / self.rows if self.rows > 0.0 else 1.0
        wanted = self.rows * (float(hits.sum()) + CELL_ROWS * has_key) / (float(kept.rows.size) + CELL_ROWS)
        flat = min(1.0, wanted / present) if present > 0.0 else 1.0
        rows = cells.sampled(kept.sample, member.columns) * own
        bins = int(cells.bin_of.max(initial=-1)) + 1
        of_bins = np.bincount(cells.bin_of, hits, minlength=bins) + CELL_ROWS * flat
        of_bins /= np.bincount(cells.bin_of, rows, minlength=bins) + CELL_ROWS
        others = (hits + CELL_ROWS * of_bins[cells.bin_of]) / (rows + CELL_ROWS)
        found = own * np.minimum(1.0, others)
        exact = self._exactly(cells, member, counts)
        if exact is not None:
            found[exact.cells] = exact.hits / np.maximum(exact.rows, 1.0)
        free = np.ones(cells.count, dtype=np.bool_)
        if exact is not None:
            free[exact.cells] = False
        return _scaled(found, own, counts.rows, wanted, free)

    def _has_value(self, name: str) -> float:
        """Return the share of the filtered rows whose column is not NULL, as if filters on others said nothing."""
        domain = self.filtered.domains.get(name)
        if domain is not None and not domain.nulls:
            return 1.0
        return self.present(PlanColumn(name, None, self.statistics.table, self.scan))

    def _exactly(
        self,
        cells: KeyClass,
        member: Member,
        counts: KeyCounts,
        messages: Sequence[Message] = (),
        *,
        chances: bool = False,
    ) -> _Exact | None:
        """Return what is known of keys with a cell for themselves of which all rows were sampled by their key."""
        kept = self._sampled_by(member)
        if kept is None:
            return None
        asked = id(cells), member.columns
        if asked not in self._complete:
            held = cells.sampled(kept.sample, member.columns)
            alone = np.flatnonzero((held > 0) & cells.alone & (held >= np.floor(counts.rows)))
            self._complete[asked] = cells, alone, held[alone].astype(np.float64)
        _, alone, rows = self._complete[asked]
        if not alone.size:
            return None
        hits = kept.held(cells, member.columns)[alone].astype(np.float64)
        if not messages:
            return _Exact(alone, rows, hits, hits)
        each = kept.chances(messages) if chances else kept.factors(messages)
        return _Exact(alone, rows, hits, kept.summed(cells, member.columns, each)[alone])

    def _sampled_by(self, member: Member) -> SampledRows | None:
        """Return the rows that were sampled by a key, as far as filters keep them."""
        if member.name not in self._by_key:
            sample = member.counted.sample if member.counted is not None else None
            mask = self.filtered.sampled(sample.rows) if sample is not None else None
            self._by_key[member.name] = (
                SampledRows(sample.rows, mask) if sample is not None and mask is not None else None
            )
        return self._by_key[member.name]

    def key_rows(self, key: Key, messages: Sequence[Message] = ()) -> KeyRows | None:
        """Return its rows that were sampled by a key."""
        member = self._member(key)
        kept, known = self._sampled_by(member), member.counted
        if kept is None or known is None or known.sample is None or not kept.holds(member.columns):
            return None
        keys = sampled_keys(kept.sample, member.columns)
        if messages:
            met = np.bincount(keys.of_rows[kept.rows], kept.factors(messages), minlength=keys.line.size)
            return KeyRows(known.sample.share, keys.line, keys.chance, met.astype(np.float64))
        if member.name not in self._key_rows:
            rows = keys.rows
            if not kept.is_all:
                rows = np.bincount(keys.of_rows[kept.rows], minlength=keys.line.size).astype(np.float64)
            self._key_rows[member.name] = KeyRows(known.sample.share, keys.line, keys.chance, rows)
        return self._key_rows[member.name]

    def _from_elsewhere(
        self, key: Key, cells: KeyClass, member: Member, messages: Sequence[Message]
    ) -> tuple[Floats, Callable[[], Floats], Callable[[], Floats]]:
        """Return what messages for other keys do to the rows in each cell of a key: factor, kept, upper."""
        factor = self._of_cells(cells, member, messages, chances=False)
        return (
            factor,
            lambda: np.clip(self._of_cells(cells, member, messages, chances=True), 0.0, 1.0),
            lambda: np.maximum(_most(messages), factor),
        )

    def _of_cells(self, cells: KeyClass, member: Member, messages: Sequence[Message], *, chances: bool) -> Floats:
        """Return by what messages multiply the rows of each cell, or the chance of its rows to be left."""
        kept, prior = self._kept, math.prod(self._mean(message, chances=chances) for message in messages)
        if kept is None or not kept.holds(member.columns):
            return np.full(cells.count, prior)
        bins = int(cells.bin_of.max(initial=-1)) + 1
        hits = kept.held(cells, member.columns)
        in_bins = np.bincount(cells.bin_of, hits, minlength=bins)
        exact = self._exactly(cells, member, counts_of(member, cells), messages, chances=chances)
        of_cells = kept.summed(cells, member.columns, kept.chances(messages) if chances else kept.factors(messages))
        each = (np.bincount(cells.bin_of, of_cells, minlength=bins) + CELL_ROWS * prior) / (in_bins + CELL_ROWS)
        told = (of_cells + CELL_ROWS * each[cells.bin_of]) / (hits + CELL_ROWS)
        if exact is not None:
            told[exact.cells] = exact.left / np.maximum(exact.hits, 1.0)
        return told

    def _mean(self, message: Message, *, chances: bool) -> float:
        """Return what a message does to the filtered rows on average: by what it multiplies them, or their chance."""
        asked = id(message), chances
        if asked not in self._means:
            self._means[asked] = message, self._averaged(message, chances=chances)
        return self._means[asked][1]

    def _averaged(self, message: Message, *, chances: bool) -> float:
        spread, values = self.vector(message.key), message.kept if chances else message.factor
        if message.key.cells is None or spread is None:
            return float(values.mean())
        share = min(1.0, float(spread.rows.sum()) / max(1e-9, self.rows))
        mean = weighted_mean(values, spread.rows) * share
        if not chances:
            return mean + message.null * (1.0 - share)
        return min(1.0, max(0.0, mean + min(1.0, message.null) * (1.0 - share)))

    def told(self, messages: Sequence[Message]) -> float:
        """Return how many sampled rows stand behind ``total``: as many as would tell as much if all counted alike.

        Kish, "Survey Sampling", 1965. Errors of what messages tell come on top of those of its own rows.
        """
        if self._kept is None:
            return 0.0
        unsure = sum(1.0 / max(message.told, LEAST) for message in messages)
        if not self.is_whole:
            factors = self._kept.factors(messages)
            whole = float(factors.sum())
            unsure += float((factors * factors).sum()) / (whole * whole) if whole > 0.0 else 1.0 / LEAST
        return 1.0 / unsure if unsure > 0.0 else math.inf

    @property
    def name(self) -> tuple[str, int]:
        """Return the table and the number of the scan."""
        return self.statistics.table, self.scan or 0

    @property
    def most_told(self) -> float:
        """Return the most that ``told`` may be: as if no row were lost."""
        if self._kept is None:
            return 0.0
        return math.inf if self.is_whole else float(self._kept.rows.size)

    def total(self, messages: Sequence[Message]) -> tuple[float, float]:
        """Return rows and their upper bound after joins did what the messages tell."""
        if not messages:
            return self.rows, self.upper
        kept = self._kept
        if kept is not None and self.is_whole:
            rows = float(kept.factors(messages).sum())
            return rows, max(rows, float(kept.chances(messages).sum()) * _most(messages))
        if kept is None or self.rows <= 0.0:
            return super().total(messages)
        factors, hits = kept.factors(messages), float(kept.rows.size)
        if np.count_nonzero(factors) >= MANY_ROWS:  # what key statistics tell would change nothing
            rows = self.rows * float(factors.mean())
            return rows, max(rows, self.upper * float(kept.uppers(messages).mean()))
        prior, upper = super().total(messages)
        rows = self.rows * (float(factors.sum()) + PRIOR_ROWS * prior / self.rows) / (hits + PRIOR_ROWS)
        return rows, max(upper, rows)

    # ------------------------------------------------------------------ values

    def ranked(
        self, by: Sequence[str], order: Sequence[tuple[str, bool]], mask: Bools, most: float, *, dense: bool
    ) -> float | None:
        """Return the share of rows whose rank within their partition is at most so large, as the sample tells."""
        sample = self.statistics.sample
        if sample is None or not mask.any():
            return None
        codes = [codes_of(text, sample, self._types, self._dialect) for text in (*by, *(text for text, _ in order))]
        known = [code[mask].astype(np.int64) for code in codes if code is not None]
        if len(known) < len(codes):
            return None
        rows = int(mask.sum())
        partition = np.zeros(rows, dtype=np.int64)
        for code in known[: len(by)]:
            partition = np.unique(partition * (code.max() + 1) + code, return_inverse=True)[1].astype(np.int64)
        if not self.is_whole and 2 * (int(partition.max()) + 1) > rows:  # most partitions have one sampled row
            return None
        place = np.zeros(rows, dtype=np.int64)
        for code, (_, falls) in zip(known[len(by) :], order, strict=True):
            place = np.unique(place * (code.max() + 1) + (code.max() - code if falls else code), return_inverse=True)[1]
        each = np.unique(partition * (place.max(initial=0) + 1) + place, return_inverse=True)[1]
        held = np.bincount(each)  # sampled rows of each rank
        of_rank = np.zeros(held.size, dtype=np.int64)
        of_rank[each] = partition
        first = np.concatenate(([True], of_rank[1:] != of_rank[:-1]))
        start = np.flatnonzero(first)[np.cumsum(first) - 1]
        before = np.arange(held.size) - start if dense else (np.cumsum(held) - held) - (np.cumsum(held) - held)[start]
        share = min(1.0, sample.rows / max(1, self.statistics.rows))
        kept = before < most if dense else before / share < most
        standing = np.where((held > 1) | (share >= 1.0), held / share, 1.0)
        return min(1.0, float(standing[kept].sum()) / max(1.0, rows / share))

    def group_sizes(self, columns: Sequence[PlanColumn], groups: float) -> Sizes | None:
        """Return how many rows the groups of the filtered rows have; None where the sample does not tell."""
        sample, names = self.statistics.sample, tuple(dict.fromkeys(column.name for column in columns))
        code = codes_together(names, sample, self._types, self._dialect) if sample is not None and names else None
        if sample is None or code is None or self._kept is None:
            return None
        held = np.bincount(code[self._kept.rows])
        if self.is_whole:
            return Sizes.counted(held.astype(np.float64))
        share = sample.rows / max(1, self.statistics.rows)
        return Sizes.promised(held[held > 0], share, groups, self.rows) if self._kept.rows.size >= FEWEST_ROWS else None

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the different values that the filters leave."""
        known = self.statistics.columns.get(column.name)
        if not self.holds(column):
            return None
        if self.is_whole:
            counted = self._counted_groups((column.name,), filtered=True, messages=(), nulls=False)
            if counted is not None:
                return counted
        if known is None:
            return self._groups((column.name,), filtered=True)
        left = float(expected_distinct(known.ndv, float(self.statistics.rows), self.filtered.share))
        domain = self.domain(column) or left
        within = float(expected_distinct(domain, self.rows / max(1e-9, self._beside(column)), self._beside(column)))
        return max(1.0, min(left if self.filtered.domains.get(column.name) is None else within, domain))

    def _beside(self, column: PlanColumn) -> float:
        """Return the share that filters on other columns leave of the rows that those on a column leave."""
        domain = self.filtered.domains.get(column.name)
        own = (
            share_of(domain, self.statistics.columns[column.name], self.statistics.rows) if domain is not None else None
        )
        return min(1.0, self.filtered.share / max(1e-12, own.share)) if own is not None else self.filtered.share

    def domain(self, column: PlanColumn) -> float | None:
        """Return the different values that filters on the column itself leave."""
        known = self.statistics.columns.get(column.name)
        if known is None or not self.holds(column):
            return None
        domain = self.filtered.domains.get(column.name)
        kept = share_of(domain, known, self.statistics.rows) if domain is not None else None
        return max(1.0, known.ndv * (kept.share if kept is not None else 1.0))

    def present(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is not NULL."""
        known = self.statistics.columns.get(column.name)
        return 1.0 - known.nulls / self.statistics.rows if known is not None and self.statistics.rows else 1.0

    def nulls(self, column: PlanColumn) -> float:
        """Return the share of the filtered rows whose column is NULL."""
        behind = self.behind(
            [f"{exp.column(exp.to_identifier(column.name, quoted=True)).sql(dialect=self._dialect)} IS NULL"]
        )
        return min(1.0, behind.rows / self.rows) if self.rows > 0.0 else 0.0

    def sampled(self, column: PlanColumn, key: tuple[str, ...] = ()) -> tuple[Base, Floats] | None:
        """Return the sampled rows that the filters keep."""
        return self.weighted((), key) if self.holds(column) else None

    def weighted(self, messages: Sequence[Message], key: tuple[str, ...] = ()) -> tuple[Base, Floats] | None:
        """Return the sampled rows with the weights that joins give them. key: by which they were chosen, if by any."""
        kept = self._sampled_by(Member(self.statistics, key)) if key else self._kept
        if kept is None:
            return None
        weights = np.zeros(kept.sample.rows)
        weights[kept.rows] = kept.factors(messages)
        return self, weights

    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return how many different combinations of columns there may be, before filters."""
        found = self._groups(tuple(dict.fromkeys(column.name for column in columns)), filtered=False)
        return max(1.0, float(self.statistics.rows) if found is None else found)

    def distinct(self, columns: Sequence[PlanColumn], messages: Sequence[Message] = ()) -> float | None:
        """Return how many different combinations of columns the filters leave."""
        return self._groups(tuple(dict.fromkeys(column.name for column in columns)), filtered=True, messages=messages)

    def counts_combinations(self, columns: Sequence[PlanColumn]) -> bool:
        """Return whether there is a sample."""
        return self.statistics.sample is not None

    def base(self, column: PlanColumn) -> Base | None:
        """Return itself for its columns."""
        return self if self.holds(column) else None

    def moments(self, expression: str) -> tuple[float, float] | None:
        """Return mean and standard deviation of an expression (SQL text) on the sampled rows that are kept."""
        sample = self.statistics.sample
        found = values_of(expression, sample, dict(self._types), dialect=self._dialect) if sample is not None else None
        if sample is None or found is None or not found.kind.is_number:
            return None
        mask = self._kept.mask if self._kept is not None else None
        there = np.logical_not(np.broadcast_to(found.nulls, (sample.rows,)))
        values = np.broadcast_to(np.asarray(found.values, dtype=np.float64), (sample.rows,))
        kept = values[there & mask] if mask is not None and np.any(there & mask) else values[there]
        return (float(kept.mean()), float(kept.std())) if kept.size else None

    @property
    def _types(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, column.data_type) for name, column in self.statistics.columns.items())

    def _groups(
        self, names: tuple[str, ...], *, filtered: bool, messages: Sequence[Message] = (), nulls: bool = True
    ) -> float | None:
        """Return how many groups the rows fall into by columns or expressions (SQL text) of them.

        nulls: whether NULL is a value. messages: what joins do to the rows.
        """
        if self.is_whole:
            counted = self._counted_groups(names, filtered=filtered, messages=messages, nulls=nulls)
            if counted is not None:
                return counted
        counts = [self._values(name, filtered=filtered) for name in names]
        known = [count for count in counts if count is not None]
        if len(known) < len(counts):
            return None
        rows = self.rows if filtered else float(self.statistics.rows)
        left = min(1.0, self._left(messages)) if messages else 1.0
        least, most = max(known, default=1.0), min(math.prod(known), max(1.0, rows * left))
        computed = any(name not in self.statistics.columns for name in names)
        if len(names) < 2 and not computed and not messages:
            return min(least, most)
        found = self._sampled_groups(names, known, filtered=filtered, messages=messages)
        if found is None and not filtered:
            found = most
        if found is None:  # one after the other counts less: columns of one table are rarely independent
            found = math.prod(math.pow(count, 0.5**place) for place, count in enumerate(sorted(known, reverse=True)))
            found = float(expected_distinct(min(found, max(1.0, rows)), rows, left))
        return min(max(found, 1.0 if computed or messages else least), most)

    def _left(self, messages: Sequence[Message]) -> float:
        """Return the share of the filtered rows that messages leave at all."""
        if self._kept is not None and self._kept.rows.size:
            return float(self._kept.chances(messages).sum()) / self._kept.rows.size
        return math.prod(float(message.kept.mean()) for message in messages)

    def _counted_groups(
        self, names: tuple[str, ...], *, filtered: bool, messages: Sequence[Message], nulls: bool
    ) -> float | None:
        sample = self.statistics.sample
        code = codes_together(names, sample, self._types, self._dialect) if sample is not None else None
        if sample is None or code is None or self._kept is None:
            return None
        rows = self._kept.rows if filtered else np.arange(sample.rows)
        code, kept = code[rows], self._kept.chances(messages) if filtered else np.ones(sample.rows)
        if not nulls and names[0] in sample.columns:
            kept = np.where(sample.columns[names[0]].nulls[rows], 0.0, kept)
        gone = np.bincount(code, np.log1p(-np.minimum(kept, 1.0 - 1e-12)))
        return max(1.0, float((1.0 - np.exp(gone)).sum()))

    def _values(self, name: str, *, filtered: bool) -> float | None:
        """Return the values of a column, NULL among them, or the most that an expression may have."""
        known = self.statistics.columns.get(name)
        if known is not None:
            column = PlanColumn(name, known.data_type, self.statistics.table, self.scan)
            return (
                (self.ndv(column) or 1.0) + (known.nulls > 0) if filtered else max(1.0, known.ndv) + (known.nulls > 0)
            )
        used = columns_in(name, self._dialect)
        if used is None:
            return None
        counts = [self._values(one, filtered=filtered) if one in self.statistics.columns else None for one in used]
        found = [count for count in counts if count is not None]
        return math.prod(found) if len(found) == len(counts) else None

    def _sampled_groups(
        self, names: tuple[str, ...], counts: Sequence[float], *, filtered: bool, messages: Sequence[Message]
    ) -> float | None:
        """Return the groups that the sample promises; None without one that tells."""
        statistics, sample = self.statistics, self.statistics.sample
        code = codes_together(names, sample, self._types, self._dialect) if sample is not None else None
        if sample is None or code is None or not sample.rows:
            return None
        whole = float(statistics.rows)
        told = self._kept if filtered and (self.filtered.share < 1.0 or messages) else None
        mask = told.mask if told is not None else None
        share, left = self.filtered.share if filtered else 1.0, 1.0
        if messages and told is not None:
            left = self._left(messages)
            mask = np.zeros(sample.rows, dtype=np.bool_)
            mask[told.rows[told.chances(messages) > 0.5]] = True
        rows, seen = (self.rows * left, mask) if mask is not None and mask.sum() >= FEWEST_ROWS else (whole, None)
        found = promised(code, seen, rows, guess=independent(counts, rows))
        known = [name for name in names if name in statistics.columns]
        largest = max(known, key=lambda name: statistics.columns[name].ndv, default=None)
        alone = codes_of(largest, sample, self._types, self._dialect) if largest is not None else None
        if alone is not None and largest is not None and sample.rows < statistics.rows:
            each = skew(alone, whole, statistics.columns[largest].ndv + (statistics.columns[largest].nulls > 0))
            found = rows * math.pow(min(1.0, found / rows), each)
        return found if seen is not None or not filtered else float(expected_distinct(found, whole, share * left))


@dataclass(frozen=True, slots=True, eq=False)
class _Exact:
    """Cells of single keys of which all rows were sampled.

    cells: shape (n,). rows, hits: of each, before and behind filters. left: sums over the latter of what messages do.
    """

    cells: Places
    rows: Floats
    hits: Floats
    left: Floats


def _most(messages: Sequence[Message]) -> float:
    """Return the largest factor by which messages multiply a row."""
    return math.prod(max(float(message.upper.max(initial=0.0)), message.null) for message in messages)


def _scaled(found: Floats, most: Floats, rows: Floats, wanted: float, free: Bools) -> Floats:
    """Scale the free ones of some shares, none above its most, until all of them keep so many rows."""
    fixed = float((found * rows)[~free].sum())
    for _ in range(3):
        kept = float((found * rows)[free].sum())
        if kept <= 0.0 or abs(kept + fixed - wanted) <= 1e-6 * wanted:
            break
        found = np.where(free, np.minimum(found * max(0.0, (wanted - fixed) / kept), most), found)
    return found
