"""Commands over HTTP: real gateways, a real DuckDB, and jobs that are real processes but read no rows."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import engines.machine.lifeline
from engines.duckdb.adapter import DuckDBSettings
from engines.spark.adapter import SparkSettings
from gateway import settings as settings_module
from gateway.server import wiring
from gateway.server.app import create_app
from gateway.server.runtime import Gateway
from gateway.statistics.jobs import JobRunner
from metastore.records import JobRequest, JobState, Mode, StatisticsJob
from tests.gateway import job_process
from tests.gateway.conftest import BOOKS, TRANSACTIONS, register, serving

pytestmark = pytest.mark.e2e

TABLE_STATS = [
    "#Rows",
    "#Files",
    "Size",
    "Bytes Cached",
    "Cache Replication",
    "Format",
    "Incremental stats",
    "Location",
    "EC Policy",
]
COLUMN_STATS = ["Column", "Type", "#Distinct Values", "#Nulls", "Max Size", "Avg Size", "#Trues", "#Falses"]
JOB_ROWS = 10  # as the process says of every table
YEARS = (2019, 2020, 2021)


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a table of a partition per year."""
    folder = tmp_path_factory.mktemp("warehouse") / "sales"
    for year in YEARS:
        add_year(folder, year, rows=year - 2000)
    return folder


def add_year(folder: Path, year: int, *, rows: int) -> None:
    (folder / f"year={year}").mkdir(parents=True)
    columns = {"id": pa.array(range(rows), pa.int64()), "paid": [i % 2 == 0 for i in range(rows)]}
    pq.write_table(pa.table(columns), folder / f"year={year}" / "part-0.parquet")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, bookstore: Path, sales: Path) -> Iterator[Gateway]:
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    settings = settings_module.load(
        tmp_path_factory.mktemp("home"),
        duckdb=DuckDBSettings(workers=1, threads=1),
        spark=SparkSettings(enabled=False),
    )
    command = [sys.executable, "-I", engines.machine.lifeline.__file__, "--", sys.executable, job_process.__file__]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(JobRunner, "_command", lambda _: command)
        patched.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
        built = wiring.build(settings)
        register(built, bookstore)
        register(built, sales.parent)
        yield built


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[httpx.Client]:
    with serving(create_app(gateway)) as served:
        yield served


@pytest.fixture(autouse=True)
def quick_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(job_process.SECONDS, "0")


def run(client: httpx.Client, sql: str, **fields: Any) -> dict[str, Any]:
    reply: dict[str, Any] = client.post("/v1/queries", json={"sql": sql, "wait_s": 60, **fields}).json()
    return reply


def told(client: httpx.Client, sql: str) -> list[list[Any]]:
    reply = run(client, sql)
    assert reply["state"] == "FINISHED", reply["error"]
    rows: list[list[Any]] = reply["rows"]
    return rows


def names(reply: dict[str, Any]) -> list[str]:
    return [column["name"] for column in reply["columns"]]


def wait_for_job(client: httpx.Client, state: str) -> dict[str, Any]:
    give_up_s = time.monotonic() + 30
    while True:
        job: dict[str, Any] = client.get("/v1/stats/jobs", params={"limit": 1}).json()["jobs"][0]
        if job["state"] == state:
            return job
        assert time.monotonic() < give_up_s, job
        time.sleep(0.05)


# ---------------------------------------------------------------------- as Impala shows it


def test_show_table_stats_of_a_plain_table(client: httpx.Client) -> None:
    told(client, "DROP STATS books")
    reply = run(client, "SHOW TABLE STATS books")
    assert names(reply) == TABLE_STATS
    (row,) = reply["rows"]
    assert (row[:2], row[3:]) == ([-1, 1], ["NOT CACHED", "NOT CACHED", "PARQUET", "false", "", "NONE"])
    assert row[2].endswith("KB")


