"""The grammar of types: one for all that clients, files and catalogs say.

    type    boolean | tinyint | smallint | int | bigint | float | double | binary | date | void | variant
            | decimal [(precision [, scale])] | string [collate name] | char (length) | varchar (length)
            | time [(precision)]
            | timestamp | timestamp_ntz | array <type> | map <type, type> | struct <[name [:] type, ...]>
    also    byte, short, integer, long, real, bool, dec, numeric, character, timestamp_ltz,
            timestamp with local time zone, timestamp without time zone

Text is read once, where it comes in. Whatever goes to an engine is written from the value, in the engine's words, with
every name in quotes, so that no text of a client's is ever part of a statement.

The parser looks at each character a bounded number of times, and nests at most MAX_DEPTH deep.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache

from selector.quoting import InvalidName, require_name
from selector.types.data_type import DataType, InvalidType, array, decimal, map_of, struct
from selector.types.kinds import BY_NAME, MAX_LENGTH, MISTAKEN, Kind

MAX_DEPTH = 64  # as deep as Arrow's own messages go
MAX_CHARACTERS = 1 << 18
MAX_TIME_PRECISION = 6
_KEPT_CHARACTERS = 200  # of a text whose type is remembered
_MOST_DIGITS = 10
_LONGEST_WORD = 40  # that a message quotes

_BINARY = "UTF8_BINARY"
_COLLATION = re.compile(
    r"(?:UTF8_BINARY|UTF8_LCASE|UNICODE|[A-Z]{2,3}(?:_[A-Z]{4})?(?:_[A-Z]{3})?)(?:_CI|_CS|_AI|_AS|_RTRIM)*"
)
"""Names that Spark 4.3 has for collations: its own, ICU's locales, and what they ignore."""

_LONGER = {tuple(name.split()): kind for name, kind in BY_NAME.items() if " " in name}
_WORDS = tuple(name for name in BY_NAME if " " not in name)
_FIRST_OF_LONGER = frozenset(words[0] for words in _LONGER)
_MOST_WORDS = max(map(len, _LONGER))


def parse(text: str) -> DataType:
    """Read a type that is the whole text. Raises InvalidType with what is wrong and where."""
    return _remembered(text) if len(text) <= _KEPT_CHARACTERS else _whole(text)


def parse_at(text: str, start: int) -> tuple[DataType, int]:
    """Read the type that begins at a place in a text; return it and the place behind it. Raises InvalidType."""
    reader = _Reader(text, start)
    return reader.type(), reader.end


def hive_name(text: str) -> str:
    """Return a type's short form as clients of Hive and Impala know it; a text that is no type stays as it is."""
    try:
        return str(parse(text).for_hive())
    except InvalidType:
        return text


def _whole(text: str) -> DataType:
    if len(text) > MAX_CHARACTERS:
        raise InvalidType(f"a type has at most {MAX_CHARACTERS:,} characters, not {len(text):,}")
    reader = _Reader(text, 0)
    data_type = reader.type()
    reader.finish()
    return data_type


_remembered = lru_cache(maxsize=4_096)(_whole)


def _is_word(character: str) -> bool:
    return character == "_" or character.isalnum()


