"""Growth of a text by ``replace``, ``regexp_replace`` and ``translate`` with constants.

Calls that replace single characters act on each character alone, so that nested calls are measured exactly: each
character of the text is put through all of them. Escapes for HTML make four characters of ``<``, in any number of
nested calls. Other replacements multiply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from sqlglot import exp

from sql.limits.patterns import may_match_nothing

WIDEST_CHARACTER_BYTES = 4
_SPECIAL = frozenset("\\.[]{}()*+?^$|")  # of regular expressions


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of a text: its bytes times ``factor``, plus ``more``."""

    inner: exp.Expr
    """The text before all replacements."""
    factor: float
    more: float = 0.0


@dataclass(frozen=True, slots=True)
class _Step:
    """Replacement of characters by texts."""

    texts: Mapping[str, str]

    def __call__(self, text: str) -> str:
        return "".join(self.texts.get(sign, sign) for sign in text)


def growth_of(
    call: exp.Anonymous, text_of: Callable[[exp.Expr], str | None], bytes_of: Callable[[exp.Expr], float], most: int
) -> Growth:
    """Return the growth of a text by nested calls of ``replace``, ``regexp_replace`` and ``translate``.

    text_of: returns the constant text of an expression; None: it is not a constant.
    bytes_of: returns the longest length of an expression.
    most: bytes at which the computation stops.
    """
    steps: list[_Step] = []
    node: exp.Expr = call
    while (step := _step(node, text_of)) is not None:
        steps.append(step)
        node = node.expressions[0]
    if steps:
        return Growth(node, _factor(steps[::-1], most))
    return _multiplied(call, text_of, bytes_of)


def _step(node: exp.Expr, text_of: Callable[[exp.Expr], str | None]) -> _Step | None:
    """Return a call as a replacement of single characters; None: it is none."""
    if not isinstance(node, exp.Anonymous) or len(node.expressions) != 3:
        return None
    name, old, new = node.name.lower(), text_of(node.expressions[1]), text_of(node.expressions[2])
    if old is None or new is None:
        return None
    if name == "translate":
        pairs = {sign: new[place : place + 1] for place, sign in reversed(list(enumerate(old)))}  # the first one counts
        return _Step(pairs)
    plain = name == "replace" or (name == "regexp_replace" and old not in _SPECIAL and not _SPECIAL & set(new))
    return _Step({old: new}) if plain and len(old) == 1 else None


def _factor(steps: Sequence[_Step], most: int) -> float:
    """Return the largest growth of a character that one of these steps replaces."""
    largest = 1.0
    for sign in {sign for step in steps for sign in step.texts}:
        text = reduce(lambda text, step: step(text) if len(text) <= most else text, steps, sign)
        largest = max(largest, len(_utf8(text)) / len(_utf8(sign)))
    return largest


def _multiplied(
    call: exp.Anonymous, text_of: Callable[[exp.Expr], str | None], bytes_of: Callable[[exp.Expr], float]
) -> Growth:
    text, *rest = call.expressions
    if call.name.lower() == "translate":
        return Growth(text, WIDEST_CHARACTER_BYTES)
    if len(rest) < 2:
        return Growth(text, 1.0)
    new, old = bytes_of(rest[1]), text_of(rest[0])
    if old and call.name.lower() == "replace":
        return Growth(text, max(1.0, new / len(_utf8(old))))
    if old is not None and call.name.lower() == "regexp_replace" and not may_match_nothing(old):
        return Growth(text, max(1.0, new))
    return Growth(text, 1.0 + new, more=new)  # the searched text may be empty, and so match beside each byte


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
