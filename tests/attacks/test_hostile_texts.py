"""What the gateway writes means on an engine's own parser what the gateway read: text by text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlglot import exp

from engines.errors import EngineError
from engines.spark_sql.session_settings import SESSION_SETTINGS
from sql.dialects.names import DIALECTS
from sql.errors import SqlError
from sql.parsing import ParserLimits
from sql.statement import CheckedStatement, check
from sql.tables import Column, TableSource
from tests.attacks.hostile_texts import HostileTexts
from tests.writers import DUCKDB_SQL, LIBRARY_SQL, SPARK_SQL

TABLE = TableSource("t", "/nowhere", "parquet", (Column("a", "string"), Column("b", "int"), Column("c d", "string")))
CATALOG = {"t": TABLE}
NESTED = (
    "with s as (select 1 as a) select * from (with s as (select 2 as a) select * from s) as u",
    "with s as (select 1 as a), u as (with s as (select 2 as a) select * from s) select * from s, u",
    "select (with s as (select 3 as a) select a from s) as x, (with s as (select 4 as a) select a from s) as y",
    "with s as (select 1 as a) (with s as (select a + 1 as a from s) select * from s) union all select * from s",
)
NEVER = (
    "ScriptTransformation",
    "Command",
    "Reflect",
    "CallMethod",
    "TableValuedFunction",
    "InsertInto",
    "Create",
    "Drop",
)


def checked(sql: str, dialect: str) -> CheckedStatement | None:
    """Return a statement, None where it is refused. Whatever else is raised is a defect."""
    try:
        return check(sql, dialect, catalog=CATALOG, limits=ParserLimits())
    except SqlError:
        return None


def written(statement: CheckedStatement, writer: str) -> str | None:
    """Return a statement's text for an engine, None where it has no words for it."""
    try:
        return statement.sql(writer)
    except EngineError:
        return None


# ---------------------------------------------------------------------- the reader alone


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_hint_that_cannot_be_read_is_forgotten(dialect: str) -> None:
    for hint in ("broadcast(1S)", "broadcast(t)", "a(b(c))", "broadcast('t'", "", "1", "x y z", "engine(1)"):
        checked(f"select /*+ {hint} */ 1 as a", dialect)
    assert checked("select /*+ broadcast(1S) */ 1 as a", dialect) is not None


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("call", ["map(1)", "regexp_replace('a', 'b')", "regexp_replace()", "split('a')", "date_add()"])
def test_functions_of_too_few_arguments_are_no_defect(call: str, dialect: str) -> None:
    statement = checked(f"select {call} as a", dialect)
    if statement is not None:
        for writer in (SPARK_SQL, DUCKDB_SQL, LIBRARY_SQL):
            written(statement, writer)


@pytest.mark.parametrize("number", ["1e", "1E", "2.5e", "1e+"])
def test_an_exponent_without_digits_is_no_number(number: str) -> None:
    """Spark would take it for the name of a column."""
    for dialect in DIALECTS:
        assert checked(f"select {number} as a from t", dialect) is None


@pytest.mark.parametrize("sql", NESTED)
def test_expressions_of_one_name_get_names_of_their_own(sql: str) -> None:
    statement = check(sql, "spark", catalog={}, limits=ParserLimits())
    names = [expression.alias for expression in statement.tree.find_all(exp.CTE)]
    assert len(names) == len(set(names))
    for writer in (SPARK_SQL, DUCKDB_SQL, LIBRARY_SQL):
        assert written(statement, writer) is not None


def test_a_column_in_brackets_keeps_its_name() -> None:
    statement = check("select distinct (a) from t order by a", "spark", catalog=CATALOG, limits=ParserLimits())
    assert isinstance(statement.tree, exp.Query)
    assert statement.tree.named_selects == ["a"]


# ---------------------------------------------------------------------- engines' own parsers


def test_duckdbs_parser_sees_one_query(count: int = 300, seed: int = 1) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    connection = duckdb.connect()
    seen = 0
    for dialect, sql in HostileTexts(seed).statements(count):
        statement = checked(sql, dialect)
        text = written(statement, DUCKDB_SQL) if statement is not None else None
        if statement is None or text is None:
            continue
        found = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchone()
        assert found is not None
        tree = json.loads(found[0])
        assert not tree["error"], (sql, text, tree)
        assert len(tree["statements"]) == 1, (sql, text)
        nodes = list(_objects(tree))
        known = {"t", *(expression.alias for expression in statement.tree.find_all(exp.CTE))}
        assert {node["table_name"] for node in nodes if node.get("type") == "BASE_TABLE"} <= known, (sql, text)
        assert not [node for node in nodes if node.get("type") == "TABLE_FUNCTION"], (sql, text)
        seen += 1
    connection.close()
    assert seen > count / 50


@pytest.mark.spark
def test_sparks_parser_sees_the_same_texts_and_names(tmp_path: Path, count: int = 500, seed: int = 2) -> None:
    pytest.importorskip("pyspark")
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    from tests.attacks.spark_parser import spark_parser

    seen = 0
    with spark_parser(tmp_path, SESSION_SETTINGS) as parser:
        for sql in NESTED:
            parser.plan(check(sql, "spark", catalog={}, limits=ParserLimits()).sql(SPARK_SQL))
        for dialect, sql in HostileTexts(seed).statements(count):
            statement = checked(sql, dialect)
            text = written(statement, SPARK_SQL) if statement is not None else None
            if statement is None or text is None:
                continue
            try:
                nodes = parser.plan(text)
            except Py4JJavaError:
                continue  # Spark refuses it: that is no other meaning
            kinds = {node["class"].rpartition(".")[2] for node in nodes}
            assert not [kind for kind in kinds if any(part in kind for part in NEVER)], (sql, text)
            theirs = {node["value"] for node in nodes if _is_text(node)}
            assert theirs <= _texts(statement.tree), (sql, text)
            named = {node["name"] for node in nodes if node["class"].endswith(".Alias")}
            assert named <= {alias.alias for alias in statement.tree.find_all(exp.Alias, exp.Subquery)} | _names_inside(
                nodes
            ), (
                sql,
                text,
            )
            relations = {node["multipartIdentifier"] for node in nodes if node["class"].endswith(".UnresolvedRelation")}
            known = {"t", *(expression.alias for expression in statement.tree.find_all(exp.CTE))}
            assert relations <= {f"[{name}]" for name in known}, (sql, text)
            seen += 1
    assert seen > count / 50


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.timeout(3_600)
def test_engines_parsers_see_the_same_in_20000_texts(tmp_path: Path) -> None:
    test_duckdbs_parser_sees_one_query(20_000, seed=3)
    test_sparks_parser_sees_the_same_texts_and_names(tmp_path, 20_000, seed=3)


def _is_text(node: dict[str, object]) -> bool:
    return str(node["class"]).endswith(".Literal") and node.get("dataType") == "string" and node["value"] is not None


def _texts(tree: exp.Expr) -> set[str]:
    """Return all texts of a tree, and the names of fields, which Spark keeps as texts."""
    fields = {node.expression.name for node in tree.find_all(exp.Dot)}
    return fields | {node.name for node in tree.find_all(exp.Literal, exp.RawString, exp.National)}


def _names_inside(nodes: list[dict[str, object]]) -> set[str]:
    """Return names that Spark gives to what it finds inside a query of its own."""
    return {str(node["name"]) for node in nodes if "Lambda" in str(node["class"])}


def _objects(value: object) -> list[dict[str, object]]:
    found, waiting = [], [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            found.append(one)
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return found
