"""Decisions through a whole gateway: explained as they are dispatched, by whose policy, and never twice wrong."""

from __future__ import annotations

import datetime as dt
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import httpx
import pyarrow as pa
import pytest

from engines.errors import MemoryExceeded
from engines.protocol import Actuals
from engines.scripted import Pause, Script
from gateway.errors import InvalidSetting
from gateway.security.principals import IN_PROCESS
from gateway.server.app import create_app
from gateway.settings import PoolSettings, RoutingSettings
from gateway.statements.session import Session
from gateway.statements.statement import Run, Statement
from metastore.records import QueryRecord
from selector.decision import Decision, ReasonCode, Rule
from selector.statistics import ColumnStatistics, TableStatistics
from tests.gateway.conftest import BY_MEMORY, BY_SECONDS, LIMIT, MIB, Scripted, serving
from tests.waiting import wait_until

Build = Callable[..., Scripted]

SEED = 20261123
ROWS = 1_600_000
LEAST, MOST = 1_000.0, 9_999.0  # of prices, so that the digits of none begin another's
UNSURE, ABOUT_AS_UNSURE, UNLIKELY = 4_500, 4_600, 6_000  # prices below which there are more books than surely fit
SOME_TIME_S = 0.5
ROW = pa.RecordBatch.from_pydict({"isbn": ["978-0"], "n": [1]})
GROUPED = "SELECT isbn, count(*) AS n FROM books WHERE price < {price} GROUP BY isbn"
SORTED = "SELECT isbn, id AS n FROM books WHERE price < {price} ORDER BY isbn"
READ = "SELECT isbn, id AS n FROM books WHERE price < {price}"


def grouped(price: float) -> str:
    return GROUPED.format(price=int(price))


def plan_of(price: float, shape: str = GROUPED) -> str:
    """Return what DuckDB would say of the statement."""
    rows = {"Projections": ["isbn"] if shape is GROUPED else ["isbn", "id"], "Filters": f"(price < {price:.1f})"}
    info: dict[str, Any] = rows | {"Estimated Cardinality": "9"}
    found: dict[str, Any] = {"name": "READ_PARQUET", "children": [], "extra_info": info}
    if shape is GROUPED:
        info = {"Groups": "#0", "Aggregates": "count_star()", "Estimated Cardinality": "9"}
        found = {"name": "HASH_GROUP_BY", "children": [found], "extra_info": info}
    if shape is SORTED:
        found = {"name": "ORDER_BY", "children": [found], "extra_info": {"Order By": "books.isbn ASC"}}
    return json.dumps([found])


def publish(house: Scripted, rows: int = ROWS) -> None:
    """Compute statistics of books: as many books, each with a number of its own, at prices that are spread evenly."""
    columns = {
        "id": ColumnStatistics("id", "bigint", 0, rows, 1, rows),
        "isbn": ColumnStatistics("isbn", "string", 0, rows, "978-0", "978-9", 14.0),
        "price": ColumnStatistics("price", "double", 0, rows, LEAST, MOST),
    }
    build = TableStatistics("books", version=0, rows=rows, bytes=30 * rows, columns=columns)
    house.gateway.metastore.statistics.publish(build, at=dt.datetime.now(dt.UTC))


def script(house: Scripted, price: float, *, fits: bool = True, shape: str = GROUPED) -> None:
    """Write what statements about this price do on both engines."""
    text, plan = f"< {int(price)}", plan_of(price, shape)
    answer = Script(steps=(ROW,), plan=plan)
    missed = Script(steps=(MemoryExceeded("full"),), schema=ROW.schema, plan=plan)
    measured = replace(answer, actuals=Actuals(peak_bytes=30 * MIB))
    house.fast.script(text, measured if fits else missed)
    house.dependable.script(text, answer)


def explained(house: Scripted, sql: str, **fields: Any) -> Decision:
    return house.gateway.coordinator.explain(Statement(sql, **fields))[1]


def started(house: Scripted, sql: str, **fields: Any) -> Run:
    return house.gateway.coordinator.submit(Statement(sql, **fields))


def finished(house: Scripted, sql: str, **fields: Any) -> QueryRecord:
    return started(house, sql, **fields).done.result(timeout=30)


def decided(record: QueryRecord) -> Decision:
    assert record.decision is not None
    return record.decision


def chance_of(decision: Decision) -> float:
    price = decision.price("fast")
    assert price is not None
    assert price.fits is not None
    return price.fits


def code_of(decision: Decision) -> ReasonCode:
    return decision.reasons[0].code


# ---------------------------------------------------------------------- what is explained is what happens

POLICIES = ({}, *({"fusion.policy": rule.value} for rule in Rule), {"fusion.pool": "reports"}, {"request_pool": "etl"})
POOLS = {"reports": PoolSettings(policy=Rule.SAFE), "etl": PoolSettings(policy=Rule.PAPER)}


