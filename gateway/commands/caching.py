"""Tables in object stores whose columns are fetched before somebody reads them.

CACHE [LAZY] TABLE t [OPTIONS ('columns' = 'a, b')]
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from gateway.commands.command import TargetCommand, summary
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.security.policy import Action
from gateway.statements.command import Kind
from gateway.statements.statement import WaitsFor
from selector.wording import mebibytes
from sql.errors import NotAllowed, UnknownColumn
from sql.names import did_you_mean
from sql.tables import TableSource

_COLUMNS = "columns"
"""Option of ours; others are Spark's, about its memory."""


@dataclass(frozen=True, slots=True)
class CacheTable(TargetCommand):
    """Have columns of a table's newest snapshot on this machine.

    columns: in small letters; None: all.
    is_lazy: the next statements fetch what they read.
    """

    target: TableSource
    columns: frozenset[str] | None = None
    is_lazy: bool = False

    rule_kind = Kind.STATISTICS
    table_action = Action.REFRESH

    @property
    def reads(self) -> tuple[TableSource, ...]:
        """The table."""
        return (self.target,)

    def run(self, services: CommandServices) -> pa.Table:
        """Fetch what is missing, and return a sentence. Raises SqlError, ObjectStoreUnavailable, ObjectCacheFull."""
        name, run, registration = self.target.name, services.run, services.registration
        pinned = registration.pinned((self.target,), run.requester)
        if not registration.in_object_stores(pinned):
            return summary(f"The files of {name} are on this machine.")
        if self.is_lazy:
            return summary(f"Columns of {name} are fetched once statements read them.")
        before = services.objects.bytes_here(self.target)
        with run.waits(WaitsFor.OBJECTS), registration.reading(pinned, self.columns, run.require):
            here = services.objects.bytes_here(self.target)
        return summary(
            f"{'All columns' if self.columns is None else f'{len(self.columns)} column(s)'} of {name} are on this "
            f"machine: {mebibytes(here)}, {mebibytes(max(0, here - before))} of it fetched now."
        )


def parse(reader: Reader) -> CacheTable | None:
    """Read a statement that has a table fetched."""
    if not reader.accept("CACHE"):
        return None
    is_lazy = reader.accept("LAZY")
    reader.expect("TABLE")
    target = reader.table()
    columns = _columns(reader, target) if reader.accept("OPTIONS") else None
    if reader.more():
        raise NotAllowed(
            "The rows of a query are not cached under a name: use CREATE TABLE ... AS, or "
            f"CACHE TABLE {target.name} OPTIONS ('{_COLUMNS}' = 'a, b') for some columns of a table.",
            reader.position(reader.peek()),
        )
    return CacheTable(target, columns, is_lazy)


def _columns(reader: Reader, target: TableSource) -> frozenset[str] | None:
    token = reader.peek()
    text = reader.properties().get(_COLUMNS)
    if text is None:
        return None
    known = {column.name.lower() for column in target.columns}
    columns = frozenset(name.strip().lower() for name in text.split(","))
    for name in sorted(columns - known):
        message = f"{target.name} has no column {name!r:.100}{did_you_mean(name, known)}"
        raise UnknownColumn(message, reader.position(token))
    return columns
