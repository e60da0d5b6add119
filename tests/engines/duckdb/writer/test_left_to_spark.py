"""Statements that DuckDB would answer although Spark gives another answer or none: they go to Spark."""

from __future__ import annotations

import pytest

from engines.errors import NoEquivalent
from tests.engines.duckdb.writer.test_parts import parsed
from tests.writers import DUCKDB_SQL

TWO = "(SELECT b FROM two)"

OTHER_ANSWERS = f"""
    SELECT a IN {TWO} AS c FROM one
    SELECT a NOT IN {TWO} AS c FROM one
    SELECT a FROM one WHERE (a IN {TWO}) IS NULL
    SELECT a FROM one WHERE coalesce(a IN {TWO}, true)
    SELECT a FROM one WHERE (a IN {TWO}) <=> f
    SELECT bool_and(a IN {TWO}) AS c FROM one
    SELECT count(*) AS c FROM one GROUP BY a IN {TWO}
    SELECT a FROM one WHERE CASE WHEN a IN {TWO} THEN false ELSE true END
    SELECT a + b AS s, b FROM one GROUP BY GROUPING SETS ((a + b), (b + a), (b))
    SELECT a + b AS s, b FROM one GROUP BY GROUPING SETS ((b + a), (a), (b))
    SELECT one.a AS s FROM one GROUP BY GROUPING SETS ((one.a), (a))
    SELECT -m AS c FROM (SELECT CAST(a AS DECIMAL(35, 0)) AS m FROM one)
    SELECT CAST(CAST(x AS FLOAT) AS STRING) AS c FROM one
    SELECT concat('x', CAST(x AS FLOAT)) AS c FROM one
    SELECT covar_pop(x, a) AS c FROM one
    SELECT a AS `` FROM one
"""

REFUSED_BY_SPARK = f"""
    SELECT sum(a) OVER (w ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS c FROM one WINDOW w AS (ORDER BY b)
    SELECT sum(a) OVER v AS c FROM one WINDOW w AS (PARTITION BY b), v AS (w ORDER BY b)
    SELECT sum(a) OVER w AS c FROM one WINDOW w AS (PARTITION BY b), w AS (ORDER BY b)
    SELECT row_number() OVER (PARTITION BY a) AS c FROM one
    SELECT lag(a) OVER (PARTITION BY a) AS c FROM one
    SELECT rank() OVER (ORDER BY a ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS c FROM one
    SELECT sum(a) OVER (RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS c FROM one
    SELECT sum(a) OVER (ORDER BY a ROWS BETWEEN 1 FOLLOWING AND 0 FOLLOWING) AS c FROM one
    SELECT count(DISTINCT a) OVER (PARTITION BY b) AS c FROM one
    SELECT grouping(a) AS c FROM one GROUP BY a
    SELECT grouping_id(b, a) AS c FROM one GROUP BY ROLLUP (a, b)
    SELECT count(*) AS c FROM one GROUP BY ()
    SELECT a FROM one ORDER BY a IN {TWO}
    SELECT a FROM one ORDER BY EXISTS (SELECT 1 FROM two)
    SELECT one.a FROM one JOIN two ON EXISTS (SELECT 1 FROM two AS three WHERE three.a = one.a AND three.b = two.b)
    SELECT a FROM one WHERE (SELECT count(*) AS n FROM two WHERE two.b = one.b GROUP BY one.a) = 1
    SELECT a, (SELECT max(b) + one.a AS m FROM two WHERE two.a = one.a) AS c FROM one
    SELECT (SELECT max(b) AS m FROM two WHERE two.a = one.a) AS c FROM one GROUP BY a
    SELECT a FROM one WHERE a = (SELECT max(b) AS m FROM two WHERE two.a = one.a GROUP BY ROLLUP (b) LIMIT 1)
    SELECT a FROM one WHERE EXISTS (SELECT 1 FROM two WHERE EXISTS (SELECT 1 FROM two AS three WHERE three.a = one.a))
    SELECT EXISTS (SELECT 1 FROM two WHERE two.a = max(one.a)) AS c FROM one
    SELECT DISTINCT a AS k FROM one ORDER BY a
    SELECT a, sum(count(*)) OVER () AS n FROM one GROUP BY a, b + 1 ORDER BY b + 1
    SELECT a FROM one LIMIT 1L
    SELECT a FROM one WHERE 'true'
    SELECT CASE WHEN s THEN 1 END AS c FROM one
    SELECT v.d FROM (VALUES (DATE '2020-01-01'), ('2020-01-01')) AS v(d)
"""


@pytest.mark.parametrize("sql", [*OTHER_ANSWERS.strip().splitlines(), *REFUSED_BY_SPARK.strip().splitlines()])
def test_what_duckdb_would_answer_otherwise_goes_to_spark(sql: str) -> None:
    with pytest.raises(NoEquivalent):
        parsed(sql.strip()).sql(DUCKDB_SQL)


def written(sql: str) -> str:
    return parsed(sql).sql(DUCKDB_SQL)


@pytest.mark.parametrize("condition", ["a IN {}", "NOT (a IN {} AND b > 1)", "b > 1 OR a NOT IN {}"])
def test_a_condition_whose_unknown_counts_as_false_runs_on_duckdb(condition: str) -> None:
    assert "IN (SELECT" in written(f"SELECT a FROM one WHERE {condition.format(TWO)}")
    assert "IN (SELECT" in written(f"SELECT b FROM one GROUP BY a, b HAVING {condition.format(TWO)}")


def test_a_condition_of_a_cross_join_counts() -> None:
    assert written("SELECT one.a FROM one CROSS JOIN two ON one.a = two.b").endswith(
        'JOIN "two" AS "two" ON ("one"."a" = "two"."b")'
    )
    assert 'JOIN "two" AS "two" USING ("a")' in written("SELECT one.a FROM one CROSS JOIN two USING (a)")


def test_several_groupings_of_no_rows_have_no_total() -> None:
    assert written("SELECT a, count(*) AS c FROM one GROUP BY ROLLUP (a)").endswith("HAVING count(*) > 0")
    sql = "SELECT a, count(*) AS c FROM one GROUP BY CUBE (a) HAVING max(b) > 1"
    assert written(sql).endswith('HAVING count(*) > 0 AND (max("b") > 1)')


def test_a_named_window_that_is_another_has_its_parts() -> None:
    sql = "SELECT sum(a) OVER v AS c FROM one WINDOW w AS (PARTITION BY b), v AS w"
    assert 'OVER (PARTITION BY "b")' in written(sql)
