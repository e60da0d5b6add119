"""Delta Lake, read with delta-rs: its log tells the files, their partition values and their deletion vectors.

Types and column mapping as in the Delta protocol (PROTOCOL.md, "Schema Serialization Format", "Column Mapping").
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from cachetools import LRUCache
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from numpy.typing import NDArray

from engines.arrow_types import arrow_type
from engines.files.manifest import Manifest, SnapshotFile, StoredField
from engines.files.pruning import MOST_BOUNDS, Bounds, has_bounds
from metastore.lake.place import LakeState, TablePlace, require_field_ids
from metastore.lake.values import (
    PARQUET_ID,
    At,
    HistoryEntry,
    LakeUnreadable,
    ResolvedSnapshot,
    SnapshotName,
    one_line,
)
from selector.quoting import spark_name
from selector.types import Group, InvalidType, parse
from sql.tables import Column, InvalidTable

READABLE_FEATURES = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)
_open_tables: LRUCache[TablePlace, tuple[DeltaTable, object]] = LRUCache(64)
"""Tables at the newest version that was seen, with the stamps of that version's files in the log."""
_VERSION_FILE = re.compile(r"\d{20}\.json")
TEXT_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
"""Key at a field whose type is a text with a length, as Spark writes it."""
_VARCHAR = re.compile(r"varchar\(\d+\)")
_PHYSICAL_NAME, _ID = "delta.columnMapping.physicalName", "delta.columnMapping.id"


def state(place: TablePlace, name: SnapshotName | None) -> LakeState:
    """Return a state of the table at a place; None: the newest. Raises LakeUnreadable."""
    with readable():
        table, stamps = _newest(place) if name is None else _table_at(place, name)
        return LakeState(
            str(table.version()),
            f"delta {place.location} {table.metadata().id} {table.version()} {stamps}",
            place,
            partial(_load, table, place),
        )


def _load(table: DeltaTable, place: TablePlace) -> ResolvedSnapshot:
    with readable():
        return _resolved(table, place)


@contextmanager
def readable() -> Iterator[None]:
    """Let only LakeUnreadable leave the block."""
    try:
        yield
    except TableNotFoundError as failure:
        raise LakeUnreadable("its _delta_log holds no table: put the log back, or drop the table") from failure
    except (DeltaError, pa.ArrowException, OSError, KeyError, OverflowError, ValueError) as failure:
        raise LakeUnreadable(f"delta-rs cannot read its log ({one_line(failure)})") from failure


def history(place: TablePlace) -> Sequence[HistoryEntry]:
    """Return the versions of the table at a place, the newest first. Raises LakeUnreadable."""
    with readable():
        entries = _newest(place)[0].history()
        committed_ms = _committed_ms(entries, place)
        return [
            HistoryEntry(
                str(entry["version"]),
                committed_ms.get(entry["version"], int(entry.get("timestamp", 0))),
                str(entry.get("operation", "")),
                {name: str(value) for name, value in (entry.get("operationParameters") or {}).items()},
            )
            for entry in entries
        ]


def open_table(place: TablePlace) -> DeltaTable:
    """Return the table at a place, as it is now. Raises DeltaError, LakeUnreadable."""
    require_plain(place)
    return DeltaTable(place.location, storage_options=place.delta_options())


def require_plain(place: TablePlace) -> None:
    """Raise LakeUnreadable for a folder whose files delta-rs 1.6 looks for in another one."""
    if unquote(place.location) != place.location:
        raise LakeUnreadable("its folder's name has an escape such as %20, which delta-rs decodes: rename the folder")


