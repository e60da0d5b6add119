"""Values that hold for the next statements."""

from __future__ import annotations

import pytest

from gateway.cli.client import RequestFailed
from gateway.cli.shell.session import Session
from gateway.cli.shell.session_statements import first_word, read_session_statement
from gateway.commands.session import ResetOptions, SetOption, ShowOptions, UseDatabase


def test_settings_are_sent_with_every_statement_and_reset() -> None:
    session = Session("sales").with_setting("fusion.policy", "safe").with_setting("hivevar:x", "1")
    assert session.request() == {
        "database": "sales",
        "engine": "auto",
        "dialect": "spark",
        "settings": {"fusion.policy": "safe", "hivevar:x": "1"},
    }
    assert session.without_setting("FUSION.policy").settings == {"hivevar:x": "1"}
    assert session.without_setting(None) == Session("sales")


def test_the_last_value_of_a_setting_comes_last() -> None:
    session = Session().with_setting("mt_dop", "1").with_setting("fusion.threads", "2").with_setting("mt_dop", "3")
    assert list(session.settings.items()) == [("fusion.threads", "2"), ("mt_dop", "3")]


def test_engine_and_dialect_are_fields_of_a_request() -> None:
    session = Session().with_setting("Fusion.Engine", "duckdb").with_setting("fusion.dialect", "hive")
    assert (session.engine, session.dialect, session.settings) == ("duckdb", "hive", {})
    assert session.without_setting("fusion.engine") == Session(dialect="hive")
    assert session.all_settings() == {"fusion.engine": "duckdb", "fusion.dialect": "hive"}


@pytest.mark.parametrize(
    ("sql", "statement"),
    [
        ("USE sales", UseDatabase("sales")),
        ("use lake.`sales`;", UseDatabase("lake.sales")),
        ("SET fusion.policy = safe;", SetOption("fusion.policy", "safe")),
        ("RESET", ResetOptions()),
        ("SET -v", ShowOptions(meanings=True)),
    ],
)
def test_statements_about_the_session_are_read_as_the_gateway_reads_them(sql: str, statement: object) -> None:
    assert read_session_statement(sql, "spark") == statement


def test_a_wrong_one_tells_where() -> None:
    with pytest.raises(RequestFailed) as refused:
        read_session_statement("USE a b", "spark")
    assert (refused.value.code, refused.value.place) == ("SYNTAX_ERROR", (1, 7))


def test_the_first_word_stands_behind_comments() -> None:
    assert first_word("-- of today\n/* x */ use sales", "spark") == "USE"
    assert first_word("-- nothing", "spark") == ""
