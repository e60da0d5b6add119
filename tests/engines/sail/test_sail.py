"""Sail against real servers: the conformance suite as a fast engine and as a dependable one, and what is its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engines.protocol import Engine
from tests.engines.conformance import Conformance

pytest.importorskip("pysail", reason="Sail is not installed: pip install fusion-sql-gateway[sail]")
pytest.importorskip("pyspark", reason="Sail's client is not installed: pip install fusion-sql-gateway[sail]")

from engines.sail.engine import SailEngine
from engines.sail.servers import Spilling

pytestmark = pytest.mark.e2e  # real servers, two conformance suites long

MIB = 1 << 20
LIMIT_BYTES = 512 * MIB


def made(folder: Path, *, slots: int = 2, spills: bool = False) -> SailEngine:
    """Return an engine with its own servers."""
    spilling = Spilling(folder / "spilled", 8 << 30) if spills else None
    return SailEngine(folder, memory_bytes=LIMIT_BYTES, spilling=spilling, slots=slots, threads=2)


def kill_servers(engine: SailEngine) -> None:
    for pid in engine.server_pids():
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SailEngine]:
    engine = made(tmp_path_factory.mktemp("sail"))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def dependable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SailEngine]:
    engine = made(tmp_path_factory.mktemp("sail"), spills=True)
    yield engine
    engine.close()


class TestFastSail(Conformance):
    spills = False

    @pytest.fixture
    def engine(self, fast: SailEngine) -> Engine:
        return fast

    @pytest.fixture
    def spare_engine(self, tmp_path: Path) -> Iterator[Engine]:
        engine = made(tmp_path, slots=1, spills=self.spills)
        yield engine
        engine.close()

    @pytest.fixture
    def mortal(self, tmp_path: Path) -> Iterator[tuple[Engine, Callable[[], None]]]:
        engine = made(tmp_path, slots=1, spills=self.spills)
        yield engine, lambda: kill_servers(engine)
        engine.close()


class TestDependableSail(TestFastSail):
    spills = True

    @pytest.fixture
    def engine(self, dependable: SailEngine) -> Engine:
        return dependable
