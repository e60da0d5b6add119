"""Commands on real parts: COMPUTE STATS runs a real Spark, and what it finds is what SHOW tells."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.conftest import RealGateway
from tests.engines.processes import ends_within

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

ROWS_A_DAY = 1_000
SHOPS = 7


def add_day(folder: Path, day: int) -> None:
    columns = {
        "id": pa.array(range(day * ROWS_A_DAY, (day + 1) * ROWS_A_DAY), pa.int64()),
        "shop": [f"shop {i % SHOPS}" for i in range(ROWS_A_DAY)],
        "paid": [i % 4 == 0 for i in range(ROWS_A_DAY)],
    }
    (folder / f"day={day}").mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / f"day={day}" / "part-0.parquet")


def told(gateway: RealGateway, sql: str) -> list[list[Any]]:
    reply = gateway.query(sql)
    assert reply["state"] == "FINISHED", reply["error"]
    rows: list[list[Any]] = reply["rows"]
    return rows


def test_statistics_from_the_first_file_to_an_incremental_build(gateway: RealGateway, tmp_path: Path) -> None:
    folder = tmp_path / "sales"
    for day in (1, 2):
        add_day(folder, day)
    gateway.http.post("/v1/tables", json={"name": "sales", "location": str(folder)}).raise_for_status()
    assert told(gateway, "COMPUTE STATS sales") == [["Updated 2 partition(s) and 4 column(s)."]]
    assert [row[:3] for row in told(gateway, "SHOW TABLE STATS sales")] == [
        ["1", ROWS_A_DAY, 1],
        ["2", ROWS_A_DAY, 1],
        ["Total", 2 * ROWS_A_DAY, 2],
    ]
    columns = {row[0]: row[1:] for row in told(gateway, "SHOW COLUMN STATS sales")}
    assert columns["shop"] == ["STRING", SHOPS, 0, 6, 6.0, -1, -1]
    assert columns["paid"][-2:] == [ROWS_A_DAY // 2, 2 * ROWS_A_DAY - ROWS_A_DAY // 2]
    assert columns["day"][:3] == ["INT", 2, 0]

    add_day(folder, 3)
    assert told(gateway, "COMPUTE INCREMENTAL STATS sales") == [["Updated 1 partition(s) and 4 column(s)."]]
    *days, total = told(gateway, "SHOW TABLE STATS sales")
    assert [row[:2] for row in days] == [[str(day), ROWS_A_DAY] for day in (1, 2, 3)]
    assert {row[7] for row in days} == {"true"}
    assert total[1] == 3 * ROWS_A_DAY
    told(gateway, "ALTER TABLE sales SET COLUMN STATS shop ('numDVs'='99')")
    build = gateway.http.get("/v1/tables/sales").json()["statistics"]
    (shop,) = (column for column in build["columns"] if column["name"] == "shop")
    assert (shop["ndv"], shop["manual"]) == (99, ["ndv"])
    assert shop["common"][0]["value"] == "shop 0"
    assert told(gateway, "COMPUTE STATS sales (shop) TABLESAMPLE SYSTEM(100)")[0][0].startswith(
        "Updated 3 partition(s)"
    )
    shown = {row[0]: row[2] for row in told(gateway, "SHOW COLUMN STATS sales")}
    assert shown["shop"] == SHOPS


def test_cancelling_leaves_no_process_and_no_lock(gateway: RealGateway, bookstore: Path) -> None:
    location = str(bookstore / "transactions")
    gateway.http.post("/v1/tables", json={"name": "sold", "location": location}).raise_for_status()
    query_id = gateway.submit("COMPUTE STATS sold")
    give_up_s = time.monotonic() + 60
    while not (processes := gateway.processes("statsproc")):
        assert time.monotonic() < give_up_s
        time.sleep(0.05)
    gateway.http.delete(f"/v1/queries/{query_id}").raise_for_status()
    assert gateway.ended(query_id, within_s=15)["state"] == "CANCELLED"
    assert all(ends_within(pid, 20) for pid in processes)
    assert told(gateway, "SHOW TABLE STATS sold")[0][0] == -1
    command = [str(Path(sys.executable).with_name("fusion")), "stats", "compute", "sold", "--sample", "50"]
    done = subprocess.run([*command, "--home", str(gateway.home)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "rows" in done.stderr
    jobs = subprocess.run(
        [*command[:2], "jobs", "--table", "sold", "--home", str(gateway.home)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "The job was cancelled." in " ".join(jobs.stdout.split())
    assert told(gateway, "SHOW TABLE STATS sold")[0][0] > 0
