"""Commits to Iceberg tables.

Data files are written by pyiceberg, with field ids, statistics and all partition transforms.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NotInstalledError,
    ValidationError,
    ValidationException,
)
from pyiceberg.io.pyarrow import (
    ArrowProjectionVisitor,
    _dataframe_to_data_files,
    _determine_partitions,
    _get_field_from_arrow_table,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform, VoidTransform, parse_transform
from pyiceberg.types import DoubleType, FloatType, IcebergType

from engines.arrow_types import arrow_type
from metastore.lake.iceberg import catalogs, reading
from metastore.lake.iceberg.folder_catalog import FolderCatalog, WritablePlaceIO, require_version, snapshot_of
from metastore.lake.place import TablePlace
from metastore.lake.rows import batches
from metastore.lake.values import (
    LakeCommit,
    LakeConflict,
    LakeUnwritable,
    Replaced,
    TableDescription,
    named_files,
    one_line,
    require_base,
)
from metastore.objects.store import FILE_PROPERTIES, is_remote
from sql.tables import IDENTITY, Column, PartitionBy

TRIES = 20
"""Times that a commit is made anew as others were faster, while nothing that it rests on has changed."""
CHUNK_BYTES = 64 << 20
"""Rows that are held in memory at once; they become one data file in each of their partitions."""
QUERY = "fusion.query"
"""Key of a snapshot's note: the id of the statement that made it."""
_UNWRITABLE = (
    *reading.UNREADABLE,
    NotImplementedError,
    NotInstalledError,
    ValidationException,
)
_FIRST_PARTITION_ID = 1_000  # of Iceberg's specification
_PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
_VERSION = "format-version"
_RESERVED = frozenset(
    """
    current-schema current-snapshot-id current-snapshot-summary current-snapshot-timestamp-ms default-partition-spec
    default-sort-order snapshot-count uuid
    """.split()
)
"""Names of properties that Iceberg's specification keeps for readers."""
_SUFFIXES = {"bucket": "bucket", "truncate": "trunc"}
"""Ends of names of partition fields, as Spark makes them; other transforms give their own name."""


def create(
    place: TablePlace, columns: Sequence[Column], partition_by: Sequence[PartitionBy], properties: Mapping[str, str]
) -> None:
    """Make an empty table in a folder. Raises LakeUnwritable, LakeConflict."""
    with writable():
        _require_settable(properties)
        schema = _schema(columns)
        fields = [_partition_field(one, schema, at) for at, one in enumerate(partition_by)]
        _require_writable(PartitionSpec(*fields), schema)
        if place.catalog is not None:
            catalogs.create(place, schema, PartitionSpec(*fields), dict(properties))
            return
        metadata = new_table_metadata(
            schema, PartitionSpec(*fields), UNSORTED_SORT_ORDER, place.location, dict(properties)
        )
        require_version(metadata.format_version)
        FolderCatalog(place).create(metadata)


def add_columns(place: TablePlace, columns: Sequence[Column]) -> None:
    """Add columns to a table; older rows have NULL in them. Raises LakeUnwritable, LakeConflict."""
    with writable():
        schema = _schema(columns)
        with table_at(place)[0].update_schema() as update:
            for field in schema.fields:
                update.add_column(field.name, field.field_type)


def alter_columns(
    place: TablePlace, new_names: Mapping[str, str], dropped: Sequence[str], widened: Sequence[Column]
) -> None:
    """Rename, drop or widen columns of a table; its files stay. Raises LakeUnwritable, LakeConflict."""
    with writable():
        table, _ = table_at(place)
        sources = {field.source_id for spec in table.specs().values() for field in spec.fields}
        for name in dropped:
            if table.schema().find_field(name).field_id in sources:
                raise LakeUnwritable(f"its partitions are made of the column {name}")
        if len(dropped) == len(table.schema().fields):
            raise LakeUnwritable("a table has a column at least: DROP TABLE drops all")
        with table.update_schema() as update:
            for name in dropped:
                update.delete_column(name)
            for old, new in new_names.items():
                update.rename_column(old, new)
            for field in _schema(widened).fields:
                update.update_column(field.name, field_type=field.field_type)


def description(place: TablePlace) -> TableDescription:
    """Return the properties and partitions of a table. Raises LakeUnreadable."""
    with reading.readable():
        table, _ = reading.opened(place)
        columns = {number: table.schema().find_column_name(number) for number in table.schema().field_ids}
        fields = [one for one in table.spec().fields if not isinstance(one.transform, VoidTransform)]
        partition_by = (PartitionBy(columns.get(one.source_id) or "", str(one.transform)) for one in fields)
        return TableDescription(dict(table.properties), tuple(partition_by))


def set_properties(place: TablePlace, properties: Mapping[str, str | None]) -> None:
    """Set properties of a table. None: it goes. Raises LakeUnwritable, LakeConflict."""
    with writable():
        changed = {name: value for name, value in properties.items() if value is not None}
        _require_settable(changed)
        table, located = _opened(place)
        _require_paths_within(located, table.properties.keys() - properties.keys(), table)
        version = changed.pop(_VERSION, None)
        with table.transaction() as transaction:
            if version is not None:
                transaction.upgrade_table_version(_written_version(version))
            transaction.set_properties(changed)
            transaction.remove_properties(*(name for name, value in properties.items() if value is None))