class _Reader:
    """Reads a text from left to right. end: the place behind what was read last."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._at = start
        self._limit = min(len(text), start + MAX_CHARACTERS)
        self.end = start

    def type(self, depth: int = 1) -> DataType:
        start = self._space()
        if depth > MAX_DEPTH:
            raise InvalidType(f"types are nested at most {MAX_DEPTH} deep", start)
        word = self._word()
        kind = BY_NAME.get(word.lower())
        if kind is None:
            raise InvalidType(_unknown(word) if word else f"a type is expected, not {self._near()}", start)
        match kind:
            case Kind.ARRAY:
                return array(self._inside(1, depth)[0])
            case Kind.MAP:
                return map_of(*self._inside(2, depth))
            case Kind.STRUCT:
                return self._struct(depth)
            case Kind.DECIMAL:
                sizes = self._sizes(most=2)
                try:
                    return decimal(*sizes) if sizes else decimal(10)
                except InvalidType as error:
                    raise InvalidType(error.message, start) from error
            case Kind.STRING:
                return DataType(kind, collation=self._collation())
            case Kind.CHAR | Kind.VARCHAR:
                sizes = self._sizes(most=1)
                if not sizes or not 1 <= sizes[0] <= MAX_LENGTH:
                    raise InvalidType(f"{word} needs a length, such as {kind}(20); without one, say string", start)
                return DataType(kind, sizes[0])
            case Kind.TIME:
                sizes = self._sizes(most=1) or [MAX_TIME_PRECISION]
                if sizes[0] > MAX_TIME_PRECISION:
                    raise InvalidType(f"a time has at most {MAX_TIME_PRECISION} digits after the point", start)
                return DataType(kind, sizes[0])
        return DataType(self._longer(word.lower()) or kind)

    def finish(self) -> None:
        """Raise InvalidType where more follows."""
        if self._space() < len(self._text):
            raise InvalidType(f"nothing may follow the type, but {self._near()} does", self._at)

    def _inside(self, parts: int, depth: int) -> list[DataType]:
        self._need("<")
        inner_types = [self.type(depth + 1)]
        while len(inner_types) < parts:
            self._need(",")
            inner_types.append(self.type(depth + 1))
        self._need(">")
        return inner_types

    def _struct(self, depth: int) -> DataType:
        self._need("<")
        fields: list[tuple[str, DataType]] = []
        names: set[str] = set()
        if self._take(">"):
            return struct(())
        while True:
            start = self._space()
            name = self._name()
            if name.lower() in names:
                raise InvalidType(f"a struct has two fields {name}", start)
            names.add(name.lower())
            self._take(":")
            fields.append((name, self.type(depth + 1)))
            if self._take(">"):
                return struct(fields)
            self._need(",")

    def _name(self) -> str:
        start = self._space()
        quoted = self._text[start : start + 1] == "`"
        name = self._quoted(start) if quoted else self._word()
        if not (quoted or name):
            raise InvalidType(f"a field's name is expected, not {self._near()}", start)
        try:
            return require_name(name)
        except InvalidName as error:
            raise InvalidType(f"a field's name {error}", start) from error

    def _quoted(self, start: int) -> str:
        parts = []
        self._at = start + 1
        while True:
            closing = self._text.find("`", self._at, self._limit)
            if closing < 0:
                raise InvalidType("a name in backquotes does not end", start)
            parts.append(self._text[self._at : closing])
            self._at = self.end = closing + 1
            if self._text[self._at : self._at + 1] != "`":
                return "`".join(parts)
            self._at += 1

    def _sizes(self, *, most: int) -> list[int]:
        """Read numbers in brackets, none where there are no brackets."""
        sizes: list[int] = []
        if not self._take("("):
            return sizes
        while True:
            start = self._space()
            digits = self._word()
            if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
                raise InvalidType(f"a number is expected, not {digits or self._near()}", start)
            sizes.append(int(digits))
            if self._take(")"):
                return sizes
            if len(sizes) == most:
                self._need(")")
            self._need(",")

    def _collation(self) -> str:
        """Read ``collate name``; where there is none, nothing is read."""
        before = self._at, self.end
        self._space()
        if self._word().lower() != "collate":
            self._at, self.end = before
            return ""
        start = self._space()
        name = self._word().upper()
        if _COLLATION.fullmatch(name) is None:
            raise InvalidType(f"there is no collation {name[:_LONGEST_WORD] or self._near()}", start)
        return "" if name == _BINARY else name

    def _longer(self, word: str) -> Kind | None:
        """Read a name of several words that begins with one that was read; where none does, nothing more is read."""
        if word not in _FIRST_OF_LONGER:
            return None
        before = self._at, self.end
        words = [word]
        while len(words) < _MOST_WORDS:
            self._space()
            words.append(self._word().lower())
            if tuple(words) in _LONGER:
                return _LONGER[tuple(words)]
        self._at, self.end = before
        return None

    def _word(self) -> str:
        start = self._at
        while self._at < self._limit and _is_word(self._text[self._at]):
            self._at += 1
        if self._at > start:
            self.end = self._at
        return self._text[start : self._at]

    def _space(self) -> int:
        while self._at < self._limit and self._text[self._at].isspace():
            self._at += 1
        return self._at

    def _take(self, sign: str) -> bool:
        start = self._space()
        if start >= self._limit or self._text[start] != sign:
            return False
        self._at = self.end = start + 1
        return True

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise InvalidType(f"{sign} is expected, not {self._near()}", self._at)

    def _near(self) -> str:
        return repr(self._text[self._at : self._at + 1]) if self._at < self._limit else "the end"


def _unknown(word: str) -> str:
    near = MISTAKEN.get(word.lower()) or next(iter(get_close_matches(word.lower()[:_LONGEST_WORD], _WORDS, n=1)), "")
    return f"there is no type {word[:_LONGEST_WORD]}" + (f"; did you mean {near}?" if near else "")
