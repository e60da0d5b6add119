"""A task of the job: chunks in, one summary per partition out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from statsproc.read.files import Chunk
from statsproc.sketches.column_summary import ColumnSummary, one_array, summarise
from statsproc.sketches.join_keys import Codes, Cut, KeySummary, codes, count_together, summarise_key
from statsproc.sketches.sample import Sampled, draw
from statsproc.sketches.table_summary import ROOMY, TableSummary, compact_table, merge_tables

MERGE_AT = 8  # summaries of chunks that are held before they are put together


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to find out. columns: name to type, those in the files. keys: columns that are joined.

    sample_share: chance of a row to be in the sample.
    """

    columns: Mapping[str, str]
    keys: tuple[str, ...] = ()
    cut: Cut = field(default_factory=Cut)
    sample_share: float = 0.0


def summarise_chunks(chunks: Iterable[Chunk], wanted: Wanted) -> Iterator[tuple[str, TableSummary]]:
    """Read chunks, those of a partition next to each other, and return the summary of each partition."""
    for folder, members in groupby(chunks, key=lambda chunk: chunk.folder):
        held: list[TableSummary] = []
        for chunk in members:
            held.append(_not_too_large(summarise_chunk(chunk, wanted)))
            if len(held) >= MERGE_AT:
                held = [_not_too_large(merge_tables(held))]
        yield folder, merge_tables(held)


def _not_too_large(summary: TableSummary) -> TableSummary:
    """Shrink the summary of a wide table at once, so that several of them fit into a worker."""
    return summary if len(summary.columns) <= ROOMY else compact_table(summary)


def summarise_chunk(chunk: Chunk, wanted: Wanted) -> TableSummary:
    """Read a chunk, one column after the other."""
    drawn = draw(chunk.rows, wanted.sample_share, chunk.name)
    looked_at = np.arange(0, chunk.rows, wanted.cut.step)
    columns: dict[str, ColumnSummary] = {}
    sample = {}
    keys: dict[str, KeySummary] = {}
    known: dict[str, Codes] = {}
    for name, data_type in wanted.columns.items():
        array = one_array(chunk.column(name))
        columns[name] = summarise(array, data_type)
        if data_type != "binary":
            sample[name] = drawn.of(array, data_type)
        if name in wanted.keys:
            keys[name] = summarise_key(array, data_type, wanted.cut.bins.get(name))
        cut = wanted.cut.bins.get(name) or wanted.cut.buckets.get(name)
        if cut is not None:
            some = array if wanted.cut.step == 1 else array.take(looked_at)
            known[name] = codes(some, data_type, cut, is_key=name in wanted.cut.bins)
    for name, bins in wanted.cut.bins.items():
        together = {
            other: count_together(known[name], bins.count, known[other], cut.count)
            for other, cut in {**wanted.cut.buckets, **wanted.cut.bins}.items()
            if other != name
        }
        keys[name] = replace(keys[name], together=together, looked_at=int(looked_at.size))
    return TableSummary(
        rows=chunk.rows,
        columns=columns,
        keys=keys,
        sample=Sampled(drawn.share, drawn.tickets, sample),
        cut=wanted.cut.identity,
        types=wanted.columns,
    )
