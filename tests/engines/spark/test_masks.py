"""Masks are no constants for Spark: what a statement looks at in no row does not fail while Spark plans."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.compiled import SPARK_WRITER
from engines.errors import StatementError
from engines.spark.engine import SparkConnectEngine
from sql.access.rights import Restriction
from sql.dialects.names import SPARK
from sql.dialects.session_functions import facts_of
from sql.parsing import ParserLimits
from sql.statement import check
from sql.tables import Column, TableSource
from tests.engines.conformance import ask

pytestmark = pytest.mark.spark

CONSTANTS = (
    "'***'",
    "concat('*', '**')",
    "CASE WHEN is_member('staff') THEN name ELSE '***' END",
    "if(current_user() = 'root', name, '***')",
    "coalesce(nullif(current_user(), 'ann'), '***')",
)
LOOKED_AT_IN_NO_ROW = (
    "SELECT sum(CAST(name AS INT)) FILTER (WHERE name RLIKE '^[0-9]') AS s, count(name) AS n FROM people"
)


class Masked:
    """Rights of a user to whom names are masked."""

    name = user = "ann"

    def __init__(self, mask: str) -> None:
        self._mask = mask

    def sees(self, relation: str) -> bool:
        return True

    def restriction(self, relation: str, columns: Sequence[Column], lender: str | None = None) -> Restriction:
        return Restriction(("id", "name"), (), {"name": self._mask})


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory, spark_engine: SparkConnectEngine) -> TableSource:
    file = tmp_path_factory.mktemp("people") / "people.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3], "name": ["ann", "17", None]}), file)
    table = TableSource("people", str(file), "parquet", (Column("id", "bigint"), Column("name", "string")))
    spark_engine.use_tables([table])
    return table


def written(people: TableSource, mask: str, sql: str) -> str:
    facts = facts_of("ann", SPARK, "default", "test")
    statement = check(sql, SPARK, catalog={"people": people}, limits=ParserLimits(), access=Masked(mask), facts=facts)
    return statement.sql(SPARK_WRITER)


@pytest.mark.parametrize("mask", CONSTANTS)
def test_what_is_looked_at_in_no_row_does_not_fail(
    spark_engine: SparkConnectEngine, people: TableSource, mask: str
) -> None:
    answer = ask(spark_engine, written(people, mask, LOOKED_AT_IN_NO_ROW))
    assert answer.to_pylist() == [{"s": None, "n": 3}]  # masked NULLs are masked values, too


def test_over_a_constant_it_would_fail(spark_engine: SparkConnectEngine, people: TableSource) -> None:
    with pytest.raises(StatementError, match="CAST_INVALID_INPUT"):
        ask(spark_engine, LOOKED_AT_IN_NO_ROW.replace("people", "(SELECT '***' AS name FROM people)"))


def test_a_mask_that_fails_for_each_value_still_does(spark_engine: SparkConnectEngine, people: TableSource) -> None:
    with pytest.raises(StatementError, match="CAST_INVALID_INPUT"):
        ask(spark_engine, written(people, "'***'", "SELECT CAST(name AS INT) AS n FROM people"))
