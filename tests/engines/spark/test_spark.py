"""The Spark engine against a real server, and what it does when that server dies."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.errors import (
    DeadlineExceeded,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
    StatementError,
)
from engines.protocol import Engine, EngineKind, WriteTarget
from engines.spark.embedded.server import DEFAULT_DRIVER_MEMORY_BYTES, SparkConnectServer
from engines.spark.engine import SparkConnectEngine
from sql.tables import Column, TableSource
from tests.engines.conformance import (
    NUMBERS_ROWS,
    SLOW_SPARK_SQL,
    SOON_S,
    Conformance,
    Warehouse,
    ask,
    run,
)
from tests.engines.processes import ends_within, is_running

pytestmark = pytest.mark.spark

LOST_WITHIN_S = 15.0
GONE_WITHIN_S = 10.0

ONE_ROW_TOO_BIG_SQL = (
    "SELECT LENGTH(CONCAT_WS('', COLLECT_LIST(REPEAT('x', 10000)))) AS n FROM numbers a CROSS JOIN numbers b"
)


class TestSpark(Conformance):
    slow_sql = SLOW_SPARK_SQL

    @pytest.fixture
    def engine(self, spark_engine: SparkConnectEngine) -> Engine:
        return spark_engine

    @pytest.fixture
    def spare_engine(self, spark_server: SparkConnectServer) -> Iterator[Engine]:
        remote = SparkConnectEngine(spark_server.start(), name="remote")
        yield remote
        remote.close()

    @pytest.fixture
    def mortal(self) -> Iterator[tuple[Engine, Callable[[], None]]]:
        pytest.skip("TestSparkLost kills the server, each time in another moment")

    @pytest.fixture
    def stranger(self, spark_server: SparkConnectServer) -> Iterator[Engine]:
        engine = SparkConnectEngine(f"sc://localhost:{urlsplit(spark_server.start()).port}/;token=wrong")
        yield engine
        engine.close()

    def test_tables_of_databases_have_a_name_with_a_dot(
        self, spark_engine: SparkConnectEngine, warehouse: Warehouse, tmp_path: Path
    ) -> None:
        kinds, numbers = warehouse.table("kinds"), warehouse.table("numbers")
        spark_engine.use_tables([replace(numbers, name="kinds"), replace(kinds, name="sales.kinds"), numbers])
        sql = "SELECT COUNT(*) AS n FROM `sales.kinds` AS k JOIN `kinds` ON k.id = kinds.id WHERE `k`.`id` >= 0"
        assert ask(spark_engine, sql)["n"].to_pylist() == [5]
        assert ask(spark_engine, "SELECT * FROM `Sales.Kinds`").num_rows == 5
        assert ask(spark_engine, "SELECT COUNT(`sales.kinds`.id) AS n FROM `sales.kinds`")["n"].to_pylist() == [5]
        target = WriteTarget(str(tmp_path / "written"), "parquet")
        spark_engine.write("SELECT id FROM `sales.kinds`", target, query_id="w", deadline_s=60)
        assert sum(pq.read_table(file).num_rows for file in Path(target.folder).glob("*.parquet")) == 5

    def test_other_tables_need_no_other_session(
        self, spark_engine: SparkConnectEngine, warehouse: Warehouse, tmp_path: Path
    ) -> None:
        """A session costs a round trip and memory of the server; tables come and go often."""
        assert ask(spark_engine, "SELECT 1 AS one").num_rows == 1
        before = {id(session) for session in spark_engine._idle}
        for number in range(3):
            pq.write_table(pa.table({f"n{number}": list(range(number))}), tmp_path / f"{number}.parquet")
            columns = (Column(f"n{number}", "bigint"),)
            table = TableSource("t", str(tmp_path / f"{number}.parquet"), "parquet", columns)
            spark_engine.use_tables([table])
            assert ask(spark_engine, f"SELECT n{number} FROM t").num_rows == number
        spark_engine.use_tables([])
        with pytest.raises(StatementError):
            ask(spark_engine, "SELECT * FROM t")
        assert {id(session) for session in spark_engine._idle} == before

    def test_remote_server_lets_its_token_in(self, spark_server: SparkConnectServer) -> None:
        address = urlsplit(spark_server.start())
        token = unquote(address.path.partition("authorization=")[2]).removeprefix("Bearer ")
        engine = SparkConnectEngine(f"sc://localhost:{address.port}/;token={quote(token)}")
        assert ask(engine, "SELECT 1 AS one").to_pylist() == [{"one": 1}]
        assert token not in engine.status().detail
        engine.close()

    def test_is_the_dependable_one(self, engine: Engine) -> None:
        assert (engine.name, engine.kind) == ("spark", EngineKind.DEPENDABLE)

    def test_moments_carry_utc(self, engine: Engine) -> None:
        answer = ask(engine, "SELECT CURRENT_TIMEZONE() AS zone, TIMESTAMP'2024-01-01 00:00:00' AS moment")
        assert answer["zone"].to_pylist() == ["UTC"]
        assert str(answer.schema.field("moment").type) == "timestamp[us, tz=UTC]"

    def test_a_value_that_java_does_not_take_is_the_statements_fault(self, engine: Engine) -> None:
        for call in ("format_string('%s %s', 'a')", "format_string(concat('%', CAST(id + 9 AS STRING), '$s'), 1)"):
            with pytest.raises(StatementError, match="Format specifier"):
                ask(engine, f"SELECT {call} AS x FROM range(1)")

    def test_files_cannot_be_named_in_a_statement(self, engine: Engine, warehouse: Warehouse) -> None:
        with pytest.raises(StatementError):
            ask(engine, f"SELECT * FROM parquet.`{warehouse.table('kinds').location}`")

    def test_write_runs_once(self, engine: Engine) -> None:
        ask(engine, "CREATE TABLE written (id INT) USING parquet")
        ask(engine, "INSERT INTO written VALUES (1)")
        assert "Execute" in engine.explain("INSERT INTO written VALUES (2)")
        assert ask(engine, "SELECT id FROM written").to_pylist() == [{"id": 1}]
        ask(engine, "DROP TABLE written")

    def test_result_larger_than_the_heap_can_hold(self, engine: Engine, spark_server: SparkConnectServer) -> None:
        pid = spark_server.pid
        text_bytes, pairs = 800, NUMBERS_ROWS * 5
        sql = f"SELECT a.id, CONCAT(b.id, REPEAT('x', {text_bytes})) AS text FROM numbers a CROSS JOIN kinds b"
        assert text_bytes * pairs > DEFAULT_DRIVER_MEMORY_BYTES
        rows = size_bytes = 0
        with run(engine, sql) as result:
            for batch in result:
                rows += batch.num_rows
                size_bytes += batch.nbytes
        assert rows == pairs
        assert size_bytes > text_bytes * pairs
        assert spark_server.pid == pid
        assert not list(spark_server.results_folder.iterdir())

    def test_direct_result_too_large_for_the_heap_harms_no_other(
        self, engine: Engine, spark_server: SparkConnectServer
    ) -> None:
        pid = spark_server.pid
        with pytest.raises(MemoryExceeded):
            ask(engine, "SELECT ARRAY(CONCAT(id, REPEAT('x', 2000))) AS texts FROM RANGE(0, 1000000, 1, 100)")
        assert spark_server.pid == pid

    def test_half_read_staged_result_leaves_no_file(self, engine: Engine, spark_server: SparkConnectServer) -> None:
        with run(engine, "SELECT id FROM numbers") as result:
            next(result)
            assert list(spark_server.results_folder.iterdir())
        assert not list(spark_server.results_folder.iterdir())

    def test_nested_values(self, engine: Engine) -> None:
        answer = ask(engine, "SELECT ARRAY(id, 7) AS a, NAMED_STRUCT('x', id) AS s, NULL AS n FROM kinds WHERE id = 1")
        assert answer.to_pylist() == [{"a": [1, 7], "s": {"x": 1}, "n": None}]

    def test_many_statements_leave_nothing_behind(self, engine: Engine) -> None:
        gc.disable()  # what is only freed by chance would be kept
        try:
            for _ in range(8):
                ask(engine, "SELECT 1 AS one")
            before = threading.active_count()
            for _ in range(20):
                ask(engine, "SELECT 1 AS one")
                with pytest.raises(StatementError):
                    ask(engine, "SELECT RAISE_ERROR('no') AS one")
            assert threading.active_count() <= before + 4  # one pool, however many statements
        finally:
            gc.enable()


class TestSparkLost:
    @pytest.fixture(autouse=True)
    def _tables(self, spark_engine: SparkConnectEngine, warehouse: Warehouse) -> None:
        spark_engine.use_tables(warehouse.tables)
        spark_engine.warm_up()

    def test_server_killed_under_statements(
        self, spark_engine: SparkConnectEngine, spark_server: SparkConnectServer
    ) -> None:
        pid = spark_server.pid
        assert pid is not None
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(ask, spark_engine, SLOW_SPARK_SQL) for _ in range(2)]
            time.sleep(2)
            os.kill(pid, signal.SIGKILL)
            killed_s = time.monotonic()
            for statement in asked:
                with pytest.raises(EngineUnavailable):
                    statement.result(timeout=LOST_WITHIN_S)
            assert time.monotonic() - killed_s < LOST_WITHIN_S
        assert ask(spark_engine, "SELECT COUNT(*) AS n FROM kinds")["n"].to_pylist() == [5]
        assert spark_server.pid not in (None, pid)

    def test_server_killed_between_batches(
        self, spark_engine: SparkConnectEngine, spark_server: SparkConnectServer
    ) -> None:
        pid = spark_server.pid
        assert pid is not None
        direct = "SELECT ARRAY(a.id, a.id, a.id, a.id) AS ids FROM numbers a CROSS JOIN kinds b"
        with run(spark_engine, direct) as result:
            next(result)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(EngineUnavailable):
                list(result)
            with pytest.raises(EngineUnavailable):
                next(result)
        assert spark_engine.status().alive
        assert ask(spark_engine, "SELECT COUNT(*) AS n FROM kinds")["n"].to_pylist() == [5]

    def test_staged_result_survives_the_server(
        self, spark_engine: SparkConnectEngine, spark_server: SparkConnectServer
    ) -> None:
        pid = spark_server.pid
        assert pid is not None
        with run(spark_engine, "SELECT id FROM numbers") as result:
            rows = next(result).num_rows
            os.kill(pid, signal.SIGKILL)
            while spark_server.pid is not None:
                time.sleep(0.05)
            assert ask(spark_engine, "SELECT COUNT(*) AS n FROM kinds")["n"].to_pylist() == [5]
            assert rows + sum(batch.num_rows for batch in result) == NUMBERS_ROWS

    def test_out_of_memory_is_told_from_other_deaths(self, spark_engine: SparkConnectEngine) -> None:
        with pytest.raises(MemoryExceeded):
            ask(spark_engine, ONE_ROW_TOO_BIG_SQL)
        assert ask(spark_engine, "SELECT COUNT(*) AS n FROM kinds")["n"].to_pylist() == [5]

    def test_frozen_server_holds_nobody(
        self, spark_engine: SparkConnectEngine, spark_server: SparkConnectServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("engines.running_statement.BREAK_OFF_AFTER_S", 1.0)
        pid = spark_server.pid
        assert pid is not None
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask, spark_engine, SLOW_SPARK_SQL, deadline_s=2.0)
            time.sleep(1)
            os.kill(pid, signal.SIGSTOP)
            try:
                with pytest.raises(DeadlineExceeded):
                    asked.result(timeout=2 * LOST_WITHIN_S)
            finally:
                os.kill(pid, signal.SIGCONT)
        # The slow statement ends too: its tasks would fill both cores for minutes.
        assert ask(spark_engine, "SELECT COUNT(*) AS n FROM kinds")["n"].to_pylist() == [5]
        assert spark_server.pid == pid

    def test_frozen_server_holds_nobody_who_comes_later(
        self, spark_engine: SparkConnectEngine, spark_server: SparkConnectServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("engines.running_statement.BREAK_OFF_AFTER_S", 1.0)
        pid = spark_server.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(DeadlineExceeded):
                ask(spark_engine, "SELECT 1 AS one", deadline_s=1.0)
            with pytest.raises(DeadlineExceeded):
                ask(spark_engine, "SELECT 1 AS one", deadline_s=1.0)  # over a new session
        finally:
            os.kill(pid, signal.SIGCONT)
        assert ask(spark_engine, "SELECT 1 AS one")["one"].to_pylist() == [1]


PARENT = """
import sys, time
from pathlib import Path
from engines.spark.embedded.server import ServerSettings, SparkConnectServer

