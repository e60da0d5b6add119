"""A table's Parquet and ORC files read in pieces, each column by itself, without a detour through the JVM.

``splits_of`` looks at footers, where it finds out what fits to the catalog and what does not; ``Chunk`` reads. Only
the chunks travel to Spark's workers, which have numpy and pyarrow and nothing else of this project.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from engines.files.orc_tail import read_tail
from engines.files.stored_types import StoredColumn, StoredColumns, fits

if TYPE_CHECKING:  # tasks import this module, and nothing of lake tables
    from statsproc.read.lake import StoredNames

CHUNK_ROWS = 1 << 19  # what is sorted at once; neighbouring row groups are read together up to it
DICTIONARY_BYTES = 8.0  # a string column with a dictionary and less than that a row is read as its dictionary
FOOTERS_AT_ONCE = 8


class FileUnusable(Exception):
    """A file cannot be read, or is not what the catalog says; the message names it."""


@dataclass(frozen=True, slots=True)
class Field:
    """Column of the catalog in one file. stored: its name there; None: missing."""

    name: str
    data_type: str
    stored: str | None
    text: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """Neighbouring row groups or stripes of one file.

    folder: the partition; empty: none.
    file_bytes, modified_ns: size and time of the file when its footer was read.
    deleted: positions of deleted rows in the split, ascending; None: there are none.
    """

    path: str
    kind: str
    folder: str
    groups: tuple[int, ...]
    rows: int
    bytes: int
    file_bytes: int
    modified_ns: int
    fields: tuple[Field, ...]
    deleted: NDArray[np.int64] | None = None

    def chunk(self) -> Chunk:
        """Return the rows, to be read column by column."""
        return FileChunk(self)


class Piece(Protocol):
    """A part of a file that a task reads by itself."""

    @property
    def path(self) -> str:
        """The file."""

    @property
    def folder(self) -> str:
        """The partition, "" without one."""

    @property
    def groups(self) -> tuple[int, ...]:
        """Which parts of the file, in order."""

    @property
    def bytes(self) -> int:
        """Tell how much there is to read."""

    @property
    def file_bytes(self) -> int:
        """Size of the whole file."""

    def chunk(self) -> Chunk:
        """Return the rows."""


@dataclass(frozen=True, slots=True)
class FileShape:
    """Contents of a footer. groups: rows and bytes of each row group or stripe. types: by name, Spark's short form.

    through_spark: it holds dates or times that only Spark's reader gets right.
    ids: names by field id.
    """

    path: str
    kind: str
    folder: str
    file_bytes: int
    modified_ns: int
    groups: tuple[tuple[int, int], ...]
    types: Mapping[str, str]
    through_spark: bool = False
    ids: Mapping[int, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return sum(rows for rows, _ in self.groups)


class Chunk(Protocol):
    """Some rows of a table."""

    @property
    def name(self) -> str:
        """Tells chunks apart."""

    @property
    def folder(self) -> str:
        """The partition, "" without one."""

    @property
    def rows(self) -> int:
        """Tell how many rows there are."""

    def column(self, name: str) -> pa.ChunkedArray | pa.Array:
        """Read one column."""


@dataclass(frozen=True, slots=True)
class TableChunk:
    """Rows that somebody else has read."""

    name: str
    folder: str
    table: pa.Table

    @property
    def rows(self) -> int:
        """Tell how many."""
        return int(self.table.num_rows)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return one column."""
        return self.table.column(name)


@dataclass(slots=True)
class FileChunk:
    """The rows of a split, read column by column."""

    split: Split
    _file: Any = None

    @property
    def name(self) -> str:
        """Tells chunks apart."""
        return f"{self.split.folder}/{Path(self.split.path).name} {self.split.groups[0]}"

    @property
    def folder(self) -> str:
        """The partition, "" without one."""
        return self.split.folder

    @property
    def rows(self) -> int:
        """Tell how many rows there are."""
        return self.split.rows

    def column(self, name: str) -> pa.ChunkedArray | pa.Array:
        """Read one column. Raises FileUnusable."""
        wanted = next(field for field in self.split.fields if field.name == name)
        if wanted.stored is None:
            return pa.nulls(self.rows)
        try:
            values = self._read_orc(wanted) if self.split.kind == "orc" else self._read_parquet(wanted)
        except (pa.ArrowException, OSError) as failure:
            raise FileUnusable(f"{self.split.path} cannot be read: {_first_line(failure)}") from failure
        if self.split.deleted is not None:
            present = np.setdiff1d(np.arange(len(values)), self.split.deleted, assume_unique=True)
            values = values.take(pa.array(present))
        if len(values) != self.rows:
            raise FileUnusable(f"{self.split.path} was changed while it was read: compute the statistics again")
        return values

    def _read_parquet(self, wanted: Field) -> pa.ChunkedArray:
        if self._file is None:
            self._require_unchanged()
            self._file = pq.ParquetFile(self.split.path, coerce_int96_timestamp_unit="us")
        file = self._file
        if wanted.text and _worth_a_dictionary(file.metadata, self.split.groups, wanted.stored):
            file = pq.ParquetFile(self.split.path, read_dictionary=[wanted.stored], metadata=file.metadata)
        return file.read_row_groups(list(self.split.groups), columns=[wanted.stored], use_threads=False).column(0)

    def _read_orc(self, wanted: Field) -> pa.ChunkedArray:
        if self._file is None:
            self._require_unchanged()
            self._file = pa_orc.ORCFile(self.split.path)
        stripes = [self._file.read_stripe(i, columns=[wanted.stored]) for i in self.split.groups]
        return pa.Table.from_batches(stripes).column(0)

    def _require_unchanged(self) -> None:
        now = Path(self.split.path).stat()
        if (now.st_size, now.st_mtime_ns) != (self.split.file_bytes, self.split.modified_ns):
            raise FileUnusable(f"{self.split.path} was changed while it was read: compute the statistics again")


