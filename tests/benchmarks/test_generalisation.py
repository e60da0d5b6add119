from __future__ import annotations

import datetime as dt
import json
from dataclasses import asdict, replace
from pathlib import Path

import duckdb
import pytest

from benchmarks import generated_data, real_data
from benchmarks.claim import RunFailed
from benchmarks.data_sets import SCHEMA, TABLES, write
from benchmarks.generalisation import KEPT, LOST, Compared, cell, cells_of, claim, compare, data_sets, short, show
from benchmarks.generated_truth import QUERIES, SEED, Asked
from metastore.discovery.inspection import inspect
from metastore.store import Metastore
from selector.statistics import TableStatistics

ROWS, STORES = 300, 7
NOON = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
TRUE = 100.0
ONE = Compared("shop", "1 join", "SELECT 1", TRUE, ours=TRUE, upper=TRUE, postgres=TRUE, duckdb=TRUE, seconds=0.001)


def _off(*factors: float, whose: str) -> list[Compared]:
    return [replace(ONE, **{whose: TRUE * factor}) for factor in factors]  # type: ignore[arg-type]


def test_percentiles_are_of_q_errors() -> None:
    found = cell(_off(0.5, 2.0, 2.0, whose="ours"))
    assert (found.number, found.ours, found.postgres) == (3, (2.0,) * 4, (1.0,) * 4)
    assert found.ratio == found.mean_ratio == pytest.approx(2.0)
    assert found.lost == (True,) * 4


def test_what_is_equal_is_not_lost() -> None:
    assert cell([ONE]).lost == (False,) * 4
    assert cell(_off(1.0001, whose="ours")).lost == (False,) * 4
    assert cell(_off(3.0, whose="postgres")).lost == (False,) * 4


def test_a_percentile_is_lost_on_its_own() -> None:
    most = [*(replace(ONE, postgres=TRUE * 3) for _ in range(9)), replace(ONE, ours=TRUE * 50)]
    assert cell(most).lost == (False, True, True, True)


def test_cells_are_of_each_data_set_and_kind() -> None:
    other = [replace(ONE, data="flights"), replace(ONE, kind="groups"), ONE]
    assert [(data, kind, found.number) for data, kind, found in cells_of([ONE, *other])] == [
        ("shop", "1 join", 2),
        ("shop", "groups", 1),
        ("flights", "1 join", 1),
    ]


def test_the_claim_is_about_every_cell_and_about_joins() -> None:
    good = claim([replace(ONE, postgres=TRUE * 2), replace(ONE, kind="groups", postgres=TRUE * 4)])
    assert good.holds
    assert good.figures["median_ratio"] == pytest.approx((1 / 2 + 1 / 4) / 2)
    lost = claim([*(replace(ONE, postgres=TRUE * 2) for _ in range(9)), replace(ONE, kind="groups", ours=TRUE * 2)])
    assert not lost.holds
    assert (lost.figures["cells"], lost.figures["cells_lost"]) == (8.0, 4.0)
    assert lost.figures["joins_q99"] == 1.0, "groups are no joins"
    assert "joins_q50" not in claim([replace(ONE, kind="window")]).targets


def test_nothing_compared_is_no_claim() -> None:
    with pytest.raises(RunFailed):
        claim([])


