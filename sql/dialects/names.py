"""The dialects that clients may name. Their parsers are elsewhere, so that to name one loads none."""

from __future__ import annotations

from collections.abc import Mapping

DIALECTS: Mapping[str, str] = {  # as clients name them -> as the parser does
    "spark": "spark",
    "hive": "hive",
    "impala": "hive",
}
SPARK = "spark"
HIVE, IMPALA = "hive", "impala"
HIVES = frozenset({HIVE, IMPALA})
"""Dialects whose functions, types and headings are Hive's or near them: all but Spark's."""


def dialect_named(text: str) -> str:
    """Return a dialect by its name in any case. Raises ValueError with the known names."""
    if text.lower() not in DIALECTS:
        raise ValueError(f"one of {', '.join(DIALECTS)}")
    return text.lower()
