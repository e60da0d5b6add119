"""Sail: a second fast engine, or a dependable one without Java."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import ByteSize, Field

from engines.adapter import BuiltEngine, CheckResult, EngineContext, EngineSettings, Size, package
from selector.forecast.seconds import Speed

SPEED = Speed(start_s=0.054, operator_s=0.045, rows_per_s=33e6)
"""DuckDB's, 1.8 times as slow: median of ten statements of TPC-H on two processors (1.1 to 1.9 in the middle half)."""


class SailSettings(EngineSettings):
    """Sail, which runs Spark SQL on DataFusion."""

    kind: Literal["fast", "dependable"] = "fast"
    """fast: what exceeds its memory fails over. dependable: it is written to disk (sorts, aggregates, joins)."""
    slots: int = Field(2, ge=1, le=256)
    """Servers, which is statements at once: each has a server of its own."""
    threads: int | None = Field(None, ge=1)
    """Threads of each server; without it, one per processor."""
    memory_limit: Size = Field(ByteSize(1 << 30), ge=16 << 20)
    """Memory that one statement may take, as Sail counts it; beside it, a server needs about 200 MB."""
    spill_folder: str | None = Field(None, pattern=r"^/")
    """Where a dependable one writes what does not fit; without it, below the gateway's own folder."""
    spill_limit: Size = Field(ByteSize(64 << 30), ge=64 << 20)
    """Bytes that each server may write there at once."""


class SailAdapter:
    """Implements ``Adapter``."""

    section = "sail"
    product = "Sail"
    extra = "sail"
    rank = 15
    settings = SailSettings

    def build(self, settings: SailSettings, around: EngineContext) -> BuiltEngine:
        """Start the servers. Raises ImportError."""
        import pysail  # noqa: F401 - in processes of its own, which could not say that it is missing

        from engines.sail.engine import SailEngine
        from engines.sail.servers import Spilling

        folder = around.folder / "sail"
        threads = settings.threads or around.processors
        limit = int(settings.memory_limit)
        spilling = None
        if settings.kind == "dependable":
            place = Path(settings.spill_folder) if settings.spill_folder else folder / "spilled"
            spilling = Spilling(place, int(settings.spill_limit))
        engine = SailEngine(folder, memory_bytes=limit, spilling=spilling, slots=settings.slots, threads=threads)
        return BuiltEngine(
            engine,
            limit_bytes=limit if spilling is None else None,
            threads=threads,
            processors=threads,
            planners=around.planners,
            speed=SPEED,
            exact_formats=engine.formats,
        )

    def findings(self, settings: SailSettings) -> Iterator[CheckResult]:
        """Look for the server, and for the client that speaks to it."""
        yield package(self.product, "pysail", self.extra)
        yield package("PySpark", "pyspark", self.extra)

    def memory_bytes(self, settings: SailSettings) -> int:
        """Return the limits of all servers."""
        return int(settings.memory_limit) * settings.slots


ADAPTER = SailAdapter()
