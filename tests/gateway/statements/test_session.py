"""What a session keeps of what its client set, and what of it is obeyed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.errors import InvalidSetting, SessionFull, SettingNotObeyed
from gateway.security.principals import IN_PROCESS
from gateway.statements.session import LARGEST_SETTINGS, Session
from gateway.statements.settings import FIXED, IDLE_S, TIMEOUT_S, level_of, options_of_impala
from sql.tables import Column, View

DEADLINE_S = 3_600.0


def driver(dialect: str = "spark") -> Session:
    return Session(IN_PROCESS, deadline_s=DEADLINE_S, dialect=dialect, of_hive=True)


@pytest.mark.parametrize(
    ("name", "value", "seconds"),
    [
        ("fusion.timeout_s", "30", 30.0),
        ("EXEC_TIME_LIMIT_S", "30", 30.0),
        ("hive.query.timeout.seconds", "5m", 300.0),
        ("hive.query.timeout.seconds", "500 ms", 0.5),
        ("spark.sql.thriftServer.queryTimeout", "0.5h", 1_800.0),
        ("hive.query.timeout.seconds", "0s", DEADLINE_S),
        ("fusion.timeout_s", "-1", DEADLINE_S),
        ("fusion.timeout_s", "2d", DEADLINE_S),  # the gateway's own limit is less
    ],
)
def test_a_statements_time_is_limited_by_every_products_name_of_it(name: str, value: str, seconds: float) -> None:
    session = driver()
    session.set(name, value)
    assert session.statement("SELECT 1").deadline_s == seconds
    assert session.statement("SELECT 1", overlay={TIMEOUT_S.name: "1"}).deadline_s == 1.0


@pytest.mark.parametrize("value", ["inf", "nan", "1 fortnight", "-2", "s s", "1e999", "\u0661x", "--1"])
def test_a_time_is_a_time(value: str) -> None:
    with pytest.raises(InvalidSetting, match="a number of seconds, 0 for none"):
        driver().set("exec_time_limit_s", value)


def test_a_client_may_shorten_how_long_its_session_is_kept() -> None:
    session = driver("impala")
    assert not session.is_idle_too_long(limit_s=60.0)
    session.set("IDLE_SESSION_TIMEOUT", "10ms")
    assert session.settings()[IDLE_S.name] == "10ms"
    session.begin_wait()
    assert not session.is_idle_too_long(limit_s=60.0)
    session.end_wait()
    while session.idle_s <= 0.01:
        pass
    assert session.is_idle_too_long(limit_s=60.0)
    session.set("idle_session_timeout", "1h")
    assert session.is_idle_too_long(limit_s=0.001)


@pytest.mark.parametrize(
    "name",
    ["spark.sql.sources.partitionOverwriteMod", "hive.exec.dynamic.partitio.mode", "spark.sql.session.timezones"],
)
def test_a_misspelt_setting_that_changes_what_statements_do_is_refused(name: str) -> None:
    with pytest.raises(SettingNotObeyed, match="did you mean"):
        driver().set(name, "x")


def test_a_setting_is_kept_once_however_it_is_spelt_and_a_variable_by_its_spelling() -> None:
    session = driver("impala")
    for name in ("mem_limit", "MEM_LIMIT", "Mem_Limit"):
        session.set(name, name)
    session.set("hivevar:x", "small")
    session.set("hivevar:X", "large")
    assert session.get("mem_LIMIT") == "Mem_Limit"
    assert [name for name in session.settings() if name.lower() == "mem_limit"] == ["Mem_Limit"]
    assert (session.get("hivevar:x"), session.get("hivevar:X")) == ("small", "large")
    session.reset("MEM_limit")
    assert session.get("mem_limit") is None


def test_what_nobody_knows_is_bounded_and_its_warnings_are_too() -> None:
    session = driver("impala")
    for number in range(LARGEST_SETTINGS):
        session.set(f"hive.unheard.{number}", "1")
    for _ in range(2):
        with pytest.raises(SessionFull):
            session.set("hive.one.more", "1")
    assert len(session.warnings) == LARGEST_SETTINGS
    session.reset()
    assert not session.warnings
    session.set("hive." + "x" * 10_000, "1")
    (warning,) = session.warnings
    assert len(warning) < 300


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("fusion.dialect", "REGULAR"),
        ("REQUEST_POOL", "REGULAR"),
        ("timezone", "REGULAR"),
        ("MEM_LIMIT", "NOT USED"),
        ("spark.executor.memory", "NOT USED"),
        ("x", "NOT USED"),
        ("spark.sql.nobody.knows", "UNKNOWN"),
    ],
)
def test_set_tells_what_a_setting_does(name: str, level: str) -> None:
    assert level_of(name) == level


def test_every_option_of_impala_can_be_set_to_what_set_all_shows() -> None:
    session = driver("impala")
    for name, value in options_of_impala().items():
        session.set(name, value)
        assert name not in FIXED or session.get(name) == value
    assert session.warnings == ()


def test_another_gateway_restores_what_a_client_has_set() -> None:
    changes = list[dict[str, Any]]()
    session = Session(IN_PROCESS, deadline_s=60.0, of_hive=True)
    session.on_change = lambda: changes.append(session.state())
    session.use("sales")
    session.set("fusion.pool", "nightly")
    session.set("hiveconf:mark", "42")
    column = Column("x", "bigint")
    session.keep_view(View("mine", "SELECT 1 AS x", "spark", (column,), temporary=True), replace=False)
    session.presume_dialect("impala")
    assert len(changes) == 5

    other = Session(IN_PROCESS, deadline_s=60.0, of_hive=True)
    other.restore(json.loads(json.dumps(changes[-1])))
    assert other.state() == session.state()
    assert (other.database, other.dialect, dict(other.views)) == ("sales", "impala", dict(session.views))
    assert other.settings() == session.settings()
    session.reset()
    session.drop_view("mine")
    other.restore(changes[-1])
    assert not other.views
    assert other.get("hiveconf:mark") is None
