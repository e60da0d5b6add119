"""What `fusion explain` tells beside a decision: what would change it, what drives it, how old its numbers are."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from engines.protocol import EngineKind
from engines.scripted import ScriptedEngine
from gateway import settings as settings_module
from gateway.presentation.what_if import by_weight, operator_notes, statistics_sentence, what_if
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.server.app import create_app
from gateway.statistics.staleness import Drift
from selector.decide import TURNING_SHARE, decide
from selector.decision import Candidate, Decision, RoutingPolicy, Rule
from selector.estimate import UNKNOWN, MemoryEstimate, OperatorEstimate
from selector.forecast.distribution import ErrorDistribution
from selector.forecast.experience import Forecast, PeakForecast
from selector.statistics import TableStatistics
from tests.gateway.conftest import BOOKS, BY_MEMORY, MIB, TRANSACTIONS, register, serving
from tests.selector.described import described

LIMIT_BYTES = 2 * MIB
NINE_DAYS = dt.timedelta(days=9, hours=1)
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
GROUPED = (
    "SELECT b.isbn, sum(t.quantity) AS sold FROM transactions t JOIN books b ON t.book_id = b.id "
    "WHERE b.price < 50 GROUP BY b.isbn ORDER BY sold"
)
SMALL = "SELECT 1 AS one"
TYPES = {
    "books": {"id": "bigint", "isbn": "string", "price": "double"},
    "transactions": {"id": "bigint", "book_id": "bigint", "quantity": "int"},
}
JOIN = MemoryEstimate(
    300 * MIB,
    400 * MIB + 1,
    (
        OperatorEstimate("hash join", 0, 1_000.0, 250.0, 200 * MIB, "key bins"),
        OperatorEstimate("scan of transactions", 1, 5_000.0, 5_000.0, 0, "rows", table="transactions"),
        OperatorEstimate("scan of books", 1, 500.0, 400.0, 0, "histogram of price", table="books"),
    ),
    driver=0,
)
FAST = Candidate("duckdb", dependable=False, limit_bytes=256 * MIB)
FAST_S, SLOW_S = 1.0, 20.0
SPARK = Candidate("spark", dependable=True, forecast=Forecast(UNKNOWN, None, SLOW_S, SLOW_S, SLOW_S))
SHAPE = ErrorDistribution.of_shape().scaled(0.0, 0.3)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory, bookstore: Path) -> Iterator[httpx.Client]:
    """Serve a real DuckDB that gives a statement very little, with an engine behind it that takes what is left."""
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    from engines.duckdb.engine import DuckDBEngine

    behind = ScriptedEngine("spark", kind=EngineKind.DEPENDABLE)
    engines = EngineRegistry(
        [
            EngineEntry(
                DuckDBEngine(workers=1, threads=1),
                limit_bytes=LIMIT_BYTES,
            ),
            EngineEntry(behind),
        ]
    )
    gateway = wiring.assemble(settings_module.load(tmp_path_factory.mktemp("home"), routing=BY_MEMORY), engines)
    register(gateway, bookstore)
    ages = {"books": NINE_DAYS, "transactions": dt.timedelta(0)}
    for name, types in TYPES.items():
        rows = pq.read_table(bookstore / name, columns=list(types))
        build = replace(described(rows, types), table=name, version=0)
        gateway.metastore.statistics.publish(build, at=dt.datetime.now(dt.UTC) - ages[name])
    with serving(create_app(gateway)) as client:
        yield client


def explained(client: httpx.Client, sql: str, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/explain", json={"sql": sql, **fields})
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    return reply


def test_the_tree_has_our_rows_and_the_engines_with_their_bound_bytes_and_basis(narrow: httpx.Client) -> None:
    estimate = explained(narrow, GROUPED)["decision"]["estimate"]
    by_name = {part["operator"]: part for part in estimate["operators"]}
    sales = by_name["scan of transactions"]
    assert (sales["table"], sales["rows"], sales["basis"]) == ("transactions", TRANSACTIONS, "rows of transactions")
    books = next(part for part in estimate["operators"] if "price" in part["basis"])
    assert books["rows"] == pytest.approx(BOOKS / 2)
    assert all(part["upper_rows"] >= part["rows"] for part in estimate["operators"])
    for place, part in enumerate(estimate["operators"]):
        ratio = max(part["rows"], 1) / max(part["engine_rows"], 1) if part["engine_rows"] is not None else None
        assert part["divergence"] == (pytest.approx(max(ratio, 1 / ratio)) if ratio else None)
        assert any("differs from" in note for note in part["notes"]) == (place in estimate["divergences"])
    driver = estimate["operators"][estimate["driver"]]
    assert driver["held_bytes"] > 0
    assert "drives the peak" in driver["notes"]


def test_the_limit_that_is_told_is_the_one_from_which_the_fast_engine_is_chosen(narrow: httpx.Client) -> None:
    reply = explained(narrow, GROUPED)
    decision = reply["decision"]
    assert (decision["engine"], decision["limit_bytes"]) == ("spark", LIMIT_BYTES)
    needed = decision["remedy"]["limit_bytes"]
    assert LIMIT_BYTES < needed <= decision["estimate"]["upper_bytes"]  # by the policy safe, which allows one in 20
    assert decision["remedy"] | {"limit_bytes": 0} == {"engine": "duckdb", "limit_bytes": 0, "blocked": []}
    (here, there) = decision["prices"]
    assert (here["engine"], there["engine"]) == ("duckdb", "spark")
    assert here["fits"] < 0.5
    assert there["fits"] == 1.0
    assert reply["what_if"][0].startswith("It would go to duckdb if the limit were ")
    assert reply["what_if"][0].endswith("(it is 2.0 MiB).")
    assert any(text.startswith("Driver of the peak: ") for text in reply["what_if"])


def test_what_fits_tells_when_it_would_not(narrow: httpx.Client) -> None:
    reply = explained(narrow, SMALL)
    assert (reply["decision"]["engine"], reply["decision"]["remedy"]) == ("duckdb", None)
    assert reply["what_if"][0].startswith("It would go to spark if the limit of duckdb were below ")
    assert reply["statistics"] == []


def test_each_tables_statistics_tell_their_age(narrow: httpx.Client) -> None:
    known = {basis["table"]: basis for basis in explained(narrow, GROUPED)["statistics"]}
    assert set(known) == {"books", "transactions"}
    assert known["books"]["text"].startswith("statistics of books are 9 days old")
    assert known["transactions"]["text"].startswith("statistics of transactions are less than a minute old")
    assert (known["books"]["version"], known["books"]["share"]) == (1, 1.0)


def test_an_engine_asked_for_by_name_is_left_without_remedy(narrow: httpx.Client) -> None:
    reply = explained(narrow, GROUPED, engine="duckdb")
    assert reply["decision"]["remedy"] is None
    assert reply["what_if"][0] == "The estimate would decide if no engine were asked for by name."


def decided(
    candidates: list[Candidate], estimate: MemoryEstimate, *, seconds: float = FAST_S, rule: Rule = Rule.EXPECTED
) -> Decision:
    """Decide where a miss costs as long as a run does. Peaks are as likely above as below what is expected."""
    peak = PeakForecast(estimate.peak_bytes, SHAPE) if estimate.peak_bytes is not None else None
    forecast = Forecast(estimate, peak, seconds, seconds, seconds)
    weighed = [each if each.dependable else replace(each, forecast=forecast) for each in candidates]
    return decide(weighed, policy=RoutingPolicy(rule))


def limit_for(chance: float, estimate: MemoryEstimate = JOIN) -> int:
    """Return MiB, rounded up, into which a statement fits with this probability."""
    return math.ceil((estimate.peak_bytes or 0) * math.exp(SHAPE.quantile(chance)) / MIB)


ENOUGH = FAST_S / SLOW_S  # a probability of fitting, with which a try costs what it saves


def test_a_miss_on_record_asks_for_more_than_the_limit_that_was_not_enough() -> None:
    fast = Candidate("duckdb", dependable=False, limit_bytes=1024 * MIB, misestimates=("q1",), missed_bytes=1024 * MIB)
    decision = decided([fast, SPARK], JOIN)
    assert decision.remedy is not None
    assert decision.remedy.limit_bytes == 1024 * MIB + 1
    assert what_if(decision)[0] == (
        "It would go to duckdb if the limit were 1,025 MiB (it is 1,024 MiB), or once new statistics of its tables "
        "make it look smaller."
    )


def test_what_would_change_a_decision_in_words() -> None:
    narrow = replace(FAST, limit_bytes=64 * MIB)
    over = decided([narrow, SPARK], JOIN)
    assert what_if(over) == (
        f"It would go to duckdb if the limit were {limit_for(ENOUGH)} MiB (it is 64 MiB).",
        "Driver of the peak: hash join of transactions and books, which holds 200 MiB.",
        "Largest divergence: hash join of transactions and books, 1,000 rows (ours) against 250 (the engine's).",
    )
    notes = operator_notes(JOIN)
    assert notes == (("drives the peak", "differs from the engine's rows by a factor of 4.0"), (), ())
    safe = decided([FAST, SPARK], JOIN, rule=Rule.SAFE)
    said = re.fullmatch(r"It would go to duckdb if the limit were (\d+) MiB \(it is 256 MiB\)\.", what_if(safe)[0])
    assert said is not None
    assert limit_for(0.95) <= int(said[1]) <= math.ceil(limit_for(0.95) * (1 + TURNING_SHARE))
    vague = replace(JOIN, peak_bytes=200 * MIB, gaps=("books has no statistics",))
    told = what_if(decided([FAST, SPARK], vague, rule=Rule.SAFE))[0]
    assert told.endswith("the expected peak fits already, so better statistics may be enough.")
    assert what_if(decided([replace(FAST, down="gone"), SPARK], UNKNOWN)) == (
        "It would go to duckdb if it were available again and its memory could be estimated.",
    )
    unable = decided([replace(FAST, unsupported="no such function"), SPARK], JOIN)
    assert what_if(unable)[0] == "Nothing sends it to duckdb, which cannot run this statement."
    other = decided([replace(FAST, no_equivalent="rounding"), SPARK], JOIN)
    assert what_if(other)[0] == "Nothing sends it to duckdb, which might answer this statement differently."
    slow = decided([FAST, SPARK], JOIN, seconds=2 * SLOW_S)
    assert what_if(slow)[0] == "No limit sends it to duckdb, where it would not be faster."
    boundless = decided([replace(FAST, limit_bytes=None), SPARK], JOIN, seconds=2 * SLOW_S)
    assert what_if(boundless)[0] == "No limit sends it to duckdb, where it would not be faster."
    assert what_if(decided([SPARK], UNKNOWN)) == ()


def test_what_is_tried_tells_below_which_limit_it_would_not_be() -> None:
    small = replace(JOIN, peak_bytes=100 * MIB, upper_bytes=200 * MIB)
    tried = decided([FAST, SPARK], small)
    assert tried.engine == "duckdb"
    told = f"It would go to spark if the limit of duckdb were below {limit_for(ENOUGH, small) - 1} MiB (it is 256 MiB)."
    assert what_if(tried)[0] == told
    alone = decided([FAST, replace(SPARK, down="gone")], small)  # which is not waited for where it likely fits
    below = f"below {limit_for(0.5, small) - 1} MiB (it is 256 MiB)"
    assert what_if(alone)[0] == f"No engine would take it now if the limit of duckdb were {below}."
    nowhere_else = decided([FAST], small)
    assert not any("would take it" in text for text in what_if(nowhere_else))


def test_how_far_statistics_can_be_trusted_in_words() -> None:
    build = TableStatistics("books", 3, rows=10, bytes=100, built_at=NOON - NINE_DAYS)
    same, moved = Drift(0, 0, 0, 4), Drift(1, 0, 0, 4)
    assert statistics_sentence("books", build, same, at=NOON) == "statistics of books are 9 days old"
    sampled = replace(build, share=0.05, built_at=NOON - dt.timedelta(hours=1))
    told = "statistics of books are 1 hour old, from 5.0 % of it; 25 % of its files have changed since"
    assert statistics_sentence("books", sampled, moved, at=NOON) == told
    by_hand = replace(build, manual=frozenset({"rows"}))
    assert statistics_sentence("books", by_hand, None, at=NOON) == "statistics of books are 9 days old, set by hand"
    assert "fusion stats compute books" in statistics_sentence("books", None, None, at=NOON)


def test_tables_that_meet_where_the_peak_is_driven_come_first() -> None:
    assert by_weight(("a", "books", "transactions"), JOIN) == ("transactions", "books", "a")
    assert by_weight(("a", "books"), UNKNOWN) == ("a", "books")
