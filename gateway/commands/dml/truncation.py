"""Rows that go with their files: all of a table, or those of some partitions.

TRUNCATE [TABLE] [IF EXISTS] t [PARTITION (p = 1)]      ALTER TABLE t DROP [IF EXISTS] PARTITION (p = 1), ... [PURGE]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot.tokenizer_core import TokenType

from gateway.commands.command import TableCommand, Write
from gateway.commands.grammar.conditions import Condition, partition_conditions
from gateway.commands.grammar.reader import Reader
from gateway.security.policy import Action, Need
from gateway.statements.command import OwnedCatalog
from sql.tables import TableSource

if TYPE_CHECKING:
    from metastore.records import Partition


@dataclass(frozen=True, slots=True)
class Truncate(Write, TableCommand):
    """Delete rows of a table that stays."""

    table: str
    target: TableSource | None
    """None where it does not exist."""
    partitions: tuple[tuple[Condition, ...], ...] | None = None
    """Partitions whose rows go: those that fulfil all conditions of one of these groups; None for all."""
    if_exists: bool = False
    """A table or partition that does not exist is no mistake."""

    table_action = Action.CHANGE_ROWS

    def required_actions(self, catalog: OwnedCatalog) -> Iterator[Need]:
        """Yield the right to delete rows of a table that exists, as far as the user may know."""
        if self.target is not None:
            yield from TableCommand.required_actions(self, catalog)

    def impala_reply(self) -> str:
        """Return the sentence with which Impala says that this one is done."""
        return "Table has been truncated." if self.partitions is None else "Dropped the partition(s)."

    def means(self, partition: Partition) -> bool:
        """Tell whether a partition's rows go."""
        groups = self.partitions or ()
        return any(all(condition.holds(partition.values) for condition in group) for group in groups)


def parse(reader: Reader) -> Truncate | None:
    """Read a statement that deletes rows with their files."""
    if reader.accept("TRUNCATE"):
        return _truncate(reader)
    subject = reader.altered()
    if subject is None or subject.table is None or not reader.accept("DROP"):
        return None
    if_exists = reader.accept("IF", "EXISTS")
    if reader.next_word != "PARTITION":
        return None
    groups = [partition_conditions(reader, subject.table)]
    while reader.accept_sign(TokenType.COMMA):
        groups.append(partition_conditions(reader, subject.table))
    reader.accept("PURGE")
    return Truncate(subject.name, subject.table, tuple(groups), if_exists=if_exists)


def _truncate(reader: Reader) -> Truncate:
    reader.accept("TABLE")
    if_exists = reader.accept("IF", "EXISTS")
    token = reader.peek()
    name = reader.full_name()
    target = reader.catalog.get(name) if if_exists else reader.resolve_table(name, [name], token)
    if target is None:
        reader.skip_rest()  # whose columns are not known
        return Truncate(name, None, if_exists=if_exists)
    partitions = (partition_conditions(reader, target),) if reader.more() else None
    return Truncate(name, target, partitions, if_exists=if_exists)
