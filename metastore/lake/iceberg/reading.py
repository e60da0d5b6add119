"""Apache Iceberg, read with pyiceberg: a snapshot's manifests tell the data files and the deletes of their rows.

Columns are found in files by field id, as the specification says ("Column Projection"); files without ids are read
through the table's name mapping. A table in a folder is the one of its newest metadata file, as a Hadoop catalog
has it.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
from cachetools import LRUCache
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.manifest import FileFormat, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import FileScanTask, StaticTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyiceberg.utils.lazydict import LazyDict

from engines.arrow_types import arrow_type
from engines.files.manifest import Manifest, SnapshotFile, StoredField
from engines.files.pruning import MOST_BOUNDS, Bounds, has_bounds
from metastore.lake.iceberg import earlier_names, sketches
from metastore.lake.iceberg.constants import constants_of
from metastore.lake.iceberg.deletes import Deletes
from metastore.lake.iceberg.store_io import StoreIO
from metastore.lake.place import LakeState, TablePlace
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
from selector.types import parse
from sql.tables import Column, InvalidTable

UNREADABLE = (
    *(EOFError, IndexError, KeyError, OSError, SystemError, TypeError, ValueError),  # of damaged Avro and JSON
    zlib.error,
    ValidationError,
    pa.ArrowException,
)
MOST_ENTRIES = 30_000
"""Entries of manifests that a process keeps decoded; one takes some kilobytes."""
_entries: LRUCache[tuple[str, bool], list[ManifestEntry]] = LRUCache(MOST_ENTRIES, getsizeof=len)
_entries_lock, _patching = threading.Lock(), threading.Lock()
EMPTY = "empty"
"""Id of the state of a table that has no snapshot yet."""
_METADATA = re.compile(r"(?:v(\d+)|(\d+)-[^/]*)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_IN_SPARK: Mapping[type[IcebergType], str] = {
    BooleanType: "boolean",
    IntegerType: "integer",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    DateType: "date",
    TimestampType: "timestamp_ntz",
    TimestamptzType: "timestamp",
    StringType: "string",
    BinaryType: "binary",
    FixedType: "binary",
}
"""Names of types in Spark's JSON schema."""


def state(place: TablePlace, name: SnapshotName | None) -> LakeState:
    """Return a state of the table at a place; None: the newest. Raises LakeUnreadable."""
    with readable():
        table, place = opened(place)
        metadata, snapshot = table.metadata, _snapshot_id(table, name)
        return LakeState(
            EMPTY if snapshot is None else str(snapshot),
            f"iceberg {place.catalog.name if place.catalog else ''} {place.location} {table.metadata_location} "
            f"{metadata.table_uuid} {metadata.last_updated_ms} {snapshot} {name is None}",
            place,
            partial(_load, table, snapshot, place, is_newest=name is None),
        )


def _load(table: StaticTable, snapshot_id: int | None, place: TablePlace, *, is_newest: bool) -> ResolvedSnapshot:
    with readable():
        return _resolved(table, snapshot_id, place, is_newest=is_newest)


def history(place: TablePlace) -> Sequence[HistoryEntry]:
    """Return the snapshots of the table at a place, the newest first. Raises LakeUnreadable."""
    with readable():
        snapshots = opened(place)[0].snapshots()
        return [
            HistoryEntry(
                str(one.snapshot_id),
                one.timestamp_ms,
                one.summary.operation.value if one.summary is not None else "",
                dict(one.summary.additional_properties) if one.summary is not None else {},
            )
            for one in sorted(snapshots, key=lambda snapshot: snapshot.timestamp_ms, reverse=True)
        ]


@contextmanager
def readable() -> Iterator[None]:
    """Let only LakeUnreadable leave the block."""
    try:
        yield
    except UNREADABLE as failure:
        if "equality deletes" in str(failure):
            raise LakeUnreadable(
                "it has equality deletes, which pyiceberg does not read: have its writer compact it "
                "(rewrite_data_files), or write position deletes"
            ) from failure
        raise LakeUnreadable(f"its metadata cannot be read ({one_line(failure)})") from failure


