"""Partitions and files of a table. Paths are relative to the table, because places on the server stay inside.

SHOW PARTITIONS t [PARTITION (p = 1, ...)]      SHOW FILES IN t [PARTITION (p = 1, ...)]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from engines.files.listing import InspectionFailed, data_files
from engines.files.manifest import read_manifest
from gateway.commands.command import ShowCommand, TableCommand
from gateway.commands.grammar.conditions import Condition, matching, partition_conditions, require_partitions
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.commands.statistics.showing import stats_of_table
from gateway.statistics.tables import NO_POLICY, size_text, texts_of
from sql.dialects.names import IMPALA
from sql.errors import TableUnreadable
from sql.tables import TableSource

MOST_FILES = 100_000  # that are listed
FILES = ("Path", "Size", "Partition", "EC Policy")


@dataclass(frozen=True, slots=True)
class ShowPartitions(ShowCommand, TableCommand):
    """List the partitions for which all conditions hold."""

    table: str
    conditions: tuple[Condition, ...] = ()

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per partition; in Impala's dialect with its statistics."""
        table = services.partitioned(self.table)
        partitions = matching(table.partitions, self.conditions)
        if services.dialect != IMPALA:
            return texts_of(("partition",), [[partition.path] for partition in partitions])
        if not self.conditions:
            return stats_of_table(services, table)
        size, files = sum(one.bytes for one in partitions), sum(one.files for one in partitions)
        part = replace(table, partitions=partitions, bytes=size, files=files)
        return stats_of_table(services, part, whole=False)


@dataclass(frozen=True, slots=True)
class ShowFiles(ShowCommand, TableCommand):
    """List the files of the partitions for which all conditions hold."""

    table: str
    conditions: tuple[Condition, ...] = ()

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per file."""
        table = services.table(self.table)
        services.registration.require_unchanged((table.source,))
        root = Path(table.source.location)
        if table.source.is_lake:
            return self._of_snapshot(table.source, services)
        folders = {partition.path for partition in matching(table.partitions, self.conditions)}
        try:
            files = data_files(root, services.run.require)
        except InspectionFailed as error:
            raise TableUnreadable(str(error).replace(table.source.location, table.name)) from error
        listed = [file for file in files if not self.conditions or file.folder in folders]
        _require_few(table.name, len(listed))
        rows = [[file.mark(root).path, size_text(file.bytes), file.folder, NO_POLICY] for file in listed]
        return texts_of(FILES, rows)

    def _of_snapshot(self, source: TableSource, services: CommandServices) -> pa.Table:
        """Return a row per data file of a lake table's newest snapshot."""
        (pinned,) = services.registration.pinned((source,), services.run.requester)
        assert pinned.snapshot is not None
        manifest = read_manifest(pinned.snapshot.manifest)
        files = [file for file in manifest.files if all(one.holds(file.partition) for one in self.conditions)]
        _require_few(source.name, len(files))
        rows = [[manifest.relative(file), size_text(file.bytes), file.folder, NO_POLICY] for file in files]
        return texts_of(FILES, rows)


def _require_few(name: str, files: int) -> None:
    if files > MOST_FILES:
        raise TableUnreadable(f"{name} has {files:,} files, of which {MOST_FILES:,} can be listed: give a PARTITION.")


def parse(reader: Reader) -> ShowPartitions | ShowFiles | None:
    """Read a statement that lists partitions or files."""
    reader.expect("SHOW")
    token = reader.peek()
    if reader.accept("PARTITIONS"):
        table = reader.table()
        require_partitions(table, reader.position(token))
        return ShowPartitions(table.name, partition_conditions(reader, table) if reader.more() else ())
    if not reader.accept("FILES"):
        return None
    if not reader.accept("IN"):
        reader.expect("FROM")
    table = reader.table()
    return ShowFiles(table.name, partition_conditions(reader, table) if reader.more() else ())
