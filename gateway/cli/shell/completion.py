"""Completion of what is typed before the cursor, from names in memory alone: it never waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.cli.shell.names import Names
from gateway.cli.text.script import tokens_of
from sql.tables import DEFAULT_DATABASE, database_of, full_name, name_in_database

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

KEYWORDS = tuple(
    """
    ALTER ANALYZE AND ANTI AS ASC BETWEEN BY CACHE CASE CAST COLUMNS COMMENT COMPUTE CREATE CROSS CUBE CURRENT DATABASE
    DATABASES DELETE DESC DESCRIBE DISTINCT DROP ELSE END EXCEPT EXISTS EXPLAIN EXTENDED FALSE FILTER FIRST FOLLOWING
    FORMATTED FROM FULL FUNCTIONS GROUP GROUPING HAVING IF IN INNER INSERT INTERSECT INTERVAL INTO INVALIDATE IS JOIN
    LAST LATERAL LEFT LIKE LIMIT MERGE METADATA NATURAL NOT NULL NULLS OFFSET ON OR ORDER OUTER OVER OVERWRITE PARTITION
    PARTITIONED PARTITIONS PIVOT PRECEDING QUALIFY RANGE REFRESH RENAME REPLACE RESET RIGHT RLIKE ROLLUP ROWS SELECT
    SEMI SET SETS SHOW STATS STORED TABLE TABLES TABLESAMPLE TBLPROPERTIES THEN TO TRUE TRUNCATE UNBOUNDED UNION UPDATE
    USE USING VALUES VIEW VIEWS WHEN WHERE WINDOW WITH WITHIN
    """.split()
)
BEFORE_TABLES = frozenset(
    {"FROM", "JOIN", "INTO", "OVERWRITE", "UPDATE", "TABLE", "DESCRIBE", "DESC", "STATS", "REFRESH"}
)
"""Words that the name of a table follows."""
BEFORE_DATABASES = frozenset({"USE", "DATABASE", "SCHEMA"})
"""Words that the name of a database follows."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One way to complete a word."""

    text: str
    """The whole word."""
    kind: str
    """Kind of thing that it names, as the menu shows it."""


def word_before(text: str) -> str:
    """Return the word, with its qualifiers, that a text ends with; empty: it ends with none."""
    start = len(text)
    while start and (text[start - 1].isalnum() or text[start - 1] in "_."):
        start -= 1
    return text[start:]


def suggestions(before: str, after: str, dialect: str, database: str, names: Names) -> list[Suggestion]:
    """Return ways to complete the word at the cursor, the most likely first.

    before, after: text on both sides of the cursor. database: of bare names.
    """
    tokens = tokens_of(before, dialect)
    if tokens is None:  # within a string, a comment or a quoted name
        return []
    word = word_before(before)
    previous = _previous_word(before[: len(before) - len(word)], dialect)
    qualifier, dot, beginning = word.rpartition(".")
    sources = tables_in(f"{before}{after}", dialect, database, names)
    if dot:
        candidates = _qualified(qualifier, database, names, sources)
    elif previous in BEFORE_DATABASES:
        candidates = _of_kind(names.databases, "database")
    elif previous in BEFORE_TABLES:
        candidates = _relations(database, names)
    else:
        candidates = _anywhere(word, database, names, sources)
    prefix = beginning.lower()
    matching: dict[str, Suggestion] = {}
    for candidate in candidates:
        if candidate.text.lower().startswith(prefix):
            matching.setdefault(candidate.text, candidate)
    return list(matching.values())


def tables_in(text: str, dialect: str, database: str, names: Names) -> dict[str, str]:
    """Return full names of tables that a text reads, by the names and aliases by which its columns are qualified."""
    tokens = tokens_of(text, dialect) or ()
    sources: dict[str, str] = {}
    for place, token in enumerate(tokens):
        if token.text.upper() not in BEFORE_TABLES:
            continue
        parts = _name_at(tokens, place + 1)
        table = _full(".".join(parts), database, names)
        if table is None:
            continue
        sources[parts[-1].lower()] = table
        alias = _alias_at(tokens, place + 2 * len(parts))
        if alias:
            sources[alias.lower()] = table
    return sources


def _name_at(tokens: Sequence[Token], place: int) -> list[str]:
    """Return the parts of the name that begins at a token: a name, and others behind dots."""
    parts = [token.text for token in tokens[place : place + 1]]
    while place + 2 < len(tokens) and tokens[place + 1].text == ".":
        place += 2
        parts.append(tokens[place].text)
    return parts


def _alias_at(tokens: Sequence[Token], place: int) -> str:
    """Return the alias that stands at a token, behind AS or without it; empty: there is none."""
    words = [token.text for token in tokens[place : place + 2]]
    if words[:1] and words[0].upper() == "AS":
        words = words[1:]
    alias = words[0] if words else ""
    return alias if alias.isidentifier() and alias.upper() not in KEYWORDS else ""


def _full(name: str, database: str, names: Names) -> str | None:
    """Return the name by which a table is registered, None where there is no such table."""
    lower = name.lower()
    bare = lower.removeprefix(f"{DEFAULT_DATABASE}.")
    candidates = (lower if "." in lower else full_name(database, lower), bare)
    return next((candidate for candidate in candidates if candidate in names.tables), None)


def _previous_word(text: str, dialect: str) -> str:
    tokens = tokens_of(text, dialect)
    return tokens[-1].text.upper() if tokens else ""


def _qualified(qualifier: str, database: str, names: Names, sources: Mapping[str, str]) -> Iterator[Suggestion]:
    """Yield columns of a table or alias, and tables of a database."""
    table = sources.get(qualifier.lower()) or _full(qualifier, database, names)
    if table is not None:
        yield from _of_kind(names.tables[table], "column")
    for name in names.tables:
        if database_of(name) == qualifier.lower():
            yield Suggestion(name_in_database(name), "table")


def _relations(database: str, names: Names) -> Iterator[Suggestion]:
    """Yield tables, those of the current database by their bare names, and databases."""
    for name in names.tables:
        owner, bare = database_of(name), name_in_database(name)
        yield Suggestion(bare if owner == database else f"{owner}.{bare}", "table")
    yield from _of_kind(names.databases, "database")


def _anywhere(word: str, database: str, names: Names, sources: Mapping[str, str]) -> Iterator[Suggestion]:
    """Yield columns of the statement's tables; where a word has begun, also keywords, functions and tables."""
    for table in dict.fromkeys(sources.values()):
        yield from _of_kind(names.tables[table], "column")
    if not word:
        return
    in_small_letters = word.islower()
    yield from _of_kind((keyword.lower() if in_small_letters else keyword for keyword in KEYWORDS), "keyword")
    yield from _of_kind(names.functions, "function")
    yield from _of_kind(sources, "table")
    yield from _relations(database, names)


def _of_kind(texts: Iterable[str], kind: str) -> Iterator[Suggestion]:
    return (Suggestion(text, kind) for text in texts)
