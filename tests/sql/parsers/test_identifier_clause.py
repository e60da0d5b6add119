"""IDENTIFIER of a constant text is the name in it, which is checked like any other."""

from __future__ import annotations

import pytest

from gateway.commands.grammar.token_reader import words_of
from sql.errors import SqlError
from sql.parsing import ParserLimits
from tests.sql.test_resolution import checked
from tests.writers import SPARK_SQL


@pytest.mark.parametrize(
    ("sql", "means"),
    [
        ("SELECT IDENTIFIER('x') FROM IDENTIFIER('g')", "SELECT x FROM g"),
        ("SELECT IDENTIFIER('g' || '.x') FROM IDENTIFIER('default' '.g')", "SELECT g.x FROM default.g"),
        ("SELECT identifier('shop.g.x') AS IDENTIFIER('y') FROM shop.g", "SELECT shop.g.x AS y FROM shop.g"),
        ("SELECT IDENTIFIER('MA' || 'X')(IDENTIFIER('`x`')) FROM g", "SELECT MAX(`x`) FROM g"),
        ("SELECT t.* FROM g AS IDENTIFIER('t')(IDENTIFIER('a'), b)", "SELECT t.* FROM g AS t(a, b)"),
        (
            "SELECT sum(x) OVER IDENTIFIER('w') AS s FROM g WINDOW w AS (ORDER BY c)",
            "SELECT sum(x) OVER w AS s FROM g WINDOW w AS (ORDER BY c)",
        ),
        (
            "WITH IDENTIFIER('v')(IDENTIFIER('c1')) AS (SELECT 1) SELECT c1 FROM v",
            "WITH v(c1) AS (SELECT 1) SELECT c1 FROM v",
        ),
    ],
)
def test_a_constant_text_is_the_name_in_it(sql: str, means: str) -> None:
    assert checked(sql).sql(SPARK_SQL) == checked(means).sql(SPARK_SQL)


def test_commands_read_it_too() -> None:
    sql = "CREATE TABLE IDENTIFIER('ta' || 'b') (IDENTIFIER('c') INT)"
    assert [token.text for token in words_of(sql, ParserLimits())][2:5] == ["tab", "(", "c"]


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT x FROM IDENTIFIER('h')", "UNKNOWN_TABLE"),
        ("SELECT IDENTIFIER('java_method')('java.lang.System', 'exit') FROM g", "NOT_ALLOWED"),
        ("SELECT IDENTIFIER(x) FROM g", "NOT_ALLOWED"),
        ("SELECT IDENTIFIER('x' || s) FROM g", "NOT_ALLOWED"),
        ("SELECT IDENTIFIER('x y') FROM g", "NOT_ALLOWED"),
        ("SELECT IDENTIFIER('') FROM g", "NOT_ALLOWED"),
        ("SELECT IDENTIFIER('x') + nope FROM g", "UNKNOWN_COLUMN"),
        ("SELECT x FROM IDENTIFIER('parquet.`/etc`')", "NOT_ALLOWED"),
    ],
)
def test_what_is_no_name_is_refused(sql: str, code: str) -> None:
    with pytest.raises(SqlError) as caught:
        checked(sql)
    assert caught.value.code == code
