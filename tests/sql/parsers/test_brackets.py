"""Texts that we write are read as the trees that they are written from, whatever operator stands in which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import duckdb
import pytest
from sqlglot import exp

from engines.errors import UnsupportedFeature
from sql.errors import NotAllowed
from sql.parsers.brackets import put_brackets
from sql.parsers.dialects import SparkAsWritten
from sql.parsing import ParserLimits
from sql.statement import CheckedStatement, check
from sql.tables import Column, TableSource
from tests.writers import DUCKDB_SQL, SPARK_SQL

COLUMNS = ("a", "b", "c")
FLAGS = TableSource("flags", "/data/flags", "parquet", tuple(Column(name, "boolean") for name in COLUMNS))
NUMBERS = TableSource("numbers", "/data/numbers", "parquet", tuple(Column(name, "int") for name in COLUMNS))
TEXTS = TableSource("texts", "/data/texts", "parquet", tuple(Column(name, "string") for name in COLUMNS))
CATALOG = {table.name: table for table in (FLAGS, NUMBERS, TEXTS)}

BINARY = (
    *(exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.Like, exp.ILike, exp.RegexpLike, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.DPipe),
    *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor),  # shifts are written as functions
)
FEW = (exp.And, exp.Or, exp.EQ, exp.NullSafeEQ, exp.LT, exp.Sub, exp.Mul)  # one or two of each rank
UNARY = (exp.Not, exp.Neg, exp.BitwiseNot)


def operators(operand: exp.Expr, binary: Sequence[type[exp.Expr]] = BINARY) -> Iterator[exp.Expr]:
    """Yield operators with an operand, once in each of its places."""
    other = exp.column("c")
    for kind in binary:
        yield kind(this=operand.copy(), expression=other.copy())
        yield kind(this=other.copy(), expression=operand.copy())
    for kind in UNARY:
        yield kind(this=operand.copy())
    yield exp.Is(this=operand.copy(), expression=exp.Null())
    yield exp.In(this=operand.copy(), expressions=[other.copy()])
    for places in ("this", "low", "high"):
        yield exp.Between(**{name: (operand if name == places else other).copy() for name in ("this", "low", "high")})
    yield exp.Bracket(this=operand.copy(), expressions=[exp.Literal.number(0)])


PAIRS = [outer for inner in operators(exp.column("a")) for outer in operators(inner)]
FEW_PAIRS = [outer for inner in operators(exp.column("a"), FEW) for outer in operators(inner, FEW)]


def bare(tree: exp.Expr) -> exp.Expr:
    """Return a tree without its brackets."""
    copy = exp.Tuple(expressions=[tree.copy()])
    for node in list(copy.find_all(exp.Paren)):
        node.replace(node.this)
    found = copy.expressions[0]
    assert isinstance(found, exp.Expr)
    return found


def written(node: exp.Expr) -> str:
    """Write an expression with brackets around everything, as a client might."""
    copy = exp.Tuple(expressions=[node.copy()])
    for inner in reversed(list(copy.expressions[0].find_all(*BINARY, *UNARY, exp.Is, exp.In, exp.Between))):
        inner.replace(exp.paren(inner.copy()))
    return str(copy.expressions[0].sql(dialect=SparkAsWritten))


def read(text: str) -> exp.Expr:
    select = SparkAsWritten().parse(f"SELECT {text}")[0]
    assert isinstance(select, exp.Select)
    found = select.expressions[0]
    assert isinstance(found, exp.Expr)
    return found


def test_every_pair_of_operators_is_read_as_it_was_meant() -> None:
    wrong = []
    for tree in PAIRS:
        holder = exp.Tuple(expressions=[tree.copy()])
        put_brackets(holder)
        text = holder.expressions[0].sql(dialect=SparkAsWritten)
        if isinstance(tree, exp.And | exp.Or) and type(tree) is type(tree.expression):
            continue  # read from the left, which is the same
        if written(bare(read(text))) != written(tree):
            wrong.append((text, repr(tree)))
    assert wrong == []


def checked(sql: str, dialect: str = "spark") -> CheckedStatement:
    return check(sql, dialect, catalog=CATALOG, limits=ParserLimits())


def _row(values: Sequence[object]) -> str:
    return f"({', '.join('NULL' if value is None else str(value) for value in values)})"


VALUES = {"flags": (True, False, None), "numbers": (0, 1, 3, None)}


def test_duckdbs_text_means_what_brackets_around_everything_mean() -> None:
    """What is read from a text with few brackets gives the same rows as from one with all of them."""
    compared = 0
    with duckdb.connect() as connection:
        for table, values in VALUES.items():
            rows = (
                f"({', '.join('NULL' if value is None else str(value) for value in row)})"
                for row in product(values, repeat=3)
            )
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM (VALUES {', '.join(rows)}) AS t(a, b, c)")
            for tree in FEW_PAIRS:
                holder = exp.Tuple(expressions=[tree.copy()])
                put_brackets(holder)
                few = holder.expressions[0].sql(dialect=SparkAsWritten)
                try:
                    one, other = (
                        checked(f"SELECT {text} AS v FROM {table}").sql(DUCKDB_SQL) for text in (few, written(tree))
                    )
                except UnsupportedFeature:  # such as an AND of numbers
                    continue
                if one != other:
                    assert connection.sql(one).fetchall() == connection.sql(other).fetchall(), one
                compared += 1
    assert compared > 100


@pytest.mark.parametrize("dialect", ["spark", "hive", "impala"])
@pytest.mark.parametrize(
    ("expression", "spark"),
    [
        ("a = NOT b IN (TRUE)", "`a` = (NOT `b` IN (TRUE))"),
        ("a AND b OR c", "`a` AND `b` OR `c`"),
        ("a AND (b OR c)", "`a` AND (`b` OR `c`)"),
        ("NOT a = b", "NOT `a` = `b`"),
    ],
)
def test_texts_get_the_brackets_that_they_need(dialect: str, expression: str, spark: str) -> None:
    assert checked(f"SELECT {expression} AS v FROM flags", dialect).sql(SPARK_SQL) == (
        f"SELECT {spark} AS `v` FROM `flags` AS `flags`"
    )


@pytest.mark.parametrize(
    "expression", ["a RLIKE b IN ('x')", "a = b < c", "a LIKE 'x' = c", "a BETWEEN b AND c = b", "a = b IN ('x')"]
)
@pytest.mark.parametrize("dialect", ["spark", "hive", "impala"])
def test_a_comparison_of_a_comparison_needs_brackets(dialect: str, expression: str) -> None:
    with pytest.raises(NotAllowed, match="brackets"):
        checked(f"SELECT {expression} AS v FROM texts", dialect)


@pytest.mark.parametrize("dialect", ["spark", "hive", "impala"])
def test_a_query_with_an_order_keeps_it_beside_another(dialect: str) -> None:
    last = " NULLS LAST" if dialect == "impala" else ""
    for sql in (
        "SELECT * FROM (SELECT a FROM flags ORDER BY a UNION ALL SELECT b FROM flags) x",
        "SELECT * FROM ((SELECT a FROM flags ORDER BY a) UNION ALL SELECT b FROM flags) x",
    ):
        text = checked(sql, dialect).sql(SPARK_SQL)
        assert text == (
            f"SELECT * FROM ((SELECT `a` FROM `flags` AS `flags` ORDER BY `a`{last}) "
            "UNION ALL SELECT `b` FROM `flags` AS `flags`) AS `x`"
        )
