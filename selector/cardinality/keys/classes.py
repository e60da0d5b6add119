"""Classes of columns that the joins of a statement make equal, each with its line of keys divided into cells.

A class has a cell for every known key: those of tables of which the sample holds every row, and constants in
predicates. All other keys lie in ranges: the bins that the tables' key statistics share, cut further at the ends of
predicates. ``counts`` has each table's rows per cell.

Cells without predicates are cached for later statements; for predicates, only the cells that these cut are computed
again. It is long because a finer division derives everything from the coarser one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selector.cardinality.predicates.domain_selectivity import line_of
from selector.cardinality.predicates.domains import Domain, places_of
from selector.join_keys import SEPARATOR, Bins, KeyStatistics, chance_of
from selector.key_line import Floats, line_of_sample, line_of_texts, line_together
from selector.plan import Operator, Plan, PlanColumn
from selector.row_sample import RowSample
from selector.statistics import MOST_TEXT_BYTES, TableStatistics

Bools = NDArray[np.bool_]
Places = NDArray[np.intp]

HASHES = 2.0**53  # end of the line of hashes
MOST_BYTES = 128 << 20  # of classes cached for other statements
CUTS_AT_ONCE = 8  # new classes, after which the cached bytes are counted
MOST_CONSTANTS = 4096  # of a class's predicates, beyond which none gets a cell of its own


@dataclass(frozen=True, slots=True)
class Member:
    """Columns of a table that are a key together.

    statistics: compared by identity.
    """

    statistics: TableStatistics
    columns: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Tell whether the sample holds every row, so that every key is known."""
        sample = self.statistics.sample
        if sample is None or sample.rows != self.statistics.rows or sample.share < 1.0:
            return False
        return all(name in sample.columns for name in self.columns)

    @property
    def is_hashed(self) -> bool:
        """Tell whether the places of its keys are hashes."""
        return len(self.columns) > 1 or self.types[0] == "text"

    @property
    def types(self) -> tuple[str, ...]:
        """``text`` or ``number`` for each column; keys of different types have no line in common."""
        columns = self.statistics.columns
        return tuple("text" if line_of(columns[name].data_type).text else "number" for name in self.columns)

    @property
    def name(self) -> str:
        """Name of its key statistics."""
        return SEPARATOR.join(self.columns)

    @property
    def counted(self) -> KeyStatistics | None:
        """Key statistics of the columns; None: not collected."""
        return self.statistics.keys.get(self.name)

    @property
    def bins(self) -> Bins | None:
        """Bins of its key statistics."""
        return self.counted.bins if self.counted is not None else None


