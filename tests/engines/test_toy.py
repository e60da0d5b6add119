"""Engines of another package pass the suite that every engine inherits."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

from engines.protocol import Engine, EngineKind
from tests.engines.conformance import Conformance
from tests.engines.toy import ToyEngine

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def toys() -> Iterator[dict[EngineKind, ToyEngine]]:
    engines = {kind: ToyEngine(f"toy {kind.value}", kind) for kind in EngineKind}
    yield engines
    for engine in engines.values():
        engine.close()


class TestToyFast(Conformance):
    kind = EngineKind.FAST

    @pytest.fixture
    def engine(self, toys: dict[EngineKind, ToyEngine]) -> Engine:
        return toys[self.kind]

    @pytest.fixture
    def spare_engine(self) -> Iterator[Engine]:
        engine = ToyEngine("spare", self.kind, slots=1)
        yield engine
        engine.close()

    @pytest.fixture
    def mortal(self) -> Iterator[tuple[Engine, Callable[[], None]]]:
        engine = ToyEngine("mortal", self.kind, slots=1)

        def kill_workers() -> None:
            for pid in engine.worker_pids():
                os.kill(pid, signal.SIGKILL)

        yield engine, kill_workers
        engine.close()


class TestToyDependable(TestToyFast):
    kind = EngineKind.DEPENDABLE