def test_show_table_stats_of_partitions_has_a_total(client: httpx.Client) -> None:
    told(client, "DROP STATS sales")
    reply = run(client, "SHOW TABLE STATS sales")
    assert names(reply) == ["year", *TABLE_STATS]
    *partitions, total = reply["rows"]
    assert [row[:3] for row in partitions] == [[str(year), -1, 1] for year in YEARS]
    assert [row[8] for row in partitions] == [f"year={year}" for year in YEARS]
    assert (total[:3], total[4:]) == (["Total", -1, len(YEARS)], ["0B", "", "", "", "", ""])


def test_show_column_stats_without_statistics(client: httpx.Client) -> None:
    told(client, "DROP STATS books")
    reply = run(client, "SHOW COLUMN STATS books")
    assert names(reply) == COLUMN_STATS
    rows = {row[0]: row[1:] for row in reply["rows"]}
    assert rows["id"] == ["BIGINT", -1, -1, 8, 8.0, -1, -1]
    assert rows["isbn"] == ["STRING", -1, -1, -1, -1.0, -1, -1]
    assert rows["publish_date"] == ["DATE", -1, -1, 4, 4.0, -1, -1]
    years = {row[0]: row[1:] for row in told(client, "SHOW COLUMN STATS sales")}["year"]
    assert years == ["INT", len(YEARS), 0, 4, 4.0, -1, -1]


def test_tables_and_columns(client: httpx.Client) -> None:
    assert told(client, "SHOW TABLES") == [["books"], ["sales"], ["transactions"]]
    assert told(client, "SHOW TABLES IN default LIKE 'b*|*act*'") == [["books"], ["transactions"]]
    assert told(client, "SHOW TABLES 'none?'") == []
    described = run(client, "DESCRIBE sales")
    assert names(described) == ["col_name", "data_type", "comment"]
    assert names(run(client, "DESCRIBE sales", dialect="impala")) == ["name", "type", "comment"]
    assert told(client, "SHOW COLUMNS IN sales") == [["id"], ["paid"], ["year"]]
    assert told(client, "SHOW DATABASES") == [["default"]]
    assert told(client, "USE default") == []
    assert described["rows"][:3] == [["id", "bigint", ""], ["paid", "boolean", ""], ["year", "int", ""]]


# ---------------------------------------------------------------------- computing


def test_compute_stats_is_a_query_like_others(client: httpx.Client) -> None:
    reply = run(client, "compute stats Books")
    assert (reply["state"], names(reply)) == ("FINISHED", ["summary"])
    assert reply["rows"] == [["Updated 1 partition(s) and 0 column(s)."]]
    (attempt,) = reply["attempts"]
    assert (attempt["engine"], attempt["state"], attempt["rows"], reply["decision"]) == ("gateway", "FINISHED", 1, None)
    assert client.get(f"/v1/queries/{reply['id']}").json()["rows"] == reply["rows"]
    csv = client.get(f"/v1/queries/{reply['id']}/result", params={"format": "csv"}).text
    assert csv.splitlines() == ['"summary"', '"Updated 1 partition(s) and 0 column(s)."']
    assert told(client, "SHOW TABLE STATS books")[0][:2] == [JOB_ROWS, 1]
    job = client.get("/v1/stats/jobs", params={"table": "books"}).json()["jobs"][0]
    assert (job["state"], job["mode"], job["tables"], job["tables_done"]) == ("FINISHED", "full", ["books"], 1)
    (progress,) = job["progress"]
    assert (progress["files_done"], progress["files_all"], progress["error"]) == (1, 1, None)


