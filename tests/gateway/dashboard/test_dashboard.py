"""The dashboard: pages over a gateway of real parts, and the wording and drawing behind them."""

from __future__ import annotations

import datetime as dt
import html
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.exceptions import StarletteDeprecationWarning

from engines.errors import EngineUnavailable, MemoryExceeded
from engines.protocol import Actuals, EngineStatus, OperatorActual
from engines.scripted import Script
from gateway.dashboard import listing
from gateway.dashboard.drawings.chart import HEADROOM, MemoryChart
from gateway.dashboard.views import MarkedSql, QueryRow, ReasonLine, shortened
from gateway.errors import CommandFailed, WriteFailed
from gateway.execution.coordinator import ITSELF
from gateway.presentation import formatting, timeline
from gateway.presentation.trees import branches
from gateway.server.app import create_app
from metastore.records import Attempt, Misestimate, QueryRecord, QueryState
from selector.decision import Decision, EnginePrice, Reason, ReasonCode, Rule
from selector.estimate import UNKNOWN, MemoryEstimate, OperatorEstimate
from sql.errors import Failure, FusionError, Position, SqlError
from tests.gateway.scripted_gateway import (
    LIMIT_BYTES,
    MIB,
    PLAN,
    SMALL,
    TOO_BIG,
    ScriptedGateway,
    scripted_gateway,
)
from tests.metastore.writing import at_once

with warnings.catch_warnings():
    # Starlette asks for httpx2 at import; the gateway's own client is httpx.
    warnings.simplefilter("ignore", StarletteDeprecationWarning)
    from fastapi.testclient import TestClient

LOOPBACK = ("127.0.0.1", 50_000)  # where nobody has to log in from
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
HOSTILE = "SELECT '<script>alert(1)</script>' AS \"<img src=x onerror=alert(2)>\""

PEAK_BYTES, UPPER_BYTES = 200 * MIB, 300 * MIB
PLAN_PARTS = (
    OperatorEstimate("hash join", 0, 31_500_200.0, 25_245_458.0, 91 * MIB, "containment of keys"),
    OperatorEstimate("scan of transactions", 1, 339_799_026.0, None, 12 * MIB, "rows of transactions"),
    OperatorEstimate("scan of books", 1, 2.5, 126_227_290.0, 0, "histogram of price"),
)
ESTIMATE = MemoryEstimate(PEAK_BYTES, UPPER_BYTES, PLAN_PARTS)
PRICES = (
    EnginePrice("duckdb", 0.875, 1.5, 1.0, 3.25, 0.5, 0.25, first_s=6.7),
    EnginePrice("spark", 1.0, 34.0, 30.0, 34.0, 0.0, 0.0, first_s=34.0),
)
FITS = Decision(
    "duckdb",
    ("duckdb", "spark"),
    (Reason(ReasonCode.FITS, "Fits: somehow."),),
    ESTIMATE,
    LIMIT_BYTES,
    estimated_for="duckdb",
    prices=PRICES,
    turning_bytes=150 * MIB,
)
RAN_OUT = Attempt(
    1,
    "duckdb",
    QueryState.FAILED,
    NOON,
    wall_s=3.42,
    failure=MemoryExceeded.code,
    message="Out of memory",
    peak_bytes=LIMIT_BYTES,
)
TOOK_OVER = Attempt(2, "spark", QueryState.FINISHED, NOON + 4 * SECOND, wall_s=34.4, rows=10)
FAILED_OVER = QueryRecord(
    "20260301_120000_0123456789",
    "SELECT 1",
    "spark",
    "ann",
    "auto",
    QueryState.FINISHED,
    NOON,
    engine="spark",
    fingerprint="f",
    statistics_version="books@1",
    decision=FITS,
    attempts=(RAN_OUT, TOOK_OVER),
    rows=10,
    finished_at=NOON + 38 * SECOND,
)
LESSON = Misestimate("f", "duckdb", "books@1", LIMIT_BYTES, FAILED_OVER.id, "SELECT 1", PEAK_BYTES, LIMIT_BYTES, NOON)


# ---------------------------------------------------------------------- pages


@pytest.fixture
def scripted(tmp_path: Path) -> ScriptedGateway:
    return scripted_gateway(tmp_path)


