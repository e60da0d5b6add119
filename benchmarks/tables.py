"""Anyone's folder of tables: registered, with statistics by the real job, and as views of a DuckDB of our own."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from benchmarks.claim import RunFailed, step
from engines.duckdb import plan_reader as reader
from engines.duckdb.worker.footers import Footers
from engines.duckdb.worker.tables import view
from engines.files.listing import data_files
from gateway.planning.regular_expressions import search
from metastore.discovery.inspection import InspectionFailed, inspect
from metastore.records import CatalogTable, JobRequest
from metastore.store import Metastore
from selector.cardinality.predicates.patterns import use_search
from selector.join_keys import KeyPair
from selector.plan import Plan, TableShape
from selector.query_text import Wording, join_pairs, wording
from selector.statistics import TableStatistics
from statsproc.job.job import run_job
from statsproc.spark.progress import reporter as told_by
from statsproc.spark.session import open_session

DIALECT = "duckdb"

use_search(search)  # as the gateway does


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables by name, their statistics, and what their files tell."""

    tables: Mapping[str, CatalogTable]
    statistics: Mapping[str, TableStatistics]

    @property
    def shapes(self) -> list[TableShape]:
        """Return what a plan reader must know."""
        return [
            TableShape(name, {column.name: column.data_type for column in table.source.columns}, self.rows(name))
            for name, table in self.tables.items()
        ]

    def rows(self, name: str) -> int | None:
        """Return a table's rows as the files tell, else as the statistics do."""
        rows = self.tables[name].rows
        return rows if rows is not None else self.statistics[name].rows

    def question(self, sql: str) -> Question:
        """Return what the gateway knows of a statement when it reads the plan."""
        references = Counter(table.name.lower() for table in sqlglot.parse_one(sql, read=DIALECT).find_all(exp.Table))
        shapes = tuple(shape for shape in self.shapes if shape.name in references)
        own = wording(sqlglot.parse_one(sql, read=DIALECT), dialect=DIALECT)
        return Question(shapes, pairs_of(sql, self.tables), references, own)

    def plan(self, sql: str, explained: str) -> Plan:
        """Read a statement's plan as the gateway does."""
        return self.question(sql).plan(explained)


@dataclass(frozen=True, slots=True)
class Question:
    """What a checked statement tells about its plan.

    joined: pairs of columns that it joins. references: how often it names each table. wording: its own words.
    """

    shapes: tuple[TableShape, ...]
    joined: tuple[KeyPair, ...]
    references: Mapping[str, int]
    wording: Wording

    def plan(self, explained: str) -> Plan:
        """Read DuckDB's plan."""
        return reader.read(explained, self.shapes, self.joined, self.references, self.wording)


def pairs_of(sql: str, tables: Mapping[str, CatalogTable]) -> tuple[KeyPair, ...]:
    """Return the columns that a statement joins."""
    columns = {
        name: frozenset(column.name.lower() for column in table.source.columns) for name, table in tables.items()
    }
    try:
        return join_pairs(sqlglot.parse_one(sql, read=DIALECT), columns)
    except SqlglotError:
        return ()


def described(data: Path, work: Path, statements: Iterable[str]) -> Tables:
    """Register each file or folder of a folder as a table and compute statistics, with the keys that are joined."""
    with Metastore(f"sqlite:///{work / 'metastore.db'}") as metastore:
        for name, location in sorted(_places(data)):
            try:
                stored = _as_parquet(name, location, work)
                metastore.catalog.put(inspect(name, stored), at=dt.datetime.now(dt.UTC))
            except InspectionFailed as failure:
                step(f"{location.name} is no table: {failure}")
        tables = {table.name: table for table in metastore.catalog.list()}
        if not tables:
            raise RunFailed(f"{data} holds no tables: CSV or Parquet files, or folders of them")
        pairs = {pair for sql in statements for pair in pairs_of(sql, tables)}
        metastore.keys.learn(pairs, source="workload", at=dt.datetime.now(dt.UTC))
        errors = run_job(
            metastore,
            uuid.uuid4().hex,
            JobRequest(tuple(tables)),
            lambda: open_session(work / "spark"),
            told_by(as_json=False),
        )
        if errors:
            raise RunFailed("; ".join(f"{name}: {error}" for name, error in errors.items()))
        return Tables(tables, metastore.statistics.current_of(tables))


@contextmanager
def database(tables: Iterable[CatalogTable], **settings: str | int) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB that has the tables as views, as the engine makes them."""
    with duckdb.connect(config={"threads": 2, **settings}) as connection:
        for table in tables:
            files = data_files(Path(table.source.location))
            stored = Footers().columns_of(files) if table.source.format == "parquet" else ()
            connection.execute(view(table.source, files, stored))
        yield connection


def explained(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return a statement's plan as JSON."""
    row = connection.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchone()
    if row is None:
        raise RunFailed(f"DuckDB explains nothing of {sql}")
    return str(row[1])


def _as_parquet(name: str, location: Path, work: Path) -> Path:
    """Return a table as Parquet, which engines know most about; text is converted."""
    if location.is_dir() or location.suffix == ".parquet":
        return location
    stored = work / f"{name}.parquet"
    with duckdb.connect() as connection:
        connection.read_csv(str(location)).write_parquet(str(stored))
    return stored


def _places(data: Path) -> Sequence[tuple[str, Path]]:
    return [
        (entry.name.split(".")[0].lower(), entry)
        for entry in data.iterdir()
        if not entry.name.startswith((".", "_")) and (entry.is_dir() or entry.suffix in (".csv", ".gz", ".parquet"))
    ]
