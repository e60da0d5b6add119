"""Statistics shown as Impala shows them.

SHOW TABLE STATS t      SHOW COLUMN STATS t
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from gateway.commands.command import ShowCommand, TableCommand
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.statistics.tables import column_stats, table_stats

if TYPE_CHECKING:
    from metastore.records import CatalogTable


@dataclass(frozen=True, slots=True)
class ShowTableStats(ShowCommand, TableCommand):
    """Show statistics of a table's partitions."""

    table: str

    is_reading = True

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per partition, and a total."""
        return stats_of_table(services, services.partitioned(self.table))


@dataclass(frozen=True, slots=True)
class ShowColumnStats(ShowCommand, TableCommand):
    """Show statistics of a table's columns."""

    table: str

    is_reading = True

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per column."""
        table = services.partitioned(self.table)
        return column_stats(table, services.metastore.statistics.current(table.name))


def stats_of_table(services: CommandServices, table: CatalogTable, *, whole: bool = True) -> pa.Table:
    """Return a row per partition, and a total. whole: False where some partitions were left out of the table."""
    build = services.metastore.statistics.current(table.name) if whole else None
    parts = {part.folder: part for part in services.metastore.statistics.part_marks(table.name)}
    return table_stats(table, build, parts)


def parse(reader: Reader) -> ShowTableStats | ShowColumnStats | None:
    """Read a statement that shows statistics."""
    if reader.accept("SHOW", "TABLE", "STATS"):
        return ShowTableStats(reader.table().name)
    if reader.accept("SHOW", "COLUMN", "STATS"):
        return ShowColumnStats(reader.table().name)
    return None
