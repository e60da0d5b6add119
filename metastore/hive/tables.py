"""A table of a Hive Metastore as files that an engine can read: where they are, in what form, with which columns.

What only Hive itself reads rightly is refused, with the reason: its transactional tables, its own text, tables of other
formats that merely stand in its catalog, and partitions that lie elsewhere or are no longer the table's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.protocol import Column, InvalidTable
from metastore.hive.client import HiveColumn, HiveFailed, HiveMetastore, HiveTable

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
    """What has to be told to register a table. columns: all of text and JSON; else those of partition folders."""

    name: str
    location: str
    format: str
    columns: tuple[Column, ...]
    options: Mapping[str, str]


def files_of(hive: HiveMetastore, database: str, name: str) -> HiveFiles:
    """Return a table's files. Raises HiveFailed where they are not the whole table."""
    held = hive.table(database, name)
    kind, properties = held.handle.tableType, held.parameters
    if kind == "VIRTUAL_VIEW" or not held.handle.sd.location:
        raise HiveFailed(f"{held.full_name} is a view")
    if properties.get("transactional", "").lower() == "true":
        raise HiveFailed(f"{held.full_name} is transactional: only Hive reads its files rightly")
    found = _format(held)
    location = held.handle.sd.location
    for partition in hive.partitions(held):
        _check_place(held, partition)
    try:
        return HiveFiles(held.name, location, found, _columns(held, found), _options(held, found))
    except InvalidTable as failure:
        raise HiveFailed(f"{held.full_name} cannot be a table here: {failure}") from failure


def _format(held: HiveTable) -> str:
    provider = held.parameters.get("spark.sql.sources.provider", "").lower()
    other = provider or held.parameters.get("table_type", "").lower()
    if other in _PROVIDERS:
        return other
    serde = (held.handle.sd.serdeInfo.serializationLib or "").rpartition(".")[2]
    if (other and other != "hive") or serde not in _SERDES:
        raise HiveFailed(
            f"{held.full_name} is stored as {other or serde or 'nothing known'}, which no engine here reads"
        )
    return _SERDES[serde]


def _check_place(held: HiveTable, partition: Any) -> None:
    """Partitions must lie in folders that tell their values."""
    names = [key.name for key in held.handle.partitionKeys]
    inside = partition.sd.location.removeprefix(held.handle.sd.location.rstrip("/")).strip("/")
    levels = [step.partition("=")[0].lower() for step in inside.split("/")]
    if inside == partition.sd.location or levels != [name.lower() for name in names]:
        raise HiveFailed(
            f"{held.full_name} has a partition outside the folders of its own: {', '.join(partition.values)}"
        )


def _columns(held: HiveTable, found: str) -> tuple[Column, ...]:
    wanted = [c for c in held.columns if found in ("csv", "json") or c.name.lower() in held.partition_columns]
    return tuple(map(_column, wanted))


def _column(held: HiveColumn) -> Column:
    column = Column(held.name, held.data_type)
    return Column(held.name, "string") if column.type.is_text else column  # lengths are not checked


def _options(held: HiveTable, found: str) -> dict[str, str]:
    if found != "csv":
        return {}
    told = dict(held.handle.sd.serdeInfo.parameters or {})
    if "spark.sql.sources.provider" in held.parameters:
        delimiter = told.get("delimiter") or told.get("sep") or ","
        return {"delimiter": delimiter, "header": told.get("header", "false").lower()}
    if told.get("serialization.null.format", held.parameters.get("serialization.null.format")) != "":
        raise HiveFailed(f"{held.full_name} is Hive's own text, where \\N is null: set serialization.null.format to ''")
    delimiter = told.get("field.delim") or told.get("separatorChar") or told.get("serialization.format") or ","
    return {"delimiter": delimiter, "header": str(held.parameters.get("skip.header.line.count") == "1").lower()}
