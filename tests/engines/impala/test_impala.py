"""Impala: the conformance suite over the wire, with both transports.

The server runs in a process of its own, so that it can be killed and its threads are not taken for the adapter's.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines import running_statement
from engines.errors import StatementCancelled
from engines.protocol import Engine, Lease
from sql.tables import Column, TableSource
from tests.engines.conformance import SOON_S, Conformance

pytest.importorskip("impala", reason="impyla is not installed: pip install fusion-sql-gateway[impala]")
pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

from engines.impala.connection import Access, Auth
from engines.impala.engine import ImpalaEngine
from tests.engines.impala.impala_server import ImpalaServer

pytestmark = pytest.mark.e2e

MIB = 1 << 20
NEVER_S = 3600.0
ROOT = Path(__file__).parents[3]
ACCESS = Access(database="fusion", timeout_s=20.0)
OVER_HTTP = Access(database="fusion", timeout_s=20.0, http_path="cliservice")
PASSWORD = "right"  # noqa: S105


class ServerProcess:
    """A wire server that can be killed and comes back on the same port."""

    def __init__(self) -> None:
        self.port = self.http_port = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.engines.impala.impala_server", str(self.port)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port, self.http_port = map(int, self._process.stdout.readline().split())

    def kill_and_restart(self) -> None:
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Let it answer no more, with all its connections open."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def process() -> Iterator[ServerProcess]:
    process = ServerProcess()
    yield process
    process.kill()


@pytest.fixture(scope="module")
def impala(process: ServerProcess) -> Iterator[ImpalaEngine]:
    engine = ImpalaEngine([("127.0.0.1", process.port)], ACCESS, slots=4, refresh_s=0.0)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def impala_over_http(process: ServerProcess) -> Iterator[ImpalaEngine]:
    engine = ImpalaEngine([("127.0.0.1", process.http_port)], OVER_HTTP, slots=4, refresh_s=0.0)
    yield engine
    engine.close()


class TestImpala(Conformance):
    @pytest.fixture
    def engine(self, impala: ImpalaEngine) -> Engine:
        return impala

    @pytest.fixture
    def spare_engine(self, process: ServerProcess) -> Iterator[Engine]:
        engine = ImpalaEngine([("127.0.0.1", process.port)], ACCESS, refresh_s=0.0)
        yield engine
        engine.close()

    @pytest.fixture
    def mortal(self) -> Iterator[tuple[Engine, Callable[[], None]]]:
        process = ServerProcess()
        engine = ImpalaEngine([("127.0.0.1", process.port)], ACCESS, refresh_s=0.0, check_s=0.2)
        yield engine, process.kill_and_restart
        engine.close()
        process.kill()

    @pytest.fixture
    def stranger(self) -> Iterator[Engine]:
        with ImpalaServer(passwords={"fusion": PASSWORD}) as server:
            access = Access(auth=Auth.LDAP, user="fusion", password="wrong", timeout_s=20.0)
            engine = ImpalaEngine([server.address], access)
            yield engine
            engine.close()


@pytest.mark.thorough
class TestImpalaOverHttp(Conformance):
    @pytest.fixture
    def engine(self, impala_over_http: ImpalaEngine) -> Engine:
        return impala_over_http

    @pytest.fixture
    def spare_engine(self, process: ServerProcess) -> Iterator[Engine]:
        engine = ImpalaEngine([("127.0.0.1", process.http_port)], OVER_HTTP, refresh_s=0.0)
        yield engine
        engine.close()

    @pytest.fixture
    def stranger(self) -> Iterator[Engine]:
        with ImpalaServer(passwords={"fusion": PASSWORD}) as server:
            access = Access(auth=Auth.LDAP, user="fusion", password="wrong", timeout_s=20.0, http_path="cliservice")
            engine = ImpalaEngine([("127.0.0.1", server.http_port)], access)
            yield engine
            engine.close()


@pytest.mark.parametrize("http", [False, True], ids=["binary", "http"])
def test_a_coordinator_that_freezes_holds_up_nobody_for_long(
    http: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_statement, "BREAK_OFF_AFTER_S", 0.5)
    pq.write_table(pa.table({"id": pa.array(range(100_000), pa.int64())}), tmp_path / "x.parquet")
    process = ServerProcess()
    port, access = (process.http_port, OVER_HTTP) if http else (process.port, ACCESS)
    engine = ImpalaEngine([("127.0.0.1", port)], access, check_s=NEVER_S)
    engine.use_tables([TableSource("x", str(tmp_path), "parquet", (Column("id", "bigint"),))])
    slow = "SELECT COUNT(*) AS n FROM x a CROSS JOIN x b WHERE (a.id * b.id) % 7 = 3"
    try:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(
                lambda: engine.execute(slow, query_id="frozen", lease=Lease(512 * MIB), deadline_s=NEVER_S)
            )
            time.sleep(1.0)
            process.freeze()
            begun_s = time.monotonic()
            engine.cancel("frozen")
            with pytest.raises(StatementCancelled):
                asked.result(timeout=SOON_S)
            assert time.monotonic() - begun_s < SOON_S / 2
    finally:
        process.kill()
        engine.close()
