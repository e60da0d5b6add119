"""Views over a real DuckDB: what their queries mean, whatever statement they stand in."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.duckdb.engine import DuckDBEngine
from gateway.errors import SessionFull
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.security.principals import Principal
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.settings import load
from gateway.statements.session import LARGEST_BYTES, LARGEST_SETTINGS, LONGEST_VALUE, Session
from gateway.statements.statement import Statement
from metastore.discovery.inspection import inspect
from metastore.records import QueryRecord, QueryState
from sql import parsing
from sql.errors import NotAllowed, SqlError, StatementTooDeep, TableUnreadable, UnknownTable
from sql.tables import Column, View
from sql.views import DEEPEST_VIEWS, MOST_VIEWS, temporary_in, visible_views

LIMIT = 256 << 20
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class House:
    """A gateway over DuckDB with the table ``a``: ids 1 to 3."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    def ended(self, sql: str, **fields: Any) -> QueryRecord:
        return self.gateway.coordinator.submit(Statement(sql=sql, **fields)).done.result(timeout=60)

    def rows(self, sql: str, **fields: Any) -> list[tuple[Any, ...]]:
        record = self.ended(sql, **fields)
        assert record.state is QueryState.FINISHED, record.error
        page = self.gateway.spool.page(record.id, max_rows=1_000)
        return [tuple(row.values()) for row in pa.Table.from_batches(page.batches, page.schema).to_pylist()]

    def failed(self, sql: str, **fields: Any) -> str:
        record = self.ended(sql, **fields)
        assert record.state is QueryState.FAILED
        assert record.error is not None
        return record.error.code

    def session(self) -> Session:
        return Session(Principal("ann"), deadline_s=60)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("views")
    engine = DuckDBEngine(workers=1, threads=1)
    entries = [EngineEntry(engine, limit_bytes=LIMIT)]
    settings = load(folder / "home")
    gateway = wiring.assemble(settings, EngineRegistry(entries))
    (folder / "a").mkdir()
    pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int64())}), folder / "a" / "1.parquet")
    gateway.metastore.catalog.put(inspect("a", folder / "a"), at=dt.datetime.now(dt.UTC))
    gateway.catalog.current()
    yield gateway
    gateway.coordinator.stop(grace_s=10)
    gateway.planners.close()
    gateway.metastore.close()
    engine.close()


@pytest.fixture
def house(gateway: Gateway) -> Iterator[House]:
    yield House(gateway)
    for view in gateway.metastore.views.list():
        gateway.metastore.views.remove(view.name)


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ("WITH a AS (SELECT 1 AS id) SELECT count(*) FROM v", 3),
        ("WITH a AS (SELECT 7 AS id) SELECT count(*) FROM v JOIN a ON v.id < a.id", 3),
        ("WITH A AS (SELECT 7 AS id) SELECT max(A.id) FROM v JOIN A ON true JOIN a x ON x.id = A.id", 7),
        ("SELECT count(*) FROM (WITH a AS (SELECT 1 AS id) SELECT * FROM v) s", 3),
        ("WITH a AS (SELECT 1 AS id), a_1 AS (SELECT 2 AS id) SELECT count(*) + max(a.id) FROM v, a, a_1", 4),
        ("WITH a AS (SELECT 1 AS id) SELECT count(*) FROM default.a", 3),
        ("WITH a AS (SELECT id FROM a WHERE id > 1) SELECT count(*) FROM a", 2),
    ],
)
def test_no_expression_of_a_statement_captures_a_table(house: House, sql: str, count: int) -> None:
    house.rows("CREATE VIEW v AS SELECT id FROM a")
    assert house.rows(sql) == [(count,)]


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ("WITH v AS (SELECT id FROM v WHERE id = 1) SELECT count(*) FROM v", 1),
        ("SELECT (SELECT count(*) FROM (WITH v AS (SELECT 1 AS id) SELECT * FROM v) s) + count(*) FROM v", 4),
        ("WITH w AS (SELECT id FROM v), v AS (SELECT 1 AS id) SELECT count(*) FROM w", 3),
        ("WITH v AS (SELECT 1 AS id), w AS (SELECT id FROM v) SELECT count(*) FROM w", 1),
        ("WITH v AS (SELECT 1 AS id) SELECT count(*) FROM default.v", 3),
    ],
)
def test_an_expression_hides_a_view_only_where_it_is_seen(house: House, sql: str, count: int) -> None:
    house.rows("CREATE VIEW v AS SELECT id FROM a")
    assert house.rows(sql) == [(count,)]


def test_an_expression_inside_a_view_is_its_own(house: House) -> None:
    house.rows("CREATE VIEW v AS WITH a AS (SELECT 7 AS id) SELECT a.id FROM a")
    house.rows("CREATE VIEW w AS SELECT id FROM a")
    assert house.rows("SELECT max(v.id) AS v, max(w.id) AS w, max(a.id) AS a FROM v, w, a") == [(7, 3, 3)]


