"""Databases and external tables, with lists of files that are as old as the last REFRESH, as in Impala's catalog."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import sqlglot
from sqlglot import exp

_HIDDEN_PREFIXES = (".", "_")
_NAME = re.compile(r"\w+", re.ASCII)


class AnalysisError(Exception):
    """What Impala's front end refuses; the text has its prefix already."""


@dataclass(slots=True)
class Table:
    """An external table. columns: name -> Impala's type, without those of partitions; files: as of the last listing."""

    name: str
    location: str
    stored_as: str
    columns: dict[str, str]
    partition_columns: dict[str, str]
    properties: dict[str, str]
    files: list[Path] = field(default_factory=list)

    def list_files(self) -> None:
        """Look at the folder now."""
        folder = Path(self.location)
        folder.mkdir(parents=True, exist_ok=True)  # so does the Hive Metastore
        depth = len(self.partition_columns)
        self.files = sorted(
            file
            for file in folder.glob("*/" * depth + "*")
            if file.is_file() and not file.name.startswith(_HIDDEN_PREFIXES)
        )

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.stat().st_size for file in self.files if file.exists())

    @property
    def rows(self) -> int:
        """Rows by the files' own footers."""
        count = pq.read_metadata if self.stored_as == "PARQUET" else orc.ORCFile
        return sum(getattr(count(file), "num_rows", 0) or getattr(count(file), "nrows", 0) for file in self.files)

    def values_of(self, file: Path) -> dict[str, str]:
        """Return the partition values in a file's path."""
        parts = file.relative_to(self.location).parts[:-1]
        return {name: unquote(part.split("=", 1)[1]) for name, part in zip(self.partition_columns, parts, strict=True)}

    def select(self, *, by_name: bool) -> str:
        """Return the query that reads the files. by_name: or columns are taken in the order of the file."""
        if not self.files:
            empty = ", ".join(
                f"CAST(NULL AS {duckdb_type(kind)}) AS {quoted(name)}" for name, kind in self._all.items()
            )
            return f"SELECT {empty} LIMIT 0"
        if by_name and self.stored_as == "PARQUET":
            return self._select_files()
        return " UNION ALL ".join(self._select_file(file, by_name=by_name) for file in self.files)

    @property
    def _all(self) -> dict[str, str]:
        return {**self.columns, **self.partition_columns}

    def _select_files(self) -> str:
        files = ", ".join(text(str(file)) for file in self.files)
        types = ", ".join(f"{text(name)}: {duckdb_type(kind)}" for name, kind in self.partition_columns.items())
        hive = f"hive_partitioning=true, hive_types={{{types}}}" if types else "hive_partitioning=false"
        picked = ", ".join(f"{_cast(quoted(name), kind)} AS {quoted(name)}" for name, kind in self._all.items())
        return f"SELECT {picked} FROM read_parquet([{files}], {hive})"

    def _select_file(self, file: Path, *, by_name: bool) -> str:
        stored = self._stored_names(file) if file.exists() else list(self.columns)
        found = list(self.columns) if by_name else stored
        picked = []
        for place, (name, kind) in enumerate(self.columns.items()):
            source = found[place] if place < len(found) and found[place] in stored else None
            picked.append(f"{_cast(quoted(source) if source else 'NULL', kind)} AS {quoted(name)}")
        for name, value in self.values_of(file).items():
            picked.append(f"CAST({text(value)} AS {duckdb_type(self.partition_columns[name])}) AS {quoted(name)}")
        return f"SELECT {', '.join(picked)} FROM {self._scan(file)}"

    def _scan(self, file: Path) -> str:
        if self.stored_as == "PARQUET":
            return f"read_parquet({text(str(file))}, hive_partitioning=false)"
        return quoted(f"orc {file}")

    def orc_rows(self) -> dict[str, pa.Table]:
        """Return the rows of ORC files by the names that ``select`` uses: DuckDB reads none."""
        return {f"orc {file}": orc.read_table(file) for file in self.files} if self.stored_as == "ORC" else {}

    def _stored_names(self, file: Path) -> list[str]:
        schema = pq.read_schema(file) if self.stored_as == "PARQUET" else orc.ORCFile(file).schema
        return list(schema.names)


class Warehouse:
    """All databases. Thread-safe as far as single calls go."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._databases: dict[str, dict[str, Table]] = {"default": {}}

    def make_database(self, name: str) -> None:
        with self._lock:
            self._databases.setdefault(name.lower(), {})

    def databases(self) -> list[str]:
        with self._lock:
            return sorted(self._databases)

    def tables(self, database: str) -> dict[str, Table]:
        with self._lock:
            if database.lower() not in self._databases:
                raise AnalysisError(f"AnalysisException: Database does not exist: {database}")
            return dict(self._databases[database.lower()])

    def find(self, database: str, name: str, *, otherwise: str = "Could not resolve table reference") -> Table:
        with self._lock:
            table = self._databases.get(database.lower(), {}).get(name.lower())
        if table is None:
            raise AnalysisError(f"AnalysisException: {otherwise}: '{database}.{name}'")
        return table

    def drop(self, database: str, name: str) -> None:
        with self._lock:
            self._databases.get(database.lower(), {}).pop(name.lower(), None)

    def create(self, sql: str, database: str) -> None:
        """Declare the table of a CREATE EXTERNAL TABLE."""
        tree = sqlglot.parse_one(sql, read="hive")
        if not isinstance(tree, exp.Create) or not isinstance(tree.this, exp.Schema):
            raise AnalysisError("ParseException: Syntax error in line 1:\nCREATE")
        target = tree.this.this
        if not _NAME.fullmatch(target.name):
            raise AnalysisError(f"AnalysisException: Invalid table/view name: {target.name}")
        properties = tree.args["properties"].expressions
        by_class = {type(part): part for part in properties}
        parted = by_class.get(exp.PartitionedByProperty)
        table = Table(
            name=target.name.lower(),
            location=by_class[exp.LocationProperty].this.name,
            stored_as=by_class[exp.FileFormatProperty].this.name.upper(),
            columns=_columns(tree.this),
            partition_columns=_columns(parted.this) if parted is not None else {},
            properties={part.this.name: part.args["value"].name for part in properties if type(part) is exp.Property},
        )
        with self._lock:
            tables = self._databases.get((target.db or database).lower())
            if tables is None:
                raise AnalysisError(f"AnalysisException: Database does not exist: {target.db or database}")
            if table.name not in tables:
                if not table.partition_columns:  # those of partitions are found by RECOVER PARTITIONS
                    table.list_files()
                tables[table.name] = table


def duckdb_type(kind: str) -> str:
    """Return DuckDB's name of one of Impala's types."""
    return exp.DataType.build(kind, dialect="hive").sql(dialect="duckdb")


def _cast(value: str, kind: str) -> str:
    """Say the type; a moment of a file is shown in UTC."""
    value = f"timezone('UTC', CAST({value} AS TIMESTAMPTZ))" if kind == "TIMESTAMP" else value
    return f"CAST({value} AS {duckdb_type(kind)})"


def quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def text(value: str) -> str:
    escaped = value.replace("'", "''")
    return f"'{escaped}'"


def _columns(schema: exp.Expr) -> dict[str, str]:
    return {column.name: column.args["kind"].sql(dialect="hive").upper() for column in schema.expressions}