def _written_version(text: str) -> Literal[1, 2]:
    """Return a format version. Raises LakeUnwritable for one that pyiceberg does not write."""
    if text not in ("1", "2"):
        raise LakeUnwritable(f"{_VERSION} may be 1 or 2, which pyiceberg writes")
    return 1 if text == "1" else 2


def _require_settable(properties: Mapping[str, str]) -> None:
    """Refuse properties by which pyiceberg would run code, write elsewhere, or nobody could read the table."""
    for name in properties:
        if name in (catalogs.CODE, *_PATHS) or name.startswith(FILE_PROPERTIES):
            raise LakeUnwritable(f"{name} cannot be set: the table's folder and its catalog say where files lie")
        if name in _RESERVED:
            raise LakeUnwritable(f"{name} is kept for what the table says of itself")


def commit(place: TablePlace, change: LakeCommit) -> str:
    """Commit to the table in a folder, and return its new snapshot. Raises LakeUnwritable, LakeConflict."""
    with writable():
        table, place = table_at(place)
        done = snapshot_of(table, QUERY, change.query_id)
        if done is not None:
            return done
        added: list[DataFile] = []
        try:
            schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
            for file in data_files(table, batches(change.files, schema)):
                added.append(file)
            return _committed(table, place, change, added)
        except BaseException as failure:
            done = snapshot_of(table_at(place)[0], QUERY, change.query_id)  # what comes after a commit may fail, too
            if done is None:
                delete_uncommitted(place, change.query_id, added, failure)
                raise
            return done


def table_at(place: TablePlace) -> tuple[Table, TablePlace]:
    """Return a table as it is now, to be written, and where its files lie. Raises LakeUnreadable, LakeUnwritable."""
    table, located = _opened(place)
    _require_paths_within(located, table.properties, table)
    return table, located


def _require_paths_within(place: TablePlace, names: Container[str], table: Table) -> None:
    """Raise LakeUnreadable where some of a table's properties have files written outside its folder."""
    for name in _PATHS:
        if name in names and name in table.properties:
            place.local(f"{table.properties[name].rstrip('/')}/file")


def _opened(place: TablePlace) -> tuple[Table, TablePlace]:
    if place.catalog is None:
        return FolderCatalog(place).table(), place
    table, located = catalogs.load(place)
    is_placed = is_remote(place.location) or os.path.isabs(place.location)
    if is_placed and located.location != place.location:  # where it may lie was judged by the latter
        raise LakeConflict("its catalog says that it lies elsewhere now")
    require_version(table.format_version)
    table.io = WritablePlaceIO(located)
    return table, located


def _committed(table: Table, place: TablePlace, change: LakeCommit, added: Sequence[DataFile]) -> str:
    """Commit data files, and return the id of the new snapshot."""
    for _ in range(TRIES):
        try:
            _commit(table, place, change, added)
            return snapshot_of(table_at(place)[0], QUERY, change.query_id) or reading.EMPTY
        except LakeConflict:
            newer = table_at(place)[0]
            if newer.metadata_location == table.metadata_location:
                raise  # nobody was faster: what the commit rests on has changed
            if (newer.schema(), newer.spec()) != (table.schema(), table.spec()):
                raise
            table = newer
    raise LakeConflict(f"others were faster {TRIES} times")


def delete_uncommitted(place: TablePlace, query_id: str, added: Sequence[DataFile], failure: BaseException) -> None:
    """Delete the files of a commit that was not made.

    A catalog that did not answer may still make the commit: then the files stay, and VACUUM deletes them if it did not.
    """
    is_refused = isinstance(failure, CommitFailedException | ValidationException | LakeConflict | LakeUnwritable)
    if place.catalog is not None and not is_refused:
        return
    table, _ = table_at(place)
    if snapshot_of(table, QUERY, query_id) is None:
        for file in added:
            table.io.delete(file.file_path)


def committed(place: TablePlace, query_id: str) -> str | None:
    """Return the snapshot that a statement has committed; None: there is none. Raises LakeUnwritable."""
    with writable():
        return snapshot_of(table_at(place)[0], QUERY, query_id)


@contextmanager
def writable() -> Iterator[None]:
    """Let only LakeUnwritable and LakeConflict leave the block."""
    try:
        yield
    except CommitFailedException as failure:
        raise LakeConflict(one_line(failure)) from failure
    except catalogs.unanswered() as failure:
        raise LakeUnwritable(f"its catalog does not answer as it should ({one_line(failure)})") from failure
    except (*_UNWRITABLE, ValidationError) as failure:
        raise LakeUnwritable(f"pyiceberg cannot write it ({one_line(failure)})") from failure


def _schema(columns: Sequence[Column]) -> Schema:
    arrow = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
    return assign_fresh_schema_ids(Catalog._convert_schema_if_needed(arrow))