def test_the_table_marks_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    show([replace(ONE, ours=TRUE * 2), replace(ONE, kind="groups", postgres=TRUE * 2)], worst=1)
    printed = capsys.readouterr().out
    lines = {line.split("│")[1].strip(): line for line in printed.splitlines() if line.startswith("│")}
    assert lines["1 join"].count(LOST) == 4
    assert LOST not in lines["groups"]
    assert "farthest from the truth on shop" in printed
    assert "joins overall" in lines
    assert "all" in lines


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.00"), (9.994, "9.99"), (9.996, "10"), (123.4, "123"), (999.6, "1k"), (1_234.0, "1.23k"), (4.2e6, "4.2M")],
)
def test_a_short_number(value: float, text: str) -> None:
    assert short(value) == text


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Give a data set of two tables."""
    tables = {
        "stores": f"SELECT i AS store, 'store ' || i AS name FROM range({STORES}) t(i)",
        "orders": f"SELECT i AS id, i % {STORES} AS store FROM range({ROWS}) t(i)",
    }
    write(tmp_path / "shop", tables, ["orders(store) = stores(store)"])
    return tmp_path / "shop"


def test_a_data_sets_statements_are_compared_with_statistics_that_were_kept(shop: Path, tmp_path: Path) -> None:
    asked = [
        Asked("SELECT a.id FROM orders a", ROWS, "one predicate", postgres=ROWS * 2.0),
        Asked("SELECT a.id FROM orders a, stores b", ROWS * STORES, "many-to-many", postgres=1.0),
        Asked("SELECT count(*) FROM orders a", ROWS, "constant on key", postgres=1.0),  # DuckDB's plan is a constant
        Asked("SELECT count(*) FROM stores a", STORES, "one predicate", postgres=None),
    ]
    (shop / QUERIES).write_text(json.dumps([asdict(one) for one in asked]), encoding="utf-8")
    kept = tmp_path / "cache" / f"shop-{SEED}"
    kept.mkdir(parents=True)
    with Metastore(f"sqlite:///{kept / 'metastore.db'}") as metastore:
        for name, rows in (("stores", STORES), ("orders", ROWS)):
            metastore.catalog.put(inspect(name, shop / TABLES / f"{name}.parquet"), at=NOON)
            metastore.statistics.publish(TableStatistics(name, version=1, rows=rows, bytes=rows), at=NOON)
    (kept / KEPT).touch()
    found = compare(shop, SEED, tmp_path / "cache")
    assert [(one.data, one.kind, one.true, one.ours, one.postgres) for one in found] == [
        ("shop", "one predicate", ROWS, ROWS, ROWS * 2.0),
        ("shop", "many-to-many", ROWS * STORES, ROWS * STORES, 1.0),
        ("shop", "constant on key", ROWS, ROWS, 1.0),
    ]
    assert found[0].duckdb == ROWS


def test_data_sets_that_are_there_are_taken(shop: Path) -> None:
    (shop.parent / "no data set").mkdir()
    assert data_sets(shop.parent, ()) == [shop]
    with pytest.raises(RunFailed, match="holds no other"):
        data_sets(shop.parent, ["other"])


def test_a_named_one_is_made(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = generated_data.Knobs(seed=11, rows=1_000)
    monkeypatch.setattr(generated_data.Knobs, "drawn", lambda seed: replace(small, seed=seed))
    (made,) = data_sets(shop.parent, ["made-11"])
    assert json.loads((made / SCHEMA).read_text(encoding="utf-8"))["knobs"]["seed"] == small.seed


@pytest.mark.parametrize("name", real_data.DATA)
def test_real_data_join_tables_that_they_have(name: str) -> None:
    data = real_data.DATA[name]
    assert data.packages
    for join in data.joins:
        for side in join.split(" = "):
            assert side.partition("(")[0] in data.tables, join


def test_a_data_set_is_written_with_plain_names_and_moments(tmp_path: Path) -> None:
    moment = "TIMESTAMPTZ '2024-06-01 12:00:00+02' AS \"At\""
    write(tmp_path / "one", {"first": f'SELECT 1 AS "playerID", {moment}', "second": "SELECT playerid FROM first"}, [])
    with duckdb.connect() as connection:
        rows = connection.execute(f"FROM '{tmp_path / 'one' / TABLES / 'first.parquet'}'")
        assert [column[0] for column in rows.description or ()] == ["playerid", "at"]
        assert str(rows.fetchall()[0][1]) == "2024-06-01 10:00:00"
    assert json.loads((tmp_path / "one" / SCHEMA).read_text(encoding="utf-8")) == {"joins": []}
