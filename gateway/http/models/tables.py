"""Tables, their statistics and keys as JSON."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from gateway.http.models.common import ColumnModel, PathText, RecordModel, RequestModel, TableName, TextMap, Word
from metastore.records import CatalogTable
from selector.join_keys import KeyPair
from selector.quoting import require_name
from selector.statistics import ColumnStatistics, Keys, TableStatistics
from selector.types import parse
from sql.bounds import LONGEST_KEY, LONGEST_TYPE, LONGEST_WORD, MOST_COLUMNS, MOST_NAMES


def _spark_type(text: str) -> str:
    return str(parse(text))


class ColumnRequest(RequestModel):
    """A column of a table to register."""

    name: Annotated[str, Field(max_length=LONGEST_WORD), AfterValidator(require_name)]
    type: Annotated[str, Field(max_length=LONGEST_TYPE), AfterValidator(_spark_type)] = Field(
        description="Spark's name, such as decimal(10,2)."
    )


class TableRequest(RequestModel):
    """A table to register."""

    name: TableName
    location: PathText = Field(description="Absolute path of a folder or file that every engine can read.")
    format: Word | None = Field(None, description="parquet, csv, json, orc, avro, delta or iceberg; null: detected.")
    options: TextMap = Field(
        default_factory=dict, description='Options of the format csv alone: {"delimiter": "|", "header": "true"}.'
    )
    columns: list[ColumnRequest] = Field(
        default_factory=list,
        max_length=MOST_COLUMNS,
        fail_fast=True,
        description="For csv and json all columns or none; for partition folders any. Others are detected.",
    )
    keys: list[KeyRequest] = Field(
        default_factory=list,
        max_length=MOST_NAMES,
        fail_fast=True,
        description="Columns that are joined with those of other tables.",
    )


class KeyRequest(RequestModel):
    """A column that refers to another one."""

    column: Word
    references: str = Field(
        pattern=r"^([^.]+\.)?[^.]+\.[^.]+$", max_length=LONGEST_KEY, description="Table and column: books.id."
    )


class CommonValueModel(BaseModel):
    """A common value and its number of rows."""

    value: float | str
    rows: int


class ColumnStatisticsModel(RecordModel):
    """Statistics of a column.

    endpoints, up_to: an equi-height histogram, with the share of rows up to each endpoint. Dates are days and times
    microseconds since 1970; strings are their first bytes. manual: fields that were set by hand. key_bins: number of
    bins of a join key.
    """

    name: str
    type: str
    nulls: int
    ndv: float
    minimum: float | str | None
    maximum: float | str | None
    average_length: float | None
    maximum_length: int | None
    endpoints: list[float | str] | None
    up_to: list[float] | None
    common: list[CommonValueModel]
    manual: list[str]
    key_bins: int | None

    @classmethod
    def of(cls, column: ColumnStatistics, build: TableStatistics) -> ColumnStatisticsModel:
        """Show a column of a build."""
        histogram, common, key = column.histogram, column.common, build.keys.get(column.name)
        return cls.showing(
            column,
            type=column.data_type,
            endpoints=_json_keys(histogram.endpoints) if histogram else None,
            up_to=histogram.up_to.tolist() if histogram and histogram.up_to is not None else None,
            common=[
                CommonValueModel(value=value, rows=rows)
                for value, rows in zip(_json_keys(common.values), common.rows.tolist(), strict=True)
            ]
            if common
            else [],
            manual=sorted(column.manual),
            key_bins=key.bins.count if key else None,
        )


def _json_keys(keys: Keys) -> list[float | str]:
    """Return keys of statistics as JSON values."""
    return [key.decode(errors="replace") if isinstance(key, bytes) else key for key in keys.tolist()]


class StatisticsModel(RecordModel):
    """One build of a table's statistics. share: part of the table that was read, 0..1; notes: omissions."""

    version: int
    rows: int
    bytes: int
    files: int
    built_at: dt.datetime | None
    source: str
    share: float
    notes: list[str]
    manual: list[str]
    sample_rows: int | None
    columns: list[ColumnStatisticsModel]

    @classmethod
    def of(cls, build: TableStatistics) -> StatisticsModel:
        """Show a build."""
        return cls.showing(
            build,
            manual=sorted(build.manual),
            sample_rows=build.sample.rows if build.sample else None,
            columns=[ColumnStatisticsModel.of(column, build) for column in build.columns.values()],
        )


class PartitionModel(RecordModel):
    """One partition. rows: null: no summary is stored."""

    folder: str
    values: dict[str, str]
    files: int
    bytes: int
    rows: int | None


class KeyModel(BaseModel):
    """Two joined columns; a key of several columns has commas between them. source: declared, history or workload."""

    left: str
    right: str
    source: str

    @classmethod
    def of(cls, pair: KeyPair, source: str) -> KeyModel:
        """Show a pair."""
        return cls(left=str(pair.left), right=str(pair.right), source=source)


class KeyList(BaseModel):
    """All pairs of joined columns."""

    keys: list[KeyModel]


class TableReply(RecordModel):
    """A registered table."""

    name: str
    format: str
    columns: list[ColumnModel]
    partition_columns: list[str]
    files: int
    bytes: int
    rows: int | None
    copied_bytes: int = Field(0, description="Of its files in an object store, on this machine.")
    registered_at: dt.datetime
    owner: str | None
    statistics_version: int | None
    statistics: StatisticsModel | None = None
    partitions: list[PartitionModel] = Field([])
    keys: list[KeyModel] = Field([])

    @classmethod
    def of(
        cls,
        table: CatalogTable,
        build: TableStatistics | None = None,
        *,
        part_rows: Mapping[str, int] | None = None,
        copied_bytes: int = 0,
        keys: Mapping[KeyPair, str] | None = None,
    ) -> TableReply:
        """Show a table without its location. part_rows: rows by folder; None: partitions are not shown."""
        return cls.showing(
            table,
            table.source,
            columns=[ColumnModel(name=column.name, type=column.declared_type) for column in table.source.columns],
            statistics=StatisticsModel.of(build) if build else None,
            copied_bytes=copied_bytes,
            partitions=[
                PartitionModel.showing(part, folder=part.path, values=dict(part.values), rows=part_rows.get(part.path))
                for part in table.partitions
            ]
            if part_rows is not None
            else [],
            keys=[KeyModel.of(pair, source) for pair, source in (keys or {}).items()],
        )


class TableList(BaseModel):
    """All registered tables."""

    tables: list[TableReply]