@pytest.fixture
def client(scripted: ScriptedGateway) -> Iterator[TestClient]:
    with TestClient(create_app(scripted.gateway), base_url="http://localhost", client=LOOPBACK) as client:
        yield client


def run(client: TestClient, sql: str) -> str:
    """Send a statement and return its query's id, accepted or not."""
    reply = client.post("/v1/queries", json={"sql": sql}).json()
    return str(reply["id"] if "id" in reply else reply["error"]["query_id"])


def read(client: TestClient, path: str) -> str:
    """Return a page's words: tags become spaces."""
    reply = client.get(path)
    assert reply.status_code == 200, reply.text
    return words(reply.text)


def words(page: str) -> str:
    """Return a page's words as one line; a tag ends a word, but for a place where a long one may break."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page.replace("<wbr>", ""))).split())


def log_query(scripted: ScriptedGateway, record: QueryRecord) -> None:
    """Write a query and its past straight into the metastore."""
    queries = scripted.gateway.metastore.queries
    at_once(queries).open(replace(record, state=QueryState.QUEUED))
    if record.decision is not None and record.attempts:
        at_once(queries).decided(
            record.id,
            fingerprint=record.fingerprint or "",
            template=record.template or "",
            statistics_version=record.statistics_version or "",
            decision=record.decision,
            first=record.attempts[0],
        )
    for position, attempt in enumerate(record.attempts):
        if position > 0 or record.decision is None:
            at_once(queries).attempt_started(record.id, attempt)
        if attempt.state.ended:
            at_once(queries).attempt_ended(record.id, attempt)
    if record.state.ended:
        at_once(queries).close(
            record.id, record.state, at=record.finished_at or NOON, rows=record.rows, error=record.error
        )


@pytest.mark.parametrize("path", ["/", "/dashboard/"])
def test_the_root_leads_to_the_dashboard(client: TestClient, path: str) -> None:
    reply = client.get(path, follow_redirects=False)

    assert (reply.status_code, reply.headers["location"]) == (307, "/dashboard")


def test_an_empty_log_tells_how_to_send_the_first_query(client: TestClient) -> None:
    text = read(client, "/dashboard")

    assert "No query yet" in text
    assert "curl http://localhost/v1/queries" in text
    assert """-d '{"sql": "SELECT 1 AS one"}'""" in text


def test_the_list_is_newest_first_and_tells_where_each_query_ran(client: TestClient) -> None:
    small, too_big = run(client, SMALL), run(client, TOO_BIG)

    text = read(client, "/dashboard/queries")

    assert text.index(too_big) < text.index(small)
    assert "duckdb ✗ FAILED → spark ✓ FINISHED MEMORY_EXCEEDED FITS" in text
    assert "SELECT 'small' AS answer" in text


def test_the_strip_shows_engines_as_they_are_now(client: TestClient, scripted: ScriptedGateway) -> None:
    scripted.dependable.reported_status = EngineStatus(alive=False, detail="the server is <gone>")

    text = read(client, "/dashboard")

    assert "duckdb fast ✓ available Slots in use 0 of 2" in text
    assert "Limit per statement 384 MiB Status 2 workers are idle" in text
    assert "spark dependable ✗ not available Slots in use 0 of 4" in text
    assert "none: it spills to disk Status the server is <gone>" in text


@pytest.mark.parametrize(
    ("narrowed", "kept"),
    [
        ("failed_over=1", {"over"}),
        ("failed_over=0", {"over", "good", "bad"}),
        ("state=FAILED", {"bad"}),
        ("engine=duckdb", {"good"}),
        ("engine=spark&state=FINISHED", {"over"}),
        ("state=FINISHED&engine=duckdb&failed_over=1", set()),
        ("state=NO_SUCH_STATE", set()),
        ("before=not-a-time", {"over", "good", "bad"}),
    ],
)
def test_filters_are_query_parameters(client: TestClient, narrowed: str, kept: set[str]) -> None:
    ids = {"good": run(client, SMALL)}  # before one of its template runs out of memory
    ids |= {"over": run(client, TOO_BIG), "bad": run(client, "SELECT * FROM nowhere")}

    page = client.get(f"/dashboard/queries?{narrowed}").text

    assert {name for name, query_id in ids.items() if f"/dashboard/queries/{query_id}" in page} == kept
    assert ("No query matches" in page) == (not kept)


def test_older_queries_are_a_link_away_and_every_query_is_on_one_page(
    client: TestClient, scripted: ScriptedGateway
) -> None:
    count = 2 * listing.PAGE_ROWS + 7
    for n in range(count):
        log_query(scripted, replace(FAILED_OVER, id=f"q{n:03}", submitted_at=NOON + n * SECOND))
    seen: list[str] = []
    address: str | None = "/dashboard/queries?engine=spark"
    pages = 0
    while address is not None:
        page = client.get(address).text
        seen += re.findall(r"/dashboard/queries/(q\d+)", page)
        older = re.search(r'<a href="([^"]*)" rel="next">', page)
        address = html.unescape(older.group(1)) if older else None
        pages += 1

    assert seen == [f"q{n:03}" for n in reversed(range(count))]
    assert pages == 3


def test_a_failed_over_query_explains_itself(client: TestClient) -> None:
    query_id = run(client, TOO_BIG)

    text = read(client, f"/dashboard/queries/{query_id}")

    assert "duckdb ran out of memory. spark answered instead, under the same query id." in text
    assert re.search(
        r"It was sent to duckdb because it fits into duckdb with a probability of .* % "
        r"\(expected peak .*, limit 384 MiB\)",
        text,
    )
    assert "at 380 MiB. No row of it had reached the client. MEMORY_EXCEEDED" in text
    assert "spark ran it again under the same query id and returned 2 rows" in text
    assert "the same statement goes straight to spark. MISESTIMATE_ON_RECORD" in text
    assert "Measured on duckdb 380 MiB where it ran out" in text
    assert "Out of memory: 380 of 384 MiB are taken" in text
    assert "Project 2 └─ Range 2" in text


def test_the_second_run_leads_back_to_the_miss(client: TestClient) -> None:
    first, second = run(client, TOO_BIG), run(client, TOO_BIG)

    page = client.get(f"/dashboard/queries/{second}").text

    assert "because the same statement ran out of memory on the fast engine before" in words(page)
    assert f'(query <a href="/dashboard/queries/{first}">{first}</a>)' in page


def test_a_forgotten_miss_is_told_as_such(client: TestClient) -> None:
    query_id = run(client, TOO_BIG)
    fingerprint = client.get(f"/v1/queries/{query_id}").json()["fingerprint"]
    client.delete(f"/v1/misestimates/{fingerprint}")

    text = read(client, f"/dashboard/queries/{query_id}")

    assert "The miss is no longer on record: the next run may try duckdb again." in text
    assert "MISESTIMATE_ON_RECORD" not in text


def test_the_result_is_linked_while_it_is_kept(client: TestClient, scripted: ScriptedGateway) -> None:
    query_id = run(client, SMALL)
    page = client.get(f"/dashboard/queries/{query_id}").text
    links = re.findall(r'href="([^"]*/result\?format=\w+)"', page)

    assert [client.get(link).status_code for link in links] == [200, 200, 200]
    assert f'href="/v1/queries/{query_id}"' in page

    scripted.gateway.spool.delete(query_id)
    page = client.get(f"/dashboard/queries/{query_id}").text
    assert "/result?" not in page
    assert "The result is no longer kept." in page


def test_the_plan_stands_beside_the_engines_own(client: TestClient, scripted: ScriptedGateway) -> None:
    log_query(scripted, FAILED_OVER)

    text = read(client, f"/dashboard/queries/{FAILED_OVER.id}")

    unmeasured = formatting.DASH
    assert f"hash join 31,500,200 {unmeasured} unknown 25,245,458 91 MiB containment of keys" in text
    assert f"├─ scan of transactions 339,799,026 {unmeasured} unknown unknown 12 MiB rows of transactions" in text
    assert f"└─ scan of books 2.5 {unmeasured} unknown 126,227,290 0 MiB histogram of price; differs from" in text


def test_rows_that_the_engine_counted_stand_in_the_plans_boxes(client: TestClient, scripted: ScriptedGateway) -> None:
    operators = tuple(OperatorActual("X", rows, depth) for rows, depth in ((1_575_010, 0), (339_799_026, 1), (40, 1)))
    finished = replace(TOOK_OVER, engine="duckdb", actuals=Actuals(PEAK_BYTES, operators))
    log_query(scripted, replace(FAILED_OVER, engine="duckdb", attempts=(finished,)))

    text = read(client, f"/dashboard/queries/{FAILED_OVER.id}")

    assert "the largest q-error is 20.0" in text
    assert "hash join estimated 31,500,200 rows measured 1,575,010, q-error 20 holds 91 MiB" in text
    assert "Ran on duckdb 34.4 s" in text


def test_what_would_change_a_decision_stands_beside_its_prices(client: TestClient, scripted: ScriptedGateway) -> None:
    log_query(scripted, FAILED_OVER)

    text = read(client, f"/dashboard/queries/{FAILED_OVER.id}")

    assert (
        "What would change it It would go to spark if the limit of duckdb were below 150 MiB (it is 384 MiB)." in text
    )
    assert "Expected costs The policy is expected ." in text
    assert "duckdb 88 % 1.5 s 3.2 s 0.75 s 6.7 s" in text
    assert f"spark spills 34 s {formatting.DASH} 0.00 s 34 s" in text
    assert "Estimated peak 200 MiB Upper bound 300 MiB within the limit Measured on duckdb 384 MiB" in text


def test_a_refused_statement_shows_the_place_of_its_error(client: TestClient) -> None:
    error = client.post("/v1/queries", json={"sql": "SELECT 1\nFROM nowhere"}).json()["error"]

    page = client.get(f"/dashboard/queries/{error['query_id']}").text

    assert "Refused before any engine was tried: it names a table that is not registered." in page
    assert "UNKNOWN_TABLE" in words(page)
    assert "At line 2, column 6." in page
    assert "SELECT 1\nFROM <mark>nowhere</mark>" in page


def test_a_running_query_refreshes_and_an_ended_one_does_not(client: TestClient, scripted: ScriptedGateway) -> None:
    running = replace(
        FAILED_OVER,
        id="running",
        state=QueryState.RUNNING,
        attempts=(RAN_OUT, replace(TOOK_OVER, state=QueryState.RUNNING, wall_s=None, rows=None)),
        finished_at=None,
    )
    log_query(scripted, running)
    log_query(scripted, FAILED_OVER)

    live, ended = (client.get(f"/dashboard/queries/{name}").text for name in ("running", FAILED_OVER.id))

    assert "duckdb ran out of memory. Running on spark now." in live
    assert "refresh.js" in live
    assert "data-refresh-s" in live
    assert "refresh.js" not in ended
    assert "data-refresh-s" not in ended


@pytest.mark.parametrize("path", ["/dashboard/queries/no_such_query", "/dashboard/no/such/page", "/dashboard/static/x"])
def test_what_is_not_there_is_a_page_too(client: TestClient, path: str) -> None:
    reply = client.get(path)

    assert reply.status_code == 404
    assert reply.headers["content-type"].startswith("text/html")
    assert "There is no such" in reply.text
    assert 'href="/dashboard"' in reply.text


def test_nothing_that_strangers_wrote_becomes_markup(client: TestClient, scripted: ScriptedGateway) -> None:
    scripted.fast.script("script", Script(steps=(EngineUnavailable("<script>alert(3)</script>"),), plan=PLAN))
    query_id = run(client, HOSTILE)
    log_query(
        scripted,
        replace(FAILED_OVER, id='"><script>alert(4)</script>', user="<b>", error=Failure("X", "<i>", Position(1, 9))),
    )
    pages = [
        "/dashboard",
        f"/dashboard/queries/{query_id}",
        "/dashboard/queries/%22%3E%3Cscript%3Ealert(4)%3C%2Fscript%3E",
        "/dashboard/queries/<script>alert(5)<%2Fscript>",
        "/dashboard/queries",
        "/dashboard/templates",
        "/dashboard/estimates",
        "/dashboard/savings?by=template",
        "/dashboard/queries?text=%22%3E<script>alert(7)</script>&user=<script>&last=<script>",
        "/dashboard/queries?state=<script>&engine=%22%3E<script>alert(6)</script>&before=<script>",
    ]
    for page in pages:
        text = client.get(page).text
        scripts = re.findall(r"<script[^>]*>", text)
        assert all('src="/dashboard/static/' in tag for tag in scripts), (page, scripts)
        assert not re.search(r"<(img src=x|b>|i>)", text), page
    assert html.escape("<script>alert(1)</script>", quote=False) in client.get(pages[1]).text


def test_pages_allow_no_foreign_and_no_inline_code(client: TestClient) -> None:
    query_id = run(client, TOO_BIG)
    for path, status in [("/dashboard", 200), (f"/dashboard/queries/{query_id}", 200), ("/dashboard/queries/x", 404)]:
        reply = client.get(path)

        assert reply.status_code == status
        policy = reply.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "same-origin"  # forms tell their origin by it, to this gateway alone
        assert not re.search(r"""\s(style|on\w+)=["']""", reply.text)
        assert not re.search(r"""(src|href)=["'](https?:)?//""", reply.text)
        for file in re.findall(r'(?:src|href)="(/dashboard/static/[^"]+)"', reply.text):
            assert client.get(file).status_code == 200


