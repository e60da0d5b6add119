"""Commands as text: what they mean, and what is told about those that mean nothing."""

from __future__ import annotations

import operator
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.commands.classification import read_command
from gateway.commands.command import RunnableCommand
from gateway.commands.ddl.databases import ShowDatabases
from gateway.commands.grammar.reader import Context
from gateway.commands.registry import FAMILIES
from gateway.commands.session import ResetOptions, SetOption, ShowOptions, UseDatabase
from gateway.commands.show.describe import Describe
from gateway.commands.show.tables import ShowColumns, ShowTables
from gateway.commands.statistics.by_hand import SetColumnStats, SetRows
from gateway.commands.statistics.computing import ComputeIncrementalStats, ComputeStats
from gateway.commands.statistics.dropping import DropIncrementalStats, DropStats
from gateway.commands.statistics.refreshing import Refresh
from gateway.commands.statistics.showing import ShowColumnStats, ShowTableStats
from metastore.discovery.inspection import DEFAULT_PARTITION
from metastore.records import Partition
from sql import statement
from sql.dialects.names import DIALECTS
from sql.errors import SqlError
from sql.parsing import RECURSION_LIMIT, ParserLimits
from sql.tables import Column, TableSource

sys.setrecursionlimit(RECURSION_LIMIT)  # as the parser does; hypothesis wants nobody to do it in the middle of a test
LIMITS = ParserLimits()
BOOKS = TableSource("books", "/data/books", "parquet", (Column("id", "bigint"), Column("Price", "double")))
SALES = TableSource(
    "sales",
    "/data/sales",
    "parquet",
    (Column("id", "bigint"), Column("year", "int"), Column("shop", "string")),
    partition_columns=("year", "shop"),
)
STATS = TableSource("stats", "/data/stats", "parquet", (Column("columns", "int"),))
CATALOG = {table.name: table for table in (BOOKS, SALES, STATS)}


def parsed(sql: str, dialect: str = "spark", *, limits: ParserLimits = LIMITS) -> RunnableCommand | None:
    return read_command(sql, Context(dialect, CATALOG, limits), FAMILIES)


