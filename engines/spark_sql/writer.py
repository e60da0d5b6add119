"""Writer of statements in Spark's SQL: for Spark itself and for Spark's HiveServer2."""

from __future__ import annotations

from engines.writing import in_spark_sql, written
from sql.allowlist.functions import FUNCTIONS
from sql.guards import RAISE
from sql.parsers.dialects import SparkAsWritten
from sql.rewriting import SparkNamesColumns
from sql.statement import CheckedStatement

_FUNCTIONS = FUNCTIONS | {RAISE}


def write(statement: CheckedStatement) -> str:
    """Return a statement for Spark. Raises UnsupportedFeature."""
    return written(statement, _write, reader=SparkAsWritten, functions=_FUNCTIONS, takes_collations=True)


def _write(statement: CheckedStatement) -> str:
    return in_spark_sql(statement, SparkNamesColumns)
