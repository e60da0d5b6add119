"""Claim: a SELECT after a CREATE TABLE or DROP TABLE takes at most 100 ms longer than the one before it.

A gateway with its default settings, DuckDB and the embedded Spark. Several clients at once take rounds of CREATE TABLE
AS, INSERT, SELECT and DROP over HTTP. In each round the same SELECT is asked four times: of a table that was there
before the run, then of the new one after it was made and after it got more rows, and of the first again after the
other was dropped. Whatever the clients' other rounds cost is in all four: writes run on Spark, and take all processors.
What the SELECT takes while nobody writes is measured first, and shown.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from benchmarks.claim import Claim, RunFailed, Target, at_most, conditions, run_command, show_table, step
from benchmarks.serving import serving, timed_query
from gateway.cli.client import Client
from gateway.settings import load

ROUNDS = 100
CLIENTS = 4
ROWS = 1_000
QUIET = 50  # SELECTs of each client while nobody writes
TARGET_MS = 100.0
MS = 1_000.0
STANDING = "standing"
ENGINE = "duckdb"
AFTER = ("after_create", "after_insert", "after_drop")
ROWS_OF = "SELECT n, n % 7 AS kind, concat('row ', n) AS word FROM numbers"
SELECT = "SELECT kind, count(*) AS rows, max(word) AS word FROM {table} WHERE n >= 0 GROUP BY kind ORDER BY kind"


@dataclass(frozen=True, slots=True)
class Round:
    """One round, in milliseconds: the SELECT at its four places, and what the writes took."""

    before_ms: float
    after_create_ms: float
    after_insert_ms: float
    after_drop_ms: float
    create_table_ms: float
    insert_ms: float
    drop_table_ms: float


def run(
    rounds: Annotated[int, typer.Option(help="Rounds of all clients together.", min=1)] = ROUNDS,
    clients: Annotated[int, typer.Option(help="Clients at once.", min=1)] = CLIENTS,
    tables: Annotated[int, typer.Option(help="Tables more that there are from the start.", min=0)] = 0,
) -> Claim:
    """Measure SELECTs around statements that change the catalog."""
    with (
        tempfile.TemporaryDirectory(prefix="fusion-bench-", ignore_cleanup_errors=True) as home,
        tempfile.TemporaryDirectory(prefix="fusion-bench-") as data,
    ):
        file = Path(data) / "numbers.parquet"
        pq.write_table(pa.table({"n": pa.array(range(ROWS), pa.int64())}), file)
        for place in (Path(data), file):  # everybody's to read, as a table's files have to be
            place.chmod(0o755)
        where = conditions(rounds=rounds, clients=clients, rows=ROWS, tables_more=tables)
        with serving(load(Path(home))) as (_, client), ThreadPoolExecutor(clients) as pool:
            step("Spark starts with the first statement")
            for name in ("numbers", *(f"more_{number}" for number in range(tables))):
                client.post("/v1/tables", {"name": name, "location": data})
            timed_query(client, f"CREATE TABLE {STANDING} AS {ROWS_OF}")
            quiet = [ms for each in pool.map(partial(_quiet, client.url), range(clients)) for ms in each]
            shares = [rounds // clients + (number < rounds % clients) for number in range(clients)]
            done = [one for each in pool.map(partial(_rounds, client.url), range(clients), shares) for one in each]
    figures, targets = figures_of(done, quiet)
    rows = [
        [place, f"{figures[f'{place}.p50_ms']:.1f}", f"{figures[f'{place}.max_ms']:.0f}"]
        for place in ("quiet", *(each.name.removesuffix("_ms") for each in fields(Round)))
    ]
    show_table("SELECTs around DDL, and the DDL itself, in ms", ["", "p50", "max"], rows)
    print(where)
    return Claim("ddl", figures, targets)


def figures_of(done: Sequence[Round], quiet: Sequence[float]) -> tuple[dict[str, float], dict[str, Target]]:
    """Return medians and maxima, and by how much a SELECT takes longer after DDL. quiet: ms, while nobody writes."""
    places = {each.name: [getattr(one, each.name) for one in done] for each in fields(Round)}
    figures, targets = dict[str, float](), dict[str, Target]()
    for name, taken in {"quiet_ms": quiet, **places}.items():
        place = name.removesuffix("_ms")
        figures[f"{place}.p50_ms"], figures[f"{place}.max_ms"] = statistics.median(taken), max(taken)
    for place in AFTER:
        figures[f"{place}.more_ms"] = figures[f"{place}.p50_ms"] - figures["before.p50_ms"]
        targets[f"{place}.more_ms"] = at_most(TARGET_MS)
    return figures, targets


def _quiet(url: str, number: int) -> list[float]:
    with Client(url) as client:
        return [_select(client, STANDING) for _ in range(QUIET)]


def _rounds(url: str, number: int, rounds: int) -> list[Round]:
    with Client(url) as client:
        return [_round(client, f"made_{number}_{at}") for at in range(rounds)]


def _round(client: Client, table: str) -> Round:
    before_ms = _select(client, STANDING)
    create_s, _ = timed_query(client, f"CREATE TABLE {table} AS {ROWS_OF}")
    after_create_ms = _select(client, table)
    insert_s, _ = timed_query(client, f"INSERT INTO {table} {ROWS_OF}")
    after_insert_ms = _select(client, table, rows=2 * ROWS)
    drop_s, _ = timed_query(client, f"DROP TABLE {table}")
    after_drop_ms = _select(client, STANDING)
    return Round(before_ms, after_create_ms, after_insert_ms, after_drop_ms, create_s * MS, insert_s * MS, drop_s * MS)


def _select(client: Client, table: str, *, rows: int = ROWS) -> float:
    """Ask the SELECT; return what it took. Raises RunFailed where it ran elsewhere, or did not see all rows."""
    took_s, reply = timed_query(client, SELECT.format(table=table))
    counted = sum(row[1] for row in reply["rows"])
    if (reply["engine"], counted) != (ENGINE, rows):
        raise RunFailed(f"the SELECT of {table} ran on {reply['engine']} and counted {counted} of {rows} rows")
    return took_s * MS


if __name__ == "__main__":
    run_command(run)
