"""The walk of our own gives what the parser's does, in its order."""

from __future__ import annotations

import pytest
from sqlglot import exp

from sql.nodes import find_all, nodes
from sql.parsers.dialects import SparkAsWritten

TEXTS = (
    "SELECT 1",
    "WITH a AS (SELECT x, y FROM t WHERE x IN (1, 2, 3)) SELECT /*+ BROADCAST(a) */ a.x, CASE WHEN a.y > 1 THEN 'a' END"
    " FROM a JOIN u ON a.x = u.x AND u.z BETWEEN 1 AND 2 WHERE EXISTS (SELECT 1 FROM v) ORDER BY 1 LIMIT 5",
    "SELECT sum(x) OVER (PARTITION BY y ORDER BY z) FROM t UNION ALL SELECT CAST(d AS ARRAY<STRUCT<a: INT>>) FROM u",
)


@pytest.mark.parametrize("text", TEXTS)
def test_it_is_the_parsers_own(text: str) -> None:
    (tree,) = SparkAsWritten().parse(text)
    assert tree is not None
    assert list(map(id, nodes(tree))) == list(map(id, tree.walk()))
    pruned = tree.walk(prune=lambda node: isinstance(node, exp.Hint))
    assert list(map(id, nodes(tree, but_below=exp.Hint))) == list(map(id, pruned))
    assert find_all(tree, exp.Column, exp.Table) == list(tree.find_all(exp.Column, exp.Table))
