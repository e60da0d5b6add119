"""Schedules over HTTP and from the command line, and the pages about statistics."""

from __future__ import annotations

import datetime as dt
import html
import itertools
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from engines.files.listing import data_files
from gateway.cli import terminal
from gateway.cli.main import app
from gateway.dashboard.drawings import drawing, plots
from gateway.server.app import create_app
from gateway.server.runtime import Gateway
from gateway.statistics.jobs import JobRunner
from metastore.discovery.inspection import inspect
from metastore.records import (
    AfterMisestimate,
    JobRequest,
    JobState,
    Schedule,
    StatisticsJob,
    StatisticsPart,
    TableProgress,
)
from selector.join_keys import Bins, KeySample, KeyStatistics
from selector.row_sample import RowSample
from selector.statistics import ColumnStatistics, CommonValues, Histogram, TableStatistics
from tests.gateway import job_process
from tests.gateway.conftest import serving
from tests.gateway.scripted_gateway import scripted_gateway

ROUTE = "/v1/stats/schedules"
ROWS, FILES = 1_000, 4
EPOCH_DAY_OF_2020 = 18_262
HOSTILE = "<b>'\"&"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, httpx.Client, Path]]:
    """Serve a gateway over one table whose statistics hold everything that can be shown."""
    home = tmp_path_factory.mktemp("schedules")
    folder = home / "data" / "orders"
    folder.mkdir(parents=True)
    for file in range(FILES):
        pq.write_table(pa.table({"day": [1], "price": [1.0], HOSTILE: ["x"], "bare": [1]}), folder / f"{file}.parquet")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(JobRunner, "_command", lambda _: job_process.COMMAND)
        patched.setenv(job_process.SECONDS, "0")
        gateway = scripted_gateway(home / "home").gateway
        gateway.metastore.catalog.put(inspect("orders", folder), at=_now())
        with serving(create_app(gateway)) as client:
            yield gateway, client, home / "home"


@pytest.fixture
def client(house: tuple[Gateway, httpx.Client, Path]) -> Iterator[httpx.Client]:
    yield house[1]
    for schedule in house[1].get(ROUTE).json()["schedules"]:
        house[1].delete(f"{ROUTE}/{schedule['name']}")
    for job in house[0].metastore.jobs.open_jobs():
        _ended(house[1], job.id)


@pytest.fixture
def gateway(house: tuple[Gateway, httpx.Client, Path]) -> Gateway:
    return house[0]


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def nightly(**more: Any) -> dict[str, Any]:
    return {"name": "nightly", "tables": ["orders"], "cron": "0 3 * * *", "time_zone": "Europe/Berlin"} | more


# ---------------------------------------------------------------------- HTTP


def test_a_schedule_lives_over_http(client: httpx.Client) -> None:
    reply = client.post(ROUTE, json=nightly(mode="incremental"))
    assert reply.status_code == 201, reply.text
    added = reply.json()
    assert (added["kind"], added["mode"], added["paused"], added["failures"]) == ("cron", "incremental", False, 0)
    due = dt.datetime.fromisoformat(added["next_run_at"])
    assert _now() < due <= _now() + dt.timedelta(days=1)
    assert client.get(ROUTE).json()["schedules"] == [added]
    paused = client.patch(f"{ROUTE}/nightly", json={"paused": True}).json()
    assert (paused["paused"], paused["next_run_at"]) == (True, None)
    resumed = client.patch(f"{ROUTE}/nightly", json={"paused": False, "time_zone": "UTC"}).json()
    assert (resumed["paused"], resumed["cron"], resumed["time_zone"]) == (False, "0 3 * * *", "UTC")
    changed = client.patch(f"{ROUTE}/nightly", json={"stale_files": 0.1, "share": 0.5, "tables": ["*"]}).json()
    assert (changed["kind"], changed["stale_files"], changed["cron"]) == ("staleness", 0.1, None)
    assert (changed["mode"], changed["share"], changed["tables"]) == ("sample", 0.5, ["*"])
    older = client.patch(f"{ROUTE}/nightly", json={"stale_days": 7.0, "mode": "full"}).json()
    assert (older["stale_files"], older["stale_days"], older["mode"], older["share"]) == (0.1, 7.0, "full", 1.0)
    waiting = client.patch(f"{ROUTE}/nightly", json={"after_misestimate": True}).json()
    assert (waiting["kind"], waiting["next_run_at"]) == ("misestimate", None)
    assert client.delete(f"{ROUTE}/nightly").json() == {"removed": "nightly"}
    assert client.get(ROUTE).json() == {"schedules": []}


