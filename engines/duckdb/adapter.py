"""DuckDB: the embedded fast engine."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ByteSize, Field

from engines.adapter import BuiltEngine, CheckResult, EngineContext, EngineSettings, Size, package
from selector.forecast.seconds import Speed

SPEED = Speed(start_s=0.03, operator_s=0.025, rows_per_s=60e6)  # as it was seen on two processors


class DuckDBSettings(EngineSettings):
    """The embedded fast engine."""

    enabled: bool = True
    """Whether statements may run on DuckDB."""
    workers: int = Field(2, ge=1, le=256)
    """Worker processes, which is statements at once."""
    threads: int | None = Field(None, ge=1)
    """Threads of each worker; without it, one per processor."""
    memory_limit: Size = Field(ByteSize(1 << 30), ge=16 << 20)
    """Memory that one statement may take. The sum over all workers should fit into the machine."""
    spare_workers: int = Field(1, ge=0, le=16)
    """Worker processes more, which stand ready to take the place of one that ends."""
    recycle_after: int = Field(1_000, ge=1)
    """Statements after which a worker is replaced by a new one."""
    recycle_growth: Size = Field(ByteSize(512 << 20), ge=64 << 20)
    """Memory that a worker may keep between statements beyond what a new one holds; then it is replaced."""


class DuckDBAdapter:
    """Implements ``Adapter``."""

    section = "duckdb"
    product = "DuckDB"
    extra = "duckdb"
    rank = 10
    settings = DuckDBSettings

    def build(self, settings: DuckDBSettings, around: EngineContext) -> BuiltEngine:
        """Start the workers. Raises ImportError."""
        from engines.duckdb.pool import DuckDBEngine

        threads = settings.threads or around.processors
        engine = DuckDBEngine(
            workers=settings.workers,
            threads=threads,
            planners=around.planners,
            spare=settings.spare_workers,
            recycle_after=settings.recycle_after,
            recycle_growth_bytes=int(settings.recycle_growth),
        )
        return BuiltEngine(
            engine,
            limit_bytes=int(settings.memory_limit),
            guests=engine.guests,
            threads=threads,
            planners=around.planners,
            speed=SPEED,
        )

    def findings(self, settings: DuckDBSettings) -> Iterator[CheckResult]:
        """Look for the package."""
        yield package(self.product, "duckdb", self.extra)

    def memory_bytes(self, settings: DuckDBSettings) -> int:
        """Return the limits of all workers."""
        return int(settings.memory_limit) * settings.workers


ADAPTER = DuckDBAdapter()
