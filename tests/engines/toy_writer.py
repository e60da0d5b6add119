"""The toys' writer: another package's, made of what all writers share and of the library's dialect."""

from __future__ import annotations

from sqlglot.dialects.duckdb import DuckDB

from engines.writing import in_library_dialect, written
from sql.statement import CheckedStatement


def write(statement: CheckedStatement) -> str:
    """Return a statement for the toys. Raises UnsupportedFeature, NoEquivalent."""
    return written(statement, lambda checked: in_library_dialect(checked, DuckDB), reader=DuckDB, functions=None)
