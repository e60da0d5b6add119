"""What rules do to statements that run: actions, the client's own choice, and engines that fail."""

from __future__ import annotations

import datetime as dt

import pytest

from engines.errors import EngineUnavailable, MemoryExceeded
from engines.protocol import EngineStatus
from gateway.errors import NoEngineAvailable
from gateway.routing.admission.values import Request
from gateway.security.principals import Principal, Role
from gateway.statements.statement import Presumed, Statement
from metastore.records import QueryRecord, QueryState
from selector.decision import NoEngine, ReasonCode
from sql.errors import RuleDenied, RuleForbidsEngine
from tests.gateway.execution.test_coordinator import ANSWER, SQL, failing
from tests.gateway.routing.rules.conftest import DEPENDABLE, ENGINES, Build

SALES = "SELECT id FROM transactions"
DOWN = EngineStatus(alive=False, detail="it was switched off")
ANN = Principal("ann", Role.WRITER)


def rule(name: str, says: str, match: str = "") -> str:
    return f'[[rule]]\nname = "{name}"\nmatch = {{ {match} }}\n{says}\n'


def ranking(record: QueryRecord) -> tuple[str, ...]:
    assert record.decision is not None, record.error
    return record.decision.ranking


def test_without_rules_prices_decide(ruled: Build) -> None:
    record = ruled().ended(Statement(SQL))
    assert ranking(record) == ("duckdb", "impala", "spark", "hive")
    assert record.decision is not None
    assert (record.decision.matched, record.decision.strict) == (None, False)


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ('allow = ["impala", "hive"]', ("impala", "hive")),
        ('allow = "hive"', ("hive",)),
        ('prefer = ["hive", "impala"]', ("hive", "impala", "duckdb", "spark")),
        ('pin = "spark"', ("spark", "duckdb", "impala", "hive")),
        ('strict = "hive"', ("hive",)),
    ],
)
def test_an_action_changes_the_ranking_and_says_so(ruled: Build, says: str, expected: tuple[str, ...]) -> None:
    house = ruled(rule("the rule", says))
    record = house.ended(Statement(SQL))
    assert (record.state, record.engine, ranking(record)) == (QueryState.FINISHED, expected[0], expected)
    assert record.decision is not None
    assert record.decision.reasons[0].code is ReasonCode.RULE
    assert "'the rule'" in record.decision.reasons[0].text
    assert record.decision.matched == "the rule"
    assert record.decision.strict is ("strict" in says)
    assert house.gateway.router.rules.state().hits == {"the rule": 1}


def test_the_first_rule_that_matches_decides(ruled: Build) -> None:
    house = ruled(
        rule("sales", 'strict = "hive"', 'table = "transactions"')
        + rule("books", 'strict = "impala"', 'table = "book*"')
        + rule("rest", 'deny = "No."')
    )
    assert ranking(house.ended(Statement(SALES))) == ("hive",)
    assert ranking(house.ended(Statement(SQL))) == ("impala",)
    refused = house.ended(Statement("SELECT 1 AS one"))
    assert refused.error is not None
    assert refused.error.code == RuleDenied.code
    assert refused.error.message == "No. (Denied by the routing rule 'rest'.)"
    assert house.gateway.router.rules.state().hits == {"sales": 1, "books": 1, "rest": 1}


def test_what_is_denied_reaches_no_engine_not_even_its_planner(ruled: Build) -> None:
    house = ruled(rule("closed", 'deny = "Closed."', 'table = "books"'))
    assert house.ended(Statement(SQL)).state is QueryState.FAILED
    with pytest.raises(RuleDenied):
        house.gateway.coordinator.explain(Statement(SQL))
    assert set(house.explained().values()) == {0}
    assert not any(engine.asked for engine in house.engines.values())


@pytest.mark.parametrize("says", ['strict = "spark"', 'allow = ["spark", "hive"]'])
def test_no_engine_is_asked_for_a_plan_that_it_may_not_run(ruled: Build, says: str) -> None:
    house = ruled(rule("apart", says) + rule("large", 'pin = "hive"', 'estimate = { peak_above = "1 TiB" }'))
    house.ended(Statement(SQL))
    assert (house.explained()["duckdb"], house.explained()["impala"]) == (0, 0)


