"""DuckDB: the embedded fast engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from pydantic import ByteSize, Field, model_validator

from engines.adapter import BuiltEngine, CheckResult, EngineContext, EngineSettings, Size, package
from selector.forecast.seconds import Speed
from sql.tables import LAKE_FORMATS

SPEED = Speed(start_s=0.03, operator_s=0.025, rows_per_s=60e6)  # as it was seen on two processors
USUAL_MOST_WORKERS = 8
EXACT_FORMATS = frozenset(
    {"parquet", "csv", "json", *LAKE_FORMATS}
)  # ORC is found through Arrow, by sizes and times alone
ABREAST = 2
"""Statements at once for each processor: joins of one thread on two processors ended 8.6 a second with two at once, 7.9
with four, 7.1 with eight; but with one for each, two that run for ten minutes would keep all others waiting."""


class DuckDBSettings(EngineSettings):
    """The embedded fast engine."""

    enabled: bool = True
    """Statements may run on DuckDB."""
    workers: int = Field(2, ge=1, le=256)
    """Worker processes that stand ready, one statement each."""
    most_workers: int | None = Field(None, ge=1, le=256)
    """Statements at once: workers are started when there are more of them; without it, 8, or `workers` if more."""
    idle_s: float = Field(60.0, ge=1.0)
    """How long a worker beyond `workers` may be idle before it is ended."""
    threads: int | None = Field(None, ge=1, le=1_024)
    """Threads of a statement that asks for no other number; without it, one per processor."""
    threads_by_load: bool = True
    """Whether such a statement has fewer threads while other long ones run, so that all together fit the processors."""
    abreast: int | None = Field(None, ge=1)
    """Long statements at once (more than 0.2 s expected), and short ones beside them; without it, two per processor."""
    memory_limit: Size = Field(ByteSize(1 << 30), ge=16 << 20)
    """Memory that one statement may take at most."""
    memory: Size | None = None
    """Memory of all statements together, which should fit into the machine; without it, `memory_limit` x `workers`."""
    spare_workers: int = Field(1, ge=0, le=16)
    """Worker processes more, which stand ready for the next statement or to take the place of one that ends."""
    recycle_after: int = Field(20_000, ge=1)
    """Statements after which a worker is replaced by a new one."""
    recycle_growth: Size = Field(ByteSize(512 << 20), ge=64 << 20)
    """Memory that a worker may keep between statements beyond what a new one holds; then it is replaced."""

    @model_validator(mode="after")
    def _require_room(self) -> Self:
        if self.most_workers is not None and self.most_workers < self.workers:
            raise ValueError(f"most_workers must be at least workers, which is {self.workers}")
        if self.memory is not None and self.memory < self.memory_limit:
            limit = self.memory_limit.human_readable()
            raise ValueError(f"memory must be at least memory_limit, which is {limit}: no statement could have that")
        return self

    @property
    def largest_pool(self) -> int:
        """Statements at once, whatever was set."""
        return self.most_workers or max(self.workers, USUAL_MOST_WORKERS)

    @property
    def budget_bytes(self) -> int:
        """Memory of all statements together, whatever was set."""
        return int(self.memory or self.memory_limit * self.workers)


class DuckDBAdapter:
    """Implements ``Adapter``."""

    section = "duckdb"
    product = "DuckDB"
    extra = "duckdb"
    rank = 10
    settings = DuckDBSettings

    def build(self, settings: DuckDBSettings, around: EngineContext) -> BuiltEngine:
        """Start the workers. Raises ImportError."""
        from engines.duckdb.engine import DuckDBEngine

        threads = settings.threads or around.processors
        engine = DuckDBEngine(
            workers=around.part(settings.workers),
            most_workers=settings.largest_pool,
            threads=threads,
            planners=around.planners,
            spare=around.part(settings.spare_workers),
            idle_s=settings.idle_s,
            recycle_after=settings.recycle_after,
            recycle_growth_bytes=int(settings.recycle_growth),
        )
        return BuiltEngine(
            engine,
            limit_bytes=int(settings.memory_limit),
            capacity_bytes=settings.budget_bytes,
            guests=engine.guests,
            threads=threads,
            most_threads=max(threads, around.processors),
            threads_by_load=settings.threads_by_load,
            abreast=settings.abreast or ABREAST * around.processors,
            planners=around.planners,
            speed=SPEED,
            is_local=True,
            exact_formats=EXACT_FORMATS,
        )

    def findings(self, settings: DuckDBSettings) -> Iterator[CheckResult]:
        """Look for the package."""
        yield package(self.product, "duckdb", self.extra)

    def memory_bytes(self, settings: DuckDBSettings) -> int:
        """Return the budget of all statements."""
        return settings.budget_bytes


ADAPTER = DuckDBAdapter()
