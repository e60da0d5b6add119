"""Values of conversions and their comparison, with an engine in the place of Spark that is asked here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.generated_values import kinds, write_values
from benchmarks.same_values import compare_values, counted, expressions
from sql.tables import TableSource

COUNT = 300


class Failed(Exception):
    """The other engine has no answer."""


def other_engine(sql: str, tables: Sequence[TableSource]) -> pa.Table:
    connection = duckdb.connect()
    for table in tables:
        connection.execute(f"CREATE VIEW {table.name} AS SELECT * FROM read_parquet('{table.location}/*.parquet')")
    try:
        return connection.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        raise Failed(str(error)) from error


def test_a_seed_makes_the_same_values_again(tmp_path: Path) -> None:
    for seed, folder in ((1, "a"), (1, "b"), (2, "c")):
        write_values(tmp_path / folder, 20, seed)
    one, same, other = (pq.read_table(tmp_path / folder / "part-0.parquet") for folder in "abc")
    texts = [str(table.to_pydict()) for table in (one, same, other)]  # NaN is not equal to itself
    assert texts[0] == texts[1] != texts[2]
    assert {f"c_{kind}" for kind in ("int", "string", "decimal_38_10")} <= set(one.schema.names)


def test_all_pairs_of_types_are_converted_both_ways() -> None:
    asked = set(expressions())
    assert {f"{word}(c_string AS {kind})" for word in ("CAST", "TRY_CAST") for kind in kinds()} <= asked
    assert {"round(c_double, 2)", "c_int + 3", "pow(-1, o_double)", "upper(c_string)"} <= asked
    assert not [expression for expression in asked if " | " in expression and "'" not in expression]


@pytest.mark.parametrize(
    "expression", ["TRY_CAST(c_tinyint AS bigint)", "TRY_CAST(c_bigint AS int)", "lcase(c_string)"]
)
def test_an_engine_does_not_differ_from_itself(tmp_path: Path, expression: str) -> None:
    compared = list(compare_values(tmp_path, other_engine, Failed, count=COUNT, seed=3, only=expression))
    assert [(one.expression, one.rows, one.different) for one in compared] == [(expression, COUNT, 0)]
    assert counted(compared)["values_compared"] == COUNT


def test_rows_without_an_answer_count_as_given_up(tmp_path: Path) -> None:
    (one,) = compare_values(tmp_path, other_engine, Failed, count=COUNT, seed=3, only="TRY_CAST(c_string AS int)")
    assert 0 < one.given_up < COUNT


def test_other_answers_are_found(tmp_path: Path) -> None:
    def wrong(sql: str, tables: Sequence[TableSource]) -> pa.Table:
        return other_engine(sql.replace("c_smallint", "o_smallint"), tables)

    (one,) = compare_values(tmp_path, wrong, Failed, count=COUNT, seed=3, only="TRY_CAST(c_smallint AS int)")
    assert one.different > COUNT / 2 and one.example.startswith("of (")
