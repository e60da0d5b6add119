"""Classes of columns that the joins of a statement make equal, each over one cut of its line of keys.

A class has a cell for every key that is known by itself: those of tables of which the sample holds every row, and
constants that predicates name. All other keys lie in ranges: the bins that the tables' key statistics share, cut once
more where a predicate cuts the line. What a table has in each cell is in ``counts``.

Cuts without predicates are kept for the statements to come; where a predicate cuts more, only that is computed anew. It
is long because such a cut answers everything by the one that it was made of.
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

HASHES = 2.0**53  # the line of hashes ends here
MOST_BYTES = 128 << 20  # of cuts that are kept for other statements
CUTS_AT_ONCE = 8  # new ones, before their bytes are counted
MOST_CONSTANTS = 4096  # of a predicate that get cells for themselves


@dataclass(frozen=True, slots=True)
class Member:
    """Columns of a table that are a key together. statistics are compared by identity."""

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
        """Tell whether its keys lie where their hash lies."""
        return len(self.columns) > 1 or self.types[0] == "text"

    @property
    def types(self) -> tuple[str, ...]:
        """Return ``text`` or ``number`` for each column; keys of different types have no line in common."""
        columns = self.statistics.columns
        return tuple("text" if line_of(columns[name].data_type).text else "number" for name in self.columns)

    @property
    def name(self) -> str:
        """Return the name that its key statistics have."""
        return SEPARATOR.join(self.columns)

    @property
    def counted(self) -> KeyStatistics | None:
        """Return its key statistics."""
        return self.statistics.keys.get(self.name)

    @property
    def bins(self) -> Bins | None:
        """Return what its key statistics count over."""
        return self.counted.bins if self.counted is not None else None


@dataclass(frozen=True, slots=True, eq=False)
class KeyClass:
    """One cut of a line of keys: known keys first, then ranges; NULL has the number behind the last cell.

    keys: shape (k,), increasing places of known keys. parts: of each column of the key its values, numbers or strings,
    of shape (k,), by which predicates are answered. exists: shape (k,), whether a table is known to hold it.
    ranges: of all other keys. bin_of: shape (count,), the range in which a cell lies, as ``shared`` counts them.
    shared: the bins of the members' key statistics; None where nobody counted. made_of: another one that was cut once
    more.
    """

    members: tuple[Member, ...]
    keys: Floats
    parts: tuple[NDArray[np.float64] | NDArray[np.object_], ...]
    exists: Bools
    ranges: Bins
    shared: Bins | None
    bin_of: Places
    made_of: Finer | None = None
    cache: dict[object, Any] = field(default_factory=dict)  # values computed from this cut, by the caller's key

    @property
    def count(self) -> int:
        """Tell how many cells there are."""
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
        """Tell whether keys lie where their hash lies."""
        return self.members[0].is_hashed

    def of(self, line: Floats) -> Places:
        """Return the cells of places."""
        cells: Places = self.ranges.of(line) + self.keys.size
        if self.keys.size:
            at = np.minimum(np.searchsorted(self.keys, line), self.keys.size - 1)
            cells = np.where(self.keys[at] == line, at, cells)
        return cells

    @property
    def bytes(self) -> int:
        """Memory that it takes, with what was computed from it."""
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

        names: of its columns. rows: numbers of those that count; else all.
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
        """Return the cells of a column's different values, and of NULL; of a key of several columns, of each row."""
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
        """Return the cells of a column's different values, and of NULL, shape (n + 1,)."""
        self.codes(sample, names, np.empty(0, dtype=np.intp))
        codes: NDArray[np.int32] = self.cache["codes", id(sample), names][0]
        return codes

    def sampled(self, sample: RowSample, names: tuple[str, ...]) -> Places:
        """Return how many sampled rows lie in each cell, shape (count,)."""
        cache_key = "sampled", id(sample), names
        if cache_key not in self.cache:
            self.cache[cache_key] = np.bincount(self.codes(sample, names), minlength=self.count + 1)[:-1], sample
        sampled_rows: Places = self.cache[cache_key][0]
        return sampled_rows

    def keys_in_domain(self, part: int, domain: Domain) -> tuple[Bools, Floats | None]:
        """Return which known keys lie in a domain of one of their columns, and which part of each range does.

        None for ranges about which the line does not tell: of strings, and of several columns.
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
    """Return which of some increasing values a domain holds, shape as ``values``."""
    is_held = np.zeros(values.size, dtype=np.bool_)
    for low, high in domain.stretches(values):
        is_held[low:high] = True
    return is_held


@dataclass(frozen=True, slots=True, eq=False)
class Finer:
    """How a class is made of another one, by constants and cuts of predicates.

    whole: the other one. fresh: shape (k,), before which of its keys the new ones stand; at: where they are now. moved:
    shape (whole.count + 1,), where its cells, and NULL, are now. is_cut: alike, which cells were taken apart.
    """

    whole: KeyClass
    fresh: Places
    at: Places
    moved: Places
    is_cut: Bools


@dataclass(frozen=True, slots=True, eq=False)
class SampledKeys:
    """The different keys of a sample.

    line: shape (keys,), their places, increasing. chance: shape (keys,), by which they were chosen. of_rows: shape
    (rows,), which of them each row has. rows: shape (keys,), how many rows have each.
    """

    line: Floats
    chance: Floats
    of_rows: Places
    rows: Floats


@lru_cache(maxsize=256)
def sampled_keys(sample: RowSample, names: tuple[str, ...]) -> SampledKeys:
    """Return the different keys of a sample. names: of a key's columns, none of which is NULL."""
    line, of_rows, rows = np.unique(row_line(sample, names), return_inverse=True, return_counts=True)
    return SampledKeys(line, chance_of(line), of_rows, rows.astype(np.float64))


