"""Two engines of another package: made of nothing but what an engine brings with it, and named by nobody here.

Both hand statements on to a DuckDB of their own. The fast one says in its plan what a statement takes, which its cost
model reads: 5 MiB, or 10,000 where the statement is hungry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pydantic import ByteSize

from engines.adapter import BuiltEngine, CheckResult, EngineContext, EngineSettings, Size
from engines.duckdb.engine import DuckDBEngine
from engines.protocol import (
    EXPLAIN_S,
    EngineKind,
    EngineStatus,
    Lease,
    ResultStream,
    Snapshots,
    Watch,
    never,
    unwatched,
)
from sql.tables import TableSource

MIB = 1 << 20
TAKES_MIB, HUNGRY_MIB = 5, 10_000
SPILLING_BYTES = 1 << 30


class ToyEngine:
    """Implements ``Engine``. cost_model: None of a dependable one."""

    writer = "tests.engines.toy_writer"
    backtracks = False
    formats = frozenset({"parquet", "csv", "json", "delta"})

    def __init__(self, name: str, kind: EngineKind, *, cost_model: str | None = None, slots: int = 2) -> None:
        self.name = name
        self.kind = kind
        self.cost_model = cost_model
        self.slots = slots
        self._duckdb = DuckDBEngine(workers=slots, threads=1)

    def use_tables(self, tables: Sequence[TableSource]) -> None:
        """Hand the tables on."""
        self._duckdb.use_tables(tables)

    def explain(
        self,
        sql: str,
        *,
        deadline_s: float = EXPLAIN_S,
        cancelled: Callable[[], bool] = never,
        snapshots: Snapshots = (),
    ) -> str:
        """Say what a statement takes, once DuckDB has understood it."""
        self._duckdb.explain(sql, deadline_s=deadline_s, cancelled=cancelled, snapshots=snapshots)
        return f"takes {HUNGRY_MIB if 'hungry' in sql else TAKES_MIB} MiB for its scan"

    def execute(
        self,
        sql: str,
        *,
        query_id: str,
        lease: Lease,
        deadline_s: float,
        watch: Watch = unwatched,
        snapshots: Snapshots = (),
    ) -> ResultStream:
        """Run a statement; the dependable one takes what it needs."""
        if self.kind is EngineKind.DEPENDABLE:
            lease = replace(lease, memory_bytes=SPILLING_BYTES)
        return self._duckdb.execute(sql, query_id=query_id, lease=lease, deadline_s=deadline_s, snapshots=snapshots)

    def cancel(self, query_id: str) -> None:
        """End a statement."""
        self._duckdb.cancel(query_id)

    def status(self) -> EngineStatus:
        """Report what DuckDB does."""
        return self._duckdb.status()

    def worker_pids(self) -> list[int]:
        """Return the processes behind it."""
        return list(self._duckdb.worker_pids())

    def close(self) -> None:
        """Stop DuckDB."""
        self._duckdb.close()


class ToySettings(EngineSettings):
    """A toy."""

    memory_limit: Size = ByteSize(64 * MIB)
    """Memory that one statement may take on the toy."""


class ToyAdapter:
    """Implements ``Adapter``."""

    extra = "toy"
    settings = ToySettings

    def __init__(self, section: str, product: str, kind: EngineKind, rank: int) -> None:
        self.section = section
        self.product = product
        self.rank = rank
        self._kind = kind

    def build(self, settings: ToySettings, around: EngineContext) -> BuiltEngine:
        """Build the toy."""
        if self._kind is EngineKind.DEPENDABLE:
            return BuiltEngine(ToyEngine(self.section, self._kind))
        engine = ToyEngine(self.section, self._kind, cost_model="tests.engines.toy_cost")
        return BuiltEngine(engine, limit_bytes=int(settings.memory_limit))

    def findings(self, settings: ToySettings) -> Iterator[CheckResult]:
        """Look at nothing; a toy needs nothing."""
        yield CheckResult(self.product, True, "it plays")

    def memory_bytes(self, settings: ToySettings) -> int:
        """Return the limit of its statements."""
        return int(settings.memory_limit)


FAST = ToyAdapter("toyfast", "Toy fast", EngineKind.FAST, rank=1)
DEPENDABLE = ToyAdapter("toydependable", "Toy dependable", EngineKind.DEPENDABLE, rank=2)
ENTRY_POINTS = {
    each.section: f"tests.engines.toy:{name}" for name, each in (("FAST", FAST), ("DEPENDABLE", DEPENDABLE))
}
