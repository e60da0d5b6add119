"""Names and strings as each engine's SQL has them: one function per dialect, and nothing else writes them.

A name or a string is data whatever is in it. Names of tables and columns have no control characters besides: nothing
needs them, and not all parsers read them alike.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

LONGEST_NAME = 255  # characters, as in the metastore

Quote = Callable[[str], str]


class InvalidName(ValueError):
    """A text that cannot be a name; the message says why, as the end of a sentence."""


def require_name(text: str) -> str:
    """Return a name as it is. Raises InvalidName for what no engine takes as one."""
    if not text or text.isspace():
        raise InvalidName("is empty")
    if len(text) > LONGEST_NAME:
        raise InvalidName(f"is longer than {LONGEST_NAME} characters")
    return require_printable(text)


def require_printable(text: str) -> str:
    """Return a text as it is. Raises InvalidName where it has control characters or is no valid Unicode."""
    for character in text:
        if character < " " or unicodedata.category(character) in ("Cc", "Cs"):
            raise InvalidName(f"has the control character U+{ord(character):04X}")
    return text


def spark_name(name: str) -> str:
    """Quote an identifier for Spark, Hive and Impala."""
    return "`" + name.replace("`", "``") + "`"


def spark_string(text: str) -> str:
    """Quote a string for Spark, Hive and Impala, which all read backslashes as escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def duckdb_name(name: str) -> str:
    """Quote an identifier for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def duckdb_string(text: str) -> str:
    """Quote a string for DuckDB."""
    return "'" + text.replace("'", "''") + "'"
