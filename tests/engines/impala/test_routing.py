"""A gateway whose fast engine is Impala, over the wire: routed by its own plans, failed over, and not tried again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from engines.duckdb.adapter import DuckDBSettings
from engines.impala.adapter import ImpalaSettings
from engines.protocol import EngineKind
from engines.scripted import Script, ScriptedEngine
from engines.spark.adapter import SparkSettings
from gateway import settings as settings_module
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.statements.statement import Statement
from metastore.records import QueryRecord, QueryState
from selector.decision import ReasonCode
from selector.forecast.lease import LEAST_BYTES
from tests.gateway.conftest import BOOKS, BY_MEMORY, bookstore, register

pytest.importorskip("impala", reason="impyla is not installed: pip install fusion-sql-gateway[impala]")
pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

from tests.engines.impala.impala_server import ImpalaServer

__all__ = ["bookstore"]

MIB = 1 << 20
LIMIT = 80 * MIB
CHEAP = "SELECT category, COUNT(*) AS n FROM books WHERE price < 50 GROUP BY category"
GREEDY = (
    "SELECT MAX(place) AS most FROM (SELECT ROW_NUMBER() OVER (ORDER BY b.isbn, t.customer_id) AS place "
    "FROM books b CROSS JOIN transactions t) AS placed"
)
"""Five million rows in a window; the plan, as the wire server draws it, does not show that they are sorted."""
ANSWER = pa.RecordBatch.from_pydict({"most": [1]})


@dataclass(frozen=True, slots=True)
class House:
    """Impala on the wire, a dependable engine that plays back, and the gateway over both."""

    gateway: Gateway
    server: ImpalaServer
    dependable: ScriptedEngine

    def ask(self, sql: str) -> QueryRecord:
        """Run a statement to its end."""
        return self.gateway.coordinator.submit(Statement(sql=sql)).done.result(timeout=60)


@pytest.fixture
def house(tmp_path: Path, bookstore: Path) -> Iterator[House]:
    with ImpalaServer() as server:
        settings = settings_module.load(
            tmp_path / "home",
            duckdb=DuckDBSettings(enabled=False),
            spark=SparkSettings(enabled=False),
            impala=ImpalaSettings(
                enabled=True, coordinators=(f"127.0.0.1:{server.port}",), memory_limit=LIMIT, mt_dop=2, timeout_s=20.0
            ),
            routing=BY_MEMORY,  # the dependable one answers at once
        )
        only_impala = wiring.build(settings)  # the settings' own way to the adapter
        dependable = ScriptedEngine("dependable", kind=EngineKind.DEPENDABLE)
        dependable.script("select", Script(steps=(ANSWER,)))
        impala = only_impala.engines["impala"]
        engines = EngineRegistry([impala, EngineEntry(dependable)])
        gateway = wiring.assemble(settings, engines)
        register(gateway, bookstore)
        gateway.start()
        yield House(gateway, server, dependable)
        gateway.close()


def codes(record: QueryRecord) -> list[ReasonCode]:
    assert record.decision is not None
    return [reason.code for reason in record.decision.reasons]


def test_a_statement_that_fits_runs_on_impala(house: House) -> None:
    record = house.ask(CHEAP)

    assert record.state is QueryState.FINISHED
    assert record.engine == "impala"
    assert record.rows == 20
    assert codes(record)[0] is ReasonCode.FITS
    assert record.decision is not None
    estimate = record.decision.estimate
    assert estimate.peak_bytes is not None
    assert {part.table for part in estimate.operators if part.table} == {"books"}
    (attempt,) = record.attempts
    assert attempt.peak_bytes is not None
    assert attempt.actuals is not None
    scan = next(part for part in attempt.actuals.operators if "SCAN" in part.name)
    assert scan.rows == BOOKS // 2
    asked = house.server.service.asked[-1]
    assert asked.options["MEM_LIMIT"] == str(attempt.lease_bytes) == str(LEAST_BYTES)
    assert asked.options["MT_DOP"] == "2"
    assert house.dependable.asked == []


def test_a_real_memory_error_fails_over_and_is_remembered(house: House) -> None:
    first = house.ask(GREEDY)

    assert first.state is QueryState.FINISHED
    assert [(attempt.engine, attempt.failure) for attempt in first.attempts] == [
        ("impala", "MEMORY_EXCEEDED"),
        ("dependable", None),
    ]
    assert first.attempts[0].peak_bytes == LEAST_BYTES
    assert codes(first)[0] is ReasonCode.FITS
    runs_on_impala = len([asked for asked in house.server.service.asked if asked.sql.startswith("SELECT")])

    second = house.ask(GREEDY)

    assert [(attempt.engine, attempt.failure) for attempt in second.attempts] == [("dependable", None)]
    assert ReasonCode.LEARNED_FROM_RUNS in codes(second)  # it would not fit into the whole limit either
    (missed,) = house.gateway.metastore.misestimates.list()
    assert missed.limit_bytes == LEAST_BYTES
    assert len([asked for asked in house.server.service.asked if asked.sql.startswith("SELECT")]) == runs_on_impala


@pytest.mark.parametrize(
    ("text", "remembered", "fails_over"),
    [
        ("Rejected query from pool default-pool: queue full, limit=2, num_queued=2.", False, True),
        (
            "Rejected query from pool p: request memory needed 9.00 GB is greater than pool max mem resources 1",
            True,
            True,
        ),
        ("UDF ERROR: Cannot divide decimal by zero", False, False),
        ("Query 1:2 terminated due to CPU limit of 5m", False, False),
    ],
)
def test_what_impala_says_decides_what_happens_next(
    house: House, text: str, remembered: bool, fails_over: bool
) -> None:
    house.server.fail("GROUP BY", text)
    record = house.ask(CHEAP)

    assert record.state is (QueryState.FINISHED if fails_over else QueryState.FAILED)
    after = "impala" if remembered else "dependable"  # with the whole limit, which is enough
    assert [attempt.engine for attempt in record.attempts] == ["impala", after][: 1 + fails_over]
    assert [missed.limit_bytes for missed in house.gateway.metastore.misestimates.list()] == [LEAST_BYTES] * remembered
    again = house.ask(CHEAP)
    assert again.attempts[0].engine == ("dependable" if remembered else "impala")


def test_fast_engines_may_stand_beside_each_other(tmp_path: Path) -> None:
    settings = settings_module.load(tmp_path, impala=ImpalaSettings(enabled=True))
    assert [adapter.section for adapter, _ in settings.engines()] == ["duckdb", "impala", "spark"]


@pytest.mark.parametrize("coordinator", ["impala-1", "impala-1:", ":21050", "impala-1:0", "impala-1:x"])
def test_coordinators_have_a_host_and_a_port(coordinator: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        ImpalaSettings(coordinators=(coordinator,))


def test_addresses_may_be_of_either_internet_protocol() -> None:
    settings = ImpalaSettings(coordinators=("impala-1:21050", "[::1]:21051"))
    assert settings.addresses == [("impala-1", 21050), ("::1", 21051)]
