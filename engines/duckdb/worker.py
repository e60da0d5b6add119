"""One worker process: one DuckDB instance, one statement at a time.

The instance is locked down before it sees anything that came from a client, the tables' definitions too: no files but
the tables', no extensions, no spilling, no change of settings but the memory limit, which is the statement's lease. A
table's view is made when the first statement names it, so that one whose files cannot be read, or never answer, harms
its readers alone. A cap on the process's address space stands above it, because some of DuckDB's memory (long strings,
IN lists, results) is outside its limit.

Run as ``python -m engines.duckdb.worker FD``; FD is the worker's end of a socket pair. The process ends when
the other end closes, so a killed gateway leaves no worker behind.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from engines.duckdb import tables, wire
from engines.duckdb.errors import readable, translated
from engines.errors import EngineError, StatementCancelled, StatementError, UnsupportedFeature
from engines.protocol import Column, TableSource
from selector.quoting import duckdb_string

if TYPE_CHECKING:
    from engines.duckdb.orc import OrcFile

log = logging.getLogger(__name__)

BATCH_ROWS = 65_536
HEADROOM_BYTES = 1 << 30  # above the lease: results, strings and code that DuckDB does not count

_LOCK_DOWN = (
    "SET temp_directory=''",
    "SET autoinstall_known_extensions=false",
    "SET autoload_known_extensions=false",
    "SET allow_community_extensions=false",
    "SET allow_persistent_secrets=false",
    "SET python_enable_replacements=false",
    "SET enable_external_file_cache=false",  # it would count another statement's bytes into this one's peak
    "SET read_ahead_depth=1",  # row groups; without a bound, scans take what is free, and peaks cannot be told before
    "SET parquet_metadata_cache=true",
    "SET TimeZone='UTC'",
    "SET default_null_order='nulls_last'",
    "CALL enable_profiling(format='no_output')",
    "SET allowed_configs=['memory_limit']",
    "SET enable_external_access=false",
    "SET lock_configuration=true",
)


class Worker:
    """Serves one socket: a thread reads commands, the main thread runs them."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._commands: queue.Queue[dict[str, Any]] = queue.Queue()
        self._instance = duckdb.connect()
        self._parser = _empty_instance()
        self._tables: dict[str, TableSource] = {}
        self._views: set[str] = set()
        self._orc_files: dict[str, tuple[OrcFile, ...]] = {}
        self._lock = threading.Lock()
        self._running: int | None = None
        self._cancelled: int | None = None
        self._limit_bytes: int | None = None
        self._idle_bytes = _address_space_bytes()

    def serve(self) -> None:
        """Run commands until the other side goes away."""
        threading.Thread(target=self._read, name="commands", daemon=True).start()
        while True:
            command = self._commands.get()
            try:
                self._run(command)
            except EngineError as error:
                answer = {"kind": type(error).__name__, "message": error.message, "peak_bytes": error.peak_bytes}
                wire.send_json(self._socket, wire.Frame.ERROR, answer)

    def _read(self) -> None:
        try:
            while True:
                _, payload = wire.receive(self._socket)
                command = json.loads(bytes(payload))
                if command["op"] == "interrupt":
                    self._interrupt(command["number"])
                else:
                    self._commands.put(command)
        except wire.PeerGone:
            os._exit(0)

    def _interrupt(self, number: int) -> None:
        with self._lock:
            self._cancelled = number
            if self._running == number:
                self._instance.interrupt()

    def _run(self, command: dict[str, Any]) -> None:
        with translated():
            match command["op"]:
                case "tables":
                    self._open_instance(command["threads"], list(map(_table, command["tables"])))
                    wire.send_json(self._socket, wire.Frame.REPLY, {})
                case "explain":
                    self._make_views(command["sql"])
                    plan = self._explain(command["sql"], command["memory_bytes"])
                    wire.send_json(self._socket, wire.Frame.REPLY, {"plan": plan})
                case "execute":
                    self._make_views(command["sql"])
                    self._execute(command["number"], command["sql"], command["memory_bytes"])
                case unknown:
                    raise ValueError(f"unknown command {unknown}")

    def _open_instance(self, threads: int, sources: list[TableSource]) -> None:
        self._instance.close()
        self._instance = duckdb.connect()
        self._limit_bytes = None
        self._instance.execute(f"SET threads={int(threads)}")
        locations = ", ".join(duckdb_string(source.location) for source in sources)
        self._instance.execute(f"SET allowed_paths=[{locations}]")
        self._instance.execute(f"SET allowed_directories=[{locations}]")  # what is no folder yet may become one
        for statement in _LOCK_DOWN:
            self._instance.execute(statement)
        self._tables = {source.name.lower(): source for source in sources}
        self._views = set()
        self._orc_files = {}

    def _make_views(self, sql: str) -> None:
        """Make the views of the tables that a statement names. One without files may get some later."""
        _require_one_query(sql)
        for name in sorted(self._named(sql)):
            source = self._tables.get(name)
            if source is None or name in self._views:
                continue
            if source.format == "orc":
                self._make_orc_view(source)
                continue
            try:
                self._make_view(tables.view(source))
            except duckdb.Error as error:
                log.warning("table %s has no view: %s", source.name, readable(str(error)))
            else:
                self._views.add(name)

    def _named(self, sql: str) -> set[str]:
        """Return the names of tables in a statement, which is parsed and not bound."""
        found = self._parser.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
        return set(_table_names(json.loads(found[0]) if found else None))

    def _make_orc_view(self, source: TableSource) -> None:
        """Make the view of a table that Arrow reads, if its files are not those of the last time."""
        before_bytes = _address_space_bytes()
        from engines.duckdb import orc  # with it comes pandas, by which a worker would start half as fast

        self._idle_bytes += _address_space_bytes() - before_bytes  # no statement's, and once only
        files = orc.files_of(source)
        if files == self._orc_files.get(source.name):
            return
        dataset = f"{source.name}\nas Arrow"  # no table's name has two lines
        self._instance.register(dataset, orc.dataset_of(source, files))
        self._make_view(tables.view_of_dataset(source, dataset))
        self._orc_files[source.name] = files

    def _make_view(self, sql: str) -> None:
        """Run the one statement that makes a view, and nothing else that may be in it."""
        statements = self._instance.extract_statements(sql)
        if [statement.type for statement in statements] != [duckdb.StatementType.CREATE]:
            raise UnsupportedFeature("a table's definition is not one view in DuckDB's dialect.")
        self._instance.execute(statements[0])

    def _explain(self, sql: str, memory_bytes: int) -> str:
        self._limit(memory_bytes)
        with _address_space_cap(self._idle_bytes + memory_bytes + HEADROOM_BYTES):
            found = self._instance.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchone()
        return str(found[1]) if found else ""

    def _execute(self, number: int, sql: str, memory_bytes: int) -> None:
        with self._lock:
            self._running = number
        try:
            self._limit(memory_bytes)
            with (
                wire.BatchSender(self._socket) as sender,
                _address_space_cap(self._idle_bytes + memory_bytes + HEADROOM_BYTES),
            ):
                self._refuse_if_cancelled(number)
                relation = self._instance.sql(sql)
                reader = relation.to_arrow_reader(BATCH_ROWS)
                schema = _with_bigint_sums(reader.schema, relation.types)
                wire.send(self._socket, wire.Frame.SCHEMA, schema.serialize())
                for batch in _batches(reader):
                    self._refuse_if_cancelled(number)
                    sender.send(_cast(batch, schema))
                reader.close()
            wire.send_json(self._socket, wire.Frame.END, _actuals(self._instance.get_profiling_information()))
        finally:
            with self._lock:
                self._running = None

    def _limit(self, memory_bytes: int) -> None:
        """Set DuckDB's limit, which takes milliseconds, only where it is another one."""
        if memory_bytes != self._limit_bytes:
            self._instance.execute(f"SET memory_limit='{int(memory_bytes)}B'")
            self._limit_bytes = memory_bytes

    def _refuse_if_cancelled(self, number: int) -> None:
        if self._cancelled == number:
            raise StatementCancelled("The statement was cancelled.")