@dataclass(frozen=True, slots=True, eq=False)
class KeyClass:
    """Division of a line of keys into cells: known keys first, then ranges; NULL has the number ``count``.

    keys: shape (k,), increasing places of known keys.
    parts: by column of the key, shape (k,): values of known keys, numbers or strings, to evaluate predicates.
    exists: shape (k,), True if a table is known to have the key.
    ranges: of all other keys.
    shared: bins of the members' key statistics; None without any.
    bin_of: shape (count,), number of the bin of ``shared`` that has the cell.
    made_of: the coarser class that this one was derived from.
    """

    members: tuple[Member, ...]
    keys: Floats
    parts: tuple[NDArray[np.float64] | NDArray[np.object_], ...]
    exists: Bools
    ranges: Bins
    shared: Bins | None
    bin_of: Places
    made_of: Finer | None = None
    cache: dict[object, Any] = field(default_factory=dict)  # values computed from this class, by the caller's key

    @property
    def count(self) -> int:
        """Number of cells."""
        return int(self.keys.size) + self.ranges.count

    @property
    def alone(self) -> Bools:
        """Cells that hold a single key, shape (count,)."""
        if "alone" not in self.cache:
            self.cache["alone"] = np.append(np.ones(self.keys.size, dtype=np.bool_), self.ranges.alone)
        alone: Bools = self.cache["alone"]
        return alone

    @property
    def is_hashed(self) -> bool:
        """Tell whether the places of keys are hashes."""
        return self.members[0].is_hashed

    def of(self, line: Floats) -> Places:
        """Return the cells of places on the line."""
        cells: Places = self.ranges.of(line) + self.keys.size
        if self.keys.size:
            at = np.minimum(np.searchsorted(self.keys, line), self.keys.size - 1)
            cells = np.where(self.keys[at] == line, at, cells)
        return cells

    @property
    def bytes(self) -> int:
        """Memory of its arrays and cached values."""
        arrays = [self.keys, *self.parts, self.exists, self.bin_of, self.ranges.starts]
        pending: list[Any] = list(self.cache.values())
        while pending:
            value = pending.pop()
            if isinstance(value, np.ndarray):
                arrays.append(value)
            elif isinstance(value, tuple):
                pending.extend(value)
            elif is_dataclass(value) and not isinstance(value, RowSample):
                pending.extend(getattr(value, field_.name) for field_ in fields(value))
        return sum(array.nbytes for array in arrays)

    def codes(self, sample: RowSample, names: tuple[str, ...], rows: Places | None = None) -> Places:
        """Return the cell of each sampled row, shape (rows,); ``count`` for a key with NULL.

        names: of the key's columns. rows: numbers of the rows to return; None: all.
        """
        cache_key = "codes", id(sample), names
        if cache_key not in self.cache:  # the cached value keeps the sample alive, so that its id stays unique
            self.cache[cache_key] = self._codes(sample, names), sample
        codes: NDArray[np.int32] = self.cache[cache_key][0]
        if len(names) == 1:
            value_numbers = sample.columns[names[0]].codes
            return codes[value_numbers if rows is None else value_numbers[rows]].astype(np.intp)
        return (codes if rows is None else codes[rows]).astype(np.intp)

    def _codes(self, sample: RowSample, names: tuple[str, ...]) -> NDArray[np.int32]:
        """Return the cells of a column's distinct values, and of NULL; for a key of several columns, of each row."""
        columns = [sample.columns[name] for name in names]
        if len(columns) == 1:
            line = line_of_sample(columns[0])
            if self.made_of is None:
                return np.append(self.of(line), self.count).astype(np.int32)
            codes_before = self.made_of.whole.codes_of_values(sample, names)
            cells = self.made_of.moved[codes_before]
            recut = np.flatnonzero(self.made_of.is_cut[codes_before])
            cells[recut] = self.of(line[recut])
            return cells.astype(np.int32)
        missing = np.logical_or.reduce([column.nulls for column in columns])
        return np.where(missing, self.count, self.of(row_line(sample, names))).astype(np.int32)

    def codes_of_values(self, sample: RowSample, names: tuple[str, ...]) -> NDArray[np.int32]:
        """Return the cells of a column's distinct values, and of NULL, shape (n + 1,)."""
        self.codes(sample, names, np.empty(0, dtype=np.intp))
        codes: NDArray[np.int32] = self.cache["codes", id(sample), names][0]
        return codes

    def sampled(self, sample: RowSample, names: tuple[str, ...]) -> Places:
        """Return the number of sampled rows in each cell, shape (count,)."""
        cache_key = "sampled", id(sample), names
        if cache_key not in self.cache:
            self.cache[cache_key] = np.bincount(self.codes(sample, names), minlength=self.count + 1)[:-1], sample
        sampled_rows: Places = self.cache[cache_key][0]
        return sampled_rows

    def keys_in_domain(self, part: int, domain: Domain) -> tuple[Bools, Floats | None]:
        """Return the known keys in a domain of one of their columns, shape (k,), and the share of each range in it.

        The share is None if the places are hashes: of strings, and of several columns.
        """
        if not self.is_hashed:
            starts: Any = self.ranges.starts
            return _values_in_domain(domain, self.keys), _values_in_domain(domain, starts).astype(np.float64)
        if self.made_of is not None:
            in_domain, _ = self.made_of.whole.keys_in_domain(part, domain)
            fresh = self.made_of.fresh
            return np.insert(in_domain, fresh, domain.holds_each(places_of(self.parts[part][self.made_of.at]))), None
        if ("order", part) not in self.cache:
            values: Any = self.parts[part]
            order = np.argsort(values, kind="stable")
            self.cache["order", part] = order, values[order]
        order, values = self.cache["order", part]
        in_domain = np.empty(self.keys.size, dtype=np.bool_)
        in_domain[order] = _values_in_domain(domain, values)
        return in_domain, None


def _values_in_domain(domain: Domain, values: NDArray[np.float64] | NDArray[np.object_]) -> Bools:
    """Return True for each of some increasing values that is in a domain, shape as ``values``."""
    is_held = np.zeros(values.size, dtype=np.bool_)
    for low, high in domain.stretches(values):
        is_held[low:high] = True
    return is_held


@dataclass(frozen=True, slots=True, eq=False)
class Finer:
    """Derivation of a class from a coarser one, by constants and ends of predicates.

    whole: the coarser class.
    fresh: shape (k,), number of its key before which each new key was inserted.
    at: shape (k,), numbers of the new keys.
    moved: shape (whole.count + 1,), new number of each cell, and of NULL.
    is_cut: shape (whole.count + 1,), True for cells that were cut.
    """

    whole: KeyClass
    fresh: Places
    at: Places
    moved: Places
    is_cut: Bools


