"""A Hive Metastore over Thrift: the few calls that are needed here, with every failure in one line.

The bindings are those of impyla, for Hive 2.3, and older than some metastores: newer fields are left out of answers,
and not needed here. Connections are plain; a metastore that asks for Kerberos closes them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from metastore.hive.properties import join_property
from selector.types import BY_NAME

DEFAULT_PORT = 9083
TIMEOUT_MS = 60_000
PARTITIONS_AT_ONCE = 500
SPARK_SCHEMA = "spark.sql.sources.schema"

logging.getLogger("thrift").addHandler(logging.NullHandler())  # it would print what it raises


class HiveFailed(Exception):
    """A call to a Hive Metastore failed, or its table cannot be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class HiveColumn:
    """A column with its type as the table's creator wrote it, which may be none of ours."""

    name: str
    data_type: str


@dataclass(frozen=True, slots=True, eq=False)
class HiveTable:
    """A table as the metastore holds it.

    columns: with partition columns, as Spark names them where Spark made the table, else as Hive does, in lower case.
    stored: Hive's own columns, by name; they differ where Spark made a table that Hive cannot read.
    handle: the Thrift object.
    """

    database: str
    name: str
    columns: tuple[HiveColumn, ...]
    partition_columns: tuple[str, ...]
    stored: Mapping[str, str]
    parameters: Mapping[str, str]
    handle: Any

    @property
    def full_name(self) -> str:
        """The name with its database."""
        return f"{self.database}.{self.name}"


