"""A look at a folder or file: what table it is, from the files themselves.

It is long because five formats tell their columns in five ways, and only ``inspect`` has to know them.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq

from engines.protocol import Column, TableSource
from metastore import avro
from metastore.records import CatalogTable, FileMark, Inspection, Partition

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # Hive's folder for NULL
FORMATS = ("parquet", "csv", "json", "orc", "avro")
SAMPLE_BYTES = 1 << 20
DELIMITERS = ("|", "\t", ",", ";")
OPTIONS = {"csv": ("delimiter", "sep", "header")}  # by format: how to read it, understood alike by every engine

_SUFFIXES = {
    **dict.fromkeys((".parquet", ".parq", ".pq"), "parquet"),
    **dict.fromkeys((".csv", ".tsv", ".psv", ".tbl", ".txt", ".dat"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    ".orc": "orc",
    ".avro": "avro",
}
_COMPRESSIONS = frozenset({".gz", ".bz2", ".zst", ".lz4"})
_MAGIC = {b"PAR1": "parquet", b"ORC": "orc", b"Obj\x01": "avro"}
_INT_MAX = 2**31 - 1
_BIGINT_MAX = 2**63 - 1


class InspectionFailed(Exception):
    """The place holds no table that can be registered; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table. folder: its Hive-style partition folder relative to the table, "" without one."""

    path: Path
    bytes: int
    folder: str
    values: Mapping[str, str]
    modified_ns: int

    def mark(self, root: Path) -> FileMark:
        """Return what tells later whether this is still the same file of the table at ``root``."""
        path = self.path.name if self.path == root else self.path.relative_to(root).as_posix()
        return FileMark(path, self.bytes, self.modified_ns)


@dataclass(frozen=True, slots=True)
class _Content:
    columns: tuple[Column, ...]
    rows: int | None
    options: Mapping[str, str]


def inspect(
    name: str,
    location: str | Path,
    *,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    columns: Sequence[Column] | None = None,
) -> Inspection:
    """Say what table lies at a location: format, columns, files, partitions, and rows where files count them.

    format, options (those of OPTIONS) and columns: what the caller knows; the rest is found out. Text and JSON are
    judged by the first megabyte of the first file, with types wide enough for what may follow (``bigint``, ``double``).
    """
    root = _root(location)
    files = data_files(root)
    if not files:
        raise InspectionFailed(
            f"{root} holds no data files (names that start with _ or . do not count): "
            "write the table's files there first, or give another location"
        )
    found = _format(files, format)
    _check_options(found, options or {})
    partition_columns = _partition_columns(files, root)
    told = {column.name.lower(): column for column in columns or ()}
    inside = {column.name.lower() for column in partition_columns}
    in_files = tuple(column for name, column in told.items() if name not in inside)
    content = _look(found, files, dict(options or {}), in_files)
    own = tuple(column for column in content.columns if column.name.lower() not in inside)
    return Inspection(
        source=TableSource(
            name=name,
            location=str(root),
            format=found,
            columns=own + tuple(told.get(column.name.lower(), column) for column in partition_columns),
            partition_columns=tuple(column.name for column in partition_columns),
            options=content.options,
        ),
        files=len(files),
        bytes=sum(file.bytes for file in files),
        rows=content.rows,
        partitions=_partitions(files),
        declared=bool(columns),
    )


def listed(table: CatalogTable) -> Inspection:
    """Say what lies at a registered table's location now, by the names and sizes of its files alone.

    Columns stay as they are registered, but for those of partition folders; rows are not counted.
    """
    source = table.source
    root = _root(source.location)
    files = data_files(root)
    in_folders = _partition_columns(files, root) if files else ()
    own = tuple(column for column in source.columns if column.name not in source.partition_columns)
    return Inspection(
        source=replace(source, columns=own + in_folders, partition_columns=tuple(c.name for c in in_folders)),
        files=len(files),
        bytes=sum(file.bytes for file in files),
        rows=None,
        partitions=_partitions(files),
        declared=table.declared,
    )


def data_files(root: Path) -> tuple[DataFile, ...]:
    """Return a table's files in path order, without hidden ones (leading ``_`` or ``.``) and empty folders.

    Links to folders do not count. Raises InspectionFailed for a link to a file outside the table's own folder.
    """
    if root.is_file():
        stat = root.stat()
        return (DataFile(root, stat.st_size, "", {}, stat.st_mtime_ns),)
    return tuple(_walk(root, (), root.resolve()))


def spark_type(arrow: pa.DataType) -> str:
    """Return the short name of the type that Spark reads an Arrow type as."""
    types = pa.types
    if types.is_dictionary(arrow) or types.is_run_end_encoded(arrow):
        return spark_type(arrow.value_type)
    if types.is_struct(arrow):
        return f"struct<{','.join(f'{field.name}:{spark_type(field.type)}' for field in arrow)}>"
    if types.is_map(arrow):
        return f"map<{spark_type(arrow.key_type)},{spark_type(arrow.item_type)}>"
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        return f"array<{spark_type(arrow.value_type)}>"
    if types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if types.is_timestamp(arrow):
        return "timestamp" if arrow.tz else "timestamp_ntz"
    if types.is_time(arrow):
        return "time(6)"
    if (
        types.is_binary(arrow)
        or types.is_large_binary(arrow)
        or types.is_fixed_size_binary(arrow)
        or types.is_binary_view(arrow)
    ):
        return "binary"
    return _PLAIN_TYPES.get(arrow, "string")


_PLAIN_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.date64(): "date",
    pa.null(): "void",
}


def path_of(location: str | Path) -> Path:
    """Return the path that a location means, whether anything is there or not. Raises InspectionFailed."""
    text = str(location)
    if text.startswith("file:"):
        text = unquote(re.sub(r"^file:(//[^/]*)?", "", text))
    elif "://" in text:
        raise InspectionFailed(f"{text} is not on this machine: give a folder or file that the gateway can read")
    if "\0" in text:
        raise InspectionFailed(f"{text!r} is no path: it holds a zero byte")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as failure:
        raise InspectionFailed(f"{text} begins with a home that is not known: give an absolute path") from failure


def _root(location: str | Path) -> Path:
    root = path_of(location)
    try:
        exists = root.exists()
    except OSError as failure:
        raise InspectionFailed(f"{root} cannot be read: {failure.strerror}") from failure
    if not exists:
        raise InspectionFailed(f"there is no {root}: check the spelling, and that the gateway sees this disk")
    if not root.is_dir() and not root.is_file():
        raise InspectionFailed(f"{root} is neither a folder nor a plain file")
    return root


def _walk(folder: Path, steps: tuple[str, ...], home: Path) -> Iterator[DataFile]:
    """Yield the files below a folder that lies ``steps`` below the table's. home: that one, links resolved."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as failure:
        raise InspectionFailed(
            f"{folder} cannot be read ({failure.strerror}): let the gateway's user read it"
        ) from failure
    values = dict(_partition_value(step) for step in steps if "=" in step)
    for entry in entries:
        if entry.name.startswith(("_", ".")):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name, (*steps, entry.name), home)
            continue
        try:
            if not entry.is_file():
                continue  # pipes, devices, links to folders and links that lead nowhere
            stat = entry.stat()
        except OSError:  # a link that leads to itself
            continue
        path = folder / entry.name
        if entry.is_symlink() and not path.resolve().is_relative_to(home):
            raise InspectionFailed(
                f"{path} is a link that leads out of the table's folder: put the file itself there, or remove the link"
            )
        yield DataFile(path, stat.st_size, "/".join(steps) if values else "", values, stat.st_mtime_ns)


