"""How much longer a text becomes where constants are put in place of its parts: ``replace``, ``translate``.

What replaces single characters acts on each character alone, so that nested calls of it are decided exactly: each
character of the text is put through all of them. ``<`` becomes four characters by escapes of HTML, however many
others are escaped around it. Whatever has more than a character in place of it multiplies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from sqlglot import exp

from gateway.sql.limits.patterns import may_match_nothing

WIDEST_CHARACTER_BYTES = 4
_SPECIAL = frozenset("\\.[]{}()*+?^$|")  # of regular expressions


@dataclass(frozen=True, slots=True)
class Growth:
    """inner: the text before all replacements. At most ``factor`` times its bytes, and ``more`` in an empty one."""

    inner: exp.Expr
    factor: float
    more: float = 0.0


@dataclass(frozen=True, slots=True)
class _Step:
    """Puts texts in place of characters."""

    texts: Mapping[str, str]

    def __call__(self, text: str) -> str:
        return "".join(self.texts.get(sign, sign) for sign in text)


def growth_of(
    call: exp.Anonymous, text_of: Callable[[exp.Expr], str | None], bytes_of: Callable[[exp.Expr], float], most: int
) -> Growth:
    """Return how calls of ``replace``, ``regexp_replace`` and ``translate``, one inside another, make a text longer.

    text_of: the constant that an expression is; bytes_of: how long it may be. most: bytes past which no more is asked.
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
    """Return what a call does to each character, where it does that to each one alone."""
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
    """Return by how much the character grows most that one of these steps replaces."""
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
        return Growth(text, 1.0)  # without what it is looked for
    new, old = bytes_of(rest[1]), text_of(rest[0])
    if old and call.name.lower() == "replace":
        return Growth(text, max(1.0, new / len(_utf8(old))))
    if old is not None and call.name.lower() == "regexp_replace" and not may_match_nothing(old):
        return Growth(text, max(1.0, new))
    return Growth(text, 1.0 + new, more=new)  # what is looked for may be empty, and so beside each byte


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