def row_line(sample: RowSample, names: Sequence[str]) -> Floats:
    """Return the place of each sampled row's key, shape (rows,); of NULLs anything."""
    lines = []
    for name in names:
        column = sample.columns[name]
        lines.append(np.append(line_of_sample(column), 0.0)[column.codes])
    return line_together(lines) if len(lines) > 1 else lines[0]


class _Cuts:
    """Cuts of lines without predicates, those that were asked for last, in MOST_BYTES."""

    def __init__(self) -> None:
        self._cached: OrderedDict[tuple[Member, ...], KeyClass] = OrderedDict()
        self._lock = Lock()
        self._unchecked = 0

    def of(self, members: tuple[Member, ...]) -> KeyClass:
        """Return the cut for some members of one type."""
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
        """Forget those that were not asked for, from the longest ago on."""
        self._unchecked = 0
        free_bytes = MOST_BYTES
        for members, cells in reversed(list(self._cached.items())):
            free_bytes -= cells.bytes
            if free_bytes < 0:
                del self._cached[members]


_cuts = _Cuts()


def key_class(members: tuple[Member, ...], domains: tuple[tuple[Domain, ...], ...]) -> KeyClass | None:
    """Return the cut for some members; None where their keys have no line in common.

    domains: of each column of the key those that predicates name.
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
    """Give cells of their own to the constants that domains of a single column name, and cut ranges where they do."""
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
    """Return the places of the constants that domains name one by one, increasing, and the constants."""
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
    """Return keys that are known by themselves: their places, the values of their columns, and that they exist.

    Those of members that are whole; and of others, where a hash does not tell a key's values, the sampled ones with a
    bin for themselves.
    """
    popular = np.empty(0)
    if shared is not None and members[0].is_hashed:
        popular = np.asarray(shared.starts, dtype=np.float64)[shared.alone]
    parts_of_members = []
    for member in members:
        if member.is_whole:
            assert member.statistics.sample is not None
            parts_of_members.append(_different(member.statistics.sample, member.columns, None))
        elif popular.size:
            chosen = member.counted.sample.rows if member.counted is not None and member.counted.sample else None
            parts_of_members += [
                _different(sample, member.columns, popular)
                for sample in (member.statistics.sample, chosen)
                if sample is not None and all(name in sample.columns for name in member.columns)
            ]
    if not parts_of_members:
        kinds = (object if text == "text" else np.float64 for text in members[0].types)
        return np.empty(0), tuple(np.empty(0, dtype=kind) for kind in kinds), np.empty(0, dtype=np.bool_)
    keys, first_rows = np.unique(np.concatenate([line for line, _ in parts_of_members]), return_index=True)
    column_values = tuple(
        np.concatenate(columns)[first_rows] for columns in zip(*(parts for _, parts in parts_of_members), strict=True)
    )
    return keys, column_values, np.ones(keys.size, dtype=np.bool_)


def _different(
    sample: RowSample, names: tuple[str, ...], only: Floats | None
) -> tuple[Floats, list[NDArray[np.float64] | NDArray[np.object_]]]:
    """Return the different keys of a sample, with the values of their columns. only: places that count."""
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
    """Yield the values that a domain keeps, or leaves out, one by one."""
    for (low, _), (high, _) in zip(domain.cuts[:-1], domain.cuts[1:], strict=True):
        if low == high and not (isinstance(low, bytes) and len(low) >= MOST_TEXT_BYTES):
            yield low


def _shared(members: Sequence[Member]) -> Bins | None:
    """Return the bins that most members count over."""
    counted = [bins for member in members if (bins := member.bins) is not None]
    return max(counted, key=lambda bins: (bins.version, bins.count), default=None)


def _starts(members: Sequence[Member], *, hashed: bool) -> Floats:
    """Return ranges for members whose keys nobody counted."""
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
    """Return where a column was read, whatever type it was cast to on its way."""
    return column.table, column.name, column.scan


class KeyClasses:
    """The classes of a plan: columns that its joins compare, directly or through others."""

    def __init__(self, plan: Plan, statistics: Mapping[str, TableStatistics]) -> None:
        """Find the columns that are equal."""
        self.sent: dict[object, tuple[object, ...]] = {}  # what joins told each other, by whom, for all joins above
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
        """Tell of a predicate on a column, before any class is asked for."""
        if origin(column) in self._leader:
            self._domains.setdefault(self._find(origin(column)), []).append(domain)

    def together(self, members: tuple[Member, ...]) -> KeyClass | None:
        """Return the class of several columns that are a key together. members: in order."""
        if members not in self._several:
            self._several[members] = key_class(members, ((),))
        return self._several[members]

    def of(self, column: PlanColumn) -> KeyClass | None:
        """Return a column's class; None for one that is not joined, or of which nothing is known."""
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
        """Return whether two columns are the same one, or joins make them equal."""
        return origin(a) == origin(b) or origin(b) in self._with(a)

    def equal_in(self, column: PlanColumn, table: str | None, scan: int | None) -> str | None:
        """Return the column of a scan that a column is, or that joins make equal to it; None without one."""
        if (column.table, column.scan) == (table, scan):
            return column.name
        return next(
            (
                name
                for other_table, name, other_scan in self._with(column)
                if (other_table, other_scan) == (table, scan)
            ),
            None,
        )

    def scans_of(self, column: PlanColumn) -> list[tuple[str | None, int | None]]:
        """Return the scans, as (table, number), that have a column or one that joins make equal to it."""
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
