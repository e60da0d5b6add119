"""A schedule with real jobs on Spark: on time, and through a gateway that is killed in the middle of one."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import RealGateway
from tests.engines.processes import ends_within

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

SETTINGS = "[schedules]\nretry_first_s = 1.0\n"
DUE_IN = dt.timedelta(seconds=3)
ON_TIME = dt.timedelta(seconds=2)


@pytest.mark.thorough
def test_a_schedules_job_that_was_killed_with_its_gateway_is_repeated_by_the_next_one(
    serve: Callable[[Path], RealGateway], bookstore: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "fusion.toml").write_text(SETTINGS, encoding="utf-8")
    first = serve(home)
    first.http.post("/v1/tables", json={"name": "books", "location": str(bookstore / "books")}).raise_for_status()
    due_at = (dt.datetime.now(dt.UTC) + DUE_IN).replace(microsecond=0)
    schedule = {"name": "s", "tables": ["*"], "cron": f"{due_at:%S %M %H} * * *"}
    first.http.post("/v1/stats/schedules", json=schedule).raise_for_status()
    job = _job(first, lambda jobs: jobs[:1] if jobs and jobs[0]["state"] == "RUNNING" else [])
    begun_at = dt.datetime.fromisoformat(job["created_at"])
    assert due_at <= begun_at < due_at + ON_TIME
    descendants = first.processes("")
    first.process.kill()
    first.process.wait()
    assert all(ends_within(pid, 15) for pid in descendants)

    second = serve(home)
    repeated = _job(second, lambda jobs: [done for done in jobs if done["state"] == "FINISHED"])
    assert repeated["schedule"] == "s"
    cut = second.http.get(f"/v1/stats/jobs/{job['id']}").json()
    assert (cut["state"], cut["finished_at"] is not None) == ("FAILED", True)
    assert len(second.http.get("/v1/stats/jobs").json()["jobs"]) == 2
    statistics = second.http.get("/v1/tables/books").json()["statistics"]
    assert statistics["version"] == 1
    give_up_s = time.monotonic() + 10
    while (known := second.http.get("/v1/stats/schedules").json()["schedules"][0])["running"]:
        assert time.monotonic() < give_up_s
        time.sleep(0.1)
    assert (known["failures"], known["last_error"], known["last_job_id"]) == (0, None, repeated["id"])


def _job(
    gateway: RealGateway, wanted: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], within_s: float = 120.0
) -> dict[str, Any]:
    """Wait for the first job, newest first, that is wanted."""
    give_up_s = time.monotonic() + within_s
    while True:
        jobs = gateway.http.get("/v1/stats/jobs").json()["jobs"]
        if found := wanted(jobs):
            return found[0]
        assert time.monotonic() < give_up_s, jobs
        time.sleep(0.1)
