"""A fence stands between a row filter and conditions that may fail, and nowhere else."""

from __future__ import annotations

import pytest

from engines.errors import NoEquivalent
from sql.access.rights import Restriction
from sql.tables import Column, View
from tests.sql.access.test_parts import Rights, read, spark

FENCED = (
    "(SELECT `id`, `name` FROM (SELECT `id`, `name` FROM `people` AS `people` WHERE (`dept` = 'sales')) AS `people` "
    "WHERE RAND() + 1 > 0) AS `people`"
)
RIGHTS = Rights({"people": Restriction(("id", "name", "salary", "dept"), ("dept = 'sales'",))})
NEVER_FAIL = """
    SELECT id FROM people WHERE id = 3 AND name LIKE 'a%'
    SELECT id FROM people WHERE id > 3 OR name = 'x' AND NOT salary IS NULL
    SELECT id FROM people WHERE id BETWEEN 3 AND 5 OR name IN ('a', 'b') OR id IN (1, 2)
    SELECT a.id FROM people a JOIN staff b ON a.id = b.id AND a.salary < b.id
    SELECT a.id FROM people a JOIN staff b USING (id)
    SELECT dept, count(*), min(salary), sum(salary) FROM people GROUP BY dept HAVING count(*) > 3 ORDER BY dept
    SELECT id, row_number() OVER (PARTITION BY dept ORDER BY id) AS n FROM people
    SELECT id FROM people WHERE try_cast(name AS INT) IS NULL
    SELECT sum(salary * 2), max(CAST(name AS INT)) FROM people WHERE id > 3
    SELECT CAST(name AS INT) AS n FROM people WHERE id > 3 ORDER BY n
    SELECT id FROM (SELECT id, salary + 1 AS more FROM people) x WHERE id > 1
    SELECT id FROM people UNION ALL SELECT id FROM staff
    SELECT id FROM people EXCEPT SELECT id FROM staff
    WITH x AS (SELECT id, upper(dept) AS d FROM people) SELECT d, count(*) FROM x WHERE id = 3 GROUP BY d
    SELECT id FROM people WHERE 1 = 1 AND id = '3'
    SELECT p.id FROM people p JOIN dated d ON p.id = d.id WHERE d.at > DATE '2024-02-29' AND d.at < '2025-01-01'
    SELECT p.id FROM people p JOIN dated d ON p.id = d.id WHERE d.seen > TIMESTAMP '2024-01-01 00:00:00'
"""
MAY_FAIL = """
    SELECT id FROM people WHERE CAST(name AS INT) = 1
    SELECT id FROM people WHERE 1 / salary > 0 AND id = 5
    SELECT id FROM people WHERE name = 5
    SELECT id FROM people WHERE name IN (5, 6)
    SELECT id FROM people WHERE name > id
    SELECT id FROM people WHERE (salary = 1) = (1 / id > 0)
    SELECT a.id FROM people a JOIN staff b ON a.name = b.id
    SELECT id FROM (SELECT id, salary + 1 AS more FROM people) x WHERE more > 1
    SELECT id FROM (SELECT id, name AS other FROM people) x WHERE CAST(other AS INT) > 1
    SELECT name FROM (SELECT CAST(name AS INT) FROM people) x WHERE name IS NOT NULL
    SELECT 1 FROM (SELECT 1 / salary FROM people) x WHERE `(1 / salary)` IS NOT NULL
    SELECT x.n FROM (SELECT CAST(name AS INT) AS n FROM people) x JOIN staff USING (n)
    WITH x AS (SELECT id, dept AS d FROM people) SELECT id FROM x WHERE upper(d) = 'X'
    WITH x(n) AS (SELECT CAST(name AS INT) FROM people) SELECT n FROM x WHERE n IS NOT NULL
    SELECT id FROM people a WHERE EXISTS (SELECT 1 FROM staff b WHERE b.id = CAST(a.name AS INT))
    SELECT s.id FROM staff s WHERE s.id IN (SELECT CAST(name AS INT) FROM people)
    SELECT b FROM people AS t(a, b, c, d) WHERE CAST(b AS INT) > 0
    SELECT n FROM (SELECT name AS n FROM people UNION ALL SELECT dept FROM people) WHERE CAST(n AS INT) > 0
    SELECT id FROM people GROUP BY id, name HAVING CAST(name AS INT) > 0
    SELECT name FROM people INTERSECT SELECT 5
    SELECT n FROM (SELECT name AS n FROM people UNION ALL SELECT 5) WHERE n IS NOT NULL
    SELECT id FROM people NATURAL JOIN staff
    SELECT a.id FROM people a JOIN (SELECT 5 AS name) b USING (name)
    SELECT id FROM people WHERE NOT name
    SELECT id FROM people WHERE id = 3 OR name
    SELECT id FROM people WHERE dept
    SELECT id FROM people WHERE name IS TRUE
    SELECT id FROM people WHERE name LIKE dept
    SELECT w.id FROM people w JOIN (SELECT 5) AS u(dept) ON w.name = u.dept
    SELECT id, explode(array(1 / salary)) FROM people
    SELECT id FROM people LATERAL VIEW explode(split(name, 'a')) t AS part
"""