class HiveMetastore:
    """One connection, opened with the object. Raises HiveFailed and nothing else.

    addresses: ``thrift://host:port``, or several with commas between them, of which the first that answers is taken.
    """

    def __init__(self, addresses: str) -> None:
        try:
            from impala._thrift_gen.hive_metastore import ThriftHiveMetastore, ttypes  # type: ignore[import-untyped]
            from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated  # type: ignore[import-untyped]
            from thrift.transport.TTransport import TBufferedTransport  # type: ignore[import-untyped]
        except ImportError as failure:
            raise HiveFailed(
                f"{failure.name} is missing: install it with `pip install 'fusion-sql-gateway[hive]'`"
            ) from failure
        self.types = ttypes
        self._addresses = addresses
        self._transport = TBufferedTransport(_connected(addresses))
        self._client = ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(self._transport))

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def tables(self, database: str) -> list[str]:
        """Return the names of a database's tables and views, in order."""
        with self._failures(f"database {database}"):
            if database.lower() not in self._client.get_all_databases():
                raise HiveFailed(f"the Hive metastore has no database {database}")
            return sorted(self._client.get_all_tables(database.lower()))

    def table(self, database: str, name: str) -> HiveTable:
        """Look a table up."""
        with self._failures(f"{database}.{name}"):
            handle = self._client.get_table(database.lower(), name.lower())
        parameters = dict(handle.parameters or {})
        stored = {field.name: field.type for field in (*handle.sd.cols, *handle.partitionKeys)}
        columns = tuple(HiveColumn(field, kind) for field, kind in stored.items())
        made = _spark_columns(parameters)
        placeholder = parameters.get("spark.sql.sources.provider") and list(stored.values()) == ["array<string>"]
        if made and (placeholder or {column.name.lower() for column in made} == set(stored)):
            columns = made
        levels = int(parameters.get(f"{SPARK_SCHEMA}.numPartCols", 0))
        partition_columns = [field.name for field in handle.partitionKeys] or [
            parameters[f"{SPARK_SCHEMA}.partCol.{level}"].lower() for level in range(levels)
        ]
        return HiveTable(handle.dbName, handle.tableName, columns, tuple(partition_columns), stored, parameters, handle)

    def column_statistics(self, table: HiveTable, columns: Sequence[str]) -> list[Any]:
        """Return Hive's ColumnStatisticsObj of the columns that have one."""
        request = self.types.TableStatsRequest(dbName=table.database, tblName=table.name, colNames=list(columns))
        with self._failures(table.full_name):
            return list(self._client.get_table_statistics_req(request).tableStats)

    def merged_column_statistics(self, table: HiveTable, columns: Sequence[str]) -> list[Any]:
        """Return Hive's merged statistics of all partitions, for the columns that every partition has."""
        with self._failures(table.full_name):
            names = self._client.get_partition_names(table.database, table.name, -1)
            # One by one after an empty answer: a single column without statistics in a partition empties it.
            return self._merged(table, columns, names) or [
                statistics for column in columns for statistics in self._merged(table, [column], names)
            ]

    def _merged(self, table: HiveTable, columns: Sequence[str], partitions: Sequence[str]) -> list[Any]:
        request = self.types.PartitionsStatsRequest(
            dbName=table.database, tblName=table.name, colNames=list(columns), partNames=list(partitions)
        )
        merged = self._client.get_aggr_stats_for(request)
        return list(merged.colStats) if merged.partsFound == len(partitions) else []

    def partitions(self, table: HiveTable) -> list[Any]:
        """Return the Partition objects of a table, none if it is not partitioned."""
        if not table.handle.partitionKeys:
            return []
        with self._failures(table.full_name):
            return list(self._client.get_partitions(table.database, table.name, -1))

    def put_column_statistics(self, table: HiveTable, statistics: Sequence[Any]) -> None:
        """Replace Hive's statistics of some columns."""
        types = self.types
        description = types.ColumnStatisticsDesc(isTblLevel=True, dbName=table.database, tableName=table.name)
        with self._failures(table.full_name):
            self._client.update_table_column_statistics(types.ColumnStatistics(description, list(statistics)))

    def change_properties(self, table: HiveTable, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Change a table's properties; the metastore adds none of its own."""
        with self._failures(table.full_name):
            handle = self._client.get_table(table.database, table.name)
            handle.parameters = dict(change(handle.parameters or {}))
            self._client.alter_table_with_environment_context(table.database, table.name, handle, self._unchanged())

    def put_partitions(self, table: HiveTable, partitions: Sequence[Any]) -> None:
        """Write partitions back after their properties were changed."""
        with self._failures(table.full_name):
            for start in range(0, len(partitions), PARTITIONS_AT_ONCE):
                self._client.alter_partitions_with_environment_context(
                    table.database, table.name, partitions[start : start + PARTITIONS_AT_ONCE], self._unchanged()
                )

    def _unchanged(self) -> Any:
        """Return the context in which the metastore does not compute statistics of its own."""
        return self.types.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})

    @contextmanager
    def _failures(self, table: str) -> Iterator[None]:
        """Turn what a call may raise into HiveFailed."""
        from thrift.Thrift import TException  # type: ignore[import-untyped]
        from thrift.transport.TTransport import TTransportException

        try:
            yield
        except self.types.NoSuchObjectException as failure:
            raise HiveFailed(f"the Hive metastore has no table {table}") from failure
        except (TException, OSError) as failure:
            if isinstance(failure, TTransportException | OSError):
                self._transport.close()  # an answer may be on its way still
            reason = (str(getattr(failure, "message", None) or failure).splitlines() or [type(failure).__name__])[0]
            raise HiveFailed(f"the Hive metastore at {self._addresses} failed at {table}: {reason}") from failure


def _connected(addresses: str) -> Any:
    from thrift.transport.TSocket import TSocket  # type: ignore[import-untyped]
    from thrift.transport.TTransport import TTransportException

    reasons = []
    for address in addresses.split(","):
        parts = urlsplit(address.strip())
        try:
            port = parts.port or DEFAULT_PORT
        except ValueError:
            port = 0
        if parts.scheme != "thrift" or not parts.hostname or not port:
            raise HiveFailed(f"{address.strip()} is not an address such as thrift://127.0.0.1:{DEFAULT_PORT}")
        connection = TSocket(parts.hostname, port)
        connection.setTimeout(TIMEOUT_MS)
        try:
            connection.open()
        except (TTransportException, OSError) as failure:
            reasons.append(str(failure).splitlines()[0])
            continue
        return connection
    raise HiveFailed(f"no Hive metastore answers at {addresses}: {reasons[-1]}")


def _spark_columns(parameters: Mapping[str, str]) -> tuple[HiveColumn, ...]:
    """Return the columns that Spark wrote beside Hive's, with their own case; none if Spark did not make the table."""
    text = join_property(parameters, SPARK_SCHEMA)
    if text is None:
        return ()
    return tuple(
        HiveColumn(
            field["name"],
            str(BY_NAME.get(field["type"], field["type"])) if isinstance(field["type"], str) else "nested",
        )
        for field in json.loads(text)["fields"]
    )