def test_static_files_have_their_types(client: TestClient) -> None:
    types = {
        name: client.get(f"/dashboard/static/{name}").headers["content-type"] for name in ("style.css", "mark.svg")
    }

    assert types["style.css"].startswith("text/css")
    assert types["mark.svg"].startswith("image/svg+xml")


def test_pages_are_not_part_of_the_api(client: TestClient) -> None:
    assert not [path for path in client.get("/openapi.json").json()["paths"] if "dashboard" in path or path == "/"]


def test_links_follow_a_proxys_prefix(scripted: ScriptedGateway) -> None:
    with TestClient(
        create_app(scripted.gateway), base_url="http://localhost", root_path="/sql", client=LOOPBACK
    ) as client:
        page = client.get("/dashboard").text

    assert 'href="/sql/dashboard"' in page
    assert not re.search(r'href="/(dashboard|v1)', page)


# ---------------------------------------------------------------------- sentences


def test_the_story_of_a_failover_in_order() -> None:
    told = timeline.steps(FAILED_OVER, [LESSON])

    assert [(step.heading, step.tone, step.code) for step in told] == [
        ("Sent to duckdb", timeline.Tone.PLAIN, "FITS"),
        ("duckdb ran out of memory", timeline.Tone.BAD, "MEMORY_EXCEEDED"),
        ("spark answered", timeline.Tone.GOOD, None),
        ("Next time", timeline.Tone.NOTE, "MISESTIMATE_ON_RECORD"),
    ]
    assert told[1].text == "duckdb ran out of memory after 3.42 s, at 384 MiB. No row of it had reached the client."


