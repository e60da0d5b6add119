"""Another look at the files of tables.

REFRESH [TABLE] t [PARTITION (p = 1, ...)]      INVALIDATE METADATA [t]
MSCK [REPAIR] TABLE t [ADD | DROP | SYNC PARTITIONS]      ALTER TABLE t RECOVER PARTITIONS
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from gateway.commands.command import StatisticsCommand, summary
from gateway.commands.grammar.conditions import partition_conditions
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.security.policy import Action
from sql.errors import SqlError, TableUnreadable


@dataclass(frozen=True, slots=True)
class Refresh(StatisticsCommand):
    """Look at files again. table: None for all tables."""

    table: str | None = None

    actions = (Action.REFRESH,)

    def table_names(self, catalog: Iterable[str]) -> Iterator[str]:
        """Yield the table, or all that there are."""
        yield from catalog if self.table is None else (self.table,)

    def run(self, services: CommandServices) -> pa.Table:
        """Look at them, and go on behind a table that cannot be read."""
        if self.table is not None:
            services.refresh(self.table)
            return summary("Refreshed 1 table(s).")
        names = list(services.catalog.current().tables)
        unreadable = []
        for name in names:
            services.run.require()
            try:
                services.refresh(name)
            except SqlError as error:
                unreadable.append(f"{name}: {error}")
        if unreadable:
            raise TableUnreadable("; ".join(unreadable))
        return summary(f"Refreshed {len(names)} table(s).")


def parse(reader: Reader) -> Refresh | None:
    """Read a statement that has files looked at."""
    if reader.accept("REFRESH"):
        return _refresh(reader)
    if reader.accept("INVALIDATE"):
        reader.expect("METADATA")
        return Refresh(reader.table(to_mend=True).name if reader.more() else None)
    if reader.accept("MSCK"):
        return _repair(reader)
    subject = reader.altered(to_mend=True)
    if subject is None or subject.table is None or not reader.accept("RECOVER", "PARTITIONS"):
        return None
    return Refresh(subject.name)


def _refresh(reader: Reader) -> Refresh:
    reader.accept("TABLE")
    table = reader.table(to_mend=True)
    if reader.more():
        partition_conditions(reader, table)  # only to find mistakes: looking at a whole table is cheap enough
    return Refresh(table.name)


def _repair(reader: Reader) -> Refresh:
    reader.accept("REPAIR")
    reader.expect("TABLE")
    table = reader.table(to_mend=True)
    if reader.accept_one("ADD", "DROP", "SYNC"):
        reader.expect("PARTITIONS")
    return Refresh(table.name)
