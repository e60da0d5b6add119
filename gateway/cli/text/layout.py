"""Rows as people read them on a terminal, and as other commands read them from a pipe.

On a terminal, a table is as wide as the terminal at most: cells are folded, and where that leaves too little of them,
every row becomes a block of its own. In a pipe a row is a line, whatever its length, and columns have two spaces
between them. Nothing is ever cut off.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

NARROWEST = 12  # cells of a folded column; narrower ones are read worse than a block per row
GAP = "  "
_NAMES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_HIDDEN = ("Cc", "Cs", "Zl", "Zp")  # categories of characters that move the cursor, end a line or cannot be written


def print_table(
    console: Console,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[int] = (),
    whole: Collection[int] = (),
    blocks: bool = False,
) -> None:
    """Print rows of texts, as wide as headings.

    right: columns of numbers. whole: columns that are never folded. blocks: every row as a block, whatever its width.
    """
    texts = [printable(heading) for heading in headings]
    cells = [[printable(cell) for cell in row] for row in rows]
    if blocks:
        _print_blocks(console, texts, cells)
        return
    widths = [max(map(cell_len, column)) for column in zip(texts, *cells, strict=True)]
    if not console.is_terminal:
        _print_lines(console, [texts, *cells], widths, right)
        return
    room = console.width - 3 * len(widths) - 1  # rich puts a border and two spaces around each
    shown = folded_widths(widths, room, whole)
    if shown is None:
        _print_blocks(console, texts, cells)
        return
    table = Table()
    for place, (heading, width) in enumerate(zip(texts, shown, strict=True)):
        justify = "right" if place in right else "left"
        table.add_column(Text(heading), width=width, overflow="fold", justify=justify)  # type: ignore[arg-type]
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def folded_widths(widths: Sequence[int], room: int, whole: Collection[int] = ()) -> list[int] | None:
    """Return how wide columns are within a room, the widest ones folded; None where too little would be left of them.

    widths, room: in cells. whole: places of columns that keep their width.
    """
    if sum(widths) <= room:
        return list(widths)
    foldable = sorted(width for place, width in enumerate(widths) if place not in whole)
    room_left = room - sum(widths) + sum(foldable)
    for number, width in enumerate(foldable):
        widest = room_left // (len(foldable) - number)
        if width > widest:  # of those from here on
            if widest < NARROWEST:
                return None
            return [width if place in whole else min(width, widest) for place, width in enumerate(widths)]
        room_left -= width
    return None


def printable(text: str) -> str:
    """Return a text in one line, without anything that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    return _NAMES.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def _print_lines(
    console: Console, lines: Iterable[Sequence[str]], widths: Sequence[int], right: Collection[int]
) -> None:
    for line in lines:
        padded = (
            " " * (width - cell_len(cell)) + cell if place in right else cell + " " * (width - cell_len(cell))
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        console.file.write(GAP.join(padded).rstrip() + "\n")


def _print_blocks(console: Console, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a line per value; the terminal wraps long ones, so that they can be copied whole."""
    widest = max(map(cell_len, headings), default=0)
    for number, row in enumerate(rows, start=1):
        console.print(Text(f"row {number}".ljust(widest, "-"), style="bold"))
        for heading, cell in zip(headings, row, strict=True):
            padding = " " * (widest - cell_len(heading))
            console.print(Text(f"{padding}{heading}{GAP}{cell}"), soft_wrap=True)
