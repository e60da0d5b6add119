"""A table of a Hive Metastore as files that an engine can read: their location, format and columns.

Tables that only Hive itself reads correctly are refused, with the reason: transactional tables, Hive's own text, other
formats in its catalog, and partitions that lie elsewhere or do not belong to the table any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metastore.hive.client import HiveFailed, HiveMetastore, HiveTable
from sql.tables import Column, InvalidTable

_SERDES = {
    "ParquetHiveSerDe": "parquet",
    "OrcSerde": "orc",
    "AvroSerDe": "avro",
    "JsonSerDe": "json",
    "LazySimpleSerDe": "csv",
}
"""Last part of a SerDe's class -> format."""

_PROVIDERS = frozenset({"parquet", "orc", "avro", "json", "csv"})


@dataclass(frozen=True, slots=True)
class HiveFiles:
    """Arguments to register a table. columns: all of text and JSON; else those of partition folders."""

    name: str
    location: str
    format: str
    columns: tuple[Column, ...]
    options: Mapping[str, str]


def files_of(hive: HiveMetastore, database: str, name: str) -> HiveFiles:
    """Return a table's files. Raises HiveFailed where they are not the whole table."""
    table = hive.table(database, name)
    if table.handle.tableType == "VIRTUAL_VIEW" or not table.handle.sd.location:
        raise HiveFailed(f"{table.full_name} is a view")
    if table.parameters.get("transactional", "").lower() == "true":
        raise HiveFailed(f"{table.full_name} is transactional: only Hive reads its files correctly")
    format = _format(table)
    for partition in hive.partitions(table):
        _check_folder(table, partition)
    try:
        return HiveFiles(table.name, table.handle.sd.location, format, _columns(table, format), _options(table, format))
    except InvalidTable as failure:
        raise HiveFailed(f"{table.full_name} cannot be a table here: {failure}") from failure


def _format(table: HiveTable) -> str:
    provider = table.parameters.get("spark.sql.sources.provider", "").lower()
    other = provider or table.parameters.get("table_type", "").lower()
    if other in _PROVIDERS:
        return other
    serde = (table.handle.sd.serdeInfo.serializationLib or "").rpartition(".")[2]
    if (other and other != "hive") or serde not in _SERDES:
        raise HiveFailed(
            f"{table.full_name} is stored as {other or serde or 'an unknown format'}, which no engine here reads"
        )
    return _SERDES[serde]


def _check_folder(table: HiveTable, partition: Any) -> None:
    """Raise HiveFailed unless a partition lies in a folder that names its values."""
    names = [key.name for key in table.handle.partitionKeys]
    inside = partition.sd.location.removeprefix(table.handle.sd.location.rstrip("/")).strip("/")
    levels = [step.partition("=")[0].lower() for step in inside.split("/")]
    if inside == partition.sd.location or levels != [name.lower() for name in names]:
        raise HiveFailed(f"{table.full_name} has a partition outside of its own folder: {', '.join(partition.values)}")


def _columns(table: HiveTable, format: str) -> tuple[Column, ...]:
    wanted = [c for c in table.columns if format in ("csv", "json") or c.name.lower() in table.partition_columns]
    return tuple(Column(column.name, column.data_type) for column in wanted)


def _options(table: HiveTable, format: str) -> dict[str, str]:
    if format != "csv":
        return {}
    serde = dict(table.handle.sd.serdeInfo.parameters or {})
    if "spark.sql.sources.provider" in table.parameters:
        delimiter = serde.get("delimiter") or serde.get("sep") or ","
        return {"delimiter": delimiter, "header": serde.get("header", "false").lower()}
    if serde.get("serialization.null.format", table.parameters.get("serialization.null.format")) != "":
        raise HiveFailed(
            f"{table.full_name} is Hive's own text, where \\N is null: set serialization.null.format to ''"
        )
    delimiter = serde.get("field.delim") or serde.get("separatorChar") or serde.get("serialization.format") or ","
    return {"delimiter": delimiter, "header": str(table.parameters.get("skip.header.line.count") == "1").lower()}
