"""A lake table's snapshot as a relation of Spark Connect: the files of its manifest, without their deleted rows.

Files with deleted rows are read one by one, so that a row's key is the file's number above the row's index; one join
for all of them takes a third of the time of a join by the files' names (measured with a million deleted rows).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engines.errors import UnsupportedFeature
from engines.files.manifest import Manifest, SnapshotFile, StoredField
from engines.spark_sql.reading import literal_path
from selector.quoting import spark_name, spark_string
from selector.types import FLOATING, Kind
from sql.tables import Column, TableSource

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # see ``connect.py``
    import pyspark.sql.connect.proto as pb2

MOST_GROUPS = 2_000  # reads in one plan
ROW_BITS = 40  # of a key, for the index of the row; a file has fewer rows
_KEY = "fusion deleted key"
_METADATA = "_metadata"
"""Spark's name for what it knows of a row's file; a column of that name hides it."""


Extra = tuple[str | None, str | None]
"""Names of extra columns, None for none: the URI of the row's file, and the row's number in it."""


def snapshot_relation(source: TableSource, manifest: Manifest, extra: Extra | None = None) -> pb2.Relation:
    """Return the relation. Raises UnsupportedFeature."""
    own = _own_columns(extra or (None, None))
    names = [*(column.name for column in source.columns), *own]
    key = _unused_name(_KEY, names)
    whole = list[pb2.Relation]()
    partly = list[pb2.Relation]()
    deleted: list[NDArray[np.int64]] = []
    for constants, files in manifest.by_constants():
        untouched = [file for file in files if not file.has_deleted]
        if untouched:
            whole.append(_columns(source, manifest, untouched, constants, own))
        for file in files:
            if file.deleted is not None and file.has_deleted:
                offset = len(partly) << ROW_BITS
                partly.append(_columns(source, manifest, [file], constants, own, (key, offset)))
                deleted.append(file.deleted + offset)
    if len(whole) + len(partly) > MOST_GROUPS:
        raise UnsupportedFeature(
            f"{source.name} has {len(whole) + len(partly):,} partitions and files with deleted rows; Spark gets "
            f"{MOST_GROUPS:,} at most."
        )
    if partly:
        whole.append(_without_deleted(names, key, _union(partly), np.concatenate(deleted)))
    return _union(whole) if whole else _empty(source, own)


def _read(manifest: Manifest, files: Sequence[SnapshotFile]) -> pb2.Relation:
    relation = pb2.Relation()
    data = relation.read.data_source
    data.format = "parquet"
    fields = [{**field.spark, "name": _name_for_spark(field)} for field in manifest.fields]
    data.schema = json.dumps({"type": "struct", "fields": fields})
    data.paths.extend(literal_path(file.path) for file in files)
    return relation


def _name_for_spark(field: StoredField) -> str:
    """Return the name by which Spark reads a column.

    Spark reads columns by field id, and leaves out row groups by the statistics of the column that the file has by that
    name. So one whose name another column had gets a name that no file has. Conditions on nested fields are not used.
    """
    is_hiding = field.stored.lower() == _METADATA and field.field_id is not None
    return field.stored if field.is_named_alone and not is_hiding else f"fusion field {field.field_id}"


def _columns(
    source: TableSource,
    manifest: Manifest,
    files: Sequence[SnapshotFile],
    constants: Mapping[str, str | None],
    own: Mapping[str, tuple[str, str]],
    key: tuple[str, int] | None = None,
) -> pb2.Relation:
    """Return the table's columns of some files. Raises UnsupportedFeature.

    key: name and offset of the keys of their rows; None: they need none.
    """
    relation = pb2.Relation()
    relation.project.input.CopyFrom(_read(manifest, files))
    stored = {field.name: _name_for_spark(field) for field in manifest.fields}
    if (own or key is not None) and any(name.lower() == _METADATA for name in stored.values()):
        raise UnsupportedFeature(f"{source.name} has a column {_METADATA}, which hides the numbers of rows from Spark.")
    for column in source.columns:
        value = _constant(column, constants) if column.name in constants else _stored(column, stored[column.name])
        expression = f"CAST({value} AS {column.type.spark()}) AS {spark_name(column.name)}"
        relation.project.expressions.add().expression_string.expression = expression
    for name, (value, _) in own.items():
        relation.project.expressions.add().expression_string.expression = f"{value} AS {spark_name(name)}"
    if key is not None:
        name, offset = key
        number = f"{_METADATA}.row_index + {offset}L AS {spark_name(name)}"
        relation.project.expressions.add().expression_string.expression = number
    return relation


def _stored(column: Column, stored: str) -> str:
    name = spark_name(stored)
    return f"nanvl({name}, {name})" if column.data_type in FLOATING else name  # see ``read_column``


def _constant(column: Column, constants: Mapping[str, str | None]) -> str:
    value = constants[column.name]
    if value is None:
        return "NULL"
    text = spark_string(value)
    return f"unhex({text})" if column.type.kind is Kind.BINARY else text


def _unused_name(name: str, names: Iterable[str]) -> str:
    """Return a name that none of some columns has."""
    taken = {one.lower() for one in names}
    while name.lower() in taken:
        name += " "
    return name


def _without_deleted(names: Sequence[str], key: str, rows: pb2.Relation, deleted: NDArray[np.int64]) -> pb2.Relation:
    relation = pb2.Relation()
    join = relation.project.input.join
    join.left.CopyFrom(rows)
    join.right.local_relation.data = _arrow(pa.table({key: deleted}))
    join.join_type = pb2.Join.JOIN_TYPE_LEFT_ANTI
    join.using_columns.append(key)
    for name in names:
        relation.project.expressions.add().expression_string.expression = spark_name(name)
    return relation


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _union(relations: Sequence[pb2.Relation]) -> pb2.Relation:
    """Return all their rows. The tree is balanced: servers limit how deep a plan is nested."""
    if len(relations) == 1:
        return relations[0]
    middle = len(relations) // 2
    relation = pb2.Relation()
    relation.set_op.left_input.CopyFrom(_union(relations[:middle]))
    relation.set_op.right_input.CopyFrom(_union(relations[middle:]))
    relation.set_op.set_op_type = pb2.SetOperation.SET_OP_TYPE_UNION
    relation.set_op.is_all = True
    return relation


def _own_columns(extra: Extra) -> dict[str, tuple[str, str]]:
    """Return the extra columns by name: expression and type."""
    meanings = ((f"{_METADATA}.file_path", "STRING"), (f"{_METADATA}.row_index", "BIGINT"))
    return {name: meaning for name, meaning in zip(extra, meanings, strict=True) if name is not None}


def _empty(source: TableSource, own: Mapping[str, tuple[str, str]]) -> pb2.Relation:
    relation = pb2.Relation()
    columns = [f"{spark_name(column.name)} {column.type.spark()}" for column in source.columns]
    columns += [f"{spark_name(name)} {kind}" for name, (_, kind) in own.items()]
    relation.local_relation.schema = ", ".join(columns)
    return relation
