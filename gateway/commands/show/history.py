"""DESCRIBE HISTORY t: the snapshots of a lake table, the newest first."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa

from gateway.commands.command import ShowCommand, TableCommand
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from sql.errors import NotAllowed

_SCHEMA = pa.schema(
    [
        pa.field("version", pa.string()),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("operation", pa.string()),
        pa.field("details", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class DescribeHistory(ShowCommand, TableCommand):
    """List the snapshots of a lake table."""

    table: str

    is_reading = True

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per snapshot. details: what the writer noted, as JSON."""
        source = services.table(self.table).source
        services.registration.require_unchanged((source,))
        entries = services.registration.lake.history(source, services.run.requester)
        columns = (
            [entry.id for entry in entries],
            [entry.at_ms for entry in entries],
            [entry.operation for entry in entries],
            [json.dumps(entry.details, sort_keys=True) for entry in entries],
        )
        return pa.table([pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)], _SCHEMA)


def parse(reader: Reader) -> DescribeHistory | None:
    """Read DESCRIBE HISTORY."""
    if not (reader.accept("DESCRIBE", "HISTORY") or reader.accept("DESC", "HISTORY")):
        return None
    if not reader.more():
        return None  # a table called history
    token = reader.peek()
    table = reader.table()
    if not table.is_lake:
        raise NotAllowed(
            f"{table.name} is a table of {table.format} files, which has no history.", reader.position(token)
        )
    return DescribeHistory(table.name)
