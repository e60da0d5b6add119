"""Plots of docs/concepts.md, drawn from measurements: ``python -m benchmarks.plots`` writes them into docs/images.

The histogram is the one that the statistics job builds of books.price; the rows are those of the claim ``selectivity``
for the paper's Q1, at one draw of X.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated
from xml.sax.saxutils import escape

import typer

from benchmarks.bookstore import DEFAULT_DATA, SEED, DataOption, ScaleOption, SeedOption, prepare
from benchmarks.claim import RunFailed
from benchmarks.selectivity import QUESTIONS, SCALE, Point, measure, planner
from gateway.dashboard.drawings import plots
from gateway.dashboard.drawings.drawing import Drawing
from statsproc.data.bookstore import Bookstore, Distribution

IMAGES = Path("docs/images")
TABLE, COLUMN = "books", "price"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 360, 90, 190, 20, 50
INK, GRID, PAPER = "#333", "#ddd", "#fff"
OURS, ENGINE, TRUE = "#1f6feb", "#d9730d", "#333"
STYLE = 'font-family="sans-serif" font-size="14"'


def draw(
    out: Annotated[Path, typer.Option(help="Folder of the drawings.")] = IMAGES,
    data: DataOption = DEFAULT_DATA,
    scale: ScaleOption = SCALE,
    seed: SeedOption = SEED,
) -> None:
    """Measure and write both drawings."""
    distribution = Distribution.SKEWED
    folder = prepare(data, Bookstore(scale, seed, distribution))
    with planner(folder) as (engine, snapshot):
        column = snapshot.statistics[TABLE].columns[COLUMN]
        plot = plots.histogram(column)
        if plot is None:
            raise RunFailed(f"{TABLE}.{COLUMN} has no histogram")
        (points,) = measure(engine, snapshot, QUESTIONS[0], distribution, [seed])
    (out / "histogram.svg").write_text(bars(plot.drawing), encoding="utf-8")
    (out / "estimates.svg").write_text(curves(points), encoding="utf-8")


def bars(drawing: Drawing) -> str:
    """Return a drawing of the dashboard as an SVG file of its own."""
    width, height = map(float, drawing.size.split())

    def elements() -> Iterator[str]:
        for label in drawing.up:
            yield _line(float(drawing.left), float(label.at), float(drawing.right), float(label.at), GRID)
            yield _text(float(drawing.left) - 6, float(label.at) + 5, label.text, "end")
        for label in drawing.along:
            yield _text(float(label.at), height - 6, label.text, "middle")
        for box in drawing.series[0].boxes:
            place = f'x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"'
            yield f'<rect {place} fill="{OURS}" stroke="{PAPER}"/>'

    return _svg(width, height, drawing.name, elements())


def curves(points: Sequence[Point]) -> str:
    """Draw rows that we and DuckDB expect, and as they are, over X."""
    ordered = sorted(points, key=lambda point: point.x)
    highest = max(max(point.ours, point.duckdb, point.truth) for point in ordered)
    step = 10.0 ** math.floor(math.log10(highest)) / 2
    first, last = ordered[0].x, ordered[-1].x

    def place(x: float, rows: float) -> tuple[float, float]:
        along = LEFT + (x - first) / (last - first) * (WIDTH - LEFT - RIGHT)
        return along, HEIGHT - BOTTOM - rows / highest * (HEIGHT - TOP - BOTTOM)

    def elements() -> Iterator[str]:
        for tick in range(int(highest / step) + 1):
            _, up = place(first, tick * step)
            yield _line(LEFT, up, WIDTH - RIGHT, up, GRID)
            yield _text(LEFT - 6, up + 5, f"{tick * step:,.0f}", "end")
        for x in (first, (first + last) / 2, last):
            yield _text(place(x, 0)[0], HEIGHT - BOTTOM + 20, f"{x:.0f}", "middle")
        yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "X of SELECT count(*) FROM books WHERE price < X", "middle")
        series = (
            ("DuckDB's estimate", ENGINE, [point.duckdb for point in ordered]),
            ("true rows", TRUE, [point.truth for point in ordered]),
            ("our estimate", OURS, [point.ours for point in ordered]),
        )
        for name, colour, rows in series:
            places = [place(point.x, count) for point, count in zip(ordered, rows, strict=True)]
            if name == "true rows":
                path = " ".join(f"{along:.1f},{up:.1f}" for along, up in places)
                yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            else:
                yield from (f'<circle cx="{along:.1f}" cy="{up:.1f}" r="4" fill="{colour}"/>' for along, up in places)
        for at, (name, colour, _) in enumerate(series):
            yield f'<circle cx="{WIDTH - RIGHT + 20}" cy="{TOP + 20 + 24 * at}" r="4" fill="{colour}"/>'
            yield _text(WIDTH - RIGHT + 32, TOP + 25 + 24 * at, name, "start")

    return _svg(WIDTH, HEIGHT, "Rows of the paper's Q1: our estimates, DuckDB's, and the true ones.", elements())


def _svg(width: float, height: float, name: str, elements: Iterator[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" {STYLE}>'
    paper = f'<rect width="{width:g}" height="{height:g}" fill="{PAPER}"/>'
    return "\n".join([head, f"<title>{escape(name)}</title>", paper, *elements, "</svg>", ""])


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{INK}">{escape(text)}</text>'


if __name__ == "__main__":
    typer.run(draw)
