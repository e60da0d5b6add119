"""LIKE and regular expressions on sampled text, in time linear in the text for any pattern.

Regular expressions need an engine without backtracking, which is not in the standard library; the caller registers one
by ``use_search``. Without it, predicates with regular expressions are not evaluated on samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Search = Callable[[str, Sequence[str], bool], Sequence[bool] | None]
"""Function (expression, texts, ignore case) -> True for each text with a match; None: expression not supported."""

_searches: list[Search] = []


def use_search(search: Search) -> None:
    """Register the function that evaluates regular expressions; it must take linear time."""
    _searches[:] = [search]


def found_in(expression: str, texts: Sequence[str], *, ignore_case: bool, whole: bool) -> Sequence[bool] | None:
    """Return True for each text with a match of an expression, or that matches as a whole; None: not evaluable."""
    if not _searches:
        return None
    return _searches[0](rf"\A(?:{expression})\z" if whole else expression, texts, ignore_case)


class Like:
    """LIKE pattern. Between two %, the earliest match is as good as any other, so that no text is matched twice."""

    def __init__(self, pattern: str, escape: str | None, *, ignore_case: bool = False) -> None:
        self._fold = str.lower if ignore_case else str
        pieces: list[list[str | None]] = [[]]  # between %: lists of characters; None: any character
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
        """Prefix of all matching strings, and True if it is the whole string; None for other patterns."""
        if self._first.text is None or self._middle or (self._last is not None and self._last.size):
            return None
        return self._first.text, self._last is None

    def matches(self, text: str) -> bool:
        """Tell whether a text matches the pattern."""
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
    """Part of a pattern between two %.

    text: its characters; None if one of them is a wildcard.
    """

    def __init__(self, characters: Sequence[str | None], fold: Callable[[str], str]) -> None:
        self.size = len(characters)
        fixed = [character for character in characters if character is not None]
        self.text = fold("".join(fixed)) if len(fixed) == self.size else None
        plain = "".join("." if character is None else re.escape(fold(character)) for character in characters)
        self._fixed = re.compile(plain, re.DOTALL)  # fixed length: no backtracking

    def is_at(self, text: str, at: int) -> bool:
        """Tell whether a text has the part at a position."""
        if self.text is not None:
            return text.startswith(self.text, at)
        return self._fixed.match(text, at) is not None

    def find(self, text: str, start: int, end: int) -> int:
        """Return its first position in a text between two others; -1: none."""
        if self.text is not None:
            return text.find(self.text, start, end)
        match = self._fixed.search(text, start, end)
        return match.start() if match is not None else -1
