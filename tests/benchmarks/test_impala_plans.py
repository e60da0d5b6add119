from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.claim import RunFailed
from benchmarks.impala_plans import FOLDERS, run

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
SHARED = """\
F00:PLAN FRAGMENT [RANDOM] hosts=1 instances=2 (adjusted from 12)
max-parallelism=2 segment-costs=[100]
02:HASH JOIN [INNER JOIN, BROADCAST]
|  hash-table-id=00
|  hash predicates: s.book_id = b.id
|  mem-estimate=0B mem-reservation=0B spill-buffer=2.00MB thread-reservation=0
|  tuple-ids=0,1 row-size=44B cardinality=1.00M cost=9
|
|--F01:PLAN FRAGMENT [RANDOM] hosts=1 instances=1
|  JOIN BUILD
|  |  join-table-id=00 plan-id=01 cohort-id=01
|  |  mem-estimate=68.00MB mem-reservation=68.00MB spill-buffer=2.00MB thread-reservation=0 cost=9
|  |
|  03:EXCHANGE [BROADCAST]
|  |  tuple-ids=1 row-size=28B cardinality=1.00M cost=9
|  |
|  01:SCAN HDFS [shop.books b, RANDOM]
|     tuple-ids=1 row-size=28B cardinality=1.00M cost=9
|
00:SCAN HDFS [shop.sales s, RANDOM]
   tuple-ids=0 row-size=16B cardinality=1.00M cost=9"""
TESTS = """\
# What a test says of itself
select 1
---- PLAN
{first}
---- DISTRIBUTEDPLAN
{second}
---- PARALLELPLANS
NotImplementedException: Scan of table 'shop.books' is not supported
====
select 2
---- QUERYOPTIONS
mt_dop=2
---- PLAN
what no planner prints
---- SCANRANGELOCATIONS
00:SCAN HDFS [elsewhere]
====
---- QUERY
# Explains
set explain_level=1;
explain
select 3
---- RESULTS: VERIFY_IS_EQUAL
'PLAN-ROOT SINK'
'|'
'00:SCAN HDFS [shop.books]'
'   row-size=8B cardinality=10'
====
---- QUERY
explain select 4
---- RESULTS: VERIFY_IS_EQUAL
'00:SCAN HDFS [shop.books]'
row_regex:.*cardinality=.*
====
---- QUERY
select 5
---- RESULTS
'00:SCAN HDFS [shop.books]'
====
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


def test_plans_of_impalas_tests_are_counted_by_folder_and_planner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new" / "costs").mkdir(parents=True)
    join = JOIN.format(estimate=f"{PRINTED_MIB:.2f}MB")
    text = TESTS.format(first=join, second="00:SCAN HDFS [shop.books]")
    (tmp_path / "old" / "a.test").write_text(text)
    (tmp_path / "new" / "costs" / "b.test").write_text(f"select 1\n---- PLAN\n{SHARED}\n")
    (tmp_path / "new" / "costs" / "c.plan").write_text("no test")

    claim = run(tests=tmp_path)

    assert (claim.figures["plans"], claim.figures["parsed"]) == (5, 4)
    assert claim.figures["joins"] == 2
    assert claim.figures["joins_within_2_percent"] == 100.0
    assert claim.figures["rows_known_percent"] == 100.0
    assert claim.figures["exchanges_consistent_percent"] == 100.0
    shown = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.strip("│\n").split("│")] for line in shown.splitlines() if "│" in line]
    assert ["new/costs", "1/1", "100.0", "1/1", "100.0"] in rows
    assert ["old", "3/4", "75.0", "1/1", "100.0"] in rows
    assert ["classic, costed", "1/1", "100.0", "1/1", "100.0"] in rows
    assert ["classic", "1/1", "100.0", "1/1", "100.0"] in rows
    assert ["either front end", "2/2", "100.0", "0/0", "100.0"] in rows
    line = text.splitlines().index("what no planner prints") + 1
    assert f"not read: old/a.test:{line}: line 1:" in shown


def test_the_memory_of_a_host_bounds_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.plan").write_text(JOIN.format(estimate="40.00MB"))

    assert run(tmp_path).figures["joins_within_2_percent"] == 0.0
    assert run(tmp_path, host_memory="40.00MB").figures["joins_within_2_percent"] == 100.0


def test_small_folders_are_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(FOLDERS + 2):
        (tmp_path / f"folder{number:02}").mkdir()
        for copy in range(2 if number < FOLDERS else 1):
            (tmp_path / f"folder{number:02}" / f"{copy}.plan").write_text("00:SCAN HDFS [shop.books]\n")

    run(tmp_path)

    shown = capsys.readouterr().out
    assert f"folder{FOLDERS - 1:02}" in shown
    assert f"folder{FOLDERS:02}" not in shown
    assert "others" in shown


def test_plans_without_resources_claim_nothing_about_joins(tmp_path: Path) -> None:
    (tmp_path / "a.plan").write_text("00:SCAN HDFS [shop.books]\n")

    claim = run(tmp_path)

    assert claim.figures["joins"] == 0
    assert set(claim.targets) == {"parsed_percent"}
    assert claim.holds


def test_a_folder_without_plans_is_a_failed_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"no \*\.plan"):
        run(tmp_path)
    with pytest.raises(RunFailed, match=r"no plan in \.test files"):
        run(tests=tmp_path)


def test_a_size_that_is_none_is_a_failed_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="plenty is no size"):
        run(tmp_path, host_memory="plenty")


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
