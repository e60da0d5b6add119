"""Whatever part of a statement DuckDB's writer does not read has no equivalent, for every kind of node it accepts."""

from __future__ import annotations

from functools import cache

import pytest
from sqlglot import exp

from engines.duckdb.writer.parts import READ
from engines.duckdb.writer.queries import Queries
from engines.errors import NoEquivalent
from sql.dialects.names import SPARK
from sql.nodes import find_all
from sql.parsing import ParserLimits
from sql.statement import CheckedStatement, check
from sql.tables import Column, TableSource

COLUMNS = {"a": "int", "b": "int", "x": "double", "s": "string", "f": "boolean", "d": "date", "t": "timestamp"}
TABLES = {
    name: TableSource(name, f"/data/{name}", "parquet", tuple(Column(*column) for column in COLUMNS.items()))
    for name in ("one", "two")
}

STATEMENTS = r"""
    WITH w AS (SELECT a FROM one) SELECT DISTINCT v.a AS k FROM w AS v WHERE v.a > 1 ORDER BY k DESC LIMIT 3 OFFSET 2
    SELECT a, count(*) AS c FROM one GROUP BY a HAVING count(*) > 1 ORDER BY a ASC NULLS LAST
    SELECT a, b, count(*) AS c, grouping(a) AS g FROM one GROUP BY ROLLUP (a, b)
    SELECT a, b, count(*) AS c FROM one GROUP BY CUBE (a, (b))
    SELECT a, b, count(*) AS c FROM one GROUP BY GROUPING SETS ((a, b), a, ())
    SELECT a, b, count(*) AS c FROM one GROUP BY a, b WITH ROLLUP
    SELECT a, b, count(*) AS c FROM one GROUP BY a, b WITH CUBE
    SELECT a, b, count(*) AS c FROM one GROUP BY a, b GROUPING SETS ((a), (b))
    (WITH w AS (SELECT 2 AS a) SELECT a FROM w) UNION ALL SELECT a FROM two ORDER BY a LIMIT 5 OFFSET 1
    WITH w AS (SELECT 2 AS a) SELECT a FROM w UNION SELECT a FROM two
    WITH w AS (SELECT 2 AS a) SELECT a FROM w INTERSECT SELECT a FROM two ORDER BY a LIMIT 5 OFFSET 1
    WITH w AS (SELECT 2 AS a) SELECT a FROM w EXCEPT SELECT a FROM two ORDER BY a LIMIT 5 OFFSET 1
    SELECT a FROM one INTERSECT ALL SELECT a FROM two
    SELECT a FROM one EXCEPT ALL SELECT a FROM two
    SELECT q.a, v.n FROM (SELECT a FROM one LIMIT 1) AS q LEFT JOIN (VALUES (1, 'x'), (2, 'y')) AS v(n, m) ON q.a = v.n
    SELECT q.c FROM (WITH w AS (SELECT 1 AS c) SELECT c FROM w) AS q(c)
    SELECT c FROM (SELECT a AS c FROM one) ORDER BY c
    SELECT one.a FROM one JOIN two USING (a)
    SELECT one.a FROM one CROSS JOIN two
    SELECT one.a FROM (one JOIN two ON one.a = two.a)
    WITH w AS (SELECT a FROM one) (SELECT a FROM w) ORDER BY a LIMIT 3 OFFSET 2
    SELECT one.* FROM one LEFT SEMI JOIN two ON one.a = two.a
    SELECT * FROM one
    SELECT (a + b) * (a - b) AS c, a / b AS q, a DIV b AS r, a % b AS m, -a AS n, ~a AS o, a & b | a ^ b AS p FROM one
    SELECT (a = b) AND f OR NOT f AS c, a <> b AS e, a < b AS g, a <= b AS h, a >= b AS i, a <=> b AS j FROM one
    SELECT a IS NULL AS c, f IS TRUE AS e, f IS FALSE AS h, a IS NOT DISTINCT FROM b AS g FROM one
    SELECT a IS DISTINCT FROM b AS i FROM one
    SELECT a BETWEEN b AND 7 AS c, a IN (1, b) AS e, r'\d' AS g, X'1F' AS h, 'a' 'b' AS i FROM one
    SELECT a FROM one WHERE a IN (SELECT b FROM two) AND EXISTS (SELECT 1 FROM two WHERE two.a = one.b)
    SELECT s LIKE 'a%' AS c, s NOT LIKE ALL ('a', 'b') AS e, s ILIKE 'a' AS g, s LIKE ANY ('a', 'b') AS h FROM one
    SELECT s LIKE 'a!%' ESCAPE '!' AS c, s NOT ILIKE ANY ('a', 'b') AS g, s RLIKE 'a+' AS h FROM one
    SELECT CASE WHEN f THEN a ELSE b END AS c, CASE a WHEN 1 THEN 2 END AS e, if(f, a, b) AS g FROM one
    SELECT CAST(s AS INT) AS c, TRY_CAST(s AS INT) AS e, s || s AS g, EXTRACT(YEAR FROM d) AS h FROM one
    SELECT trim(LEADING 'x' FROM s) AS c, substring(s FROM 2 FOR 3) AS e, position('a' IN s) AS g FROM one
    SELECT current_date AS c, current_timestamp AS e, d + INTERVAL 3 DAYS AS g, upper(s) AS h FROM one
    SELECT sum(a) FILTER (WHERE f) AS c, count(DISTINCT a, b) AS e, coalesce(NULL, a) AS g, true AS h FROM one
    SELECT sum(a) OVER (PARTITION BY b ORDER BY x ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS c FROM one
    SELECT sum(a) OVER w AS c, lag(a) IGNORE NULLS OVER (ORDER BY b) AS e FROM one WINDOW w AS (PARTITION BY b)
    SELECT lag(a) RESPECT NULLS OVER (ORDER BY b) AS e FROM one
    SELECT (SELECT max(a) AS m FROM two) AS c FROM one
    SELECT c.a FROM one AS c(a, b, x, s, f, d, t)
""".strip().splitlines()

