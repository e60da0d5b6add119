"""Regular expressions on which a backtracking matcher, such as Java's, takes exponential time.

A pattern is read into its Glushkov automaton: one state for each character that it names. Time explodes if a state can
come back to itself in two ways over the same text, because each round doubles the ways to fail. That is decided
exactly, on pairs of states, for the syntax that Java shares with others. Other syntax counts as matching more than it
does; a pattern that cannot be read, or is too large to decide, counts as one that explodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

LONGEST = 2_000  # characters
MOST_STATES = 600
MOST_PAIRS = 200_000  # of states that are compared
MOST_COPIES = 25  # of counted parts, counts within counts multiplied; a larger count is treated as endless
DEEPEST = 50

_OTHER = 1 << 128  # all that is not ASCII
_ANY = (1 << 129) - 1
_DIGIT = sum(1 << ord(sign) for sign in "0123456789")
_LETTERS = sum(1 << code for code in range(128) if chr(code).isalpha())
_WORD = _DIGIT | _LETTERS | 1 << ord("_")
_SPACE = sum(1 << ord(sign) for sign in " \t\n\x0b\f\r")
_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE, "h": _SPACE | _OTHER, "v": _SPACE | _OTHER}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ANCHORS = frozenset("bBAGzZ")


class _Unreadable(Exception):
    """Unknown syntax."""


class _TooLarge(_Unreadable):
    """Too many states."""


@dataclass(slots=True)
class _Piece:
    """Part of an automaton.

    first, last: states with the number of ways to them, at most 2.
    empty: ways to match the empty text, at most 2.
    """

    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    empty: int = 1


@lru_cache(maxsize=4_096)
def explodes(pattern: str) -> bool:
    """Return True if a backtracking matcher may take exponential time with this pattern on some text."""
    if len(pattern) > LONGEST:
        return True
    try:
        reader = _Reader(pattern)
        reader.read()
    except _TooLarge:
        return any(sign in pattern for sign in "*+{")  # without them no state comes back to itself
    except _Unreadable:
        return True
    return _is_ambiguous(reader.sets, reader.follow)


@lru_cache(maxsize=4_096)
def may_match_nothing(pattern: str) -> bool:
    """Return True if a pattern may match the empty text, or if that is not known."""
    if len(pattern) > LONGEST:
        return True
    try:
        return _Reader(pattern).read().empty > 0
    except _Unreadable:
        return True


class _Reader:
    """Reads a pattern.

    sets: characters that each state matches, as bits.
    follow: by state, the next states with the number of ways to them.
    """

    def __init__(self, pattern: str) -> None:
        self.sets: list[int] = []
        self.follow: list[dict[int, int]] = []
        self._text = pattern
        self._at = 0
        self._folds = "(?i" in pattern or "i)" in pattern or "i:" in pattern

    def read(self) -> _Piece:
        """Read the whole pattern."""
        whole = self._choice(copies=1, depth=0)
        if self._at < len(self._text):
            raise _Unreadable
        return whole

    def _choice(self, copies: int, depth: int) -> _Piece:
        if depth > DEEPEST:
            raise _Unreadable
        whole = self._sequence(copies, depth)
        while self._take("|"):
            branch = self._sequence(copies, depth)
            whole = _Piece(
                _sum(whole.first, branch.first), _sum(whole.last, branch.last), min(2, whole.empty + branch.empty)
            )
        return whole

    def _sequence(self, copies: int, depth: int) -> _Piece:
        whole = _Piece()
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            whole = self._then(whole, self._repeated(copies, depth))
        return whole

    def _repeated(self, copies: int, depth: int) -> _Piece:
        begun, states = self._at, len(self.sets)
        piece = self._atom(copies, depth)
        while (counts := self._counts()) is not None:
            least, most = counts
            is_finite = most is not None and most > 1 and most * copies <= MOST_COPIES
            if most == 0:
                piece = _Piece()
            elif most == 1:
                piece = self._optional(piece) if least == 0 else piece
            elif is_finite and most is not None:
                piece = self._copied(begun, states, least, most, copies, depth)
            else:
                piece = self._loop(piece)
                if least == 0:
                    piece = self._optional(piece)
            begun = self._at  # a quantifier of a quantifier does not copy the text before
        return piece

    def _copied(self, begun: int, states: int, least: int, most: int, copies: int, depth: int) -> _Piece:
        """Read a counted part once for each count, into separate states."""
        end = self._at
        del self.sets[states:], self.follow[states:]
        whole = _Piece()
        for place in range(most):
            self._at = begun
            piece = self._atom(copies * most, depth)
            whole = self._then(whole, piece if place < least else self._optional(piece))
        self._at = end
        return whole

    def _then(self, one: _Piece, two: _Piece) -> _Piece:
        self._connect(one.last, two.first)
        return _Piece(
            _sum(one.first, _times(two.first, one.empty)),
            _sum(two.last, _times(one.last, two.empty)),
            min(2, one.empty * two.empty),
        )

    def _loop(self, piece: _Piece) -> _Piece:
        self._connect(piece.last, piece.first)
        return _Piece(piece.first, piece.last, 2 if piece.empty else 0)

    @staticmethod
    def _optional(piece: _Piece) -> _Piece:
        return _Piece(piece.first, piece.last, min(2, piece.empty + 1))

    def _connect(self, last: dict[int, int], first: dict[int, int]) -> None:
        for one, ways in last.items():
            follow = self.follow[one]
            for two, more in first.items():
                follow[two] = min(2, follow.get(two, 0) + ways * more)

    def _state(self, set_of: int) -> _Piece:
        if len(self.sets) >= MOST_STATES:
            raise _TooLarge
        if self._folds and set_of & _LETTERS:
            letters = [code for code in range(128) if set_of >> code & 1 and chr(code).isalpha()]
            set_of |= sum({1 << ord(chr(code).swapcase()) for code in letters}) | set_of
        self.sets.append(set_of)
        self.follow.append({})
        place = len(self.sets) - 1
        return _Piece({place: 1}, {place: 1}, 0)

    def _take(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise _Unreadable
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str) -> str:
        text, separator, _ = self._text[self._at :].partition(end)
        if not separator:
            raise _Unreadable
        self._at += len(text) + len(end)
        return text

    def _counts(self) -> tuple[int, int | None] | None:
        """Read a quantifier as its minimum and maximum (None: unlimited). None: there is no quantifier."""
        if self._take("*"):
            counts: tuple[int, int | None] = 0, None
        elif self._take("+"):
            counts = 1, None
        elif self._take("?"):
            counts = 0, 1
        elif self._take("{"):
            least, comma, most = self._until("}").partition(",")
            if not least.isdecimal() or (most and not most.isdecimal()) or len(least + most) > 9:
                raise _Unreadable
            counts = int(least), int(most) if most else (None if comma else int(least))
        else:
            return None
        if not self._take("?"):
            self._take("+")  # possessive: it matches no more than a greedy one
        return counts

    def _atom(self, copies: int, depth: int) -> _Piece:
        sign = self._next()
        if sign == "(":
            return self._group(copies, depth)
        if sign == "[":
            return self._state(self._set(depth))
        if sign == "\\":
            return self._escape()
        if sign in "^$":
            return _Piece()
        if sign == ".":
            return self._state(_ANY)
        if sign in "*+?{":
            raise _Unreadable
        return self._state(_bit(sign))

    def _group(self, copies: int, depth: int) -> _Piece:
        looks = False
        if self._take("?"):
            if self._take("<=") or self._take("<!") or self._take("=") or self._take("!"):
                looks = True
            elif self._take("<"):
                self._until(">")
            elif not (self._take(":") or self._take(">")):
                while (flag := self._next()) not in ":)":
                    if not (flag.isalpha() or flag == "-") or flag == "x":
                        raise _Unreadable
                if flag == ")":
                    return _Piece()
        piece = self._choice(copies, depth + 1)
        if not self._take(")"):
            raise _Unreadable
        return _Piece() if looks else piece  # a look-around takes no text; its loops stay in the automaton

    def _escape(self) -> _Piece:
        sign = self._next()
        if sign in _ANCHORS:
            return _Piece()
        if sign == "Q":
            whole = _Piece()
            for quoted in self._until("\\E"):
                whole = self._then(whole, self._state(_bit(quoted)))
            return whole
        if sign in "RX" or (sign.isdecimal() and sign != "0") or sign == "k":  # several characters, or a group again
            if sign == "k":
                self._until(">")
            return self._optional(self._loop(self._state(_ANY)))
        self._at -= 1
        return self._state(self._escaped_set())

    def _escaped_set(self) -> int:
        sign = self._next()
        if sign.lower() in _CLASSES:
            letters = _CLASSES[sign.lower()]
            return letters if sign.islower() else _ANY & ~letters | _OTHER
        if sign in "pP":
            if self._take("{"):
                self._until("}")
            else:
                self._next()
            return _ANY
        if sign in "xu0c":
            most_digits = {"x": 2, "u": 4, "0": 3, "c": 1}[sign]
            if sign == "x" and self._take("{"):
                self._until("}")
                return _ANY
            code = ""
            wanted = frozenset("01234567" if sign == "0" else "0123456789abcdefABCDEF")
            while len(code) < most_digits and self._text[self._at : self._at + 1] in wanted:
                code += self._next()
            return _bit(chr(int(code, 8 if sign == "0" else 16))) if code and sign != "c" else _ANY
        if sign in _CONTROLS:
            return _bit(_CONTROLS[sign])
        if sign.isalnum():
            raise _Unreadable
        return _bit(sign)

    def _set(self, depth: int) -> int:
        """Read a set after its opening bracket. An intersection counts as its first part."""
        if depth > DEEPEST:
            raise _Unreadable
        negated, characters, is_first = self._take("^"), 0, True
        while True:
            if self._take("&&"):
                while not self._text.startswith("]", self._at):
                    if self._take("["):
                        self._set(depth + 1)
                    else:
                        self._next()
                continue
            sign = self._next()
            if sign == "]" and not is_first:
                return (_ANY & ~characters | _OTHER) if negated else characters
            is_first = False
            if sign == "[":
                characters |= self._set(depth + 1)
                continue
            one = self._escaped_set() if sign == "\\" else _bit(sign)
            if self._text.startswith("-", self._at) and not self._text.startswith(("-]", "-["), self._at):
                self._at += 1
                end = self._next()
                two = self._escaped_set() if end == "\\" else _bit(end)
                low, high = one.bit_length() - 1, two.bit_length() - 1
                one = ((1 << (high + 1)) - (1 << low)) if low <= high else _ANY
            characters |= one


def _bit(sign: str) -> int:
    return 1 << ord(sign) if ord(sign) < 128 else _OTHER


def _sum(one: dict[int, int], two: dict[int, int]) -> dict[int, int]:
    whole = dict(one)
    for state, ways in two.items():
        whole[state] = min(2, whole.get(state, 0) + ways)
    return whole


def _times(states: dict[int, int], ways: int) -> dict[int, int]:
    return {state: min(2, count * ways) for state, count in states.items()} if ways else {}


def _is_ambiguous(sets: list[int], follow: list[dict[int, int]]) -> bool:
    """Return True if a state comes back to itself in two ways over the same text."""
    component = _components(follow)
    inner = [[two for two in follow[one] if component[two] == component[one]] for one in range(len(sets))]
    if any(follow[one][two] > 1 for one in range(len(sets)) for two in inner[one]):
        return True
    back: dict[tuple[int, int], list[tuple[int, int]]] = {}
    seen = {(one, one) for one in range(len(sets)) if inner[one]}
    waiting, looked = list(seen), 0
    while waiting:
        pair = waiting.pop()
        for one in inner[pair[0]]:
            for two in inner[pair[1]]:
                looked += 1
                if looked > MOST_PAIRS:
                    return True
                if sets[one] & sets[two]:
                    back.setdefault((one, two), []).append(pair)
                    if (one, two) not in seen:
                        seen.add((one, two))
                        waiting.append((one, two))
    # Pairs of different states that come from a pair of one state, and lead back to one.
    waiting = [pair for pair in seen if pair[0] == pair[1]]
    leading = set(waiting)
    while waiting:
        for before in back.get(waiting.pop(), ()):
            if before not in leading:
                leading.add(before)
                waiting.append(before)
    return any(one != two for one, two in leading)


def _components(follow: list[dict[int, int]]) -> list[int]:
    """Return the strongly connected component of each state, by Kosaraju's two passes."""
    order: list[int] = []
    seen: set[int] = set()
    for start in range(len(follow)):
        if start in seen:
            continue
        seen.add(start)
        path: list[tuple[int, Iterator[int]]] = [(start, iter(follow[start]))]
        while path:
            state, rest = path[-1]
            following = next((one for one in rest if one not in seen), None)
            if following is None:
                order.append(state)
                path.pop()
            else:
                seen.add(following)
                path.append((following, iter(follow[following])))
    before: list[list[int]] = [[] for _ in follow]
    for one, states in enumerate(follow):
        for two in states:
            before[two].append(one)
    component = [-1] * len(follow)
    for name, start in enumerate(reversed(order)):
        stack = [start] if component[start] < 0 else []
        while stack:
            state = stack.pop()
            if component[state] < 0:
                component[state] = name
                stack += before[state]
    return component