@pytest.mark.parametrize(
    ("sql", "command"),
    [
        ("COMPUTE STATS books", ComputeStats("books")),
        ("  -- why\n/* not */ ; compute Stats Default.BOOKS ; ;", ComputeStats("books")),
        ("COMPUTE STATS `books` (id, PRICE, id)", ComputeStats("books", ("id", "Price"))),
        ("COMPUTE STATS books ()", ComputeStats("books")),
        ("COMPUTE STATS books TABLESAMPLE SYSTEM(10)", ComputeStats("books", share=0.1)),
        ("COMPUTE STATS books(id) TABLESAMPLE SYSTEM(0.5) REPEATABLE(42)", ComputeStats("books", ("id",), 0.005)),
        ('COMPUTE STATS "default".`books`', ComputeStats("books")),
        ("COMPUTE STATS stats (columns)", ComputeStats("stats", ("columns",))),
        ("COMPUTE INCREMENTAL STATS sales", ComputeIncrementalStats("sales")),
        ("DROP STATS books", DropStats("books")),
        ("SHOW TABLE STATS books;", ShowTableStats("books")),
        ("show column stats books", ShowColumnStats("books")),
        ("SHOW TABLES", ShowTables()),
        ("SHOW TABLES IN default LIKE 'b*|sales'", ShowTables(pattern="b*|sales")),
        ("SHOW TABLES 'b*'", ShowTables(pattern="b*")),
        ("ALTER TABLE books SET TBLPROPERTIES('numRows'='1000')", SetRows("books", 1000)),
        (
            'ALTER TABLE books SET TBLPROPERTIES("NUMROWS" = 7, "STATS_GENERATED_VIA_STATS_TASK" = "true")',
            SetRows("books", 7),
        ),
        (
            "ALTER TABLE books SET COLUMN STATS price ('numDVs'='100','numNulls'='3','avgSize'='4.5','maxSize'='9')",
            SetColumnStats("books", "Price", {"ndv": 100, "nulls": 3, "average_length": 4.5, "maximum_length": 9}),
        ),
        ("REFRESH books", Refresh("books")),
        ("REFRESH sales PARTITION (year=2020, shop='x')", Refresh("sales")),
        ("INVALIDATE METADATA", Refresh()),
        ("INVALIDATE METADATA books", Refresh("books")),
        ("DESCRIBE books", Describe("books")),
        ("DESC default.books", Describe("books")),
    ],
)
def test_what_commands_mean(sql: str, command: RunnableCommand) -> None:
    assert parsed(sql) == command


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("USE `default`", UseDatabase("default")),
        ("SHOW DATABASES", ShowDatabases()),
        ("SHOW SCHEMAS LIKE 'd*'", ShowDatabases("d*")),
        ("SHOW COLUMNS IN default.books", ShowColumns("books")),
        ("SHOW COLUMNS FROM books FROM default;", ShowColumns("books")),
        ("SET", ShowOptions()),
        ("set all;", ShowOptions(everything=True)),
        ("SET -v", ShowOptions(meanings=True)),
        ("SET mem_limit", ShowOptions("mem_limit")),
        ("SET hiveconf:a.b = file:///x y;z ;", SetOption("a.b", "file:///x y;z")),
        ("SET a=", SetOption("a", "")),
        ("SET REQUEST_POOL='it is'", SetOption("REQUEST_POOL", "it is")),
        ("RESET", ResetOptions()),
        ("RESET a.b", ResetOptions("a.b")),
    ],
)
def test_what_belongs_to_sessions(sql: str, expected: RunnableCommand) -> None:
    assert parsed(sql) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "",
        " ; -- x",
        "CREATE FUNCTION f AS 'x'",
        "WITH compute AS (SELECT 1) SELECT 1",
    ],
)
def test_everything_else_is_left_to_the_query_parser(sql: str) -> None:
    assert parsed(sql) is None


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("year=2020, shop='x'", [("year", operator.eq, 2020), ("shop", operator.eq, "x")]),
        ("year >= '2019' AND year<-1", [("year", operator.ge, 2019), ("year", operator.lt, -1)]),
        ("year <= 1, year > 2, shop <> 'a', shop != 'it''s'", None),
        ("year IS NULL, shop IS NOT NULL, year = NULL", None),
        ("shop = 2020", [("shop", operator.eq, "2020")]),
    ],
)
def test_conditions(text: str, shape: list[tuple[str, object, object]] | None) -> None:
    command = parsed(f"DROP INCREMENTAL STATS sales PARTITION ({text})")
    assert isinstance(command, DropIncrementalStats)
    assert command == parsed(f"drop incremental stats sales partition ({text})")
    assert len(command.conditions) == text.count(",") + text.count(" AND ") + 1
    if shape is not None:
        assert [(c.column, c.test, c.value) for c in command.conditions] == shape


@pytest.mark.parametrize(
    ("text", "years"),
    [
        ("year = 2020", {"2020"}),
        ("year > 2019", {"2020", "2021"}),
        ("year <> 2020", {"2019", "2021"}),
        ("year >= 2020, year < 2021", {"2020"}),
        ("year IS NULL", {DEFAULT_PARTITION}),
        ("year = NULL", {DEFAULT_PARTITION}),
        ("year IS NOT NULL", {"2019", "2020", "2021"}),
        ("year > 2030", set()),
        ("shop = 'a'", {"2019", "2020", "2021", DEFAULT_PARTITION}),
        ("shop < 'a'", set()),
    ],
)
def test_which_partitions_are_meant(text: str, years: set[str]) -> None:
    command = parsed(f"COMPUTE INCREMENTAL STATS sales PARTITION ({text})")
    assert isinstance(command, ComputeIncrementalStats)
    partitions = [
        Partition(f"year={year}/shop=a", {"year": year, "shop": "a"}, 1, 1)
        for year in ("2019", "2020", "2021", DEFAULT_PARTITION)
    ]
    found = {p.values["year"] for p in partitions if all(c.holds(p.values) for c in command.conditions)}
    assert found == years


