"""Expressions in details of Impala's EXPLAIN: lists and equalities split outside of brackets and quotes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_EQUALITIES = (" = ", " IS NOT DISTINCT FROM ")
_BRACKETS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[()]|, | = | IS NOT DISTINCT FROM ")
_WORD = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def listed(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the expressions of lists that are separated by commas."""
    return tuple(part for text in texts for part in split(text))


def split(text: str) -> tuple[str, ...]:
    """Split at the commas that stand outside of brackets and quotes."""
    if ", " not in text:
        return (text,)
    ends = [position for mark, position in _outside(text) if mark == ", "]
    starts = [0, *(end + 2 for end in ends)]
    return tuple(text[start:end] for start, end in zip(starts, [*ends, len(text)], strict=True))


def sides(equality: str) -> tuple[str, str]:
    """Split an equality into its probe and its build side."""
    for mark, position in _outside(equality):
        if mark in _EQUALITIES:
            return equality[:position], equality[position + len(mark) :]
    return equality, ""


def _outside(text: str) -> Iterator[tuple[str, int]]:
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        mark = bracket.group()
        if mark == "(":
            depth += 1
        elif mark == ")":
            depth -= 1
        elif depth == 0:
            yield mark, bracket.start()


def words(texts: Iterable[str]) -> Iterator[str]:
    """Yield the names in some expressions, with what stands before their dots; strings have none."""
    for text in texts:
        yield from _WORD.findall(_STRING.sub("", text.replace("`", "")))
