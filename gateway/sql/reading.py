"""Spark's SQL with its functions as they were written.

The parser knows most functions and turns them into nodes of its own, which it writes as something that should be the
same: LOG10(x) becomes LOG(10, x), which Spark computes less exactly. Here a function is a name with arguments. Only
those with words between their arguments (CAST, EXTRACT, TRIM, ...) have nodes.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark

_WITH_WORDS = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTR", "SUBSTRING", "TRIM", "OVERLAY")
_WITHOUT_BRACKETS = ("ANY", "CASE", "IF")


class SparkAsWritten(Spark):
    """Reads Spark's SQL."""

    class Parser(Spark.Parser):
        """The parser without functions that it knows."""

        FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {
            name: parser for name, parser in Spark.Parser.FUNCTION_PARSERS.items() if name in _WITH_WORDS
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {
            name: parser for name, parser in Spark.Parser.NO_PAREN_FUNCTION_PARSERS.items() if name in _WITHOUT_BRACKETS
        }


class DuckDBAsWritten(DuckDB):
    """Reads DuckDB's SQL, to look at what was written for it."""

    class Parser(DuckDB.Parser):
        """The parser without functions that it knows."""

        FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {
            name: parser for name, parser in DuckDB.Parser.FUNCTION_PARSERS.items() if name in ("CAST", "TRY_CAST")
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {
            name: parser
            for name, parser in DuckDB.Parser.NO_PAREN_FUNCTION_PARSERS.items()
            if name in _WITHOUT_BRACKETS
        }
