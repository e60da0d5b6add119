"""Spark Connect as far as the adapter needs it: sessions and plans, in the terms of its wire format.

A statement carries its tables: each plan names the files of the tables that it reads, Spark lists them when
it runs the plan, and nothing has to be registered again after a restart or when files change.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import re
import time
import uuid
import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from engines.protocol import TableFiles, TableSource
from engines.spark_sql.session_settings import CAREFUL_SETTINGS, SESSION_SETTINGS
from selector.quoting import spark_name

with warnings.catch_warnings():
    # pyspark 4.3 says at import that it was not tested with pandas 3; no pandas is used here.
    warnings.simplefilter("ignore", FutureWarning)
    import pyspark.sql.connect.proto as pb2
    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.client.core import DefaultChannelBuilder, RpcDeadlines
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator
    from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState
    from pyspark.sql.connect.proto import Plan as Plan
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType, YearMonthIntervalType

USER = "fusion-sql-gateway"

SESSION_CONFIGURATION: Mapping[str, str] = {
    **SESSION_SETTINGS,
    # A cached plan would not see files that were added since.
    "spark.connect.session.planCache.enabled": "false",
    "spark.sql.connect.serverStacktrace.enabled": "false",
    "spark.sql.pyspark.jvmStacktrace.enabled": "false",
}

_CALL_TIMEOUT_S = 60.0
_INTERRUPT_TIMEOUT_S = 5.0
_REPLAY_LIMIT_S = 10.0
_RELEASES_AT_ONCE = 4
_SILENT = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE})
_SILENT_PAUSE_S = 1.0
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# pyspark makes a pool for each statement, to give its result back, and the pool's thread stays until it is collected.
ExecutePlanResponseReattachableIterator._release_thread_pool = ThreadPoolExecutor(
    _RELEASES_AT_ONCE, thread_name_prefix="spark-release"
)

# These print the statement, literals included, for each error that the client meets.
for _logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    logging.getLogger(_logger).disabled = True


class _FewRetriesState(RetryPolicyState):  # type: ignore[misc]
    """Stops asking for retries once they are spent, where pyspark's own would warn and then stop."""

    def __init__(self, policy: FewRetries) -> None:
        super().__init__(policy)
        self._left: int = policy.max_retries

    def can_retry(self, exception: BaseException) -> bool:
        return self._left > 0 and super().can_retry(exception)

    def next_attempt(self, exception: BaseException | None = None) -> int | None:
        self._left -= 1
        wait_ms: int | None = super().next_attempt(exception)
        return wait_ms


class FewRetries(DefaultPolicy):  # type: ignore[misc]
    """Bridges a hiccup of about two seconds. pyspark's default hides a dead server for ten minutes."""

    def __init__(self) -> None:
        super().__init__(max_retries=3, initial_backoff=200, max_backoff=1000)

    def to_state(self) -> _FewRetriesState:
        """Return the countdown for one call."""
        return _FewRetriesState(self)


