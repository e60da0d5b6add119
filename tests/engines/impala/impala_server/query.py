"""One statement: parsed as Impala would, and run by a DuckDB of its own within MEM_LIMIT."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tests.engines.impala.impala_server import plan, texts
from tests.engines.impala.impala_server.warehouse import AnalysisError, Table, Warehouse, quoted

BATCH_ROWS = 8_192
NO_LIMIT_BYTES = 1 << 30
_SIZES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


class QueryFailed(Exception):
    """A statement ended with Impala's text."""


def memory_limit_bytes(options: Mapping[str, str]) -> int:
    """Read MEM_LIMIT; 0 and nothing mean that there is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", options.get("MEM_LIMIT", "0").strip().lower())
    if found is None or found.group(2) not in _SIZES:
        raise QueryFailed(f"Failed to parse query option 'MEM_LIMIT': {options['MEM_LIMIT']}")
    return round(float(found.group(1)) * _SIZES[found.group(2)]) or NO_LIMIT_BYTES


@dataclass(slots=True, eq=False)
class Query:
    """A SELECT over tables of a warehouse. peak_bytes and root are known after the last batch."""

    id: str
    sql: str
    database: str
    options: Mapping[str, str]
    warehouse: Warehouse
    tables: list[Table] = field(default_factory=list)
    peak_bytes: int | None = None
    root: plan.Node | None = None
    _duckdb: duckdb.DuckDBPyConnection | None = None
    _text: str = ""

    def analyze(self) -> None:
        """Parse and resolve. Raises QueryFailed as Impala's front end would."""
        try:
            tree = sqlglot.parse_one(self.sql, read="hive")
        except SqlglotError:
            raise QueryFailed(texts.syntax_error(self.sql)) from None
        if not isinstance(tree, exp.Query):
            raise QueryFailed(texts.syntax_error(self.sql))
        expressions = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        found: dict[str, Table] = {}
        for node in tree.find_all(exp.Table):
            if node.name.lower() in expressions and not node.db:
                continue
            try:
                table = self.warehouse.find(node.db or self.database, node.name)
            except AnalysisError as error:
                raise QueryFailed(str(error)) from None
            found[table.name] = table
            node.set("this", exp.to_identifier(table.name, quoted=True))
            node.set("db", None)
        self.tables = list(found.values())
        self._text = tree.sql(dialect="duckdb")
        self._open()
        self.explain()  # what cannot be bound fails here

    def explain(self) -> list[str]:
        """Return the plan's lines."""
        with _in_impalas_words(self):
            found = self._connection.execute(f"EXPLAIN (FORMAT JSON) {self._text}").fetchone()
        root = plan.tree_of(plan.explained(found[1] if found else "[{}]"), self.tables, self.database)
        return plan.explain_lines(root, self.sql)

    def run(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Start; the batches come as they are read."""
        with _in_impalas_words(self):
            relation = self._connection.sql(self._text)
            kinds = [str(kind) for kind in relation.types]
            reader = relation.to_arrow_reader(BATCH_ROWS)
        schema = pa.schema(
            [
                pa.field(f.name, pa.int64() if kind == "HUGEINT" else f.type)
                for f, kind in zip(reader.schema, kinds, strict=True)
            ]
        )
        return schema, self._batches(reader, schema)

    def interrupt(self) -> None:
        """Stop whatever runs, from another thread."""
        if self._duckdb is not None:
            self._duckdb.interrupt()

    def close(self) -> None:
        """Give the memory back."""
        opened, self._duckdb = self._duckdb, None
        if opened is not None:
            opened.close()

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        if self._duckdb is None:
            raise QueryFailed(texts.CANCELLED)
        return self._duckdb

    def _open(self) -> None:
        limit = memory_limit_bytes(self.options)
        self._duckdb = duckdb.connect(config={"threads": max(1, int(self.options.get("MT_DOP", "0")) % 3)})
        by_name = self.options.get("PARQUET_FALLBACK_SCHEMA_RESOLUTION", "POSITION").upper() in ("NAME", "1")
        for setting in ("SET TimeZone='UTC'", "SET temp_directory=''", f"SET memory_limit='{limit}B'"):
            self._duckdb.execute(setting)
        self._duckdb.execute("CALL enable_profiling(format='no_output')")
        for table in self.tables:
            for name, rows in table.orc_rows().items():
                self._duckdb.register(name, rows)
            with _in_impalas_words(self):
                view = f"CREATE VIEW {quoted(table.name)} AS {table.select(by_name=by_name)}"
                self._duckdb.execute(view)

    def _batches(self, reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with _in_impalas_words(self):
            for batch in reader:
                if batch.num_rows:
                    columns = [column.cast(f.type) for column, f in zip(batch.columns, schema, strict=True)]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)
            reader.close()
        self._measure()

    def _measure(self) -> None:
        measured, self.peak_bytes = plan.profiled(self._connection.get_profiling_information())
        self.root = plan.tree_of(measured, self.tables, self.database)


class _in_impalas_words:
    """Turn DuckDB's errors into Impala's texts."""

    def __init__(self, query: Query) -> None:
        self._query = query

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        query = self._query
        if error is None or isinstance(error, QueryFailed | GeneratorExit):
            return
        said = str(error)
        if isinstance(error, duckdb.InterruptException) or "INTERRUPT" in said or "Interrupt" in said:
            raise QueryFailed(texts.CANCELLED) from error
        if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory Error" in said:
            limit = memory_limit_bytes(query.options)
            query.peak_bytes = limit
            raise QueryFailed(texts.memory_exceeded(query.id, limit, limit)) from error
        if isinstance(error, duckdb.Error):
            raise QueryFailed(texts.of_duckdb(error)) from error
        if isinstance(error, pa.ArrowException | OSError):
            raise QueryFailed(f"UDF ERROR: {said.splitlines()[0]}") from error
