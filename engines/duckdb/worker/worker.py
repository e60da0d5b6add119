"""One worker process: one statement at a time, in a DuckDB instance that can read its tables.

An instance is locked down before it sees anything that came from a client, the tables' definitions too: no files but
the tables', no extensions, no spilling, no change of settings but the memory limit and the threads, which are the
statement's lease, and whether Parquet files are read ahead. A cap on the process's address space stands above the
limit, because some of DuckDB's memory (long strings, IN lists, results) is outside it. Both are raised while a
statement runs, when the gateway says so.

Run as ``python -m engines.duckdb.worker.worker FD THREADS NICE``; FD is the worker's end of a socket pair, NICE
is by how much the gateway's process comes first. The process ends when the other end closes, so a killed gateway leaves
no worker behind.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import duckdb
import pyarrow as pa

from engines.duckdb import wire
from engines.duckdb.errors import translated
from engines.duckdb.worker.instance import Blank, Instance, Instances, KnownStatements, address_space_bytes
from engines.duckdb.worker.sampler import Sampler
from engines.errors import EngineError, StatementCancelled, StatementError, UnsupportedFeature
from sql.tables import Column, InvalidTable, Snapshot, TableSource

BATCH_ROWS = 65_536
_HUGEINT = pa.decimal128(38, 0)  # in Arrow, as is the largest DECIMAL without a fraction
ROWS_FROM_BELOW: dict[str, Callable[[Sequence[int]], int]] = {"UNION": sum, "CTE": itemgetter(-1)}
"""Operators whose rows a profile does not count; theirs are those of their children."""
HEADROOM_BYTES = 1 << 30  # above the lease: results, strings and code that DuckDB does not count


class Worker:
    """Serves one socket: a thread reads commands, the main thread runs them."""

    def __init__(self, connection: socket.socket, *, threads: int) -> None:
        self._frames = wire.Receiver(connection)
        self._sender = wire.Sender(connection)
        self._batches = wire.BatchSender(self._sender)
        self._sampler = Sampler(self._sender)
        self._threads = threads
        self._commands: queue.Queue[dict[str, Any]] = queue.Queue()
        self._parser = _empty_instance()
        self._names = KnownStatements[frozenset[str]]()  # of tables
        self._tables: dict[str, TableSource | InvalidTable] = {}  # by their names in small letters
        self._pinned: dict[str, TableSource | InvalidTable] = {}  # those with a snapshot
        self._instances = Instances(threads=threads)
        self._lock = threading.Lock()
        self._running: tuple[int, Instance] | None = None
        self._cancelled: int | None = None
        self._raised: tuple[int, int] | None = None  # a statement's number, and the bytes that it may have
        self._cap = AddressSpaceCap()
        Blank(threads=threads).connection.close()  # what the first one loads stays
        self._own_bytes = address_space_bytes()

    def serve(self) -> None:
        """Run commands until the other side goes away."""
        threading.Thread(target=self._read, name="commands", daemon=True).start()
        while True:
            if self._commands.empty():
                self._instances.prepare()
            command = self._commands.get()
            try:
                self._run(command)
            except EngineError as error:
                answer = {"kind": type(error).__name__, "message": error.message, "peak_bytes": error.peak_bytes}
                self._sender.send_json(wire.Frame.ERROR, answer)

    def _read(self) -> None:
        try:
            while True:
                _, payload = self._frames.receive()
                command = json.loads(bytes(payload))
                match command["op"]:
                    case "interrupt":
                        self._interrupt(command["number"])
                    case "raise":
                        self._raise(command["number"], command["memory_bytes"])
                    case _:
                        self._commands.put(command)
        except wire.PeerGone:
            os._exit(0)

    def _interrupt(self, number: int) -> None:
        with self._lock:
            self._cancelled = number
            if self._running is not None and self._running[0] == number:
                self._running[1].interrupt()

    def _raise(self, number: int, memory_bytes: int) -> None:
        """Let a statement take more: the one that runs, or the one that is about to."""
        with self._lock:
            if self._raised is None or self._raised[0] <= number:
                self._raised = number, memory_bytes
            if self._running is None or self._running[0] != number:
                return
            self._cap.raise_to(self._cap_bytes(memory_bytes))
            with suppress(duckdb.Error, MemoryError):  # too late: it has no memory left to hear it with
                self._running[1].raise_limit(memory_bytes)

    def _run(self, command: dict[str, Any]) -> None:
        with translated():
            match command["op"]:
                case "tables":
                    self._learn(command["changed"], command["gone"])
                    self._pin(command["pinned"], command["unpinned"])
                    self._sender.send_json(wire.Frame.REPLY, {})
                case "explain":
                    instance = self._instance_for(command["sql"], command["pinned"], for_plan=True)
                    plan = self._explain(instance, command["sql"], command["memory_bytes"])
                    self._sender.send_json(wire.Frame.REPLY, {"plan": plan})
                case "execute":
                    terms = command["memory_bytes"], command["threads"], command["watched"]
                    instance = self._instance_for(command["sql"], command["pinned"])
                    self._execute(instance, command["number"], command["sql"], *terms)
                case unknown:
                    raise ValueError(f"unknown command {unknown}")

    def _learn(self, changed: list[dict[str, Any]], gone: list[str]) -> None:
        """Take tables that are new or defined otherwise, and forget others: no instance is left that can read those."""
        tables = {str(table["name"]).lower(): _table(table) for table in changed}
        self._instances.forget({*tables, *gone})
        self._tables.update(tables)
        for name in gone:
            self._tables.pop(name, None)

    def _pin(self, pinned: list[dict[str, Any]], unpinned: list[str]) -> None:
        """Take tables with new snapshots; an instance stays where nothing else of them is new."""
        tables = {str(table["name"]).lower(): _table(table) for table in pinned}
        before = ((name, self._pinned.get(name)) for name in tables)
        self._instances.forget({name for name, table in before if not _is_another_snapshot(table, tables[name])})
        self._instances.forget(set(unpinned))
        for name in unpinned:
            del self._pinned[name]
        self._pinned.update(tables)

    def _instance_for(self, sql: str, pinned: Sequence[str] = (), *, for_plan: bool = False) -> Instance:
        """Return an instance with views of the tables that a statement names. Raises UnsupportedFeature.

        pinned: names of the tables that it reads by their snapshots.
        for_plan: nothing is read through the views.
        """
        sources = {
            name: _usable(name, self._pinned[name] if name in pinned else self._tables[name])
            for name in self._named(sql)
            if name in pinned or name in self._tables
        }
        if any(source.format == "orc" for source in sources.values()):
            self._load_orc_reader()
        instance = self._instances.reading(sources)
        instance.make_views(sources, for_plan=for_plan)
        return instance

    def _load_orc_reader(self) -> None:
        before_bytes = address_space_bytes()
        import engines.duckdb.worker.orc  # noqa: F401 - with it comes pandas, by which a worker would start half as fast

        self._own_bytes += address_space_bytes() - before_bytes  # no statement's, and once only

    def _named(self, sql: str) -> frozenset[str]:
        """Return the names of tables in one query, which is parsed and not bound. Raises UnsupportedFeature."""
        names = self._names.get(sql)
        if names is None:
            _require_one_query(sql)
            row = self._parser.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
            names = frozenset(_table_names(json.loads(row[0]) if row else None))
            self._names.keep(sql, names)
        return names

    def _explain(self, instance: Instance, sql: str, memory_bytes: int) -> str:
        instance.limit(memory_bytes)
        with self._cap.hold(self._cap_bytes(memory_bytes)):
            return instance.explain(sql)

    def _execute(
        self, instance: Instance, number: int, sql: str, memory_bytes: int, threads: int | None, watched: bool
    ) -> None:
        instance.use_threads(threads or self._threads)
        with self._lock:  # a raise that came before is heard here, a later one finds what runs
            if self._raised is not None and self._raised[0] == number:
                memory_bytes = max(memory_bytes, self._raised[1])
            instance.limit(memory_bytes)
            self._running = number, instance
        try:
            with (
                self._batches as batches,
                self._cap.hold(self._cap_bytes(memory_bytes)),
                self._sampler.watching(instance) if watched else nullcontext(),
            ):
                self._refuse_if_cancelled(number)
                begun_s = time.monotonic()
                reader = instance.query(sql).to_arrow_reader(BATCH_ROWS)
                schema = _with_bigint_sums(reader.schema, partial(instance.types, sql))
                self._sender.hold(wire.Frame.SCHEMA, schema.serialize())
                for batch in _batches(reader):
                    self._refuse_if_cancelled(number)
                    batches.send(_cast(batch, schema))
                reader.close()
                instance.ran(sql, time.monotonic() - begun_s)
            self._sender.send_json(wire.Frame.END, _actuals(instance.profile()))
        finally:
            with self._lock:
                self._running = None

    def _cap_bytes(self, memory_bytes: int) -> int:
        """Return the most that the process may hold while a statement runs: what it holds without it, and that."""
        return self._own_bytes + self._instances.held_bytes + memory_bytes + HEADROOM_BYTES

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


def _with_bigint_sums(schema: pa.Schema, types: Callable[[], Sequence[object]]) -> pa.Schema:
    """Return the schema with bigint in place of HUGEINT, which only sums of integers have and no other engine knows.

    types: DuckDB's own, which are asked for where Arrow's leave it open.
    """
    if _HUGEINT not in schema.types:
        return schema
    fields = [
        field.with_type(pa.int64()) if str(kind) == "HUGEINT" else field
        for field, kind in zip(schema, types(), strict=True)
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


def _table(message: dict[str, Any]) -> TableSource | InvalidTable:
    """Read a definition; one that cannot be is returned as the reason."""
    try:
        return TableSource(
            **{
                **message,
                "columns": tuple(Column(**column) for column in message["columns"]),
                "partition_columns": tuple(message["partition_columns"]),
                "snapshot": Snapshot(**message["snapshot"]) if message["snapshot"] is not None else None,
            }
        )
    except InvalidTable as error:
        return error


def _usable(name: str, source: TableSource | InvalidTable) -> TableSource:
    """Return a table's definition. Raises UnsupportedFeature for one that cannot be used: nobody else is harmed."""
    if isinstance(source, InvalidTable):
        raise UnsupportedFeature(f"it cannot use the definition of {name}: {source}.")
    return source