def opened(place: TablePlace) -> tuple[StaticTable, TablePlace]:
    """Return a table as it is now, and where its files lie. Raises LakeUnreadable."""
    if place.catalog is None:
        metadata = newest_metadata(place)
        return _table(metadata, place, place.stamp(f"metadata/{metadata.rpartition('/')[2]}")), place
    from metastore.lake.iceberg import catalogs  # with it come the libraries of catalogs

    table, located = catalogs.load(place)
    return _static(table.metadata_location, table.metadata, located), located


def newest_metadata(place: TablePlace) -> str:
    """Return the location of a table's newest metadata file. Raises LakeUnreadable if there are two."""
    numbered: dict[int, list[str]] = {}
    for file in place.filesystem.get_file_info(pafs.FileSelector(place.path("metadata"), allow_not_found=True)):
        match = _METADATA.fullmatch(file.base_name)
        if match is not None and file.type is pafs.FileType.File:  # a pipe would be waited for
            numbered.setdefault(int(match[1] or match[2]), []).append(file.base_name)
    if not numbered:
        raise LakeUnreadable("its folder metadata holds no *.metadata.json: put the metadata back, or drop the table")
    newest = numbered[max(numbered)]
    if len(newest) > 1:
        raise LakeUnreadable(
            f"{' and '.join(sorted(newest)[:2])} are both its newest metadata, and only its catalog knows which one "
            "counts: delete the one that was not committed"
        )
    return place.joined(f"metadata/{newest[0]}")


class PlaceIO(StoreIO):
    """Reader of files of one table: metadata may name any file or address, and none but the table's is opened."""

    def __init__(self, place: TablePlace) -> None:
        super().__init__({}, lambda _: place.store)
        self._place = place

    def new_input(self, location: str) -> PyArrowFile:
        """Return a file. Raises LakeUnreadable for one outside the table's folder."""
        return super().new_input(self._checked(location))

    def _checked(self, location: str) -> str:
        path = self._place.local(location)
        return path if self._place.store is None else location


@lru_cache(64)
def _table(metadata: str, place: TablePlace, _stamp: tuple[int, ...] | None) -> StaticTable:
    """Return the table of a metadata file. _stamp: of this file, as another one may have its name later.

    Not by ``StaticTable.from_metadata``: there, properties of the metadata choose the class that reads files.
    """
    return _static(metadata, FromInputFile.table_metadata(PlaceIO(place).new_input(metadata)), place)


def _static(location: str, metadata: TableMetadata, place: TablePlace) -> StaticTable:
    return StaticTable(
        identifier=("static-table", location),
        metadata_location=location,
        metadata=metadata,
        io=PlaceIO(place),
        catalog=NoopCatalog("static-table"),
    )


def _snapshot_id(table: StaticTable, name: SnapshotName | None) -> int | None:
    if name is None:
        current = table.current_snapshot()
        return current.snapshot_id if current is not None else None
    if name.at is At.TIMESTAMP:
        return _snapshot_at(table.metadata, int(name.value))
    reference = table.metadata.refs.get(name.value)
    if reference is not None:
        return reference.snapshot_id
    if name.value.isdecimal() and table.snapshot_by_id(int(name.value)) is not None:
        return int(name.value)
    names = ", ".join(sorted(table.metadata.refs)) or "none"
    raise LakeUnreadable(
        f"snapshot, branch or tag {name.value} does not exist, or has expired; branches and tags: {names}"
    )


def _snapshot_at(metadata: TableMetadata, at_ms: int) -> int:
    """Return the snapshot at a moment. Raises LakeUnreadable.

    Libraries take snapshots that expire out of the middle of the log; the next one's parent and number tell it.
    """
    later: Snapshot | None = None
    for entry in reversed(metadata.snapshot_log):
        snapshot = metadata.snapshot_by_id(entry.snapshot_id)
        if entry.timestamp_ms <= at_ms and snapshot is not None:
            if later is not None and not _follows(later, snapshot, metadata):
                break
            return snapshot.snapshot_id
        is_commit = snapshot is not None and snapshot.timestamp_ms == entry.timestamp_ms  # else it was put back
        later = snapshot if is_commit else None
    raise LakeUnreadable("there was no snapshot yet at that moment, or it has expired")