def test_an_estimate_is_asked_for_only_where_all_else_holds(ruled: Build) -> None:
    house = ruled(
        rule("others", 'deny = "No."', 'user = "bob", estimate = { peak_above = 1 }')
        + rule("large", 'strict = "hive"', 'table = "books", estimate = { peak_above = 1 }')
        + rule("rest", 'strict = "spark"')
    )
    assert ranking(house.ended(Statement(SALES))) == ("spark",)
    assert house.explained()["duckdb"] == 0
    assert ranking(house.ended(Statement(SQL))) == ("hive",)
    assert house.explained()["duckdb"] == 1


def test_an_estimate_that_is_not_known_is_only_unknown(ruled: Build) -> None:
    house = ruled(
        rule("large", 'strict = "hive"', "estimate = { peak_above = 0 }")
        + rule("small", 'strict = "impala"', 'estimate = { peak_below = "1 TiB" }')
        + rule("unknown", 'strict = "spark"', "estimate = { unknown = true }")
    )
    for name in ("duckdb", "impala"):
        house.engines[name].script("transactions", failing(MemoryExceeded("full")))
        house.engines[name].explain = _unavailable  # type: ignore[method-assign]
    assert ranking(house.ended(Statement(SALES))) == ("spark",)


def _unavailable(*_: object, **__: object) -> str:
    raise EngineUnavailable("not now")


# ---------------------------------------------------------------------- strict


@pytest.mark.parametrize("only", ENGINES)
def test_strict_is_not_broken_by_failover(ruled: Build, only: str) -> None:
    house = ruled(rule("alone", f'strict = "{only}"'))
    house.engines[only].script("books", failing(MemoryExceeded("full")))
    record = house.ended(Statement(SQL))
    assert record.state is QueryState.FAILED
    assert record.error is not None
    assert record.error.code == MemoryExceeded.code
    assert {attempt.engine for attempt in record.attempts} == {only}
    assert not any(engine.asked for name, engine in house.engines.items() if name != only)


@pytest.mark.parametrize("only", ENGINES)
def test_strict_with_its_engine_down_is_an_error_that_says_so(ruled: Build, only: str) -> None:
    house = ruled(rule("alone", f'strict = "{only}"'))
    house.engines[only].reported_status = DOWN
    record = house.ended(Statement(SQL))
    assert record.state is QueryState.FAILED
    assert record.error is not None
    assert record.error.code == NoEngineAvailable.code
    assert "'alone'" in record.error.message
    assert DOWN.detail in record.error.message
    assert not any(engine.asked for engine in house.engines.values())
    with pytest.raises(NoEngine) as refused:
        house.gateway.coordinator.explain(Statement(SQL))
    assert [reason.code for reason in refused.value.reasons] == [ReasonCode.RULE, ReasonCode.ENGINE_DOWN]


def test_strict_comes_back_to_its_engine_alone_after_that_was_lost(ruled: Build) -> None:
    house = ruled(rule("alone", 'strict = "duckdb"'))
    house.engines["duckdb"].script("books", *[failing(EngineUnavailable("lost"))] * 5)
    record = house.ended(Statement(SQL))
    assert record.state is QueryState.FAILED
    assert {attempt.engine for attempt in record.attempts} == {"duckdb"}


def test_allow_keeps_failover_within_what_it_names(ruled: Build) -> None:
    house = ruled(rule("two", 'allow = ["duckdb", "hive"]'))
    house.engines["duckdb"].script("books", failing(MemoryExceeded("full")))
    record = house.ended(Statement(SQL))
    assert [attempt.engine for attempt in record.attempts] == ["duckdb", "hive"]
    house.engines["hive"].reported_status = DOWN
    record = house.ended(Statement(SQL))
    assert record.error is not None
    assert record.error.code == NoEngineAvailable.code  # it ran out of memory on the other one