def test_a_temporary_view_does_not_change_everybodys(house: House) -> None:
    session = house.session()
    house.rows("CREATE VIEW v AS SELECT id FROM a")
    house.rows("CREATE VIEW w AS SELECT id FROM v")
    house.rows("CREATE TEMPORARY VIEW a AS SELECT 7 AS id", session=session)
    assert house.rows("SELECT id FROM a", session=session) == [(7,)]
    assert house.rows("SELECT count(*) FROM w", session=session) == [(3,)]
    house.rows("CREATE TEMPORARY VIEW v AS SELECT 8 AS id", session=session)
    assert house.rows("SELECT v.id, count(*) FROM w, v GROUP BY v.id", session=session) == [(8, 3)]
    assert house.rows("SELECT count(*) FROM default.v", session=session) == [(3,)]


def test_a_temporary_view_stands_over_what_it_hides(house: House) -> None:
    session = house.session()
    house.rows("CREATE VIEW v AS SELECT id FROM a WHERE id > 1")
    house.rows("CREATE TEMPORARY VIEW a AS SELECT id * 10 AS id FROM a", session=session)
    house.rows("CREATE TEMPORARY VIEW v AS SELECT id * 100 AS id FROM v", session=session)
    assert house.rows("SELECT min(id) FROM a", session=session) == [(10,)]
    assert house.rows("SELECT min(id) FROM v", session=session) == [(200,)]
    house.rows("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT id + 1 AS id FROM v", session=session)
    assert house.rows("SELECT min(id) FROM v", session=session) == [(3,)]  # over everybody's, not over itself


def test_a_view_that_stays_cannot_stand_over_a_temporary_one(house: House) -> None:
    session = house.session()
    house.rows("CREATE TEMPORARY VIEW mine AS SELECT 1 AS id", session=session)
    with pytest.raises(NotAllowed, match="mine is a temporary view") as caught:
        house.ended("CREATE VIEW p AS\nSELECT * FROM mine", session=session)
    assert caught.value.position is not None
    assert (caught.value.position.line, caught.value.position.column) == (2, 15)
    house.rows("CREATE VIEW p AS WITH mine AS (SELECT 2 AS id) SELECT * FROM mine", session=session)
    assert house.rows("SELECT * FROM p") == [(2,)]


def test_a_view_in_a_dialect_that_is_not_read_any_more_says_so(house: House) -> None:
    view = View("halves", "SELECT id / 2 AS half FROM a", "trino", (Column("half", "bigint"),))
    house.gateway.metastore.views.put(view, at=NOW, replace=False)
    house.rows("SHOW TABLES")
    with pytest.raises(
        TableUnreadable, match="halves cannot be used: its dialect trino is none of spark, hive, impala"
    ):
        house.ended("SELECT half FROM halves")
    house.rows("CREATE OR REPLACE VIEW halves AS SELECT id DIV 2 AS half FROM a")
    assert house.rows("SELECT half FROM halves ORDER BY half") == [(0,), (1,), (1,)]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("VALUES (1), (2)", [(1,), (2,)]),
        ("VALUES (1), (2);", [(1,), (2,)]),
        ("SELECT 1 AS n UNION ALL SELECT 2", [(1,), (2,)]),
    ],
)
def test_a_view_of_values(house: House, query: str, rows: list[tuple[int]]) -> None:
    house.rows(f"CREATE VIEW w AS {query}")
    assert sorted(house.rows("SELECT * FROM w")) == rows
    assert sorted(house.rows("SELECT x.* FROM w AS x")) == rows


def test_a_view_of_values_in_brackets_with_names(house: House) -> None:
    house.rows("CREATE VIEW w (n) AS (VALUES (1), (2))")
    assert house.rows("SELECT max(n) FROM w") == [(2,)]


@pytest.mark.parametrize(
    ("sql", "temporary"),
    [
        ("SELECT * FROM mine", True),
        ("SELECT 1 FROM a WHERE EXISTS (SELECT 1 FROM Mine)", True),
        ("WITH mine AS (SELECT * FROM mine) SELECT * FROM mine", True),
        ("WITH RECURSIVE mine AS (SELECT 1 AS n UNION ALL SELECT n FROM mine) SELECT * FROM mine", False),
        ("WITH mine AS (SELECT 1) SELECT * FROM a, (SELECT * FROM mine) s", False),
        ("SELECT * FROM default.mine", False),
    ],
)
def test_temporary_views_are_found_by_scope(house: House, sql: str, temporary: bool) -> None:
    session = house.session()
    house.rows("CREATE TEMPORARY VIEW mine AS SELECT 1 AS id", session=session)
    tree, _ = parsing.parse(sql, "spark", parsing.ParserLimits())
    assert (temporary_in(tree, visible_views({}, session.views)) is not None) is temporary