def test_a_pinned_miss_goes_past_the_engine_next_time() -> None:
    pinned = replace(FAILED_OVER, state=QueryState.FAILED, attempts=(RAN_OUT,))

    assert "the same statement goes past duckdb." in timeline.steps(pinned, [LESSON])[-1].text
    assert timeline.headline(pinned) == "duckdb ran out of memory."


@pytest.mark.parametrize(
    ("state", "attempts", "sentence"),
    [
        (QueryState.QUEUED, (), "Waiting for its decision."),
        (QueryState.RUNNING, (RAN_OUT,), "Running on spark now."),
        (QueryState.FINISHED, (TOOK_OVER,), "Answered by spark."),
        (QueryState.CANCELLED, (), "Cancelled."),
        (QueryState.CANCELLED, (replace(TOOK_OVER, state=QueryState.CANCELLED),), "Cancelled while on spark."),
        (QueryState.FAILED, (), "Refused before any engine was tried."),
    ],
)
def test_headlines(state: QueryState, attempts: tuple[Attempt, ...], sentence: str) -> None:
    assert timeline.headline(replace(FAILED_OVER, state=state, attempts=attempts)) == sentence


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("STATISTICS_FAILED", "gateway could not compute the statistics."),
        ("JOB_RUNNING", "gateway found the statistics being computed already."),
        ("NOTHING_TO_AMEND", "gateway knew nothing that the value could stand beside."),
        ("TABLE_UNREADABLE", "gateway could not read the table's files."),
        ("UNKNOWN_TABLE", "gateway found the table gone."),
        ("UNKNOWN_PARTITION", "gateway found no such partition."),
    ],
)
def test_a_command_that_failed_says_how(code: str, sentence: str) -> None:
    attempt = Attempt(1, ITSELF, QueryState.FAILED, started_at=RAN_OUT.started_at, failure=code, message="why")
    failed = replace(FAILED_OVER, state=QueryState.FAILED, attempts=(attempt,), decision=None)

    assert timeline.headline(failed) == sentence
    assert [(step.text, step.tone, step.code) for step in timeline.steps(failed, [])] == [
        (sentence, timeline.Tone.BAD, code)
    ]


