"""Commits to Delta tables, made by delta-rs.

Rows that come alone, or in the place of all others, are written by delta-rs in one step, which keeps column mapping and
constraints. A commit that replaces some files names them itself, which only plain tables allow.
"""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from engines.arrow_types import arrow_type
from metastore.lake.delta import reading
from metastore.lake.place import TablePlace
from metastore.lake.rows import batches
from metastore.lake.values import (
    LakeCommit,
    LakeConflict,
    LakeUnreadable,
    LakeUnwritable,
    Replaced,
    TableDescription,
    named_files,
    one_line,
    require_base,
)
from selector.types import Kind
from sql.tables import IDENTITY, Column, PartitionBy

QUERY = "fusionQuery"
"""Key of a commit's note: the id of the statement that made it."""
_LOOKED_AT = 100
"""Newest commits among which one of the same statement is looked for."""
ASIDE = "fusion-"
"""Prefix of the folder, in the table's, for files of a commit that replaces some."""
_MISSING_FEATURES = "Unsupported"
_BINARY_PARTITION = "delta-rs 1.6 writes binary partition values, as of {}, so that nobody reads them again"
_OF_DELTA = "delta."
"""Beginning of the names of properties that mean something to Delta."""
_NEWEST_PROTOCOL = {"delta.minReaderVersion": 2, "delta.minWriterVersion": 6}
"""Versions behind which delta-rs 1.6 claims features that a table does not have."""
_KEPT_FOR_DELTA_RS = (
    ("delta.columnMapping.mode", "its columns are mapped"),
    ("delta.enableChangeDataFeed", "it has a change data feed"),
    ("delta.appendOnly", "it takes new rows only (delta.appendOnly)"),
)


def create(
    place: TablePlace, columns: Sequence[Column], partition_by: Sequence[PartitionBy], properties: Mapping[str, str]
) -> None:
    """Make an empty table in a folder. Raises LakeUnwritable."""
    transforms = [one.transform for one in partition_by if one.transform != IDENTITY]
    if transforms:
        raise LakeUnwritable(f"Delta's partitions are columns, without {transforms[0]}: add a column for it")
    kinds = {column.name: column.type.kind for column in columns}
    binary = [one.column for one in partition_by if kinds[one.column] is Kind.BINARY]
    if binary:
        raise LakeUnwritable(_BINARY_PARTITION.format(binary[0]))
    _require_settable(properties)
    reading.require_plain(place)
    others = {name: value for name, value in properties.items() if not name.startswith(_OF_DELTA)}
    with writable():
        table = DeltaTable.create(
            place.location,
            storage_options=place.delta_options(),
            schema=_schema(columns),
            partition_by=[one.column for one in partition_by],
            configuration={name: value for name, value in properties.items() if name not in others},
        )
        if others:
            table.alter.set_table_properties(others, raise_if_not_exists=False)


def add_columns(place: TablePlace, columns: Sequence[Column]) -> None:
    """Add columns to a table; older rows have NULL in them. Raises LakeUnwritable, LakeConflict."""
    with writable():
        reading.open_table(place).alter.add_columns(list(_schema(columns).fields))


def alter_columns(
    place: TablePlace, new_names: Mapping[str, str], dropped: Sequence[str], widened: Sequence[Column]
) -> None:
    """Refuse to rename, drop or widen columns. Raises LakeUnwritable."""
    raise LakeUnwritable("delta-rs does not rename, drop or widen columns: use its own writer")


def description(place: TablePlace) -> TableDescription:
    """Return the properties of a table. Raises LakeUnreadable."""
    with reading.readable():
        return TableDescription(dict(reading.open_table(place).metadata().configuration))


def set_properties(place: TablePlace, properties: Mapping[str, str | None]) -> None:
    """Set properties of a table. Raises LakeUnwritable, LakeConflict."""
    changed = {name: value for name, value in properties.items() if value is not None}
    if len(changed) < len(properties):
        gone = min(properties.keys() - changed.keys())
        raise LakeUnwritable(f"delta-rs takes no properties away: SET {gone} to another value")
    _require_settable(changed)
    with writable():
        table = reading.open_table(place)
        for is_of_delta in (True, False):  # an unknown one of Delta is refused before anything is set
            part = {name: value for name, value in changed.items() if name.startswith(_OF_DELTA) is is_of_delta}
            if part:
                table.alter.set_table_properties(part, raise_if_not_exists=is_of_delta)


def _require_settable(properties: Mapping[str, str]) -> None:
    """Refuse properties with which delta-rs makes tables that it cannot write, or nobody can read."""
    if properties.get("delta.enableDeletionVectors", "").lower() == "true":
        raise LakeUnwritable(
            "delta-rs writes no deletion vectors, rows are deleted by writing their files anew: leave out "
            "delta.enableDeletionVectors"
        )
    for name, most in _NEWEST_PROTOCOL.items():
        version = properties.get(name, "0")
        if not version.isdecimal() or int(version) > most:
            raise LakeUnwritable(f"{name} may be {most} at most: Delta raises it where a table needs that")


