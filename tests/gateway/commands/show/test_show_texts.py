"""What only asks, as text: what is asked, and what is told about that which means nothing."""

from __future__ import annotations

import pytest

from engines.compiled import CompiledStatement
from engines.scripted import ScriptedEngine
from gateway.commands.classification import Text, classify, read_command
from gateway.commands.command import RunnableCommand
from gateway.commands.ddl.databases import ShowCatalogs, ShowDatabases, ShowNamespace
from gateway.commands.ddl.properties import ShowProperties
from gateway.commands.explain import Explain, explained
from gateway.commands.grammar.reader import Context
from gateway.commands.registry import FAMILIES
from gateway.commands.rights.showing import RightsKind, ShowRights
from gateway.commands.show.create import ShowCreate
from gateway.commands.show.describe import Describe
from gateway.commands.show.files import ShowFiles, ShowPartitions
from gateway.commands.show.functions import DescribeFunction, FunctionKind, ShowFunctions
from gateway.commands.show.tables import ShowTableExtended, ShowTables
from gateway.commands.statement_reader import engines_of
from sql.errors import SqlError
from sql.names import Naming
from sql.parsing import ParserLimits
from sql.tables import Column, TableSource, View

LIMITS = ParserLimits()
SALES = TableSource(
    "sales.s", "/data/s", "parquet", (Column("id", "bigint"), Column("Year", "int")), partition_columns=("Year",)
)
BOOKS = TableSource("books", "/data/books", "parquet", (Column("id", "bigint"),))
FUNCTION = TableSource("function", "/data/f", "parquet", (Column("id", "bigint"),))
CATALOG = {table.name: table for table in (SALES, BOOKS, FUNCTION)}
VIEWS = {
    "sales.v": View("sales.v", "SELECT id AS k FROM s", "spark", (Column("k", "bigint"),), database="sales"),
    "all_of": View("all_of", "SELECT * FROM books", "spark", (Column("id", "bigint"),)),
    ".own": View("own", "SELECT 1 AS one", "impala", (Column("one", "int"),), temporary=True),
}
NAMING = Naming(databases=frozenset({"default", "sales"}))


def parsed(sql: str) -> RunnableCommand | None:
    return read_command(sql, Context("spark", CATALOG, LIMITS, VIEWS, NAMING), FAMILIES)


