"""Tables, their statistics and keys as JSON."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from gateway.http.models.common import ColumnModel, RecordModel, RequestModel, TableName
from metastore.records import (
    CatalogTable,
)
from selector.join_keys import KeyPair
from selector.quoting import require_name
from selector.statistics import ColumnStatistics, Keys, TableStatistics
from selector.types import parse


def _spark_type(text: str) -> str:
    return str(parse(text))


class ColumnRequest(RequestModel):
    """A column that the caller knows."""

    name: Annotated[str, AfterValidator(require_name)]
    type: Annotated[str, AfterValidator(_spark_type)] = Field(description="As Spark writes it, such as decimal(10,2).")


class TableRequest(RequestModel):
    """A table to register."""

    name: TableName
    location: str = Field(description="Absolute path of a folder or file that every engine can read.")
    format: str | None = Field(None, description="parquet, csv, json, orc or avro; found out without it.")
    options: dict[str, str] = Field(
        default_factory=dict, description='Of text, and no other: {"delimiter": "|", "header": "true"}.'
    )
    columns: list[ColumnRequest] = Field(
        default_factory=list,
        description="Of text and JSON all or none; of partition folders any. The rest is found out.",
    )
    keys: list[KeyRequest] = Field(default_factory=list, description="Columns that are joined with other tables'.")


class KeyRequest(RequestModel):
    """A column that refers to another one."""

    column: str
    references: str = Field(pattern=r"^([^.]+\.)?[^.]+\.[^.]+$", description="Table and column: books.id.")


class CommonValueModel(BaseModel):
    """A value that many rows hold."""

    value: float | str
    rows: int


class ColumnStatisticsModel(RecordModel):
    """What is known about a column; histograms as endpoints with the shares of rows at most there.

    Numbers, dates and times are on their type's line: days and microseconds since 1970; strings are their first bytes.
    manual: names of the fields that a person set. key_bins: how many bins a joined column is counted in.
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
            endpoints=_on_the_line(histogram.endpoints) if histogram else None,
            up_to=histogram.up_to.tolist() if histogram and histogram.up_to is not None else None,
            common=[
                CommonValueModel(value=value, rows=rows)
                for value, rows in zip(_on_the_line(common.values), common.rows.tolist(), strict=True)
            ]
            if common
            else [],
            manual=sorted(column.manual),
            key_bins=key.bins.count if key else None,
        )


def _on_the_line(keys: Keys) -> list[float | str]:
    """Return places on a column's line as JSON can carry them."""
    return [key.decode(errors="replace") if isinstance(key, bytes) else key for key in keys.tolist()]


class StatisticsModel(RecordModel):
    """One build of a table's statistics. share: of the table that was read, 0..1; notes: what was left out."""

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
    """One partition. rows: of its summary, null where none is kept."""

    folder: str
    values: dict[str, str]
    files: int
    bytes: int
    rows: int | None


class KeyModel(BaseModel):
    """Two columns that are joined, or several of two tables that are a key together, with commas between.

    source: declared, history or workload.
    """

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
        keys: Mapping[KeyPair, str] | None = None,
    ) -> TableReply:
        """Show a table; its place on the server stays inside. part_rows: by folder, which are shown if it is given."""
        return cls.showing(
            table,
            table.source,
            columns=[ColumnModel(name=column.name, type=column.data_type) for column in table.source.columns],
            statistics=StatisticsModel.of(build) if build else None,
            partitions=[
                PartitionModel.showing(each, folder=each.path, values=dict(each.values), rows=part_rows.get(each.path))
                for each in table.partitions
            ]
            if part_rows is not None
            else [],
            keys=[KeyModel.of(pair, source) for pair, source in (keys or {}).items()],
        )


class TableList(BaseModel):
    """All registered tables."""

    tables: list[TableReply]