def _is_another_snapshot(before: TableSource | InvalidTable | None, now: TableSource | InvalidTable) -> bool:
    """Return True if only the snapshot of a table is another one, whose files lie in the same folder."""
    if not isinstance(before, TableSource) or not isinstance(now, TableSource) or before.folder != now.folder:
        return False
    return replace(before, snapshot=None) == replace(now, snapshot=None)


def _actuals(profile: str) -> dict[str, Any]:
    """Read the peak and every operator's rows from a profile: exact, as the instance runs one statement."""
    if not profile:
        return {"peak_bytes": None, "operators": []}
    measured = json.loads(profile)
    operators: list[dict[str, Any]] = []

    def visit(node: dict[str, Any], depth: int) -> int:
        operator = {"name": node["type"], "rows": int(node["intermediate_rows"]), "depth": depth}
        operators.append(operator)
        below = [visit(child, depth + 1) for child in node.get("children", ())]
        if below and node["type"] in ROWS_FROM_BELOW:
            operator["rows"] = ROWS_FROM_BELOW[node["type"]](below)
        return int(operator["rows"])

    for root in measured.get("operator", ()):
        for child in root.get("children", ()):
            visit(child, 0)
    return {"peak_bytes": measured.get("system", {}).get("peak_buffer_memory"), "operators": operators}