def commit(place: TablePlace, change: LakeCommit) -> str:
    """Commit to the table in a folder, and return its new version. Raises LakeUnwritable, LakeConflict."""
    with writable():
        table = reading.open_table(place)
        version = _version_of(table, change.query_id)
        if version is not None:
            return version
        _require_given_columns(table)
        require_base(change, str(table.version()))
        if change.replaced is not Replaced.NOTHING and _is_on(table, "delta.appendOnly"):
            raise LakeUnwritable("it takes new rows alone (delta.appendOnly)")
        refusals: list[LakeConflict | LakeUnwritable] = []
        try:
            if change.replaced in (Replaced.NOTHING, Replaced.EVERYTHING):
                _write(table, change, refusals)
            else:
                _replace(table, place, change, refusals)
        except (DeltaError, OSError):
            if refusals:
                raise refusals[0] from None
            version = _version_of(reading.open_table(place), change.query_id)  # what comes after a commit may fail, too
            if version is None:
                raise
            return version
        return _version_of(reading.open_table(place), change.query_id) or str(table.version())


def _is_on(table: DeltaTable, name: str) -> bool:
    return str(table.metadata().configuration.get(name, "")).lower() == "true"


def _write(table: DeltaTable, change: LakeCommit, refusals: list[LakeConflict | LakeUnwritable]) -> None:
    """Commit rows beside all others, or in their place."""
    write_deltalake(
        table,
        _rows(table, change.files, refusals),
        mode="append" if change.replaced is Replaced.NOTHING else "overwrite",
        commit_properties=CommitProperties(custom_metadata={QUERY: change.query_id}),
    )


def committed(place: TablePlace, query_id: str) -> str | None:
    """Return the version that a statement has committed; None: none of the newest. Raises LakeUnwritable."""
    with writable():
        return _version_of(reading.open_table(place), query_id)


@contextmanager
def writable() -> Iterator[None]:
    """Let only LakeUnwritable and LakeConflict leave the block."""
    try:
        yield
    except CommitFailedError as failure:
        if _MISSING_FEATURES in str(failure):
            raise LakeUnwritable(f"delta-rs does not write tables like it ({one_line(failure)})") from failure
        raise LakeConflict(one_line(failure)) from failure
    except (DeltaError, pa.ArrowException, OSError, KeyError, ValueError) as failure:
        raise LakeUnwritable(f"delta-rs cannot write it ({one_line(failure)})") from failure


def _version_of(table: DeltaTable, query_id: str) -> str | None:
    """Return the version that a statement has committed; None: none of the newest is its."""
    for entry in table.history(_LOOKED_AT):
        if entry.get(QUERY) == query_id:
            return str(entry["version"])
    return None


def _schema(columns: Sequence[Column]) -> Schema:
    return Schema.from_arrow(
        pa.schema(
            pa.field(
                column.name,
                arrow_type(column.type),
                metadata={reading.TEXT_TYPE: column.declared_type} if column.length is not None else None,
            )
            for column in columns
        )
    )


