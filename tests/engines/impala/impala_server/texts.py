"""What Impala says when DuckDB fails: DuckDB's errors in Impala's own words."""

from __future__ import annotations

import re

import duckdb

HOST = "127.0.0.1:27000"
CANCELLED = "Cancelled"
_BINDER = (
    (r'Referenced column "([^"]+)" not found', "Could not resolve column/field reference: '{}'"),
    (r'Values list "[^"]+" does not have a column named "([^"]+)"', "Could not resolve column/field reference: '{}'"),
    (r"Table with name (\S+) does not exist", "Could not resolve table reference: '{}'"),
    (
        r"(?:Scalar |Aggregate |Table )?Function with name (\S+) does not exist",
        "default.{}() unknown for database default. Currently this db has 0 functions.",
    ),
    (
        r'column "([^"]+)" must appear in the GROUP BY clause',
        "select list expression not produced by aggregation output (missing from GROUP BY clause?): {}",
    ),
    (r"No function matches the given name and argument types '([^']+)'", "No matching function with signature: {}"),
)


def syntax_error(sql: str) -> str:
    """Return the text for a statement that cannot be parsed."""
    cause = "CAUSED BY: Exception: Syntax error"
    return f"ParseException: Syntax error in line 1:\n{sql}\n^\nEncountered: IDENTIFIER\n\n{cause}"


def memory_exceeded(query_id: str, limit_bytes: int, peak_bytes: int) -> str:
    """Return the dump of trackers that a query over its limit ends with."""
    limit, peak = size(limit_bytes), size(peak_bytes)
    return "\n".join(
        (
            "Memory limit exceeded: Failed to allocate row batch",
            "HASH_JOIN_NODE (id=2) could not allocate 8.00 MB without exceeding limit.",
            f"Error occurred on backend {HOST} by fragment {query_id[:-1]}1",
            "Memory left in process limit: 5.44 GB",
            f"Memory left in query limit: {size(max(0, limit_bytes - peak_bytes))}",
            f"Query({query_id}): Limit={limit} Reservation={peak} ReservationLimit={limit} OtherMemory=0 "
            f"Total={peak} Peak={peak}",
            "",
        )
    )


def time_limit(query_id: str, limit_s: int) -> str:
    """Return the text for a query that ran beyond EXEC_TIME_LIMIT_S."""
    return f"Query {query_id} expired due to execution time limit of {limit_s}s000ms"


def of_duckdb(error: duckdb.Error) -> str:
    """Return Impala's text for an error of the statement or its data."""
    said = str(error)
    for pattern, text in _BINDER:
        if found := re.search(pattern, said):
            return f"AnalysisException: {text.format(found.group(1).strip('!'))}"
    if isinstance(error, duckdb.ParserException):
        return syntax_error("")
    if isinstance(error, duckdb.BinderException):
        return f"AnalysisException: {said.splitlines()[0].removeprefix('Binder Error: ')}"
    if isinstance(error, duckdb.IOException):
        return f"Disk I/O error on {HOST}: Failed to open HDFS file\nError(2): No such file or directory"
    return f"UDF ERROR: {said.splitlines()[0]}"


def size(count: float) -> str:
    """Write bytes as Impala does."""
    units = ("B", "KB", "MB", "GB", "TB")
    place = 0
    while count >= 1024 and place < len(units) - 1:
        count, place = count / 1024, place + 1
    return f"{count:.0f}" if not place else f"{count:.2f} {units[place]}"