class AddressSpaceCap:
    """Holds the process's address space below a limit; only where it can be measured (Linux). Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limit_bytes: int | None = None

    @contextmanager
    def hold(self, limit_bytes: int) -> Iterator[None]:
        """Hold it, until it is raised or this ends."""
        if sys.platform != "linux":
            yield
            return
        with self._lock:
            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            self._set(limit_bytes, hard)
        try:
            yield
        finally:
            with self._lock:
                self._limit_bytes = None
                resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    def raise_to(self, limit_bytes: int) -> None:
        """Hold it to more, where it is held at all."""
        with self._lock:
            if self._limit_bytes is not None and limit_bytes > self._limit_bytes:
                self._set(limit_bytes, resource.getrlimit(resource.RLIMIT_AS)[1])

    def _set(self, limit_bytes: int, hard: int) -> None:
        self._limit_bytes = limit_bytes
        soft = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
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
    """Serve the socket whose file descriptor is the first argument; then threads of an instance, and niceness."""
    os.nice(int(sys.argv[3]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the gateway; it ends us
    connection = socket.socket(fileno=int(sys.argv[1]))
    try:
        Worker(connection, threads=int(sys.argv[2])).serve()
    except wire.PeerGone:
        os._exit(0)


if __name__ == "__main__":
    main()
