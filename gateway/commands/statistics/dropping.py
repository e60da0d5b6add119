"""Statistics that are dropped.

DROP STATS t      DROP INCREMENTAL STATS t PARTITION (p = 1, ...)
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pyarrow as pa

from gateway.commands.command import StatisticsCommand, TableCommand, summary
from gateway.commands.grammar.conditions import Condition, partition_conditions
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.security.policy import Action


@dataclass(frozen=True, slots=True)
class DropStats(StatisticsCommand, TableCommand):
    """Drop the statistics of a table."""

    table: str

    table_action = Action.CHANGE_STATISTICS

    def run(self, services: CommandServices) -> pa.Table:
        """Drop them."""
        services.metastore.statistics.drop(self.table, at=dt.datetime.now(dt.UTC))
        return summary("Stats have been dropped.")


@dataclass(frozen=True, slots=True)
class DropIncrementalStats(StatisticsCommand, TableCommand):
    """Drop the summaries of some partitions; the statistics stay until the next computation."""

    table: str
    conditions: tuple[Condition, ...]

    table_action = Action.CHANGE_STATISTICS

    def run(self, services: CommandServices) -> pa.Table:
        """Drop them, unless a job merges them now."""
        folders = {partition.path for partition in services.partitions(self.table, self.conditions)}
        dropped = services.jobs.drop_parts(self.table, folders)
        return summary(f"Incremental stats of {dropped} partition(s) have been dropped.")


def parse(reader: Reader) -> DropStats | DropIncrementalStats | None:
    """Read a statement that drops statistics."""
    if reader.accept("DROP", "STATS"):
        return DropStats(reader.table().name)
    if not reader.accept("DROP", "INCREMENTAL"):
        return None
    reader.expect("STATS")
    table = reader.table()
    return DropIncrementalStats(table.name, partition_conditions(reader, table))
