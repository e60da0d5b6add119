"""Variables of Hive's and Spark's users, ``${hivevar:x}``: put into a statement's text before anything reads it.

As in Hive, a value takes the variable's place wherever it stands, in texts, names and comments. Values are those that
the session was given, and nothing else: not the environment, not properties of a process. What is put in is not looked
through again. A variable without a value is refused, but for comments.

    ${hivevar:x}                                what SET hivevar:x = ... gave, or a connection's hivevar
    ${hiveconf:x}  ${spark:x}  ${sparkconf:x}   the setting x, as SET x = ... gave it
    ${x}                                        the first of these that there is
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot.errors import TokenError

from sql import parsing
from sql.errors import StatementTooLong, UnknownVariable
from sql.nodes import position_at

DIALECTS = ("spark", "hive")
"""Those that have variables; Impala's are put in by its shell."""

HIVEVAR = "hivevar:"
LONGEST_NAME = 200
LARGEST_GROWTH = 4 << 20  # signs that values may add

_OF_SETTINGS = ("hiveconf", "spark", "sparkconf")
_OUTSIDE = ("env", "system")


def substitute(
    sql: str, dialect: str, variables: Mapping[str, str], limits: parsing.ParserLimits = parsing.USUAL_LIMITS
) -> str:
    """Return a statement with its variables' values. variables: settings of the session, by name.

    Raises UnknownVariable, StatementTooLong.
    """
    parsing.require_length(sql, limits)
    if dialect not in DIALECTS or "${" not in sql:
        return sql
    pieces: list[str] = []
    unknown: list[tuple[int, str]] = []  # where in the new text, and what
    done, length = 0, 0
    while (start := sql.find("${", done)) >= 0:
        end = sql.find("}", start + 2, start + 2 + LONGEST_NAME)
        name = sql[start + 2 : end] if end >= 0 else ""
        value = None
        if not name or any(sign.isspace() for sign in name):
            end = start + 1  # no variable: go on behind the sign
        else:
            value = _value(name, variables)
            if value is None:
                unknown.append((length + start - done, name))
        pieces += [sql[done:start], sql[start : end + 1] if value is None else value]
        length += len(pieces[-2]) + len(pieces[-1])
        done = end + 1
        if length - done > LARGEST_GROWTH:
            raise StatementTooLong(f"Values of variables make the statement more than {LARGEST_GROWTH:,} signs longer.")
    text = "".join([*pieces, sql[done:]])
    if unknown:
        parsing.require_length(text, limits)
        _refuse_outside_comments(text, dialect, unknown)
    return text


def _value(name: str, variables: Mapping[str, str]) -> str | None:
    prefix, _, own = name.rpartition(":")
    if not prefix:
        return variables.get(HIVEVAR + own, variables.get(own))
    if prefix in _OF_SETTINGS:
        return variables.get(own)
    return variables.get(name) if name == HIVEVAR + own else None


def _refuse_outside_comments(text: str, dialect: str, unknown: Sequence[tuple[int, str]]) -> None:
    try:
        tokens = parsing.reader_of(dialect).tokenize(text)
    except TokenError:
        return  # whoever reads it next says what is wrong
    waiting = iter(unknown)
    place, name = next(waiting)
    for token in tokens:  # both in the order of the text
        while place < token.start:
            following = next(waiting, None)
            if following is None:
                return
            place, name = following
        if place <= token.end:
            raise UnknownVariable(_reason(name), position_at(text, place))


def _reason(name: str) -> str:
    as_text = "to have it as text, write '$' '{...}' or SET hive.variable.substitute = false"
    prefix = name.partition(":")[0]
    if prefix in _OUTSIDE:
        what = "the environment" if prefix == "env" else "properties of the system"
        return f"A variable takes no value from {what}: ${{{name}}}; {as_text}."
    setting = name if ":" in name else f"{HIVEVAR}{name}"
    return f"There is no variable ${{{name}}} in this session: SET {setting} = ...; {as_text}."
