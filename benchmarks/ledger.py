"""Claim: what the ledger says that Spark alone would have taken is within 10 % of what it takes.

A gateway with DuckDB and Spark answers TPC-H and the paper's queries on the bookstore, as it decides. Then all of them
run on Spark. The ledger's sum of the first pass (measured where a query ran on Spark, forecast otherwise) is compared
with the engine-seconds of the second. Passes alternate, so that forecasts are made with what earlier passes taught; the
first one, before anything is known of Spark, is printed too.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from benchmarks.bookstore import DEFAULT_DATA, SEED, TABLES, DataOption, prepare
from benchmarks.claim import Claim, at_most, conditions, run_command, show_table, step
from benchmarks.same_answers import TPCH_QUERIES, tables_of
from benchmarks.server_process import GatewayProcess, gateway_process
from benchmarks.statements import read_statements
from gateway.cli.demo.paper_queries import PAPER_QUERIES
from statsproc.data.bookstore import Bookstore

ROUNDS = 4
ERROR, WITHIN_S = 0.10, 600


@dataclass(frozen=True, slots=True)
class Round:
    """One pass as decided and one on Spark alone, in engine-seconds. fast: queries that DuckDB answered."""

    spent_s: float
    alone_s: float
    forecast_s: float
    spark_s: float
    fast: int

    @property
    def error(self) -> float:
        """Relative error of the ledger's time alone."""
        return abs(self.alone_s - self.spark_s) / self.spark_s


def run(
    data: DataOption = DEFAULT_DATA,
    factor: Annotated[float, typer.Option(help="Scale factor of TPC-H.")] = 1.0,
    scale: Annotated[float, typer.Option(help="Share of the bookstore's rows of the paper.")] = 1 / 32,
    rounds: Annotated[int, typer.Option(help="Pairs of passes.", min=1)] = ROUNDS,
) -> Claim:
    """Let a gateway answer, then Spark alone, and compare."""
    statements = [one.sql for one in read_statements(TPCH_QUERIES)] + list(PAPER_QUERIES.values())
    tables = {source.name: source.location for source in tables_of("tpch", data, factor)}
    bookstore = prepare(data, Bookstore(scale=scale, seed=SEED))
    tables |= {name: str(bookstore / name) for name in TABLES}
    settings = {"FUSION_SPARK__ENABLED": "true", "FUSION_PARITY__SHARE": "0", "FUSION_CACHE__BYTES": "0"}
    with (
        tempfile.TemporaryDirectory(prefix="fusion-bench-", ignore_cleanup_errors=True) as work,
        gateway_process(Path(work), **settings) as gateway,
        httpx.Client(base_url=gateway.url, timeout=WITHIN_S) as client,
    ):
        for name, location in tables.items():
            client.post("/v1/tables", json={"name": name, "location": location}).raise_for_status()
        _compute_statistics(client, sorted(tables))
        _ask(client, "SELECT count(*) AS n FROM region", "spark")  # starts it
        made = [_round(gateway, client, statements, number) for number in range(1, rounds + 1)]
    rows = []
    for number, one in enumerate(made, 1):
        seconds = one.spent_s, one.alone_s, one.forecast_s, one.spark_s
        saved = one.alone_s - one.spent_s, one.spark_s - one.spent_s
        told = (f"{100 * one.error:.1f} %", *(f"{s:.1f}" for s in saved))
        rows.append([str(number), str(one.fast), *(f"{s:.1f}" for s in seconds), *told])
    head = ["round", "on DuckDB", "spent s", "ledger: alone s", "of that forecast", "Spark alone s", "error"]
    show_table(f"{len(statements)} queries", [*head, "ledger: saved s", "saved s"], rows)
    print(conditions(factor=f"{factor:g}", scale=f"{scale:g}", rounds=rounds))
    figures = {"error": made[-1].error, "first_error": made[0].error}
    figures["saved_share"] = statistics.median(1.0 - one.spent_s / one.spark_s for one in made)
    return Claim("ledger", figures, {"error": at_most(ERROR)})


def _round(gateway: GatewayProcess, client: httpx.Client, statements: Sequence[str], number: int) -> Round:
    step(f"round {number}: as decided")
    decided = [_ask(client, sql, "auto") for sql in statements]
    step(f"round {number}: on Spark alone")
    on_spark = [_ask(client, sql, "spark") for sql in statements]
    alone = [query["summary"]["alone"] for query in decided]
    return Round(
        spent_s=sum(map(_engine_s, decided)),
        alone_s=sum(one["seconds"] for one in alone),
        forecast_s=sum(one["seconds"] for one in alone if not one["measured"]),
        spark_s=sum(map(_engine_s, on_spark)),
        fast=sum(query["engine"] != "spark" for query in decided),
    )


def _engine_s(query: dict[str, Any]) -> float:
    return float(sum(attempt["wall_s"] - (attempt["waited_s"] or 0.0) for attempt in query["attempts"]))


def _ask(client: httpx.Client, sql: str, engine: str) -> dict[str, Any]:
    body = {"sql": sql, "engine": engine, "wait_s": WITHIN_S, "max_rows": 0}
    reply: dict[str, Any] = client.post("/v1/queries", json=body).raise_for_status().json()
    return reply


def _compute_statistics(client: httpx.Client, tables: Sequence[str]) -> None:
    step(f"building the statistics of {len(tables)} tables")
    job = client.post("/v1/stats/jobs", json={"tables": list(tables)}).raise_for_status().json()
    while job["finished_at"] is None:
        time.sleep(1.0)
        job = client.get(f"/v1/stats/jobs/{job['id']}").raise_for_status().json()


if __name__ == "__main__":
    run_command(run)
