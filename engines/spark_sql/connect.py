"""Spark Connect as far as the adapter needs it: sessions and plans, in the terms of its wire format.

Each plan names the files of the tables that it reads, or the location of a table without a snapshot, whose files Spark
lists when it runs the plan. So nothing has to be registered again after a restart or when files change.
"""

from __future__ import annotations

import atexit
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

from engines.files.manifest import read_manifest
from engines.protocol import TableFiles
from engines.spark_sql.reading import literal_path, read_column, read_options
from engines.spark_sql.results import TextsInResult, arrow_schema
from engines.spark_sql.session_settings import CAREFUL_SETTINGS, SESSION_SETTINGS
from engines.spark_sql.snapshots import snapshot_relation
from selector.quoting import spark_name
from sql.tables import TableSource

with warnings.catch_warnings():
    # pyspark 4.3 says at import that it was not tested with pandas 3; no pandas is used here.
    warnings.simplefilter("ignore", FutureWarning)
    import pyspark.sql.connect.proto as pb2
    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.client.core import DefaultChannelBuilder as DefaultChannelBuilder
    from pyspark.sql.connect.client.core import RpcDeadlines
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator
    from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState
    from pyspark.sql.connect.proto import Plan as Plan

USER = "fusion-sql-gateway"

SESSION_CONFIGURATION: Mapping[str, str] = {
    **SESSION_SETTINGS,
    # Columns of lake tables may have been renamed. Where a schema names no ids, this changes nothing.
    "spark.sql.parquet.fieldId.read.enabled": "true",
    # Over a union, as partitioned lake tables are, it loses the outer columns of a correlated subquery in the select
    # list ("key not found").
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughUnion",
    # Without it, literals of 5 to 14 October 1582 are other days where they choose row groups, whose rows are lost.
    "spark.sql.datetime.java8API.enabled": "true",
    # A cached plan would not see new files.
    "spark.connect.session.planCache.enabled": "false",
    "spark.sql.connect.serverStacktrace.enabled": "false",
    "spark.sql.pyspark.jvmStacktrace.enabled": "false",
}

PLANNED_ONLY_AFTER_S = 8.0
"""A server reports running jobs every 2 s (spark.connect.progress.reportInterval)."""

_CALL_TIMEOUT_S = 60.0
_INTERRUPT_TIMEOUT_S = 5.0
_REPLAY_LIMIT_S = 10.0
_RELEASES_AT_ONCE = 4
_SILENT = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE})
_SILENT_PAUSE_S = 1.0
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# pyspark creates a pool for each statement, to release its result, and the pool's thread stays until it is collected.
ExecutePlanResponseReattachableIterator._release_thread_pool = ThreadPoolExecutor(
    _RELEASES_AT_ONCE, thread_name_prefix="spark-release"
)

# These print the statement, with its literals, for each error of the client.
for _logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    logging.getLogger(_logger).disabled = True


class _FewRetriesState(RetryPolicyState):  # type: ignore[misc]
    """Stops retrying once the retries are used, without pyspark's warning."""

    def __init__(self, policy: FewRetries) -> None:
        super().__init__(policy)
        self._remaining: int = policy.max_retries

    def can_retry(self, exception: BaseException) -> bool:
        return self._remaining > 0 and super().can_retry(exception)

    def next_attempt(self, exception: BaseException | None = None) -> int | None:
        self._remaining -= 1
        wait_ms: int | None = super().next_attempt(exception)
        return wait_ms


class FewRetries(DefaultPolicy):  # type: ignore[misc]
    """Retries for about two seconds. pyspark's default hides a dead server for ten minutes."""

    def __init__(self) -> None:
        super().__init__(max_retries=3, initial_backoff=200, max_backoff=1000)

    def to_state(self) -> _FewRetriesState:
        """Return the countdown for one call."""
        return _FewRetriesState(self)


