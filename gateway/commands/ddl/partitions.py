"""Partitions that are added to a table.

ALTER TABLE t ADD [IF NOT EXISTS] PARTITION (p = 1, ...) ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from sqlglot.tokenizer_core import TokenType

from engines.files.listing import DEFAULT_PARTITION
from gateway.commands.command import DONE, Definition, TableCommand
from gateway.commands.grammar.conditions import partition_conditions
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.security.policy import Action
from sql.errors import NotAllowed, PartitionExists
from sql.tables import TableSource


@dataclass(frozen=True, slots=True)
class AddPartitions(Definition, TableCommand):
    """Let a table know partitions. partitions: a value of each partition column, None for NULL."""

    table: str
    partitions: tuple[Mapping[str, str | None], ...]
    if_not_exists: bool = False

    actions = (Action.REFRESH,)
    impala_words = "New partition has been added to the table."

    def run(self, services: CommandServices) -> pa.Table:
        """Look for their files: those that exist count, others come with their first rows."""
        existing = {tuple(sorted(one.values.items())) for one in services.table(self.table).partitions}
        for values in self.partitions:
            texts = {name: DEFAULT_PARTITION if text is None else text for name, text in values.items()}
            if tuple(sorted(texts.items())) in existing and not self.if_not_exists:
                partition = ", ".join(f"{name} = {text}" for name, text in texts.items())
                raise PartitionExists(f"{self.table} has the partition {partition} already.")
        services.refresh(self.table)
        return DONE


def parse(reader: Reader) -> AddPartitions | None:
    """Read an ALTER statement that adds partitions."""
    subject = reader.altered()
    if subject is None or subject.table is None or not reader.accept("ADD"):
        return None
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    partitions = []
    if subject.table.is_lake and reader.next_word == "PARTITION":
        message = f"Partitions of the lake table {subject.name} come with their rows: INSERT them."
        raise NotAllowed(message, reader.position(reader.peek()))
    while reader.next_word == "PARTITION":
        partitions.append(_partition(reader, subject.table))
        token = reader.peek()
        if reader.accept("LOCATION"):
            message = "Partitions lie below their table's folder; register files that lie elsewhere as a table."
            raise NotAllowed(message, reader.position(token))
        reader.accept_sign(TokenType.COMMA)
    return AddPartitions(subject.name, tuple(partitions), if_not_exists) if partitions else None


def _partition(reader: Reader, table: TableSource) -> dict[str, str | None]:
    """Read the values of all partition columns."""
    token = reader.peek()
    values: dict[str, str | None] = {}
    for condition in partition_conditions(reader, table):
        if not condition.is_equality or condition.column in values:
            raise NotAllowed("A partition that is added has one value of each column.", condition.position)
        values[condition.column] = None if condition.value is None else str(condition.value)
    missing = [name for name in table.partition_columns if name not in values]
    if missing:
        raise NotAllowed(f"PARTITION names each partition column; {missing[0]} is missing.", reader.position(token))
    return values