@dataclass(frozen=True, slots=True, eq=False)
class SampledKeys:
    """Distinct keys of a sample.

    line: shape (keys,), their places, increasing.
    chance: shape (keys,), hashes 0..1, by which they were drawn.
    of_rows: shape (rows,), number of each row's key.
    rows: shape (keys,), rows of each key.
    """

    line: Floats
    chance: Floats
    of_rows: Places
    rows: Floats


@lru_cache(maxsize=256)
def sampled_keys(sample: RowSample, names: tuple[str, ...]) -> SampledKeys:
    """Return the distinct keys of a sample. names: of a key's columns, without NULLs."""
    line, of_rows, rows = np.unique(row_line(sample, names), return_inverse=True, return_counts=True)
    return SampledKeys(line, chance_of(line), of_rows, rows.astype(np.float64))


def row_line(sample: RowSample, names: Sequence[str]) -> Floats:
    """Return the place of each sampled row's key, shape (rows,); undefined for NULL."""
    lines = []
    for name in names:
        column = sample.columns[name]
        lines.append(np.append(line_of_sample(column), 0.0)[column.codes])
    return line_together(lines) if len(lines) > 1 else lines[0]


class _Cuts:
    """Cache of classes without predicates: the last used ones, in MOST_BYTES."""

    def __init__(self) -> None:
        self._cached: OrderedDict[tuple[Member, ...], KeyClass] = OrderedDict()
        self._lock = Lock()
        self._unchecked = 0

    def of(self, members: tuple[Member, ...]) -> KeyClass:
        """Return the class of some members of one type."""
        with self._lock:
            cells = self._cached.pop(members, None)
            if cells is not None:
                self._cached[members] = cells
                return cells
        cells = _cut(members)
        with self._lock:
            self._cached[members] = cells
            self._unchecked += 1
            if self._unchecked == CUTS_AT_ONCE:
                self._limit()
        return cells

    def _limit(self) -> None:
        """Drop the least recently used classes beyond MOST_BYTES."""
        self._unchecked = 0
        free_bytes = MOST_BYTES
        for members, cells in reversed(list(self._cached.items())):
            free_bytes -= cells.bytes
            if free_bytes < 0:
                del self._cached[members]


_cuts = _Cuts()


def key_class(members: tuple[Member, ...], domains: tuple[tuple[Domain, ...], ...]) -> KeyClass | None:
    """Return the class of some members; None if their keys have no line in common.

    domains: by column of the key, the domains of predicates.
    """
    if len({member.types for member in members}) != 1:
        return None
    whole = _cuts.of(members)
    return _finer(whole, domains[0]) if len(members[0].columns) == 1 and domains[0] else whole


def _cut(members: tuple[Member, ...]) -> KeyClass:
    shared = _shared(members)
    keys, parts, exists = _single_keys(members, shared)
    ranges = shared if shared is not None else Bins(_starts(members, hashed=members[0].is_hashed))
    of_ranges = np.arange(ranges.count)
    of_keys = ranges.of(keys)
    return KeyClass(members, keys, parts, exists, ranges, shared, np.append(of_keys, of_ranges).astype(np.intp))


@lru_cache(maxsize=16)
def _finer(whole: KeyClass, domains: tuple[Domain, ...]) -> KeyClass:
    """Add a cell for each constant in the domains of a single column, and cut ranges at the ends of domains."""
    line, values = _constants(whole.is_hashed, domains)
    n_keys = whole.keys.size
    insert_at = np.searchsorted(whole.keys, line)
    is_new = np.ones(line.size, dtype=np.bool_)
    is_new[insert_at < n_keys] = whole.keys[insert_at[insert_at < n_keys]] != line[insert_at < n_keys]
    line, values, fresh = line[is_new], values[is_new], insert_at[is_new]
    starts: Any = whole.ranges.starts
    more = np.empty(0)
    if not whole.is_hashed:
        cuts = [np.nextafter(x, np.inf) if side else x for domain in domains for x, side in domain.cuts]
        more = np.setdiff1d(np.array([x for x in cuts if np.isfinite(x)], dtype=np.float64), starts)
    if not line.size and not more.size:
        return whole
    range_at = np.searchsorted(starts, more)
    keys, ranges = np.insert(whole.keys, fresh, line), Bins(np.insert(starts, range_at, more))
    if whole.shared is not None:
        of_keys = np.insert(whole.bin_of[:n_keys], fresh, whole.shared.of(line))
        of_ranges = np.insert(whole.bin_of[n_keys:], range_at, whole.shared.of(more))
    else:
        of_keys, of_ranges = ranges.of(keys), np.arange(ranges.count)
    moved_keys = np.arange(n_keys) + np.searchsorted(fresh, np.arange(n_keys), side="right")
    moved_ranges = np.arange(starts.size) + np.searchsorted(range_at, np.arange(starts.size), side="right") + keys.size
    is_cut = np.zeros(whole.count + 1, dtype=np.bool_)
    is_cut[whole.ranges.of(np.concatenate([line, more])) + n_keys] = True
    parts: Any = np.insert(whole.parts[0], fresh, values)
    made_of = Finer(
        whole,
        fresh,
        fresh + np.arange(fresh.size),
        np.concatenate([moved_keys, moved_ranges, [keys.size + ranges.count]]),
        is_cut,
    )
    return KeyClass(
        whole.members,
        keys,
        (parts,),
        np.insert(whole.exists, fresh, False),
        ranges,
        whole.shared,
        np.append(of_keys, of_ranges).astype(np.intp),
        made_of,
    )


