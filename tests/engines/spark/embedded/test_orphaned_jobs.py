"""What Spark still runs for statements that were ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from pyspark.errors import PySparkException

from engines.errors import StatementCancelled
from engines.spark.embedded.orphaned_jobs import OrphanedJobs
from engines.spark.embedded.server import SparkConnectServer
from engines.spark.embedded.web_ui import WebUi
from engines.spark.engine import SparkConnectEngine
from engines.spark_sql.connect import ConnectSession, statement_plan
from tests.engines.conformance import SLOW_SPARK_SQL, SOON_S, Warehouse, ask

pytestmark = pytest.mark.spark


@pytest.fixture
def web_ui(spark_engine: SparkConnectEngine, spark_server: SparkConnectServer) -> WebUi:
    spark_engine.warm_up()
    web_ui = spark_server.web_ui()
    assert web_ui is not None
    return web_ui


@pytest.fixture
def session(spark_server: SparkConnectServer) -> Iterator[ConnectSession]:
    session = ConnectSession(spark_server.start())
    session.configure()
    yield session
    session.close()


def test_stray_jobs_are_killed_and_no_others(
    web_ui: WebUi, session: ConnectSession, spark_engine: SparkConnectEngine, warehouse: Warehouse
) -> None:
    plan = statement_plan(SLOW_SPARK_SQL, warehouse.tables)
    strays = OrphanedJobs(lambda: web_ui)
    with ThreadPoolExecutor(1) as pool:
        # Nobody ended it: to Spark's web UI that is the same as a job that came after its end.
        stray = pool.submit(lambda: list(session.run(plan, "stray")[1]))
        _wait_for_job(web_ui, "stray")
        strays.watch("another")
        time.sleep(2)
        assert not stray.done()
        strays.watch("stray")
        with pytest.raises(PySparkException, match="cancelled"):
            stray.result(timeout=SOON_S)
    spark_engine.use_tables(warehouse.tables)
    assert ask(spark_engine, "SELECT COUNT(*) AS n FROM kinds")["n"].to_pylist() == [5]


def test_a_statement_that_was_cancelled_leaves_no_job(
    web_ui: WebUi, session: ConnectSession, spark_engine: SparkConnectEngine, warehouse: Warehouse
) -> None:
    spark_engine.use_tables(warehouse.tables)
    plan = statement_plan(SLOW_SPARK_SQL, warehouse.tables)
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(ask, spark_engine, SLOW_SPARK_SQL, query_id="cancelled")
        tag = _wait_for_job(web_ui, "fusion-")
        stray = pool.submit(lambda: list(session.run(plan, tag)[1]))  # another session's: no interrupt reaches it
        _wait_for_job(web_ui, tag, of=2)
        spark_engine.cancel("cancelled")
        with pytest.raises(StatementCancelled):
            asked.result(timeout=SOON_S)
        with pytest.raises(PySparkException, match="cancelled"):
            stray.result(timeout=2 * SOON_S)


def test_only_key_holders_get_in(web_ui: WebUi, spark_server: SparkConnectServer) -> None:
    assert httpx.get(f"http://{web_ui.host}:{web_ui.port}/jobs/", trust_env=False).status_code == 403
    with pytest.raises(httpx.HTTPStatusError):
        WebUi(web_ui.host, web_ui.port).running_jobs()
    assert web_ui.running_jobs() == []
    secret = web_ui.settings()["spark.org.apache.spark.ui.JWSFilter.param.secretKey"]
    assert secret not in Path(f"/proc/{spark_server.pid}/cmdline").read_text()
    assert (spark_server.settings.work_folder / "secret.properties").stat().st_mode & 0o777 == 0o600


def _wait_for_job(web_ui: WebUi, prefix: str, of: int = 1) -> str:
    """Wait for so many jobs whose client's tag begins like this; return the tag of one."""
    give_up_s = time.monotonic() + 60
    while True:
        given = [own.rpartition("_Tag_")[2] for job in web_ui.running_jobs() for own in job.tags]
        found = [tag for tag in given if tag.startswith(prefix)]
        if len(found) >= of:
            return found[0]
        assert time.monotonic() < give_up_s
        time.sleep(0.2)
