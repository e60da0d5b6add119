"""The writers of the two engines that the gateway comes with."""

from __future__ import annotations

from engines.compiled import SPARK_WRITER
from engines.duckdb.engine import DuckDBEngine

DUCKDB_SQL = DuckDBEngine.writer
SPARK_SQL = SPARK_WRITER
LIBRARY_SQL = "tests.engines.toy_writer"  # by the parser's library, as those of Hive and Impala