def _follows(later: Snapshot, earlier: Snapshot, metadata: TableMetadata) -> bool:
    """Return False where snapshots between the two may have expired."""
    parent = later.parent_snapshot_id  # of one that has expired, pyiceberg takes it away
    if parent is not None and metadata.snapshot_by_id(parent) is not None:
        return True
    return bool(earlier.sequence_number) and later.sequence_number == (earlier.sequence_number or 0) + 1


def _resolved(table: StaticTable, snapshot_id: int | None, place: TablePlace, *, is_newest: bool) -> ResolvedSnapshot:
    schema = table.schema()
    if not is_newest and snapshot_id is not None:
        snapshot = table.snapshot_by_id(snapshot_id)
        schemas = table.schemas()
        if snapshot is not None and snapshot.schema_id in schemas:
            schema = schemas[snapshot.schema_id]
    columns = tuple(column(field) for field in schema.fields)
    files: Sequence[SnapshotFile] = ()
    by_name = False
    tasks: list[FileScanTask] = []
    if snapshot_id is not None:
        with _remembered_entries():
            tasks = list(table.scan(snapshot_id=snapshot_id).plan_files())
        _require_parquet(tasks)
        paths = [place.local(task.file.file_path) for task in tasks]
        by_name = earlier_names.lacks_ids(table, paths, place)
        deleted = Deletes(table, tasks, place)
        files = tuple(_files(table, schema, tasks, paths, deleted, place, by_name=by_name))
    constant = {name for file in files for name in file.constants}
    if any(file.constants.keys() != constant for file in files):
        raise LakeUnreadable(
            f"only some of its files store the partition column {min(constant)}: have its writer rewrite the files"
        )
    changed = earlier_names.changed_below(table.schemas().values())
    ambiguous = earlier_names.ambiguous(table.metadata)
    fields = tuple(
        stored(
            field,
            by_name=by_name,
            is_plain=field.field_id not in changed,
            is_named_alone=by_name or field.field_id not in ambiguous,
        )
        for field in schema.fields
        if field.name not in constant
    )
    partitions = tuple(field.name for field in schema.fields if field.name in constant)
    bounds = _bounds(schema, tasks) if snapshot_id is not None else {}
    distinct = sketches.distinct_values(table.metadata, schema, snapshot_id)
    return ResolvedSnapshot(columns, partitions, Manifest(fields, tuple(files), bounds, distinct=distinct))


def column(field: NestedField) -> Column:
    """Return a column for a field of a schema. Raises LakeUnreadable."""
    _require_no_defaults(field)
    try:
        return Column(field.name, spark_type(field.field_type))
    except InvalidTable as failure:
        raise LakeUnreadable(str(failure)) from failure


def _require_no_defaults(field: NestedField) -> None:
    """Raise LakeUnreadable for a column, or a field in it, that older files lack and that is not NULL there."""
    for number in index_by_id(Schema(field)):
        below = Schema(field).find_field(number)
        if below.initial_default is not None:
            raise LakeUnreadable(
                f"its column {field.name} has a default for rows from before it was added, which is not supported: "
                "have its writer rewrite the files (rewrite_data_files)"
            )


def spark_type(kind: IcebergType) -> str:
    """Return a type in Spark's short form. Raises LakeUnreadable."""
    match kind:
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case StructType():
            fields = (f"{spark_name(field.name)}:{spark_type(field.field_type)}" for field in kind.fields)
            return f"struct<{','.join(fields)}>"
        case ListType():
            return f"array<{spark_type(kind.element_type)}>"
        case MapType():
            return f"map<{spark_type(kind.key_type)},{spark_type(kind.value_type)}>"
        case _ if type(kind) in _IN_SPARK:
            return str(parse(_IN_SPARK[type(kind)]))
        case _:
            raise LakeUnreadable(f"a column has the type {kind}, which not every engine reads")