@pytest.mark.parametrize(
    ("sql", "code", "place", "told"),
    [
        ("COMPUTE STATS", "SYNTAX_ERROR", (1, 14), "a name"),
        ("COMPUTE STATISTICS books", "SYNTAX_ERROR", (1, 9), "STATS"),
        ("COMPUTE STATS boks", "UNKNOWN_TABLE", (1, 15), "did you mean books"),
        ("COMPUTE STATS other.books", "UNKNOWN_DATABASE", (1, 15), "other"),
        ("COMPUTE STATS 'books'", "SYNTAX_ERROR", (1, 15), "a name"),
        ("COMPUTE STATS books (id, pric)", "UNKNOWN_COLUMN", (1, 26), "did you mean price"),
        ("COMPUTE STATS books (id", "SYNTAX_ERROR", (1, 24), ")"),
        ("COMPUTE STATS books\n  TABLESAMPLE SYSTEM(101)", "VALUE_OUT_OF_RANGE", (2, 22), "100 percent"),
        ("COMPUTE STATS books TABLESAMPLE SYSTEM(0)", "VALUE_OUT_OF_RANGE", (1, 40), "at least 0.0001"),
        ("COMPUTE STATS books TABLESAMPLE SYSTEM(0.00001)", "VALUE_OUT_OF_RANGE", (1, 40), "at least 0.0001"),
        ("COMPUTE STATS books TABLESAMPLE BERNOULLI(5)", "SYNTAX_ERROR", (1, 33), "SYSTEM"),
        ("COMPUTE STATS books books", "SYNTAX_ERROR", (1, 21), "TABLESAMPLE"),
        ("COMPUTE INCREMENTAL STATS books PARTITION (id=1)", "NOT_ALLOWED", (1, 33), "not partitioned"),
        ("COMPUTE INCREMENTAL STATS sales PARTITION (id=1)", "UNKNOWN_COLUMN", (1, 44), "year, shop"),
        ("COMPUTE INCREMENTAL STATS sales PARTITION (year='x')", "VALUE_OUT_OF_RANGE", (1, 49), "whole number"),
        ("COMPUTE INCREMENTAL STATS sales PARTITION (year)", "SYNTAX_ERROR", (1, 48), "a comparison"),
        ("DROP INCREMENTAL STATS sales", "SYNTAX_ERROR", (1, 29), "PARTITION"),
        ("ALTER TABLE books SET TBLPROPERTIES('rows')", "SYNTAX_ERROR", (1, 43), "="),
        ("ALTER TABLE books SET TBLPROPERTIES('numRows'='-1')", "VALUE_OUT_OF_RANGE", (1, 47), "at least 0"),
        ("ALTER TABLE books SET TBLPROPERTIES('numRows'='1.5')", "VALUE_OUT_OF_RANGE", (1, 47), "whole number"),
        ("ALTER TABLE books SET TBLPROPERTIES('numRows'='inf')", "VALUE_OUT_OF_RANGE", (1, 47), "inf"),
        ("ALTER TABLE books SET COLUMN STATS id ('numRows'='1')", "UNKNOWN_PROPERTY", (1, 40), "numDVs"),
        ("ALTER TABLE books SET COLUMN STATS no ('numDVs'='1')", "UNKNOWN_COLUMN", (1, 36), "no"),
        ("ALTER TABLE books DROP COLUMN id", "NOT_ALLOWED", (1, 19), "CREATE OR REPLACE TABLE"),
        ("ALTER TABLE books RENAME TO sales", "TABLE_EXISTS", (1, 29), "already"),
        ("ALTER TABLE books ADD COLUMNS (a INT, A INT)", "NOT_ALLOWED", (1, 39), "two columns"),
        ("ALTER TABLE books ADD COLUMNS (a nothing)", "SYNTAX_ERROR", (1, 34), "nothing"),
        ("ALTER TABLE sales ADD PARTITION (year > 1, shop = 'a')", "NOT_ALLOWED", (1, 34), "one value"),
        ("COMMENT ON COLUMN id IS 'x'", "NOT_ALLOWED", (1, 19), "table"),
        ("COMMENT ON COLUMN books.nothing IS 'x'", "UNKNOWN_COLUMN", (1, 19), "nothing"),
        ("ANALYZE TABLE books", "SYNTAX_ERROR", (1, 20), "COMPUTE"),
        ("SHOW TABLE STATS books; SELECT 1", "MULTIPLE_STATEMENTS", (1, 25), "One statement"),
        ("SHOW TABLES IN other", "UNKNOWN_DATABASE", (1, 16), "other"),
        ("USE other", "UNKNOWN_DATABASE", (1, 5), "other"),
        ("SHOW COLUMNS IN books FROM other", "UNKNOWN_DATABASE", (1, 28), "other"),
        ("SET a b", "SYNTAX_ERROR", (1, 1), "name = value"),
        ("SET VAR x = 5", "NOT_ALLOWED", (1, 1), "session variables"),
        ("SET VARIABLE (a, b) = (SELECT 1, 2)", "NOT_ALLOWED", (1, 1), "session variables"),
        ("RESET a = b", "SYNTAX_ERROR", (1, 1), "a name"),
        ("INVALIDATE books", "SYNTAX_ERROR", (1, 12), "METADATA"),
        ("REFRESH", "SYNTAX_ERROR", (1, 8), "a name"),
    ],
)
def test_mistakes_are_named_with_their_place(sql: str, code: str, place: tuple[int, int], told: str) -> None:
    with pytest.raises(SqlError) as caught:
        parsed(sql)
    error = caught.value
    assert (error.code, error.position and (error.position.line, error.position.column)) == (code, place)
    assert told in error.message