@pytest.mark.parametrize(
    "kind", [*CommandFailed.__subclasses__(), *WriteFailed.with_codes()], ids=lambda kind: kind.code
)
def test_every_failure_of_a_command_has_words_of_its_own(kind: type[FusionError]) -> None:
    assert kind.code in timeline.FAILURES
    assert len(set(timeline.FAILURES.values())) == len(timeline.FAILURES)


@pytest.mark.parametrize("kind", list(SqlError.with_codes()), ids=lambda kind: kind.code)
def test_every_refusal_has_words_of_its_own(kind: type[SqlError]) -> None:
    refused = replace(FAILED_OVER, state=QueryState.FAILED, attempts=(), error=Failure(kind.code, "why"))

    assert timeline.headline(refused) == f"Refused before any engine was tried: {timeline.REFUSALS[kind.code]}."
    assert len(set(timeline.REFUSALS.values())) == len(timeline.REFUSALS)


WEIGHED = (
    "because it fits into duckdb with a probability of 88 % (expected peak 200 MiB, limit 384 MiB), takes 1.5 s there "
    "and 34 s on spark, and a miss costs 3.2 s: "
)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (ReasonCode.FITS, f"{WEIGHED}trying it first is what takes least on average. Next in line: spark."),
        (ReasonCode.PINNED, "because the client asked for it by name; it runs nowhere else."),
        (ReasonCode.EXCEEDS_LIMIT, f"{WEIGHED}trying that first would take longer on average."),
        (ReasonCode.NOT_WORTH_THE_RISK, f"{WEIGHED}the risk is not worth what it would save."),
        (ReasonCode.FASTER_ELSEWHERE, f"{WEIGHED}there it would not be faster."),
        (ReasonCode.EXPLORATION, f"{WEIGHED}it was worth finding out whether it fits there."),
    ],
)
def test_the_decision_in_one_sentence(code: ReasonCode, sentence: str) -> None:
    decided = replace(FITS, reasons=(Reason(code, "why"),))

    assert timeline.decision_sentence(decided).startswith(f"It was sent to duckdb {sentence}")


