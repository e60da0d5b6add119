"""Parts of a Parquet file: the chunks of each column, and all other bytes.

Other bytes are the footer, page indexes, Bloom filters and whatever a writer has put between: they are few, and always
fetched, so that a copy without some columns is right wherever an engine looks that does not read these columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq

FRAME = ""
"""Name of the part that belongs to no column."""
_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a file. ranges: (begin, end) in bytes, ascending, the end not included."""

    name: str
    ranges: tuple[tuple[int, int], ...]

    @property
    def bytes(self) -> int:
        """Bytes of all ranges."""
        return sum(end - begin for begin, end in self.ranges)


def parts_of(metadata: pq.FileMetaData, size: int) -> Mapping[str, Part]:
    """Return the parts of a file by name: FRAME, and one for each top-level column, named as in the file."""
    chunks: dict[str, list[tuple[int, int]]] = {}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            chunk = group.column(place)
            offset = chunk.data_page_offset
            if chunk.dictionary_page_offset is not None:
                offset = min(offset, chunk.dictionary_page_offset)
            name = chunk.path_in_schema.partition(".")[0]
            chunks.setdefault(name, []).append((offset, min(size, offset + chunk.total_compressed_size)))
    columns = {name: Part(name, tuple(merged(ranges))) for name, ranges in chunks.items()}
    column_ranges = merged(one for part in columns.values() for one in part.ranges)
    return {FRAME: Part(FRAME, tuple(gaps(column_ranges, size))), **columns}


def stored_names(metadata: pq.FileMetaData, names: Iterable[str], ids: Iterable[int]) -> frozenset[str]:
    """Return the names of a file's top-level columns out of some names, in any case, and field ids."""
    lower, numbers = {name.lower() for name in names}, {str(number).encode() for number in ids}
    return frozenset(
        column.name
        for column in metadata.schema.to_arrow_schema()
        if column.name.lower() in lower or (column.metadata or {}).get(_ID) in numbers
    )


def merged(ranges: Iterable[tuple[int, int]], *, gap: int = 0) -> list[tuple[int, int]]:
    """Return ranges in order, without overlaps. gap: bytes between two ranges that are taken with them."""
    result: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if result and begin <= result[-1][1] + gap:
            result[-1] = result[-1][0], max(result[-1][1], end)
        elif begin < end:
            result.append((begin, end))
    return result


def gaps(ranges: Sequence[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """Yield what lies between ranges. ranges: as ``merged`` returns them. size: of the file."""
    last = 0
    for begin, end in ranges:
        if begin > last:
            yield last, begin
        last = end
    if last < size:
        yield last, size


def split(ranges: Iterable[tuple[int, int]], most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of at most so many bytes."""
    for begin, end in ranges:
        for start in range(begin, end, most):
            yield start, min(end, start + most)
