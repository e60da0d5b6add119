"""SHOW, DESCRIBE and EXPLAIN over a real DuckDB: rows and headings as clients of each dialect read them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.commands.classification import read_command
from gateway.commands.ddl.tables import CreateTable
from gateway.commands.grammar.reader import Context
from gateway.commands.registry import FAMILIES
from gateway.security.principals import Principal, Role
from metastore.discovery.inspection import inspect
from metastore.records import Inspection, ManagedFolder
from sql.errors import AccessDenied
from sql.names import Naming
from sql.parsing import ParserLimits
from sql.tables import Annotations, Column, PartitionBy, TableSource
from tests.gateway.commands.test_databases import refused
from tests.gateway.commands.test_views import House, gateway

__all__ = ["gateway"]

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
YEARS = (2019, 2020)
ROWS_A_YEAR = 2
HIVES_COLUMNS = ["col_name", "data_type", "comment"]
IMPALAS_COLUMNS = ["name", "type", "comment"]
TOLD = Annotations("what is\nsold\nType: VIEW", {"made.by": "it's me", "Provider": "delta"}, {"id": "the `number`"})


@pytest.fixture
def house(gateway: object, tmp_path: Path) -> Iterator[House]:
    """Add ``sales.s`` to a house, partitioned by year and shop, with what people say of it, and views."""
    house = House(gateway)  # type: ignore[arg-type]
    house.rows("CREATE DATABASE sales COMMENT 'what is sold' WITH DBPROPERTIES ('since' = '2020', 'a' = '1')")
    for year in YEARS:
        folder = tmp_path / "s" / f"year={year}" / "shop=x y"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": pa.array(range(ROWS_A_YEAR), pa.int64())}), folder / "1.parquet")
    catalog = house.gateway.metastore.catalog
    catalog.put(inspect("sales.s", tmp_path / "s"), at=NOW)
    catalog.annotate("sales.s", lambda _: TOLD)
    house.rows("CREATE VIEW sales.v (k) AS SELECT id FROM s", database="sales")
    yield house
    for view in house.gateway.metastore.views.list():
        house.gateway.metastore.views.remove(view.name)
    catalog.remove("sales.s")
    house.gateway.metastore.databases.remove("sales")


def answered(house: House, sql: str, dialect: str = "spark", **fields: Any) -> tuple[list[str], list[tuple[Any, ...]]]:
    record = house.ended(sql, dialect=dialect, **fields)
    assert record.error is None, record.error
    page = house.gateway.spool.page(record.id, max_rows=1_000)
    return page.schema.names, house.rows(sql, dialect=dialect, **fields)


@pytest.mark.parametrize(
    ("sql", "spark", "hive", "impala"),
    [
        ("SHOW DATABASES", ["namespace"], ["database_name"], ["name", "comment"]),
        ("SHOW TABLES", ["tab_name"], ["tab_name"], ["name"]),
        ("SHOW VIEWS", ["tab_name"], ["tab_name"], ["name"]),
        ("SHOW COLUMNS IN a", ["col_name"], ["field"], ["col_name"]),
        ("DESCRIBE a", HIVES_COLUMNS, HIVES_COLUMNS, IMPALAS_COLUMNS),
        ("DESCRIBE a id", ["info_name", "info_value"], HIVES_COLUMNS, IMPALAS_COLUMNS),
        ("SHOW TBLPROPERTIES a", ["key", "value"], ["prpt_name", "prpt_value"], ["key", "value"]),
        ("SHOW CREATE TABLE a", ["createtab_stmt"], ["createtab_stmt"], ["result"]),
        ("SHOW FUNCTIONS", ["function"], ["tab_name"], ["return type", "signature", "binary type", "is persistent"]),
        ("DESCRIBE FUNCTION abs", ["function_desc"], ["tab_name"], ["function_desc"]),
        ("EXPLAIN SELECT 1", ["plan"], ["Explain"], ["Explain String"]),
        ("SHOW CURRENT ROLES", ["role"], ["role"], ["role_name"]),
    ],
)
def test_headings_are_those_of_the_dialect(
    house: House, sql: str, spark: list[str], hive: list[str], impala: list[str]
) -> None:
    assert [answered(house, sql, dialect)[0] for dialect in ("spark", "hive", "impala")] == [spark, hive, impala]


def test_views_are_listed_with_tables_and_alone(house: House) -> None:
    session = house.session()
    house.rows("CREATE TEMPORARY VIEW own AS SELECT 1 AS one", session=session)
    assert house.rows("SHOW TABLES IN sales") == [("s",), ("v",)]
    assert house.rows("SHOW VIEWS IN sales") == [("v",)]
    assert house.rows("SHOW VIEWS IN sales LIKE 'x*|V'") == [("v",)]
    assert house.rows("SHOW VIEWS", session=session) == [("own",)]
    assert house.rows("SHOW VIEWS") == []


def test_a_table_in_full_is_what_dbt_reads(house: House) -> None:
    session = house.session()
    house.rows("CREATE TEMPORARY VIEW own AS SELECT 1 AS one", session=session)
    headings, rows = answered(house, "show table extended in sales like '*'", session=session)
    assert headings == ["namespace", "tableName", "isTemporary", "information"]
    assert [row[:3] for row in rows] == [("", "own", True), ("sales", "s", False), ("sales", "v", False)]
    told = {row[1]: row[3] for row in rows}
    columns = re.findall(r"^ \|-- (.*): (.*) \(nullable = (.*)\b", told["s"], re.MULTILINE)
    assert columns == [("id", "bigint", "true"), ("year", "int", "true"), ("shop", "string", "true")]
    lines = told["s"].splitlines()
    assert "Provider: parquet" in lines
    assert "Type: EXTERNAL" in lines
    assert [line for line in lines if line.startswith("Statistics: ")] == [
        f"Statistics: {house.gateway.metastore.catalog.get('sales.s').bytes} bytes, {len(YEARS) * ROWS_A_YEAR} rows"  # type: ignore[union-attr]
    ]
    assert "Type: VIEW" in told["v"].splitlines()
    assert "Provider: delta" not in lines  # which somebody said in a comment


@pytest.mark.parametrize("dialect", ["spark", "hive"])
@pytest.mark.parametrize("details", ["", "EXTENDED ", "FORMATTED "])
def test_partition_columns_stand_in_a_section_of_their_own_too(house: House, dialect: str, details: str) -> None:
    rows = house.rows(f"DESCRIBE {details}sales.s", dialect=dialect)
    assert [row[:2] for row in rows[:3]] == [("id", "bigint"), ("year", "int"), ("shop", "string")]
    assert rows[3:6] == [
        ("", None, None),
        ("# Partition Information", None, None),
        ("# col_name", "data_type", "comment"),
    ]
    assert [row[:2] for row in rows[6:8]] == [("year", "int"), ("shop", "string")]
    assert rows[0][2] == TOLD.columns["id"]
    behind = dict(row[:2] for row in rows[9:])
    assert (behind.get("Type"), behind.get("Database")) == (("EXTERNAL", "sales") if details else (None, None))


def test_impalas_long_description_has_partition_columns_once(house: House) -> None:
    assert [row[0] for row in house.rows("DESCRIBE sales.s", dialect="impala")] == ["id", "year", "shop"]
    rows = house.rows("DESCRIBE FORMATTED sales.s", dialect="impala")
    names = [row[0].strip() for row in rows]
    end = names.index("# Detailed Table Information")
    assert [name for name in names[:end] if name and not name.startswith("#")] == ["id", "year", "shop"]
    told = {name: row[1] for name, row in zip(names, rows, strict=True) if name.endswith(":")}
    assert (told["Table Type:"], told["Format:"], told["Database:"]) == ("EXTERNAL_TABLE", "PARQUET", "sales")
    view = {row[0].strip(): row[1] for row in house.rows("DESCRIBE FORMATTED sales.v", dialect="impala")}
    assert (view["Table Type:"], view["View Original Text:"]) == ("VIRTUAL_VIEW", "SELECT id FROM s")


def test_a_table_that_the_gateway_made_is_managed(house: House) -> None:
    table = house.gateway.metastore.catalog.get("sales.s")
    assert table is not None
    house.gateway.metastore.folders.add(ManagedFolder(table.source.location, "q"), at=NOW)
    try:
        assert ("Type", "MANAGED", "") in house.rows("DESCRIBE EXTENDED sales.s")
        told = dict(row[:2] for row in house.rows("DESCRIBE FORMATTED sales.s", dialect="impala"))
        assert {name.strip(): value for name, value in told.items()}["Table Type:"] == "MANAGED_TABLE"
        assert house.rows("SHOW CREATE TABLE sales.s")[0][0].startswith("CREATE TABLE")
    finally:
        house.gateway.metastore.folders.remove(table.source.location)


def test_one_column(house: House) -> None:
    assert house.rows("DESCRIBE sales.s YEAR") == [("col_name", "year"), ("data_type", "int"), ("comment", "")]
    told = dict(house.rows("DESCRIBE EXTENDED sales.s id"))
    assert (told["comment"], told["num_nulls"]) == (TOLD.columns["id"], "NULL")
    assert house.rows("DESCRIBE sales.s year", dialect="hive") == [("year", "int", "")]


def test_a_database(house: House) -> None:
    hive = house.rows("DESCRIBE DATABASE EXTENDED sales", dialect="hive")
    assert hive == [("sales", "what is sold", "", "-", "USER", "{a=1, since=2020}")]
    assert house.rows("DESCRIBE DATABASE sales", dialect="impala") == [("sales", "", "what is sold")]
    assert ("sales", "what is sold") in house.rows("SHOW DATABASES", dialect="impala")


def test_partitions_and_files(house: House) -> None:
    paths = [(f"year={year}/shop=x y",) for year in YEARS]
    assert house.rows("SHOW PARTITIONS sales.s") == paths
    assert house.rows("SHOW PARTITIONS sales.s PARTITION (year = 2020)") == paths[1:]
    assert house.rows("SHOW PARTITIONS sales.s PARTITION (year = 1999)") == []
    stats = house.rows("SHOW TABLE STATS sales.s")
    assert house.rows("SHOW PARTITIONS sales.s", dialect="impala") == stats
    chosen = house.rows("SHOW PARTITIONS sales.s PARTITION (year = 2020)", dialect="impala")
    assert [row[:2] for row in chosen] == [("2020", "x y"), ("Total", "")]
    assert chosen[1][3] == 1
    files = house.rows("SHOW FILES IN sales.s PARTITION (year >= 2020)")
    assert [(path, folder) for path, _, folder, _ in files] == [(f"{paths[1][0]}/1.parquet", paths[1][0])]
    assert len(house.rows("SHOW FILES IN sales.s")) == len(YEARS)
    assert [row[0] for row in house.rows("SHOW FILES IN a")] == ["1.parquet"]


def test_properties(house: House) -> None:
    assert house.rows("SHOW TBLPROPERTIES sales.s") == [
        ("Provider", "delta"),
        ("comment", TOLD.comment),
        ("made.by", "it's me"),
    ]
    assert house.rows("SHOW TBLPROPERTIES sales.s ('made.by')") == [("made.by", "it's me")]
    ((key, value),) = house.rows("SHOW TBLPROPERTIES sales.s (nothing)")
    assert (key, "does not have property" in value) == ("nothing", True)


def test_functions(house: House) -> None:
    assert house.rows("SHOW FUNCTIONS LIKE 'abs|acos'") == [("abs",), ("acos",)]
    assert house.rows("SHOW USER FUNCTIONS") == []
    for sql in ("SHOW FUNCTIONS", "SHOW AGGREGATE FUNCTIONS", "SHOW FUNCTIONS IN sales"):
        assert house.rows(sql, dialect="impala") == []
    builtins = house.rows("SHOW AGGREGATE FUNCTIONS IN _impala_builtins LIKE 'm*'", dialect="impala")
    assert ("", "max(...)", "BUILTIN", "true") in builtins
    assert ("hash",) in house.rows("SHOW FUNCTIONS")
    assert ("hash",) not in house.rows("SHOW FUNCTIONS", dialect="hive")
    assert ("Engines: duckdb",) in house.rows("DESCRIBE FUNCTION abs")
    assert ("Engines: none that is here",) in house.rows("DESCRIBE FUNCTION EXTENDED collect_list")
    ((told,),) = house.rows("DESCRIBE FUNCTION java_method")
    assert "not allowed" in told


def test_nobody_has_roles_that_statements_give(house: House) -> None:
    for sql in ("SHOW ROLES", "SHOW CURRENT ROLES", "SHOW ROLE GRANT USER joe", "SHOW GRANT USER joe ON TABLE a"):
        for dialect in ("spark", "hive", "impala"):
            headings, rows = answered(house, sql, dialect)
            assert headings
            assert rows == []


def test_the_catalog_and_the_database(house: House) -> None:
    assert house.rows("SHOW CATALOGS") == [("spark_catalog",)]
    assert house.rows("SHOW CATALOGS LIKE 'x'") == []
    assert house.rows("SHOW CURRENT NAMESPACE", database="sales") == [("spark_catalog", "sales")]


# ---------------------------------------------------------------------- what makes the same again

TYPES = (
    "boolean tinyint smallint int bigint float double decimal(38,18) string binary date timestamp timestamp_ntz "
    "array<int> map<string,array<double>> struct<a:int,b:struct<c:string>>"
).split()


@pytest.mark.parametrize("dialect", ["spark", "hive", "impala"])
@pytest.mark.parametrize("form", ["parquet", "orc"])
@pytest.mark.parametrize("folders", [(), ("p", "Q`q")])
def test_a_table_is_made_again(house: House, dialect: str, form: str, folders: tuple[str, ...]) -> None:
    odd = ("Number", "with space", "käse", "`tick`", "select", "0")
    columns = tuple(
        Column(name, kind) for name, kind in zip((*odd, *(f"c{at}" for at in range(10))), TYPES, strict=True)
    )
    columns += tuple(Column(name, "int") for name in folders)
    source = TableSource("sales.odd", "/nowhere", form, columns, folders)
    house.gateway.metastore.catalog.put(Inspection(source, 0, 0, None), at=NOW)
    try:
        ((text,),) = house.rows("SHOW CREATE TABLE sales.odd", dialect=dialect)
    finally:
        house.gateway.metastore.catalog.remove("sales.odd")
    assert "/nowhere" not in text
    naming = Naming(databases=frozenset({"default", "sales"}))
    made = read_command(text, Context(dialect, {}, ParserLimits(), naming=naming), FAMILIES)
    assert made == CreateTable("sales.odd", None, columns, folders, tuple(map(PartitionBy, folders)), form)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE VIEW sales.w (`the id`, käse) AS SELECT id, id + 1 AS x FROM s -- a comment",
        "CREATE VIEW sales.w AS SELECT * FROM s",
        "CREATE VIEW sales.w AS SELECT id, 'it''s \\n' AS t FROM s WHERE year > 2019",
    ],
)
def test_a_view_is_made_again(house: House, sql: str) -> None:
    house.rows(sql, database="sales")
    before = house.gateway.catalog.current().views["sales.w"]
    ((text,),) = house.rows("SHOW CREATE TABLE sales.w", database="sales")
    house.rows("DROP VIEW sales.w")
    house.rows(text, database="sales")
    assert house.gateway.catalog.current().views["sales.w"] == before
    elsewhere = house.rows("SHOW CREATE VIEW sales.w", dialect="impala")[0][0]
    assert elsewhere.startswith("-- Its query is in the dialect spark.\n-- Bare names in it are of the database sales.")


# ---------------------------------------------------------------------- EXPLAIN


def told(house: House, sql: str, **fields: Any) -> str:
    return "\n".join(line for (line,) in house.rows(sql, **fields))


def test_explain_tells_the_decision_and_runs_nothing(house: House) -> None:
    record = house.ended("EXPLAIN SELECT max(id) FROM sales.s WHERE id > 0")
    assert (record.state, record.engine) == ("FINISHED", "gateway")
    text = told(house, "EXPLAIN SELECT max(id) FROM sales.s WHERE id > 0")
    assert text.startswith("Engine: duckdb\nBecause: ")
    assert "[FITS]" in text
    assert "Memory on duckdb: " in text
    assert "aggregate: 1 rows" in text
    assert "Plan of" not in text


@pytest.mark.parametrize("word", ["EXTENDED", "FORMATTED", "COST", "CODEGEN"])
def test_details_have_the_engines_plan_without_places(house: House, word: str, tmp_path: Path) -> None:
    text = told(house, f"EXPLAIN {word} SELECT s.id FROM sales.s JOIN a ON a.id = s.id WHERE s.id > 0")
    assert "Plan of duckdb:" in text
    assert "HASH_JOIN" in text
    assert str(tmp_path.parent.parent) not in text


def test_what_no_engine_can_take_is_told(house: House) -> None:
    assert told(house, "EXPLAIN SELECT collect_list(id) FROM a").startswith("Engine: none can take it\nBecause: ")
    assert "does not write" in told(house, "EXPLAIN INSERT INTO a SELECT 1")
    assert "by itself" in told(house, "EXPLAIN DROP TABLE a")
    assert refused(house, "EXPLAIN SELECT /*+ engine(nope) */ 1") == "NOT_ALLOWED"


def test_what_may_not_be_done_may_not_be_explained(house: House) -> None:
    reader = Principal("ann", role=Role.READER)
    assert house.rows("EXPLAIN SELECT 1", principal=reader)
    with pytest.raises(AccessDenied):
        house.ended("EXPLAIN CREATE TABLE t AS SELECT 1 AS one", principal=reader)