def _arrow_schema(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _rows(
    table: DeltaTable, files: Sequence[str], refusals: list[LakeConflict | LakeUnwritable]
) -> pa.RecordBatchReader:
    """Return a reader of rows for a table. refusals: list for what it raises, of which delta-rs makes another error."""
    schema = _arrow_schema(table)
    partitions = table.metadata().partition_columns
    decimals = [name for name in partitions if pa.types.is_decimal(schema.field(name).type)]
    binary = [name for name in partitions if pa.types.is_binary(schema.field(name).type)]
    if binary:
        raise LakeUnwritable(_BINARY_PARTITION.format(binary[0]))

    def checked() -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches(files, schema):
                for name in decimals:  # delta-rs 1.6 writes -1.05 into the log as -1.-5, which nobody can read
                    if pc.any(pc.less(batch.column(name), 0)).as_py():
                        raise LakeUnwritable(f"delta-rs cannot write negative partitions of {name}")
                yield batch
        except (LakeConflict, LakeUnwritable) as refusal:
            refusals.append(refusal)
            raise

    return pa.RecordBatchReader.from_batches(schema, checked())


def _require_given_columns(table: DeltaTable) -> None:
    """Refuse tables with columns whose values writers compute: here they would be NULL, or what the statement gives."""
    rules = {"delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT"}
    for field in json.loads(table.schema().to_json())["fields"]:
        computed = rules & field.get("metadata", {}).keys()
        if computed:
            raise LakeUnwritable(f"its column {field['name']} has {min(computed)}: use its own writer")


def _replace(
    table: DeltaTable, place: TablePlace, change: LakeCommit, refusals: list[LakeConflict | LakeUnwritable]
) -> None:
    """Commit that files come and others go. A commit of others in between is a conflict."""
    _require_plain(table)
    current = reading.state(place, None)  # where it is not the table's version, the commit finds a conflict
    files = current.load().manifest.files
    # Never the folder of an earlier try, whose process was killed: that one may have committed it.
    name = f"{ASIDE}{change.query_id}-{uuid.uuid4().hex[:8]}"
    aside = replace(place, location=place.joined(name))
    is_committed = False
    try:
        added, partitions = _written(table, aside, name, change.files, refusals)
        gone = [file for file in files if frozenset(file.constants.items()) in partitions]
        if change.replaced is Replaced.FILES:
            gone = named_files(change, files, current.id)
        if not added and not gone:
            return
        if any(file.has_deleted for file in gone):
            raise LakeUnwritable(
                "rows of its files were deleted by deletion vectors, and delta-rs cannot replace such files: have its "
                "writer compact the table (OPTIMIZE)"
            )
        now_ms = int(time.time() * 1_000)
        paths = reading.paths_in_log(table, place)
        removed = [RemoveAction(_decoded(paths[file.path]), True, now_ms, size=file.bytes) for file in gone]
        table.create_write_transaction(
            [*added, *removed],
            "append",
            table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=CommitProperties({QUERY: change.query_id}, max_commit_retries=0),
        )
        is_committed = True
    finally:
        if not is_committed and _version_of(reading.open_table(place), change.query_id) is None:
            _delete(aside, "")


def _require_plain(table: DeltaTable) -> None:
    configuration = table.metadata().configuration
    for name, meaning in _KEPT_FOR_DELTA_RS:
        if configuration.get(name, "none").lower() not in ("none", "false"):
            raise LakeUnwritable(f"{meaning}, so that its rows cannot be changed here: use its own writer")
    constrained = [name for name in configuration if name.startswith("delta.constraints.")]
    for field in json.loads(table.schema().to_json())["fields"]:
        if "delta.invariants" in field.get("metadata", {}):
            constrained.append(f"delta.invariants of {field['name']}")
    if constrained:
        raise LakeUnwritable(f"it has {', '.join(sorted(constrained))}, which changed rows might break")


def _written(
    table: DeltaTable, aside: TablePlace, name: str, files: Sequence[str], refusals: list[LakeConflict | LakeUnwritable]
) -> tuple[list[AddAction], set[frozenset[tuple[str, str | None]]]]:
    """Write rows as a table of its own, and return its files for the log and its partitions.

    The statistics of the files are delta-rs's.
    """
    if not files:
        return [], set()
    write_deltalake(
        aside.location,
        _rows(table, files, refusals),
        partition_by=table.metadata().partition_columns,
        storage_options=aside.delta_options(),
    )
    written = reading.state(aside, None).load().manifest.files
    lines = list(_log_lines(aside))
    _delete(aside, "_delta_log")
    actions = [
        AddAction(
            f"{name}/{unquote(add['path'])}",
            add["size"],
            add["partitionValues"],
            add["modificationTime"],
            True,
            add.get("stats") or "{}",
        )
        for add in (entry["add"] for entry in map(json.loads, lines) if "add" in entry)
    ]
    return actions, {frozenset(file.constants.items()) for file in written}


def _log_lines(place: TablePlace) -> Iterator[str]:
    files = place.filesystem.get_file_info(pafs.FileSelector(place.path("_delta_log")))
    for file in sorted(files, key=lambda one: one.base_name):
        if file.extension == "json":
            with place.filesystem.open_input_stream(file.path) as stream:
                yield from stream.read().decode().splitlines()


def removed_since(place: TablePlace, since: dt.datetime) -> Iterator[str]:
    """Yield the absolute paths of files that were taken out of a table since a moment, which older versions need."""
    for line in _log_lines(place):
        removed = json.loads(line).get("remove") if '"remove"' in line else None
        if removed is not None and removed.get("deletionTimestamp", 0) >= since.timestamp() * 1e3:
            with suppress(LakeUnreadable):  # it lies elsewhere
                yield reading.absolute(place, removed["path"])


def _delete(place: TablePlace, below: str) -> None:
    """Delete a folder of a table, if it is there."""
    with suppress(OSError):
        place.filesystem.delete_dir(place.path(below))


def encoded(path: str) -> str:
    """Return a path as delta-rs spells it in a log."""
    return quote(path, safe="/=:&+'()!~@,;$")


def _decoded(path: str) -> str:
    """Return a path of the log as delta-rs takes it.

    Raises LakeUnwritable where delta-rs would spell it in another way: it compares the texts, and would remove nothing.
    """
    decoded = unquote(path)
    if encoded(decoded) != path:
        raise LakeUnwritable(
            f"its log spells the path of the file {path} in a way that delta-rs cannot replace: have its writer "
            "rewrite the file (OPTIMIZE)"
        )
    return decoded
