"""What a benchmark says in the end: figures, what they were to be, and whether they are.

The last line of a benchmark's output is one JSON object, for programs; what comes before is for people.
"""

from __future__ import annotations

import functools
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

FAILED = 1
WIDTH = 150  # of tables that go to a file; a terminal has its own


class RunFailed(Exception):
    """The run itself did not work, so that there are no figures; a missed target is not that."""


class Side(StrEnum):
    """On which side of a bound a figure is good."""

    AT_MOST = "at_most"
    AT_LEAST = "at_least"


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure is to be: the anchor's own figure, as a bound."""

    side: Side
    bound: float

    def met_by(self, figure: float) -> bool:
        """Tell whether a figure is on the good side, or on the bound itself."""
        return figure <= self.bound if self.side is Side.AT_MOST else figure >= self.bound


def at_most(bound: float) -> Target:
    """Want a figure that is not larger."""
    return Target(Side.AT_MOST, bound)


def at_least(bound: float) -> Target:
    """Want a figure that is not smaller."""
    return Target(Side.AT_LEAST, bound)


@dataclass(frozen=True, slots=True)
class Claim:
    """One benchmark's result. figures: by name, with the unit in the name; targets: of some of them."""

    name: str
    figures: Mapping[str, float]
    targets: Mapping[str, Target]

    def __post_init__(self) -> None:
        without = sorted(set(self.targets) - set(self.figures))
        if without:
            raise ValueError(f"targets without a figure: {', '.join(without)}")
        endless = sorted(name for name, figure in self.figures.items() if not math.isfinite(figure))
        if endless:
            raise ValueError(f"figures that are no numbers: {', '.join(endless)}")

    @property
    def holds(self) -> bool:
        """Tell whether every target is met."""
        return all(target.met_by(self.figures[name]) for name, target in self.targets.items())

    def line(self) -> str:
        """Return the JSON object, in one line."""
        return json.dumps(
            {
                "claim": self.name,
                "figures": {name: round(figure, 4) for name, figure in self.figures.items()},
                "targets": {name: {target.side.value: target.bound} for name, target in self.targets.items()},
                "holds": self.holds,
            }
        )


def show_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; all columns but the first stand on the right."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    table = Table(title=title, title_justify="left", title_style="bold")
    for position, name in enumerate(head):
        table.add_column(name, justify="right" if position else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def conditions(**facts: object) -> str:
    """Write what a reader must know of a run: what it was told, and the machine with all that runs on it."""
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
    return f"{told}; {os.cpu_count()} processors, load before the run {load}"


def step(text: str) -> None:
    """Say on standard error what happens now: something that takes more than two seconds."""
    print(text, file=sys.stderr, flush=True)


def run_command(command: Callable[..., Claim]) -> NoReturn:
    """Run a benchmark's command line, print its last line and end the process.

    The status tells whether the run worked, not whether the claim holds.
    """

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        print(command(*arguments, **options).line(), flush=True)

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(run)
    try:
        sys.exit(app())
    except RunFailed as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(FAILED)