SAYS_NOTHING = {
    (exp.Select, "hint"): "a hint is no part of the meaning",
    (exp.Join, "hint"): "a hint is no part of the meaning",
    (exp.Table, "db"): "names are resolved before",
    (exp.Table, "catalog"): "names are resolved before",
    (exp.Div, "typed"): "the parser's note on its dialect: false in every one that is read",
    (exp.Div, "safe"): "the parser's note on its dialect",
    (exp.DPipe, "safe"): "the parser's note on its dialect",
    (exp.Identifier, "quoted"): "names have no case",
    (exp.Window, "over"): "a word",
    (exp.RespectNulls, "this"): "what is without the words",
}


def parsed(sql: str) -> CheckedStatement:
    return check(sql, SPARK, catalog=TABLES, limits=ParserLimits())


def written(tree: exp.Expr) -> str:
    return Queries(TABLES).write(tree, outermost=True).text


@cache
def statements() -> list[tuple[exp.Expr, str]]:
    """Return the statements as trees, and what is written of them."""
    trees = [parsed(sql.strip()).tree for sql in STATEMENTS]
    return [(tree, written(tree)) for tree in trees]


def test_every_part_that_counts_as_read_changes_what_is_written() -> None:
    unread = {(kind, part) for kind, parts in READ.items() for part in parts} - SAYS_NOTHING.keys()
    for tree, text in statements():
        for place, node in enumerate(find_all(tree, *READ)):
            for part in READ[type(node)]:
                value = node.args.get(part)
                if (type(node), part) not in unread or value is None or value == []:
                    continue
                changed = tree.copy()
                same = find_all(changed, *READ)[place]
                same.set(part, not value if isinstance(value, bool) else None)
                try:
                    if written(changed) != text:
                        unread.discard((type(node), part))
                except (NoEquivalent, LookupError, AttributeError, TypeError, ValueError):
                    unread.discard((type(node), part))
    assert not unread


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
def test_a_part_that_nobody_reads_has_no_equivalent(kind: type[exp.Expr]) -> None:
    tree = next(tree for tree, _ in statements() if find_all(tree, kind))
    for part in kind.arg_types.keys() - READ[kind]:
        changed = tree.copy()
        find_all(changed, kind)[0].set(part, exp.true())
        with pytest.raises(NoEquivalent):
            written(changed)


def test_a_kind_of_node_that_nobody_reads_has_no_equivalent() -> None:
    tree = parsed("SELECT a FROM one WHERE a > 1").tree
    tree.args["where"].set("this", exp.Anonymous(this="abs", expressions=[exp.Placeholder()]))
    with pytest.raises(NoEquivalent, match="parameter"):
        written(tree)
