from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.claim import RunFailed
from benchmarks.impala_plans import run

JOIN = """\
02:HASH JOIN [INNER JOIN]
|  hash predicates: s.book_id = b.id
|  mem-estimate={estimate} mem-reservation=1.94MB spill-buffer=64.00KB thread-reservation=0
|  tuple-ids=0,1 row-size=44B cardinality=1.00M
|
|--01:SCAN HDFS [shop.books b]
|     mem-estimate=16.00MB mem-reservation=512.00KB thread-reservation=0
|     tuple-ids=1 row-size=28B cardinality=1.00M
|
00:SCAN HDFS [shop.sales s]
   mem-estimate=16.00MB mem-reservation=512.00KB thread-reservation=0
   tuple-ids=0 row-size=16B cardinality=1.00M
"""
ROWS, WIDTH, BUCKETS, MIB = 1_000_000, 28, 1 << 21, 1 << 20
PRINTED_MIB = (ROWS * WIDTH + BUCKETS * 12) / MIB


def test_joins_that_agree_and_plans_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    for number, off in enumerate((1.0, 1.01, 0.97)):
        (tmp_path / f"{number}.plan").write_text(JOIN.format(estimate=f"{PRINTED_MIB * off:.2f}MB"))
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "plan.txt").write_text("SELECT 1")
    (tmp_path / "deeper" / "notes.txt").write_text("not a plan, nor named like one")

    claim = run(tmp_path)

    assert (claim.figures["plans"], claim.figures["parsed"]) == (4, 3)
    assert claim.figures["parsed_percent"] == 75.0
    assert claim.figures["joins"] == claim.figures["joins_above_floor"] == 3
    assert claim.figures["joins_within_2_percent"] == pytest.approx(200 / 3)
    assert not claim.holds


def test_plans_without_resources_claim_nothing_about_joins(tmp_path: Path) -> None:
    (tmp_path / "a.plan").write_text("00:SCAN HDFS [shop.books]\n")

    claim = run(tmp_path)

    assert claim.figures["joins"] == 0
    assert set(claim.targets) == {"parsed_percent"}
    assert claim.holds


def test_a_folder_without_plans_is_a_failed_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"no \*\.plan"):
        run(tmp_path)


def test_the_command_ends_with_the_claim(tmp_path: Path) -> None:
    (tmp_path / "a.plan").write_text(JOIN.format(estimate=f"{PRINTED_MIB:.2f}MB"))

    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.impala_plans", "--plans", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )

    claim = json.loads(done.stdout.splitlines()[-1])
    assert claim["claim"] == "impala_plans"
    assert claim["holds"] is True
    assert "plans read: 1/1" in done.stdout
