"""Patterns in which ``*`` is any text. Matching takes time linear in the text."""

from __future__ import annotations

from sql.tables import DEFAULT_DATABASE, database_of, name_in_database

ANY = "*"


def matches(pattern: str, text: str) -> bool:
    """Tell whether a text matches a pattern: each piece between stars is searched once, from left to right."""
    first, *rest = pattern.split(ANY)
    if not rest:
        return text == pattern
    *middle, last = rest
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    place, end = len(first), len(text) - len(last)
    for piece in middle:
        at = text.find(piece, place, end)
        if at < 0:
            return False
        place = at + len(piece)
    return True


def matches_table(pattern: str, full_name: str) -> bool:
    """Tell whether a table or view is meant. A pattern without a database means ``default``, ``*`` alone everything."""
    if pattern == ANY:
        return True
    database, dot, name = pattern.lower().partition(".")
    if not dot:
        database, name = DEFAULT_DATABASE, database
    full = full_name.lower()
    return matches(database, database_of(full)) and matches(name, name_in_database(full))
