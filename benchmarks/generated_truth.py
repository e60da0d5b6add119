"""Generated statements with the truth, as DuckDB counts it, and with PostgreSQL's estimate beside it.

What is empty, has more rows than any plan should, or takes longer than a benchmark can wait is left out and told.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb

from benchmarks.claim import step
from benchmarks.data_sets import SCHEMA, TABLES
from benchmarks.generated_joins import Schema, Statements
from benchmarks.planned_by_postgresql import planner

QUERIES = "queries.json"
EACH = 60  # statements of each kind
TRIES = 4  # statements for each that is kept
MOST_ROWS = 2e9
LONGEST_S = 5.0
MEMORY = "4GB"
SEED = 14
COUNTS = re.compile(r"^(WITH .*\) )?SELECT count\(\*\) FROM ")  # a generated statement that counts


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement. true, postgres: rows; postgres is None where PostgreSQL does not plan it."""

    sql: str
    true: float
    kind: str
    postgres: float | None = None


def queries(folder: Path, seed: int = SEED, each: int = EACH) -> list[Asked]:
    """Return the statements of a data set, made where they are not there yet."""
    file = folder / (QUERIES if seed == SEED else f"queries-{seed}.json")
    if not file.exists():
        step(f"making statements for {folder.name}")
        files = {path.stem: path for path in sorted((folder / TABLES).glob("*.parquet"))}
        joins = json.loads((folder / SCHEMA).read_text(encoding="utf-8"))["joins"]
        with loaded(files) as connection:
            found, left_out = answered(connection, Statements(Schema(connection, joins), seed), each)
        step(f"{len(found)} statements; left out: {', '.join(f'{n} {why}' for why, n in left_out.items()) or 'none'}")
        with planner(files) as postgresql:
            found = [Asked(one.sql, one.true, one.kind, postgresql.rows(one.sql)) for one in found]
        written = ",\n".join(json.dumps(asdict(one)) for one in found)
        file.write_text(f"[{written}]\n", encoding="utf-8")
    return [
        Asked(str(one["sql"]), float(one["true"]), str(one.get("kind", "")), one.get("postgres"))
        for one in json.loads(file.read_text(encoding="utf-8"))
    ]


@contextmanager
def loaded(files: Mapping[str, Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB that has Parquet files as tables in memory."""
    with duckdb.connect(config={"threads": 2, "memory_limit": MEMORY}) as connection:
        connection.execute("SET enable_progress_bar = false")
        for name, file in files.items():
            connection.execute(f"CREATE TABLE {name} AS FROM '{file}'")
        yield connection


def answered(
    connection: duckdb.DuckDBPyConnection, statements: Statements, each: int
) -> tuple[list[Asked], Counter[str]]:
    """Return as many statements of each kind as asked for, and how many were left out, by reason."""
    found: dict[str, Asked] = {}
    left_out: Counter[str] = Counter()
    for kind in statements.kinds:
        kept = 0
        for tried, sql in enumerate(statements.of(kind)):
            if kept == each or tried == each * TRIES:
                break
            rows = true_rows(connection, sql) if sql not in found else "of another kind"
            if isinstance(rows, str):
                left_out[rows] += 1
            else:
                kept += 1
                found[sql] = Asked(sql, rows, kind)
    return list(found.values()), left_out


def true_rows(connection: duckdb.DuckDBPyConnection, sql: str, longest_s: float = LONGEST_S) -> float | str:
    """Count the rows that a statement counts, else those that come out; returns why not where that is left out."""
    counted = sql if COUNTS.search(sql) else f"SELECT count(*) FROM ({sql})"
    alarm = threading.Timer(longest_s, connection.interrupt)
    alarm.start()
    try:
        row = connection.execute(counted).fetchone()
    except duckdb.InterruptException:
        return "too slow"
    except duckdb.OutOfMemoryException:
        return "too large"
    finally:
        alarm.cancel()
    rows = float(row[0]) if row else 0.0
    if not rows:
        return "empty"
    return rows if rows <= MOST_ROWS else "too many rows"