def test_limits_hold_for_commands() -> None:
    with pytest.raises(SqlError, match="words and signs"):
        parsed("SHOW " + "x " * 100, limits=ParserLimits(tokens=50))
    with pytest.raises(SqlError, match="longer than"):
        parsed("SHOW " + "x " * 100, limits=ParserLimits(statement_bytes=50))
    with pytest.raises(SqlError):
        parsed("COMPUTE STATS 'open")


WORDS = st.sampled_from(
    """COMPUTE INCREMENTAL STATS DROP SHOW TABLE COLUMN TABLES ALTER SET TBLPROPERTIES REFRESH INVALIDATE METADATA
    CREATE REPLACE OR EXTERNAL LOCATION COMMENT ON ANALYZE COMPUTE STATISTICS TRUNCATE RENAME TO ADD COLUMNS CHANGE
    COLUMN UNSET RECOVER PARTITIONS MSCK REPAIR VIEW AS ROW FORMAT DELIMITED OPTIONS STORED PARTITIONED BY INT
    PARTITION TABLESAMPLE SYSTEM REPEATABLE DESCRIBE LIKE IN IS NOT NULL AND books sales id year shop nowhere default
    `books` "sales" 'numRows' 'numDVs' '1' 2020 1e999 -5 0x1 1L ( ) , . ; = < > <= >= <> != ! - -- /* */ ' " ` $ @ ?
    \\ é ☃ \x00""".split()
)


@given(st.lists(WORDS | st.text(max_size=4), max_size=14).map(" ".join), st.sampled_from(list(DIALECTS)))
@example("COMPUTE STATS books TABLESAMPLE SYSTEM(1e999)", "spark")
@example("SHOW " * 50, "hive")
@example("ALTER TABLE books ADD COLUMN", "hive")
@example("CREATE OR REPLACE", "hive")
@example("CREATE TABLE x (a INT", "hive")
@example("CREATE TABLE x (", "hive")
@example("COMMENT ON COLUMN", "hive")
def test_no_soup_of_words_raises_anything_but_sql_errors(sql: str, dialect: str) -> None:
    try:
        if parsed(sql, dialect) is None:
            statement.check(sql, dialect, catalog=CATALOG, limits=LIMITS)
    except SqlError as error:
        assert error.message
        if error.position is not None:
            assert error.position.line >= 1
            assert error.position.column >= 1