def test_a_run_by_hand_is_a_job_like_others(client: httpx.Client) -> None:
    client.post(ROUTE, json=nightly())
    reply = client.post(f"{ROUTE}/nightly/run")
    assert reply.status_code == 202, reply.text
    job = reply.json()
    assert (job["schedule"], job["tables"]) == ("nightly", ["orders"])
    assert _ended(client, job["id"])["error"] is None


@pytest.mark.parametrize(
    ("body", "status", "code", "message"),
    [
        (
            nightly(cron="0 25 * * *"),
            400,
            "INVALID_SCHEDULE",
            'The hour of the cron expression "0 25 * * *" is wrong: 25.',
        ),
        (nightly(cron="at night"), 400, "INVALID_SCHEDULE", "has five fields"),
        (nightly(time_zone="Europe/Berln"), 400, "UNKNOWN_TIME_ZONE", "did you mean Europe/Berlin"),
        (nightly(tables=["ordrs"]), 400, "UNKNOWN_TABLE", "There is no table ordrs; did you mean orders?"),
        (nightly(tables=[]), 400, "INVALID_SCHEDULE", "either tables"),
        (nightly(name="../x"), 422, "INVALID_BODY", "name"),
        (nightly(mode="some"), 422, "INVALID_BODY", "mode"),
        (nightly(after_misestimate=True), 400, "INVALID_SCHEDULE", "one reason"),
        (nightly(mode="sample"), 400, "INVALID_SCHEDULE", "share is required with mode sample"),
        (nightly(share=2.0), 400, "INVALID_SCHEDULE", "share lies in"),
        ({"name": "n", "tables": ["orders"]}, 400, "INVALID_SCHEDULE", "The trigger is missing."),
        ({"name": "n", "tables": ["orders"], "time_zone": "UTC"}, 400, "INVALID_SCHEDULE", "allowed with cron"),
        ({"name": "n", "tables": ["orders"], "stale_files": 10.0}, 400, "INVALID_SCHEDULE", "at most 1, not 10"),
        (nightly(surprise=1), 422, "INVALID_BODY", "surprise"),
    ],
)
def test_what_cannot_be_is_told(
    client: httpx.Client, body: dict[str, Any], status: int, code: str, message: str
) -> None:
    reply = client.post(ROUTE, json=body)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (status, code), error
    assert message in error["message"]
    assert client.get(ROUTE).json() == {"schedules": []}


def test_names_are_taken_missed_and_paused(client: httpx.Client) -> None:
    client.post(ROUTE, json=nightly())
    client.patch(f"{ROUTE}/nightly", json={"paused": True})
    answers = {
        "taken": client.post(ROUTE, json=nightly()),
        "missed": client.patch(f"{ROUTE}/nightli", json={"paused": True}),
        "gone": client.delete(f"{ROUTE}/nobody"),
        "paused": client.post(f"{ROUTE}/nightly/run"),
    }
    assert {case: (reply.status_code, reply.json()["error"]["code"]) for case, reply in answers.items()} == {
        "taken": (409, "SCHEDULE_EXISTS"),
        "missed": (404, "NOT_FOUND"),
        "gone": (404, "NOT_FOUND"),
        "paused": (409, "SCHEDULE_PAUSED"),
    }
    assert "did you mean nightly?" in answers["missed"].json()["error"]["message"]


def _ended(client: httpx.Client, job_id: str) -> dict[str, Any]:
    give_up_s = time.monotonic() + 30
    while (job := client.get(f"/v1/stats/jobs/{job_id}").json())["finished_at"] is None:
        assert time.monotonic() < give_up_s
        time.sleep(0.1)
    return dict(job)


# ---------------------------------------------------------------------- command line


