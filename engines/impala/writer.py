"""Statements in the SQL of Impala, by the library's writer for Hive."""

from __future__ import annotations

from sqlglot.dialects.hive import Hive

from engines.writing import in_library_dialect, written
from sql.parsers.dialects import ImpalaText
from sql.statement import CheckedStatement


def write(statement: CheckedStatement) -> str:
    """Return a statement for Impala. Raises UnsupportedFeature, NoEquivalent."""
    return written(statement, _write, reader=Hive, functions=None)


def _write(statement: CheckedStatement) -> str:
    return in_library_dialect(
        statement, ImpalaText
    )  # which says where NULL goes: servers differ where they are not told