def test_a_decision_by_another_policy_does_not_speak_of_seconds() -> None:
    for rule in (Rule.SAFE, Rule.PAPER):
        told = timeline.decision_sentence(replace(FITS, rule=rule))
        assert told == (
            "It was sent to duckdb because it fits into duckdb with a probability of 88 % (expected peak 200 MiB, "
            f"limit 384 MiB), and the policy {rule} decides. Next in line: spark."
        )


def test_a_decision_where_nothing_else_is_there_tells_whether_it_fits() -> None:
    told = timeline.decision_sentence(replace(FITS, ranking=("duckdb",), prices=PRICES[:1]))
    assert told.endswith(
        "because it fits into duckdb with a probability of 88 % (expected peak 200 MiB, limit 384 MiB)."
    )


def test_a_decision_of_the_release_before_has_a_sentence_too() -> None:
    told = timeline.decision_sentence(replace(FITS, prices=(), estimated_for=None, turning_bytes=None))
    assert told.startswith("It was sent to duckdb because trying it first")


@pytest.mark.parametrize("code", ReasonCode)
def test_every_reason_has_words_of_its_own(code: ReasonCode) -> None:
    assert code.value not in timeline.decision_sentence(replace(FITS, reasons=(Reason(code, "why"),)))


def test_a_decision_without_reasons_has_a_sentence_too() -> None:
    assert "the first engine that takes it" in timeline.decision_sentence(replace(FITS, reasons=()))