def test_views_have_bounds(house: House) -> None:
    house.rows("CREATE VIEW v0 AS SELECT id FROM a")
    for number in range(1, DEEPEST_VIEWS):
        view = View(f"v{number}", f"SELECT id FROM v{number - 1}", "spark", (Column("id", "bigint"),))
        house.gateway.metastore.views.put(view, at=NOW, replace=False)
    assert house.rows(f"SELECT count(*) FROM v{DEEPEST_VIEWS - 1}") == [(3,)]
    house.rows(f"CREATE VIEW too_deep AS SELECT id FROM v{DEEPEST_VIEWS - 1}")
    with pytest.raises(StatementTooDeep, match="20 deep"):
        house.ended("SELECT * FROM too_deep")
    many = " UNION ALL ".join(["SELECT id FROM v0"] * (MOST_VIEWS + 1))
    with pytest.raises(StatementTooDeep, match="200 times"):
        house.ended(many)


def test_views_in_a_circle(house: House) -> None:
    house.rows("CREATE VIEW x AS SELECT 1 AS n")
    house.rows("CREATE VIEW y AS SELECT * FROM x")
    with pytest.raises(UnknownTable):
        house.ended("CREATE OR REPLACE VIEW x AS SELECT * FROM y")
    assert house.rows("SELECT * FROM y") == [(1,)]


def test_a_session_holds_a_bounded_size_of_views_and_settings(house: House) -> None:
    session = house.session()
    words = "x" * (LARGEST_BYTES // 5)
    view = "CREATE OR REPLACE TEMP VIEW long_{} AS SELECT '{}' AS words"
    for number in range(4):
        house.rows(view.format(number, words), session=session)
    assert house.failed(view.format(4, words), session=session) == "SESSION_FULL"
    house.rows(view.format(3, words), session=session)  # in place of itself
    for number in range(10):
        house.rows(f"SET some.option.{number} = {words[: LONGEST_VALUE // 2]}", session=session)
    with pytest.raises(SessionFull, match="4 MiB at most; RESET or drop some"):
        for number in range(LARGEST_SETTINGS):
            session.set(f"option {number}", words[: LONGEST_VALUE // 2])
    house.rows("DROP VIEW long_0", session=session)
    session.set("another option", words[: LONGEST_VALUE // 2])
    session.reset()
    for number in range(LARGEST_SETTINGS):
        session.set(f"option {number}", "1")
    session.set("option 0", "2")
    with pytest.raises(SessionFull, match="1,000 settings at most"):
        session.set("one more", "1")


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("CREATE VIEW a AS SELECT 1 AS a", "TABLE_EXISTS"),
        ("CREATE VIEW v AS SELECT nothing FROM a", "UNKNOWN_COLUMN"),
        ("CREATE VIEW v AS SELECT * FROM v", "UNKNOWN_TABLE"),
        ("CREATE VIEW v AS SELECT 1 AS a; DROP TABLE a", "NOT_ALLOWED"),
        ("CREATE VIEW v (a, a) AS SELECT 1, 2", "NOT_ALLOWED"),
        ("CREATE VIEW v AS DROP TABLE a", "NOT_ALLOWED"),
        ("CREATE GLOBAL TEMPORARY VIEW v AS SELECT 1 AS a", "NOT_ALLOWED"),
        ("DROP VIEW a", "UNKNOWN_TABLE"),
    ],
)
def test_views_that_are_refused(house: House, sql: str, error: str) -> None:
    with pytest.raises(SqlError) as caught:
        house.ended(sql)
    assert caught.value.code == error
    assert house.rows("SELECT count(*) FROM a") == [(3,)]


@pytest.mark.parametrize(("columns", "query"), [("(a)", "SELECT 1, 2"), ("", "SELECT 1 AS a, 2 AS A")])
def test_views_whose_columns_do_not_fit(house: House, columns: str, query: str) -> None:
    assert house.failed(f"CREATE VIEW v {columns} AS {query}") == "STATEMENT_ERROR"
    assert house.rows("SHOW TABLES") == [("a",)]


def test_a_view_may_name_the_columns_that_its_star_gives(house: House) -> None:
    house.rows("CREATE VIEW starred (`id` COMMENT 'the key') AS SELECT * FROM a")
    assert house.rows("SELECT id FROM starred ORDER BY id") == [(1,), (2,), (3,)]
    assert house.rows("DESCRIBE starred")[0] == ("id", "bigint", "the key")
    for name in ("other", "ID", "`o``t h`"):
        house.rows(f"CREATE OR REPLACE VIEW starred ({name}) AS WITH w AS (SELECT * FROM a) SELECT * FROM w -- all")
        assert house.rows(f"SELECT {name} FROM starred ORDER BY {name}") == [(1,), (2,), (3,)]
        assert house.rows("DESCRIBE starred")[0][0] == name.strip("`").replace("``", "`")
    assert house.failed("CREATE OR REPLACE VIEW starred (id, id2) AS SELECT * FROM a") == "STATEMENT_ERROR"
    house.rows("DROP VIEW starred")
