"""Counts of a table in each cell of a key class before any filter: rows, distinct keys, largest rows of one key.

If the sample holds every row of the table, they are counted. Else key statistics give the counts of each bin; a known
key in a bin of D possible keys has 1 / D of its rows, corrected by common values and by the key's sampled rows. Without
key statistics, the column's common values and histogram are used; hashes are uniform.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from selector.cardinality.groups import estimated_groups, independent
from selector.cardinality.keys.classes import HASHES, KeyClass, Member, Places, row_line
from selector.cardinality.predicates.domain_selectivity import masses
from selector.key_line import Floats, line_of_texts
from selector.statistics import TEXT_KEY_BYTES

PRIOR_ROWS = 1.0  # weight of a bin's mean in the rows of a key, in sampled rows


@dataclass(frozen=True, slots=True, eq=False)
class KeyCounts:
    """Rows of a table over the cells of a key class. All arrays have the shape (count,).

    rows: expected rows.
    ndv: expected number of distinct keys.
    largest: upper bound of the rows of one key.
    """

    rows: Floats
    ndv: Floats
    largest: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Binned:
    """Counts of a member over the shared bins.

    exact: shape (keys,), rows of known keys that were counted, NaN for others.
    """

    rows: Floats
    ndv: Floats
    largest: Floats
    exact: Floats


def counts_of(member: Member, cells: KeyClass) -> KeyCounts:
    """Return the counts of a member of a key class in its cells."""
    if ("counts", member) not in cells.cache:
        cells.cache["counts", member] = _whole(member, cells) if member.is_whole else _partial(member, cells)
    counts: KeyCounts = cells.cache["counts", member]
    return counts


def possible(cells: KeyClass) -> Floats:
    """Return the number of possible keys in each cell, shape (count,): that of the member with most."""
    if "possible" not in cells.cache:
        keys = np.max([counts_of(member, cells).ndv for member in cells.members], axis=0)
        n_keys = cells.keys.size
        keys[:n_keys] = np.where(cells.exists, 1.0, np.minimum(keys[:n_keys], 1.0))
        cells.cache["possible"] = keys
    possible_keys: Floats = cells.cache["possible"]
    return possible_keys


def _whole(member: Member, cells: KeyClass) -> KeyCounts:
    rows = _sampled_rows(member, cells).astype(np.float64)
    return KeyCounts(rows, np.minimum(rows, 1.0), rows)


def _partial(member: Member, cells: KeyClass) -> KeyCounts:
    """Divide the counts of each bin among its known keys and its ranges."""
    binned = _binned(member, cells)
    n_keys, bin_of = cells.keys.size, cells.bin_of
    bins = binned.rows.size
    existing_keys = np.bincount(bin_of[:n_keys][cells.exists], minlength=bins).astype(np.float64)
    most = np.maximum(_most_keys(cells), 1e-9)
    unknown = np.clip(most - existing_keys, 0.0, None)  # possible keys that no table is known to have
    potential = np.where(cells.exists, 1.0, np.minimum(unknown[bin_of[:n_keys]], 1.0))
    rows_per_key = binned.rows / most  # rows of one possible key
    rows, ndv, largest = np.empty(cells.count), np.empty(cells.count), np.empty(cells.count)
    of_keys = _of_keys(member, cells, binned, rows_per_key, potential)
    chance = np.minimum(1.0, binned.ndv / most)
    rows[:n_keys] = of_keys
    largest[:n_keys] = np.maximum(of_keys, np.minimum(binned.largest, binned.rows)[bin_of[:n_keys]])
    ndv[:n_keys] = np.where(of_keys > 0.0, potential * chance[bin_of[:n_keys]], 0.0)
    exact = np.isfinite(binned.exact)
    ndv[:n_keys][exact] = np.minimum(binned.exact[exact], 1.0)
    largest[:n_keys][exact] = binned.exact[exact]
    remaining_rows = np.maximum(binned.rows - np.bincount(bin_of[:n_keys], of_keys, minlength=bins), 0.0)
    remaining_keys = np.clip(binned.ndv - np.bincount(bin_of[:n_keys], ndv[:n_keys], minlength=bins), 0.0, None)
    remaining_keys = np.where(unknown > 1e-6, remaining_keys, 0.0)
    remaining_rows = np.where(unknown > 1e-6, remaining_rows, 0.0)
    part = _parts_of_bins(member, cells)
    of_ranges = bin_of[n_keys:]
    rows[n_keys:], ndv[n_keys:] = remaining_rows[of_ranges] * part, remaining_keys[of_ranges] * part
    ndv[n_keys:] = np.where(rows[n_keys:] > 0.0, np.minimum(np.maximum(ndv[n_keys:], 1e-3), rows[n_keys:]), 0.0)
    largest[n_keys:] = np.minimum(binned.largest[of_ranges], np.maximum(rows[n_keys:], 0.0))
    return KeyCounts(rows, ndv, np.maximum(largest, rows / np.maximum(ndv, 1.0)))


def _sampled_rows(member: Member, cells: KeyClass) -> Places:
    assert member.statistics.sample is not None
    return cells.sampled(member.statistics.sample, member.columns)


def _of_keys(member: Member, cells: KeyClass, binned: _Binned, rows_per_key: Floats, potential: Floats) -> Floats:
    """Return the rows of known keys, shape (keys,): counted, or from the bin's mean and the sampled rows."""
    n_keys = cells.keys.size
    of_bin = cells.bin_of[:n_keys]
    prior = rows_per_key[of_bin] * potential
    exact = np.isfinite(binned.exact)
    target_rows = np.bincount(of_bin[~exact], prior[~exact], minlength=binned.rows.size)
    free = np.maximum(binned.rows - np.bincount(of_bin[exact], binned.exact[exact], minlength=binned.rows.size), 0.0)
    target_rows = np.minimum(target_rows, free)
    rows = prior
    sample = member.statistics.sample
    if sample is not None and n_keys and all(name in sample.columns for name in member.columns):
        hits = _sampled_rows(member, cells)[:n_keys]
        share = sample.rows / max(1, member.statistics.rows)
        varies = (binned.largest > 1.5)[of_bin] & (prior > 0.0)
        worth = np.where(prior > 0.0, PRIOR_ROWS / np.maximum(prior, 1e-12), 1.0)
        rows = np.where(varies, (hits + PRIOR_ROWS) / (share + worth), prior)
    total = np.bincount(of_bin[~exact], rows[~exact], minlength=binned.rows.size)
    scale = np.divide(target_rows, total, out=np.zeros(total.size), where=total > 0.0)
    return np.where(exact, np.nan_to_num(binned.exact), rows * scale[of_bin])


