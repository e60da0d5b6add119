"""Claim: a statement of TPC-DS that nobody asked before is read and decided about in 60 ms at the median.

A gateway over DuckDB alone, as a process of its own, runs each statement once over a small TPC-DS: its size changes the
run, not what comes before. What reading (parse, check, write for each engine) and deciding (EXPLAIN, estimate,
ranking) took, the gateway tells itself (``/v1/metrics``); statements that DuckDB cannot run are read all the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
import numpy as np
import typer

from benchmarks.bookstore import DEFAULT_DATA, DataOption
from benchmarks.claim import Claim, at_most, conditions, run_command, show_table, step
from benchmarks.overhead import told
from benchmarks.same_answers import tables_of, tpcds_statements
from benchmarks.server_process import gateway_process
from benchmarks.statements import Named
from gateway.cli.client import Client
from gateway.statements.stages import Stage

FACTOR = 0.01
MEDIAN_MS = 60.0
SHOWN = 8
MS = 1_000.0


@dataclass(frozen=True, slots=True)
class Planned:
    """One statement's milliseconds before it ran."""

    name: str
    read_ms: float
    decide_ms: float

    @property
    def both_ms(self) -> float:
        """Until an engine got it."""
        return self.read_ms + self.decide_ms


def run(
    data: DataOption = DEFAULT_DATA,
    factor: Annotated[float, typer.Option(help="Scale factor of TPC-DS.")] = FACTOR,
    only: Annotated[str, typer.Option(help="The statements whose name holds this.")] = "",
) -> Claim:
    """Measure what TPC-DS's statements take before they run."""
    sources = tables_of("tpcds", data, factor)
    statements = [one for one in tpcds_statements() if only in one.name]
    with tempfile.TemporaryDirectory(prefix="fusion-bench-") as work, gateway_process(Path(work)) as gateway:
        with Client(gateway.url) as client:
            for source in sources:
                client.post("/v1/tables", {"name": source.name, "location": source.location})
        step(f"{len(statements)} statements, each once")
        found = [_planned(gateway.url, statement) for statement in statements]
    columns = {
        "read": [each.read_ms for each in found],
        "decide": [each.decide_ms for each in found],
        "both": [each.both_ms for each in found],
    }
    show_table(
        "Before a statement runs, in ms", ["stage", "p50", "p90", "most"], [_row(*each) for each in columns.items()]
    )
    slowest = sorted(found, key=lambda each: each.both_ms, reverse=True)[:SHOWN]
    shown = [[each.name, f"{each.read_ms:.1f}", f"{each.decide_ms:.1f}"] for each in slowest]
    show_table("The slowest", ["statement", "read", "decide"], shown)
    print(conditions(factor=f"{factor:g}", statements=len(statements)))
    figures = {f"{name}_p50_ms": float(np.median(values)) for name, values in columns.items()}
    return Claim("planning", figures, {"both_p50_ms": at_most(MEDIAN_MS)})


def _planned(url: str, statement: Named) -> Planned:
    """Have a statement run to its end, whatever that is, and return what came before its run."""
    before = told(url)
    httpx.post(f"{url}/v1/queries", json={"sql": statement.sql, "wait_s": 600, "max_rows": 0}, timeout=660)
    stages = {stage: now - before[stage] for stage, now in told(url).items()}
    return Planned(statement.name, stages[Stage.READ].wall_s * MS, stages[Stage.DECIDE].wall_s * MS)


def _row(name: str, values: Sequence[float]) -> list[str]:
    return [name, *(f"{value:.1f}" for value in (np.median(values), np.percentile(values, 90), np.max(values)))]


if __name__ == "__main__":
    run_command(run)
