"""Texts that Enter sends, and prompts."""

from __future__ import annotations

import pytest

from gateway.cli.shell.prompt import is_complete, prompt_text
from gateway.cli.shell.session import Session


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "SELECT 1;",
        "SELECT 1; -- one",
        "SELECT 1; SELECT 2 ;\n",
        "SELECT ';' AS a;",
        ";",
        r"\d",
        "exit",
        "Quit;",
    ],
)
def test_a_text_that_is_complete_is_sent(text: str) -> None:
    assert is_complete(text, "spark")


@pytest.mark.parametrize(
    "text",
    ["SELECT 1", "SELECT 1; SELECT 2", "SELECT ';", "SELECT `a;", "SELECT 1 -- ;", "SELECT 1 /* ; */", "SELECT /* ;"],
)
def test_a_text_that_is_not_complete_goes_on_in_the_next_line(text: str) -> None:
    assert not is_complete(text, "spark")


def test_a_double_quote_is_read_in_the_dialect() -> None:
    assert not is_complete('SELECT ";', "hive")
    assert is_complete('SELECT ";";', "hive")


def test_the_prompt_names_the_database_and_a_chosen_engine() -> None:
    assert prompt_text(Session("sales")) == "sales> "
    assert prompt_text(Session("sales", engine="duckdb")) == "sales[duckdb]> "