def _most_keys(cells: KeyClass) -> Floats:
    """Return the number of possible keys in each bin: that of the member with most, at least the known keys."""
    if "most" not in cells.cache:
        bins = int(cells.bin_of.max(initial=-1)) + 1
        keys = np.bincount(cells.bin_of[: cells.keys.size][cells.exists], minlength=bins).astype(np.float64)
        for member in cells.members:
            if not member.is_whole:
                keys = np.maximum(keys, _binned(member, cells).ndv)
        cells.cache["most"] = keys
    most_keys: Floats = cells.cache["most"]
    return most_keys


def _binned(member: Member, cells: KeyClass) -> _Binned:
    if ("binned", member) not in cells.cache:
        cells.cache["binned", member] = _counted(member, cells) or _derived(member, cells)
    binned: _Binned = cells.cache["binned", member]
    return binned


def _counted(member: Member, cells: KeyClass) -> _Binned | None:
    """Return the counts of the key statistics; None if these have other bins."""
    counted, shared = member.counted, cells.shared
    if counted is None or shared is None:
        return None
    bins = counted.bins
    if bins is not shared and (bins.group, bins.version) != (shared.group, shared.version):
        return None
    exact = np.full(cells.keys.size, np.nan)
    alone = bins.alone
    of_keys = cells.bin_of[: cells.keys.size]
    at_start = shared.starts[of_keys] == cells.keys
    exact[alone[of_keys] & at_start] = counted.rows[of_keys][alone[of_keys] & at_start]
    _add_common(member, cells, exact)
    return _Binned(counted.rows, counted.ndv, np.minimum(counted.largest, counted.rows), exact)


