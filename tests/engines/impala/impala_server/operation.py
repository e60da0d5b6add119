"""An operation of a session: a statement in a thread of its own, and its rows as HiveServer2 sends them."""

from __future__ import annotations

import json
import queue
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from impala._thrift_gen.TCLIService import ttypes as t  # type: ignore[import-untyped]

from tests.engines.impala.impala_server import plan, texts
from tests.engines.impala.impala_server.query import Query, QueryFailed

WAITING_BATCHES = 4
_TYPES: dict[str, tuple[int, str, type]] = {
    "bool": (t.TTypeId.BOOLEAN_TYPE, "boolVal", t.TBoolColumn),
    "int8": (t.TTypeId.TINYINT_TYPE, "byteVal", t.TByteColumn),
    "int16": (t.TTypeId.SMALLINT_TYPE, "i16Val", t.TI16Column),
    "int32": (t.TTypeId.INT_TYPE, "i32Val", t.TI32Column),
    "int64": (t.TTypeId.BIGINT_TYPE, "i64Val", t.TI64Column),
    "float": (t.TTypeId.FLOAT_TYPE, "doubleVal", t.TDoubleColumn),
    "double": (t.TTypeId.DOUBLE_TYPE, "doubleVal", t.TDoubleColumn),
    "date32[day]": (t.TTypeId.DATE_TYPE, "stringVal", t.TStringColumn),
    "binary": (t.TTypeId.BINARY_TYPE, "binaryVal", t.TBinaryColumn),
}
_EMPTY = {"boolVal": False, "doubleVal": 0.0, "stringVal": b"", "binaryVal": b""}


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong on demand: a text at a phase of the statements that contain a part.

    phase: ``plan`` (ExecuteStatement refuses), ``run`` (the operation fails), ``fetch`` (after the first rows).
    """

    part: str
    text: str
    phase: str = "run"


class Operation:
    """One statement. rows: of an answer that is known at once, instead of a query."""

    def __init__(
        self,
        query: Query | None,
        sql: str,
        options: Mapping[str, str],
        *,
        rows: pa.Table | None = None,
        fault: Fault | None = None,
    ) -> None:
        self.guid = uuid.uuid4().bytes
        self.handle = t.TOperationHandle(
            t.THandleIdentifier(self.guid, uuid.uuid4().bytes),
            t.TOperationType.EXECUTE_STATEMENT,
            rows is None or bool(rows.num_columns),
        )
        self.sql = sql
        self.options = options
        self.state = t.TOperationState.RUNNING_STATE
        self.error = ""
        self.schema: pa.Schema | None = None
        self.query = query
        self._fault = fault
        self._lock = threading.Lock()
        self._waiting: queue.Queue[pa.RecordBatch | None] = queue.Queue(WAITING_BATCHES)
        self._left: pa.RecordBatch | None = None
        self._sent = 0
        self._ended = threading.Event()
        self._described = threading.Event()
        self._done = rows is not None
        self._timer: threading.Timer | None = None
        if rows is not None:
            self.schema = rows.schema
            self._described.set()
            combined = rows.combine_chunks().to_batches()
            self._left = combined[0] if combined else None
            self.state = t.TOperationState.FINISHED_STATE
        else:
            limit_s = int(options.get("EXEC_TIME_LIMIT_S", "0"))
            if limit_s:
                self._timer = threading.Timer(limit_s, self.stop, [texts.time_limit(self.id, limit_s)])
                self._timer.daemon = True
                self._timer.start()
            threading.Thread(target=self._run, name="impala-query", daemon=True).start()

    @property
    def id(self) -> str:
        """The query id as Impala writes it."""
        return f"{self.guid[7::-1].hex()}:{self.guid[:7:-1].hex()}"

    def wait_for_schema(self) -> pa.Schema:
        """Return names and types as soon as DuckDB has told them. Raises QueryFailed."""
        self._described.wait()
        if self.schema is None:
            raise QueryFailed(self.error or texts.CANCELLED)
        return self.schema

    def stop(self, why: str) -> None:
        """End the statement, once."""
        with self._lock:
            if self._ended.is_set():
                return
            self._fail(why)
        if self.query is not None:
            self.query.interrupt()

    def close(self) -> None:
        """Forget the statement."""
        self.stop(texts.CANCELLED)
        if self._timer is not None:
            self._timer.cancel()

    def fetch(self, rows: int) -> tuple[t.TRowSet, bool]:
        """Return up to so many rows, or none where none come in time. Raises QueryFailed."""
        give_up_s = time.monotonic() + int(self.options.get("FETCH_ROWS_TIMEOUT_MS", "10000")) / 1000.0
        while self._left is None and not self._done:
            if self.error:
                raise QueryFailed(self.error)
            try:
                batch = self._waiting.get(timeout=min(0.05, max(0.001, give_up_s - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= give_up_s:
                    break
                continue
            self._left, self._done = batch, batch is None
        if self.error:
            raise QueryFailed(self.error)
        batch = self._left.slice(0, rows) if self._left is not None else None
        if batch is not None and self._left is not None:
            rest = self._left.slice(batch.num_rows)
            self._left = rest if rest.num_rows else None
        assert self.schema is not None
        sent = row_set(batch, self.schema, self._sent)
        self._sent += batch.num_rows if batch is not None else 0
        return sent, not (self._done and self._left is None)

    def profile(self) -> str:
        """Return the text of the profile."""
        state = "EXCEPTION" if self.error else "FINISHED"
        peak = self.query.peak_bytes if self.query else None
        return plan.profile_text(self.id, self.sql, state, self.options, peak)

    def _run(self) -> None:
        assert self.query is not None
        try:
            if self._fault is not None and self._fault.phase == "run":
                raise QueryFailed(self._fault.text)
            schema, batches = self.query.run()
            self.schema = pa.schema([pa.field(field.name.lower(), field.type) for field in schema])
            self._described.set()
            first = next(batches, None)
            self._rows_are_there(first)
            if self._fault is not None and self._fault.phase == "fetch":
                raise QueryFailed(self._fault.text)
            for batch in batches:
                self._put(batch)
            self._put(None)
        except QueryFailed as error:
            with self._lock:
                if not self._ended.is_set():
                    self._fail(str(error))
        finally:
            self._ended.set()
            self._described.set()
            self.query.close()

    def _rows_are_there(self, first: pa.RecordBatch | None) -> None:
        if first is not None:
            self._put(first)
        with self._lock:
            if not self._ended.is_set():
                self.state = t.TOperationState.FINISHED_STATE

    def _put(self, batch: pa.RecordBatch | None) -> None:
        while not self._ended.is_set():
            try:
                self._waiting.put(batch, timeout=0.1)
            except queue.Full:
                continue
            return
        raise QueryFailed(texts.CANCELLED)

    def _fail(self, text: str) -> None:
        self.error = text
        self.state = t.TOperationState.ERROR_STATE
        self._ended.set()


def table_schema(schema: pa.Schema) -> t.TTableSchema:
    """Return a schema as GetResultSetMetadata describes it."""
    columns = []
    for place, field in enumerate(schema):
        kind, _, _ = _sent_as(field.type)
        qualifiers = None
        if pa.types.is_decimal(field.type):
            values = {
                "precision": t.TTypeQualifierValue(i32Value=field.type.precision),
                "scale": t.TTypeQualifierValue(i32Value=field.type.scale),
            }
            qualifiers = t.TTypeQualifiers(values)
        entry = t.TTypeEntry(t.TPrimitiveTypeEntry(kind, qualifiers))
        columns.append(t.TColumnDesc(field.name, t.TTypeDesc([entry]), place + 1, ""))
    return t.TTableSchema(columns)


def row_set(batch: pa.RecordBatch | None, schema: pa.Schema, start: int) -> t.TRowSet:
    """Return rows as columns of the protocol, with a bit per null."""
    arrays: Sequence[pa.Array] = batch.columns if batch is not None else [pa.array([], field.type) for field in schema]
    return t.TRowSet(start, [], [_column(array) for array in arrays])


def _sent_as(kind: pa.DataType) -> tuple[int, str, type]:
    if pa.types.is_timestamp(kind):
        return t.TTypeId.TIMESTAMP_TYPE, "stringVal", t.TStringColumn
    if pa.types.is_decimal(kind):
        return t.TTypeId.DECIMAL_TYPE, "stringVal", t.TStringColumn
    return _TYPES.get(str(kind), (t.TTypeId.STRING_TYPE, "stringVal", t.TStringColumn))


def _column(array: pa.Array) -> t.TColumn:
    _, member, column = _sent_as(array.type)
    nulls = np.packbits(array.is_null().to_numpy(zero_copy_only=False), bitorder="little").tobytes()
    if member == "stringVal":
        values = _as_text(array).cast(pa.binary()).fill_null(b"").to_pylist()
    else:
        values = array.fill_null(pa.scalar(_EMPTY.get(member, 0), array.type)).to_pylist()
    return t.TColumn(**{member: column(values, nulls)})


def _as_json(value: pa.Scalar) -> str | None:
    plain = value.as_py()
    if plain is not None and pa.types.is_map(value.type):
        plain = dict(plain)
    return None if plain is None else json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _as_text(array: pa.Array) -> pa.Array:
    """Write values as Impala does: a moment's fraction has nine digits, or none."""
    if pa.types.is_nested(array.type):
        return pa.array([_as_json(value) for value in array], pa.string())
    if not pa.types.is_timestamp(array.type):
        return array.cast(pa.string())
    written = pc.strftime(array.cast(pa.timestamp("us")), format="%Y-%m-%d %H:%M:%S")
    written = pc.replace_substring_regex(written, r"\.000000$", "")
    return pc.replace_substring_regex(written, r"(\.\d{6})$", r"\1000")