server = SparkConnectServer(ServerSettings(work_folder=Path(sys.argv[1])))
server.start()
print(server.pid, flush=True)
time.sleep(600)
"""


def test_killed_parent_leaves_no_jvm(spark_engine: SparkConnectEngine, tmp_path: Path) -> None:
    del spark_engine  # only so that this test runs with the others that need Spark
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        jvm = int(parent.stdout.readline())
        assert is_running(jvm)
        parent.kill()
    assert ends_within(jvm, GONE_WITHIN_S)


@pytest.mark.parametrize(
    ("interval", "months"),
    [
        ("INTERVAL '1-2' YEAR TO MONTH", 14),
        ("INTERVAL '-3' MONTH", -3),
        ("INTERVAL '2' YEAR", 24),
        ("CASE WHEN n < 0 THEN INTERVAL '2' YEAR END", None),
        ("make_ym_interval(-178956970, -8)", -(2**31)),
    ],
)
def test_intervals_of_months_come_as_such(spark_engine: SparkConnectEngine, interval: str, months: int | None) -> None:
    sql = f"SELECT n, {interval} AS x, 'same' AS x FROM (VALUES (1), (2)) AS t(n) ORDER BY n DESC"
    found = ask(spark_engine, sql)
    assert found.schema.names == ["n", "x", "x"]
    assert found.schema.field(1).type == pa.month_day_nano_interval()
    value = None if months is None else pa.MonthDayNano([months, 0, 0])
    assert [tuple(column.to_pylist()) for column in found.columns] == [(2, 1), (value, value), ("same", "same")]
    nothing = ask(spark_engine, f"SELECT {interval} AS x FROM (VALUES (1)) AS t(n) WHERE n > 1")
    assert (nothing.num_rows, nothing.schema.field(0).type) == (0, pa.month_day_nano_interval())


def test_cancel_is_quick(spark_engine: SparkConnectEngine, warehouse: Warehouse) -> None:
    spark_engine.use_tables(warehouse.tables)
    spark_engine.warm_up()
    with run(spark_engine, SLOW_SPARK_SQL, query_id="quick") as result:
        threading.Timer(1.0, spark_engine.cancel, ["quick"]).start()
        started_s = time.monotonic()
        with pytest.raises(StatementCancelled):
            next(result)
        assert time.monotonic() - started_s < SOON_S