def _partition_value(step: str) -> tuple[str, str]:
    column, _, value = step.partition("=")
    return unquote(column), unquote(value)


def _partition_columns(files: Sequence[DataFile], root: Path) -> tuple[Column, ...]:
    names = tuple(files[0].values)
    for file in files:
        if tuple(file.values) != names:
            raise InspectionFailed(
                f"{root} mixes partition folders: {_levels(names)} and {_levels(file.values)}; "
                "give every file the same levels"
            )
    return tuple(Column(name, _partition_type(file.values[name] for file in files)) for name in names)


def _levels(names: Iterable[str]) -> str:
    return "/".join(f"{name}=..." for name in names) or "none"


def _partition_type(values: Iterable[str]) -> str:
    known = [value for value in values if value != DEFAULT_PARTITION]
    if not known or not all(re.fullmatch(r"-?\d{1,19}", value) for value in known):
        return "string"
    largest = max(abs(int(value)) for value in known)
    return "int" if largest <= _INT_MAX else "bigint" if largest <= _BIGINT_MAX else "string"


def _partitions(files: Sequence[DataFile]) -> tuple[Partition, ...]:
    by_folder: dict[str, list[DataFile]] = {}
    for file in files:
        if file.values:
            by_folder.setdefault(file.folder, []).append(file)
    return tuple(
        Partition(folder, members[0].values, len(members), sum(member.bytes for member in members))
        for folder, members in sorted(by_folder.items())
    )


