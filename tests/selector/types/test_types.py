"""Types of columns: what is read, what is refused, and that what is written is read again as the same by everybody."""

from __future__ import annotations

import time

import duckdb
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from selector.quoting import LONGEST_NAME, duckdb_name, duckdb_string, spark_name, spark_string
from selector.types import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    DataType,
    InvalidType,
    Kind,
    NoSuchType,
    array,
    decimal,
    map_of,
    parse,
    parse_at,
    struct,
)

HOSTILE_NAMES = ["a b", "a`b", "``", 'a"b', "a'b", "a\\", "ä", "1a", "a:int>,b", "${env:HOME}", "--x", "/*", "x" * 255]

plain = st.sampled_from([DataType(kind) for kind in Kind if kind not in ("array", "map", "struct", "decimal", "time")])
sized = st.one_of(
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: decimal(p, s))),
    st.sampled_from([DataType(Kind.TIME, 3), DataType(Kind.VARCHAR, 20), DataType(Kind.CHAR, 1)]),
)
names = st.one_of(
    st.sampled_from(HOSTILE_NAMES),
    st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=20).filter(lambda name: name.strip()),
)


def _fields(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[list[tuple[str, DataType]]]:
    return st.lists(st.tuples(names, types), max_size=4, unique_by=lambda field: field[0].lower())


scalars = st.one_of(plain.filter(lambda kind: kind.kind not in ("char", "varchar")), sized)
data_types = st.recursive(
    scalars,
    lambda inner: st.one_of(inner.map(array), st.builds(map_of, inner, inner), _fields(inner).map(struct)),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("BIGINT", "bigint"),
        ("  long ", "bigint"),
        ("decimal", "decimal(10,0)"),
        ("NUMERIC( 12 , 2 )", "decimal(12,2)"),
        ("dec(5)", "decimal(5,0)"),
        ("timestamp with local time zone", "timestamp"),
        ("timestamp without time zone", "timestamp_ntz"),
        ("timestamp_ltz", "timestamp"),
        ("time", "time(6)"),
        ("time(0)", "time(0)"),
        ("varchar(20)", "varchar(20)"),
        ("struct<a int, b: string>", "struct<a:int,b:string>"),
        ("array<map<string,struct<`a b`:decimal(3,1)>>>", "array<map<string,struct<`a b`:decimal(3,1)>>>"),
        ("struct<>", "struct<>"),
    ],
)
def test_types_have_one_short_form(text: str, meant: str) -> None:
    assert str(parse(text)) == meant
    assert parse(meant) == parse(text)


@pytest.mark.parametrize(
    ("text", "at", "why"),
    [
        ("decimal(`1,0)) as c from (select transform(1) using 'id' as (o string)) --`)", 8, "a number is expected"),
        ("bigint) AS x; CREATE OR REPLACE VIEW t AS SELECT 1; --", 6, "nothing may follow"),
        ("int; drop table t", 3, "nothing may follow"),
        ("int -- x", 4, "nothing may follow"),
        ("", 0, "a type is expected"),
        ("text", 0, "did you mean string"),
        ("bigin", 0, "did you mean bigint"),
        ("varchar", 0, "needs a length"),
        ("char(0)", 0, "needs a length"),
        ("decimal(39)", 0, "1 to 38 digits"),
        ("decimal(5,6)", 0, "after the point"),
        ("decimal(1e1)", 8, "a number is expected"),
        ("decimal(" + "9" * 400 + ")", 8, "a number is expected"),
        ("decimal(٣)", 8, "a number is expected"),
        ("time(9)", 0, "at most 6"),
        ("array<int", 9, "> is expected"),
        ("struct<a:int,A:string>", 13, "two fields"),
        ("struct<`a`b:int>", 10, "no type b"),
        ("struct<`a:int>", 7, "does not end"),
        ("struct<``:int>", 7, "is empty"),
        ("struct<`a\0`:int>", 7, "control character"),
        ("struct<`" + "x" * (LONGEST_NAME + 1) + "`:int>", 7, "longer than"),
        ("array<" * (MAX_DEPTH + 1) + "int", 6 * MAX_DEPTH, "nested at most"),
        ("timestamp with time zone", 10, "nothing may follow"),
    ],
)
def test_what_is_no_type_is_refused_with_its_place(text: str, at: int, why: str) -> None:
    with pytest.raises(InvalidType, match=why) as refused:
        parse(text)
    assert refused.value.at == at


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("varchar(3)", "string"),
        ("char(9)", "string"),
        ("time(3)", "time(3)"),
        ("decimal(3,1)", "decimal(3,1)"),
        ("map<varchar(3),struct<`a b`:array<char(1)>>>", "map<string,struct<`a b`:array<string>>>"),
    ],
)
def test_a_schema_that_is_read_has_no_lengths(text: str, without: str) -> None:
    assert str(parse(text).with_plain_texts()) == without


def test_a_type_is_read_out_of_the_middle_of_a_text() -> None:
    text = "create table t (c array<decimal(3, 1)> comment 'x', d timestamp with y)"
    assert parse_at(text, text.index("array")) == (array(decimal(3, 1)), text.index(" comment"))
    assert parse_at(text, text.index("timestamp")) == (DataType(Kind.TIMESTAMP), text.index(" with y"))


@given(data_types)
def test_what_is_written_is_read_as_the_same(data_type: DataType) -> None:
    assert parse(str(data_type)) == data_type
    assert parse(data_type.spark()) == data_type


@given(data_types)
def test_duckdb_reads_one_type_in_what_is_written_for_it(data_type: DataType) -> None:
    try:
        text = data_type.duckdb()
    except NoSuchType:
        return
    statements = duckdb.extract_statements(f"SELECT CAST(NULL AS {text}) AS c")
    assert [statement.type for statement in statements] == [duckdb.StatementType.SELECT]
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT typeof(CAST(NULL AS {text})), 1 AS last").fetchone()[1] == 1  # type: ignore[index]


@given(names)
def test_names_and_strings_are_data_whatever_is_in_them(name: str) -> None:
    with duckdb.connect() as connection:
        answer = connection.execute(f"SELECT {duckdb_string(name)} AS {duckdb_name(name)}")
        assert ([column[0] for column in answer.description], answer.fetchall()) == ([name], [(name,)])
    column = sqlglot.parse_one(f"SELECT {spark_string(name)} AS {spark_name(name)}", read="spark").find(exp.Alias)
    assert column is not None
    assert (column.alias, column.this) == (name, exp.Literal.string(name))


@pytest.mark.parametrize(
    "shape",
    ["array<{}", "struct<{}", "`{}", " {}", "struct<`{}", "decimal({}", "{}(", "map<{},"],
)
def test_reading_takes_linear_time(shape: str) -> None:
    def seconds(count: int) -> float:
        text = shape.format("a`" * count)
        started = time.perf_counter()
        with pytest.raises(InvalidType):
            parse(text)
        return time.perf_counter() - started

    seconds(1_000)
    assert seconds(MAX_CHARACTERS // 2) < 5.0
