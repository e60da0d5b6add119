"""Sizes of DuckDB's pages, hash tables and sorts: its constants, and the bytes that follow from them.

Each is DuckDB's own where it stands in its source (2.0), or fitted to measured peaks (``python -m
benchmarks.calibrate``) where it does not. They hold for the settings of our workers: no spilling, one row group read
ahead, no cache of files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants of DuckDB's memory model.

    From its source (2.0):
    page_bytes: size of a page of rows, and of a page of their strings.
    hash_bytes: stored with each row of a join or an aggregate; in a join later the pointer to the next row.
    heap_size_bytes: stored with each row that has strings.
    join_partitions: partitions of a join's rows, for each thread that adds rows.
    join_load: entries of a join's table per row, rounded up to a power of two; minimum_join_entries: least entries.
    entry_bytes: size of an entry of either kind of table.
    grouping_load: entries of an aggregate's table per group, rounded up; grouping_entries: entries at its start.
    growing_threads: with more threads, such tables do not grow: a full one is emptied, and a group may be stored twice.
    combining_rows: least groups of a partition's table when the groups of several threads are combined.
    sort_key_bytes: sizes of a sort's keys; strings need the largest. pointer_bytes: pointer to the rest of the row.
    window_partitions: hash partitions of a window's rows; four times as many while a partition is expected to have more
    rows than a row group, up to most_window_partitions (HashedSort).
    perfect_range: largest range of an inner join's unique keys that become an array, which does not count to the limit.
    parallel_join_rows: a join of more rows is built by several threads.
    exact_filter_range: largest range of keys that a join passes to its probe side's scan as a bitmap; beyond, it is a
    Bloom filter of bloom_bits per row, rounded up to a power of two.
    filtering_rows: largest build side without a filter of its own that passes such a filter.
    numbering_rows, numbering_ratio, numbering_bytes: a join emits its build side's columns as dictionaries if the probe
    side has at least so many rows, so many times those of the build side, and the values take no more bytes
    (DictionaryEmissionActivation).

    Fitted:
    base_bytes: bytes of any statement.
    emptied_entries: entries of an aggregate's table that does not grow, as it should fit into a processor's cache.
    scan_decoded, scan_strings: share of a row group's bytes in the file, and of its strings, that a thread decodes.
    last_rows: share of an aggregate's or a sort's rows that have come when the operators below begin to free memory.
    growing_overlap: share of an aggregate's replaced tables that is alive together with the larger ones.
    text_places: bytes of a group's smallest or largest text, in average lengths.
    growing_state: bytes of a list or a set of values, which doubles when it is full, per byte of its values.
    sort_scratch, window_scratch: additional bytes per row.
    """

    page_bytes: int = 256 * KIB
    hash_bytes: int = 8
    heap_size_bytes: int = 8
    join_partitions: int = 16
    join_load: float = 2.0
    minimum_join_entries: int = 16_384
    entry_bytes: int = 8
    grouping_load: float = 1.5
    grouping_entries: int = 262_144
    growing_threads: int = 2
    combining_rows: int = 4_096
    sort_key_bytes: tuple[int, ...] = (8, 16, 24, 32)
    pointer_bytes: int = 8
    window_partitions: int = 16
    most_window_partitions: int = 256
    perfect_range: int = 1_048_576
    parallel_join_rows: int = 1_048_576
    exact_filter_range: int = 1 << 26
    bloom_bits: int = 12
    filtering_rows: int = 4_194_304
    numbering_rows: int = 262_144
    numbering_ratio: int = 100
    numbering_bytes: int = 8 * MIB

    base_bytes: float = 0.9 * MIB
    emptied_entries: int = 32_768
    scan_decoded: float = 0.8
    scan_strings: float = 1.0
    last_rows: float = 0.92
    growing_overlap: float = 0.6
    text_places: float = 1.5
    growing_state: float = 2.0
    sort_scratch: float = 7.5
    window_scratch: float = 5.0


CALIBRATED = Constants()
SMALLEST_ROWS = 1e-6  # of an estimate; fewer are none
THREAD_SHARES = (0.44, 0.47, 0.5, 0.53, 0.56)  # of two threads' rows: one is always a little ahead


def power_of_two(number: float) -> int:
    """Round up to a power of two."""
    return 1 << max(0, math.ceil(number) - 1).bit_length()


def occupied(parts: int, keys: float) -> float:
    """Return how many of so many parts have one of the keys at least, which fall into them by their hash."""
    return parts * -math.expm1(keys * math.log1p(-1.0 / parts)) if parts > 1 else 1.0


def pages_bytes(rows: float, row_bytes: float, parts: int, threads: int, constants: Constants = CALIBRATED) -> float:
    """Return the bytes of pages that rows fill which are divided into parts by each thread that adds them."""
    if rows < SMALLEST_ROWS or row_bytes <= 0:
        return 0.0
    shares = THREAD_SHARES if threads > 1 else (0.5,)
    met = occupied(parts, rows / threads)
    fit = constants.page_bytes / row_bytes
    pages = sum(math.ceil(rows * 2 * share / threads / parts / fit) for share in shares) / len(shares)
    return pages * met * threads * constants.page_bytes


def join_table_bytes(rows: float, constants: Constants = CALIBRATED) -> float:
    """Return the bytes of the table that points at a join's rows."""
    entries = max(constants.minimum_join_entries, power_of_two(constants.join_load * rows))
    return float(constants.entry_bytes * entries)


def grouping_table_bytes(groups: float, constants: Constants = CALIBRATED) -> float:
    """Return the bytes of the table in which a thread finds its groups."""
    entries = max(constants.grouping_entries, power_of_two(constants.grouping_load * groups))
    return float(constants.entry_bytes * entries)


def combining_table_bytes(groups: float, constants: Constants = CALIBRATED) -> float:
    """Return the bytes of the table in which the groups of a part are put together."""
    return float(constants.entry_bytes * power_of_two(constants.grouping_load * max(constants.combining_rows, groups)))


def groups_met(groups: float, rows: float, threads: int) -> float:
    """Return how many groups a thread meets in its share of the rows.

    Groups are neither all of one size, nor do their sizes fall off as in a geometric distribution: half of each.
    """
    if groups <= 0 or rows <= 0:
        return 0.0
    size, missed = max(1.0, rows / groups), 1.0 - 1.0 / threads
    even, falling = math.pow(missed, size), missed / (size - (size - 1.0) * missed)
    return groups * (1.0 - (even + falling) / 2)


def groups_kept(groups: float, rows: float, threads: int, constants: Constants = CALIBRATED) -> float:
    """Return how many groups all threads keep whose tables do not grow, those that come again after a full one, too."""
    met = groups_met(groups, rows, threads)
    full = constants.emptied_entries / constants.grouping_load
    if met <= full:
        return met * threads
    rows_until_full = -groups * math.log1p(-full / groups)
    return min(rows, max(met * threads, rows / rows_until_full * full))
