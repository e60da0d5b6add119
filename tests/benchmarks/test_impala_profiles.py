from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.claim import RunFailed
from benchmarks.impala_profiles import run

MIB = 1 << 20
PLAN = """\
Max Per-Host Resource Reservation: Memory=20.00MB Threads=4
Per-Host Resource Estimates: Memory=200MB

F00:PLAN FRAGMENT [UNPARTITIONED] hosts=1 instances=1
|  Per-Host Resources: mem-estimate=200.00MB mem-reservation=20.00MB thread-reservation=1
PLAN-ROOT SINK
|  output exprs: id
|  mem-estimate=4.00MB mem-reservation=4.00MB spill-buffer=2.00MB thread-reservation=0
|
01:SORT
|  order by: id ASC
|  mem-estimate=6.00MB mem-reservation=6.00MB spill-buffer=2.00MB thread-reservation=0
|  tuple-ids=1 row-size=16B cardinality=10
|
00:SCAN HDFS [shop.books]
   HDFS partitions=1/1 files=1 size=3.00KB
   mem-estimate=16.00MB mem-reservation=8.00KB thread-reservation=0
   tuple-ids=0 row-size=16B cardinality=10
"""
SUMMARY = """\
Operator       #Hosts  #Inst  Avg Time  Max Time   #Rows  Est. #Rows  Peak Mem  Est. Peak Mem  Detail
-------------------------------------------------------------------------------------------------------
F00:ROOT            1      1   1.000ms   1.000ms                        4.01 MB        4.00 MB
01:SORT             1      1   2.000ms   2.000ms  10.00M          10  158.00 MB        6.00 MB
00:SCAN HDFS        1      1   1s200ms   1s200ms  10.00M          10   16.00 KB       16.00 MB  shop.books
"""
SORTED_MIB = 10_000_000 * 16 / MIB  # beyond the 6 MiB that it reserves
SPOOLED_MIB = 100 - 4  # the result waits to be fetched
EXPECTED_MIB = 20 + (SORTED_MIB - 6) + SPOOLED_MIB


def profile(folder: Path, name: str, **meta: str) -> None:
    (folder / name).mkdir()
    (folder / name / "plan.txt").write_text(PLAN)
    (folder / name / "execsummary.txt").write_text(SUMMARY)
    (folder / name / "meta.json").write_text(json.dumps(meta))


def measured(mib: float) -> dict[str, str]:
    return {
        "Estimated Per-Host Mem": str(400 * MIB),
        "Per Node Peak Memory Usage": f"a:27000({mib / 2:.2f} MB) b:27000({mib:.2f} MB)",
    }


def test_peaks_come_from_the_rows_of_the_run(tmp_path: Path) -> None:
    profile(tmp_path, "one", **measured(EXPECTED_MIB))

    claim = run(tmp_path)

    assert claim.figures["profiles"] == 1
    assert claim.figures["median_percent"] < 2.0  # whole pages, and batches on their way
    assert claim.figures["impala_median_percent"] == pytest.approx(100 * (400 / EXPECTED_MIB - 1), abs=0.1)
    assert claim.holds


def test_the_fullest_host_counts_and_a_wrong_peak_misses_the_target(tmp_path: Path) -> None:
    profile(tmp_path, "one", **measured(EXPECTED_MIB / 2))

    claim = run(tmp_path)

    assert claim.figures["median_percent"] == pytest.approx(100, abs=4)
    assert claim.figures["upper_covers_percent"] == 100.0
    assert not claim.holds


def test_a_profile_as_impala_writes_it_is_read_too(tmp_path: Path) -> None:
    sections = [
        "Query (id=1:2):",
        "    Plan: ",
        "----------------",
        PLAN + "----------------",
        f"    Estimated Per-Host Mem: {400 * MIB}",
        f"    Per Node Peak Memory Usage: b:27000({EXPECTED_MIB:.2f} MB) ",
        "    ExecSummary: ",
        SUMMARY,
        "    Planner Timeline: 1ms",
    ]
    (tmp_path / "query_profile.txt").write_text("\n".join(sections))

    assert run(tmp_path).figures["median_percent"] < 2.0


def test_what_lacks_a_measured_peak_is_left_out_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile(tmp_path, "good", **measured(EXPECTED_MIB))
    profile(tmp_path, "unmeasured", **{"Estimated Per-Host Mem": "1"})
    (tmp_path / "est_vs_actual.json").write_text("[]")

    assert run(tmp_path).figures["profiles"] == 1
    assert "left out: unmeasured" in capsys.readouterr().out


def test_a_folder_without_runs_is_a_failed_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="no run"):
        run(tmp_path)
