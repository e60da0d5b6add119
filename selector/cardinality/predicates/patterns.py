"""LIKE and regular expressions on sampled text, in time that grows with the text and not with tricks in the pattern.

Regular expressions need an engine without backtracking, which is not in the standard library: whoever uses the selector
gives it one. Without it, predicates with regular expressions are not answered from samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Search = Callable[[str, Sequence[str], bool], Sequence[bool] | None]
"""Tells which texts a regular expression is found in: (expression, texts, ignoring case); None: it has none such."""

_searches: list[Search] = []


def use_search(search: Search) -> None:
    """Answer regular expressions by this function from now on; it must take linear time."""
    _searches[:] = [search]


def found_in(expression: str, texts: Sequence[str], *, ignore_case: bool, whole: bool) -> Sequence[bool] | None:
    """Tell which texts an expression is found in, or is the whole of; None where that cannot be told."""
    if not _searches:
        return None
    return _searches[0](rf"\A(?:{expression})\z" if whole else expression, texts, ignore_case)


class Like:
    """A LIKE pattern. Between two % the earliest place that fits is as good as any other, so nothing is tried twice."""

    def __init__(self, pattern: str, escape: str | None, *, ignore_case: bool = False) -> None:
        self._fold = str.lower if ignore_case else str
        pieces: list[list[str | None]] = [[]]  # between %, of characters; None is any one
        characters = iter(pattern)
        for character in characters:
            if character == escape:
                pieces[-1] += next(characters, "")
            elif character == "%":
                pieces.append([])
            else:
                pieces[-1].append(None if character == "_" else character)
        self._first, *middle = (_Piece(piece, self._fold) for piece in pieces)
        self._last = middle.pop() if middle else None
        self._middle = [piece for piece in middle if piece.size]

    @property
    def stem(self) -> tuple[str, bool] | None:
        """What all matching strings begin with, and whether that is all of them; None for other patterns."""
        if self._first.text is None or self._middle or (self._last is not None and self._last.size):
            return None
        return self._first.text, self._last is None

    def matches(self, text: str) -> bool:
        """Tell whether a text is like the pattern."""
        text = self._fold(text)
        if self._last is None:
            return len(text) == self._first.size and self._first.is_at(text, 0)
        end = len(text) - self._last.size
        at = self._first.size
        if at > end or not self._first.is_at(text, 0) or not self._last.is_at(text, end):
            return False
        for piece in self._middle:
            at = piece.find(text, at, end)
            if at < 0:
                return False
            at += piece.size
        return True


class _Piece:
    """Characters in a row. text: None where one of them is any."""

    def __init__(self, characters: Sequence[str | None], fold: Callable[[str], str]) -> None:
        self.size = len(characters)
        fixed = [character for character in characters if character is not None]
        self.text = fold("".join(fixed)) if len(fixed) == self.size else None
        plain = "".join("." if one is None else re.escape(fold(one)) for one in characters)
        self._fixed = re.compile(plain, re.DOTALL)  # of one length, so it never goes back

    def is_at(self, text: str, at: int) -> bool:
        """Tell whether a text has it at a place."""
        if self.text is not None:
            return text.startswith(self.text, at)
        return self._fixed.match(text, at) is not None

    def find(self, text: str, start: int, end: int) -> int:
        """Return its first place between two others, -1 for none."""
        if self.text is not None:
            return text.find(self.text, start, end)
        match = self._fixed.search(text, start, end)
        return match.start() if match is not None else -1
