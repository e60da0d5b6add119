"""Hints: ENGINE(name) is the gateway's, those about joins and partitions go to Spark, others are removed."""

from __future__ import annotations

import re

from sqlglot import exp

from sql.nodes import find_all

ENGINE = "ENGINE"
_FOR_SPARK = frozenset(
    """
    BROADCAST BROADCASTJOIN MAPJOIN MERGE SHUFFLE_MERGE MERGEJOIN SHUFFLE_HASH SHUFFLE_REPLICATE_NL COALESCE
    REPARTITION REBALANCE
    """.split()
)
_PLAIN = re.compile(r"\w{1,128}", re.ASCII)


def take_engine(tree: exp.Expr) -> str | None:
    """Return the engine that a hint names; None: no hint does. Only hints for Spark stay, as plain words."""
    engine = None
    for hint in find_all(tree, exp.Hint):
        for_spark = []
        for one in hint.expressions:
            if not isinstance(one, exp.Expr):  # a text that the parser of a dialect could not read
                continue
            name = one.name.upper()
            words = [argument.name if isinstance(argument, exp.Expr) else "" for argument in one.expressions]
            if name == ENGINE and len(words) == 1:
                engine = words[0].lower()
            elif name in _FOR_SPARK and words and all(_PLAIN.fullmatch(word) for word in words):
                for_spark.append(exp.Anonymous(this=name, expressions=[exp.Var(this=word) for word in words]))
        if for_spark and isinstance(hint.parent, exp.Select):
            hint.set("expressions", for_spark)
        else:
            hint.pop()
    return engine


def without_hints(tree: exp.Expr) -> exp.Expr:
    """Return a tree without any hint: a copy where there are some."""
    if tree.find(exp.Hint) is None:
        return tree
    bare = tree.copy()
    for hint in find_all(bare, exp.Hint):
        hint.pop()
    return bare