class ConnectSession:
    """One session on the server, for one statement at a time. Driver exceptions pass through."""

    def __init__(self, address: str, *, careful: bool = False) -> None:
        self.address = address
        self.careful = careful
        self.idle_since_s = time.monotonic()
        self._session_id = str(uuid.uuid4())
        self._client = _connect(address, self._session_id)
        self._configured = False

    @property
    def is_closed(self) -> bool:
        """Whether the connection was closed, by us or because the server is another one now."""
        return bool(self._client.is_closed)

    def configure(self) -> None:
        """Give the session its settings, once; to be called before anything else."""
        if not self._configured:
            told = {**SESSION_CONFIGURATION, **(CAREFUL_SETTINGS if self.careful else {})}
            pairs = [pb2.KeyValue(key=key, value=value) for key, value in told.items()]
            self._client.config(pb2.ConfigRequest.Operation(set=pb2.ConfigRequest.Set(pairs=pairs)))
            self._configured = True

    def run(self, plan: Plan, tag: str) -> tuple[pa.Schema, Generator[pa.Table, None, None]]:
        """Send a plan; return its schema and its batches, as one-batch tables, while they arrive.

        Closing the iterator ends the statement on the server. tag: the name to interrupt it by. Raises MonthsInResult.
        """
        answers = self._client.to_table_as_iterator(plan, {})
        self._client.add_tag(tag)  # of this thread, read when the first answer is asked for
        try:
            struct = next(answers)
        finally:
            self._client.remove_tag(tag)
        try:
            return _arrow_schema(struct), answers
        except (PySparkException, MonthsInResult):
            answers.close()
            raise

    def schema(self, plan: Plan) -> pa.Schema:
        """Return the schema of a plan without running it. Not for commands: Spark would run those.

        Raises MonthsInResult.
        """
        return _arrow_schema(self._client.schema(plan))

    def write(
        self,
        plan: Plan,
        names: Sequence[str],
        folder: str,
        tag: str,
        *,
        format: str = "parquet",
        options: Mapping[str, str] = {},
        partition_columns: Sequence[str] = (),
    ) -> None:
        """Write a plan's rows under these column names, into a folder that does not exist yet."""
        command = pb2.Command()
        write = command.write_operation
        write.input.to_df.input.CopyFrom(plan.root)
        write.input.to_df.column_names.extend(names)
        write.source = format
        write.partitioning_columns.extend(partition_columns)
        write.path = folder
        write.mode = pb2.WriteOperation.SAVE_MODE_ERROR_IF_EXISTS
        for key, value in options.items():
            write.options[key] = value
        self._client.add_tag(tag)
        try:
            self._client.execute_command(command)
        finally:
            self._client.remove_tag(tag)

    def name_table(self, name: str, source: TableSource) -> None:
        """Let the session's statements read a table by a name, for a server that plans bring no tables to."""
        command = pb2.Command()
        view = command.create_dataframe_view
        view.input.project.CopyFrom(_table(source).subquery_alias.input.project)
        view.name = name
        view.replace = True
        self._client.execute_command(command)

    def interrupt(self, tag: str) -> bool:
        """Stop the statement with this tag; False if the server does not know it."""
        return bool(self._client.interrupt_tag(tag))

    def close(self) -> None:
        """Give the session back. A server that is gone does not matter."""
        if not self._client.is_closed:
            try:
                self._client.release_session()
            except PySparkException:
                pass  # it forgets idle sessions by itself
            self._client.close()

    def break_off(self) -> None:
        """Close the connection under whatever call is waiting on it."""
        self._client._channel.close()  # the client would first wait for the calls that give results back
        self._client.close()

    def end_from_outside(self, give_up_after_s: float) -> None:
        """End the session, and with it its statement, over new connections once the server answers again."""
        give_up_s = time.monotonic() + give_up_after_s
        while time.monotonic() < give_up_s:
            client = _connect(self.address, self._session_id)
            try:
                client.release_session()
            except SparkConnectGrpcException as error:
                # A server that does not answer is the one or the other, by how far its system gets without it.
                if error.getGrpcStatusCode() not in _SILENT:
                    return  # it has forgotten the session
            else:
                return
            finally:
                client.close()
            time.sleep(_SILENT_PAUSE_S)


def _connect(address: str, session_id: str) -> SparkConnectClient:
    channel = DefaultChannelBuilder(address)
    channel.set(DefaultChannelBuilder.PARAM_SESSION_ID, session_id)
    client = SparkConnectClient(
        channel,
        user_id=USER,
        rpc_deadlines=RpcDeadlines(
            analyze_plan=_CALL_TIMEOUT_S,
            config=_CALL_TIMEOUT_S,
            interrupt=_INTERRUPT_TIMEOUT_S,
            release_session=_INTERRUPT_TIMEOUT_S,
        ),
        max_retry_exception_elapsed_time=_REPLAY_LIMIT_S,
    )
    atexit.unregister(client._on_exit)  # it would keep every client ever made
    client.set_retry_policies([FewRetries()])
    return client


def statement_plan(sql: str, tables: Iterable[TableSource], read: Iterable[TableFiles] = ()) -> Plan:
    """Return the plan of a statement together with those of the tables that its text can mean.

    read: tables of which it reads only some files; they come before others of the same name.
    """
    plan = Plan()
    text = sql.casefold()
    known: dict[str, TableSource | TableFiles] = {table.name: table for table in tables}
    known |= {each.source.name: each for each in read}
    references = [_table(table) for name, table in known.items() if spark_name(name)[1:-1].casefold() in text]
    if references:
        plan.root.with_relations.root.sql.query = sql
        plan.root.with_relations.references.extend(references)
    else:
        plan.root.sql.query = sql
    return plan


def _table(table: TableSource | TableFiles) -> pb2.Relation:
    source = table.source if isinstance(table, TableFiles) else table
    relation = pb2.Relation()
    plain = _PLAIN_NAME.fullmatch(source.name)
    relation.subquery_alias.alias = source.name if plain else spark_name(source.name)
    projection = relation.subquery_alias.input.project
    for column in source.columns:  # Spark would put the partition columns last
        projection.expressions.add().unresolved_attribute.unparsed_identifier = spark_name(column.name)
    schema = ", ".join(f"{spark_name(column.name)} {column.type.spark()}" for column in source.columns)
    if isinstance(table, TableFiles):
        _add_columns(table, projection)
        if not table.files:
            projection.input.local_relation.schema = schema
            return relation
    files = projection.input.read.data_source
    files.format = source.format
    files.schema = schema
    for key, value in source.options.items():
        files.options[key] = value
    if isinstance(table, TableFiles):
        files.options["basePath"] = source.location  # from which on folders are partitions
        files.options["globPaths"] = "false"
        files.paths.extend(table.files)
    else:
        files.paths.append(source.location)
    return relation