def _format(files: Sequence[DataFile], told: str | None) -> str:
    if told is not None:
        if told not in FORMATS:
            raise InspectionFailed(f"{told} is not a known format: give one of {', '.join(FORMATS)}")
        return told
    kinds: dict[str, str] = {}
    for file in files:
        kinds.setdefault(_format_of(file.path), file.path.name)
    if len(kinds) > 1:
        seen = " and ".join(f"{kind} ({name})" for kind, name in sorted(kinds.items()))
        raise InspectionFailed(
            f"the folder mixes formats: {seen}; move what does not belong to the table, or say which format it is"
        )
    return next(iter(kinds))


def _check_options(kind: str, options: Mapping[str, str]) -> None:
    allowed = OPTIONS.get(kind, ())
    for name, value in options.items():
        if name not in allowed:
            can = ", ".join(allowed) or "none"
            raise InspectionFailed(f"{name} is not an option of a {kind} table: leave it out; allowed are {can}")
        if name == "header" and value.lower() not in ("true", "false"):
            raise InspectionFailed(f"the header is true or false, not {value!r}")
        if name != "header" and (len(value) != 1 or not value.isascii() or value in '"\r\n\0'):
            raise InspectionFailed(f"the delimiter is one ASCII character, no quote and no line end, not {value!r}")


def _format_of(path: Path) -> str:
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


def _look(kind: str, files: Sequence[DataFile], options: dict[str, str], columns: tuple[Column, ...]) -> _Content:
    if kind == "parquet":
        found, rows = _parquet(files)
        return _Content(columns or found, rows, options)
    if kind == "orc":
        found, rows = _orc(files)
        return _Content(columns or found, rows, options)
    if kind == "avro":
        return _Content(columns or _avro(files), None, options)
    filled = next((file for file in files if file.bytes), files[0])
    if kind == "json":
        return _Content(columns or _json(filled), None, options)
    return _csv(filled, options, columns)


def _footer(path: Path) -> Any:
    try:
        return pq.read_metadata(path)
    except (pa.ArrowException, OSError) as failure:
        raise InspectionFailed(
            f"{path.name} is not a readable Parquet file: write it again, or move it out of the table"
        ) from failure


def _parquet(files: Sequence[DataFile]) -> tuple[tuple[Column, ...], int]:
    columns: dict[str, tuple[Column, str]] = {}
    rows = 0
    joined: Any = None
    for file in files:
        footer = _footer(file.path)
        rows += footer.num_rows
        if joined is not None and footer.schema.equals(joined):
            continue  # as nearly always, and much faster than column by column
        joined = footer.schema
        physical = {column.path: column.physical_type for column in map(joined.column, range(len(joined)))}
        for field in joined.to_arrow_schema():
            # INT96 is an instant in Spark's eyes, but Arrow gives it no zone
            kind = "timestamp" if physical.get(field.name) == "INT96" else spark_type(field.type)
            _join_column(columns, Column(field.name, kind), file.path.name)
    return tuple(column for column, _ in columns.values()), rows


