"""A real DuckDB and a real Spark over the same tables, and one statement asked of both."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pyarrow as pa

from engines.compiled import SPARK_WRITER
from engines.duckdb.engine import DuckDBEngine
from engines.errors import DataError, EngineError, NoEquivalent, UnsupportedFeature
from engines.protocol import Engine, Lease
from engines.spark.embedded.server import MIB, ServerSettings, SparkConnectServer
from engines.spark.engine import SparkConnectEngine
from gateway.execution.parity.comparing import difference
from sql.dialects.names import SPARK
from sql.errors import SqlError
from sql.parsers.dialects import SparkAsWritten
from sql.parsing import ParserLimits
from sql.statement import check
from sql.tables import TableSource

LEASE_BYTES = 3 << 30
DEADLINE_S = 900.0
_BAD_VALUE = re.compile(r"(?:Conversion|Out of Range|Mismatch Type|Invalid Input) Error", re.IGNORECASE)
"""What DuckDB says of values for which Spark has to have an error too."""


class Outcome(StrEnum):
    """What became of a statement on two engines."""

    EQUAL = "equal"
    BOTH_FAIL = "both fail"  # the data does not allow it on either engine
    PINNED = "pinned"  # known before it runs: it goes to Spark
    HANDED_OVER = "handed over"  # DuckDB met a value that only Spark knows what to make of
    SPARK_FAILS = "only Spark fails"  # out of memory, or over a value that DuckDB did not have to look at
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Found:
    """One statement's outcome. detail: why, or what differs."""

    outcome: Outcome
    detail: str = ""


class BothEngines:
    """Asks both engines; Spark by the very text of the statement and by what we make of it. Thread-safe."""

    def __init__(self, duckdb: Engine, spark: Engine, tables: Sequence[TableSource]) -> None:
        self._duckdb = duckdb
        self._spark = spark
        self._catalog = {table.name: table for table in tables}
        for engine in (duckdb, spark):
            engine.use_tables(tables)

    def ask(self, sql: str, *, names: bool = True) -> Found:
        """Ask a statement of Spark's of both. names: whether those of columns count."""
        try:
            statement = check(sql, SPARK, catalog=self._catalog, limits=ParserLimits())
        except SqlError as error:
            return Found(Outcome.DIFFERENT, f"refused: {error.message}")
        theirs = rows_of(self._spark, sql)
        through_us = rows_of(self._spark, statement.sql(SPARK_WRITER))
        if isinstance(through_us, EngineError):
            if not isinstance(theirs, EngineError):
                return Found(Outcome.DIFFERENT, f"Spark fails by our text: {through_us.message}")
        elif isinstance(theirs, EngineError):
            return Found(Outcome.DIFFERENT, f"Spark fails by the client's text only: {theirs.message}")
        elif (differs := difference(theirs, through_us, names=names)) is not None:
            return Found(Outcome.DIFFERENT, f"Spark by the client's text and by ours: {differs}")
        try:
            written = statement.sql(self._duckdb.writer)
        except NoEquivalent as error:
            return Found(Outcome.PINNED, error.message)
        except UnsupportedFeature as error:
            return Found(Outcome.DIFFERENT, f"cannot be written: {error.message}")
        ours = rows_of(self._duckdb, written)
        if isinstance(ours, UnsupportedFeature) and not _BAD_VALUE.match(ours.message):
            known = "differently from Spark" in ours.message
            return Found(Outcome.HANDED_OVER if known else Outcome.DIFFERENT, ours.message)
        if isinstance(ours, DataError) and not isinstance(theirs, EngineError):
            return Found(Outcome.HANDED_OVER, ours.message)
        if isinstance(ours, EngineError) and isinstance(theirs, EngineError):
            return Found(Outcome.BOTH_FAIL, ours.message)
        if isinstance(ours, EngineError):
            return Found(Outcome.DIFFERENT, f"DuckDB fails: {ours.message}")
        if isinstance(theirs, EngineError):
            return Found(Outcome.SPARK_FAILS, theirs.message)
        differs = difference(theirs, ours, names=names)
        return Found(Outcome.EQUAL) if differs is None else Found(Outcome.DIFFERENT, f"Spark and DuckDB: {differs}")

    def writes(self, sql: str) -> bool:
        """Tell whether a statement of Spark's can be written for DuckDB. Raises SqlError."""
        try:
            check(sql, SPARK, catalog=self._catalog, limits=ParserLimits()).sql(self._duckdb.writer)
        except NoEquivalent:
            return False
        return True

    def spark_rows(self, sql: str, tables: Sequence[TableSource]) -> pa.Table:
        """Ask Spark alone, over other tables. Raises EngineError."""
        self._spark.use_tables(tables)
        rows = rows_of(self._spark, sql)
        if isinstance(rows, EngineError):
            raise rows
        return rows

    def ask_in_full(self, sql: str) -> Found:
        """Ask of both, and for all rows where the first differ: an order with ties does not say which come first.

        Names do not count: each engine names columns without one after its own fashion.
        """
        found = self.ask(sql, names=False)
        whole = without_limit(sql)
        if found.outcome is Outcome.DIFFERENT and whole is not None:
            return self.ask(whole, names=False)
        return found


def without_limit(sql: str) -> str | None:
    """Return a statement without the LIMIT at its end; None where it has none."""
    tree = SparkAsWritten().parse(sql)[0]
    if tree is None or tree.args.get("limit") is None:
        return None
    tree.set("limit", None)
    return tree.sql(dialect=SparkAsWritten)


def rows_of(engine: Engine, sql: str) -> pa.Table | EngineError:
    """Return the rows of a statement in the engine's own SQL, or its error."""
    try:
        with engine.execute(sql, query_id=uuid.uuid4().hex, lease=Lease(LEASE_BYTES), deadline_s=DEADLINE_S) as stream:
            return pa.Table.from_batches(stream, stream.schema)
    except EngineError as error:
        return error


@contextmanager
def both_engines(
    work_folder: Path,
    tables: Sequence[TableSource],
    *,
    threads: int = 1,
    heap_bytes: int = 1_024 * MIB,
) -> Iterator[BothEngines]:
    """Start both, and end them. threads: of one statement on DuckDB. heap_bytes: of Spark."""
    server = SparkConnectServer(ServerSettings(work_folder=work_folder, driver_memory_bytes=heap_bytes))
    duckdb = DuckDBEngine(workers=2, threads=threads)
    try:
        spark = SparkConnectEngine(server)
        try:
            yield BothEngines(duckdb, spark, tables)
        finally:
            spark.close()
    finally:
        duckdb.close()
        server.stop()