def _constants(is_hashed: bool, domains: Iterable[Domain]) -> tuple[Floats, NDArray[Any]]:
    """Return the places of the single values in domains, increasing, and the values."""
    constants: list[Any] = sorted({value for domain in domains for value in _points(domain)})
    if not constants or len(constants) > MOST_CONSTANTS:
        return np.empty(0), np.empty(0, dtype=object if is_hashed else np.float64)
    if not is_hashed:
        line = np.array(constants, dtype=np.float64)
        return line, line
    line = line_of_texts([value for value in constants if isinstance(value, bytes)])
    values: Any = np.array([value.decode("utf-8", "replace") for value in constants], dtype=object)
    order = np.argsort(line)
    return line[order], values[order]


def _single_keys(
    members: Sequence[Member], shared: Bins | None
) -> tuple[Floats, tuple[NDArray[np.float64] | NDArray[np.object_], ...], Bools]:
    """Return the known keys: their places, the values of their columns, and that they exist.

    All keys of members that are whole; of others, if places are hashes, the sampled keys with a bin of their own.
    """
    popular = np.empty(0)
    if shared is not None and members[0].is_hashed:
        popular = np.asarray(shared.starts, dtype=np.float64)[shared.alone]
    samples = []
    for member in members:
        if member.is_whole:
            assert member.statistics.sample is not None
            samples.append(_different(member.statistics.sample, member.columns, None))
        elif popular.size:
            chosen = member.counted.sample.rows if member.counted is not None and member.counted.sample else None
            samples += [
                _different(sample, member.columns, popular)
                for sample in (member.statistics.sample, chosen)
                if sample is not None and all(name in sample.columns for name in member.columns)
            ]
    if not samples:
        kinds = (object if text == "text" else np.float64 for text in members[0].types)
        return np.empty(0), tuple(np.empty(0, dtype=kind) for kind in kinds), np.empty(0, dtype=np.bool_)
    keys, first = np.unique(np.concatenate([line for line, _ in samples]), return_index=True)
    values = tuple(np.concatenate(columns)[first] for columns in zip(*(parts for _, parts in samples), strict=True))
    return keys, values, np.ones(keys.size, dtype=np.bool_)


def _different(
    sample: RowSample, names: tuple[str, ...], only: Floats | None
) -> tuple[Floats, list[NDArray[np.float64] | NDArray[np.object_]]]:
    """Return the distinct keys of a sample, with the values of their columns. only: places to return; None: all."""
    columns = [sample.columns[name] for name in names]
    if len(columns) == 1:
        line, values = line_of_sample(columns[0]), columns[0].values
        is_counted = np.isin(line, only) if only is not None else np.ones(line.size, dtype=np.bool_)
        return line[is_counted], [values[is_counted]]
    rows = np.flatnonzero(~np.logical_or.reduce([column.nulls for column in columns]))
    line = row_line(sample, names)[rows]
    rows, line = (rows, line) if only is None else (rows[np.isin(line, only)], line[np.isin(line, only)])
    line, first = np.unique(line, return_index=True)
    return line, [column.padded[column.codes[rows[first]]] for column in columns]


def _points(domain: Domain) -> Iterator[float | bytes]:
    """Yield the single values that a domain contains or excludes."""
    for (low, _), (high, _) in zip(domain.cuts[:-1], domain.cuts[1:], strict=True):
        if low == high and not (isinstance(low, bytes) and len(low) >= MOST_TEXT_BYTES):
            yield low