def test_what_is_pinned_may_fail_over_and_gives_way_while_down(ruled: Build) -> None:
    house = ruled(rule("first", 'pin = "hive"'))
    house.engines["hive"].script("books", failing(EngineUnavailable("lost")))
    record = house.ended(Statement(SQL))
    assert [attempt.engine for attempt in record.attempts] == ["hive", "duckdb"]
    house.engines["hive"].reported_status = DOWN
    assert ranking(house.ended(Statement(SQL)))[0] == "duckdb"


def test_a_fast_engine_is_pinned_where_it_ran_out_before_and_only_preferred_where_it_fits(ruled: Build) -> None:
    house = ruled()
    house.engines["duckdb"].script("books", failing(MemoryExceeded("full")))
    house.ended(Statement(SQL))
    assert "duckdb" not in ranking(house.ended(Statement(SQL)))
    house.write(rule("wish", 'prefer = "duckdb"'))
    assert "duckdb" not in ranking(house.ended(Statement(SQL)))
    house.write(rule("first", 'pin = "duckdb"'))
    assert ranking(house.ended(Statement(SQL))) == ("duckdb", "impala", "spark", "hive")


# ---------------------------------------------------------------------- the client's own choice


@pytest.mark.parametrize(
    ("says", "taken"),
    [
        ('prefer = "hive"', "impala"),
        ('pin = "hive"', "impala"),
        ('allow = ["hive", "impala"]', "impala"),
        ('strict = "impala"', "impala"),
    ],
)
def test_the_clients_choice_holds_where_the_rule_leaves_it(ruled: Build, says: str, taken: str) -> None:
    house = ruled(rule("the rule", says))
    for statement in (Statement(SQL, engine="impala"), Statement(f"SELECT /*+ engine(impala) */ {SQL[7:]}")):
        record = house.ended(statement)
        assert ranking(record) == (taken,)
        assert record.decision is not None
        assert record.decision.strict


@pytest.mark.parametrize("says", ['allow = ["hive", "spark"]', 'strict = "hive"'])
def test_the_clients_choice_is_refused_where_the_rule_forbids_it(ruled: Build, says: str) -> None:
    house = ruled(rule("the rule", says))
    for statement in (Statement(SQL, engine="impala"), Statement(f"SELECT /*+ engine(impala) */ {SQL[7:]}")):
        record = house.ended(statement)
        assert record.error is not None
        assert record.error.code == RuleForbidsEngine.code
        assert "'the rule'" in record.error.message
        with pytest.raises(RuleForbidsEngine):
            house.gateway.coordinator.explain(statement)
    assert not any(engine.asked for engine in house.engines.values())


# ---------------------------------------------------------------------- writes and commands


def test_writes_go_where_rules_say(ruled: Build) -> None:
    house = ruled(rule("to hive", 'strict = "hive"', 'kind = "write"'))
    record = house.ended(Statement("CREATE TABLE made AS SELECT id FROM books"))
    assert (record.state, record.engine) == (QueryState.FINISHED, "hive"), record.error
    house.write(rule("not fast", 'allow = "duckdb"', 'kind = "write"'))
    record = house.ended(Statement("CREATE TABLE made2 AS SELECT id FROM books"))
    assert record.error is not None
    assert record.error.code == NoEngineAvailable.code
    house.write(rule("frozen", 'deny = "No writes now."', 'kind = "write", table = "made"'))
    for sql in ("INSERT INTO made SELECT id FROM books", "TRUNCATE TABLE made"):
        record = house.ended(Statement(sql))
        assert record.error is not None, sql
        assert record.error.code == RuleDenied.code, sql
    assert house.ended(Statement("SELECT id FROM books")).state is QueryState.FINISHED


