"""Messages name syntax in the reader's words, never by the parser's classes."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import sqlglot.parser
from sqlglot import exp

from engines.errors import UnsupportedFeature
from sql.allowlist import syntax
from sql.errors import NotAllowed, SqlError
from sql.parsers.words import describe, expected, first_word
from sql.parsing import USUAL_LIMITS, parse
from sql.statement import check
from sql.tables import Column, TableSource
from tests.writers import DUCKDB_SQL

KINDS = sorted(
    {kind for _, kind in inspect.getmembers(exp, inspect.isclass) if issubclass(kind, exp.Expression)},
    key=lambda kind: kind.__name__,
)
SQL_WORDS = {"tablesample", "serdeproperties"}
JOINED = {
    kind.__name__.lower()
    for kind in KINDS
    if re.search(r"[a-z][A-Z]", kind.__name__) and not issubclass(kind, exp.Func)
} - SQL_WORDS
"""Names of classes that are several words in one, so that no SQL has them by chance."""

RAISED = re.findall(
    r"raise_error\(\s*f?\"([^\"]+)\"",
    "".join(
        path.read_text(encoding="utf-8")
        for path in [
            Path(sqlglot.parser.__file__),
            *(Path(sqlglot.parser.__file__).parent / "parsers").glob("*.py"),
        ]
    ),
)


def shows_no_class(message: str) -> bool:
    words = set(re.findall(r"[a-z]+", message.lower()))
    return not words & JOINED and not re.search(r"<(?:class|Token)|\bclass\b|\bToken\b|sqlglot|keyword:", message)


def instances(kind: type[exp.Expr]) -> list[exp.Expr]:
    required = {name: exp.column("a") for name, needed in kind.arg_types.items() if needed}
    return [kind(), kind(**required)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_message_holds_a_class_name(kind: type[exp.Expr]) -> None:
    for node in instances(kind):
        assert shows_no_class(describe(node)), describe(node)
        assert shows_no_class(first_word(node)), first_word(node)
    for tree in (node, exp.Select(expressions=[node])):
        try:
            syntax.check(tree)
        except NotAllowed as error:
            assert shows_no_class(error.message), error.message


@pytest.mark.parametrize("raised", sorted(set(RAISED)))
def test_no_syntax_error_shows_the_parsers_inside(raised: str) -> None:
    assert len(RAISED) > 30
    shown = "<Token token_type: TokenType.FROM, text: FROM, line: 1, col: 3>"
    filled = re.sub(r"\{[^}]*[cC]urr[^}]*\}", shown, raised)
    filled = re.sub(r"\{[^}]*(?:this\.key|__name__)\}", "multitableinserts", filled)
    filled = re.sub(r"\{[^}]*\}", "x", filled)
    assert shows_no_class(expected(filled)), expected(filled)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_a_node_misses_is_told_without_its_name(kind: type[exp.Expr]) -> None:
    for message in kind().error_messages():
        assert shows_no_class(expected(message)), expected(message)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM t WHERE", "Expected a condition after WHERE"),
        ("SELECT * FROM", "Expected a table's name"),
        ("SELECT a FROM t JOIN", "Expected a table's name"),
        ("SELECT a FROM t FETCH FIRST 10 PERCENT ROWS ONLY", "An option of LIMIT or FETCH"),
        ("SELECT :a", "A parameter without a value"),
        ("SELECT a FROM t AS x(a INT)", "A column's definition"),
    ],
)
def test_what_people_write_is_told_in_their_words(sql: str, message: str) -> None:
    with pytest.raises(SqlError) as raised:
        parse(sql, "spark", USUAL_LIMITS)
    assert message in raised.value.message


def test_what_duckdb_has_no_equal_for_is_told_so_too() -> None:
    table = TableSource("t", "/t", "parquet", (Column("a", "int"), Column("s", "string")))
    for sql in (
        "SELECT a << 1 FROM t",
        "SELECT s COLLATE UNICODE FROM t",
        "SELECT a FROM t PIVOT (max(s) FOR a IN (1))",
        "SELECT * FROM range(3)",
        "SELECT a FROM t LATERAL VIEW explode(array(a)) e AS x",
        "SELECT CAST(NULL AS STRUCT<a: INT>) FROM t",
        "SELECT mask(s, lowerChar => 'x') FROM t",
    ):
        checked = check(sql, "spark", catalog={"t": table}, limits=USUAL_LIMITS)
        try:
            checked.sql(DUCKDB_SQL)
        except SqlError as error:
            raise AssertionError from error
        except UnsupportedFeature as error:
            assert shows_no_class(str(error)), str(error)