def look(path: Path, kind: str, folder: str, *, file_bytes: int, modified_ns: int) -> FileShape:
    """Read a footer. Raises FileUnusable."""
    try:
        if kind == "orc":
            orc = pa_orc.ORCFile(path)
            tail = read_tail(orc.reader.serialized_file_tail())
            types = _types(StoredColumns().orc(orc.schema))
            return FileShape(str(path), kind, folder, file_bytes, modified_ns, tail.stripes, types, tail.other_times)
        footer = pq.read_metadata(path)
    except (pa.ArrowException, OSError) as failure:
        raise FileUnusable(f"{path} cannot be read: {_first_line(failure)}") from failure
    groups = tuple(
        (footer.row_group(i).num_rows, footer.row_group(i).total_byte_size) for i in range(footer.num_row_groups)
    )
    types = _types(StoredColumns().parquet(footer))
    through_spark = _julian(footer.metadata or {})
    return FileShape(
        str(path), kind, folder, file_bytes, modified_ns, groups, types, through_spark, _ids(footer.schema)
    )


def look_at_all(looks: Sequence[Callable[[], FileShape]]) -> list[FileShape]:
    """Read many footers at once; the first file that cannot be read ends it."""
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        return list(pool.map(lambda one: one(), looks))


def fields_of(
    shape: FileShape, columns: Mapping[str, str], *, is_text: Callable[[str], bool], names: StoredNames | None = None
) -> tuple[Field, ...]:
    """Find the catalog's columns in a file, without regard to case. Raises FileUnusable where a type is another.

    names: of a lake table.
    """
    stored = {name.lower(): name for name in shape.types}
    fields: list[Field] = []
    for name, data_type in columns.items():
        wanted = name if names is None else names.in_file(shape.ids, name)
        at = wanted if wanted in shape.types or wanted is None else stored.get(wanted.lower())
        stored_type = shape.types[at] if at is not None else data_type
        if stored_type not in ("void", data_type) and not fits(stored_type, data_type):
            raise FileUnusable(
                f"{shape.path} holds column {name} as {stored_type}, but the catalog says {data_type}: "
                "write the file again, or register the table again"
            )
        fields.append(Field(name, data_type, at, is_text(data_type)))
    return tuple(fields)


def _types(columns: Iterable[StoredColumn]) -> Mapping[str, str]:
    return {column.name: column.unreadable or column.data_type for column in columns}


def splits_of(
    shape: FileShape,
    fields: tuple[Field, ...],
    groups: Sequence[int] | None = None,
    deleted: NDArray[np.int64] | None = None,
) -> Iterator[Split]:
    """Cut a file into splits of about CHUNK_ROWS.

    groups: those to read; None: all.
    deleted: positions of deleted rows in the file; None: there are none.
    """
    wanted = list(range(len(shape.groups)) if groups is None else groups)
    held: list[int] = []
    for at, group in enumerate(wanted):
        held.append(group)
        rows = sum(shape.groups[i][0] for i in held)
        if at + 1 == len(wanted) or rows + shape.groups[wanted[at + 1]][0] > CHUNK_ROWS:
            size = sum(shape.groups[i][1] for i in held)
            places = _in_groups(shape, held, deleted) if deleted is not None else None
            rows -= len(places) if places is not None else 0
            if rows:
                yield Split(
                    shape.path,
                    shape.kind,
                    shape.folder,
                    tuple(held),
                    rows,
                    size,
                    shape.file_bytes,
                    shape.modified_ns,
                    fields,
                    places,
                )
            held = []


def _in_groups(shape: FileShape, groups: Sequence[int], deleted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return positions of a file as places in some of its row groups, which are read one after the other."""
    starts = np.cumsum([0, *(rows for rows, _ in shape.groups)])
    places, before = list[NDArray[np.int64]](), 0
    for group in groups:
        inside = deleted[(deleted >= starts[group]) & (deleted < starts[group + 1])]
        places.append(inside - starts[group] + before)
        before += shape.groups[group][0]
    return np.concatenate(places)


def _ids(schema: Any) -> Mapping[int, str]:
    """Return the names of a Parquet file's columns by field id."""
    fields = ((field.name, (field.metadata or {}).get(b"PARQUET:field_id")) for field in schema.to_arrow_schema())
    return {int(number): name for name, number in fields if number is not None}


def without_root(text: str, root: Path) -> str:
    """Name a table's files by their places in it, wherever a text has whole paths or URIs as Spark writes them."""
    places = "|".join(re.escape(place) for place in (str(root), quote(str(root))))
    whole = re.compile(rf"(?:file:(?://)?)?(?:{places})(/|(?![\w.-]))")
    return whole.sub(lambda match: "" if match[1] else root.name, text)


def _julian(metadata: Mapping[bytes, bytes]) -> bool:
    """Return whether Spark wrote early dates by the Julian calendar, as it did before 3.0."""
    if any(key.startswith(b"org.apache.spark.legacy") for key in metadata):
        return True
    return metadata.get(b"org.apache.spark.version", b"3") < b"3"


def _worth_a_dictionary(metadata: Any, groups: Sequence[int], name: str | None) -> bool:
    for at in range(metadata.num_columns):
        column = metadata.row_group(groups[0]).column(at)
        if column.path_in_schema == name:
            small = column.total_uncompressed_size < DICTIONARY_BYTES * max(1, column.num_values)
            return bool(column.has_dictionary_page and small)
    return False


def _first_line(failure: BaseException) -> str:
    return (str(failure).strip().splitlines() or [type(failure).__name__])[0]
