"""Filtered rows of one scan, as joins see them.

If the sample holds every row of the table, all numbers are counted on it: the effect of joins on a row is a product
over its keys. For a larger table, sampled rows give the correlation of filters and joins, and key statistics give the
rows of each key. The fewer sampled rows survive the filters, the more weight the key statistics have.

It is long because a scan answers every question of a join in both ways.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from sqlglot import exp

from selector.cardinality.groups import (
    FEWEST_ROWS,
    Sizes,
    codes_of,
    combined_codes,
    estimated_groups,
    independent,
    skew,
)
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
from selector.cardinality.predicates.selectivity import filter_of
from selector.cardinality.predicates.vectors import Bools
from selector.cardinality.relation import Scanned
from selector.cardinality.sampled_rows import SampledRows
from selector.plan import PlanColumn
from selector.statistics import TableStatistics

PRIOR_ROWS = 4.0  # weight of key statistics in a mean over the sample, in sampled rows
MANY_ROWS = 400  # surviving sampled rows from which on key statistics have no weight
CELL_ROWS = 4.0  # weight of the prior in a mean over the sampled rows of one cell, in sampled rows


class Base(Scanned):
    """Filtered rows of one scan.

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
        """Apply the filters. implied: domains of columns that follow from joins with other tables."""
        self.statistics = statistics
        self._predicates = tuple(predicates)
        self._dialect = dialect
        self.scan = scan
        self._implied = implied
        self.filtered = filtered = filter_of(self._predicates, statistics, dialect=dialect, implied=implied)
        self.rows = statistics.rows * filtered.share
        self.upper = self.rows
        mask, sample = filtered.sampled(), statistics.sample
        self._surviving = SampledRows(sample, mask) if sample is not None and mask is not None else None
        self._by_key: dict[str, SampledRows | None] = {}
        is_complete = sample is not None and sample.share >= 1.0 and sample.rows == statistics.rows
        self.is_whole = is_complete and self._surviving is not None
        if 0.0 < self.rows < 1.0 and not self.is_whole:  # a query names constants that exist
            self.rows = self.upper = 1.0
        self._vectors: dict[tuple[int, tuple[str, ...], tuple[int, ...]], tuple[Sequence[Message], Key, KeyVector]] = {}
        self._means: dict[tuple[int, bool], tuple[Message, float]] = {}
        self._key_rows: dict[str, KeyRows] = {}
        self._behind: dict[tuple[str, ...], Base] = {}
        self._domains: dict[tuple[int, tuple[str, ...]], tuple[KeyClass, Floats]] = {}
        self._exact_rows: dict[tuple[int, tuple[str, ...]], tuple[KeyClass, Places, Floats]] = {}
        self._limited: dict[tuple[str, Domain], Base] = {}
        self._spreads: dict[tuple[int, tuple[str, ...]], tuple[KeyClass, Floats, Floats]] = {}

    def behind(self, predicates: Sequence[str]) -> Base:
        """Return the rows that further filters leave."""
        further = tuple(predicates)
        if further not in self._behind:
            all_predicates = (*self._predicates, *further)
            self._behind[further] = Base(
                self.statistics, all_predicates, self.scan, dialect=self._dialect, implied=self._implied
            )
        return self._behind[further]

    def holds(self, column: PlanColumn) -> bool:
        """Return whether the relation outputs a column."""
        return column.table == self.statistics.table and column.scan == self.scan

    def allowed(self, column: PlanColumn) -> Domain | None:
        """Return the domain of a column behind the filters; None if the filters are no domain."""
        return self.filtered.domains.get(column.name) if self.holds(column) else None

    def within(self, column: PlanColumn, domain: Domain | None) -> Base:
        """Return the rows whose column lies in a domain, or is not NULL."""
        stats = self.statistics.columns.get(column.name)
        if stats is None or not self.holds(column):
            return self
        before = self.filtered.domains.get(column.name)
        if domain is None:
            if not stats.nulls or (before is not None and not before.nulls):
                return self
            domain = Domain.everything(text=line_of(stats.data_type).text)
        if before == domain:
            return self
        cache_key = column.name, domain
        if cache_key not in self._limited:
            implied_before = self._implied.get(column.name)
            implied = {**self._implied, column.name: domain if implied_before is None else implied_before & domain}
            self._limited[cache_key] = Base(
                self.statistics, self._predicates, self.scan, dialect=self._dialect, implied=implied
            )
        return self._limited[cache_key]

    # ------------------------------------------------------------------ over the cells of a key

    def vector(self, key: Key, messages: Sequence[Message] = ()) -> KeyVector | None:
        """Return the rows by a key's cells."""
        cells, member = key.cells, self._member(key)
        if cells is None or member not in cells.members:
            return None
        # the cached value refers to the objects, so that their ids stay unique
        cache_key = (id(cells), member.columns, tuple(map(id, messages)))
        if cache_key not in self._vectors:
            counts = counts_of(member, cells)
            key_vector = (
                self._counted(self._surviving, cells, member, counts, messages)
                if self._surviving is not None and self.is_whole and member.is_whole
                else self._expected(cells, member, counts, messages)
            )
            self._vectors[cache_key] = tuple(messages), key, key_vector
        return self._vectors[cache_key][2]

    def possible_keys(self, key: Key) -> Floats | None:
        """Return the number of possible keys in each cell of a key."""
        member = self._member(key)
        if key.cells is None or member not in key.cells.members:
            return None
        return self._domain_of(key.cells, member)

    def _member(self, key: Key) -> Member:
        return Member(self.statistics, tuple(column.name for column in key.columns))

    def _counted(
        self, surviving: SampledRows, cells: KeyClass, member: Member, counts: KeyCounts, messages: Sequence[Message]
    ) -> KeyVector:
        """Return the rows by cells, counted on a sample that holds all of them."""
        possible_keys = self._domain_of(cells, member)
        if not messages:
            rows = surviving.held(cells, member.columns).astype(np.float64)
            return KeyVector(cells, rows, np.minimum(rows, 1.0), possible_keys, np.minimum(counts.largest, rows), rows)
        rows = surviving.summed(cells, member.columns, surviving.factors(messages))

        def ndv() -> Floats:
            log_misses = np.log1p(-np.minimum(surviving.chances(messages), 1.0 - 1e-12))
            return 1.0 - np.exp(surviving.summed(cells, member.columns, log_misses))

        def upper() -> Floats:
            matching = surviving.summed(cells, member.columns, surviving.chances(messages))
            return np.maximum(rows, matching * _most(messages))

        return KeyVector(
            cells, rows, ndv, possible_keys, lambda: np.minimum(counts.largest * _most(messages), upper()), upper
        )

    def _expected(self, cells: KeyClass, member: Member, counts: KeyCounts, messages: Sequence[Message]) -> KeyVector:
        """Return the rows by cells, estimated from key statistics and sampled rows."""
        rows, ndv = self._spread(cells, member, counts)
        largest = np.minimum(counts.largest, counts.rows)
        key_vector = KeyVector(
            cells, rows, ndv, self._domain_of(cells, member), largest, np.minimum(counts.rows, np.ceil(rows))
        )
        others = []
        for message in messages:
            if message.key.cells is cells and self._member(message.key) == member:
                key_vector = applied(key_vector, message.factor, *message.later)
            else:
                others.append(message)
        return applied(key_vector, *self._from_elsewhere(cells, member, others)) if others else key_vector

    def _domain_of(self, cells: KeyClass, member: Member) -> Floats:
        """Return the different keys that each cell may have behind filters on the key itself."""
        cache_key = id(cells), member.columns
        if cache_key not in self._domains:
            self._domains[cache_key] = cells, self._possible(cells, member)
        return self._domains[cache_key][1]

    def _possible(self, cells: KeyClass, member: Member) -> Floats:
        possible_keys = possible(cells)
        for part, name in enumerate(member.columns):
            domain = self.filtered.domains.get(name)
            if domain is not None:
                possible_keys = possible_keys * self._domain_shares(cells, member, part, domain)
        return possible_keys

    def _domain_shares(self, cells: KeyClass, member: Member, part: int, domain: Domain) -> Floats:
        """Return the share of each cell's keys that lie in a domain of one of the key's columns, shape (count,)."""
        known_in_domain, shares_of_ranges = cells.keys_in_domain(part, domain)
        shares = np.empty(cells.count)
        shares[: known_in_domain.size] = known_in_domain
        if shares_of_ranges is None:  # hashes have no order: the share of rows without a cell of their own
            column = self.statistics.columns[member.columns[part]]
            of_all = share_of(domain, column, self.statistics.rows)
            counts = counts_of(member, cells)
            rest = float(counts.rows[known_in_domain.size :].sum())
            target_rows = (of_all.share if of_all is not None else 1.0) * self.statistics.rows
            target_rows -= float(counts.rows[: known_in_domain.size][known_in_domain].sum())
            shares[known_in_domain.size :] = min(1.0, max(0.0, target_rows / rest)) if rest > 0.0 else 0.0
        else:
            shares[known_in_domain.size :] = shares_of_ranges
        return shares

    def _spread(self, cells: KeyClass, member: Member, counts: KeyCounts) -> tuple[Floats, Floats]:
        """Return the filtered rows and the different keys of each cell."""
        cache_key = id(cells), member.columns
        if cache_key in self._spreads:
            return self._spreads[cache_key][1:]
        domain_shares = np.ones(cells.count)
        for part, name in enumerate(member.columns):
            domain = self.filtered.domains.get(name)
            if domain is not None:
                domain_shares = domain_shares * self._domain_shares(cells, member, part, domain)
        filtered_shares = self._filtered_shares(cells, member, counts, domain_shares)
        ndv = counts.ndv * domain_shares
        if not self.filtered.is_only_of(member.columns):
            ndv = distinct_of(ndv, counts.rows * domain_shares, filtered_shares / np.maximum(domain_shares, 1e-12))
        self._spreads[cache_key] = cells, counts.rows * filtered_shares, ndv
        return self._spreads[cache_key][1:]

    def _filtered_shares(self, cells: KeyClass, member: Member, counts: KeyCounts, domain_shares: Floats) -> Floats:
        """Return the share of each cell's rows that filters leave, shape (count,).

        Filters on other columns keep the same share of every cell, corrected by the sampled rows of its bin and of the
        cell itself; keys of which all rows were sampled are counted.
        """
        if self.filtered.share >= 1.0:
            return np.ones(cells.count)
        present, surviving = float((counts.rows * domain_shares).sum()), self._surviving
        target_rows = self.rows * math.prod(self._has_value(name) for name in member.columns)
        if surviving is None or not surviving.holds(member.columns):
            return domain_shares * min(1.0, target_rows / present) if present > 0.0 else domain_shares
        hits = surviving.held(cells, member.columns)
        has_key = target_rows / self.rows if self.rows > 0.0 else 1.0
        target_rows = self.rows * (float(hits.sum()) + CELL_ROWS * has_key) / (float(surviving.rows.size) + CELL_ROWS)
        flat = min(1.0, target_rows / present) if present > 0.0 else 1.0
        rows = cells.sampled(surviving.sample, member.columns) * domain_shares
        bins = int(cells.bin_of.max(initial=-1)) + 1
        of_bins = np.bincount(cells.bin_of, hits, minlength=bins) + CELL_ROWS * flat
        of_bins /= np.bincount(cells.bin_of, rows, minlength=bins) + CELL_ROWS
        smoothed = (hits + CELL_ROWS * of_bins[cells.bin_of]) / (rows + CELL_ROWS)
        shares = domain_shares * np.minimum(1.0, smoothed)
        exact, free = self._exact_cells(cells, member, counts), np.ones(cells.count, dtype=np.bool_)
        if exact is not None:
            shares[exact.cells] = exact.hits / np.maximum(exact.rows, 1.0)
            free[exact.cells] = False
        return _scaled(shares, domain_shares, counts.rows, target_rows, free)

    def _has_value(self, name: str) -> float:
        """Return the share of the filtered rows whose column is not NULL, as if independent of filters on others."""
        domain = self.filtered.domains.get(name)
        if domain is not None and not domain.nulls:
            return 1.0
        return self.present(PlanColumn(name, None, self.statistics.table, self.scan))

    def _exact_cells(
        self,
        cells: KeyClass,
        member: Member,
        counts: KeyCounts,
        messages: Sequence[Message] = (),
        *,
        chances: bool = False,
    ) -> _ExactCells | None:
        """Return the counts of keys with a cell of their own sampled completely; None without any."""
        surviving = self._sampled_by(member)
        if surviving is None:
            return None
        cache_key = id(cells), member.columns
        if cache_key not in self._exact_rows:
            sampled_rows = cells.sampled(surviving.sample, member.columns)
            alone = np.flatnonzero((sampled_rows > 0) & cells.alone & (sampled_rows >= np.floor(counts.rows)))
            self._exact_rows[cache_key] = cells, alone, sampled_rows[alone].astype(np.float64)
        _, alone, rows = self._exact_rows[cache_key]
        if not alone.size:
            return None
        hits = surviving.held(cells, member.columns)[alone].astype(np.float64)
        if not messages:
            return _ExactCells(alone, rows, hits, hits)
        row_weights = surviving.chances(messages) if chances else surviving.factors(messages)
        return _ExactCells(alone, rows, hits, surviving.summed(cells, member.columns, row_weights)[alone])

    def _sampled_by(self, member: Member) -> SampledRows | None:
        """Return the filtered rows of the sample that was drawn by a key; None without such a sample."""
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
        surviving, key_sample = self._sampled_by(member), member.counted.sample if member.counted is not None else None
        if surviving is None or key_sample is None or not surviving.holds(member.columns):
            return None
        keys = sampled_keys(surviving.sample, member.columns)
        if messages:
            met = np.bincount(keys.of_rows[surviving.rows], surviving.factors(messages), minlength=keys.line.size)
            return KeyRows(key_sample.share, keys.line, keys.chance, met.astype(np.float64))
        if member.name not in self._key_rows:
            rows = keys.rows
            if not surviving.is_all:
                rows = np.bincount(keys.of_rows[surviving.rows], minlength=keys.line.size).astype(np.float64)
            self._key_rows[member.name] = KeyRows(key_sample.share, keys.line, keys.chance, rows)
        return self._key_rows[member.name]

    def _from_elsewhere(
        self, cells: KeyClass, member: Member, messages: Sequence[Message]
    ) -> tuple[Floats, Callable[[], Floats], Callable[[], Floats]]:
        """Return the effect of messages for other keys on each cell of a key: factor, match share, upper."""
        factor = self._message_means(cells, member, messages, chances=False)
        return (
            factor,
            lambda: np.clip(self._message_means(cells, member, messages, chances=True), 0.0, 1.0),
            lambda: np.maximum(_most(messages), factor),
        )

    def _message_means(self, cells: KeyClass, member: Member, messages: Sequence[Message], *, chances: bool) -> Floats:
        """Return the mean factor of messages over the rows of each cell, or the mean chance of these to match."""
        surviving, prior = self._surviving, math.prod(self._mean(message, chances=chances) for message in messages)
        if surviving is None or not surviving.holds(member.columns):
            return np.full(cells.count, prior)
        bins = int(cells.bin_of.max(initial=-1)) + 1
        hits = surviving.held(cells, member.columns)
        in_bins = np.bincount(cells.bin_of, hits, minlength=bins)
        exact = self._exact_cells(cells, member, counts_of(member, cells), messages, chances=chances)
        row_values = surviving.chances(messages) if chances else surviving.factors(messages)
        of_cells = surviving.summed(cells, member.columns, row_values)
        bin_means = (np.bincount(cells.bin_of, of_cells, minlength=bins) + CELL_ROWS * prior) / (in_bins + CELL_ROWS)
        cell_means = (of_cells + CELL_ROWS * bin_means[cells.bin_of]) / (hits + CELL_ROWS)
        if exact is not None:
            cell_means[exact.cells] = exact.sums / np.maximum(exact.hits, 1.0)
        return cell_means

    def _mean(self, message: Message, *, chances: bool) -> float:
        """Return the mean factor of a message over the filtered rows, or their mean chance to match."""
        cache_key = id(message), chances
        if cache_key not in self._means:
            self._means[cache_key] = message, self._averaged(message, chances=chances)
        return self._means[cache_key][1]

    def _averaged(self, message: Message, *, chances: bool) -> float:
        spread, values = self.vector(message.key), message.match_share if chances else message.factor
        if message.key.cells is None or spread is None:
            return float(values.mean())
        share = min(1.0, float(spread.rows.sum()) / max(1e-9, self.rows))
        mean = weighted_mean(values, spread.rows) * share
        if not chances:
            return mean + message.null * (1.0 - share)
        return min(1.0, max(0.0, mean + min(1.0, message.null) * (1.0 - share)))

    def effective_rows(self, messages: Sequence[Message]) -> float:
        """Return the effective sample size behind ``total``: equally weighted rows with the same variance.

        Kish, "Survey Sampling", 1965. The variance of messages is added to that of its own rows.
        """
        if self._surviving is None:
            return 0.0
        variance = sum(1.0 / max(message.effective_rows, LEAST) for message in messages)
        if not self.is_whole:
            factors = self._surviving.factors(messages)
            whole = float(factors.sum())
            own = float((factors * factors).sum()) / (whole * whole) if whole > 0.0 else 1.0 / LEAST
            variance += max([own, *map(self._variance_by_cells, messages)])
        return 1.0 / variance if variance > 0.0 else math.inf

    def _variance_by_cells(self, message: Message) -> float:
        """Return the relative variance of a sampled mean of a message's factor, as all cells tell it.

        A few popular keys may have most matches, and a small sample none of them: then its own rows tell too little.
        """
        key_vector = self.vector(message.key) if message.tells_cells_apart else None
        if key_vector is None or self._surviving is None or not self._surviving.rows.size:
            return 0.0
        weighted = key_vector.rows * message.factor
        whole = float(weighted.sum())
        if whole <= 0.0:
            return 0.0
        mean_square = float((weighted * message.factor).sum()) * float(key_vector.rows.sum())
        return mean_square / (whole * whole) / self._surviving.rows.size

    @property
    def name(self) -> tuple[str, int]:
        """Return the table and the number of the scan."""
        return self.statistics.table, self.scan or 0

    @property
    def max_effective_rows(self) -> float:
        """Return the largest possible ``effective_rows``: as if messages dropped no row."""
        if self._surviving is None:
            return 0.0
        return math.inf if self.is_whole else float(self._surviving.rows.size)

    def total(self, messages: Sequence[Message]) -> tuple[float, float]:
        """Return rows and their upper bound, after the joins that sent the messages."""
        if not messages:
            return self.rows, self.upper
        surviving = self._surviving
        if surviving is not None and self.is_whole:
            rows = float(surviving.factors(messages).sum())
            return rows, max(rows, float(surviving.chances(messages).sum()) * _most(messages))
        if surviving is None or self.rows <= 0.0:
            return super().total(messages)
        factors, hits = surviving.factors(messages), float(surviving.rows.size)
        if np.count_nonzero(factors) >= MANY_ROWS:  # key statistics would change nothing
            rows = self.rows * float(factors.mean())
            return rows, max(rows, self.upper * float(surviving.uppers(messages).mean()))
        prior, upper = super().total(messages)
        rows = self.rows * (float(factors.sum()) + PRIOR_ROWS * prior / self.rows) / (hits + PRIOR_ROWS)
        return rows, max(upper, rows)

    # ------------------------------------------------------------------ values

    def ranked(
        self, by: Sequence[str], order: Sequence[tuple[str, bool]], mask: Bools, most: float, *, dense: bool
    ) -> float | None:
        """Return the share of rows whose rank within their partition is at most ``most``, by the sample."""
        sample = self.statistics.sample
        if sample is None or not mask.any():
            return None
        codes = [codes_of(text, sample, self._types, self._dialect) for text in (*by, *(text for text, _ in order))]
        row_codes = [code[mask].astype(np.int64) for code in codes if code is not None]
        if len(row_codes) < len(codes):
            return None
        rows = int(mask.sum())
        partition = np.zeros(rows, dtype=np.int64)
        for code in row_codes[: len(by)]:
            partition = np.unique(partition * (code.max() + 1) + code, return_inverse=True)[1].astype(np.int64)
        if not self.is_whole and 2 * (int(partition.max()) + 1) > rows:  # most partitions have one sampled row
            return None
        place = np.zeros(rows, dtype=np.int64)
        for code, (_, falls) in zip(row_codes[len(by) :], order, strict=True):
            place = np.unique(place * (code.max() + 1) + (code.max() - code if falls else code), return_inverse=True)[1]
        rank_of_row = np.unique(partition * (place.max(initial=0) + 1) + place, return_inverse=True)[1]
        rank_rows = np.bincount(rank_of_row)  # sampled rows of each rank
        of_rank = np.zeros(rank_rows.size, dtype=np.int64)
        of_rank[rank_of_row] = partition
        first = np.concatenate(([True], of_rank[1:] != of_rank[:-1]))
        start = np.flatnonzero(first)[np.cumsum(first) - 1]
        earlier_rows = np.cumsum(rank_rows) - rank_rows
        before = np.arange(rank_rows.size) - start if dense else earlier_rows - earlier_rows[start]
        share = min(1.0, sample.rows / max(1, self.statistics.rows))
        is_counted = before < most if dense else before / share < most
        standing = np.where((rank_rows > 1) | (share >= 1.0), rank_rows / share, 1.0)
        return min(1.0, float(standing[is_counted].sum()) / max(1.0, rows / share))

    def group_sizes(self, columns: Sequence[PlanColumn], groups: float) -> Sizes | None:
        """Return the sizes of the groups of the filtered rows; None without a sample that is large enough."""
        sample, names = self.statistics.sample, _names(columns)
        code = combined_codes(names, sample, self._types, self._dialect) if sample is not None and names else None
        if sample is None or code is None or self._surviving is None:
            return None
        group_rows = np.bincount(code[self._surviving.rows])
        if self.is_whole:
            return Sizes.counted(group_rows.astype(np.float64))
        if self._surviving.rows.size < FEWEST_ROWS:
            return None
        share = sample.rows / max(1, self.statistics.rows)
        return Sizes.estimated(group_rows[group_rows > 0], share, groups, self.rows)

    def ndv(self, column: PlanColumn) -> float | None:
        """Return the NDV of a column behind the filters."""
        stats = self.statistics.columns.get(column.name)
        if not self.holds(column):
            return None
        if self.is_whole:
            counted = self._counted_groups((column.name,), filtered=True, messages=(), nulls=False)
            if counted is not None:
                return counted
        if stats is None:
            return self._groups((column.name,), filtered=True)
        surviving_values = float(expected_distinct(stats.ndv, float(self.statistics.rows), self.filtered.share))
        domain = self.domain(column) or surviving_values
        within = float(expected_distinct(domain, self.rows / max(1e-9, self._beside(column)), self._beside(column)))
        return max(1.0, min(surviving_values if self.filtered.domains.get(column.name) is None else within, domain))

    def _beside(self, column: PlanColumn) -> float:
        """Return the selectivity of filters on other columns among the rows that filters on this column keep."""
        domain = self.filtered.domains.get(column.name)
        stats = self.statistics.columns[column.name]
        own = share_of(domain, stats, self.statistics.rows) if domain is not None else None
        return min(1.0, self.filtered.share / max(1e-12, own.share)) if own is not None else self.filtered.share

    def domain(self, column: PlanColumn) -> float | None:
        """Return the NDV of a column behind the filters on the column itself."""
        stats = self.statistics.columns.get(column.name)
        if stats is None or not self.holds(column):
            return None
        domain = self.filtered.domains.get(column.name)
        domain_share = share_of(domain, stats, self.statistics.rows) if domain is not None else None
        return max(1.0, stats.ndv * (domain_share.share if domain_share is not None else 1.0))

    def present(self, column: PlanColumn) -> float:
        """Return the share of rows whose column is not NULL."""
        stats = self.statistics.columns.get(column.name)
        return 1.0 - stats.nulls / self.statistics.rows if stats is not None and self.statistics.rows else 1.0

    def nulls(self, column: PlanColumn) -> float:
        """Return the share of the filtered rows whose column is NULL."""
        behind = self.behind(
            [f"{exp.column(exp.to_identifier(column.name, quoted=True)).sql(dialect=self._dialect)} IS NULL"]
        )
        return min(1.0, behind.rows / self.rows) if self.rows > 0.0 else 0.0

    def sampled(self, column: PlanColumn, key: tuple[str, ...] = ()) -> tuple[Base, Floats] | None:
        """Return itself, with the weights of its sampled rows: 1 behind the filters, else 0."""
        return self.weighted((), key) if self.holds(column) else None

    def weighted(self, messages: Sequence[Message], key: tuple[str, ...] = ()) -> tuple[Base, Floats] | None:
        """Return itself, with the weights that joins give its sampled rows. key: by which they were drawn, if any."""
        surviving = self._sampled_by(Member(self.statistics, key)) if key else self._surviving
        if surviving is None:
            return None
        weights = np.zeros(surviving.sample.rows)
        weights[surviving.rows] = surviving.factors(messages)
        return self, weights

    def combinations(self, columns: Sequence[PlanColumn]) -> float:
        """Return the number of combinations of columns that are possible, before filters."""
        groups = self._groups(_names(columns), filtered=False)
        return max(1.0, float(self.statistics.rows) if groups is None else groups)

    def distinct(self, columns: Sequence[PlanColumn], messages: Sequence[Message] = ()) -> float | None:
        """Return the number of combinations of columns behind the filters."""
        return self._groups(_names(columns), filtered=True, messages=messages)

    def counts_combinations(self, columns: Sequence[PlanColumn]) -> bool:
        """Return whether the table has a sample."""
        return self.statistics.sample is not None

    def base(self, column: PlanColumn) -> Base | None:
        """Return itself for its columns."""
        return self if self.holds(column) else None

    @property
    def _types(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, column.data_type) for name, column in self.statistics.columns.items())

    def _groups(
        self, names: tuple[str, ...], *, filtered: bool, messages: Sequence[Message] = (), nulls: bool = True
    ) -> float | None:
        """Return the number of groups of the rows.

        names: columns or expressions (SQL text) to group by. filtered: behind the filters.
        messages: of joins that the rows went through. nulls: NULL counts as a value.
        """
        if self.is_whole:
            counted = self._counted_groups(names, filtered=filtered, messages=messages, nulls=nulls)
            if counted is not None:
                return counted
        counts = [self._values(name, filtered=filtered) for name in names]
        value_counts = [count for count in counts if count is not None]
        if len(value_counts) < len(counts):
            return None
        rows = self.rows if filtered else float(self.statistics.rows)
        surviving_share = min(1.0, self._surviving_share(messages)) if messages else 1.0
        least, most = max(value_counts, default=1.0), min(math.prod(value_counts), max(1.0, rows * surviving_share))
        computed = any(name not in self.statistics.columns for name in names)
        if len(names) < 2 and not computed and not messages:
            return min(least, most)
        groups = self._sampled_groups(names, value_counts, filtered=filtered, messages=messages)
        if groups is None and not filtered:
            groups = most
        if groups is None:  # exponential back-off: columns of one table are rarely independent
            descending = sorted(value_counts, reverse=True)
            groups = math.prod(math.pow(count, 0.5**place) for place, count in enumerate(descending))
            groups = float(expected_distinct(min(groups, max(1.0, rows)), rows, surviving_share))
        return min(max(groups, 1.0 if computed or messages else least), most)

    def _surviving_share(self, messages: Sequence[Message]) -> float:
        """Return the share of the filtered rows that have a match in all joins."""
        if self._surviving is not None and self._surviving.rows.size:
            return float(self._surviving.chances(messages).sum()) / self._surviving.rows.size
        return math.prod(float(message.match_share.mean()) for message in messages)

    def _counted_groups(
        self, names: tuple[str, ...], *, filtered: bool, messages: Sequence[Message], nulls: bool
    ) -> float | None:
        sample = self.statistics.sample
        code = combined_codes(names, sample, self._types, self._dialect) if sample is not None else None
        if sample is None or code is None or self._surviving is None:
            return None
        rows = self._surviving.rows if filtered else np.arange(sample.rows)
        code, chances = code[rows], self._surviving.chances(messages) if filtered else np.ones(sample.rows)
        if not nulls and names[0] in sample.columns:
            chances = np.where(sample.columns[names[0]].nulls[rows], 0.0, chances)
        log_misses = np.bincount(code, np.log1p(-np.minimum(chances, 1.0 - 1e-12)))
        return max(1.0, float((1.0 - np.exp(log_misses)).sum()))

    def _values(self, name: str, *, filtered: bool) -> float | None:
        """Return the number of values of a column, NULL included, or the largest possible number for an expression."""
        stats = self.statistics.columns.get(name)
        if stats is not None:
            column = PlanColumn(name, stats.data_type, self.statistics.table, self.scan)
            values = (self.ndv(column) or 1.0) if filtered else max(1.0, stats.ndv)
            return values + (stats.nulls > 0)
        used_columns = columns_in(name, self._dialect)
        if used_columns is None:
            return None
        counts = [
            self._values(used, filtered=filtered) if used in self.statistics.columns else None for used in used_columns
        ]
        value_counts = [count for count in counts if count is not None]
        return math.prod(value_counts) if len(value_counts) == len(counts) else None

    def _sampled_groups(
        self, names: tuple[str, ...], counts: Sequence[float], *, filtered: bool, messages: Sequence[Message]
    ) -> float | None:
        """Return the number of groups, extrapolated from the sample; None if the sample lacks a column."""
        statistics, sample = self.statistics, self.statistics.sample
        code = combined_codes(names, sample, self._types, self._dialect) if sample is not None else None
        if sample is None or code is None or not sample.rows:
            return None
        whole = float(statistics.rows)
        surviving = self._surviving if filtered and (self.filtered.share < 1.0 or messages) else None
        mask = surviving.mask if surviving is not None else None
        share, surviving_share = self.filtered.share if filtered else 1.0, 1.0
        if messages and surviving is not None:
            surviving_share = self._surviving_share(messages)
            mask = np.zeros(sample.rows, dtype=np.bool_)
            mask[surviving.rows[surviving.chances(messages) > 0.5]] = True
        is_large = mask is not None and mask.sum() >= FEWEST_ROWS
        rows, seen = (self.rows * surviving_share, mask) if is_large else (whole, None)
        groups = estimated_groups(code, seen, rows, guess=independent(counts, rows))
        plain_columns = [name for name in names if name in statistics.columns]
        largest = max(plain_columns, key=lambda name: statistics.columns[name].ndv, default=None)
        alone = codes_of(largest, sample, self._types, self._dialect) if largest is not None else None
        if alone is not None and largest is not None and sample.rows < statistics.rows:
            exponent = skew(alone, whole, statistics.columns[largest].ndv + (statistics.columns[largest].nulls > 0))
            groups = rows * math.pow(min(1.0, groups / rows), exponent)
        if seen is not None or not filtered:
            return groups
        return float(expected_distinct(groups, whole, share * surviving_share))


@dataclass(frozen=True, slots=True, eq=False)
class _ExactCells:
    """Cells of single keys of which all rows were sampled. All arrays have the shape (n,).

    cells: their numbers.
    rows, hits: sampled rows of each, before and behind the filters.
    sums: sum over the hits of the factors (or chances) of messages.
    """

    cells: Places
    rows: Floats
    hits: Floats
    sums: Floats


def _names(columns: Sequence[PlanColumn]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(column.name for column in columns))


def _most(messages: Sequence[Message]) -> float:
    """Return the largest factor by which messages multiply a row."""
    return math.prod(max(float(message.upper.max(initial=0.0)), message.null) for message in messages)


def _scaled(shares: Floats, most: Floats, rows: Floats, target_rows: float, free: Bools) -> Floats:
    """Scale the free shares, each up to its entry in ``most``, until all cells together keep ``target_rows``."""
    fixed = float((shares * rows)[~free].sum())
    for _ in range(3):
        free_rows = float((shares * rows)[free].sum())
        if free_rows <= 0.0 or abs(free_rows + fixed - target_rows) <= 1e-6 * target_rows:
            break
        shares = np.where(free, np.minimum(shares * max(0.0, (target_rows - fixed) / free_rows), most), shares)
    return shares
