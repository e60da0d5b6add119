"""What a name of several parts means: relation, column or field, as Spark takes it."""

from __future__ import annotations

import pytest

from engines.errors import UnsupportedFeature
from sql.errors import SqlError, SyntaxInvalid
from sql.names import Naming
from sql.parsing import ParserLimits
from sql.statement import CheckedStatement, check
from sql.tables import Column, TableSource
from tests.writers import DUCKDB_SQL, SPARK_SQL

NESTED = TableSource("f", "/f", "parquet", (Column("id", "int"), Column("a", "struct<b:struct<c:int>>")))
PLAIN = TableSource("g", "/g", "parquet", (Column("c", "int"), Column("x", "int")))
SALES = TableSource("shop.g", "/shop/g", "parquet", (Column("c", "int"), Column("x", "int")))
NAMING = Naming("default", frozenset({"default", "shop"}))


def checked(sql: str) -> CheckedStatement:
    catalog = {table.name: table for table in (NESTED, PLAIN, SALES)}
    facts = {"current_user": "ann"}
    return check(sql, "spark", catalog=catalog, limits=ParserLimits(), naming=NAMING, facts=facts)


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT a.b.c FROM f CROSS JOIN g b", "`a`.`b`.`c`"),
        ("SELECT f.a.b.c FROM f CROSS JOIN g b", "`f`.`a`.`b`.`c`"),
        ("SELECT b.c FROM f CROSS JOIN g b", "`b`.`c`"),
        ("SELECT default.f.a.b FROM f", "`f`.`a`.`b`"),
        ("SELECT spark_catalog.default.f.a FROM f", "`f`.`a`"),
        ("SELECT shop.g.x FROM shop.g", "`g`.`x`"),
        ("SELECT max(a.b.c) AS m FROM f GROUP BY a.b", "MAX(`a`.`b`.`c`) AS `m`"),
        ("SELECT (SELECT a.b.c FROM f LIMIT 1) AS s FROM g a", "`a`.`b`.`c`"),
    ],
)
def test_the_longest_name_of_a_relation_comes_first_then_a_column_then_fields(sql: str, text: str) -> None:
    assert text in checked(sql).sql(SPARK_SQL)


def test_a_field_is_never_a_column_of_another_relation_on_duckdb() -> None:
    with pytest.raises(UnsupportedFeature):
        checked("SELECT a.b.c FROM f CROSS JOIN g b").sql(DUCKDB_SQL)
    with pytest.raises(UnsupportedFeature):
        checked("SELECT (SELECT max(a.b) FROM f) FROM g a").sql(DUCKDB_SQL)
    assert '"b"."c"' in checked("SELECT b.c FROM f CROSS JOIN g b").sql(DUCKDB_SQL)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT g.nope FROM g",
        "SELECT shop.g.x FROM shop.g t",
        "SELECT other.x FROM g",
        "SELECT x FROM (SELECT c FROM g)",
        "SELECT x FROM (SELECT * FROM (SELECT c FROM g))",
        "WITH w AS (SELECT * FROM f) SELECT x FROM w",
        "SELECT CAST(nope AS INT) FROM g",
    ],
)
def test_a_name_that_nothing_has_is_an_error(sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        checked(sql)
    assert caught.value.code == "UNKNOWN_COLUMN"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT x, c FROM (SELECT * FROM g)",
        "SELECT f.id FROM f LEFT SEMI JOIN g ON id = x",
        "SELECT f.id FROM f LEFT ANTI JOIN g ON id = x AND c > 1",
        "SELECT count(*) FROM g, g",
        "SELECT default.g.x, shop.g.x AS y FROM g JOIN shop.g ON default.g.x = shop.g.x",
        "SELECT shop.g.* FROM g JOIN shop.g ON default.g.x = shop.g.x",
        "SELECT x + 1 AS y FROM g HAVING y > 1",
        "SELECT named_struct('b', 1) AS s FROM g ORDER BY s.b",
        "SELECT x FROM g WHERE EXISTS (SELECT 1 FROM f WHERE f.id = g.x AND a.b.c = c)",
    ],
)
def test_names_that_mean_something_are_taken(sql: str) -> None:
    assert checked(sql).sql(SPARK_SQL)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT current_user",
        "SELECT * FROM (SELECT current_user FROM g) q",
        "WITH q AS (SELECT current_user, x FROM g) SELECT * FROM q",
        "FROM g |> SELECT current_user |> WHERE true",
        "FROM g |> SET x = current_user |> EXTEND current_user |> ORDER BY current_user",
        "SELECT x FROM g UNION ALL SELECT x FROM g ORDER BY current_user",
        "(SELECT current_user) ORDER BY current_user",
        "SELECT x FROM g UNION SELECT current_user",
        "VALUES (current_user)",
        "SELECT x FROM g WHERE EXISTS (SELECT 1 FROM f WHERE x = current_user)",
        "SELECT current_user FROM g LATERAL VIEW explode(array(1)) AS e",
    ],
)
def test_no_engine_is_asked_who_its_own_user_is(sql: str) -> None:
    """A name that a query gives is none that a query within it may mean."""
    statement = checked(sql)
    assert statement.tells_of_session
    assert "'ann'" in statement.sql(SPARK_SQL)
    assert "`current_user`" not in statement.sql(SPARK_SQL)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nope FROM (SELECT nope FROM g)",
        "SELECT nope FROM g UNION SELECT x FROM g",
        "(SELECT nope FROM g) ORDER BY nope",
        "SELECT * FROM f p JOIN (SELECT p.id FROM g) b",
        "SELECT x FROM g UNION SELECT c FROM g ORDER BY c",
    ],
)
def test_a_query_does_not_see_what_stands_beside_or_around_it_in_from(sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        checked(sql)
    assert caught.value.code == "UNKNOWN_COLUMN"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT (SELECT max(y) FROM (SELECT g.x AS y FROM f) d) FROM g",
        "SELECT * FROM g, LATERAL (SELECT g.x + 1 AS z) e",
        "SELECT (SELECT g.x UNION SELECT 1) FROM g",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
        "SELECT x + 1 FROM g UNION SELECT 2 ORDER BY `(x + 1)`",
        "SELECT * FROM g UNION SELECT * FROM g ORDER BY x",
        "(SELECT x FROM g) ORDER BY x",
    ],
)
def test_a_query_sees_what_is_outside_of_the_query_that_it_is_part_of(sql: str) -> None:
    assert checked(sql).sql(SPARK_SQL)


def test_two_relations_of_one_name_are_refused() -> None:
    with pytest.raises(SqlError, match="different names with AS"):
        checked("SELECT 1 FROM f x, g x")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT g.x FROM g, shop.g",
        "SELECT g.* FROM g, shop.g",
        "SELECT default.g.x FROM g, shop.g WHERE g.x = 1",
        "SELECT g.x FROM shop.g AS g, g",
        "SELECT g.x FROM g, g",
        "WITH w AS (SELECT x FROM g) SELECT w.x FROM w, w",
    ],
)
def test_a_name_that_may_be_of_several_relations_is_refused(sql: str) -> None:
    with pytest.raises(SyntaxInvalid, match=r"(may be of|are called)"):
        checked(sql)
