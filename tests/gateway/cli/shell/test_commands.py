"""Commands that begin with a backslash."""

from __future__ import annotations

import pytest

from gateway.cli.shell.commands import COMMANDS, is_command, unknown_command


@pytest.mark.parametrize("text", [r"\d", r"  \?", "exit", "QUIT ;", r"\nothing"])
def test_a_backslash_and_words_that_end_make_a_command(text: str) -> None:
    assert is_command(text)


@pytest.mark.parametrize("text", ["SELECT 1;", "exit 1", "SELECT '\\\\d';", ""])
def test_statements_are_none(text: str) -> None:
    assert not is_command(text)


def test_an_unknown_one_is_told_with_those_near_it() -> None:
    assert unknown_command(r"\tming") == r"there is no command \tming; did you mean \timing or \i? \? lists all"
    assert r"\format" in unknown_command(r"\from")
    assert unknown_command(r"\##") == r"there is no command \##; \? lists all"


def test_every_command_has_a_line_of_help_and_the_usual_ones_exist() -> None:
    usual = {"?", "c", "d", "dt", "e", "i", "l", "q", "x", "timing", "pager", "format", "engine", "why", "status"}
    assert {f"\\{name}" for name in usual} <= COMMANDS.keys()
    assert all(name.startswith("\\") and command.does for name, command in COMMANDS.items())