def stored(field: NestedField, *, by_name: bool, is_plain: bool = True, is_named_alone: bool = True) -> StoredField:
    """Return the place of a field in data files.

    is_plain: no schema has had other names below it.
    is_named_alone: none has had another column by its name.
    """
    number = None if by_name else field.field_id
    return StoredField(field.name, field.name, number, _spark_field(field, by_name=by_name), is_plain, is_named_alone)


def _spark_field(field: NestedField, *, by_name: bool) -> dict[str, Any]:
    ids = {} if by_name else {PARQUET_ID: field.field_id}
    kind = _spark_json(field.field_type, by_name=by_name)
    return {"name": field.name, "type": kind, "nullable": True, "metadata": ids}


def _spark_json(kind: IcebergType, *, by_name: bool) -> Any:
    match kind:
        case StructType():
            return {"type": "struct", "fields": [_spark_field(field, by_name=by_name) for field in kind.fields]}
        case ListType():
            element = _spark_json(kind.element_type, by_name=by_name)
            return {"type": "array", "elementType": element, "containsNull": True}
        case MapType():
            key, value = (_spark_json(part, by_name=by_name) for part in (kind.key_type, kind.value_type))
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case _:
            return _IN_SPARK[type(kind)]


def _require_parquet(tasks: Sequence[FileScanTask]) -> None:
    for task in tasks:
        if task.file.file_format is not FileFormat.PARQUET:
            raise LakeUnreadable(
                f"it has files of {task.file.file_format.value}; only Parquet is read: have its writer rewrite them"
            )


# ---------------------------------------------------------------------- files and deletes


def _files(
    table: StaticTable,
    schema: Schema,
    tasks: Sequence[FileScanTask],
    paths: Sequence[str],
    deleted: Deletes,
    place: TablePlace,
    *,
    by_name: bool,
) -> Iterator[SnapshotFile]:
    specs = table.specs()
    for task, path in zip(tasks, paths, strict=True):
        constants = constants_of(task.file, specs[task.file.spec_id], schema, place, by_name=by_name)
        yield SnapshotFile(
            path, task.file.file_size_in_bytes, task.file.record_count, constants, deleted.of(task, path)
        )


@contextmanager
def _remembered_entries() -> Iterator[None]:
    """Have pyiceberg decode manifests once, which never change; after a commit, only the new ones are decoded."""
    decode = ManifestFile.fetch_manifest_entry

    def entries(manifest: ManifestFile, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        io.new_input(manifest.manifest_path)  # it may be read
        key = manifest.manifest_path, discard_deleted
        with _entries_lock:  # pyiceberg decodes several at once
            decoded = _entries.get(key)
        if decoded is None:
            decoded = decode(manifest, io, discard_deleted)
            with _entries_lock, suppress(ValueError):  # it is larger than all that is kept
                _entries[key] = decoded
        return decoded

    with _patching:
        ManifestFile.fetch_manifest_entry = entries  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            ManifestFile.fetch_manifest_entry = decode  # type: ignore[method-assign]


def _bounds(schema: Schema, tasks: Sequence[FileScanTask]) -> dict[str, Bounds]:
    """Return the bounds that the manifests have of columns."""
    files = [task.file for task in tasks]
    least, most = ([_by_field(file.lower_bounds) for file in files], [_by_field(file.upper_bounds) for file in files])
    nulls = [_by_field(file.null_value_counts) for file in files]
    bounds = {}
    for field in schema.fields[:MOST_BOUNDS]:
        kind, number = arrow_type(parse(spark_type(field.field_type))), field.field_id
        if has_bounds(kind):
            low, high = (pa.array([file.get(number) for file in side], pa.binary()) for side in (least, most))
            bounds[field.name] = Bounds(low, high, kind, pa.array([file.get(number) for file in nulls], pa.int64()))
    return bounds


def _by_field(values: Mapping[int, Any] | None) -> Mapping[int, Any]:
    """Return values of a manifest by field id, as a dict: pyiceberg's own class finds one in ten times as long."""
    return values.__dict__() if isinstance(values, LazyDict) else values or {}