@pytest.mark.parametrize(
    "sql", ["SHOW TABLES", "DESCRIBE books", "SET fusion.policy", "USE default", "SHOW CREATE TABLE books"]
)
def test_what_drivers_send_by_themselves_is_kept_from_them_only_by_its_name(ruled: Build, sql: str) -> None:
    house = ruled(rule("tables", 'deny = "No."', 'table = "*"') + rule("rest", 'deny = "No."'))
    session = house.gateway.hs2  # a session is not needed for these
    assert session is not None
    record = house.ended(Statement(sql))
    assert record.error is None or record.error.code != RuleDenied.code
    house.write(rule("all", 'deny = "No."', 'kind = ["show", "session"]'))
    record = house.ended(Statement(sql))
    assert record.error is not None
    assert record.error.code == RuleDenied.code


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE hr.people",
        "DROP DATABASE hr CASCADE",
        "ALTER TABLE hr.people RENAME TO seen",
        "CREATE VIEW seen AS SELECT id FROM hr.people",
        "COMPUTE STATS hr.people",
        "INSERT INTO books SELECT id, isbn, category, publish_date, publisher, price FROM hr.people",
        "SELECT id FROM hr.people",
        "SELECT b.id FROM books b WHERE EXISTS (SELECT 1 FROM hr.people p WHERE p.id = b.id)",
        "WITH x AS (SELECT * FROM hr.people) SELECT id FROM x",
        "SELECT id FROM over",
        "EXPLAIN SELECT id FROM hr.people",
    ],
)
def test_a_table_is_denied_whichever_way_it_is_named(ruled: Build, sql: str) -> None:
    house = ruled()
    for engine in house.engines.values():
        engine.script("people", ANSWER)
    for made in (
        "CREATE DATABASE hr",
        "CREATE TABLE hr.people (id BIGINT, isbn STRING, category STRING, publish_date DATE, publisher STRING, "
        "price DOUBLE)",
        "CREATE VIEW over AS SELECT id FROM hr.people",
    ):
        assert house.ended(Statement(made)).error is None
    house.write(rule("hr", 'deny = "Ask HR."', 'table = "hr.*"'))
    record = house.ended(Statement(sql, principal=ANN))
    assert record.error is not None
    assert record.error.code in (RuleDenied.code, "ACCESS_DENIED"), record.error
    if "hr.people" in sql and not sql.startswith(("DROP", "ALTER", "INSERT")):
        assert record.error.code == RuleDenied.code
    assert house.ended(Statement("SHOW TABLES IN hr", principal=ANN)).error is None


def test_the_columns_of_a_view_are_asked_only_where_its_statement_may_run(ruled: Build) -> None:
    house = ruled(rule("apart", 'strict = "hive"', 'table = "books"'))
    assert house.ended(Statement("CREATE VIEW v AS SELECT id FROM books")).error is None
    assert [name for name, engine in house.engines.items() if engine.asked] == ["hive"]


def test_a_command_may_be_about_a_kind(ruled: Build) -> None:
    house = ruled(rule("no ddl", 'deny = "No."', 'kind = "ddl"'))
    for sql in ("CREATE DATABASE x", "CREATE TABLE t AS SELECT id FROM books", "CREATE VIEW v AS SELECT id FROM books"):
        record = house.ended(Statement(sql))
        assert record.error is not None
        assert record.error.code == RuleDenied.code


# ---------------------------------------------------------------------- who, when, and how engines are


def test_users_groups_and_roles(ruled: Build) -> None:
    house = ruled(
        '[groups]\nanalysts = ["ann", "etl_*"]\n'
        + rule("analysts", 'strict = "impala"', 'group = "analysts"')
        + rule("operators", 'strict = "hive"', 'group = "operator"')
        + rule("carl", 'strict = "spark"', 'user = "carl"')
    )
    for name, role, engine in (
        ("ann", Role.READER, "impala"),
        ("etl_7", Role.READER, "impala"),
        ("bob", Role.OPERATOR, "hive"),
        ("carl", Role.ADMIN, "spark"),
        ("dora", Role.ADMIN, "duckdb"),
    ):
        assert ranking(house.ended(Statement(SQL, principal=Principal(name, role))))[0] == engine


