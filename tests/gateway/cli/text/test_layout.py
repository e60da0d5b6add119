"""Tables on a terminal of 80 cells, and in a pipe."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from gateway.cli.text.layout import NARROWEST, folded_widths, print_table, printable

LONG = "20261123_182054_bee4732427_0123456789"
WIDTH = 80


def printed(headings: list[str], rows: list[list[str]], *, terminal: bool, whole: tuple[int, ...] = ()) -> list[str]:
    sink = io.StringIO()
    console = Console(file=sink, force_terminal=terminal, width=WIDTH, color_system=None)
    print_table(console, headings, rows, whole=whole)
    return sink.getvalue().splitlines()


def test_a_pipe_gets_a_line_per_row_and_all_of_it() -> None:
    lines = printed(["id", "name"], [[LONG, "x" * 300], ["1", "[red]"]], terminal=False)
    assert lines[0].split() == ["id", "name"]
    assert lines[1].split("  ") == [LONG, "x" * 300]
    assert lines[2].split() == ["1", "[red]"]
    assert len(lines) == 3


def test_a_terminal_folds_the_widest_column_and_keeps_ids_whole() -> None:
    lines = printed(["id", "n", "statement"], [[LONG, "7", "SELECT " * 20]], terminal=True, whole=(0,))
    assert max(map(cell_len, lines)) <= WIDTH
    assert any(LONG in line for line in lines)
    assert " ".join(lines).count("SELECT") == 20


def test_a_row_of_too_many_columns_becomes_a_block() -> None:
    names = [f"column_{number}" for number in range(12)]
    lines = printed(names, [[f"value {number}" for number in range(12)]], terminal=True)
    assert lines[0].startswith("row 1")
    assert [line.split() for line in lines[1:]] == [[name, "value", str(n)] for n, name in enumerate(names)]


def test_nothing_in_a_cell_moves_the_cursor_or_is_markup() -> None:
    assert printable("a\tb\nc\x1b[2J\u2028\ud800é") == "a\\tb\\nc\\x1b[2J\\u2028\\ud800é"
    (_, line) = printed(["x"], [["[/red]\x1b[31m"]], terminal=False)
    assert line == "[/red]\\x1b[31m"
    assert any("[/red]\\x1b[31m" in line for line in printed(["x"], [["[/red]\x1b[31m"]], terminal=True))


def test_wide_characters_keep_columns_below_their_headings() -> None:
    lines = printed(["名前", "n"], [["日本語", "1"], ["a", "2"]], terminal=False)
    assert lines == ["名前    n", "日本語  1", "a       2"]


def test_no_rows_are_a_heading_and_no_columns_are_nothing() -> None:
    assert printed(["a"], [], terminal=False) == ["a"]
    assert printed([], [], terminal=False) == [""]


@given(st.lists(st.integers(0, 200), min_size=1, max_size=8), st.integers(10, 200))
def test_folded_columns_fit_and_are_never_narrower_than_they_may_be(widths: list[int], room: int) -> None:
    folded = folded_widths(widths, room)
    if folded is None:
        assert sum(min(width, NARROWEST) for width in widths) > room or any(width > NARROWEST for width in widths)
        return
    assert sum(folded) <= room
    assert all(after == before or NARROWEST <= after < before for before, after in zip(widths, folded, strict=True))


@pytest.mark.parametrize(
    ("widths", "room", "whole", "folded"),
    [
        ([5, 5], 10, (), [5, 5]),
        ([5, 50, 50], 45, (), [5, 20, 20]),
        ([5, 15, 50], 45, (), [5, 15, 25]),
        ([30, 50], 50, (0,), [30, 20]),
        ([30, 50], 40, (0,), None),
        ([100], 50, (0,), None),
    ],
)
def test_what_is_folded(widths: list[int], room: int, whole: tuple[int, ...], folded: list[int] | None) -> None:
    assert folded_widths(widths, room, whole) == folded
