"""A checked statement in DuckDB's SQL."""

from __future__ import annotations

from typing import ClassVar

from sqlglot.dialects.duckdb import DuckDB
from sqlglot.parsers.duckdb import DuckDBParser

from engines.duckdb.writer.expressions import knows_function
from engines.duckdb.writer.queries import Queries
from engines.writing import written
from sql.parsers.spark import WITHOUT_BRACKETS, Parsers, only
from sql.statement import CheckedStatement

__all__ = ["knows_function", "write"]

FUNCTIONS = frozenset(  # DuckDB's, that we write
    """
    abs atan atan2 avg bit_and bit_or bit_xor bool_and bool_or cbrt ceil chr coalesce concat_ws contains cos count
    count_if covar_pop covar_samp cume_dist current_date date_trunc day dayofweek dayofyear degrees dense_rank
    encode ends_with epoch_us exp factorial first first_value floor greatest grouping grouping_id hex hour instr
    isfinite isnan isodow isoyear lag last last_day last_value lead least left length levenshtein ln log10 log2
    lower lpad ltrim max md5 min minute month now ntile nullif octet_length percent_rank pi pow quantile_cont
    quarter radians rank regexp_extract regexp_full_match regexp_matches regexp_replace repeat replace reverse
    right round round_even row_number rpad rtrim second sha1 sha256 sign sin split_part sqrt starts_with
    stddev_pop stddev_samp strftime strlen substring sum tan to_days to_months to_seconds translate trim trunc
    unicode upper var_pop var_samp week xor year
    """.split()
)


class _DuckDBParser(DuckDBParser):
    FUNCTIONS: ClassVar[Parsers] = {}
    FUNCTION_PARSERS: ClassVar[Parsers] = only(DuckDBParser.FUNCTION_PARSERS, ("CAST", "TRY_CAST"))
    NO_PAREN_FUNCTION_PARSERS: ClassVar[Parsers] = only(DuckDBParser.NO_PAREN_FUNCTION_PARSERS, WITHOUT_BRACKETS)


class DuckDBAsWritten(DuckDB):
    """Reads DuckDB's SQL, to look at what was written for it."""

    Parser = _DuckDBParser


def write(statement: CheckedStatement) -> str:
    """Return a statement for DuckDB. Raises NoEquivalent, UnsupportedFeature."""
    return written(statement, _write, reader=DuckDBAsWritten, functions=FUNCTIONS)


def _write(statement: CheckedStatement) -> str:
    tables = {table.name.lower(): table for table in statement.tables}
    return Queries(tables).write(statement.tree, outermost=True).text