def _orc(files: Sequence[DataFile]) -> tuple[tuple[Column, ...], int]:
    columns: dict[str, tuple[Column, str]] = {}
    rows = 0
    joined: pa.Schema | None = None
    for file in files:
        try:
            content = pa_orc.ORCFile(file.path)
        except (pa.ArrowException, OSError) as failure:
            raise InspectionFailed(
                f"{file.path.name} is not a readable ORC file: write it again, or move it out of the table"
            ) from failure
        rows += content.nrows
        if joined is not None and content.schema.equals(joined):
            continue
        joined = content.schema
        for field in joined:
            kind = "timestamp" if pa.types.is_timestamp(field.type) else spark_type(field.type)
            _join_column(columns, Column(field.name, kind), file.path.name)
    return tuple(column for column, _ in columns.values()), rows


def _avro(files: Sequence[DataFile]) -> tuple[Column, ...]:
    columns: dict[str, tuple[Column, str]] = {}
    joined: avro.Schema = None
    for file in files:
        try:
            schema = avro.read_schema(file.path)
            if schema == joined:
                continue
            joined = schema
            found = avro.columns(schema)
        except avro.AvroUnreadable as failure:
            raise InspectionFailed(
                f"{file.path.name} {failure}: write it again, or move it out of the table"
            ) from failure
        for column in found:
            _join_column(columns, column, file.path.name)
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
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
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


def _json(file: DataFile) -> tuple[Column, ...]:
    sample = _sample(file.path)
    if not sample.strip():
        raise InspectionFailed(f"{file.path.name} is empty: give the table's columns")
    try:
        schema = pa_json.read_json(io.BytesIO(sample)).schema
    except pa.ArrowException as failure:
        raise InspectionFailed(
            f"{file.path.name} is not one JSON object a line: write it so, or give another format"
        ) from failure
    # Spark reads times in JSON as text unless told otherwise
    return tuple(
        Column(field.name, "string" if _no_json_type(field.type) else spark_type(field.type)) for field in schema
    )


def _no_json_type(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(arrow) or pa.types.is_null(arrow))


def _csv(file: DataFile, options: dict[str, str], columns: tuple[Column, ...]) -> _Content:
    sample = _sample(file.path)
    if not sample.strip() and not columns:
        raise InspectionFailed(f"{file.path.name} is empty: give the table's columns")
    try:
        text = sample.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise InspectionFailed(f"{file.path.name} is not UTF-8 text: convert it, or give another format") from failure
    delimiter = options.get("delimiter") or options.get("sep") or _delimiter(text)
    lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    lines = [line for line in lines if line]
    header = options["header"].lower() == "true" if "header" in options else _has_header(lines, columns)
    kept = {"delimiter": delimiter, "header": str(header).lower()}
    width = len(lines[0]) if lines else len(columns)
    if columns:
        if len(columns) != width:
            raise InspectionFailed(
                f"{file.path.name} has {width} fields a line, but {len(columns)} columns were given: "
                "check the columns and the delimiter"
            )
        return _Content(columns, None, kept)
    names = [name.strip() for name in lines[0]] if header else [f"_c{n}" for n in range(width)]
    return _Content(_csv_types(file, sample, names, delimiter, header=header), None, kept)


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
    if len(set(first)) < len(first) or not all(re.fullmatch(r"[^\W\d][\w .-]*", cell) for cell in first):
        return False
    rest = lines[1:1000]
    if not rest:
        return True
    by_column = list(zip(first, zip(*(line for line in rest if len(line) == len(first)), strict=True), strict=False))
    if any(all(_is_measure(cell) for cell in cells if cell) and any(cells) for _, cells in by_column):
        return True
    return all(name not in cells for name, cells in by_column)


def _is_measure(cell: str) -> bool:
    return re.fullmatch(r"[-+]?[\d.,:/T Z+eE-]*\d[\d.,:/T Z+eE-]*", cell.strip()) is not None


def _csv_types(
    file: DataFile, sample: bytes, names: Sequence[str], delimiter: str, *, header: bool
) -> tuple[Column, ...]:
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
            f"{file.path.name} cannot be read as text with the delimiter {delimiter!r}: "
            "give the delimiter and the columns"
        ) from failure
    return tuple(Column(field.name, _text_type(field.type)) for field in table.schema)


def _text_type(arrow: pa.DataType) -> str:
    kind = spark_type(arrow)
    if kind == "timestamp_ntz":
        return "timestamp"  # Spark's own choice for text
    return "string" if kind in ("void", "binary") or kind.startswith("time(") else kind
