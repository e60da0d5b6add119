"""New tables of plain files: what CREATE TABLE makes in a folder of the warehouse."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from engines.arrow_types import declared_type
from engines.compiled import SPARK_WRITER
from engines.files.listing import data_files
from engines.machine.private_files import private_folder
from engines.protocol import WriteTarget
from gateway.catalog.empty_files import write_empty_file
from gateway.commands.ddl.tables import CreateTable
from gateway.execution.staged_rows import Produce
from gateway.statements.statement import Run
from metastore.discovery.inspector import inspect
from metastore.records import Inspection
from sql.tables import Column, TableSource


def make_table(write: CreateTable, folder: Path, run: Run, produce: Produce) -> Inspection:
    """Make a table in a folder that is not there yet."""
    schema = pa.schema([])
    if write.query is not None:
        target = WriteTarget(str(folder), write.format, partition_columns=write.partition_columns)
        schema = produce(write.query.sql(SPARK_WRITER), target)
    else:
        _make_empty(write, folder, run.id)
    return _made(write, folder, schema)


def _make_empty(write: CreateTable, folder: Path, query_id: str) -> None:
    """Make the folder of a table without rows, with a file that tells its columns, where it may lie there."""
    private_folder(folder)
    if not write.partition_columns:
        write_empty_file(folder, query_id, write.format, write.columns)


def _made(write: CreateTable, folder: Path, schema: pa.Schema) -> Inspection:
    """Say what table was made. Its columns are the query's, whatever the files can say of their types."""
    columns = write.columns or tuple(Column(field.name, declared_type(field)) for field in schema)
    by_name = {column.name.lower(): column.name for column in columns}
    folders = tuple(by_name[name.lower()] for name in write.partition_columns)
    own = tuple(column for column in columns if column.name not in folders)
    last = tuple(next(column for column in columns if column.name == name) for name in folders)
    if data_files(folder):
        return inspect(write.table, folder, format=write.format, columns=own + last)
    source = TableSource(write.table, str(folder), write.format, own + last, partition_columns=folders)
    return Inspection(source, files=0, bytes=0, rows=0, declared=True)
