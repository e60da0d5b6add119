"""Hints: ENGINE(name) is ours, those about joins and partitions go to Spark, all others are forgotten."""

from __future__ import annotations

import re

from sqlglot import exp

from gateway.sql.nodes import find_all

ENGINE = "ENGINE"
_FOR_SPARK = frozenset(
    """
    BROADCAST BROADCASTJOIN MAPJOIN MERGE SHUFFLE_MERGE MERGEJOIN SHUFFLE_HASH SHUFFLE_REPLICATE_NL COALESCE
    REPARTITION REBALANCE
    """.split()
)
_PLAIN = re.compile(r"\w{1,128}", re.ASCII)


def take_engine(tree: exp.Expr) -> str | None:
    """Return the engine that a hint asks for; leave in the tree only hints for Spark, as words that name no column."""
    engine = None
    for hint in find_all(tree, exp.Hint):
        kept = []
        for one in hint.expressions:
            if not isinstance(one, exp.Expr):  # a text that the parser of a dialect could not read
                continue
            name = one.name.upper()
            words = [argument.name if isinstance(argument, exp.Expr) else "" for argument in one.expressions]
            if name == ENGINE and len(words) == 1:
                engine = words[0].lower()
            elif name in _FOR_SPARK and words and all(_PLAIN.fullmatch(word) for word in words):
                kept.append(exp.Anonymous(this=name, expressions=[exp.Var(this=word) for word in words]))
        if kept and isinstance(hint.parent, exp.Select):
            hint.set("expressions", kept)
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
