"""The dialects that clients may name. What reads and writes them stands elsewhere: naming one loads no parser."""

from __future__ import annotations

from collections.abc import Mapping

DIALECTS: Mapping[str, str] = {  # as clients name them -> as the parser does
    "spark": "spark",
    "hive": "hive",
    "impala": "hive",
    "duckdb": "duckdb",
    "trino": "trino",
    "ansi": "",
}
SPARK = "spark"
HIVE, IMPALA = "hive", "impala"
HIVES = frozenset({HIVE, IMPALA})
"""Dialects whose functions, types and headings are Hive's or near them."""


def dialect_named(text: str) -> str:
    """Return a dialect by its name in any case. Raises ValueError with the names that there are."""
    if text.lower() not in DIALECTS:
        raise ValueError(f"one of {', '.join(DIALECTS)}")
    return text.lower()