def test_a_schedule_lives_on_the_command_line(
    house: tuple[Gateway, httpx.Client, Path], client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = house[2]
    monkeypatch.setattr(terminal.out, "width", 200)
    (home / "gateway.json").write_text(json.dumps({"url": str(client.base_url)}), encoding="utf-8")

    def fusion(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["stats", "schedule", *words, "--home", str(home)])
        return done.exit_code, " ".join(done.output.split())

    code, said = fusion("add", "nightly", "--tables", "orders", "--cron", "0 3 * * *", "--time-zone", "Europe/Berlin")
    assert code == 0, said
    assert re.fullmatch(r"nightly: 0 3 \* \* \* Europe/Berlin; next run \d{4}-\d\d-\d\d 03:00:00 CES?T", said)
    code, said = fusion("add", "fresh", "--tables", "*", "--stale-files", "10%", "--stale-days", "7", "--sample", "25")
    assert (code, said.split("; ")[0]) == (0, "fresh: 0.1 of files changed or 7 days old")
    assert fusion("add", "learn", "--tables", "orders", "--after-misestimate", "--mode", "incremental") == (
        0,
        "learn: after a misestimate; next run after a misestimate",
    )
    assert fusion("pause", "nightly") == (0, "nightly is paused")
    code, listed = fusion("list")
    assert code == 0
    for words in ("nightly", "paused", "sample 0.25", "after a misestimate"):
        assert words in listed
    assert fusion("resume", "nightly")[1].startswith("nightly: next run")
    code, said = fusion("run", "learn")
    assert (code, said.endswith("learn: the statistics are in force")) == (0, True), said
    assert fusion("remove", "learn") == (0, "learn is removed")
    code, said = fusion("add", "tidy", "--cron", "0 3 * * *", "--statement", "SELECT x FROM nowhere")
    assert (code, said) == (1, "error: UNKNOWN_TABLE: There is no table nowhere. (line 1, column 15)")
    code, said = fusion("add", "tidy", "--cron", "0 3 * * *", "--statement", "SELECT 1", "--statement", "SELECT 2")
    assert (code, said.split("; ")[0]) == (0, "tidy: 0 3 * * * UTC"), said
    assert "SELECT 1; SELECT 2" in fusion("list")[1]
    assert fusion("run", "tidy") == (0, "tidy: begins now; fusion stats schedule list tells how it ends")
    for wrong, complaint in (
        (("add", "bad", "--tables", "orders", "--stale-files", "much"), "much is no share; write 10% or 0.1"),
        (("add", "bad", "--tables", "orders", "--cron", "0 25 * * *"), "INVALID_SCHEDULE: The hour"),
        (("run", "nobody"), "NOT_FOUND: There is no schedule nobody"),
    ):
        code, said = fusion(*wrong)
        assert code == 1
        assert complaint in said


# ---------------------------------------------------------------------- pages


def read(client: httpx.Client, path: str, status: int = 200) -> str:
    """Return a page's words."""
    reply = client.get(path)
    assert reply.status_code == status, reply.text
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", reply.text.replace("<wbr>", ""))).split())


def column(name: str, data_type: str, keys: np.ndarray[Any, Any], **known: Any) -> ColumnStatistics:
    values, counts = np.unique(keys, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    common = CommonValues(values[order], counts[order].astype(np.int64) * ROWS // keys.size)
    below = np.append(0, np.cumsum(counts)) / keys.size
    histogram = Histogram(values, below[:-1], below[1:])
    ends = (
        (keys.min(), keys.max())
        if keys.dtype.kind != "S"
        else (min(keys.tolist()).decode(), max(keys.tolist()).decode())
    )
    return ColumnStatistics(
        name, data_type, known.pop("nulls", 0), float(values.size), *ends, histogram=histogram, common=common, **known
    )


@pytest.fixture(scope="module")
def described(house: tuple[Gateway, httpx.Client, Path]) -> TableStatistics:
    """Publish statistics of the table, and one job of each kind of end."""
    gateway = house[0]
    store = gateway.metastore
    days = np.linspace(EPOCH_DAY_OF_2020, EPOCH_DAY_OF_2020 + 365.0, 201).round()
    bins = Bins(np.array([days[0], days[100]]), "orders.day", 1)
    even = KeyStatistics(
        bins,
        np.array([600.0, 400.0]),
        np.array([183.0, 183.0]),
        np.array([5.0, 3.0]),
        KeySample(0.05, RowSample(52, 0.05, {})),
    )
    words = np.array([b"art", b"art", b"fiction", b"history"], dtype="S32")
    table = store.catalog.get("orders")
    assert table is not None
    root = Path(table.source.location)
    marks = tuple(file.mark(root) for file in data_files(root))
    part = StatisticsPart("", marks, ROWS, 100, 0.5, _now(), b"-")
    columns = (
        column("day", "date", days, nulls=10),
        column("price", "double", np.array([1.0, 2.0, 2.0, 9.5]), manual=frozenset({"ndv"})),
        column(HOSTILE, "string", words, average_length=5.0, maximum_length=7),
    )
    build = TableStatistics(
        "orders", 0, ROWS, 100, {c.name: c for c in columns}, files=FILES, share=0.5, notes=("bare: left out",),
        manual=frozenset({"rows"}), sample=RowSample(0, 0.1, {}), keys={"day": even},
    )  # fmt: skip
    published = store.statistics.publish(build, at=_now(), parts=[part])
    failed = StatisticsJob("f1", JobRequest(("orders",)), JobState.QUEUED, _now(), schedule="nightly")
    store.jobs.create(failed)
    store.jobs.progressed(
        "f1", TableProgress("orders", JobState.FAILED, 1, FILES, error="2.parquet is torn"), at=_now()
    )
    store.jobs.ended("f1", at=_now(), error="orders: 2.parquet is torn")
    return published


def test_the_page_of_statistics_shows_jobs_schedules_and_tables(
    client: httpx.Client, gateway: Gateway, described: TableStatistics
) -> None:
    client.post(ROUTE, json=nightly())
    gateway.schedules.add(Schedule("learn", ("*",), AfterMisestimate(), _now()))
    run_at = _now()
    gateway.metastore.schedules.started("learn", job_id="f1", tables=(), at=run_at)
    gateway.metastore.schedules.failed("learn", run_at=run_at, error="2.parquet is torn")
    page = read(client, "/dashboard/statistics")
    assert "FAILED f1 full, started by schedule nightly" in page
    assert "1 of 4 files" in page
    assert page.count("2.parquet is torn") == 2  # of the job's table, and of the schedule
    assert re.search(r"nightly orders; full 0 3 \* \* \* Europe/Berlin in \d+ .* 03:00:00 CES?T never", page)
    assert "learn all tables; full after a misestimate waits for a misestimate just now ✗ FAILED Failed once:" in page
    tables = read(client, "/dashboard/tables")
    assert re.search(r"orders 1,000 < 0.1 MiB .* \d+, computed here 50 % up to date", tables)
    assert 'data-refresh-s="15"' in client.get("/dashboard/statistics").text


def test_a_live_job_refreshes_its_page_and_shows_how_far_it_is(
    client: httpx.Client, gateway: Gateway, described: TableStatistics
) -> None:
    jobs = gateway.metastore.jobs
    jobs.create(StatisticsJob("live", JobRequest(("orders",)), JobState.QUEUED, _now()))
    jobs.progressed("live", TableProgress("orders", JobState.RUNNING, 3, FILES), at=_now())
    page = client.get("/dashboard/statistics").text
    assert 'data-refresh-s="2"' in page
    assert '<progress max="4" value="3" aria-label="Files of orders">3 of 4 files</progress>' in page
    jobs.ended("live", at=_now(), error="enough")
    assert "enough" in read(client, "/dashboard/statistics")


def test_a_tables_page_shows_its_columns(client: httpx.Client, described: TableStatistics) -> None:
    page = read(client, "/dashboard/statistics/orders")
    assert "Rows 1,000 (set by hand)" in page
    assert "Share read 50 %" in page
    assert "bare: left out" in page
    assert "day date 201 10 2020-01-01 2020-12-31 – – 200 buckets, common values, key bins" in page  # noqa: RUF001
    assert "price double 3 0 1 9.5 – – 2 buckets, common values set by hand: ndv" in page  # noqa: RUF001
    assert "Without statistics: bare" in page
    assert "no such table" in read(client, "/dashboard/statistics/nobody", 404)


def test_a_columns_page_plots_it(client: httpx.Client, described: TableStatistics) -> None:
    page = read(client, "/dashboard/statistics/orders/day")
    assert "Nulls 10 (1.0 %)" in page
    assert "Over the bins of the key group orders.day" in page
    assert "A sample holds all 52 rows of some of its keys: of 5.0 % of them, drawn by their hash" in page
    text = client.get("/dashboard/statistics/orders/day").text
    assert text.count("<svg xmlns=") == 2
    assert text.count('role="img"') == 2
    assert "<style" not in text and "<script" not in text and " style=" not in text  # the policy allows none in a page
    hostile = client.get("/dashboard/statistics/orders/%3Cb%3E%27%22%26").text
    assert "<b>" not in hostile
    assert "art…: 50 %" in html.unescape(hostile)
    assert "no statistics of such a column" in read(client, "/dashboard/statistics/orders/bare", 404)


# ---------------------------------------------------------------------- plots


def test_bars_hold_all_rows_whatever_the_type() -> None:
    numbers = np.sort(np.random.default_rng(1).normal(50, 15, 1_001))
    for data_type, keys in (("double", numbers), ("int", numbers.round()), ("date", (numbers * 10).round())):
        found = Histogram(keys)
        bars, note = plots._of_numbers(found, data_type)
        assert sum(bar.share for bar in bars) == pytest.approx(1.0, abs=1e-9)
        assert note == ""
        assert all(a.end == b.start for a, b in itertools.pairwise(bars))


def test_a_long_tail_is_left_out_and_told() -> None:
    keys = np.append(np.linspace(0.0, 10.0, 991), np.linspace(1e3, 1e6, 10))
    bars, note = plots._of_numbers(Histogram(keys), "double")
    assert bars[-1].end <= 1e3
    assert note == "Not drawn: 1.0 % of the rows lie above, up to 1,000,000."


def test_strings_are_grouped_by_how_they_begin() -> None:
    keys = np.array(sorted(f"978-{n:05d}".encode() for n in range(0, 50_000, 50)), dtype="S32")
    bars, _ = plots._of_text(Histogram(keys))
    assert [bar.label for bar in bars[:2]] == ["978-00…", "978-01…"]
    assert len(bars) == 50
    assert sum(bar.share for bar in bars) == pytest.approx(1.0, abs=0.01)


def test_a_drawing_has_a_box_for_each_bar_within_its_lines() -> None:
    heights = [0.0, 3.0, 7.0, 1.0]
    bars = [drawing.Bar(height, at, at + 1.0, f"tip {at}") for at, height in enumerate(heights)]
    drawn = drawing.draw("bars", [("one", bars), ("two", bars[:2])], [(0.5, "first")], written=lambda y: f"{y:g}")
    assert [label.text for label in drawn.up] == ["0", "2", "4", "6", "8"]
    zero, top = float(drawn.up[0].at), float(drawn.up[-1].at)
    boxes = drawn.series[0].boxes
    assert [box.tip for box in boxes] == ["tip 0", "tip 1", "tip 2", "tip 3"]
    for box, height in zip(boxes, heights, strict=True):
        assert float(box.y) + float(box.height) == pytest.approx(zero, abs=0.2)
        assert float(box.height) == pytest.approx((zero - top) * height / 8.0, abs=0.2)
    assert float(boxes[0].x) == float(drawn.left)
    assert float(boxes[-1].x) + float(boxes[-1].width) == pytest.approx(float(drawn.right), abs=0.2)
    assert len(drawn.series[1].boxes) == 2


def test_a_drawing_of_nothing_has_an_axis() -> None:
    drawn = drawing.draw("none", [("one", [drawing.Bar(0.0, 0.0, 1.0, "")])], [], written=str)
    assert [label.text for label in drawn.up] == ["0.0", "1.0"]


def test_a_column_with_one_value_has_no_plot() -> None:
    one = ColumnStatistics("one", "int", 0, 1.0, 1.0, 1.0, histogram=Histogram(np.array([1.0, 1.0])))
    assert plots.histogram(one) is None
    assert plots.histogram(ColumnStatistics("none", "int", 0, 1.0)) is None