@pytest.mark.parametrize(
    ("sql", "asked"),
    [
        ("COMPUTE STATS books (id, PRICE)", {"mode": "full", "columns": ["id", "price"]}),
        ("COMPUTE STATS books TABLESAMPLE SYSTEM(25) REPEATABLE(1)", {"mode": "sample", "share": 0.25}),
        ("COMPUTE INCREMENTAL STATS sales", {"mode": "incremental", "partitions": []}),
        (
            "COMPUTE INCREMENTAL STATS sales PARTITION (year > 2019)",
            {"mode": "incremental", "partitions": ["year=2020", "year=2021"]},
        ),
    ],
)
def test_what_a_job_is_asked_for(client: httpx.Client, sql: str, asked: dict[str, Any]) -> None:
    told(client, sql)
    job = client.get("/v1/stats/jobs").json()["jobs"][0]
    assert {name: job[name] for name in asked} == asked


def test_no_partition_matches(client: httpx.Client) -> None:
    response = client.post("/v1/queries", json={"sql": "DROP INCREMENTAL STATS sales PARTITION (year=1999)"})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["position"]) == (
        400,
        "UNKNOWN_PARTITION",
        {"line": 1, "column": 41},
    )


def test_cancelling_compute_stats_ends_its_job(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    told(client, "COMPUTE STATS books")
    version = client.get("/v1/tables/books").json()["statistics_version"]
    monkeypatch.setenv(job_process.SECONDS, "60")
    query_id = run(client, "COMPUTE STATS books", wait_s=0)["id"]
    wait_for_job(client, "RUNNING")
    busy = client.post("/v1/queries", json={"sql": "COMPUTE STATS books", "wait_s": 30})
    assert (busy.status_code, busy.json()["error"]["code"]) == (409, "JOB_RUNNING")
    refused = client.post("/v1/stats/jobs", json={"tables": ["books"]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "JOB_RUNNING")
    cancelled = client.delete(f"/v1/queries/{query_id}").json()
    assert (cancelled["state"], cancelled["error"]["code"]) == ("CANCELLED", "CANCELLED")
    assert wait_for_job(client, "CANCELLED")["error"] == "The job was cancelled."
    monkeypatch.setenv(job_process.SECONDS, "0")
    assert client.get("/v1/tables/books").json()["statistics_version"] == version
    assert told(client, "COMPUTE STATS books")


def test_a_deadline_ends_the_job_too(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(job_process.SECONDS, "60")
    reply = run(client, "COMPUTE STATS transactions", timeout_s=1.0)
    assert (reply["state"], reply["error"]["code"]) == ("FAILED", "DEADLINE_EXCEEDED")
    assert wait_for_job(client, "CANCELLED")["tables"] == ["transactions"]


def test_a_job_whose_process_fails_is_told(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(job_process.SECONDS, "not a number")
    reply = run(client, "COMPUTE STATS transactions")
    assert (reply["state"], reply["error"]["code"]) == ("FAILED", "STATISTICS_FAILED")
    assert "ended with status" in reply["error"]["message"]
    assert reply["attempts"][0]["failure"] == "STATISTICS_FAILED"


def test_a_job_over_any_number_of_partitions(client: httpx.Client, gateway: Gateway) -> None:
    folders = tuple(f"day={n:040}" for n in range(60_000))  # more than a command line can hold
    job = gateway.jobs.start(JobRequest(("sales",), Mode.INCREMENTAL, partitions=folders))
    assert job.request.partitions == folders
    assert wait_for_job(client, "FINISHED")["id"] == job.id


def test_a_job_that_cannot_be_started_has_failed(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobRunner, "_command", lambda _: ["/nowhere/python"])
    reply = run(client, "COMPUTE STATS transactions")
    assert (reply["state"], reply["error"]["code"]) == ("FAILED", "STATISTICS_FAILED")
    assert reply["error"]["message"] == "The job could not be started: No such file or directory."
    job = client.post("/v1/stats/jobs", json={"tables": ["transactions"]})
    assert (job.status_code, job.json()["state"]) == (202, "FAILED")
    monkeypatch.undo()
    monkeypatch.setenv(job_process.SECONDS, "0")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    assert told(client, "COMPUTE STATS transactions")  # it is not locked


def test_people_see_commands_among_their_queries(client: httpx.Client) -> None:
    query_id = run(client, "SHOW TABLES")["id"]
    page = client.get(f"/dashboard/queries/{query_id}")
    assert page.status_code == 200
    assert "Answered by gateway." in page.text
    assert query_id in client.get("/dashboard/queries").text
    assert query_id not in client.get("/dashboard", params={"engine": "duckdb"}).text


def test_commands_cannot_be_explained(client: httpx.Client) -> None:
    response = client.post("/v1/explain", json={"sql": "COMPUTE STATS books"})
    assert (response.status_code, response.json()["error"]["code"]) == (403, "NOT_ALLOWED")


def test_a_mistake_is_recorded_with_its_place(client: httpx.Client) -> None:
    response = client.post("/v1/queries", json={"sql": "SHOW TABLE STATS boks"})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["position"]["column"]) == (400, "UNKNOWN_TABLE", 18)
    record = client.get(f"/v1/queries/{error['query_id']}").json()
    assert (record["state"], record["error"]["code"]) == ("FAILED", "UNKNOWN_TABLE")


# ---------------------------------------------------------------------- by hand


def test_values_by_hand_hold_until_the_next_computation(client: httpx.Client) -> None:
    told(client, "DROP STATS books")
    failed = run(client, "ALTER TABLE books SET COLUMN STATS isbn ('numNulls'='3')")
    assert failed["error"]["code"] == "NOTHING_TO_AMEND"
    told(client, "ALTER TABLE books SET TBLPROPERTIES('numRows'='77', 'STATS_GENERATED_VIA_STATS_TASK'='true')")
    told(client, "ALTER TABLE books SET COLUMN STATS isbn ('numDVs'='70','avgSize'='14.5','maxSize'='20')")
    assert told(client, "SHOW TABLE STATS books")[0][0] == 77
    shown = {row[0]: row[1:] for row in told(client, "SHOW COLUMN STATS books")}
    assert shown["isbn"] == ["STRING", 70, -1, 20, 14.5, -1, -1]
    build = client.get("/v1/tables/books").json()["statistics"]
    assert (build["manual"], build["source"], build["rows"]) == (["rows"], "manual", 77)
    (isbn,) = build["columns"]
    assert isbn["manual"] == ["average_length", "maximum_length", "ndv"]
    told(client, "COMPUTE STATS books")
    build = client.get("/v1/tables/books").json()["statistics"]
    assert (build["manual"], build["rows"]) == ([], JOB_ROWS)


def test_dropped_statistics_are_gone(client: httpx.Client) -> None:
    told(client, "COMPUTE STATS transactions")
    assert client.get("/v1/tables/transactions").json()["statistics"] is not None
    assert told(client, "DROP STATS transactions") == [["Stats have been dropped."]]
    assert client.get("/v1/tables/transactions").json()["statistics"] is None


def test_incremental_statistics_of_partitions_are_dropped(client: httpx.Client, gateway: Gateway) -> None:
    statistics = gateway.metastore.statistics
    told(client, "COMPUTE STATS sales")
    build = statistics.current("sales")
    assert build is not None
    (part,) = statistics.parts("sales")
    replaced = [type(part)(f"year={y}", (), y, 1, 1.0, part.built_at, b"-") for y in YEARS]
    statistics.publish(build, at=part.built_at, parts=replaced)
    assert [row[1:2] + row[7:8] for row in told(client, "SHOW TABLE STATS sales")][:3] == [[y, "true"] for y in YEARS]
    told(client, "DROP INCREMENTAL STATS sales PARTITION (year <= 2020)")
    assert [row[1:2] + row[7:8] for row in told(client, "SHOW TABLE STATS sales")] == [
        [-1, "false"],
        [-1, "false"],
        [2021, "true"],
        [JOB_ROWS, ""],
    ]


def test_a_job_keeps_the_summaries_that_it_merges(
    client: httpx.Client, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    statistics = gateway.metastore.statistics
    told(client, "COMPUTE STATS sales")
    before = statistics.current("sales")
    assert before is not None
    (part,) = statistics.parts("sales")
    statistics.publish(before, at=part.built_at, parts=[replace(part, folder="year=2019")])
    monkeypatch.setenv(job_process.SECONDS, "60")
    query_id = run(client, "COMPUTE STATS sales", wait_s=0)["id"]
    wait_for_job(client, "RUNNING")
    drop = "DROP INCREMENTAL STATS sales PARTITION (year = 2019)"
    refused = client.post("/v1/queries", json={"sql": drop, "wait_s": 30})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "JOB_RUNNING")
    assert "computes the statistics of sales already" in refused.json()["error"]["message"]
    client.delete(f"/v1/queries/{query_id}")
    version = client.get("/v1/tables/sales").json()["statistics_version"]
    assert told(client, drop) == [["Incremental stats of 1 partition(s) have been dropped."]]
    assert statistics.part_marks("sales") == ()
    assert client.get("/v1/tables/sales").json()["statistics_version"] == version


# ---------------------------------------------------------------------- what is on disk


@pytest.mark.parametrize("command", ["REFRESH growing", "INVALIDATE METADATA", "INVALIDATE METADATA growing"])
def test_new_files_are_seen_at_once(client: httpx.Client, tmp_path: Path, command: str) -> None:
    folder = tmp_path / "growing"
    add_year(folder, 2020, rows=5)
    client.post("/v1/tables", json={"name": "growing", "location": str(folder)}).raise_for_status()
    assert told(client, "SELECT count(*) FROM growing") == [[5]]
    add_year(folder, 2021, rows=7)
    told(client, command)
    assert told(client, "SELECT year, count(*) FROM growing GROUP BY year ORDER BY year") == [[2020, 5], [2021, 7]]
    assert [row[0] for row in told(client, "SHOW TABLE STATS growing")] == ["2020", "2021", "Total"]
    assert client.get("/v1/tables/growing").json()["rows"] == 12
    for file in folder.rglob("*.parquet"):
        file.unlink()
    failed = run(client, "REFRESH growing")
    assert (failed["state"], failed["error"]["code"]) == ("FAILED", "TABLE_UNREADABLE")
    assert failed["error"]["message"].startswith("growing holds no data files")  # and not where it lies
    add_year(folder, 2022, rows=1)
    told(client, "REFRESH growing")


def test_told_columns_stay(client: httpx.Client, tmp_path: Path) -> None:
    folder = tmp_path / "lines"
    folder.mkdir()
    (folder / "1.csv").write_text("1|007\n", encoding="utf-8")
    columns = [{"name": "id", "type": "bigint"}, {"name": "code", "type": "string"}]
    options = {"delimiter": "|", "header": "false"}
    table = {"name": "lines", "location": str(folder), "format": "csv", "columns": columns, "options": options}
    client.post("/v1/tables", json=table).raise_for_status()
    (folder / "2.csv").write_text("2|008\n", encoding="utf-8")
    told(client, "REFRESH lines")
    assert client.get("/v1/tables/lines").json()["columns"] == columns
    assert told(client, "SELECT code FROM lines ORDER BY code") == [["007"], ["008"]]
    told(client, "COMPUTE STATS lines")
    assert client.get("/v1/tables/lines").json()["columns"] == columns


# ---------------------------------------------------------------------- jobs and keys


def test_jobs_are_checked_before_they_start(client: httpx.Client) -> None:
    for body, code in (
        ({"tables": ["boks"]}, "UNKNOWN_TABLE"),
        ({"tables": ["books"], "columns": ["pric"]}, "UNKNOWN_COLUMN"),
        ({"tables": ["books"], "share": 0.5}, "INVALID_BODY"),
        ({"tables": ["books"], "mode": "sample"}, "INVALID_BODY"),
        ({"tables": ["books"], "mode": "often"}, "INVALID_BODY"),
        ({"tables": ["books"], "mode": "sample", "share": 1e-320}, "INVALID_BODY"),
        ({"tables": ["books", "sales"], "columns": ["id"]}, "INVALID_BODY"),
        ({"tables": ["sales"], "partitions": ["year=2020"]}, "INVALID_BODY"),
        ({"tables": ["sales"], "mode": "incremental", "partitions": ["year=20"]}, "UNKNOWN_PARTITION"),
    ):
        response = client.post("/v1/stats/jobs", json=body)
        assert response.json()["error"]["code"] == code, body
    body = {"tables": ["Sales"], "mode": "incremental", "partitions": ["year=2020/"]}
    started = client.post("/v1/stats/jobs", json=body)
    assert (started.status_code, started.json()["partitions"]) == (202, ["year=2020"])
    wait_for_job(client, "FINISHED")


def test_a_job_is_cancelled_wherever_it_was_started(
    client: httpx.Client, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(job_process.SECONDS, "60")
    job_id = client.post("/v1/stats/jobs", json={"tables": ["books"]}).json()["id"]
    assert client.delete(f"/v1/stats/jobs/{job_id}").json()["state"] == "CANCELLED"
    assert client.delete(f"/v1/stats/jobs/{job_id}").json()["error"] == "The job was cancelled."
    assert client.delete("/v1/stats/jobs/none").status_code == 404
    assert client.get("/v1/stats/jobs/none").status_code == 404
    jobs = gateway.metastore.jobs
    now = gateway.metastore.jobs.list(limit=1)[0].created_at
    jobs.create(StatisticsJob("elsewhere", JobRequest(("books",)), JobState.QUEUED, now))
    assert client.delete("/v1/stats/jobs/elsewhere").json()["state"] == "CANCELLED"
    assert not jobs.heartbeat("elsewhere", at=now)  # so that its process ends


def test_keys_are_learned_from_declarations_queries_and_workloads(client: httpx.Client, bookstore: Path) -> None:
    pair = {"left": "books.id", "right": "transactions.book_id"}
    assert client.get("/v1/stats/keys").json() == {"keys": []}
    told(client, "SELECT count(*) FROM books a JOIN books b ON a.publisher = b.publisher")
    oneself = {"left": "books.publisher", "right": "books.publisher", "source": "history"}
    assert client.get("/v1/stats/keys").json()["keys"] == [oneself]
    statements = [
        "SELECT * FROM transactions WHERE book_id IN (SELECT id FROM books)",
        "SELECT * FROM nowhere",
        "SELECT 1",
    ]
    learned = client.post("/v1/stats/keys", json={"statements": statements}).json()
    assert (learned["new"], learned["keys"]) == (1, [{**pair, "source": "workload"}])
    assert [(each["number"], each["error"]["code"]) for each in learned["refused"]] == [(2, "UNKNOWN_TABLE")]
    body = {"name": "transactions", "location": str(bookstore / "transactions")}
    for keys, code in (
        ([{"column": "book", "references": "books.id"}], "UNKNOWN_COLUMN"),
        ([{"column": "book_id", "references": "books.idd"}], "UNKNOWN_COLUMN"),
        ([{"column": "book_id", "references": "boks.id"}], "UNKNOWN_TABLE"),
        ([{"column": "book_id", "references": "id"}], "INVALID_BODY"),
    ):
        assert client.post("/v1/tables", json={**body, "keys": keys}).json()["error"]["code"] == code
    keys = [{"column": "book_id", "references": "books.id"}, {"column": "id", "references": "Transactions.book_id"}]
    shown = client.post("/v1/tables", json={**body, "keys": keys}).json()
    assert {each["source"] for each in shown["keys"]} == {"workload", "declared"}
    assert client.get("/v1/tables/transactions").json()["keys"] == shown["keys"]
    assert client.get("/v1/tables/transactions").json()["rows"] == TRANSACTIONS
    assert client.get("/v1/tables/books").json()["rows"] == BOOKS
