"""Conditions over joins are bounded, in whatever form they come; what people write stays far below."""

from __future__ import annotations

import pytest
import sqlglot

from sql.errors import StatementTooComplex
from sql.limits.complexity import MOST_PUSHED, require_bounded
from sql.names import tables_named

JOINS = 8
FROM = "t t0 " + " ".join(f"JOIN t t{n} ON t0.id = t{n}.id" for n in range(1, JOINS + 1))
MANY = MOST_PUSHED // JOINS + 1


def conditions(count: int) -> str:
    return " OR ".join(f"t0.c = {n}" for n in range(count))


def require(sql: str) -> None:
    tree = sqlglot.parse_one(sql, dialect="spark")
    require_bounded(tree, tables_named(tree))


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT 1 FROM {FROM} WHERE {conditions(MANY)}",
        f"SELECT 1 FROM {FROM} JOIN t last ON {conditions(MANY)}",
        f"SELECT t0.c, count(*) FROM {FROM} GROUP BY t0.c HAVING {conditions(MANY)}",
        f"SELECT 1 FROM (SELECT t0.* FROM {FROM}) AS t0 WHERE {conditions(MANY)}",
        f"WITH q AS (SELECT t0.* FROM {FROM}) SELECT 1 FROM q AS t0 WHERE {conditions(MANY)}",
        f"WITH q AS (SELECT * FROM t), r AS (SELECT t0.* FROM {FROM.replace('t t', 'q t')}) "
        f"SELECT 1 FROM r AS t0 WHERE {conditions(MANY)}",
        "SELECT 1 FROM t AS t0 WHERE (" + conditions(MANY) + ")" + "".join(
            f" AND EXISTS (SELECT 1 FROM t s WHERE s.id = t0.id + {n})" for n in range(JOINS)
        ),
        "SELECT 1 FROM (" + " UNION ALL ".join(["SELECT * FROM t"] * (JOINS + 1)) + f") AS t0 WHERE {conditions(MANY)}",
        "SELECT 1 FROM " + ", ".join(f"t t{n}" for n in range(JOINS + 1)) + f" WHERE {conditions(MANY)}",
    ],
)  # fmt: skip
def test_many_conditions_over_many_joins_are_refused(sql: str) -> None:
    with pytest.raises(StatementTooComplex, match="condition and a join"):
        require(sql)


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT 1 FROM {FROM} WHERE {conditions(MOST_PUSHED // JOINS // 2)}",
        f"SELECT 1 FROM t AS t0 WHERE {conditions(5_000)}",
        f"SELECT 1 FROM {FROM} WHERE t0.c IN ({', '.join(map(str, range(5_000)))})",
        " UNION ALL ".join(f"SELECT t0.id FROM {FROM} WHERE t0.c = {n} AND t1.c = 2 AND t2.c = 3" for n in range(60)),
        f"WITH q AS (SELECT t0.* FROM {FROM}) SELECT 1 FROM t AS t0 WHERE {conditions(MANY)}",
    ],
)
def test_what_people_write_is_taken(sql: str) -> None:
    require(sql)
