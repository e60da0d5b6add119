from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.bookstore import TABLES
from benchmarks.describing import BINS, analyze, analyzed, declare, in_force, job_per_column, noop_scan, ours, register
from benchmarks.sides import Pair, Side
from benchmarks.spark_process import Cost, Peak, spark_process
from benchmarks.statistics import ACCURACY, FORMATS, PREDICATES, TPCH_TABLE, Section
from metastore.discovery.inspection import inspect

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 900
SCALE = "0.0001"
ROWS = 20_000
NO_PEAK = Peak(0, 0)


def test_the_ratio_of_some_tables_is_that_of_their_sums() -> None:
    pair = Pair(
        ours=Side({"books": Cost(1.0, 2.0), "customers": Cost(3.0, 3.0)}, {}, NO_PEAK),
        analyze=Side({"books": Cost(10.0, 20.0), "customers": Cost(6.0, 10.0)}, {}, NO_PEAK),
    )
    assert pair.times(["books"]) == pytest.approx(10.0)
    assert pair.times(["books", "customers"]) == pytest.approx(16.0 / 4.0)
    assert pair.times_cpu(["books", "customers"]) == pytest.approx(30.0 / 5.0)


@pytest.mark.spark
@pytest.mark.thorough
def test_each_way_describes_the_table(tmp_path: Path) -> None:
    values = np.random.default_rng(7).integers(0, 1000, ROWS)
    folder = tmp_path / "things"
    folder.mkdir()
    pq.write_table(pa.table({"value": values, "word": [f"w{value % 7}" for value in values]}), folder / "a.parquet")
    source = inspect("things", folder).source
    with spark_process() as process:
        process.call(register, source)
        process.call(declare, source)
        cost = process.timed(ours, source.name)
        statistics = process.call(in_force, source.name)
        process.call(noop_scan, source)
        end_points = process.call(job_per_column, source)
        process.call(analyze, source.name)
        theirs = process.call(analyzed, source)
        peak = process.peak
    assert min(cost.wall_s, cost.cpu_s) > 0
    assert statistics.rows == theirs.rows == ROWS
    assert statistics.columns["word"].ndv == 7
    assert theirs.columns["value"].minimum == values.min()
    histogram = theirs.columns["value"].histogram
    assert histogram is not None
    assert histogram.buckets == BINS
    assert theirs.columns["word"].histogram is None
    assert list(end_points) == ["value"]
    expected = np.sort(values)[np.linspace(0, ROWS - 1, len(end_points["value"])).astype(int)]
    assert np.abs(np.array(end_points["value"]) - expected).max() <= 1000 / BINS * 2
    assert peak.spark_bytes > peak.driver_bytes > 0


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.timeout(TIMEOUT_S + 30)
def test_the_whole_claim(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.statistics", "--scale", SCALE, "--pairs", "1", "--data", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    last = json.loads(ran.stdout.splitlines()[-1])
    figures = last["figures"]
    assert last["claim"] == "statistics"
    assert {name.split(".")[0] for name in figures} == {section.value for section in Section}
    for table in (*TABLES, TPCH_TABLE):
        assert figures[f"speed.{table}.analyze_s"] > 0 < figures[f"speed.{table}.job_per_column_s"]
    judged = ["accuracy.uniform", "accuracy.skewed", "incremental", *(f"formats.{format}" for format in FORMATS)]
    for name in judged:
        for figure, target in ACCURACY.items():
            assert last["targets"][f"{name}.{figure}"] == {"at_most": target.bound}
            assert target.met_by(figures[f"{name}.{figure}"]), f"{name}.{figure}"
    for predicate in PREDICATES:
        assert figures[f"accuracy.skewed.{predicate.column}_mape_percent"] <= predicate.most_percent
    assert last["targets"]["speed.times_analyze"] == {"at_least": 14.0}
    assert "speed.least_times_analyze" not in figures  # no table is large at this scale