FAILING_CONSTANTS = """
    SELECT id FROM people WHERE id = '99999999999999999999'
    SELECT id FROM people WHERE id IN ('1', 'x')
    SELECT id FROM people WHERE id BETWEEN '1' AND '1.5'
    SELECT id FROM people WHERE dept = 'sales' AND id = CAST('x' AS INT)
    SELECT id FROM people WHERE 1 / 0 > id
    SELECT id FROM people WHERE CAST(300 AS TINYINT) > id
    SELECT id FROM people WHERE 100Y + 100Y > id
    SELECT id FROM people WHERE -CAST('1.5' AS INT) < id
    SELECT id FROM people WHERE 9223372036854775807 + 1 > id
    SELECT id FROM people WHERE assert_true(1 > 2) IS NULL
    SELECT id FROM people WHERE DATE '2020-01-01' > 'x'
    SELECT p.id FROM people p JOIN dated d ON p.id = d.id WHERE d.at > '2023-02-29'
    SELECT p.id FROM people p JOIN dated d ON p.id = d.id WHERE d.at > DATE '2023-02-29'
    SELECT p.id FROM people p JOIN dated d ON p.id = d.id WHERE d.seen > 'yesterday'
"""
GOOD_CONSTANTS = """
    SELECT id FROM people WHERE 1 / id > 100 * 2 - 1
    SELECT id FROM people WHERE CAST(name AS INT) = 1 AND dept = upper(trim('a'))
    SELECT p.id FROM people p JOIN dated d ON p.id = d.id WHERE d.at > DATE '2024-01-01' + INTERVAL 1 MONTH
    SELECT p.id FROM people p JOIN dated d ON p.id = d.id WHERE d.at > current_date() - INTERVAL 7 DAY
    SELECT p.id FROM people p JOIN dated d ON p.id = d.id WHERE year(d.at) = 2024 AND 1 / p.id > 0
"""


@pytest.mark.parametrize("sql", [line.strip() for line in FAILING_CONSTANTS.strip().splitlines()])
def test_a_constant_that_may_fail_is_left_to_spark(sql: str) -> None:
    with pytest.raises(NoEquivalent):
        read(sql, RIGHTS).sql("engines.duckdb.writer.statement")
    assert "RAND() + 1 > 0" in spark(sql, RIGHTS)


@pytest.mark.parametrize("sql", [line.strip() for line in GOOD_CONSTANTS.strip().splitlines()])
def test_a_constant_that_never_fails_is_not(sql: str) -> None:
    assert "LIMIT 9223372036854775807" in read(sql, RIGHTS).sql("engines.duckdb.writer.statement")


@pytest.mark.parametrize("sql", [line.strip() for line in NEVER_FAIL.strip().splitlines()])
def test_there_is_no_fence_where_no_condition_fails(sql: str) -> None:
    views = {"staff_n": View("staff_n", "SELECT 1 AS n", "spark", (Column("n", "int"),))}
    written = spark(sql, RIGHTS, views=views)
    assert "RAND()" not in written, written
    assert "WHERE (`dept` = 'sales')" in written


@pytest.mark.parametrize("sql", [line.strip() for line in MAY_FAIL.strip().splitlines()])
def test_a_fence_stands_where_a_condition_may_fail(sql: str) -> None:
    written = spark(sql.replace("staff USING (n)", "(SELECT 1 AS n) y USING (n)"), RIGHTS)
    assert "RAND() + 1 > 0" in written, written
    assert "WHERE (`dept` = 'sales')" in written


def test_a_fence_is_above_the_filter_and_below_the_statement() -> None:
    assert FENCED in spark("SELECT id FROM people WHERE CAST(name AS INT) = 1", RIGHTS)


@pytest.mark.parametrize("dialect", ["hive", "impala"])
def test_a_fence_stands_in_statements_of_other_dialects(dialect: str) -> None:
    statement = read("SELECT id FROM people WHERE 1 DIV salary > 0", RIGHTS, dialect=dialect)
    assert "RAND() + 1 > 0" in statement.sql("engines.spark_sql.writer")
    assert "LIMIT 9223372036854775807" in statement.sql("engines.duckdb.writer.statement")


def test_a_temporary_view_hides_no_expression() -> None:
    view = View("mine", "SELECT CAST(name AS INT) AS n FROM people", "spark", (Column("n", "int"),), temporary=True)
    assert "RAND() + 1 > 0" in spark("SELECT n FROM mine WHERE n > 0", RIGHTS, views={".mine": view})


def test_an_answer_behind_a_fence_may_be_given_again() -> None:
    from engines.compiled import compiled

    assert compiled(read("SELECT id FROM people WHERE 1 / id > 0", RIGHTS), ()).is_repeatable


def test_conditions_of_a_view_are_above_the_filters_of_what_it_reads() -> None:
    """Its own filter hides rows of the view, and that of the table rows that the view's conditions may meet."""
    view = View("v", "SELECT id, name FROM people WHERE 1 / salary > 0", "spark", (Column("id", "bigint"),) * 1)
    view = View("v", view.sql, "spark", (Column("id", "bigint"), Column("name", "string")), owner="other")
    rights = Rights({**RIGHTS.parts, "v": Restriction(("id",), ("id IS NOT NULL",))})
    assert spark("SELECT count(*) FROM v", rights, views={"v": view}).count("RAND() + 1 > 0") == 2


def test_a_view_that_lends_is_a_filter_of_its_own() -> None:
    view = View(
        "v",
        "SELECT id, name FROM people WHERE dept = 'x'",
        "spark",
        (Column("id", "bigint"), Column("name", "string")),
        owner="owner",
    )
    views = {"v": view}
    assert "RAND()" not in spark("SELECT id FROM v WHERE id = 3", RIGHTS, views=views)
    written = spark("SELECT id FROM v WHERE CAST(name AS INT) = 3", RIGHTS, views=views)
    assert written == (
        "SELECT `id` FROM (SELECT `id`, `name` FROM (SELECT * FROM (SELECT `id`, `name` FROM `people` AS `people` "
        "WHERE `dept` = 'x') AS `v`) AS `v` WHERE RAND() + 1 > 0) AS `v` WHERE CAST(`name` AS INT) = 3"
    )
    assert read("SELECT id FROM v", RIGHTS, views=views).restricted == {"people"}
