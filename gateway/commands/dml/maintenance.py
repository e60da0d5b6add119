"""Maintenance of lake tables.

OPTIMIZE t      VACUUM t [RETAIN n HOURS] [DRY RUN]
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pyarrow as pa

from gateway.commands.command import TableCommand
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.security.policy import Action
from gateway.statements.command import Kind
from sql.errors import NotAllowed
from sql.tables import TableSource

KEPT_H, LEAST_H = 168, 24
"""Hours for which snapshots and files stay: unless the statement says so, and at least."""
_REPLACED = pa.schema([pa.field("files_replaced", pa.int64())])
_FILES = pa.schema([pa.field("file", pa.string()), pa.field("bytes", pa.int64())])


@dataclass(frozen=True, slots=True)
class Optimize(TableCommand):
    """Write small files of a lake table, and those with deleted rows, anew as few."""

    table: str
    target: TableSource

    rule_kind = Kind.WRITE
    table_action = Action.CHANGE_ROWS

    @property
    def uses(self) -> tuple[TableSource, ...]:
        """The table."""
        return (self.target,)

    def run(self, services: CommandServices) -> pa.Table:
        """Return how many files were replaced."""
        run = services.run
        services.registration.require_unchanged((self.target,))
        replaced = services.registration.lake.compact(self.target, run.id, run.requester)
        return pa.table([[replaced]], schema=_REPLACED)


@dataclass(frozen=True, slots=True)
class Vacuum(TableCommand):
    """Delete a lake table's files that no snapshot of the last hours needs. dry_run: only tell which ones."""

    table: str
    target: TableSource
    retain_h: int = KEPT_H
    dry_run: bool = False

    rule_kind = Kind.WRITE
    table_action = Action.CHANGE_ROWS

    @property
    def uses(self) -> tuple[TableSource, ...]:
        """The table."""
        return (self.target,)

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per file. bytes: NULL: Delta's log does not tell."""
        retain = dt.timedelta(hours=self.retain_h)
        services.registration.require_unchanged((self.target,))
        lake = services.registration.lake
        files = lake.vacuum(self.target, retain, self.dry_run, services.run.requester)
        return pa.table([[file.path for file in files], [file.bytes for file in files]], schema=_FILES)


def parse(reader: Reader) -> Optimize | Vacuum | None:
    """Read a statement that maintains a lake table."""
    if reader.accept("OPTIMIZE"):
        target = _lake_table(reader, "OPTIMIZE")
        reader.end()
        return Optimize(target.name, target)
    if not reader.accept("VACUUM"):
        return None
    target = _lake_table(reader, "VACUUM")
    hours = KEPT_H
    if reader.accept("RETAIN"):
        token = reader.peek()
        hours = int(reader.number())
        reader.expect("HOURS")
        if hours < LEAST_H:
            message = f"Files stay for {LEAST_H} hours at least: statements may read them, and writers commit them."
            raise NotAllowed(message, reader.position(token))
    dry_run = reader.accept("DRY", "RUN")
    reader.end()
    return Vacuum(target.name, target, hours, dry_run)


def _lake_table(reader: Reader, word: str) -> TableSource:
    token = reader.peek()
    table = reader.table()
    if not table.is_lake:
        message = f"{table.name} is a table of {table.format} files; {word} is for Delta and Iceberg tables."
        raise NotAllowed(message, reader.position(token))
    return table