@pytest.mark.parametrize(
    ("sql", "command"),
    [
        ("SHOW TABLES IN sales", ShowTables("sales")),
        ('show tables in `sales` like "s*"', ShowTables("sales", "s*")),
        ("SHOW VIEWS  IN sales", ShowTables("sales", views_only=True)),
        ("SHOW VIEWS LIKE 'x'", ShowTables(pattern="x", views_only=True)),
        ("SHOW NAMESPACES", ShowDatabases()),
        ('/* {"app": "dbt"} */ show table extended in sales like \'*\'', ShowTableExtended("sales", "*")),
        ("SHOW TABLE EXTENDED FROM sales", ShowTableExtended("sales")),
        ("SHOW CATALOGS LIKE 'spark*'", ShowCatalogs("spark*")),
        ("SHOW CURRENT NAMESPACE", ShowNamespace()),
        ("SHOW CURRENT DATABASE", ShowNamespace()),
        ("SHOW FUNCTIONS", ShowFunctions()),
        ("SHOW USER FUNCTIONS LIKE 'a*'", ShowFunctions(FunctionKind.USER, "a*")),
        ("SHOW AGGREGATE FUNCTIONS IN sales", ShowFunctions(FunctionKind.AGGREGATE)),
        ("SHOW FUNCTIONS abs", ShowFunctions(pattern="abs")),
        ("SHOW FUNCTIONS IN _impala_builtins LIKE 'a*'", ShowFunctions(pattern="a*", of_builtins=True)),
        ("SHOW CREATE TABLE books", ShowCreate("books")),
        ("SHOW CREATE VIEW sales.v", ShowCreate("sales.v")),
        ("SHOW CREATE TABLE all_of", ShowCreate("all_of", lists_columns=False)),
        ("SHOW PARTITIONS sales.s", ShowPartitions("sales.s")),
        ("SHOW FILES IN sales.s", ShowFiles("sales.s")),
        ("SHOW TBLPROPERTIES books", ShowProperties("books")),
        ("SHOW TBLPROPERTIES books ('a.b')", ShowProperties("books", "a.b")),
        ("SHOW TBLPROPERTIES books (a.b)", ShowProperties("books", "a.b")),
        ("SHOW ROLES", ShowRights(RightsKind.ROLES)),
        ("SHOW CURRENT ROLES", ShowRights(RightsKind.CURRENT_ROLES)),
        ("SHOW ROLE GRANT USER `joe`", ShowRights(RightsKind.ROLE_GRANT, "user:joe")),
        ("show grant user `joe` on server", ShowRights(RightsKind.GRANT, "user:joe", "*")),
        ("show grants on books", ShowRights(RightsKind.GRANTS, None, "books")),
        ("SHOW GRANT ROLE r ON DATABASE sales", ShowRights(RightsKind.GRANT, "role:r", "sales.*")),
        ("SHOW PRINCIPALS r", ShowRights(RightsKind.PRINCIPALS, "r")),
        ("DESCRIBE EXTENDED sales.v", Describe("sales.v", details=True)),
        ("describe extended `own`", Describe(".own", details=True)),
        ("DESC FORMATTED sales.s year", Describe("sales.s", details=True, column="Year")),
        ("DESCRIBE TABLE books id", Describe("books", column="id")),
        ("DESCRIBE function", Describe("function")),
        ("DESCRIBE FUNCTION extended", DescribeFunction("extended")),
        ("DESC FUNCTION EXTENDED default.abs", DescribeFunction("abs", details=True)),
        ("DESCRIBE FUNCTION 'abs'", DescribeFunction("abs")),
        ("DESCRIBE FUNCTION +", DescribeFunction("+")),
    ],
)
def test_questions(sql: str, command: RunnableCommand) -> None:
    assert parsed(sql) == command


def test_a_partition_is_chosen_by_its_values() -> None:
    asked = parsed("SHOW PARTITIONS sales.s PARTITION (year = 2019)")
    assert isinstance(asked, ShowPartitions)
    assert [(each.column, each.value) for each in asked.conditions] == [("Year", 2019)]


@pytest.mark.parametrize(
    ("sql", "code", "place", "words"),
    [
        ("SHOW", "NOT_ALLOWED", (1, 5), "SHOW takes"),
        ("SHOW LOCKS", "NOT_ALLOWED", (1, 6), "SHOW LOCKS is not known"),
        ("SHOW VIEWS IN nowhere", "UNKNOWN_DATABASE", (1, 15), "nowhere"),
        ("SHOW TABLE EXTENDED IN nowhere LIKE '*'", "UNKNOWN_DATABASE", (1, 24), "nowhere"),
        ("SHOW FUNCTIONS IN nowhere", "UNKNOWN_DATABASE", (1, 19), "nowhere"),
        ("SHOW CREATE TABLE bocks", "UNKNOWN_TABLE", (1, 19), "did you mean books"),
        ("SHOW CREATE FUNCTION abs", "SYNTAX_ERROR", (1, 13), "TABLE is expected"),
        ("SHOW PARTITIONS books", "NOT_ALLOWED", (1, 6), "not partitioned"),
        ("SHOW PARTITIONS sales.v", "UNKNOWN_TABLE", (1, 17), "sales.v"),
        ("SHOW FILES IN books PARTITION (id = 1)", "NOT_ALLOWED", (1, 21), "not partitioned"),
        ("SHOW TBLPROPERTIES books (", "SYNTAX_ERROR", (1, 27), "a name"),
        ("SHOW TABLES 'x' 'y'", "SYNTAX_ERROR", (1, 17), "the end"),
        ("DESCRIBE", "SYNTAX_ERROR", (1, 9), "a name"),
        ("DESCRIBE books nope", "UNKNOWN_COLUMN", (1, 16), "no column nope"),
        ("DESCRIBE sales.v id", "UNKNOWN_COLUMN", (1, 18), "no column id"),
        ("SHOW TABLES; SELECT 1", "MULTIPLE_STATEMENTS", (1, 14), "One statement"),
    ],
)
def test_what_means_nothing_is_refused_where_it_stands(sql: str, code: str, place: tuple[int, int], words: str) -> None:
    with pytest.raises(SqlError, match=words) as caught:
        parsed(sql)
    position = caught.value.position
    assert (caught.value.code, position and (position.line, position.column)) == (code, place)


