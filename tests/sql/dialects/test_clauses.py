"""Clauses of others that are taken, literals of bytes, and functions that tell of the session."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from sqlglot import exp

from engines.duckdb.writer.statement import DuckDBAsWritten
from engines.errors import NoEquivalent
from sql.dialects.names import DIALECTS
from sql.dialects.session_functions import SESSION_FUNCTIONS, facts_of
from sql.errors import NotAllowed, SyntaxInvalid
from sql.parsers.dialects import SparkAsWritten
from sql.parsing import ParserLimits
from sql.statement import CheckedStatement, check
from sql.tables import Column, TableSource, View
from tests.writers import DUCKDB_SQL, SPARK_SQL

TABLES = {
    "t": TableSource("t", "/data/t", "parquet", (Column("a", "int"), Column("b", "string"), Column("clock", "time(6)")))
}
ODD_NAME = "o'br\\ien \u00e4 ${x} `\n\""


def query(statement: CheckedStatement) -> exp.Select:
    assert isinstance(statement.tree, exp.Select)
    return statement.tree


def checked(
    sql: str, dialect: str = "spark", *, user: str = "ann", views: Mapping[str, View] | None = None
) -> CheckedStatement:
    return check(
        sql,
        dialect,
        catalog=TABLES,
        limits=ParserLimits(),
        views=views or {},
        facts=facts_of(user, dialect, "default", "Fusion SQL Gateway 1.0"),
    )


@pytest.mark.parametrize(
    ("dialect", "sql", "same"),
    [
        *(
            (dialect, "SELECT a FROM t SORT BY a DESC", "SELECT a FROM t ORDER BY a DESC")
            for dialect in ("spark", "hive")
        ),
        ("spark", "SELECT a FROM t DISTRIBUTE BY b SORT BY a, b LIMIT 3", "SELECT a FROM t ORDER BY a, b LIMIT 3"),
        ("hive", "SELECT a, b FROM t CLUSTER BY a, b", "SELECT a, b FROM t ORDER BY a, b"),
        ("hive", "SELECT a FROM t CLUSTER BY upper(b)", "SELECT a FROM t ORDER BY upper(b)"),
        ("spark", "SELECT a FROM t DISTRIBUTE BY b, a", "SELECT a FROM t"),
        (
            "spark",
            "SELECT * FROM (SELECT a FROM t CLUSTER BY a) AS x",
            "SELECT * FROM (SELECT a FROM t ORDER BY a) AS x",
        ),
        (
            "hive",
            "SELECT a FROM t UNION ALL SELECT a FROM t SORT BY a",
            "SELECT a FROM t UNION ALL SELECT a FROM t ORDER BY a",
        ),
        ("impala", "SELECT STRAIGHT_JOIN a FROM t", "SELECT a FROM t"),
        ("impala", "select distinct straight_join * from t", "SELECT DISTINCT * FROM t"),
        ("impala", "SELECT ALL STRAIGHT_JOIN t.a FROM t JOIN t AS u ON t.a = u.a", None),
    ],
)
def test_a_clause_means_what_can_be_kept_on_every_engine(dialect: str, sql: str, same: str | None) -> None:
    said = checked(sql, dialect)
    assert "BY b" not in said.sql(SPARK_SQL).upper() or "ORDER BY" in said.sql("engines.spark_sql.writer")
    assert "STRAIGHT_JOIN" not in said.sql(DUCKDB_SQL).upper()
    if same is not None:
        assert said.sql(SPARK_SQL) == checked(same, dialect).sql(SPARK_SQL)
        assert said.sql(DUCKDB_SQL) == checked(same, dialect).sql("engines.duckdb.writer.statement")


@pytest.mark.parametrize(
    "clauses",
    [
        "ORDER BY a SORT BY a",
        "ORDER BY a CLUSTER BY a",
        "CLUSTER BY a SORT BY b",
        "DISTRIBUTE BY a CLUSTER BY b",
        "ORDER BY a DISTRIBUTE BY b",
    ],
)
@pytest.mark.parametrize("dialect", ["spark", "hive", "impala"])
def test_a_query_has_one_order(dialect: str, clauses: str) -> None:
    with pytest.raises(SyntaxInvalid) as caught:
        checked(f"SELECT a FROM t {clauses}", dialect)
    assert "a query has one" in str(caught.value)
    assert caught.value.position is not None


@pytest.mark.parametrize(
    ("literal", "spark", "duckdb"),
    [
        ("X'1F'", "X'1F'", r"'\x1F'::BLOB"),
        ("x'00ff'", "X'00FF'", r"'\x00\xFF'::BLOB"),
        ("X'abc'", "X'0ABC'", r"'\x0A\xBC'::BLOB"),
        ("X''", "X''", "encode('')"),
    ],
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_bytes_are_written_as_digits(dialect: str, literal: str, spark: str, duckdb: str) -> None:
    said = checked(f"SELECT {literal} AS x", dialect)
    assert said.sql(SPARK_SQL) == f"SELECT {spark} AS `x`"
    assert said.sql(DUCKDB_SQL) == f'SELECT {duckdb} AS "x"'


@pytest.mark.parametrize("digits", ["1_0", "G0", " 10", "0x1F", "\u0661\u0661"])
def test_bytes_have_digits(digits: str) -> None:
    with pytest.raises(SyntaxInvalid):
        checked(f"SELECT X'{digits}' AS x")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("user", ["ann", ODD_NAME, ""])
def test_functions_tell_of_the_user(dialect: str, user: str) -> None:
    said = checked("SELECT current_user() AS c, user() AS u, session_user() AS s FROM t", dialect, user=user)
    assert [(each.alias, each.this.name) for each in query(said).selects] == [("c", user), ("u", user), ("s", user)]
    for engine, reader in ((SPARK_SQL, SparkAsWritten()), (DUCKDB_SQL, DuckDBAsWritten())):
        (read,) = reader.parse(said.sql(engine))
        assert isinstance(read, exp.Select)
        assert {each.this.name for each in read.selects} == {user}
    assert said.tells_of_session
    assert not checked("SELECT 'ann' AS c, b AS `user` FROM t", "spark").tells_of_session


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("database", ["default", "sales", ODD_NAME])
def test_functions_tell_of_the_database(dialect: str, database: str) -> None:
    facts = facts_of("ann", dialect, database, "Fusion SQL Gateway 1.0")
    sql = "SELECT current_database() AS d, current_schema() AS s, current_catalog() AS c FROM t"
    said = check(sql, dialect, catalog=TABLES, limits=ParserLimits(), facts=facts)
    assert [each.this.name for each in query(said).selects] == [database, database, "spark_catalog"]
    assert said.tells_of_session


def test_statements_of_two_users_are_two_and_have_one_template() -> None:
    sql = "SELECT count(*) FROM t WHERE b = current_user()"
    anns, joes = checked(sql, user="ann"), checked(sql, user="joe")
    assert anns.fingerprint != joes.fingerprint
    assert anns.template == joes.template
    assert anns.sql(DUCKDB_SQL) != joes.sql(DUCKDB_SQL)
    assert query(anns).named_selects == query(joes).named_selects == ["count(1)"]


def test_a_column_that_tells_of_the_session_is_called_as_it_was_written() -> None:
    assert query(checked("SELECT current_user(), version() FROM t")).named_selects == ["current_user()", "version()"]


def test_a_view_tells_of_who_reads_it() -> None:
    view = View("me", "SELECT current_user() AS name", "spark", (Column("name", "string"),), temporary=True)
    assert "'joe'" in checked("SELECT name FROM me", user="joe", views={"me": view}).sql(SPARK_SQL)


@pytest.mark.parametrize(
    ("dialect", "begin"),
    [("spark", "4.0.0 "), ("hive", "3.1.3 "), ("impala", "impalad version 4.5.0 ")],
)
def test_the_version_is_told_as_clients_of_the_dialect_read_it(dialect: str, begin: str) -> None:
    literal = query(checked("SELECT version() AS v", dialect)).selects[0].this
    assert literal.name.startswith(begin)
    assert "Fusion SQL Gateway" in literal.name


@pytest.mark.parametrize("name", sorted(SESSION_FUNCTIONS - {"is_member"}))
def test_no_engine_is_asked_what_only_the_gateway_knows(name: str) -> None:
    for call in (f"{name}(1)", f"{name}(a)"):
        with pytest.raises(NotAllowed, match=f"The function {name} takes no arguments"):
            checked(f"SELECT {call} FROM t")
    with pytest.raises(NotAllowed, match="needs a session"):
        check(f"SELECT {name}()", "spark", catalog=TABLES, limits=ParserLimits())


@pytest.mark.parametrize(
    "kind",
    ["TIME(0)", "TIME(6)", "TIME(9)", "TIMESTAMP(3)", "TIMESTAMP_NTZ(9)", "ARRAY<TIME(1)>", "MAP<TIME(2), STRING>"],
)
def test_times_keep_their_digits(kind: str) -> None:
    for cast in ("CAST", "TRY_CAST"):
        said = check(f"SELECT {cast}(NULL AS {kind}) AS t", "spark", catalog={}, limits=ParserLimits())
        assert f"{cast}(NULL AS {kind})" in said.sql(SPARK_SQL)


@pytest.mark.parametrize("text", ["TIME '01:02:03'", "CAST('01:02:03' AS TIME)"])
def test_a_time_of_day_stays_one(text: str) -> None:
    said = checked(f"SELECT a FROM t WHERE clock = {text}")
    assert text in said.sql(SPARK_SQL)
    with pytest.raises(NoEquivalent):
        said.sql(DUCKDB_SQL)


@pytest.mark.parametrize(
    "interval", ["INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '1 02:03:04' DAY TO SECOND", "INTERVAL '3' MONTH"]
)
def test_intervals_of_several_units_are_read(interval: str) -> None:
    assert checked(f"SELECT {interval} AS x").sql(SPARK_SQL) == f"SELECT {interval} AS `x`"
