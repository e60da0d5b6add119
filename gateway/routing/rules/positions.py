"""Where each key of a TOML document stands, which its parser does not tell."""

from __future__ import annotations

from collections.abc import Mapping

from metastore.records import Position

Path = tuple[str | int, ...]

_SPACE = " \t\r\n"
_QUOTES = "\"'"
_ENDS = ",]}#\n"


def positions(text: str) -> Mapping[Path, Position]:
    """Return the place of each key by its path, where an entry of a list is a number. text: a valid document."""
    return _Keys(text).read()


class _Keys:
    """One pass over a document that was parsed already, so that whatever is met is in its place."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line, self._line_began = 1, 0
        self._found: dict[Path, Position] = {}
        self._counts: dict[Path, int] = {}

    def read(self) -> Mapping[Path, Position]:
        table: Path = ()
        while self._skip():
            place = self._place()
            if self._text.startswith("[[", self._at):
                self._move(2)
                table = self._entry(self._key())
                self._move(2)
                self._found.setdefault(table, place)
            elif self._text[self._at] == "[":
                self._move(1)
                table = self._resolved(self._key())
                self._move(1)
                self._found.setdefault(table, place)
            else:
                self._pair(table)
        return self._found

    def _pair(self, table: Path) -> None:
        place = self._place()
        path = (*table, *self._key())
        self._found.setdefault(path, place)
        self._skip()
        self._move(1)  # the equals sign
        self._skip()
        self._value(path)

    def _value(self, path: Path) -> None:
        first = self._text[self._at : self._at + 1]
        if first in ("[", "{"):
            self._move(1)
            number = 0
            while self._skip() and self._text[self._at] not in "]}":
                if self._text[self._at] == ",":
                    self._move(1)
                elif first == "{":
                    self._pair(path)
                else:
                    self._found.setdefault((*path, number), self._place())
                    self._value((*path, number))
                    number += 1
            self._move(1)
        elif first and first in _QUOTES:
            self._string()
        else:
            while self._at < len(self._text) and self._text[self._at] not in _ENDS:
                self._move(1)

    def _key(self) -> Path:
        parts: list[str] = []
        while self._skip():
            if self._text[self._at] in _QUOTES:
                parts.append(self._string())
            else:
                begun = self._at
                while self._at < len(self._text) and (self._text[self._at].isalnum() or self._text[self._at] in "_-"):
                    self._move(1)
                parts.append(self._text[begun : self._at])
            self._skip()
            if self._text[self._at : self._at + 1] != ".":
                break
            self._move(1)
        return tuple(parts)

    def _string(self) -> str:
        """Pass a string and return what stands between its quotes."""
        quote = self._text[self._at]
        triple = self._text.startswith(quote * 3, self._at)
        end = quote * 3 if triple else quote
        self._move(len(end))
        begun = self._at
        while self._at < len(self._text) and not self._text.startswith(end, self._at):
            self._move(2 if quote == '"' and self._text[self._at] == "\\" else 1)
        inside = self._text[begun : self._at]
        self._move(len(end))
        while triple and self._text[self._at : self._at + 1] == quote:  # one or two more belong to what is inside
            self._move(1)
        return inside

    def _entry(self, key: Path) -> Path:
        """Return the path of a new entry of a list of tables."""
        path = (*self._resolved(key[:-1]), *key[-1:])
        self._counts[path] = self._counts.get(path, -1) + 1
        return (*path, self._counts[path])

    def _resolved(self, key: Path) -> Path:
        """Return the path of a table, where a list of tables stands for its last entry."""
        path: Path = ()
        for part in key:
            path = (*path, part)
            if path in self._counts:
                path = (*path, self._counts[path])
        return path

    def _skip(self) -> bool:
        """Pass white space and comments; tells whether anything is left."""
        while self._at < len(self._text):
            if self._text[self._at] == "#":
                while self._at < len(self._text) and self._text[self._at] != "\n":
                    self._move(1)
            elif self._text[self._at] in _SPACE:
                self._move(1)
            else:
                return True
        return False

    def _move(self, signs: int) -> None:
        for _ in range(signs):
            if self._text[self._at : self._at + 1] == "\n":
                self._line, self._line_began = self._line + 1, self._at + 1
            self._at += 1

    def _place(self) -> Position:
        return Position(self._line, self._at - self._line_began + 1)
