"""A uniform sample of whole rows that can be merged: a row is in it if its ticket, drawn evenly from 0..1, is low.

Every row of the table has the same chance, whichever chunk it lies in, and samples of different chances are brought
to the smaller one by throwing away high tickets.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from selector.row_sample import RowSample, SampleColumn
from statsproc.sketches.column_summary import is_text, numbers_of

SAMPLE_ROWS = 20_000  # about so many are wanted; a table that has no more is sampled whole
SAMPLE_VALUES = 256 * SAMPLE_ROWS  # of all columns together; a wider table has fewer rows in its sample
LEAST_ROWS = 500
TEXT_CHARACTERS = 256  # of a string; the rest is cut off


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """Rows with low tickets.

    share: the highest ticket.
    tickets: shape (rows,).
    columns: arrays of as many rows, strings or float64 on the type's line.
    """

    share: float = 1.0
    tickets: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    columns: Mapping[str, pa.Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """The rows of one chunk that were drawn. rows, tickets: shape (drawn,)."""

    rows: NDArray[np.int64]
    tickets: NDArray[np.float64]
    share: float

    def of(self, column: pa.Array, data_type: str) -> pa.Array:
        """Take the drawn rows of a column."""
        return take_rows(column, self.rows, data_type)


def take_rows(column: pa.Array, rows: NDArray[np.int64] | NDArray[np.intp], data_type: str) -> pa.Array:
    """Take rows of a column: strings cut, all else as float64 on the type's line."""
    drawn = column.take(pa.array(rows))
    if is_text(data_type):
        return _cut(drawn.dictionary_decode() if pa.types.is_dictionary(drawn.type) else drawn)
    nulls = drawn.is_null().to_numpy(zero_copy_only=False)
    line = np.zeros(len(drawn))
    if not nulls.all():
        present = numbers_of(drawn.drop_null())
        line[~nulls] = present.line(present.raw)
    return pa.array(line, mask=nulls)


def rows_wanted(columns: int) -> int:
    """Return about how many rows the sample of a table shall have."""
    return min(SAMPLE_ROWS, max(LEAST_ROWS, SAMPLE_VALUES // max(1, columns)))


def draw(rows: int, share: float, place: str) -> Draw:
    """Draw rows of a chunk. place: names the chunk, so that the same data give the same sample."""
    source = np.random.Generator(np.random.PCG64(zlib.crc32(place.encode())))
    if share >= 1.0:
        return Draw(np.arange(rows), source.random(rows), 1.0)
    chosen = source.choice(rows, int(source.binomial(rows, share)), replace=False, shuffle=False)
    return Draw(np.sort(chosen), source.random(chosen.size) * share, share)


def merge_samples(parts: Sequence[Sampled]) -> Sampled:
    """Merge the samples of disjoint rows; one that is twice as large as wanted is halved."""
    share = min((part.share for part in parts), default=1.0)
    tickets = np.concatenate([part.tickets for part in parts]) if parts else np.empty(0)
    chosen = np.flatnonzero(tickets < share) if parts else np.empty(0, dtype=np.intp)
    names = [name for name in parts[0].columns if all(name in part.columns for part in parts)] if parts else []
    while chosen.size > 2 * rows_wanted(len(names)):
        share /= 2
        chosen = np.flatnonzero(tickets < share)
    columns = {name: pa.concat_arrays([part.columns[name] for part in parts]).take(pa.array(chosen)) for name in names}
    return Sampled(share, tickets[chosen], columns)


def row_sample(sampled: Sampled, *, read: float = 1.0) -> RowSample | None:
    """Return the sample as the estimator reads it; None where it has no rows. read: share of the table that was."""
    if not sampled.tickets.size or not sampled.columns:
        return None
    return sampled_rows(sampled.columns, sampled.share * read)


def sampled_rows(columns: Mapping[str, pa.Array], share: float) -> RowSample:
    """Return arrays of as many rows as the estimator reads them."""
    rows = len(next(iter(columns.values())))
    return RowSample(rows=rows, share=share, columns={name: _column(array) for name, array in columns.items()})


def _cut(texts: pa.Array) -> pa.Array:
    """Return the first characters of strings; what is not UTF-8 is replaced."""
    encoded = texts.cast(pa.large_binary())
    try:
        return pc.utf8_slice_codeunits(encoded.cast(pa.large_string()), 0, TEXT_CHARACTERS).cast(pa.string())
    except pa.ArrowInvalid:
        read = (None if text is None else text.decode("utf-8", "replace") for text in encoded.to_pylist())
        return pa.array([None if text is None else text[:TEXT_CHARACTERS] for text in read], pa.string())


def _column(array: pa.Array) -> SampleColumn:
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    if not pa.types.is_string(array.type):
        return SampleColumn.of(array.fill_null(0.0).to_numpy(zero_copy_only=False), nulls)
    texts = np.empty(len(array), dtype=object)
    texts[:] = array.fill_null("").to_pylist()
    return SampleColumn.of(texts, nulls)