def _partition_field(partition: PartitionBy, schema: Schema, at: int) -> PartitionField:
    source = schema.find_field(partition.column, case_sensitive=False)
    word = re.sub(r"\W.*", "", partition.transform)
    name = source.name if word == IDENTITY else f"{source.name}_{_SUFFIXES.get(word, word)}"
    return PartitionField(source.field_id, _FIRST_PARTITION_ID + at, parse_transform(partition.transform), name)


def _require_writable(spec: PartitionSpec, schema: Schema) -> None:
    """Refuse partitions that no row could be written to: pyiceberg makes them, and finds out with the first rows."""
    sources = [field.source_id for field in spec.fields]
    for field in spec.fields:
        source = schema.find_field(field.source_id)
        if sources.count(field.source_id) > 1:
            raise LakeUnwritable(f"its partitions are made of the column {source.name} twice: leave one out")
        try:
            list(_determine_partitions(PartitionSpec(field), schema, schema_to_pyarrow(schema).empty_table()))
        except (ValueError, pa.ArrowException) as failure:
            raise LakeUnwritable(
                f"{field.transform} of the column {source.name}, which has the type {source.field_type}, makes no "
                "partitions that pyiceberg writes: partition by another transform or column"
            ) from failure


def _require_comparable(table: Table, rows: pa.Table) -> None:
    """Refuse partitions that pyiceberg's comparison of numbers mixes up: NaN is in none of them, -0.0 in two."""
    for field in table.spec().fields:
        is_float = isinstance(table.schema().find_type(field.source_id), DoubleType | FloatType)
        if not is_float or not isinstance(field.transform, IdentityTransform):
            continue
        name = str(table.schema().find_column_name(field.source_id))
        values = _get_field_from_arrow_table(rows, name).drop_null().to_numpy()
        if np.isnan(values).any() or (np.signbit(values) & (values == 0)).any():
            raise LakeUnwritable(
                f"its partition column {name} would have NaN or -0.0, which pyiceberg writes wrong: leave such "
                "rows out, or give them another value"
            )


def _with_nulls(visit: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of pyiceberg's for lists or maps with the NULLs that they had: 0.12 loses those over structs."""

    def visited(self: ArrowProjectionVisitor, kind: IcebergType, array: pa.Array | None, *parts: pa.Array) -> Any:
        result = visit(self, kind, array, *parts)
        if result is None or array is None or result.null_count == array.null_count:
            return result
        offsets = pa.array(result.offsets.to_numpy(), result.offsets.type)  # from_arrays takes no slice of others
        below = (result.keys, result.items) if isinstance(result, pa.MapArray) else (result.values,)
        return type(result).from_arrays(offsets, *below, type=result.type, mask=array.is_null())

    return visited


for _method in ("list", "map"):
    setattr(ArrowProjectionVisitor, _method, _with_nulls(getattr(ArrowProjectionVisitor, _method)))


def data_files(table: Table, rows: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
    """Write rows into the table's folder; nobody reads them before the commit."""
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    chunk: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        chunk.append(batch)
        size += batch.nbytes
        if size >= CHUNK_BYTES:
            yield from _written(table, chunk, schema)
            chunk, size = [], 0
    yield from _written(table, chunk, schema)


def _written(table: Table, chunk: Sequence[pa.RecordBatch], schema: pa.Schema) -> Iterator[DataFile]:
    rows = pa.Table.from_batches(chunk).cast(schema) if chunk else schema.empty_table()
    if rows.num_rows:
        _require_comparable(table, rows)
        yield from _dataframe_to_data_files(table.metadata, rows, table.io)


def _commit(table: Table, place: TablePlace, change: LakeCommit, added: Sequence[DataFile]) -> None:
    gone = _gone(table, place, change, added)
    if not added and not gone:
        return
    notes = {QUERY: change.query_id, "fusion.operation": change.operation}
    with table.transaction() as transaction:
        update = transaction.update_snapshot(snapshot_properties=notes)
        with update.overwrite() if gone else update.fast_append() as snapshot:
            for file in gone:
                snapshot.delete_data_file(file)
            for file in added:
                snapshot.append_data_file(file)


def _gone(table: Table, place: TablePlace, change: LakeCommit, added: Sequence[DataFile]) -> list[DataFile]:
    """Return the data files whose place the rows take. Raises LakeConflict."""
    snapshot = table.current_snapshot()
    require_base(change, str(snapshot.snapshot_id) if snapshot is not None else reading.EMPTY)
    if change.replaced is Replaced.NOTHING or snapshot is None:
        return []
    files = {place.local(task.file.file_path): task.file for task in table.scan().plan_files()}
    match change.replaced:
        case Replaced.EVERYTHING:
            return list(files.values())
        case Replaced.PARTITIONS if table.spec().is_unpartitioned():
            return list(files.values())
        case Replaced.PARTITIONS:
            if any(file.spec_id != table.spec().spec_id for file in files.values()):
                raise LakeUnwritable(
                    "its partitions were changed and older files have the former ones: replace all rows, or name them "
                    "in a DELETE"
                )
            partitions = {file.partition for file in added}
            return [file for file in files.values() if file.partition in partitions]
        case _:
            current = reading.state(place, None)
            return [files[file.path] for file in named_files(change, current.load().manifest.files, current.id)]
