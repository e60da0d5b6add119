"""A person with a real browser finds a failed-over query, reads why, and sees another one end by itself."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uvicorn

from engines.scripted import Pause, Script
from gateway.server.app import create_app
from gateway.server.runtime import Gateway
from metastore.discovery.inspection import inspect
from metastore.records import JobRequest, JobState, StatisticsJob, TableProgress
from selector.statistics import ColumnStatistics, Histogram, TableStatistics
from tests.browser import ARGUMENTS, CHROMIUM, FITS_WIDTH, NARROW, NO_CHROMIUM, WIDE
from tests.gateway.scripted_gateway import PLAN, ROWS, SMALL, TOO_BIG, scripted_gateway

playwright = pytest.importorskip("playwright.sync_api", reason="a real browser needs the package playwright")
playwright.expect.set_options(timeout=60_000)  # ms, on a machine that runs other tests

START_TIMEOUT_S = 120.0


@contextmanager
def serving(gateway: Gateway) -> Iterator[str]:
    """Serve in a thread and yield the address."""
    server = uvicorn.Server(uvicorn.Config(create_app(gateway), port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, name="http", daemon=True)
    thread.start()
    until = time.monotonic() + START_TIMEOUT_S
    while not server.started:
        assert thread.is_alive() and time.monotonic() < until, "the server did not start"
        time.sleep(0.02)
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.e2e
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_a_person_finds_out_why_a_query_failed_over(tmp_path: Path) -> None:
    scripted = scripted_gateway(tmp_path)
    may_end = threading.Event()
    scripted.fast.script("slow", Script(steps=(may_end, ROWS), plan=PLAN))
    with (
        serving(scripted.gateway) as address,
        playwright.sync_playwright() as driver,
        driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS)) as browser,
    ):
        ids = {
            sql: httpx.post(f"{address}/v1/queries", json={"sql": sql}, timeout=60).raise_for_status().json()["id"]
            for sql in (SMALL, TOO_BIG)
        }
        page = browser.new_page(viewport=WIDE)
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        expect = playwright.expect

        page.goto(address)
        of_spark = page.get_by_role("region", name="The last hour").get_by_role("row").filter(has_text="spark")
        page.set_viewport_size(NARROW)
        assert page.evaluate(FITS_WIDTH)
        page.set_viewport_size(WIDE)
        of_spark.get_by_role("link").nth(2).click()  # failed over

        expect(page.get_by_role("link", name=ids[SMALL])).to_have_count(0)
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=ids[TOO_BIG]))
        expect(row.get_by_role("cell").nth(3)).to_contain_text("duckdb ✗")
        expect(row.get_by_role("cell").nth(3)).to_contain_text("spark ✓")
        page.set_viewport_size(NARROW)
        assert page.evaluate(FITS_WIDTH)
        page.set_viewport_size(WIDE)

        page.get_by_role("link", name=ids[TOO_BIG]).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(ids[TOO_BIG])
        expect(page.get_by_role("status")).to_have_text(
            "duckdb ran out of memory. spark answered instead, under the same query id."
        )
        steps = page.locator(".step")
        expect(steps).to_have_count(4)
        expect(steps.nth(0)).to_contain_text("limit 384 MiB")
        expect(steps.nth(1)).to_contain_text("MEMORY_EXCEEDED")
        expect(steps.nth(2)).to_contain_text("spark ran it again under the same query id and returned 2 rows")
        expect(steps.nth(3)).to_contain_text("straight to spark")
        limit = page.get_by_label("The limit is 384 MiB")
        expect(limit).to_be_visible()
        measured = page.locator("rect.measured").bounding_box()
        assert measured is not None and measured["width"] > 100  # drawn, although the policy allows no inline style
        page.set_viewport_size(NARROW)
        assert page.evaluate(FITS_WIDTH)

        asked = {"sql": "SELECT 'slow' AS answer", "wait_s": 0, "engine": "duckdb"}
        slow = httpx.post(f"{address}/v1/queries", json=asked, timeout=60).json()["id"]
        page.goto(f"{address}/dashboard/queries/{slow}")
        expect(page.get_by_role("status")).to_have_text("Running on duckdb now.")
        may_end.set()
        expect(page.get_by_role("status")).to_have_text("Answered by duckdb.")

        page.set_viewport_size(WIDE)
        page.goto(f"{address}/dashboard/queries")
        page.get_by_label("Text").fill("'small'")
        page.get_by_label("User").fill("anonymous")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_role("link", name=ids[SMALL])).to_be_visible()
        expect(page.get_by_role("link", name=slow)).to_have_count(0)
        page.get_by_role("link", name="Took").click()
        expect(page.get_by_role("columnheader", name="Took")).to_have_attribute("aria-sort", "descending")
        expect(page.get_by_label("Text")).to_have_value("'small'")
        for name in ("Templates", "Estimates", "Savings", "Parity", "Load", "Rules"):
            page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            page.set_viewport_size(NARROW)
            assert page.evaluate(FITS_WIDTH), name
            page.set_viewport_size(WIDE)
        assert complaints == []


@pytest.mark.e2e
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_a_person_cancels_a_query_and_runs_it_again_where_they_like(tmp_path: Path) -> None:
    scripted = scripted_gateway(tmp_path)
    scripted.fast.script("slow", Script(steps=(Pause.UNTIL_ENDED,), plan=PLAN), Script(steps=(ROWS,), plan=PLAN))
    with (
        serving(scripted.gateway) as address,
        playwright.sync_playwright() as driver,
        driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS)) as browser,
    ):
        page, expect = browser.new_page(viewport=WIDE), playwright.expect
        asked = {"sql": "SELECT 'slow' AS answer", "wait_s": 0}
        slow = httpx.post(f"{address}/v1/queries", json=asked, timeout=60).json()["id"]
        page.goto(f"{address}/dashboard")
        page.get_by_role("row").filter(has_text="anonymous").get_by_role("link", name=slow).click()
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("status")).to_contain_text("Cancelled")
        page.get_by_role("combobox", name="Engine").select_option("spark")
        page.get_by_role("button", name="Run again").click()
        expect(page.get_by_role("status")).to_have_text("Answered by spark.")
        expect(page.get_by_role("heading", level=1)).not_to_contain_text(slow)

        big = httpx.post(f"{address}/v1/queries", json={"sql": TOO_BIG}, timeout=60).json()["id"]
        page.goto(f"{address}/dashboard/queries/{big}")
        page.get_by_role("button", name="Forget the misestimate").click()
        expect(page.locator(".step").last).to_contain_text("no longer on record")
        expect(page.get_by_role("button", name="Forget the misestimate")).to_have_count(0)


@pytest.mark.e2e
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_a_person_adds_a_schedule_and_pauses_it(tmp_path: Path) -> None:
    gateway = scripted_gateway(tmp_path / "home").gateway
    with (
        serving(gateway) as address,
        playwright.sync_playwright() as driver,
        driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS)) as browser,
    ):
        page, expect = browser.new_page(viewport=WIDE), playwright.expect
        page.goto(f"{address}/dashboard/statistics")
        page.get_by_text("Add a schedule").click()
        page.get_by_label("Name").fill("nightly")
        page.get_by_label("Cron").fill("at night")
        page.get_by_role("button", name="Add").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("This was not done")
        page.go_back()
        page.get_by_text("Add a schedule").click()
        page.get_by_label("Name").fill("nightly")
        page.get_by_label("Cron").fill("0 3 * * *")
        page.get_by_label("Time zone").fill("Europe/Berlin")
        page.get_by_role("button", name="Add").click()
        row = page.get_by_role("row").filter(has_text="nightly")
        expect(row).to_contain_text("Europe/Berlin")
        row.get_by_role("button", name="Pause nightly").click()
        expect(row).to_contain_text("paused")
        row.get_by_role("button", name="Resume nightly").click()
        expect(row).not_to_contain_text("paused")
        assert [schedule.name for schedule in gateway.metastore.schedules.list()] == ["nightly"]


@pytest.mark.e2e
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_a_person_watches_statistics_being_computed_and_looks_at_a_column(tmp_path: Path) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    pq.write_table(pa.table({"price": [1.0, 2.0, 2.0, 9.5]}), folder / "part-0.parquet")
    gateway = scripted_gateway(tmp_path / "home").gateway
    store, now = gateway.metastore, dt.datetime.now(dt.UTC)
    store.catalog.put(inspect("books", folder), at=now)
    prices = Histogram(np.linspace(1.0, 100.0, 101))
    columns = {"price": ColumnStatistics("price", "double", 0, 101.0, 1.0, 100.0, histogram=prices)}
    store.statistics.publish(TableStatistics("books", 0, 4, 100, columns), at=now)
    with (
        serving(gateway) as address,
        playwright.sync_playwright() as driver,
        driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS)) as browser,
    ):
        body = {"name": "nightly", "tables": ["*"], "cron": "0 3 * * *", "time_zone": "Europe/Berlin"}
        httpx.post(f"{address}/v1/stats/schedules", json=body, timeout=60).raise_for_status()
        store.jobs.create(StatisticsJob("j1", JobRequest(("books",)), JobState.QUEUED, now, schedule="nightly"))
        page = browser.new_page(viewport=WIDE, color_scheme="dark")
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        expect = playwright.expect

        page.goto(address)
        page.get_by_role("navigation", name="Pages").get_by_role("link", name="Statistics").click()
        expect(page.get_by_role("row").filter(has_text="nightly")).to_contain_text("Europe/Berlin")
        store.jobs.progressed("j1", TableProgress("books", JobState.RUNNING, 1, 2), at=dt.datetime.now(dt.UTC))
        bar = page.get_by_role("progressbar", name="Files of books")
        expect(bar).to_have_attribute("value", "1")  # the page was not loaded again
        filled = bar.bounding_box()
        assert filled is not None and filled["width"] > 100
        store.jobs.ended("j1", at=dt.datetime.now(dt.UTC))
        expect(page.locator(".job").first).to_contain_text("FINISHED")
        page.set_viewport_size(NARROW)
        assert page.evaluate(FITS_WIDTH)

        page.get_by_role("navigation", name="Pages").get_by_role("link", name="Tables").click()
        assert page.evaluate(FITS_WIDTH)
        page.get_by_role("table", name="Tables by name").get_by_role("link", name="books").click()
        page.get_by_role("link", name="price").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("price")
        plot = page.get_by_role("img", name="Shares of the rows of price")
        expect(plot).to_be_visible()
        assert page.evaluate(FITS_WIDTH)
        page.set_viewport_size(WIDE)
        bars = page.locator(".bars rect")
        expect(bars).to_have_count(48)
        colour = bars.first.evaluate("bar => getComputedStyle(bar).fill")
        page.emulate_media(color_scheme="light")
        assert bars.first.evaluate("bar => getComputedStyle(bar).fill") != colour
        page.get_by_text("The same as numbers").click()
        expect(page.get_by_role("cell", name="2.1 %").first).to_be_visible()
        assert complaints == []


@pytest.mark.e2e
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_a_person_writes_a_statement_and_downloads_its_rows(tmp_path: Path) -> None:
    scripted = scripted_gateway(tmp_path)
    with (
        serving(scripted.gateway) as address,
        playwright.sync_playwright() as driver,
        driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS)) as browser,
    ):
        page, expect = browser.new_page(viewport=WIDE), playwright.expect
        page.goto(f"{address}/dashboard")
        page.get_by_role("navigation", name="Pages").get_by_role("link", name="SQL").click()
        page.locator(".cm-content").wait_for()  # the editor, which takes the text area's place
        page.get_by_role("textbox", name="Statement").fill(SMALL)
        page.get_by_role("button", name="Explain").click()
        expect(page.get_by_role("region", name="Where it would run")).to_contain_text("It was sent to duckdb")
        expect(page.get_by_role("textbox", name="Statement")).to_have_text(SMALL)
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("status")).to_have_text("Answered by duckdb.")
        expect(page.get_by_role("cell", name="42")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("link", name="CSV").click()
        assert Path(download.value.path()).read_text().splitlines() == ['"answer"', "42", "43"]
        page.goto(f"{address}/dashboard/sql")
        page.get_by_role("link", name="edit").click()
        expect(page.get_by_role("textbox", name="Statement")).to_have_text(SMALL)


@pytest.mark.e2e
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.thorough)])
def test_pages_have_no_fault_that_axe_finds(tmp_path: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    scripted = scripted_gateway(tmp_path / "home")
    scripted.fast.script("slow", Script(steps=(Pause.UNTIL_ENDED,), plan=PLAN))
    with (
        serving(scripted.gateway) as address,
        playwright.sync_playwright() as driver,
        driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS)) as browser,
    ):
        failed_over = httpx.post(f"{address}/v1/queries", json={"sql": TOO_BIG}, timeout=60).json()["id"]
        for sql in (SMALL, "SELECT * FROM nowhere"):
            httpx.post(f"{address}/v1/queries", json={"sql": sql}, timeout=60)
        slow = {"sql": "SELECT 'slow' AS answer", "wait_s": 0}
        httpx.post(f"{address}/v1/queries", json=slow, timeout=60).raise_for_status()
        body = {"name": "nightly", "tables": ["*"], "cron": "0 3 * * *"}
        httpx.post(f"{address}/v1/stats/schedules", json=body, timeout=60).raise_for_status()
        folder = tmp_path / "visits"
        (folder / "day=2026-01-01").mkdir(parents=True)
        pq.write_table(pa.table({"page": ["x"]}), folder / "day=2026-01-01" / "part.parquet")
        table = {"name": "visits", "location": str(folder)}
        httpx.post(f"{address}/v1/tables", json=table, timeout=60).raise_for_status()
        pages = (
            "",
            "/sql",
            "/queries",
            "/templates",
            "/estimates",
            "/savings",
            "/parity",
            "/load",
            "/rules",
            "/tables",
            "/statistics/visits",
            "/statistics",
        )
        for size in (WIDE, NARROW):
            context = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=True)
            page = context.new_page()
            for path in (*pages, f"/queries/{failed_over}", f"/queries/{failed_over}/rows"):
                page.goto(f"{address}/dashboard{path}")
                found = axe.Axe().run(page)
                faults = [(fault["id"], fault["impact"]) for fault in found.response["violations"]]
                assert faults == [], (path, size, found.generate_report())
                assert page.evaluate(FITS_WIDTH), (path, size)
            context.close()