def _derived(member: Member, cells: KeyClass) -> _Binned:
    """Return the counts of bins from column statistics; a key of several columns is uniform."""
    statistics = member.statistics
    bins = int(cells.bin_of.max(initial=-1)) + 1
    shared = cells.shared if cells.shared is not None else cells.ranges
    exact = np.full(cells.keys.size, np.nan)
    columns = [statistics.columns[name] for name in member.columns]
    nulls = 1.0 - float(np.prod([1.0 - column.nulls / max(1, statistics.rows) for column in columns]))
    present = statistics.rows * (1.0 - nulls)
    if member.is_hashed:
        if len(columns) == 1:
            _add_common(member, cells, exact)
            ndv = columns[0].ndv
        else:
            ndv = combined_ndv(member)
        mass = np.diff(np.append(np.maximum(shared.starts, 0.0), HASHES)) / HASHES
        mass[0] += max(0.0, 1.0 - float(mass.sum()))
    else:
        _add_common(member, cells, exact)
        ndv = columns[0].ndv
        of_members = [(other.statistics.columns[other.columns[0]], other.statistics.rows) for other in cells.members]
        sources = ((columns[0], statistics.rows), *of_members)  # its keys are among those of the others
        bin_masses = (masses(shared, *source) for source in sources)
        mass = next((mass for mass in bin_masses if mass is not None), np.full(bins, 1.0 / bins))
    line, common_rows = _common(member)
    of_common = shared.of(line)
    heavy_rows = np.bincount(of_common, common_rows, minlength=bins)
    heavy_keys = np.bincount(of_common, minlength=bins)
    if member.is_hashed:
        rows = heavy_rows + mass * max(0.0, present - float(heavy_rows.sum()))
    else:
        rows = np.maximum(mass * present, heavy_rows)
    rest = np.maximum(rows - heavy_rows, 0.0)
    keys = max(0.0, ndv - float(heavy_keys.sum()))
    keys_each = heavy_keys + keys * rest / max(1e-9, float(rest.sum()))
    most = max(1.0, float(rest.sum()) / max(1.0, keys)) if ndv < 0.95 * present else 1.0
    largest = np.maximum(np.where(rest > 0.0, most, 0.0), 0.0)
    np.maximum.at(largest, of_common, common_rows)
    return _Binned(
        rows, np.minimum(keys_each, np.maximum(rows, 0.0)), np.minimum(np.maximum(largest, 1.0), rows), exact
    )


def combined_ndv(member: Member) -> float:
    """Return the NDV of several columns together, extrapolated from the sample; without one, the upper bound."""
    statistics = member.statistics
    counts = [max(1.0, statistics.columns[name].ndv) for name in member.columns]
    rows, sample = float(statistics.rows), statistics.sample
    most = min(math.prod(counts), max(1.0, rows))
    if sample is None or not sample.rows or any(name not in sample.columns for name in member.columns):
        return most
    code = np.unique(row_line(sample, member.columns), return_inverse=True)[1].astype(np.intp)
    combinations = estimated_groups(code, None, rows, guess=independent(counts, rows))
    return min(max(combinations, max(counts)), most)


def _common(member: Member) -> tuple[Floats, Floats]:
    """Return the places of a column's common values, and their rows; empty for a key of several columns."""
    column = member.statistics.columns[member.columns[0]]
    if column.common is None or len(member.columns) > 1:
        return np.empty(0), np.empty(0)
    values: Any = column.common.values
    rows = column.common.rows.astype(np.float64)
    if values.dtype.kind == "S":
        short = np.char.str_len(values) < TEXT_KEY_BYTES
        return line_of_texts(values[short].tolist()), rows[short]
    return values, rows


def _add_common(member: Member, cells: KeyClass, exact: Floats) -> None:
    """Set the exact rows of known keys that are common values."""
    line, rows = _common(member)
    if not line.size or not cells.keys.size:
        return
    at = np.minimum(np.searchsorted(cells.keys, line), cells.keys.size - 1)
    same = cells.keys[at] == line
    exact[at[same]] = rows[same]
    column = member.statistics.columns[member.columns[0]]
    if line.size >= column.ndv - 0.5 and member.statistics.share >= 1.0:  # all there are
        exact[np.isnan(exact)] = 0.0


def _parts_of_bins(member: Member, cells: KeyClass) -> Floats:
    """Return the share of its bin's rows in each range, shape (ranges,)."""
    of_ranges = cells.bin_of[cells.keys.size :]
    if cells.ranges.count == int(of_ranges.max(initial=-1)) + 1:
        return np.ones(cells.ranges.count)
    if cells.is_hashed:
        mass = np.diff(np.append(np.maximum(cells.ranges.starts, 0.0), HASHES))
    else:
        coarser = cells.made_of.whole.ranges if cells.made_of is not None else None
        column = member.statistics.columns[member.columns[0]]
        range_masses = masses(cells.ranges, column, member.statistics.rows, coarser=coarser)
        mass = range_masses if range_masses is not None else np.ones(cells.ranges.count)
    mass = np.maximum(mass, 0.0)
    whole = np.bincount(of_ranges, mass)[of_ranges]
    return np.where(whole > 0.0, mass / np.maximum(whole, 1e-300), 1.0 / np.bincount(of_ranges)[of_ranges])
