"""Plain text read by tasks themselves: CSV without quotes and escapes, JSON lines of scalars.

Arrow reads text several times faster than Spark, but the two agree only about text that leaves no choice. Whatever
might mean something else to Spark, or does not fit its column's type, ends in NotPlain, and Spark's reader has its way.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from engines.arrow_types import arrow_type
from selector.types import MOMENTS, WHOLE, Kind, parse
from statsproc.read.files import Chunk, FileUnusable, TableChunk

if TYPE_CHECKING:
    from engines.files.listing import DataFile
    from sql.tables import TableSource

PIECE_BYTES = 32 << 20
LINE_BYTES = 1 << 20  # read behind a piece's end to find the end of its last line; a longer line is not plain
_OPTIONS = frozenset({"delimiter", "header"})  # of CSV; with any other one Spark reads
_TYPES: Mapping[str, Collection[str]] = {
    "csv": (*WHOLE, Kind.DOUBLE, Kind.STRING, Kind.DATE, *MOMENTS),
    "json": (Kind.BIGINT, Kind.DOUBLE, Kind.BOOLEAN, Kind.STRING, Kind.DATE, *MOMENTS),
}
"""What Arrow reads as Spark does, in each format."""
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")


class NotPlain(Exception):
    """The text may mean something else to Spark."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Whole lines of a text file: those that begin between two offsets.

    columns: all columns of a CSV file in order, the wanted ones of a JSON file; with the types that they are read as.
    wanted: columns to read.
    groups: number of the piece.
    """

    path: str
    kind: str
    folder: str
    groups: tuple[int, ...]
    start: int
    bytes: int
    file_bytes: int
    modified_ns: int
    columns: tuple[tuple[str, pa.DataType], ...]
    wanted: tuple[str, ...]
    delimiter: str
    header: bool

    def chunk(self) -> Chunk:
        """Read the rows. Raises FileUnusable, NotPlain."""
        try:
            now = Path(self.path).stat()
            if (now.st_size, now.st_mtime_ns) != (self.file_bytes, self.modified_ns):
                raise FileUnusable(f"{self.path} was changed while it was read: compute the statistics again")
            lines = self._lines()
        except OSError as failure:
            raise FileUnusable(f"{self.path} cannot be read: {failure.strerror or failure}") from failure
        try:
            table = self._csv(lines) if self.kind == "csv" else self._json(lines)
        except pa.ArrowException as failure:
            raise NotPlain(f"{self.path} is not plain text: {str(failure).splitlines()[0]}") from failure
        return TableChunk(f"{self.folder}/{Path(self.path).name} {self.groups[0]}", self.folder, table)

    def _lines(self) -> builtins.bytes:
        """Return the lines that begin in the piece."""
        with Path(self.path).open("rb") as file:
            file.seek(max(0, self.start - 1))
            content = file.read(self.bytes + (1 if self.start else 0))
            if self.start:
                first = content.find(b"\n")  # the line before belongs to the piece before
                content = content[first + 1 :] if first >= 0 else b""
            if content and not content.endswith(b"\n"):
                rest = file.readline(LINE_BYTES)
                if len(rest) == LINE_BYTES:
                    raise NotPlain(f"{self.path} has a line of more than {LINE_BYTES:,} bytes")
                content += rest
        return content

    def _csv(self, lines: builtins.bytes) -> pa.Table:
        types = dict(self.columns)
        head = self.header and self.start == 0
        if head:
            lines = lines[lines.find(b"\n") + 1 :] if b"\n" in lines else b""
        separator = self.delimiter.encode()
        typed = any(not pa.types.is_string(types[name]) for name in self.wanted)
        blanks = (separator + b" ", b" " + separator, b"\n ", b" \n", b" \r") if typed else ()
        if any(sign in lines for sign in (b'"', b"\\", b"\0", *blanks)) or re.search(rb"\r(?!\n)", lines):
            raise NotPlain(f"{self.path} holds quotes, escapes or blanks")
        if not lines.strip(b"\r\n"):
            return pa.table({name: pa.array([], types[name]) for name in self.wanted})
        return pa_csv.read_csv(
            pa.BufferReader(lines),
            read_options=pa_csv.ReadOptions(
                column_names=[name for name, _ in self.columns], use_threads=False, block_size=len(lines) + 1
            ),
            parse_options=pa_csv.ParseOptions(delimiter=self.delimiter, quote_char=False, double_quote=False),
            convert_options=pa_csv.ConvertOptions(
                column_types=types, include_columns=list(self.wanted), null_values=[""], strings_can_be_null=True
            ),
        )

    def _json(self, lines: builtins.bytes) -> pa.Table:
        if not lines.strip():
            return pa.table({name: pa.array([], kind) for name, kind in self.columns})
        if lines.lstrip()[:1] != b"{":
            raise NotPlain(f"{self.path} is not one JSON object a line")
        stored = pa.schema([(name, pa.string() if pa.types.is_temporal(kind) else kind) for name, kind in self.columns])
        return pa_json.read_json(
            pa.BufferReader(lines),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=pa_json.ParseOptions(explicit_schema=stored, unexpected_field_behavior="ignore"),
        ).cast(pa.schema(self.columns))


def pieces_of(source: TableSource, file: DataFile, folder: str, wanted: Mapping[str, str]) -> Iterator[TextPiece]:
    """Cut a text file, or yield nothing where Spark has to read it. wanted: columns to read, with their types."""
    types = _TYPES.get(source.format)
    if types is None or not wanted or file.path.suffix.lower() in _COMPRESSED:
        return
    if source.format == "csv" and not set(source.options) <= _OPTIONS:
        return
    if source.format == "json" and source.options:
        return
    delimiter = source.options.get("delimiter", ",")
    stored = [column for column in source.columns if column.name not in source.partition_columns]
    read = [column for column in stored if source.format == "csv" or column.name in wanted]
    columns = [(column.name, _type(types, column.data_type, source.format)) for column in read]
    if len(delimiter) != 1 or not delimiter.isascii() or any(kind is None for _, kind in columns):
        return
    for number, start in enumerate(range(0, file.bytes, PIECE_BYTES)):
        yield TextPiece(
            path=str(file.path),
            kind=source.format,
            folder=folder,
            groups=(number,),
            start=start,
            bytes=min(PIECE_BYTES, file.bytes - start),
            file_bytes=file.bytes,
            modified_ns=file.modified_ns,
            columns=tuple(columns),
            wanted=tuple(wanted),
            delimiter=delimiter,
            header=source.options.get("header", "false").lower() == "true",
        )


def _type(types: Collection[str], data_type: str, kind: str) -> pa.DataType | None:
    parsed = parse(data_type)
    if parsed.kind in MOMENTS and parsed.kind in types:
        return pa.timestamp("us")  # text says nothing about zones
    is_read = parsed.kind in types or (parsed.kind is Kind.DECIMAL and kind == "csv")
    return arrow_type(parsed) if is_read else None
