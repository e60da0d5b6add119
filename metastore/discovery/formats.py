"""What columns a table's files have, by format: the files themselves are read, as little of them as tells it.

Whatever is opened is a plain file, looked at once it is open: neither a pipe nor a device, and nothing that the kernel
makes up while it is read.
"""

from __future__ import annotations

import csv
import io
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq

from engines.arrow_types import spark_type, stored_type
from engines.protocol import Column
from metastore.discovery import avro

SAMPLE_BYTES = 1 << 20
DELIMITERS = ("|", "\t", ",", ";")

_SUFFIXES = {
    **dict.fromkeys((".parquet", ".parq", ".pq"), "parquet"),
    **dict.fromkeys((".csv", ".tsv", ".psv", ".tbl", ".txt", ".dat"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    ".orc": "orc",
    ".avro": "avro",
}
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_MAGIC = {b"PAR1": "parquet", b"ORC": "orc", b"Obj\x01": "avro"}
_MADE_UP = ("/proc", "/sys")  # mounted there: files that are not on a disk
_OF_NUMBERS = frozenset("0123456789.,:/T Z+eE-")


class InspectionFailed(Exception):
    """The place holds no table that can be registered; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a table's files say of themselves. rows: None where they do not count them. options: how to read text."""

    columns: tuple[Column, ...]
    rows: int | None
    options: Mapping[str, str]


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file, without waiting for anybody. Raises InspectionFailed for all else that a path may lead to."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as failure:
        raise InspectionFailed(f"{path.name} cannot be opened ({failure.strerror}): check its rights") from failure
    with os.fdopen(descriptor, "rb") as content:
        held = os.fstat(descriptor)
        if not stat.S_ISREG(held.st_mode):
            raise InspectionFailed(f"{path.name} is no plain file but a pipe or a device: move it out of the table")
        if held.st_dev in _made_up_devices():
            raise InspectionFailed(f"{path.name} is on no disk: the system makes it up while it is read")
        yield content


def _made_up_devices() -> frozenset[int]:
    mounted = {os.stat(place).st_dev for place in _MADE_UP if os.path.isdir(place)}
    return frozenset(mounted - {os.stat("/").st_dev})


def format_of(path: Path) -> str:
    """Judge by a file's name, else by how it begins. Raises InspectionFailed where it cannot be read."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSIONS:
        suffixes.pop()
    if suffixes and suffixes[-1] in _SUFFIXES:
        return _SUFFIXES[suffixes[-1]]
    start = _head(path, 64)
    for magic, kind in _MAGIC.items():
        if start.startswith(magic):
            return kind
    return "json" if start.lstrip().startswith((b"{", b"[")) else "csv"


def look(
    kind: str,
    files: Sequence[Path],
    options: dict[str, str],
    columns: tuple[Column, ...],
    alive: Callable[[], None],
) -> Content:
    """Say what files of a format hold. columns: those that the caller knows, all or none. Raises InspectionFailed.

    alive: called before each file.
    """
    alive()
    if kind == "parquet":
        found, rows = _parquet(files, alive)
        return Content(columns or found, rows, options)
    if kind == "orc":
        found, rows = _orc(files, alive)
        return Content(columns or found, rows, options)
    if kind == "avro":
        return Content(columns or _avro(files, alive), None, options)
    filled = next((file for file in files if file.stat().st_size), files[0])
    if kind == "json":
        return Content(columns or _json(filled), None, options)
    return _csv(filled, options, columns)


def _footer(path: Path) -> Any:
    try:
        with opened(path) as content:
            return pq.read_metadata(content)
    except (pa.ArrowException, OSError) as failure:
        raise InspectionFailed(
            f"{path.name} is not a readable Parquet file: write it again, or move it out of the table"
        ) from failure


def _parquet(files: Sequence[Path], alive: Callable[[], None]) -> tuple[tuple[Column, ...], int]:
    columns: dict[str, tuple[Column, str]] = {}
    rows = 0
    joined: Any = None
    for file in files:
        alive()
        footer = _footer(file)
        rows += footer.num_rows
        if joined is not None and footer.schema.equals(joined):
            continue  # as nearly always, and much faster than column by column
        joined = footer.schema
        physical = {column.path: column.physical_type for column in map(joined.column, range(len(joined)))}
        for field in joined.to_arrow_schema():
            # INT96 is an instant in Spark's eyes, but Arrow gives it no zone
            kind = "timestamp" if physical.get(field.name) == "INT96" else stored_type(field.type)
            _join_column(columns, Column(field.name, kind), file.name)
    return tuple(column for column, _ in columns.values()), rows


def _orc(files: Sequence[Path], alive: Callable[[], None]) -> tuple[tuple[Column, ...], int]:
    columns: dict[str, tuple[Column, str]] = {}
    rows = 0
    joined: pa.Schema | None = None
    for file in files:
        alive()
        try:
            with opened(file) as content:
                reader = pa_orc.ORCFile(content)
                counted, schema = reader.nrows, reader.schema
        except (pa.ArrowException, OSError) as failure:
            raise InspectionFailed(
                f"{file.name} is not a readable ORC file: write it again, or move it out of the table"
            ) from failure
        rows += counted
        if joined is not None and schema.equals(joined):
            continue
        joined = schema
        for field in joined:
            kind = "timestamp" if pa.types.is_timestamp(field.type) else spark_type(field.type)
            _join_column(columns, Column(field.name, kind), file.name)
    return tuple(column for column, _ in columns.values()), rows


def _avro(files: Sequence[Path], alive: Callable[[], None]) -> tuple[Column, ...]:
    columns: dict[str, tuple[Column, str]] = {}
    joined: avro.Schema = None
    for file in files:
        alive()
        try:
            with opened(file) as content:
                schema = avro.read_schema(content)
            if schema == joined:
                continue
            joined = schema
            found = avro.columns(schema)
        except avro.AvroUnreadable as failure:
            raise InspectionFailed(f"{file.name} {failure}: write it again, or move it out of the table") from failure
        for column in found:
            _join_column(columns, column, file.name)
    return tuple(column for column, _ in columns.values())


def _join_column(columns: dict[str, tuple[Column, str]], column: Column, file: str) -> None:
    first, where = columns.setdefault(column.name, (column, file))
    if first.data_type != column.data_type:
        raise InspectionFailed(
            f"the files disagree about column {column.name}: {first.data_type} in {where}, "
            f"{column.data_type} in {file}; write them with one schema"
        )


def _head(path: Path, size: int) -> bytes:
    """Return the first decompressed bytes of a file."""
    compression = _COMPRESSIONS.get(path.suffix.lower())
    try:
        with opened(path) as content, pa.input_stream(content, compression=compression) as stream:
            return bytes(stream.read(size))
    except (pa.ArrowException, OSError) as failure:
        raise InspectionFailed(f"{path.name} cannot be read: check its compression and its rights") from failure


def _sample(path: Path) -> bytes:
    """Return whole lines from the start of a text file."""
    start = _head(path, SAMPLE_BYTES)
    if len(start) < SAMPLE_BYTES:
        return start
    end = start.rfind(b"\n")
    if end < 0:
        raise InspectionFailed(f"{path.name} has a first line of more than {SAMPLE_BYTES:,} bytes: is it text?")
    return start[: end + 1]


def _json(file: Path) -> tuple[Column, ...]:
    sample = _sample(file)
    if not sample.strip():
        raise InspectionFailed(f"{file.name} is empty: give the table's columns")
    try:
        schema = pa_json.read_json(io.BytesIO(sample)).schema
    except pa.ArrowException as failure:
        raise InspectionFailed(
            f"{file.name} is not one JSON object a line: write it so, or give another format"
        ) from failure
    # Spark reads times in JSON as text unless told otherwise
    return tuple(
        Column(field.name, "string" if _no_json_type(field.type) else spark_type(field.type)) for field in schema
    )


def _no_json_type(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(arrow) or pa.types.is_null(arrow))


def _csv(file: Path, options: dict[str, str], columns: tuple[Column, ...]) -> Content:
    sample = _sample(file)
    if not sample.strip() and not columns:
        raise InspectionFailed(f"{file.name} is empty: give the table's columns")
    try:
        text = sample.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise InspectionFailed(f"{file.name} is not UTF-8 text: convert it, or give another format") from failure
    delimiter = options.get("delimiter") or options.get("sep") or _delimiter(text)
    lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    lines = [line for line in lines if line]
    header = options["header"].lower() == "true" if "header" in options else _has_header(lines, columns)
    kept = {"delimiter": delimiter, "header": str(header).lower()}
    width = len(lines[0]) if lines else len(columns)
    if columns:
        if len(columns) != width:
            raise InspectionFailed(
                f"{file.name} has {width} fields a line, but {len(columns)} columns were given: "
                "check the columns and the delimiter"
            )
        return Content(columns, None, kept)
    names = [name.strip() for name in lines[0]] if header else [f"_c{n}" for n in range(width)]
    return Content(_csv_types(file, sample, names, delimiter, header=header), None, kept)


def _delimiter(text: str) -> str:
    """Return the delimiter that splits most lines into the same number of fields, and into the most."""
    lines = text.splitlines()[:200]

    def merit(delimiter: str) -> tuple[float, int]:
        counts = [len(fields) for fields in csv.reader(lines, delimiter=delimiter) if fields]
        if not counts or counts[0] < 2:
            return 0.0, 0
        return sum(count == counts[0] for count in counts) / len(counts), counts[0]

    best = max(DELIMITERS, key=merit)
    return best if merit(best)[1] else ","


def _has_header(lines: Sequence[Sequence[str]], columns: Sequence[Column]) -> bool:
    """Judge whether the first line names the columns rather than being a row."""
    if not lines:
        return False
    first = [cell.strip() for cell in lines[0]]
    if columns:
        return [cell.lower() for cell in first] == [column.name.lower() for column in columns]
    if len(set(first)) < len(first) or not all(map(_is_header_name, first)):
        return False
    rest = lines[1:1000]
    if not rest:
        return True
    by_column = list(zip(first, zip(*(line for line in rest if len(line) == len(first)), strict=True), strict=False))
    if any(all(_is_measure(cell) for cell in cells if cell) and any(cells) for _, cells in by_column):
        return True
    return all(name not in cells for name, cells in by_column)


def _is_header_name(cell: str) -> bool:
    return (cell[:1] == "_" or cell[:1].isalpha()) and all(sign in "_ .-" or sign.isalnum() for sign in cell)


def _is_measure(cell: str) -> bool:
    return _OF_NUMBERS.issuperset(cell.strip()) and any(map(str.isdigit, cell))


def _csv_types(file: Path, sample: bytes, names: Sequence[str], delimiter: str, *, header: bool) -> tuple[Column, ...]:
    def skip(_: Any) -> str:
        return "skip"

    try:
        table = pa_csv.read_csv(
            io.BytesIO(sample),
            read_options=pa_csv.ReadOptions(column_names=list(names), skip_rows=1 if header else 0),
            parse_options=pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip),
            convert_options=pa_csv.ConvertOptions(null_values=[""], strings_can_be_null=True),
        )
    except pa.ArrowException as failure:
        raise InspectionFailed(
            f"{file.name} cannot be read as text with the delimiter {delimiter!r}: give the delimiter and the columns"
        ) from failure
    return tuple(Column(field.name, _text_type(field.type)) for field in table.schema)


def _text_type(arrow: pa.DataType) -> str:
    kind = spark_type(arrow)
    if kind == "timestamp_ntz":
        return "timestamp"  # Spark's own choice for text
    return "string" if kind in ("void", "binary") or kind.startswith("time(") else kind
