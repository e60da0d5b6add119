"""What is read without the general parser is what the general parser makes of it."""

from __future__ import annotations

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot.errors import SqlglotError

from selector.cardinality.predicates.plain_text import MOST_NESTED, read_plain

DIALECTS = ("duckdb", "hive", "spark")

columns = st.sampled_from(["a", "b_1", "D_Date", '"two words"', "date", "number", "year", "left", "current_date"])
constants = st.sampled_from(
    ["0", "12.50", "-7", "''", "'it''s'", "'50%'", "NULL", "true", "'2020-01-31'::DATE", "CAST('1' AS DECIMAL(7,2))"]
)
values = st.one_of(columns, constants, columns.map("CAST({} AS BIGINT)".format), columns.map("{}::VARCHAR".format))
comparisons = st.one_of(
    st.builds("{} {} {}".format, values, st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="]), values),
    st.builds("{} IN ({}, {})".format, columns, constants, constants),
    st.builds("{} BETWEEN {} AND {}".format, columns, constants, constants),
    st.builds("{} IS {}NULL".format, columns, st.sampled_from(["", "NOT "])),
    columns,
)
predicates = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds("({})".format, inner),
        st.builds("NOT {}".format, inner),
        st.builds("{} {} {}".format, inner, st.sampled_from(["AND", "OR", "and"]), inner),
        st.builds("(({}) IS NULL)".format, inner),
    ),
    max_leaves=12,
)


@given(predicates, st.sampled_from(DIALECTS))
def test_reads_what_the_general_parser_reads(text: str, dialect: str) -> None:
    found = read_plain(text, dialect)
    if found is None:
        return
    expected = sqlglot.parse_one(text, read=dialect)
    assert found == expected, repr(expected)
    assert found.sql(dialect=dialect) == expected.sql(dialect=dialect)


@given(st.text("ab12.'\"()<>=!:,- ;\\%*/xANDORTNULLIS", max_size=24), st.sampled_from(DIALECTS))
def test_reads_nothing_that_is_no_expression(text: str, dialect: str) -> None:
    found = read_plain(text, dialect)
    if found is None:
        return
    try:
        expected = sqlglot.parse_one(text, read=dialect)
    except SqlglotError:
        pytest.fail(f"{text!r} is no expression, and was read as {found!r}")
    assert found == expected


@pytest.mark.parametrize(
    "text",
    [
        "(a = 1)",
        "((a >= 'AI') AND (a < 'AJ'))",
        "(date <= '2014-01-01 00:00:00'::TIMESTAMP)",
        "(NOT ((a = 1) OR (b IN (2, 3))))",
        "CAST(a AS DOUBLE) > -1.5",
        "(a BETWEEN 1 AND 2)",
        "(a IS NOT NULL)",
    ],
)
def test_reads_what_engines_print_most(text: str) -> None:
    assert read_plain(text, "duckdb") is not None


@pytest.mark.parametrize(
    "text",
    [
        "a LIKE 'x%'",
        "lower(a) = 'x'",
        "a = 1 + 2",
        "a = 'one' 'two'",
        "a = 1 -- or so",
        "a = 1;",
        "a.b = 1",
        "a = 1e3",
        "current_date = 1",
        r"a = 'it\'s'",
        "a::DOUBLE PRECISION = 1",
        "(" * (MOST_NESTED + 2) + "a" + ")" * (MOST_NESTED + 2),
        "",
    ],
)
def test_leaves_other_forms_to_the_general_parser(text: str) -> None:
    assert read_plain(text, "duckdb") is None
