"""What the memory benchmark reads and reckons, on rows of a run and on statements of every form."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.calibrate import fit, mean_error
from benchmarks.claim import RunFailed
from benchmarks.coverage import ORDERS
from benchmarks.memory import LARGE_BYTES, Sizes, arising, figures, learned, predicted, reported, sizes
from benchmarks.peaks import Run, has_only_joins, measured_tree
from benchmarks.statements import Named, read_all, read_statements
from benchmarks.tables import Tables
from engines.duckdb.memory.layout import CALIBRATED
from engines.duckdb.memory.model import estimate
from engines.protocol import Lease, OperatorActual
from selector.cardinality.tree import EstimatedNode
from selector.plan import Operator, PlanColumn, PlanNode
from selector.statistics import TableStatistics
from tests.selector.described import described

QUERIES = Path(__file__).parents[2] / "benchmarks" / "queries"
KEY = PlanColumn("id", "bigint")


def test_the_statements_that_come_along_are_tpch_and_sixty_more() -> None:
    tpch, own = (read_statements(QUERIES / name) for name in ("tpch.sql", "memory.sql"))
    assert [one.name for one in tpch] == [f"tpch-q{number:02}" for number in range(1, 23)]
    assert len(own) == len({one.name for one in own}) == 60
    fitted = [one for one in (*tpch, *own) if one.is_fitted]
    assert 30 <= len(fitted) <= 52
    assert not any(";" in one.sql or one.sql.startswith("--") for one in (*tpch, *own))


def test_statements_are_read_from_json_with_or_without_names(tmp_path: Path) -> None:
    file = tmp_path / "asked.json"
    file.write_text(json.dumps([{"sql": "SELECT 1;"}, {"sql": "SELECT 2", "name": "two"}]))
    assert read_statements(file) == [Named("asked-1", "SELECT 1"), Named("two", "SELECT 2")]
    file.write_text('[{"text": "SELECT 1"}]')
    with pytest.raises(RunFailed, match="no JSON list"):
        read_statements(file)


def test_a_name_may_occur_once(tmp_path: Path) -> None:
    file = tmp_path / "asked.sql"
    file.write_text("-- one\nSELECT 1;\n\nSELECT 2;\n")
    assert read_statements(file) == [Named("one", "SELECT 1"), Named("asked-2", "SELECT 2")]
    with pytest.raises(RunFailed, match="one"):
        read_all([file, file])


def aggregate_over_join() -> PlanNode:
    probe, build = (PlanNode(Operator.SCAN, "SCAN", columns=(KEY,)) for _ in range(2))
    joined = PlanNode(Operator.HASH_JOIN, "JOIN", (probe, build), columns=(KEY, KEY), join_keys=((KEY, KEY),))
    return PlanNode(Operator.AGGREGATE, "GROUP", (joined,), columns=(KEY,), group_keys=(KEY,))


def actuals(*rows: int) -> list[OperatorActual]:
    return [OperatorActual(f"operator {place}", count, place) for place, count in enumerate(rows)]


def test_the_rows_of_a_run_are_put_on_the_plan_parents_first() -> None:
    tree = measured_tree(aggregate_over_join(), actuals(1, 2, 3, 4))
    joined = tree.children[0]
    assert [tree.rows, joined.rows, *(child.rows for child in joined.children)] == [1, 2, 3, 4]


@pytest.mark.parametrize("rows", [(1, 2, 3), (1, 2, 3, 4, 5)])
def test_a_profile_of_another_plan_is_refused(rows: tuple[int, ...]) -> None:
    with pytest.raises(RunFailed, match="operators than its plan"):
        measured_tree(aggregate_over_join(), actuals(*rows))


def test_a_join_that_feeds_few_groups_counts_as_a_join() -> None:
    assert has_only_joins(measured_tree(aggregate_over_join(), actuals(10, 1, 1, 1)))
    assert not has_only_joins(measured_tree(aggregate_over_join(), actuals(1_000_000, 1, 1, 1)))


def run(name: str, build_rows: int, error: float) -> Run:
    tree = measured_tree(aggregate_over_join(), actuals(1, 1_000, 1_000, build_rows))
    expected = estimate(tree, {}, threads=2).peak_bytes
    assert expected is not None
    return Run(Named(name, "SELECT 1"), expected / (1 + error), tree, tree)


TABLES = Tables({}, {})


def test_figures_are_the_errors_of_each_group_in_percent() -> None:
    runs = [run("large", 10_000_000, 0.1), run("larger", 20_000_000, 0.2), run("small", 1_000, 0.6)]
    assert [one.peak_bytes >= LARGE_BYTES for one in runs] == [True, True, False]
    of = figures(predicted(runs, TABLES, 2))
    assert of["true.joins.mape"] == of["ours.large.mape"] == pytest.approx(15.0, abs=0.01)
    assert of["true.all.mape"] == pytest.approx(30.0, abs=0.01)
    assert of["true.all.median"] == pytest.approx(20.0, abs=0.01)
    assert of["true.all.upper_covers_percent"] == 100.0
    assert (of["joins.statements"], of["all.statements"]) == (2, 3)


def test_the_paper_stands_beside() -> None:
    of = figures(predicted([run("large", 10_000_000, 0.0)], TABLES, 2))
    assert of["paper_true.large.mape"] > of["true.large.mape"] == pytest.approx(0.0, abs=0.01)


def test_errors_are_divided_by_what_holds_most_and_into_the_models_and_the_cardinalities() -> None:
    off, exact = run("large", 10_000_000, 0.1), run("larger", 20_000_000, 0.0)
    halved = measured_tree(aggregate_over_join(), actuals(1, 1_000, 1_000, 10_000_000))
    large = [off, Run(exact.statement, exact.peak_bytes, exact.true, halved)]
    (joins,) = arising(predicted([*large, run("small", 1_000, 0.9)], TABLES, 2))
    assert (joins.holder, joins.statements) == ("hash join", 2)
    assert joins.model == pytest.approx(5.0, abs=0.01)
    assert joins.bias == pytest.approx(5.0, abs=0.01)
    assert 15.0 < joins.rows < 30.0  # half of one of two


def test_what_a_run_says_ends_in_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    found = predicted([run("large", 10_000_000, 0.1)], TABLES, 2)
    assert reported(found, Lease(1 << 30)) == figures(found)
    assert "hash join" in capsys.readouterr().out
    with pytest.raises(RunFailed, match="no statement ran"):
        reported([], Lease(1 << 30))


def test_fitting_finds_what_was_changed() -> None:
    runs = [run(str(rows), rows, 0.0) for rows in (1_000_000, 3_000_000)]
    heavier = [Run(one.statement, one.peak_bytes + 5 * CALIBRATED.base_bytes, one.true, one.ours) for one in runs]
    found = fit(heavier, {}, 2)
    assert found.base_bytes > 2 * CALIBRATED.base_bytes
    assert mean_error(heavier, {}, 2, found) < mean_error(heavier, {}, 2, CALIBRATED)


def test_the_bound_is_learned_from_the_statements_before() -> None:
    found = predicted([run(str(place), 1_000_000, place / 100) for place in range(60)], TABLES, 2)
    covered = learned(found, Lease(1 << 30))
    assert covered.factors.size == ORDERS * 60
    assert 90.0 <= covered.percent <= 100.0


def test_what_statistics_take_is_counted_by_what_they_are() -> None:
    table = described(
        pa.table({"k": pa.array(range(500), pa.int64()), "word": [f"word {n % 7}" for n in range(500)]}),
        {"k": "bigint", "word": "string"},
        keys=["k"],
        sample_share=1.0,
        key_share=0.1,
    )
    found = sizes(table)
    assert table.sample is not None
    keys, words = table.sample.columns.values()
    assert keys.nbytes == 500 + 500 * 2  # gaps of one byte, and codes of two
    assert 7 + 500 < words.nbytes < 7 + 7 * len("word 0") + 100 + 500  # lengths, texts, and codes of one byte
    assert found.sample == keys.nbytes + words.nbytes
    assert found.keys == 4 * 8 * table.keys["k"].bins.count
    chosen = table.keys["k"].sample
    assert chosen is not None
    assert 10 < chosen.rows.rows < 100
    assert found.by_key == sum(column.nbytes for column in chosen.rows.columns.values())
    assert found.columns > 0
    assert sizes(TableStatistics("empty", 1, 0, 0)) == Sizes(0, 0, 0, 0)


def test_trees_with_unknown_rows_have_no_error_to_speak_of() -> None:
    unknown = EstimatedNode(aggregate_over_join(), None, "unknown")
    known = run("known", 10_000_000, 0.0)
    of = figures(predicted([Run(known.statement, known.peak_bytes, known.true, unknown)], TABLES, 2))
    assert of["ours.all.mape"] == 100.0
