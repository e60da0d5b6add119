"""A task of the job: chunks in, one summary per partition out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby, starmap

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from selector.join_keys import SEPARATOR
from statsproc.read.files import Chunk
from statsproc.sketches.column_summary import ColumnSummary, one_array, summarise
from statsproc.sketches.join_keys import (
    Cut,
    Floats,
    KeyRows,
    KeySummary,
    choose_rows,
    line_of_columns,
    line_of_rows,
    summarise_key,
)
from statsproc.sketches.sample import Sampled, draw, take_rows
from statsproc.sketches.table_summary import ROOMY, TableSummary, compact_table, merge_tables

MERGE_AT = 8  # summaries of chunks that are held before they are put together
AHEAD = 2  # columns that wait for a helper


@dataclass(frozen=True, slots=True)
class Wanted:
    """Summaries to make of a scan.

    columns: name to type, those in the files.
    keys: columns that are joined; several that are a key together have commas between.
    sample_share: chance of a row to be in the sample.
    key_share: chance of a key that its rows are chosen; 0: no rows are chosen by key.
    """

    columns: Mapping[str, str]
    keys: tuple[str, ...] = ()
    cut: Cut = field(default_factory=Cut)
    sample_share: float = 0.0
    key_share: float = 0.0

    @property
    def together(self) -> dict[str, tuple[str, ...]]:
        """The keys of several columns, with these."""
        return {
            name: tuple(name.split(SEPARATOR)) for name in self.keys if SEPARATOR in name and name not in self.columns
        }


def summarise_chunks(
    chunks: Iterable[Chunk], wanted: Wanted, helpers: ThreadPoolExecutor | None = None
) -> Iterator[tuple[str, TableSummary]]:
    """Read chunks, those of a partition next to each other, and return the summary of each partition.

    helpers: threads that summarise columns while the next ones are read.
    """
    for folder, members in groupby(chunks, key=lambda chunk: chunk.folder):
        held: list[TableSummary] = []
        for chunk in members:
            held.append(_not_too_large(summarise_chunk(chunk, wanted, helpers)))
            if len(held) >= MERGE_AT:
                held = [_not_too_large(merge_tables(held))]
        yield folder, merge_tables(held)


def _not_too_large(summary: TableSummary) -> TableSummary:
    """Shrink the summary of a wide table at once, so that several of them fit into a worker."""
    return summary if len(summary.columns) <= ROOMY else compact_table(summary)


@dataclass(frozen=True, slots=True)
class _Looked:
    """Summary of a column of a chunk. sample: its drawn rows; chosen: those chosen by each key."""

    summary: ColumnSummary
    sample: pa.Array | None
    chosen: Mapping[str, pa.Array]


def summarise_chunk(chunk: Chunk, wanted: Wanted, helpers: ThreadPoolExecutor | None = None) -> TableSummary:
    """Read a chunk, one column after the other; those of keys twice, first to choose rows by them."""
    drawn = draw(chunk.rows, wanted.sample_share, chunk.name)
    keys: dict[str, KeySummary] = {}
    chosen: dict[str, tuple[NDArray[np.intp], KeyRows]] = {}
    for name, line in _lines(chunk, wanted):
        bins = wanted.cut.bins.get(name)
        keys[name] = summarise_key(line, bins)
        if bins is not None and wanted.key_share > 0.0:
            chosen[name] = choose_rows(line, bins, wanted.key_share)

    def look(array: pa.Array, data_type: str) -> _Looked:
        summary = summarise(array, data_type)
        if data_type == "binary":
            return _Looked(summary, None, {})
        of_keys = {key: take_rows(array, rows, data_type) for key, (rows, _) in chosen.items()}
        return _Looked(summary, drawn.of(array, data_type), of_keys)

    arrays = ((one_array(chunk.column(name)), data_type) for name, data_type in wanted.columns.items())
    looked = dict(zip(wanted.columns, _looked(look, arrays, helpers), strict=True))
    for key, (_, of_keys) in chosen.items():
        rows_of = {name: column.chosen[key] for name, column in looked.items() if key in column.chosen}
        keys[key] = replace(keys[key], chosen=replace(of_keys, columns=rows_of))
    sample = {name: column.sample for name, column in looked.items() if column.sample is not None}
    return TableSummary(
        rows=chunk.rows,
        columns={name: column.summary for name, column in looked.items()},
        keys=keys,
        sample=Sampled(drawn.share, drawn.tickets, sample),
        cut=wanted.cut.identity,
        types=wanted.columns,
    )


def _looked(
    look: Callable[[pa.Array, str], _Looked],
    arrays: Iterable[tuple[pa.Array, str]],
    helpers: ThreadPoolExecutor | None,
) -> Iterator[_Looked]:
    """Summarise columns, in order; helpers work on a few at a time, so that no more are in memory."""
    if helpers is None:
        yield from starmap(look, arrays)
        return
    ahead: deque[Future[_Looked]] = deque()
    for array, data_type in arrays:
        ahead.append(helpers.submit(look, array, data_type))
        if len(ahead) > AHEAD:
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()


def _lines(chunk: Chunk, wanted: Wanted) -> Iterator[tuple[str, Floats]]:
    """Yield each key with the places of all rows' keys, shape (rows,), NaN for NULL. Lines needed twice are cached."""
    together = wanted.together
    members = {name for names in together.values() for name in names}
    lines: dict[str, Floats] = {}
    for name in dict.fromkeys([*wanted.keys, *sorted(members)]):
        if name in together:
            continue
        line = line_of_rows(one_array(chunk.column(name)), wanted.columns[name])
        if name in members:
            lines[name] = line
        if name in wanted.keys:
            yield name, line
    for key, names in together.items():
        yield key, line_of_columns([lines[name] for name in names])