def _table_at(place: TablePlace, name: SnapshotName) -> tuple[DeltaTable, object]:
    """Return a table at an older version, and the stamps of that."""
    table = open_table(place)
    version = name.value
    if name.at is At.TIMESTAMP:
        committed_ms = _committed_ms(table.history(), place)
        earlier = [number for number, at_ms in committed_ms.items() if at_ms <= int(name.value)]
        if not earlier:
            raise LakeUnreadable("there was no version yet at that moment, or its log files were deleted")
        version = str(max(earlier))
    if not version.isdecimal():
        raise LakeUnreadable(f"{version!r} is not a version number")
    newest = table.version()
    try:
        table.load_as_version(int(version))
    except (DeltaError, OverflowError) as failure:
        raise LakeUnreadable(
            f"version {version} does not exist, or its log files were deleted: the newest is {newest}"
        ) from failure
    return table, _stamps(table, place)


def _committed_ms(history: Sequence[Mapping[str, Any]], place: TablePlace) -> dict[int, int]:
    """Return when versions were committed, in milliseconds since 1970.

    As Delta's own readers have it: by what the commit says of that (``inCommitTimestamp``), else by the time of its log
    file, and later than the version before it. delta-rs goes by the files alone.
    """
    said_ms = {entry["version"]: entry["inCommitTimestamp"] for entry in history if "inCommitTimestamp" in entry}
    committed_ms: dict[int, int] = {}
    newest_ms = -1
    for file in sorted(_log_files(place), key=lambda one: one.base_name):
        version = int(file.base_name.partition(".")[0])
        newest_ms = said_ms.get(version, max(newest_ms + 1, file.mtime_ns // 1_000_000))
        committed_ms[version] = newest_ms
    return committed_ms


def _log_files(place: TablePlace) -> Iterator[pafs.FileInfo]:
    """Yield the log files of versions."""
    for file in place.filesystem.get_file_info(pafs.FileSelector(place.path("_delta_log"))):
        if _VERSION_FILE.fullmatch(file.base_name):
            yield file


def _newest(place: TablePlace) -> tuple[DeltaTable, object]:
    """Return a table at its newest version, and the stamps of that.

    One that was opened before reads what came since, in milliseconds.
    """
    table, stamps = _open_tables.get(place) or (None, None)
    if table is not None and _stamps(table, place) == stamps:
        version = table.version()
        table.update_incremental()
        if table.version() == version:
            return table, stamps
    else:  # never opened, or another table lies there now
        table = open_table(place)
    _open_tables[place] = opened = table, _stamps(table, place)
    return opened


def _stamps(table: DeltaTable, place: TablePlace) -> object:
    """Return what tells the files of a table's version in the log from others of their names.

    That is its commit, or its checkpoint where the commit was deleted.
    """
    commit = place.stamp(f"_delta_log/{table.version():020}.json")
    if commit is not None:
        return commit
    log = place.filesystem.get_file_info(pafs.FileSelector(place.path("_delta_log"), allow_not_found=True))
    own = sorted(one.base_name for one in log if one.base_name.startswith(f"{table.version():020}."))
    return [(name, place.stamp(f"_delta_log/{name}")) for name in own]


def _resolved(table: DeltaTable, place: TablePlace) -> ResolvedSnapshot:
    _require_readable(table)
    configuration = table.metadata().configuration
    schema = json.loads(table.schema().to_json())
    mapping = configuration.get("delta.columnMapping.mode", "none")
    in_folders = frozenset(table.metadata().partition_columns)
    partitions = tuple(field["name"] for field in schema["fields"] if field["name"] in in_folders)
    columns, fields = [], []
    for field in schema["fields"]:
        try:
            column = Column(field["name"], _length_of(field) or spark_type(field["type"]))
        except InvalidTable as failure:
            raise LakeUnreadable(str(failure)) from failure
        columns.append(column)
        if field["name"] not in partitions:
            fields.append(_stored(field, mapping))
    actions = pa.table(table.get_add_actions())
    files = tuple(_files(table, actions, place, {field["name"]: field["type"] for field in schema["fields"]}))
    if mapping == "id":
        require_field_ids([file.path for file in files], place)
    bounds = _bounds(actions, columns, {field.name: field.stored for field in fields})
    return ResolvedSnapshot(tuple(columns), partitions, Manifest(tuple(fields), files, bounds))


def _length_of(field: Mapping[str, Any]) -> str | None:
    """Return the type of a text that has a length, as Spark notes it; None: it has none, or blanks count in it."""
    noted = str(field.get("metadata", {}).get(TEXT_TYPE, ""))
    return noted if field["type"] == "string" and _VARCHAR.fullmatch(noted) else None


def _require_readable(table: DeltaTable) -> None:
    protocol = table.protocol()
    unknown = sorted(set(protocol.reader_features or ()) - READABLE_FEATURES)
    if unknown:
        raise LakeUnreadable(
            f"it uses Delta's reader feature {', '.join(unknown)}, which is not supported; supported are "
            f"{', '.join(sorted(READABLE_FEATURES))}"
        )


def _stored(field: Mapping[str, Any], mapping: str) -> StoredField:
    physical = physical_field(field, mapping)
    number = field["metadata"].get(_ID) if mapping == "id" else None
    is_plain = mapping == "none" or isinstance(field["type"], str) or _names(field["type"]) == _names(physical["type"])
    return StoredField(field["name"], physical["name"], number, physical, is_plain)


def _names(data_type: Any) -> Any:
    """Return the names of nested fields, in the shape of the type."""
    if isinstance(data_type, str):
        return None
    match data_type["type"]:
        case "struct":
            return [(field["name"], _names(field["type"])) for field in data_type["fields"]]
        case "array":
            return _names(data_type["elementType"])
        case _:
            return _names(data_type["keyType"]), _names(data_type["valueType"])


def physical_field(field: Mapping[str, Any], mapping: str) -> dict[str, Any]:
    """Return a field of a schema with the names that files have, or the ids, nested ones too.

    mapping: Delta's ``delta.columnMapping.mode``.
    """
    metadata = field.get("metadata", {})
    ids = {PARQUET_ID: metadata[_ID]} if mapping == "id" else {}
    name = field["name"] if mapping == "none" else metadata[_PHYSICAL_NAME]
    return {"name": name, "type": _physical_type(field["type"], mapping), "nullable": True, "metadata": ids}


def _physical_type(data_type: Any, mapping: str) -> Any:
    if isinstance(data_type, str):
        return data_type
    match data_type["type"]:
        case "struct":
            return {"type": "struct", "fields": [physical_field(field, mapping) for field in data_type["fields"]]}
        case "array":
            return {**data_type, "elementType": _physical_type(data_type["elementType"], mapping)}
        case _:
            return {
                **data_type,
                "keyType": _physical_type(data_type["keyType"], mapping),
                "valueType": _physical_type(data_type["valueType"], mapping),
            }


def spark_type(data_type: Any) -> str:
    """Return a type of Delta's schema in Spark's short form. Raises LakeUnreadable."""
    if isinstance(data_type, str):
        try:
            primitive = parse(data_type)
        except InvalidType as failure:
            raise LakeUnreadable(f"a column has the type {data_type}, which not every engine reads") from failure
        if primitive.kind.row.group in (Group.VARIANT, Group.VOID):
            raise LakeUnreadable(f"a column has the type {data_type}, which not every engine reads")
        return str(primitive)
    match data_type["type"]:
        case "struct":
            fields = (f"{spark_name(field['name'])}:{spark_type(field['type'])}" for field in data_type["fields"])
            return f"struct<{','.join(fields)}>"
        case "array":
            return f"array<{spark_type(data_type['elementType'])}>"
        case "map":
            return f"map<{spark_type(data_type['keyType'])},{spark_type(data_type['valueType'])}>"
        case other:
            raise LakeUnreadable(f"a column has the type {other}, which not every engine reads")


def _files(table: DeltaTable, actions: pa.Table, place: TablePlace, types: Mapping[str, Any]) -> Iterator[SnapshotFile]:
    partitions = table.metadata().partition_columns
    in_log = (_of_files(actions, "partition", name) for name in partitions)
    values = [[None] * len(actions) if column is None else column.to_pylist() for column in in_log]
    masks = _deleted(table, place)
    rows = actions.column("num_records").to_pylist() if "num_records" in actions.column_names else [None] * len(actions)
    columns = (actions[name].to_pylist() for name in ("path", "size_bytes", "modification_time"))
    for index, (path, size, modified_ms) in enumerate(zip(*columns, strict=True)):
        file = absolute(place, path)
        constants = {
            name: _constant(column[index], types[name]) for name, column in zip(partitions, values, strict=True)
        }
        yield SnapshotFile(file, size, rows[index], constants, masks.get(file), version=modified_ms)


def _bounds(actions: pa.Table, columns: Sequence[Column], stored: Mapping[str, str]) -> dict[str, Bounds]:
    """Return the bounds that the log has. stored: names of columns in the files, by their names in the table."""
    bounds = {}
    for column in columns[:MOST_BOUNDS]:
        type = arrow_type(column.type)
        name = stored.get(column.name)
        sides = ("min", "max") if name is not None else ("partition", "partition")
        least, most = (_of_files(actions, side, name or column.name) for side in sides)
        if least is None or most is None or least.type != type:
            continue
        if has_bounds(type) and not (pa.types.is_decimal(type) and name is not None):  # JSON numbers in the log
            if pa.types.is_timestamp(type) and name is not None:  # cut to milliseconds in the log
                most = pc.add(most, pa.scalar(1_000, pa.duration("us")))
            bounds[column.name] = Bounds(least, most, nulls=_nulls(actions, name, least))
    return bounds


def _of_files(actions: pa.Table, kind: str, name: str) -> pa.Array | None:
    """Return what the log says of a column of each file, such as its least value; None: it says nothing."""
    if kind not in actions.column_names or actions.schema.field(kind).type.get_field_index(name) < 0:
        return None
    return pc.struct_field(actions[kind].combine_chunks(), [name])


def _nulls(actions: pa.Table, stored: str | None, values: pa.Array) -> pa.Array | None:
    """Return rows with NULL by file; None: the log does not tell. stored: None: the column has one value in each."""
    if stored is not None:
        nulls = _of_files(actions, "null_count", stored)
        return None if nulls is None else nulls.cast(pa.int64())
    if "num_records" not in actions.column_names:
        return None
    return pc.if_else(pc.is_null(values), actions["num_records"].cast(pa.int64()).combine_chunks(), 0)


def paths_in_log(table: DeltaTable, place: TablePlace) -> dict[str, str]:
    """Return the paths of a table's files as its log spells them, by absolute path."""
    paths = pa.table(table.get_add_actions()).column("path").to_pylist()
    return {absolute(place, path): path for path in paths}


def _deleted(table: DeltaTable, place: TablePlace) -> Mapping[str, NDArray[np.int64]]:
    """Return the positions of deleted rows by file."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    vectors = pa.table(table.deletion_vectors())
    positions: dict[str, NDArray[np.int64]] = {}
    for path, mask in zip(vectors.column(0).to_pylist(), vectors.column(1), strict=True):
        keep = np.asarray(mask.values.to_numpy(zero_copy_only=False), dtype=bool)
        positions[absolute(place, path)] = np.flatnonzero(~keep).astype(np.int64)
    return positions


def absolute(place: TablePlace, path: str) -> str:
    """Return the path at which engines read a file. Raises LakeUnreadable.

    The log has it relative to the table, or as a URI, in both cases URL-encoded.
    """
    decoded = unquote(urlsplit(path).path) if path.startswith("file:") else unquote(path)
    return place.local(decoded if "://" in path or os.path.isabs(decoded) else place.joined(decoded))


def _constant(value: Any, data_type: Any) -> str | None:
    """Return a partition value as text that Spark and DuckDB both cast to the column's type."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return str(value).lower()
    if data_type == "timestamp" and hasattr(value, "astimezone"):
        return f"{value.replace(tzinfo=None).isoformat(sep=' ')}+00:00"
    return str(value)