@pytest.mark.parametrize("count", [400, pytest.param(1_000, marks=pytest.mark.thorough)])
def test_explain_and_dispatch_agree(scripted: Build, count: int) -> None:
    """Random statements, of which some come back and some do not fit, under random policies."""
    chance = random.Random(SEED)  # noqa: S311 - not for secrets
    house = scripted(routing=RoutingSettings(miss_price_s=5.0), pools=POOLS)
    publish(house)
    prices: dict[int, str] = {}
    engines: Counter[str] = Counter()
    rules: Counter[Rule] = Counter()
    reasons: Counter[ReasonCode] = Counter()
    for _ in range(count):
        price = chance.choice(list(prices)) if prices and chance.random() < 0.3 else chance.randint(1_001, 9_999)
        if price not in prices:
            prices[price] = chance.choice((GROUPED, GROUPED, SORTED, READ))
            script(house, price, fits=chance.random() < 0.8, shape=prices[price])
        session, overlay = Session(IN_PROCESS, deadline_s=60.0), chance.choice(POLICIES)
        sql = prices[price].format(price=price)
        asked, sent = (session.statement(sql, overlay=overlay) for _ in range(2))
        _, expected = house.gateway.coordinator.explain(replace(asked, session=None))
        record = house.gateway.coordinator.submit(sent).done.result(timeout=30)
        found = decided(record)
        assert (found.engine, found.ranking, found.reasons) == (expected.engine, expected.ranking, expected.reasons)
        assert found == expected
        assert record.attempts[0].engine == expected.engine
        engines[found.engine] += 1
        rules[found.rule] += 1
        reasons[code_of(found)] += 1
    assert set(rules) == set(Rule)
    assert min(engines["fast"], engines["dependable"]) > count // 10
    assert {ReasonCode.FITS, ReasonCode.EXCEEDS_LIMIT, ReasonCode.MISESTIMATE_ON_RECORD} <= set(reasons)


# ---------------------------------------------------------------------- misses


def test_a_new_build_that_changes_nothing_is_no_reason_to_run_out_of_memory_again(scripted: Build) -> None:
    house = scripted(routing=BY_SECONDS)
    publish(house)
    script(house, UNSURE, fits=False)
    sql = grouped(UNSURE)
    assert [attempt.engine for attempt in finished(house, sql).attempts] == ["fast", "dependable"]
    for rows in (ROWS, ROWS, round(1.05 * ROWS), round(0.97 * ROWS)):
        publish(house, rows)
        again = finished(house, sql)
        assert [attempt.engine for attempt in again.attempts] == ["dependable"]
        assert code_of(decided(again)) is ReasonCode.MISESTIMATE_ON_RECORD
    assert len(house.fast.asked) == 1