# ---------------------------------------------------------------------- EXPLAIN


@pytest.mark.parametrize(
    ("sql", "rest", "details"),
    [
        ("EXPLAIN SELECT 1", "SELECT 1", False),
        ("explain extended SELECT 1", "SELECT 1", True),
        ("/* a */ EXPLAIN -- b\n FORMATTED /* c */ SELECT 1", "/* c */ SELECT 1", True),
        ("EXPLAIN COST SELECT 1", "SELECT 1", True),
        ("EXPLAIN CODEGEN SELECT 1", "SELECT 1", True),
    ],
)
def test_what_is_explained_stays_in_its_place(sql: str, rest: str, details: bool) -> None:
    text, with_details = explained(sql)
    assert (text.strip(), with_details) == (rest, details)
    assert (len(text), text.count("\n"), text.index(rest)) == (len(sql), sql.count("\n"), sql.index(rest))


@pytest.mark.parametrize("sql", ["", "SELECT explain", "EXPLAINED", "-- EXPLAIN\nSELECT 1", "DESCRIBE explain"])
def test_other_texts_explain_nothing(sql: str) -> None:
    assert not isinstance(read_command(sql, Context("spark", CATALOG | {"explain": BOOKS}, LIMITS), FAMILIES), Explain)


def understood(sql: str) -> object:
    engines = engines_of([ScriptedEngine()])
    text = Text(sql, "spark", LIMITS)
    return classify(text, CATALOG, {"all_of": VIEWS["all_of"]}, NAMING.databases, engines, FAMILIES)


def test_queries_and_writes_can_be_explained() -> None:
    asked = understood("EXPLAIN EXTENDED SELECT id FROM books")
    assert isinstance(asked, Explain)
    assert isinstance(asked.statement, CompiledStatement)
    assert asked.details
    for sql in ("INSERT INTO books SELECT 1", "CREATE TABLE t AS SELECT 1 AS a", "CREATE VIEW w AS SELECT 1 AS a"):
        assert isinstance(understood(f"EXPLAIN {sql}"), Explain)


@pytest.mark.parametrize(
    ("sql", "code", "place"),
    [
        ("EXPLAIN", "EMPTY_STATEMENT", None),
        ("EXPLAIN SELECT nope FROM books", "UNKNOWN_COLUMN", (1, 16)),
        ("EXPLAIN\n  SELECT id FROM nowhere", "UNKNOWN_TABLE", (2, 18)),
        ("EXPLAIN ANALYZE SELECT 1", "NOT_ALLOWED", (1, 9)),
        ("EXPLAIN " * 5_000 + "SELECT 1", "NOT_ALLOWED", (1, 9)),
        ("EXPLAIN SHOW TABLES", "NOT_ALLOWED", None),
        ("EXPLAIN SET a = 1", "NOT_ALLOWED", None),
        ("EXPLAIN COMPUTE STATS books", "NOT_ALLOWED", None),
        ("EXPLAIN SELECT 1; SELECT 2", "MULTIPLE_STATEMENTS", None),
    ],
)
def test_what_cannot_be_explained(sql: str, code: str, place: tuple[int, int] | None) -> None:
    with pytest.raises(SqlError) as caught:
        understood(sql)
    position = caught.value.position
    assert (caught.value.code, position and (position.line, position.column)) == (code, place)
