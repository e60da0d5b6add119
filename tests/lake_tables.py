"""Lake tables for tests, by the formats' own libraries; what these cannot write, by the formats' specifications."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record
from pyroaring import BitMap

_DELTA_MAGIC = 1_681_511_377  # of the serialized bitmap (Delta's PROTOCOL.md, "Deletion Vector Format")
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def catalog_at(folder: Path) -> SqlCatalog:
    """Return an Iceberg catalog whose tables lie below a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("tests", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder))
    catalog.create_namespace_if_not_exists("db")
    return catalog


def delete_by_vector(folder: Path, positions: Sequence[int], *, in_file: bool = False) -> None:
    """Delete rows of a Delta table's only file by a deletion vector, which delta-rs does not write itself.

    in_file: it lies in a file of its own, as Spark has it, else in the log.
    """
    table = DeltaTable(folder)
    (action,) = pa.table(table.get_add_actions()).to_pylist()
    stored = {
        "path": action["path"],
        "partitionValues": {},
        "size": action["size_bytes"],
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps({"numRecords": action["num_records"], "tightBounds": False}),
    }
    vector = {
        "storageType": "i",
        "pathOrInlineDv": _z85(_serialized(positions)),
        "sizeInBytes": len(_serialized(positions)),
        "cardinality": len(positions),
    }
    if in_file:
        name, content = uuid.uuid4(), _serialized(positions)
        size, checksum = struct.pack(">I", len(content)), struct.pack(">I", zlib.crc32(content))
        (folder / f"deletion_vector_{name}.bin").write_bytes(b"\x01" + size + content + checksum)
        vector |= {"storageType": "u", "pathOrInlineDv": _z85(name.bytes), "offset": 1}
    features = ["deletionVectors"]
    metadata = table.metadata()
    commit: list[dict[str, Any]] = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        },
        {
            "metaData": {
                "id": str(metadata.id),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": table.schema().to_json(),
                "partitionColumns": [],
                "configuration": {"delta.enableDeletionVectors": "true"},
            }
        },
        {"remove": {"path": action["path"], "deletionTimestamp": 0, "dataChange": True}},
        {"add": {**stored, "deletionVector": vector}},
    ]
    log = folder / "_delta_log" / f"{table.version() + 1:020}.json"
    log.write_text("\n".join(map(json.dumps, commit)), encoding="utf-8")


def map_columns(folder: Path, names: dict[str, str], *, mode: str = "name") -> None:
    """Rename columns of a Delta table without rewriting its files. names: new names by the old ones."""
    table = DeltaTable(folder)
    schema = json.loads(table.schema().to_json())
    for number, field in enumerate(schema["fields"], start=1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
        field["name"] = names.get(field["name"], field["name"])
    commit = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {
            "metaData": {
                "id": str(table.metadata().id),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": [],
                "configuration": {
                    "delta.columnMapping.mode": mode,
                    "delta.columnMapping.maxColumnId": str(len(schema["fields"])),
                },
            }
        },
    ]
    log = folder / "_delta_log" / f"{table.version() + 1:020}.json"
    log.write_text("\n".join(map(json.dumps, commit)), encoding="utf-8")


def _serialized(positions: Sequence[int]) -> bytes:
    bitmap = BitMap(positions).serialize()
    return struct.pack("<iqi", _DELTA_MAGIC, 1, 0) + bitmap


def _z85(content: bytes) -> str:
    padded = content + b"\0" * (-len(content) % 4)
    text = list[str]()
    for (word,) in struct.iter_unpack(">I", padded):
        digits = []
        for _ in range(5):
            word, digit = divmod(word, 85)
            digits.append(_Z85[digit])
        text += reversed(digits)
    return "".join(text)


def add_without_partition(table: Table, column: str, values: Sequence[Any], *, with_ids: bool) -> None:
    """Add a file of one row, an ``id``, for each value of an identity partition, which it does not store.

    So are the files of a Hive table that became one of Iceberg. with_ids: columns have field ids.
    """
    with table.update_spec() as update:
        update.add_identity(column)
    if not with_ids:
        mapping: dict[str, Any] = {"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()}
        table.transaction().set_properties(**mapping).commit_transaction()
    folder = Path(table.location().removeprefix("file://")) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    note = {"PARQUET:field_id": "1"} if with_ids else None
    with table.transaction() as transaction:
        append = _FastAppendFiles(Operation.APPEND, transaction, table.io)
        for number, value in enumerate(values):
            path = folder / f"{number}.parquet"
            schema = pa.schema([pa.field("id", pa.int64(), metadata=note)])
            pq.write_table(pa.table([pa.array([number], pa.int64())], schema=schema), path)
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=str(path),
                file_format=FileFormat.PARQUET,
                partition=Record(value),
                record_count=1,
                file_size_in_bytes=path.stat().st_size,
            )
            file.spec_id = table.spec().spec_id
            append.append_data_file(file)
        append.commit()


def delete_by_position(table: Table, positions: Sequence[int]) -> None:
    """Delete rows of an Iceberg table's only data file by a position delete file, which pyiceberg does not write."""
    (task,) = table.scan().plan_files()
    folder = Path(table.location().removeprefix("file://")) / "data"
    path = folder / f"{uuid.uuid4()}-deletes.parquet"
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
            pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
        ]
    )
    rows = pa.table([[task.file.file_path] * len(positions), list(positions)], schema=schema)
    pq.write_table(rows, path)
    _commit_deletes(table, path, len(positions))


def _commit_deletes(table: Table, path: Path, rows: int) -> None:
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=str(path),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=path.stat().st_size,
    )
    deletes.spec_id = table.spec().spec_id
    with table.transaction() as transaction:
        producer = _RowDelta(Operation.DELETE, transaction, table.io)
        producer.append_data_file(deletes)
        producer.commit()
    table.refresh()


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        """Return what the manifest lists."""
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _RowDelta(_FastAppendFiles):
    """Commit of delete files."""

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriterV2:
        """Return the writer of a manifest of deletes."""
        schema = self._transaction.table_metadata.schema()
        return _DeleteManifest(spec, schema, self.new_manifest_output(), self._snapshot_id, self._compression)
