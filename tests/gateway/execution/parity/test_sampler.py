"""Answers of a fast engine that are compared in the background, over scripted engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest

from engines.errors import DataError, StatementError
from engines.protocol import EngineKind
from engines.scripted import Pause, Script, ScriptedEngine
from gateway.execution.parity import sampler
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.security.policy import Action, Policy
from gateway.security.principals import Principal, Role
from gateway.server import wiring
from gateway.server.app import create_app
from gateway.server.runtime import Gateway
from gateway.settings import ParitySettings, PoolSettings
from gateway.statements.statement import Statement
from metastore.query_log.parity import ParityCounts
from metastore.records import QueryRecord
from selector.decision import ReasonCode
from tests.gateway.conftest import BY_MEMORY, LIMIT, SLOW, register, serving, settings_for
from tests.gateway.scripted_gateway import PLAN
from tests.waiting import wait_until

SQL = "SELECT id, price FROM books WHERE id < 3 ORDER BY id"
ROWS = pa.RecordBatch.from_pydict({"id": [1, 2], "price": [1.5, 2.5]})
OTHER_ROWS = pa.RecordBatch.from_pydict({"id": [1, 2], "price": [1.5, 3.5]})
TURNED = pa.RecordBatch.from_pydict({"id": [2, 1], "price": [2.5, 1.5]})
READER = Principal("joe", Role.READER, authenticated=True)


class House:
    """A gateway that compares all answers of its engine ``duckdb``."""

    def __init__(self, home: Path, data: Path, parity: ParitySettings, pools: dict[str, PoolSettings]) -> None:
        self.fast = ScriptedEngine("duckdb", kind=EngineKind.FAST)
        self.dependable = ScriptedEngine("spark", kind=EngineKind.DEPENDABLE)
        settings = settings_for(home, routing=BY_MEMORY).model_copy(update={"parity": parity, "pools": pools})
        entries = [EngineEntry(self.fast, limit_bytes=LIMIT), EngineEntry(self.dependable, speed=SLOW)]
        self.gateway: Gateway = wiring.assemble(settings, EngineRegistry(entries))
        register(self.gateway, data)
        self.gateway.start()

    def close(self) -> None:
        self.gateway.close()

    def play(self, fast: Script, dependable: Script) -> None:
        self.fast.script("select", fast)
        self.dependable.script("select", dependable)

    def run(self, sql: str = SQL, pool: str = "") -> QueryRecord:
        statement = Statement(sql=sql, pool=pool)
        return self.gateway.coordinator.submit(statement).done.result(timeout=30)

    def counts(self) -> ParityCounts:
        parity = self.gateway.coordinator.parity
        wait_until(parity.is_idle, "all samples are compared")
        return self.gateway.metastore.parity.counts(sampler._now())


@pytest.fixture
def house(tmp_path: Path, bookstore: Path) -> Iterator[Callable[..., House]]:
    built: list[House] = []

    def build(*, pools: dict[str, PoolSettings] | None = None, **parity: float) -> House:
        settings = ParitySettings(**{"share": 1.0, **parity})
        built.append(House(tmp_path / "home", bookstore, settings, pools or {}))
        return built[-1]

    yield build
    for each in built:
        each.close()


def test_equal_answers_are_compared_and_nothing_else_happens(house: Callable[..., House]) -> None:
    made = house()
    made.play(Script((ROWS,), plan=PLAN), Script((ROWS,), plan=PLAN))
    record = made.run()
    assert record.engine == "duckdb"
    counts = made.counts()
    assert (counts.compared, counts.different, counts.left_out) == (1, 0, {})
    assert [asked.query_id for asked in made.dependable.asked] == [f"{record.id}_parity"]
    assert made.run().engine == "duckdb"


@pytest.mark.parametrize(
    ("there", "differs"), [(OTHER_ROWS, "price: 2.5 and 3.5"), (TURNED, "the order, from row 1 on")]
)
def test_a_difference_keeps_its_template_off_the_engine_until_it_is_released(
    house: Callable[..., House], there: pa.RecordBatch, differs: str
) -> None:
    made = house(pools={"unchecked": PoolSettings(parity=0.0)})
    made.play(Script((ROWS,), plan=PLAN), Script((there,)))
    first = made.run()
    counts = made.counts()
    assert (counts.compared, counts.different) == (1, 1)
    (case,) = made.gateway.metastore.parity.cases()
    assert (case.query_id, case.sql, case.engine, case.other) == (first.id, SQL, "duckdb", "spark")
    assert case.difference == differs
    assert case.rows and case.other_rows
    assert case.snapshots.keys() == {"books"}

    again = made.run(SQL.replace("3", "2"))  # of the same template
    assert (again.engine, again.decision and again.decision.reasons[0].code) == ("spark", ReasonCode.DIALECT)
    assert again.decision is not None and first.id in again.decision.reasons[0].text
    assert made.run("SELECT count(*) AS n FROM books", pool="unchecked").engine == "duckdb"

    with serving(create_app(made.gateway)) as client:
        shown = client.get("/v1/parity").json()
        assert (shown["compared"], shown["different"], shown["cases"][0]["difference"]) == (1, 1, differs)
        versions = (f"{name} {version(module)}" for name, module in (("duckdb", "duckdb"), ("spark", "pyspark")))
        assert shown["cases"][0]["version"].split(", ")[1:] == list(versions)
        page = client.get("/dashboard/parity").text
        assert first.id in page and "fusion parity release" in page
        assert client.post("/v1/parity/nobody/release").status_code == 404
        assert client.post(f"/v1/parity/{first.id}/release").status_code == 200
        assert client.get("/v1/parity").json()["cases"][0]["released_by"] == "anonymous"
        assert 'fusion_parity_total{outcome="different"} 1' in client.get("/v1/metrics").text
        assert made.run().engine == "duckdb"


def test_others_see_a_case_without_values_and_release_none(house: Callable[..., House]) -> None:
    made = house()
    made.play(Script((ROWS,), plan=PLAN), Script((OTHER_ROWS,)))
    ann = Principal("ann", Role.READER, authenticated=True)
    statement = Statement(sql=SQL, principal=ann)
    made.gateway.coordinator.submit(statement).done.result(timeout=30)
    made.counts()
    made.gateway.authenticator.recognise = lambda login: READER  # type: ignore[method-assign]
    assert not Policy().allows(READER, Action.RELEASE_CASE)
    with serving(create_app(made.gateway)) as client:
        (case,) = client.get("/v1/parity").json()["cases"]
        values = {name: value for name, value in case.items() if not name.endswith("_at")}
        assert "3.5" not in repr(values) and "< 3" not in repr(values)
        assert client.post(f"/v1/parity/{case['query_id']}/release").status_code == 403


@pytest.mark.parametrize(
    ("sql", "there", "reason"),
    [
        ("SELECT id, current_date() AS d FROM books", Script((OTHER_ROWS,)), sampler.NOT_REPEATABLE),
        ("SELECT id FROM books LIMIT 2", Script((OTHER_ROWS,)), sampler.OPEN_ANSWER),
        (
            "SELECT id, row_number() OVER (ORDER BY category) AS n FROM books",
            Script((OTHER_ROWS,)),
            sampler.OPEN_ANSWER,
        ),
        (SQL, Script(before=(StatementError("no"),)), sampler.FAILED),
        (SQL, Script(before=(DataError("no"),)), sampler.FAILED),
    ],
)
def test_what_cannot_be_compared_is_counted(house: Callable[..., House], sql: str, there: Script, reason: str) -> None:
    made = house()
    made.play(Script((ROWS,), plan=PLAN), there)
    made.run(sql)
    counts = made.counts()
    assert (counts.compared, counts.different, counts.left_out) == (0, 0, {reason: 1})
    assert made.gateway.metastore.parity.cases() == ()


def test_large_results_are_left_out(house: Callable[..., House], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "MOST_ROWS", 1)
    made = house()
    made.play(Script((ROWS,), plan=PLAN), Script((ROWS,), plan=PLAN))
    made.run()
    assert made.counts().left_out == {sampler.TOO_LARGE: 1}


def test_a_day_has_so_many_seconds(house: Callable[..., House]) -> None:
    made = house(seconds_a_day=0.0)
    made.play(Script((ROWS,), plan=PLAN), Script((OTHER_ROWS,)))
    made.run()
    assert made.counts().left_out == {sampler.OVER_BUDGET: 1}
    assert made.dependable.asked == []


def test_pools_have_shares_of_their_own(house: Callable[..., House]) -> None:
    made = house(share=0.0, pools={"checked": PoolSettings(parity=1.0)})
    made.play(Script((ROWS,), plan=PLAN), Script((ROWS,), plan=PLAN))
    made.run()
    assert made.counts().compared == 0
    made.run(pool="checked")
    assert made.counts().compared == 1


def test_answers_of_the_dependable_engine_are_not_compared(house: Callable[..., House]) -> None:
    made = house()
    made.play(Script((ROWS,), plan=PLAN), Script((ROWS,), plan=PLAN))
    statement = Statement(sql=SQL, engine="spark")
    made.gateway.coordinator.submit(statement).done.result(timeout=30)
    assert made.counts() == ParityCounts(0, 0, {}, 0.0)


def test_the_end_of_a_gateway_does_not_wait_for_a_sample(house: Callable[..., House]) -> None:
    made = house()
    made.play(Script((ROWS,), plan=PLAN), Script((ROWS, Pause.UNTIL_ENDED)))
    made.run()
    wait_until(lambda: bool(made.dependable.asked), "the sample runs")
    made.gateway.coordinator.stop(grace_s=1)
    wait_until(made.gateway.coordinator.parity.is_idle, "the sample has ended")
    assert made.dependable.asked[0].query_id.endswith("_parity")


def test_waiting_for_a_slot_takes_no_seconds_of_the_day(
    house: Callable[..., House], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "TRY_AGAIN_S", 0.2)
    made = house()
    made.play(Script((ROWS,), plan=PLAN), Script((ROWS,)))
    crowded = iter([True] * 5)
    is_crowded = made.gateway.coordinator.parity._is_crowded
    monkeypatch.setattr(
        made.gateway.coordinator.parity, "_is_crowded", lambda engine: next(crowded, False) or is_crowded(engine)
    )
    made.run()
    counts = made.counts()
    assert counts.compared == 1
    assert counts.seconds < 5 * 0.2
