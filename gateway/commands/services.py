"""Services that a command may use while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from engines.files.listing import InspectionFailed
from gateway.catalog.lake.partitions import with_partitions
from gateway.commands.grammar.conditions import Condition, matching
from gateway.routing.admission.values import Request
from sql.errors import TableUnreadable, UnknownPartition, UnknownTable

if TYPE_CHECKING:
    from engines.protocol import Lease
    from gateway.catalog.lake.lake_catalogs import LakeCatalogs
    from gateway.catalog.lake.object_files import ObjectFiles
    from gateway.catalog.registration import Registration
    from gateway.catalog.snapshot import CatalogSnapshot, CatalogView
    from gateway.commands.command import Write
    from gateway.routing.admission.admission import Admission
    from gateway.routing.engines import EngineEntry, EngineRegistry
    from gateway.routing.router import Router
    from gateway.security.policy import Policy
    from gateway.security.principals import Principal
    from gateway.statements.session import Session
    from gateway.statements.statement import Run
    from gateway.statistics.jobs import JobRunner
    from metastore.records import CatalogTable, Partition
    from metastore.store import Metastore


class Writes(Protocol):
    """Carries writes out."""

    def write(self, write: Write, run: Run) -> pa.Table:
        """Do what a write without a query says."""


@dataclass(frozen=True, slots=True)
class CommandServices:
    """Services for one command, which runs in the thread of its statement."""

    run: Run
    metastore: Metastore
    catalog: CatalogView
    registration: Registration
    objects: ObjectFiles
    catalogs: LakeCatalogs
    jobs: JobRunner
    engines: EngineRegistry
    router: Router
    admission: Admission
    policy: Policy
    writer: Writes
    queue_s: float
    """Longest wait for an engine."""

    @property
    def dialect(self) -> str:
        """Dialect of the statement."""
        return self.run.statement.dialect

    @property
    def session(self) -> Session | None:
        """Session of the statement."""
        return self.run.statement.session

    @property
    def principal(self) -> Principal:
        """User of the statement."""
        return self.run.statement.principal

    @property
    def shown_catalog(self) -> CatalogSnapshot:
        """The catalog as the user may see it."""
        return self.catalog.shown_to(self.principal)

    def table(self, name: str) -> CatalogTable:
        """Return a table. Raises UnknownTable where it is gone since its name was read."""
        table = self.metastore.catalog.get(name)
        if table is None:
            raise UnknownTable(f"The table {name} is gone.")
        return table

    def partitioned(self, name: str) -> CatalogTable:
        """Return a table with its partitions. Raises UnknownTable, and as ``Registration.pinned`` does."""
        return with_partitions(self.table(name), self.registration, self.run.requester)

    def partitions(self, name: str, conditions: Sequence[Condition]) -> tuple[Partition, ...]:
        """Return the partitions of a table for which all conditions hold. Raises UnknownPartition where none does."""
        partitions = matching(self.partitioned(name).partitions, conditions)
        if not partitions:
            raise UnknownPartition("No partition matches.", conditions[0].position)
        return partitions

    def refresh(self, name: str) -> None:
        """Look at a table's files again, and tell all engines. Raises TableUnreadable."""
        location = self.table(name).source.location
        try:
            self.registration.refresh(name)
        except InspectionFailed as error:
            raise TableUnreadable(str(error).replace(location, name)) from error

    @contextmanager
    def on(self, entry: EngineEntry, *, memory_bytes: int = 0) -> Iterator[Lease]:
        """Hold a slot of an engine like a query's, and run there. Raises what the statement's end raises."""
        run, statement = self.run, self.run.statement
        request = Request(entry.name, memory_bytes, statement.principal, statement.pool, run.id)
        wait_s = min(self.queue_s, max(0.0, run.remaining_s))
        lease = self.admission.lease(request, wait_s=wait_s, cancelled=lambda: run.cancelled)
        with lease as grant, entry.breaker.watched(), run.on(entry.name):
            run.require()
            yield grant.lease