class _JobsSeen:
    """Progress handler that notes if a session's statement has stages. It keeps no reference to the session."""

    def __init__(self) -> None:
        self.any = False

    def __call__(
        self, stages: Sequence[object] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        self.any = self.any or bool(stages)


class ConnectSession:
    """One session on the server, for one statement at a time. Driver exceptions pass through."""

    def __init__(self, address: str, *, careful: bool = False) -> None:
        self.address = address
        self.careful = careful
        self.idle_since_s = time.monotonic()
        self._session_id = str(uuid.uuid4())
        self._client = _connect(address, self._session_id)
        self._jobs, self._begun_s = _JobsSeen(), time.monotonic()
        self._client.register_progress_handler(self._jobs)
        self._configured = False

    @property
    def is_closed(self) -> bool:
        """True if the connection was closed, by the gateway or because the server was replaced."""
        return bool(self._client.is_closed)

    @property
    def planned_only(self) -> bool:
        """True if the server had time to report a job of the statement, and reported none."""
        return not self._jobs.any and time.monotonic() - self._begun_s > PLANNED_ONLY_AFTER_S

    def configure(self) -> None:
        """Set the session's settings once; has to be called before other calls of a statement."""
        self._jobs.any, self._begun_s = False, time.monotonic()
        if not self._configured:
            settings = {**SESSION_CONFIGURATION, **(CAREFUL_SETTINGS if self.careful else {})}
            pairs = [pb2.KeyValue(key=key, value=value) for key, value in settings.items()]
            self._client.config(pb2.ConfigRequest.Operation(set=pb2.ConfigRequest.Set(pairs=pairs)))
            self._configured = True

    def run(self, plan: Plan, tag: str) -> tuple[pa.Schema, Generator[pa.Table, None, None]]:
        """Send a plan. Returns its schema and its batches, as one-batch tables, while they arrive.

        Closing the iterator ends the statement on the server. Raises TextsInResult.

        tag: name for ``interrupt``.
        """
        answers = self._client.to_table_as_iterator(plan, {})
        self._client.add_tag(tag)  # of this thread, read with the request for the first answer
        try:
            struct = next(answers)
        finally:
            self._client.remove_tag(tag)
        try:
            return arrow_schema(struct), answers
        except (PySparkException, TextsInResult):
            answers.close()
            raise

    def schema(self, plan: Plan) -> pa.Schema:
        """Return the schema of a plan without running it. Raises TextsInResult.

        Not for commands: Spark would run them.
        """
        return arrow_schema(self._client.schema(plan))

    def names(self, plan: Plan) -> Sequence[str]:
        """Return the names of a plan's columns without running it, as ``schema`` does."""
        names: Sequence[str] = self._client.schema(plan).names
        return names

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
        """Write a plan's rows with these column names into a folder that does not exist yet."""
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

    def interrupt(self, tag: str) -> bool:
        """Stop the statement with this tag. Return False if the server does not know it."""
        return bool(self._client.interrupt_tag(tag))

    def close(self) -> None:
        """Release the session. A server that is gone does not matter."""
        if not self._client.is_closed:
            try:
                self._client.release_session()
            except PySparkException:
                pass  # it forgets idle sessions by itself
            self._client.close()

    def break_off(self) -> None:
        """Close the connection, also during a call."""
        self._client._channel.close()  # the client itself would first wait for calls that release results
        self._client.close()

    def end_from_outside(self, give_up_after_s: float) -> None:
        """End the session, and with it its statement, over new connections once the server answers again."""
        give_up_s = time.monotonic() + give_up_after_s
        while time.monotonic() < give_up_s:
            client = _connect(self.address, self._session_id)
            try:
                client.release_session()
            except SparkConnectGrpcException as error:
                # A silent server: the status depends on whether its operating system still answers.
                if error.getGrpcStatusCode() not in _SILENT:
                    return  # the server does not know the session any more
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
    atexit.unregister(client._on_exit)  # it would keep every client alive
    client.set_retry_policies([FewRetries()])
    return client


def statement_plan(sql: str, tables: Iterable[TableSource], read: Iterable[TableFiles | TableSource] = ()) -> Plan:
    """Return the plan of a statement together with those of the tables that its text may name.

    read: tables of which it reads only some files, or a snapshot; they replace others of the same name.
    """
    plan = Plan()
    text = sql.casefold()
    by_name: dict[str, TableSource | TableFiles] = {table.name: table for table in tables}
    by_name |= {(table.source if isinstance(table, TableFiles) else table).name: table for table in read}
    references = [_table(table) for name, table in by_name.items() if spark_name(name)[1:-1].casefold() in text]
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
    if source.is_lake:
        assert source.snapshot is not None  # others do not come here
        manifest = read_manifest(source.snapshot.manifest)
        of_file = None
        if isinstance(table, TableFiles):
            manifest = manifest.limited_to(table.files)
            of_file = table.file_column, table.row_column
        relation.subquery_alias.input.CopyFrom(snapshot_relation(source, manifest, of_file))
        return relation
    projection = relation.subquery_alias.input.project
    for column in source.columns:  # Spark would put the partition columns last
        projection.expressions.add().expression_string.expression = read_column(source, column)
    schema = ", ".join(f"{spark_name(column.name)} {column.type.spark()}" for column in source.columns)
    paths = _paths(table)
    if not paths:
        projection.input.local_relation.schema = schema
        return relation
    files = projection.input.read.data_source
    files.format = source.format
    files.schema = schema
    for key, value in read_options(source).items():
        files.options[key] = value
    if source.partition_columns:
        files.options["basePath"] = source.location  # folders below it are partitions
    files.paths.extend(map(literal_path, paths))
    return relation


def _paths(table: TableSource | TableFiles) -> Sequence[str]:
    """Return the paths to read of a plain table: some files, those of its list, or its folder."""
    if isinstance(table, TableFiles):
        return table.files
    if table.snapshot is not None:
        return [file.path for file in read_manifest(table.snapshot.manifest).files]
    return [table.location]