def _shared(members: Sequence[Member]) -> Bins | None:
    """Return the bins of the latest version among the members' key statistics; None without any."""
    counted = [bins for member in members if (bins := member.bins) is not None]
    return max(counted, key=lambda bins: (bins.version, bins.count), default=None)


def _starts(members: Sequence[Member], *, hashed: bool) -> Floats:
    """Return the starts of ranges for members without key statistics: end points of their histograms."""
    if hashed:
        return np.zeros(1)
    ends = [
        column.histogram.endpoints
        for member in members
        if (column := member.statistics.columns[member.columns[0]]).histogram is not None
    ]
    ends = [end for end in ends if end.dtype.kind == "f"]
    return np.unique(np.concatenate(ends)) if ends else np.array([-np.inf])


Origin = tuple[str | None, str, int | None]


def origin(column: PlanColumn) -> Origin:
    """Return the table, name and scan of a column, without the type it was cast to."""
    return column.table, column.name, column.scan


class KeyClasses:
    """Key classes of a plan: columns that its joins compare, directly or transitively."""

    def __init__(self, plan: Plan, statistics: Mapping[str, TableStatistics]) -> None:
        """Collect the equal columns."""
        self.sent: dict[object, tuple[object, ...]] = {}  # cache of messages between relations, for all joins above
        self._statistics = statistics
        self._leader: dict[Origin, Origin] = {}
        self._domains: dict[Origin, list[Domain]] = {}
        self._classes: dict[Origin, KeyClass | None] = {}
        self._several: dict[tuple[Member, ...], KeyClass | None] = {}
        for _, node in plan.root.walk():
            for probe, build in node.join_keys:
                self._unite(probe, build)
            if node.operator is Operator.UNION:
                first = node.children[0].columns if node.children else ()
                for child in node.children[1:]:
                    for a, b in zip(first, child.columns, strict=False):
                        self._unite(a, b)

    def constrain(self, column: PlanColumn, domain: Domain) -> None:
        """Add the domain of a predicate on a column; before the first call of ``of``."""
        if origin(column) in self._leader:
            self._domains.setdefault(self._find(origin(column)), []).append(domain)

    def together(self, members: tuple[Member, ...]) -> KeyClass | None:
        """Return the class of keys of several columns. members: in order."""
        if members not in self._several:
            self._several[members] = key_class(members, ((),))
        return self._several[members]

    def of(self, column: PlanColumn) -> KeyClass | None:
        """Return a column's class; None for a column that is not joined, or without statistics."""
        if origin(column) not in self._leader:
            return None
        leader = self._find(origin(column))
        if leader not in self._classes:
            members = dict.fromkeys(
                Member(table_statistics, (name,))
                for table, name, scan in self._leader
                if self._find((table, name, scan)) == leader
                and (table_statistics := self._statistics.get(table or "")) is not None
                and name in table_statistics.columns
            )
            domains = tuple(dict.fromkeys(self._domains.get(leader, ())))
            self._classes[leader] = key_class(_in_order(members), (domains,)) if members else None
        return self._classes[leader]

    def are_equal(self, a: PlanColumn, b: PlanColumn) -> bool:
        """Return whether two columns are the same, or equal by joins."""
        return origin(a) == origin(b) or origin(b) in self._with(a)

    def equal_in(self, column: PlanColumn, table: str | None, scan: int | None) -> str | None:
        """Return the column of a scan that is a column, or equal to it by joins; None without one."""
        if (column.table, column.scan) == (table, scan):
            return column.name
        return next((name for at_table, name, at in self._with(column) if (at_table, at) == (table, scan)), None)

    def scans_of(self, column: PlanColumn) -> list[tuple[str | None, int | None]]:
        """Return the scans, as (table, number), with a column or one that is equal by joins."""
        return list(dict.fromkeys([(column.table, column.scan), *((table, at) for table, _, at in self._with(column))]))

    def _with(self, column: PlanColumn) -> list[Origin]:
        if origin(column) not in self._leader:
            return []
        leader = self._find(origin(column))
        return [other for other in self._leader if self._find(other) == leader]

    def _unite(self, a: PlanColumn, b: PlanColumn) -> None:
        for column in (a, b):
            self._leader.setdefault(origin(column), origin(column))
        first, second = self._find(origin(a)), self._find(origin(b))
        self._leader[second] = first

    def _find(self, at: Origin) -> Origin:
        while self._leader[at] != at:
            self._leader[at] = self._leader[self._leader[at]]
            at = self._leader[at]
        return at


def _in_order(members: Iterable[Member]) -> tuple[Member, ...]:
    return tuple(sorted(members, key=lambda member: (member.statistics.table, member.columns)))