def test_groups_of_a_source_of_identity_are_members(ruled: Build) -> None:
    house = ruled(
        '[groups]\nfinance = ["group:fin-*", "g*"]\n' + rule("finance", 'strict = "hive"', 'group = "finance"')
    )
    for name, groups, engine in (
        ("ann", {"all", "fin-eu"}, "hive"),
        ("bob", {"all"}, "duckdb"),
        ("gil", set[str](), "hive"),
        ("zoe", {"group:fin-eu"}, "duckdb"),
    ):
        user = Principal(name, Role.READER, authenticated=True, groups=frozenset(groups))
        assert ranking(house.ended(Statement(SQL, principal=user)))[0] == engine


def test_a_name_that_is_only_told_is_nobodys_where_names_can_be_proved(ruled: Build) -> None:
    rules = rule("ann", 'strict = "hive"', 'user = "ann"') + rule("guests", 'strict = "spark"', 'user = "anonymous"')
    house = ruled(rules, users={"bob": Role.WRITER})
    assert ranking(house.ended(Statement(SQL, principal=Principal("ann")))) == ("spark",)
    assert ranking(house.ended(Statement(SQL, principal=Principal("ann", authenticated=True)))) == ("hive",)


def test_tags_pools_and_headers(ruled: Build) -> None:
    house = ruled(
        rule("etl", 'strict = "hive"', 'tag = "etl"')
        + rule("pool", 'strict = "spark"', 'pool = "batch*"')
        + rule("airflow", 'strict = "impala"', 'header = { X-App = "airflow/*", X-Team = ["a", "b"] }')
    )
    assert ranking(house.ended(Statement(SQL, tags=("x", "etl")))) == ("hive",)
    assert ranking(house.ended(Statement(SQL, pool="batch.night"))) == ("spark",)
    assert ranking(house.ended(Statement(SQL, headers={"x-app": "airflow/2", "x-team": "b"}))) == ("impala",)
    assert ranking(house.ended(Statement(SQL, headers={"x-app": "airflow/2"})))[0] == "duckdb"


def test_hours_and_days_in_a_zone(ruled: Build) -> None:
    house = ruled(
        rule("night", 'strict = "hive"', 'time = "22:00-06:00", days = "mon-fri", zone = "Europe/Berlin"')
        + rule("weekend", 'strict = "spark"', 'days = ["sat", "sun"], zone = "Europe/Berlin"')
    )

    def engine_at(moment: str) -> str:
        presumed = Presumed(ANN, dt.datetime.fromisoformat(moment))
        return house.gateway.coordinator.explain(Statement(SQL, presumed=presumed))[1].engine

    assert engine_at("2026-11-23T21:30:00+00:00") == "hive"  # Monday, 22:30 in Berlin
    assert engine_at("2026-11-23T20:30:00+00:00") == "duckdb"
    assert engine_at("2026-11-24T04:59:00+00:00") == "hive"  # until six in the morning
    assert engine_at("2026-11-24T05:00:00+00:00") == "duckdb"
    assert engine_at("2026-11-28T01:00:00+00:00") == "hive"  # Saturday, in the night that began on Friday
    assert engine_at("2026-11-28T08:00:00+00:00") == "spark"
    assert engine_at("2026-11-29T23:30:00+00:00") == "duckdb"  # Monday, 00:30: of Sunday's night


def test_the_state_of_engines(ruled: Build) -> None:
    house = ruled(
        rule("without spark", 'strict = "hive"', 'down = "spark"')
        + rule("duckdb is full", 'strict = "impala"', 'busy = "duckdb", up = "spark"')
    )
    assert ranking(house.ended(Statement(SQL)))[0] == "duckdb"
    house.engines["spark"].reported_status = DOWN
    assert ranking(house.ended(Statement(SQL))) == ("hive",)
    house.engines["spark"].reported_status = EngineStatus(alive=True, detail="back")
    admission, asked = house.gateway.admission, Request("duckdb", 0)
    with admission.lease(asked, wait_s=1), admission.lease(asked, wait_s=1):
        assert ranking(house.ended(Statement(SQL))) == ("impala",)
    assert ranking(house.ended(Statement(SQL)))[0] == "duckdb"
    assert set(DEPENDABLE) <= set(house.gateway.engines)
