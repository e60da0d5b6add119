"""What one client may do to Spark, and what others have of it: statements that cannot be stopped, or that fill it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.errors import EngineRestarted, MemoryExceeded, StatementCancelled
from engines.protocol import Lease, WriteTarget
from engines.spark.embedded.health import HealthThresholds
from engines.spark.embedded.server import SparkConnectServer
from engines.spark.engine import SparkConnectEngine
from tests.attacks.doors import Door, Refused, Served
from tests.engines.conformance import NUMBERS_ROWS, SLOW_SPARK_SQL, Warehouse, ask, run
from tests.gateway.conftest import BOOKS

pytestmark = pytest.mark.spark

# From a column, so that nobody sees the pattern before the rows: each row takes longer than the universe.
EVIL = "regexp_replace(concat({text}, repeat('a', 60)), {pattern}, 'x')"
BUSY_IN_A_TASK = (
    f"SELECT MAX({EVIL.format(text='CAST(id AS STRING)', pattern='pattern')}) AS x "
    "FROM (SELECT id, CONCAT('((a+)+', ')+b', SUBSTRING(CAST(id AS STRING), 1, 0)) AS pattern FROM numbers) AS t"
)
BUSY_IN_THE_PLANNER = f"SELECT {EVIL.format(text=repr('a'), pattern=repr('((a+)+)+b'))} AS x"
SOON_S = 120.0
QUEUE_S = 60.0  # that a statement waits for a slot by default
HASTY = HealthThresholds(look_every_s=0.5, lingers_s=2.0, spare_s=0.0, drain_s=2.0, heap_every_s=1.0)


@pytest.fixture
def engine(
    spark_engine: SparkConnectEngine, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> SparkConnectEngine:
    monkeypatch.setattr(spark_engine._health, "_thresholds", HASTY)
    spark_engine.use_tables(warehouse.tables)
    spark_engine.warm_up()
    return spark_engine


@pytest.mark.parametrize("sql", [BUSY_IN_A_TASK, BUSY_IN_THE_PLANNER], ids=["task", "planner"])
def test_what_hears_no_cancel_is_ended_with_its_server(
    engine: SparkConnectEngine, spark_server: SparkConnectServer, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    monkeypatch.setattr("engines.running_statement.BREAK_OFF_AFTER_S", 1.0)
    pid = spark_server.pid
    with ThreadPoolExecutor(2) as pool:
        evil = pool.submit(ask, engine, sql, query_id="evil")
        _wait_until_it_computes(spark_server, in_a_task=sql == BUSY_IN_A_TASK)
        other = pool.submit(ask, engine, SLOW_SPARK_SQL, query_id="other", deadline_s=2 * SOON_S)
        engine.cancel("evil")
        with pytest.raises(StatementCancelled):
            evil.result(timeout=SOON_S)
        with pytest.raises(EngineRestarted):  # a gateway runs it again
            other.result(timeout=2 * SOON_S)
    assert ask(engine, "SELECT COUNT(*) AS n FROM kinds", deadline_s=2 * SOON_S)["n"].to_pylist() == [5]
    assert spark_server.pid not in (None, pid)
    assert "heap" in engine.status().detail or "running" in engine.status().detail


def test_others_go_on_beside_what_holds_a_core_and_the_server_is_started_again_after_them(
    engine: SparkConnectEngine,
    spark_server: SparkConnectServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(engine._health, "_thresholds", replace(HASTY, spare_s=3_600.0, drain_again_s=1.0))
    one_core = BUSY_IN_A_TASK.replace("numbers", "kinds")
    pid = spark_server.pid
    with ThreadPoolExecutor(1) as pool, caplog.at_level("INFO", "engines.spark.embedded.health"):
        evil = pool.submit(ask, engine, one_core, query_id="evil")
        _wait_until_it_computes(spark_server, in_a_task=True)
        with run(engine, "SELECT a.id FROM numbers a CROSS JOIN kinds b", deadline_s=2 * SOON_S) as rows:
            engine.cancel("evil")
            with pytest.raises(StatementCancelled):
                evil.result(timeout=SOON_S)
            until_s = time.monotonic() + SOON_S
            while caplog.text.count("Spark is not restarted yet") < 2:
                assert time.monotonic() < until_s
                assert spark_server.pid == pid
                time.sleep(0.1)
            assert ask(engine, "SELECT COUNT(*) AS n FROM kinds", deadline_s=SOON_S)["n"].to_pylist() == [5]
            assert sum(batch.num_rows for batch in rows) == 5 * NUMBERS_ROWS
    until_s = time.monotonic() + SOON_S
    while spark_server.pid in (None, pid):
        assert time.monotonic() < until_s
        time.sleep(0.1)
    assert ask(engine, "SELECT COUNT(*) AS n FROM kinds", deadline_s=2 * SOON_S)["n"].to_pylist() == [5]


def _wait_until_it_computes(server: SparkConnectServer, *, in_a_task: bool) -> None:
    web_ui = server.web_ui()
    assert web_ui is not None
    until_s = time.monotonic() + SOON_S
    computes = False
    while not computes:
        assert time.monotonic() < until_s
        with suppress(httpx.TimeoutException):  # a busy machine
            computes = bool(web_ui.running_jobs() if in_a_task else web_ui.threads().statements)
        time.sleep(0.2)
    time.sleep(2)


def test_a_write_under_a_restart_is_written_once(
    engine: SparkConnectEngine, spark_server: SparkConnectServer, tmp_path: Path
) -> None:
    folder = tmp_path / "written"
    rows = 500_000
    sql = f"SELECT id, SHA2(CAST(id AS STRING), 512) AS text FROM RANGE(0, {rows}, 1, 8)"
    with ThreadPoolExecutor(1) as pool:
        target = WriteTarget(str(folder), "parquet")
        written = pool.submit(engine.write, sql, target, query_id="write", deadline_s=2 * SOON_S)
        while not folder.exists():
            assert not written.done()
            time.sleep(0.05)
        spark_server.restart("a test")
        assert written.result(timeout=3 * SOON_S).names == ["id", "text"]
    ids = pq.read_table(folder, columns=["id"]).column("id").to_pylist()
    assert sorted(ids) == list(range(rows))


def test_careful_statements_broadcast_nothing(engine: SparkConnectEngine) -> None:
    sql = "EXPLAIN SELECT /*+ BROADCAST(b) */ COUNT(*) AS n FROM kinds a JOIN kinds b ON a.id = b.id"
    plans = []
    for careful in (False, True):
        lease = Lease(0, careful=careful)
        with engine.execute(sql, query_id=f"plan {careful}", lease=lease, deadline_s=SOON_S) as answer:
            plans.append(pa.Table.from_batches(answer, answer.schema)[0][0].as_py())
    assert "BroadcastHashJoin" in plans[0]
    assert "SortMergeJoin" in plans[1]


def test_wrong_data_is_told_at_once_though_spark_is_busy(spark_gateway: Served, door: Door) -> None:
    slow = (  # hours, if nobody cancels it
        "SELECT COUNT(*) AS n FROM transactions a CROSS JOIN transactions b CROSS JOIN transactions c "
        "WHERE a.id * b.id = c.id + a.book_id"
    )
    sent: list[str] = []
    with spark_gateway.http() as client:

        def slots_in_use() -> tuple[int, int]:
            spark = next(one for one in client.get("/v1/engines").json()["engines"] if one["name"] == "spark")
            return spark["ledger"]["slots_held"], spark["ledger"]["slots"]

        try:
            until_s = time.monotonic() + SOON_S
            while True:
                used, slots = slots_in_use()
                if used == slots:
                    break
                assert time.monotonic() < until_s
                if len(sent) < slots:
                    body = {"sql": slow, "engine": "spark", "wait_s": 0}
                    sent.append(client.post("/v1/queries", json=body).json()["id"])
                time.sleep(0.1)
            begun_s = time.monotonic()
            with pytest.raises(Refused, match=r"[Dd]ivision by zero"):
                spark_gateway.ask(door, "SELECT 1/0")
            assert time.monotonic() - begun_s < QUEUE_S / 2
            used, slots = slots_in_use()
            assert used == slots  # all the while
        finally:
            for query_id in sent:
                client.delete(f"/v1/queries/{query_id}").raise_for_status()


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_restarts_under_others_are_not_seen_by_them(spark_gateway: Served) -> None:
    """One client leaves all cores busy; others read and write meanwhile. Some two minutes."""
    pytest.importorskip("pyhive.hive", reason="needs the extra hive")  # which waits for as long as it takes
    pid_file = spark_gateway.home / "spark" / "server.pid"
    evil = BUSY_IN_A_TASK.replace("FROM numbers", "FROM books")
    counted = "SELECT COUNT(*) AS n FROM transactions AS a JOIN transactions AS b ON a.book_id <> b.book_id"
    expected = spark_gateway.ask(Door.HS2, counted, engine="spark")
    stop = threading.Event()

    def read() -> int:
        asked = 0
        while not stop.is_set():
            assert spark_gateway.ask(Door.HS2, counted, engine="spark") == expected
            asked += 1
        return asked

    def write() -> int:
        written = 0
        while not stop.is_set():
            spark_gateway.ask(Door.HS2, f"CREATE TABLE written_{written} AS SELECT id FROM books")
            assert spark_gateway.ask(Door.HS2, f"SELECT COUNT(*) AS n FROM written_{written}") == [(BOOKS,)]
            written += 1
        return written

    pids = {spark_pid(pid_file)}
    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(read), pool.submit(write)]
        try:
            with spark_gateway.http() as client:
                body = {"sql": evil, "engine": "spark", "wait_s": 5}
                for sent in [client.post("/v1/queries", json=body).json() for _ in range(2)]:  # cores
                    client.delete(f"/v1/queries/{sent['id']}").raise_for_status()
                until_s = time.monotonic() + 2 * SOON_S
                while spark_pid(pid_file) in pids:
                    assert not [other.result() for other in others if other.done()]
                    assert time.monotonic() < until_s
                    time.sleep(0.5)
                pids.add(spark_pid(pid_file))
        finally:
            stop.set()
    assert all(other.result() for other in others)
    assert len(pids) == 2


def spark_pid(file: Path) -> str:
    """Return the process of a gateway's Spark; while there is none, the last one."""
    while True:
        with suppress(FileNotFoundError):
            if text := file.read_text(encoding="utf-8"):
                return text
        time.sleep(0.2)


@pytest.mark.thorough
def test_what_fills_the_heap_takes_nobody_with_it(spark_gateway: Served) -> None:
    """One row that does not fit, sent again and again, beside a client with ordinary statements."""
    evil = (
        "SELECT LENGTH(CONCAT_WS('', COLLECT_LIST(REPEAT('x', 10000)))) AS n "
        "FROM transactions AS a CROSS JOIN transactions AS b"
    )
    stop = threading.Event()
    refused: list[str] = []

    def attack() -> None:
        while not stop.is_set():
            try:
                spark_gateway.ask(Door.HTTP, evil, engine="spark")
            except Refused as error:
                refused.append(error.code or "")

    attacker = threading.Thread(target=attack)
    attacker.start()
    try:
        until_s = time.monotonic() + 90.0
        while time.monotonic() < until_s:
            assert spark_gateway.ask(Door.HTTP, "SELECT COUNT(*) AS n FROM books", engine="spark") == [(BOOKS,)]
    finally:
        stop.set()
        attacker.join()
    assert set(refused) <= {MemoryExceeded.code}
