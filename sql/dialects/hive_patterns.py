"""Date and time patterns and regular expressions of Impala, as patterns of Java, which Spark uses.

Impala's regular expressions are RE2's and match the longest text; Java takes the first alternative that matches. A
pattern where that could make a difference is refused.
"""

from __future__ import annotations

from itertools import groupby, pairwise

from sqlglot import exp

from sql.dialects.calls import call_of, is_text, refused

_LETTERS = {  # of date and time patterns, with how often each may stand
    "y": (2, 4),
    "M": (1, 2, 3, 4),
    "d": (1, 2),
    "H": (1, 2),
    "m": (1, 2),
    "s": (1, 2),
    "S": tuple(range(1, 10)),
}
_THEMSELVES = "TZ"
_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "digit": "0-9",
    "lower": "a-z",
    "space": r"\t\n\x0B\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_FLAGS = {"i": "(?i)", "m": "(?m)", "n": "(?s)", "c": ""}


def time_pattern(call: exp.Expr, pattern: exp.Expr, *, reads: bool) -> str:
    """Return a date and time pattern as Java's. reads: it is for parsing. Raises NotAllowed."""
    if not is_text(pattern):
        raise refused(call, "A date and time pattern has to be a string literal.")
    if not set("yMd" if reads else "yMdHmsS").intersection(pattern.name):
        raise refused(call, f"A date and time pattern has letters, as in yyyy-MM-dd; '{pattern.name}' has none.")
    written = ""
    for letter, run in groupby(pattern.name):
        count = len(list(run))
        if not letter.isalpha() and letter != "'":
            written += letter * count
        elif letter in _THEMSELVES and count == 1:
            written += f"'{letter}'"
        elif count in _LETTERS.get(letter, ()) and not (reads and letter == "y" and count == 2):
            written += letter * count
        else:
            raise refused(call, f"{letter * count} in a date and time pattern has no equivalent in Spark.")
    return written


def longest_time(pattern: str) -> int:
    """Return the length of the longest text that a date and time pattern reads."""
    lengths = ((letter, len(list(run))) for letter, run in groupby(pattern))
    return sum(max(2, count) if letter in "dHmsM" else count for letter, count in lengths) + 7 * pattern.count("MMMM")


def in_java(node: exp.Expr, pattern: str) -> str:
    """Return a regular expression with classes like [:digit:] replaced by their letters. Raises NotAllowed."""
    for name, letters in _CLASSES.items():
        pattern = pattern.replace(f"[:{name}:]", letters)
    if "[:" in pattern or "\\C" in pattern or "\\Q" in pattern:
        raise refused(node, "This regular expression of RE2 has no equivalent in Java.")
    return pattern


def regexp(node: exp.Expr, pattern: exp.Expr) -> exp.Expr:
    """Return a pattern that is only tested for a match."""
    return exp.Literal.string(in_java(node, pattern.name)) if is_text(pattern) else pattern


def _longest(call: exp.Anonymous, pattern: exp.Expr) -> exp.Expr:
    """Return a pattern that matches the same text in Java. Raises NotAllowed."""
    if not isinstance(pattern, exp.Literal):
        raise refused(call, f"{call.name.upper()} takes a literal pattern.")
    text = pattern.name
    if any(f"{sign}?" in text for sign in "*+?}"):
        raise refused(
            call, "A lazy quantifier has no effect in Impala, which matches the longest text: leave out its ?."
        )
    if "|" in text:
        _require_disjoint(call, text)
    return exp.Literal.string(in_java(call, text))


def _require_disjoint(call: exp.Anonymous, pattern: str) -> None:
    """Refuse alternatives of which one may be the beginning of another: Java takes the first, Impala the longest."""
    for group in pattern.replace("(", ")").split(")"):
        alternatives = group.split("|")
        if len(alternatives) == 1:
            continue
        plain = all(text and text.replace(" ", "").replace("_", "").isalnum() for text in alternatives)
        firsts = {text[:1] for text in alternatives}
        if not plain or (len(firsts) < len(alternatives) and _one_begins_another(alternatives)):
            raise refused(
                call,
                "Impala takes the longest alternative of a pattern, Spark the first that matches: use plain texts of "
                "which none begins another.",
            )


def _one_begins_another(alternatives: list[str]) -> bool:
    ordered = sorted(alternatives)
    return any(later.startswith(earlier) for earlier, later in pairwise(ordered))


def regexp_extract(call: exp.Anonymous) -> exp.Expr:
    """Return the text that a group of a pattern matches."""
    if len(call.expressions) != 3:
        raise refused(call, "REGEXP_EXTRACT takes a text, a pattern and the number of a group.")
    text, pattern, group = call.expressions
    return call_of("regexp_extract", text, _longest(call, pattern), group)


def regexp_replace(call: exp.Anonymous) -> exp.Expr:
    r"""Write groups of the replacement, \1 in Impala, as $1."""
    if len(call.expressions) != 3:
        raise refused(call, "REGEXP_REPLACE takes a text, a pattern and a replacement.")
    text, pattern, replacement = call.expressions
    if not isinstance(replacement, exp.Literal):
        raise refused(call, "REGEXP_REPLACE takes a literal replacement.")
    written, letters = "", iter(replacement.name)
    for letter in letters:
        if letter == "\\":
            following = next(letters, "")
            if following.isdigit():
                written += f"${following}"
            elif following == "\\":
                written += "\\\\"
            else:
                raise refused(call, "In a replacement, a backslash has to stand before the number of a group.")
        else:
            written += "\\$" if letter == "$" else letter
    return call_of("regexp_replace", text, _longest(call, pattern), exp.Literal.string(written))


def regexp_like(call: exp.Anonymous) -> exp.Expr:
    """Write options as flags of the pattern."""
    if len(call.expressions) == 2:
        return call_of("regexp_like", call.expressions[0], regexp(call, call.expressions[1]))
    if len(call.expressions) != 3 or not all(isinstance(argument, exp.Literal) for argument in call.expressions[1:]):
        raise refused(call, "REGEXP_LIKE takes a text, a literal pattern and literal options.")
    text, pattern, options = call.expressions
    if not set(options.name) <= set(_FLAGS):
        raise refused(call, f"Options of a regular expression are {', '.join(_FLAGS)}.")
    flags = "".join(_FLAGS[letter] for letter in options.name)
    return call_of("regexp_like", text, exp.Literal.string(flags + in_java(call, pattern.name)))


def regexp_match_count(call: exp.Anonymous) -> exp.Expr:
    """Count matches."""
    if len(call.expressions) != 2:
        raise refused(call, "REGEXP_MATCH_COUNT takes a text and a pattern here.")
    return call_of("regexp_count", call.expressions[0], _longest(call, call.expressions[1]))


def get_json_object(call: exp.Anonymous) -> exp.Expr:
    """Refuse paths that Spark reads differently: with wildcards or spaces."""
    path = call.expressions[1] if len(call.expressions) == 2 else None
    if isinstance(path, exp.Literal) and not set(path.name).isdisjoint("* "):
        raise refused(call, "GET_JSON_OBJECT takes a path without wildcards and spaces here.")
    return call
