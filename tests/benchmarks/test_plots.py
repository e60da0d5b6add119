"""The plots of the documentation: SVG files that say what they show."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks.plots import curves
from benchmarks.selectivity import Point

POINTS = [Point(x=float(x), ours=900.0 * x, duckdb=2_000.0, truth=1_000.0 * x) for x in (3, 1, 2)]
SVG = "{http://www.w3.org/2000/svg}"
LEGEND = 3


def test_estimates_are_points_and_true_rows_a_line_from_left_to_right() -> None:
    drawing = ElementTree.fromstring(curves(POINTS))  # noqa: S314 - written by the line before
    (line,) = drawing.iter(f"{SVG}polyline")
    places = [tuple(map(float, place.split(","))) for place in line.attrib["points"].split()]
    assert places == sorted(places)
    assert [up for _, up in places] == sorted((up for _, up in places), reverse=True)
    assert len(list(drawing.iter(f"{SVG}circle"))) == 2 * len(POINTS) + LEGEND
    assert drawing.findtext(f"{SVG}title") == "Rows of the paper's Q1: our estimates, DuckDB's, and the true ones."
