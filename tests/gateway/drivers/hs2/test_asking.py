"""What tools ask before they do anything, through the real drivers, over a real DuckDB."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore.discovery import inspection
from metastore.records import Database
from sql.tables import Annotations
from tests.gateway.drivers.hs2.conftest import Drivers

hive = pytest.importorskip("pyhive.hive", reason="needs the extra hive")
impala = pytest.importorskip("impala.dbapi", reason="needs the extra impala")

SAID = Annotations("what grows", columns={"id": "its number"})
Ask = Callable[[str], tuple[list[str], list[tuple[Any, ...]]]]


@pytest.fixture(scope="module")
def orchard(bookshop: Drivers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """Add the database ``orchard`` to a bookshop, with ``trees``, partitioned by ``year``, and a view of them."""
    metastore, folder = bookshop.gateway.metastore, tmp_path_factory.mktemp("trees")
    metastore.databases.add(Database("orchard"))
    (folder / "year=2023").mkdir()
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), folder / "year=2023" / "1.parquet")
    metastore.catalog.put(inspection.inspect("orchard.trees", folder), at=dt.datetime.now(dt.UTC))
    metastore.catalog.annotate("orchard.trees", lambda _: SAID)
    with hive.connect(bookshop.host, port=bookshop.port, username="joe") as connection:
        connection.cursor().execute("CREATE VIEW orchard.old_trees AS SELECT id FROM orchard.trees")
    yield bookshop
    metastore.views.remove("orchard.old_trees")
    metastore.catalog.remove("orchard.trees")
    metastore.databases.remove("orchard")


@pytest.fixture
def of_hive(orchard: Drivers) -> Iterator[Ask]:
    with hive.connect(orchard.host, port=orchard.port, username="joe") as connection:
        yield _asking(connection.cursor())


@pytest.fixture
def of_impala(orchard: Drivers) -> Iterator[Ask]:
    with _impalas_cursor(orchard) as cursor:
        yield _asking(cursor)


@contextmanager
def _impalas_cursor(drivers: Drivers) -> Iterator[Any]:
    connection = impala.connect(drivers.host, drivers.port, auth_mechanism="NOSASL", user="joe")
    with closing(connection), closing(connection.cursor(user="joe")) as cursor:
        yield cursor


def _asking(cursor: Any) -> Ask:
    def ask(sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        cursor.execute(sql)
        return [column[0] for column in cursor.description], cursor.fetchall()

    return ask


def test_pyhive_finds_tables_views_and_partition_columns(of_hive: Ask) -> None:
    assert of_hive("SHOW TABLES IN `orchard`")[1] == [("old_trees",), ("trees",)]
    assert of_hive("SHOW VIEWS IN `orchard`")[1] == [("old_trees",)]
    headings, rows = of_hive("DESCRIBE orchard.trees")
    assert headings == ["col_name", "data_type", "comment"]
    names = [row[0] for row in rows]
    assert names == ["id", "year", "", "# Partition Information", "# col_name", "year"]


def test_dbt_for_spark_finds_its_relations(of_hive: Ask) -> None:
    headings, rows = of_hive('/* {"app": "dbt"} */\nshow table extended in orchard like \'*\'')
    assert len(headings) == 4
    assert [row[:3] for row in rows] == [("orchard", "old_trees", False), ("orchard", "trees", False)]
    assert [("Type: VIEW" in row[3]) for row in rows] == [True, False]
    described = of_hive("describe extended orchard.trees")[1]
    assert ("Owner", "-", "") in described


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("show table extended in nowhere like '*'", "[SCHEMA_NOT_FOUND]"),
        ("describe extended orchard.nothing", "[TABLE_OR_VIEW_NOT_FOUND]"),
        ("SELECT * FROM orchard.nothing", "[TABLE_OR_VIEW_NOT_FOUND]"),
    ],
)
def test_dbt_for_spark_learns_what_is_not_there(of_hive: Ask, sql: str, words: str) -> None:
    with pytest.raises(hive.OperationalError) as caught:
        of_hive(sql)
    assert words in str(caught.value)


def test_a_table_of_no_database_is_not_just_a_table_that_is_not_there(of_hive: Ask) -> None:
    with pytest.raises(hive.OperationalError) as caught:
        of_hive("DESCRIBE nowhere.nothing")
    assert "There is no database nowhere" in str(caught.value)
    assert "Table not found" not in str(caught.value)


def test_impalas_clients_find_tables_and_functions(of_impala: Ask) -> None:
    assert of_impala("show tables in orchard") == (["name"], [("old_trees",), ("trees",)])
    assert of_impala("show views  in orchard") == (["name"], [("old_trees",)])
    assert of_impala('show tables in orchard like "trees"')[1] == [("trees",)]
    assert of_impala("SHOW AGGREGATE FUNCTIONS")[1] == []
    headings, rows = of_impala("describe extended orchard.old_trees")
    assert headings == ["name", "type", "comment"]
    assert [row[1].strip() for row in rows if row[0].startswith("Table Type")] == ["VIRTUAL_VIEW"]
    assert any(row[0].startswith("# Detailed Table Information") for row in rows)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("show tables in nowhere", "Database does not exist"),
        ("describe extended orchard.nothing", "Could not resolve path"),
    ],
)
def test_dbt_for_impala_learns_what_is_not_there(of_impala: Ask, sql: str, words: str) -> None:
    with pytest.raises(Exception, match=words):
        of_impala(sql)


def test_comments_are_remarks(orchard: Drivers, of_impala: Ask) -> None:
    with _impalas_cursor(orchard) as cursor:
        cursor.get_tables(database_name="orchard")
        assert {row[2]: row[4] for row in cursor.fetchall()} == {"old_trees": "", "trees": SAID.comment}
    assert of_impala("DESCRIBE orchard.trees")[1][0] == ("id", "bigint", "its number")


def test_an_explanation_has_no_places(of_hive: Ask, orchard: Drivers) -> None:
    headings, rows = of_hive("EXPLAIN EXTENDED SELECT * FROM orchard.old_trees")
    assert headings == ["plan"]
    text = "\n".join(row[0] for row in rows)
    table = orchard.gateway.metastore.catalog.get("orchard.trees")
    assert table is not None
    assert text.startswith("Engine: duckdb")
    assert table.source.location not in text