# ---------------------------------------------------------------------- figures and drawings


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "unknown"), (0, "0 MiB"), (1, "< 0.1 MiB"), (3 * MIB // 2, "1.5 MiB"), (2_000 * MIB, "2,000 MiB")],
)
def test_memory_in_words(count: int | None, text: str) -> None:
    assert formatting.memory(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "unknown"),
        (-1.0, "0 ms"),
        (0.0123, "12 ms"),
        (0.9996, "1.00 s"),
        (3.416, "3.42 s"),
        (34.44, "34.4 s"),
        (59.96, "1 min 00 s"),
        (3_599.7, "1 h 00 min"),
        (3_725.0, "1 h 02 min"),
    ],
)
def test_durations_in_words(seconds: float | None, text: str) -> None:
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(
    ("ago_s", "text"),
    [
        (-3, "just now"),
        (4, "just now"),
        (59, "59 s ago"),
        (119, "1 min ago"),
        (7_200, "2 h ago"),
        (90_000, "yesterday"),
        (3 * 86_400, "3 days ago"),
        (40 * 86_400, "2026-01-20"),
    ],
)
def test_distances_in_words(ago_s: int, text: str) -> None:
    assert formatting.distance(NOON - ago_s * SECOND, NOON) == text


@pytest.mark.parametrize(
    ("rows", "text"), [(None, "unknown"), (0.4, "0.4"), (2.0, "2"), (11.6, "12"), (1_234_567.8, "1,234,568")]
)
def test_cardinalities_in_words(rows: float | None, text: str) -> None:
    assert formatting.cardinality(rows) == text


def test_bars_share_one_scale_with_the_limit() -> None:
    chart = MemoryChart.of(FITS, (RAN_OUT, TOOK_OVER), spilling=frozenset({"spark"}))
    whole = LIMIT_BYTES * HEADROOM

    assert [(bar.label, bar.width) for bar in chart.bars] == [
        ("Estimated peak", f"{100 * PEAK_BYTES / whole:.2f}%"),
        ("Upper bound", f"{100 * UPPER_BYTES / whole:.2f}%"),
        ("Measured on duckdb", f"{100 * LIMIT_BYTES / whole:.2f}%"),
    ]
    assert chart.limit_at == chart.bars[2].width
    assert len({bar.style for bar in chart.bars}) == 3


def test_a_bar_over_the_limit_says_so() -> None:
    estimate = MemoryEstimate(LIMIT_BYTES, 4 * LIMIT_BYTES)
    chart = MemoryChart.of(replace(FITS, estimate=estimate), (), spilling=frozenset())

    assert chart.bars[1].note == "over the limit"
    assert chart.limit_at == f"{100 / 4 / HEADROOM:.2f}%"
    assert not chart.limit_label_left


def test_an_unknown_estimate_draws_nothing() -> None:
    chart = MemoryChart.of(replace(FITS, estimate=UNKNOWN, limit_bytes=None), (), spilling=frozenset())

    assert (chart.bars, chart.limit_at, chart.unknown) == ((), None, True)


def test_trees_are_drawn_with_lines() -> None:
    assert branches([0, 1, 2, 2, 3, 1, 2]) == ("", "├─ ", "│  ├─ ", "│  └─ ", "│     └─ ", "└─ ", "   └─ ")
    assert branches([]) == ()


@pytest.mark.parametrize(
    ("position", "marked"),
    [
        (Position(2, 6), "books"),
        (Position(2, 8), "oks"),
        (Position(1, 9), ""),
        (Position(9, 1), ""),
        (None, ""),
    ],
)
def test_the_word_at_a_position_is_marked(position: Position | None, marked: str) -> None:
    sql = "SELECT 1\nFROM books"
    shown = MarkedSql.of(sql, position)

    assert shown.marked == marked
    assert shown.before + shown.marked + shown.after == sql


def test_long_statements_are_shortened_to_one_line() -> None:
    assert shortened("SELECT 1\n  FROM   books ") == "SELECT 1 FROM books"
    assert shortened("x" * 500).endswith("x…")
    assert len(shortened("x " * 100_000)) <= 160


def test_ids_of_queries_in_reasons_become_links() -> None:
    line = ReasonLine.of(Reason(ReasonCode.MISESTIMATE_ON_RECORD, f"Before (query {FAILED_OVER.id})."))

    assert line.parts == (("Before (query ", False), (FAILED_OVER.id, True), (").", False))


def test_a_line_shows_the_peak_of_the_engine_that_has_the_limit() -> None:
    measured = replace(TOOK_OVER, peak_bytes=900 * MIB)
    row = QueryRow.of(replace(FAILED_OVER, attempts=(RAN_OUT, measured)), NOON, None)

    assert (row.estimated, row.limit, row.measured, row.took) == ("200 MiB", "384 MiB", "384 MiB", "38.0 s")