def test_a_clearly_smaller_expected_peak_opens_it_again(scripted: Build) -> None:
    house = scripted(routing=BY_SECONDS)
    publish(house)
    script(house, UNSURE, fits=False)
    passed = threading.Event()
    threading.Timer(SOME_TIME_S, passed.set).start()
    house.dependable.script(f"< {UNSURE}", Script(steps=(ROW,), before=(passed,)))
    before = finished(house, grouped(UNSURE))
    publish(house, ROWS // 4)
    script(house, UNSURE)
    after = finished(house, grouped(UNSURE))
    assert [attempt.engine for attempt in before.attempts] == ["fast", "dependable"]
    assert [attempt.engine for attempt in after.attempts] == ["fast"]
    assert ReasonCode.MISESTIMATE_ON_RECORD not in [reason.code for reason in decided(after).reasons]
    then, now = (record.attempts[0].expected.peak_bytes or 0 for record in (before, after))
    assert 0 < now < then / 2


def test_a_miss_makes_its_template_less_likely_to_fit_at_once(scripted: Build) -> None:
    house = scripted(routing=BY_SECONDS)
    publish(house)
    for price in (UNSURE, ABOUT_AS_UNSURE):
        script(house, price, fits=False)
    before = chance_of(explained(house, grouped(ABOUT_AS_UNSURE)))
    finished(house, grouped(UNSURE))
    assert chance_of(explained(house, grouped(ABOUT_AS_UNSURE))) < before - 0.1
    assert chance_of(explained(house, grouped(UNSURE))) < 0.2


def test_a_larger_limit_keeps_what_was_learned(scripted: Build) -> None:
    house = scripted(routing=BY_SECONDS)
    publish(house)
    script(house, 2_000)
    finished(house, grouped(2_000))
    learned = explained(house, grouped(2_000)).estimate
    house.gateway.close()
    house = scripted(routing=BY_SECONDS, limit_bytes=2 * LIMIT)
    script(house, 2_000)
    assert learned.learned is not None
    assert learned.peak_bytes == pytest.approx(30 * MIB, rel=0.05)
    again = explained(house, grouped(2_000))
    assert (again.limit_bytes, again.estimate.peak_bytes) == (2 * LIMIT, learned.peak_bytes)


def test_of_many_clients_who_ask_the_same_only_one_runs_out_of_memory(scripted: Build) -> None:
    house = scripted(routing=BY_SECONDS, slots=8)
    publish(house)
    script(house, UNSURE, fits=False)
    assert 0.5 < chance_of(explained(house, grouped(UNSURE))) < 0.99  # where nobody can be sure
    runs = [started(house, grouped(UNSURE)) for _ in range(8)]
    records = [run.done.result(timeout=30) for run in runs]
    assert len(house.fast.asked) == 1
    assert sum(len(record.attempts) for record in records) == 8 + 1
    assert {record.attempts[-1].engine for record in records} == {"dependable"}


def test_who_waits_for_anothers_try_can_be_cancelled(scripted: Build) -> None:
    house = scripted(routing=BY_SECONDS, slots=8)
    publish(house)
    script(house, UNSURE, fits=False)
    house.fast.script(f"< {UNSURE}", Script(steps=(Pause.UNTIL_ENDED,), schema=ROW.schema, plan=plan_of(UNSURE)))
    first = started(house, grouped(UNSURE))
    wait_until(lambda: len(house.fast.asked) == 1)
    second = started(house, grouped(UNSURE))
    house.gateway.coordinator.cancel(second.id)
    assert second.done.result(timeout=10).attempts == ()
    house.gateway.coordinator.cancel(first.id)
    first.done.result(timeout=10)
    assert len(house.fast.asked) == 1


# ---------------------------------------------------------------------- whose policy


def between(house: Scripted) -> str:
    """Return a statement that goes to the fast engine by expected seconds, and that no other policy sends there."""
    publish(house)
    script(house, UNLIKELY)
    return grouped(UNLIKELY)


@pytest.mark.parametrize(
    ("gateway", "settings", "rule"),
    [
        (BY_SECONDS, {}, Rule.EXPECTED),
        (BY_MEMORY, {}, Rule.SAFE),
        (BY_MEMORY, {"fusion.policy": "expected"}, Rule.EXPECTED),
        (BY_SECONDS, {"fusion.policy": "SAFE"}, Rule.SAFE),
        (BY_SECONDS, {"fusion.policy": ""}, Rule.EXPECTED),
        (BY_SECONDS, {"fusion.pool": "reports"}, Rule.SAFE),
        (BY_SECONDS, {"REQUEST_POOL": "etl"}, Rule.PAPER),
        (BY_SECONDS, {"fusion.pool": "nobody's"}, Rule.EXPECTED),
        (BY_SECONDS, {"fusion.pool": "reports", "fusion.policy": "expected"}, Rule.EXPECTED),
    ],
    ids=lambda value: " ".join(map(str, value.items())) if isinstance(value, dict) else "",
)
def test_a_statements_policy_comes_before_its_pools_and_that_before_the_gateways(
    scripted: Build, gateway: RoutingSettings, settings: Mapping[str, str], rule: Rule
) -> None:
    house = scripted(routing=gateway, pools=POOLS)
    sql = between(house)
    session = Session(IN_PROCESS, deadline_s=60.0)
    for name, value in settings.items():
        house.gateway.coordinator.submit(session.statement(f"SET {name} = {value}")).done.result(timeout=30)
    record = house.gateway.coordinator.submit(session.statement(sql)).done.result(timeout=30)
    assert decided(record).rule is rule
    if rule is not Rule.PAPER:
        assert decided(record).engine == ("fast" if rule is Rule.EXPECTED else "dependable")


def test_a_policy_that_there_is_not_is_refused(scripted: Build) -> None:
    house = scripted()
    session = Session(IN_PROCESS, deadline_s=60.0)
    record = house.gateway.coordinator.submit(session.statement("SET fusion.policy = bold")).done.result(timeout=30)
    assert record.error is not None
    assert record.error.code == InvalidSetting.code == "INVALID_SETTING"
    assert "expected, safe, paper" in record.error.message
    assert session.get("fusion.policy") == ""
    with pytest.raises(InvalidSetting):
        session.statement("SELECT 1", overlay={"fusion.policy": "bold"})


def test_a_statements_own_settings_over_http(scripted: Build) -> None:
    house = scripted(routing=BY_SECONDS, pools=POOLS)
    sql = between(house)
    house.fast.script(f"< {UNLIKELY}", Script(steps=(ROW,), plan=plan_of(UNLIKELY)))  # its peak is not measured
    with serving(create_app(house.gateway)) as client:
        asked_for: tuple[tuple[dict[str, str], str], ...] = (
            ({}, "expected"),
            ({"fusion.policy": "safe"}, "safe"),
            ({"fusion.pool": "reports"}, "safe"),
        )
        for settings, rule in asked_for:
            answers = [asked(client, path, sql, settings) for path in ("/v1/explain", "/v1/queries")]
            for answer in answers:
                assert answer["decision"]["policy"] == rule
                assert answer["decision"]["engine"] == ("fast" if rule == "expected" else "dependable")
                assert [price["engine"] for price in answer["decision"]["prices"]] == ["fast", "dependable"]
        for path in ("/v1/explain", "/v1/queries"):
            refused = client.post(path, json={"sql": sql, "settings": {"fusion.policy": "bold"}})
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "INVALID_SETTING")


def asked(client: httpx.Client, path: str, sql: str, settings: Mapping[str, str]) -> dict[str, Any]:
    reply = client.post(path, json={"sql": sql, "settings": settings})
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer
