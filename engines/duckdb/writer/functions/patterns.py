"""LIKE, and regular expressions that Java and RE2 read alike; the others have no equivalent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from engines.duckdb.writer.functions.casts import cast
from engines.duckdb.writer.functions.texts import folded_lower
from engines.duckdb.writer.kinds import BOOLEAN, STRING
from engines.duckdb.writer.values import Value, guard, quoted_text, require
from engines.errors import NoEquivalent

_SPACE = r"[ \t\n\x0B\f\r]"
_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_TOKEN = re.compile(
    r"""(?P<escape>\\(?:[dDwW]|[.\\+*?()\[\]{}|^$/\-]|[tnr]))
      | (?P<space>\\s)
      | (?P<set>\[\^?(?:[A-Za-z0-9_ ,.:;@\#%=!<>/*+?()|$-]|\\[dw.\\+*?()\[\]{}|^$/-])+\])
      | (?P<repeat>(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??)
      | (?P<open>\((?:\?:)?)
      | (?P<close>\))
      | (?P<or>\|)
      | (?P<begin>\^)
      | (?P<end>\$)
      | (?P<any>\.)
      | (?P<plain>[^\\\[\]{}()|^$.*+?])""",
    re.VERBOSE,
)
_MOST_REPEATS = 1_000  # RE2's
_REPLACEMENT = re.compile(r"[^$\\]|\$\d(?!\d)")


def like(value: Value, pattern: Value, escape: str, *, folded: bool = False) -> Value:
    """Match a text with LIKE, or with ILIKE if folded. escape: one sign; Spark's own is the backslash."""
    require(len(escape) == 1, "ESCAPE with more than one sign.")
    text, wanted = cast(value, STRING).text, cast(pattern, STRING)
    quoted = "'" + escape.replace("'", "''") + "'"
    if pattern.literal is None:
        matched = f"{text} LIKE {wanted.text}"
        if folded:
            matched = f"{folded_lower(text)} LIKE {folded_lower(wanted.text)}"
        bad = f"contains({wanted.text}, {quoted})"
        return Value(f"({guard(bad, 'an escape in a LIKE pattern', matched, BOOLEAN)})", BOOLEAN)
    rest = re.sub(re.escape(escape) + f"[%_{re.escape(escape)}]", "", pattern.literal)
    require(escape not in rest, "a pattern of LIKE in which the escape stands before something else.")
    if folded:
        text = folded_lower(text)
        wanted = Value(folded_lower(wanted.text), STRING)
    escaped = f" ESCAPE {quoted}" if escape in pattern.literal else ""
    return Value(f"({text} LIKE {wanted.text}{escaped})", BOOLEAN)


def matches(value: Value, pattern: Value) -> Value:
    """Tell whether a regular expression matches somewhere."""
    text = cast(value, STRING).text
    return Value(f"regexp_matches({text}, {_for_re2(pattern, anywhere=True)})", BOOLEAN)


def extracted(value: Value, pattern: Value, group: Value) -> Value:
    """Return a group of the first match; without one, an empty text."""
    require(group.whole is not None and 0 <= group.whole <= _groups(pattern), "the number of a group.")
    text = cast(value, STRING).text
    return Value(f"regexp_extract({text}, {_for_re2(pattern)}, {group.whole})", STRING)


def replaced(value: Value, pattern: Value, replacement: Value) -> Value:
    """Replace all matches."""
    require(replacement.literal is not None, "a replacement that is no literal.")
    words = replacement.literal or ""
    parts = _REPLACEMENT.findall(words)
    require("".join(parts) == words, "the replacement of a regular expression.")
    require(all(int(part[1]) <= _groups(pattern) for part in parts if part[0] == "$"), "the number of a group.")
    written = quoted_text("".join(rf"\{part[1]}" if part[0] == "$" else part for part in parts))
    regex = _for_re2(pattern)
    empty = re.match(pattern.literal or "", "")
    require(empty is None, "a regular expression that matches nothing at all.")
    return Value(f"regexp_replace({cast(value, STRING).text}, {regex}, {written}, 'g')", STRING)


def _groups(pattern: Value) -> int:
    text = pattern.literal or ""
    _for_re2(pattern, anywhere=True)
    return re.compile(text).groups


def _for_re2(pattern: Value, *, anywhere: bool = False) -> str:
    """Write one of Java's regular expressions for RE2. anywhere: only whether it matches counts, not where."""
    text = pattern.literal
    if text is None:
        raise NoEquivalent("a regular expression that is no literal.")
    written, place, last = [], 0, ""
    pieces: list[tuple[str, str]] = []
    while place < len(text):
        match = _TOKEN.match(text, place)
        kind = match.lastgroup if match else None
        if match is None or kind is None:
            raise NoEquivalent(f"the regular expression {quoted_text(text)}.")
        place = match.end()
        token = match[0]
        pieces.append((kind, token))
        if kind == "repeat":
            require(
                last in ("escape", "space", "set", "close", "any", "plain"),
                f"the regular expression {quoted_text(text)}.",
            )
        elif kind == "set":
            require(
                "&&" not in token and not re.search(r"[^\\]-\\|-.-", token),
                f"the regular expression {quoted_text(text)}.",
            )
        elif kind == "space":
            token = _SPACE
        elif kind == "any":
            token = f"[^{_LINE_ENDS}]"
        elif kind == "end":
            require(anywhere and place == len(text) and "|" not in text, f"the regular expression {quoted_text(text)}.")
            token = rf"(?:\r\n|[{_LINE_ENDS}])?$"
        elif kind == "plain":
            require(token.isascii() or token.isalpha(), f"the regular expression {quoted_text(text)}.")
        written.append(token)
        last = kind
    try:
        re.compile(text)
    except re.error as error:
        raise NoEquivalent(f"the regular expression {quoted_text(text)}.") from error
    require(_repeats_alike(pieces), f"the regular expression {quoted_text(text)}, for what it repeats.")
    return quoted_text("".join(written))


@dataclass(slots=True)
class _Group:
    """Group of a regular expression, as far as it is read.

    empty: a finished branch can match the empty text.
    branch_empty: the current branch can match the empty text.
    times: product of the nested repetition counts inside.
    """

    empty: bool = False
    branch_empty: bool = True
    times: int = 1
    atom_empty: bool = True
    atom_times: int = 1

    def next_atom(self, *, empty: bool, times: int = 1) -> None:
        """Go on to what follows in the same branch."""
        self.branch_empty &= self.atom_empty
        self.times = max(self.times, self.atom_times)
        self.atom_empty, self.atom_times = empty, times

    def next_branch(self) -> None:
        """Go on behind a sign of choice, or end."""
        self.next_atom(empty=True)
        self.empty |= self.branch_empty
        self.branch_empty = True


def _repeats_alike(pieces: Sequence[tuple[str, str]]) -> bool:
    """Tell whether counts stay within RE2's limit, and no group is repeated that can match nothing.

    What such a group holds after its last, empty round is another thing in Java.
    """
    groups = [_Group()]
    last = ""
    for kind, token in pieces:
        group = groups[-1]
        if kind == "open":
            groups.append(_Group())
        elif kind == "close":
            group.next_branch()
            groups.pop()
            groups[-1].next_atom(empty=group.empty, times=group.times)
        elif kind == "or":
            group.next_branch()
        elif kind == "repeat":
            counts = [int(count) for count in re.findall(r"\d+", token)]
            group.atom_times *= max([1, *counts])
            if group.atom_times > _MOST_REPEATS or (last == "close" and group.atom_empty):
                return False
            group.atom_empty |= token[0] in "*?" or (bool(counts) and counts[0] == 0)
        else:
            group.next_atom(empty=kind in ("begin", "end"))
        last = kind
    return True