_COUNTED_MONTHS = {
    (YearMonthIntervalType.YEAR, YearMonthIntervalType.YEAR): "CAST({0} AS INT) * 12",
    (YearMonthIntervalType.YEAR, YearMonthIntervalType.MONTH): "extract(YEAR FROM {0}) * 12 + extract(MONTH FROM {0})",
    (YearMonthIntervalType.MONTH, YearMonthIntervalType.MONTH): "CAST({0} AS INT)",
}


class MonthsInResult(Exception):
    """Columns of a result are intervals of months, for which Arrow's Python has no type.

    names: of all columns. months: by the places of those, what counts the months of one, with braces for its name.
    """

    def __init__(self, names: Sequence[str], months: Mapping[int, str]) -> None:
        super().__init__("columns of a result are intervals of months")
        self.names = tuple(names)
        self.months = months


def count_months(plan: Plan, found: MonthsInResult) -> Plan:
    """Return a plan with the same columns, where intervals of months are their numbers of months."""
    places = [f"c{place}" for place in range(len(found.names))]
    counted = Plan()
    project = counted.root.to_df.input.project
    project.input.to_df.input.CopyFrom(plan.root)
    project.input.to_df.column_names.extend(places)
    for number, place in enumerate(places):
        alias = project.expressions.add().alias
        alias.name.append(place)
        if number in found.months:
            alias.expr.expression_string.expression = found.months[number].format(place)
        else:
            alias.expr.unresolved_attribute.unparsed_identifier = place
    counted.root.to_df.column_names.extend(found.names)
    return counted


def as_months(
    found: MonthsInResult, schema: pa.Schema, tables: Generator[pa.Table, None, None]
) -> tuple[pa.Schema, Generator[pa.Table, None, None]]:
    """Make intervals of numbers of months again; the other columns stay as they are."""
    for place in found.months:
        schema = schema.set(place, schema.field(place).with_type(pa.month_day_nano_interval()))

    def made() -> Generator[pa.Table, None, None]:
        with contextlib.closing(tables):
            for table in tables:
                columns = [
                    _intervals(column) if place in found.months else column
                    for place, column in enumerate(table.columns)
                ]
                yield pa.Table.from_arrays(columns, schema=schema)

    return schema, made()


def _intervals(months: pa.ChunkedArray) -> pa.Array:
    values = [None if count is None else pa.MonthDayNano([count, 0, 0]) for count in months.to_pylist()]
    return pa.array(values, pa.month_day_nano_interval())


def _add_columns(table: TableFiles, projection: pb2.Project) -> None:
    if table.file_column is not None:
        file = projection.expressions.add().alias
        file.name.append(table.file_column)
        if table.files:
            file.expr.unresolved_attribute.unparsed_identifier = "_metadata.file_path"
        else:
            file.expr.literal.string = ""
    if table.row_column is not None:
        row = projection.expressions.add().alias
        row.name.append(table.row_column)
        row.expr.unresolved_function.function_name = "monotonically_increasing_id"


def _arrow_schema(struct: StructType) -> pa.Schema:
    months = {
        place: _COUNTED_MONTHS[field.dataType.startField, field.dataType.endField]
        for place, field in enumerate(struct.fields)
        if isinstance(field.dataType, YearMonthIntervalType)
    }
    if months:
        raise MonthsInResult(struct.names, months)
    schema = to_arrow_schema(struct, timezone="UTC")
    return pa.schema([pa.field(column.name, _our_type(column.type)) for column in schema])  # every column may be null


def _our_type(kind: pa.DataType) -> pa.DataType:
    """Return a type as every engine here has it: a time has six digits, though Spark sends nine."""
    return pa.time64("us") if pa.types.is_time(kind) else kind


def as_batches(table: pa.Table, schema: pa.Schema) -> Sequence[pa.RecordBatch]:
    """Return the table's batches in exactly the schema that was promised."""
    if table.schema != schema:
        table = pa.Table.from_arrays(
            [
                column if column.type == wanted.type else column.cast(wanted.type)
                for column, wanted in zip(table.columns, schema, strict=True)
            ],
            schema=schema,
        )
    return [batch for batch in table.to_batches() if batch.num_rows]
