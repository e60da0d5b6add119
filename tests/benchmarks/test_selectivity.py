from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.claim import RunFailed
from benchmarks.selectivity import MOST_PERCENT, POINTS, QUESTIONS, Point, counted_node, figures_of
from selector.cardinality.tree import EstimatedNode
from selector.plan import Operator, PlanNode

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 540
SCALE = "0.0005"
DRAWS = 2
FIGURES = {
    "mape_percent",
    "median_percent",
    "worst_percent",
    "duckdb_mape_percent",
    "points",
    "draws",
    "draws_met",
    "worst_draw_mape_percent",
}


def _estimated(operator: Operator, rows: float, *children: EstimatedNode) -> EstimatedNode:
    return EstimatedNode(PlanNode(operator, operator.value), rows, "", children)


def test_what_is_counted_is_what_the_count_reads() -> None:
    scan = _estimated(Operator.SCAN, 30.0)
    count = _estimated(Operator.AGGREGATE, 1.0, scan)
    assert counted_node(_estimated(Operator.PROJECT, 1.0, count)) is scan
    with pytest.raises(RunFailed, match="no count"):
        counted_node(scan)


def test_the_first_draw_counts_and_the_others_are_told() -> None:
    exact, doubled = Point(1.0, ours=50.0, duckdb=20.0, truth=50.0), Point(2.0, ours=80.0, duckdb=20.0, truth=40.0)
    figures = figures_of([[exact, exact], [exact, doubled], [doubled, doubled]])
    assert (figures["mape_percent"], figures["worst_percent"], figures["points"]) == (0.0, 0.0, 2)
    assert figures["duckdb_mape_percent"] == pytest.approx(60.0)
    assert (figures["draws"], figures["draws_met"]) == (3, 1)
    assert figures["worst_draw_mape_percent"] == pytest.approx(100.0)


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.timeout(TIMEOUT_S + 30)
def test_the_whole_claim(tmp_path: Path) -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.selectivity",
            "--scale",
            SCALE,
            "--draws",
            str(DRAWS),
            "--data",
            str(tmp_path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    last = json.loads(ran.stdout.splitlines()[-1])
    assert list(last) == ["claim", "figures", "targets", "holds"]
    asked = [f"{question.name}.{data}" for data in ("uniform", "skewed") for question in QUESTIONS]
    assert last["claim"] == "selectivity"
    assert set(last["figures"]) == {f"{name}.{figure}" for name in asked for figure in FIGURES}
    assert last["targets"] == {
        f"{question.name}.{data}.mape_percent": {"at_most": MOST_PERCENT}
        for data in ("uniform", "skewed")
        for question in QUESTIONS
    }
    for name in asked:
        figures = {figure: last["figures"][f"{name}.{figure}"] for figure in FIGURES}
        assert (figures["points"], figures["draws"]) == (POINTS, DRAWS)
        assert figures["mape_percent"] <= figures["worst_draw_mape_percent"]
        assert 0 <= figures["mape_percent"] <= figures["worst_percent"] < figures["duckdb_mape_percent"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"skewed-{SCALE}-42", f"uniform-{SCALE}-42"]