def _empty_instance() -> duckdb.DuckDBPyConnection:
    """Return an instance that says which tables a statement names: it knows none, and reads no file."""
    instance = duckdb.connect()
    for setting in ("threads=1", "enable_external_access=false", "lock_configuration=true"):
        instance.execute(f"SET {setting}")
    return instance


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        if batch.num_rows:
            yield batch


def _require_one_query(sql: str) -> None:
    """Refuse anything but a single SELECT: the last of several locks on the same door."""
    statements = duckdb.extract_statements(sql)
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise UnsupportedFeature("it is not one query in DuckDB's dialect.")


def _with_bigint_sums(schema: pa.Schema, types: Sequence[object]) -> pa.Schema:
    """Return the schema with bigint in place of HUGEINT, which only sums of integers have and no other engine knows."""
    fields = [
        field.with_type(pa.int64()) if str(kind) == "HUGEINT" else field
        for field, kind in zip(schema, types, strict=True)
    ]
    return pa.schema(fields)


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    try:
        columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    except pa.ArrowInvalid as error:
        raise StatementError("A sum of integers is larger than a bigint.") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _table(message: dict[str, Any]) -> TableSource:
    columns = tuple(Column(**column) for column in message["columns"])
    return TableSource(**{**message, "columns": columns, "partition_columns": tuple(message["partition_columns"])})


def _actuals(profile: str) -> dict[str, Any]:
    """Read the peak and every operator's rows from a profile: exact, as the instance runs one statement."""
    if not profile:
        return {"peak_bytes": None, "operators": []}
    measured = json.loads(profile)
    operators: list[dict[str, Any]] = []

    def visit(node: dict[str, Any], depth: int) -> None:
        operators.append({"name": node["type"], "rows": int(node["intermediate_rows"]), "depth": depth})
        for child in node.get("children", ()):
            visit(child, depth + 1)

    for root in measured.get("operator", ()):
        for child in root.get("children", ()):
            visit(child, 0)
    return {"peak_bytes": measured.get("system", {}).get("peak_buffer_memory"), "operators": operators}


def _address_space_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()


@contextmanager
def _address_space_cap(limit_bytes: int) -> Iterator[None]:
    """Hold the process's address space below a limit; only where it can be measured (Linux)."""
    if sys.platform != "linux":
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _table_names(tree: object) -> Iterator[str]:
    """Yield the names of tables, in small letters, from DuckDB's own syntax tree."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if node.get("type") == "BASE_TABLE":
                yield str(node["table_name"]).lower()
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def main() -> None:
    """Serve the socket whose file descriptor is the only argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the gateway; it ends us
    connection = socket.socket(fileno=int(sys.argv[1]))
    try:
        Worker(connection).serve()
    except wire.PeerGone:
        os._exit(0)


if __name__ == "__main__":
    main()
