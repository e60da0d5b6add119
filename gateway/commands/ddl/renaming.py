"""Names of tables and views.

ALTER TABLE | VIEW t RENAME TO u
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from gateway.commands.command import DONE, OwnedCommand
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.errors import TableBusy
from gateway.security.policy import Action
from gateway.statements.command import OwnedKind
from metastore.errors import AlreadyExists, NoDatabase, TableHeld
from sql.errors import NotAllowed, TableExists, UnknownDatabase, UnknownTable
from sql.tables import catalog_of


@dataclass(frozen=True, slots=True)
class Rename(OwnedCommand):
    """Give a table or a view another full name, perhaps of another database."""

    kind: OwnedKind
    name: str
    new_name: str

    actions = (Action.CREATE,)

    def impala_reply(self) -> str:
        """Return the sentence with which Impala says that this one is done."""
        return "Renaming was successful."

    def table_names(self, catalog: Iterable[str]) -> Iterator[str]:
        """Yield both names."""
        yield from (self.name, self.new_name)

    def run(self, services: CommandServices) -> pa.Table:
        """Rename it, unless its statistics are being computed."""
        catalog = catalog_of(self.name) or catalog_of(self.new_name)
        if catalog and self.kind is not OwnedKind.VIEW:
            raise NotAllowed(f"Tables of the catalog {catalog} are not renamed here: rename them in the catalog.")
        relations = services.metastore.views if self.kind is OwnedKind.VIEW else services.metastore.catalog
        try:
            is_renamed = relations.rename(self.name, self.new_name, check=self.owner_check(services))
        except AlreadyExists as error:
            raise TableExists(f"There is a table or view {self.new_name} already.") from error
        except NoDatabase as error:
            raise UnknownDatabase(f"The database {error} is gone.") from error
        except TableHeld as error:
            message = f"Statistics of {self.name} are being computed; rename it once that has ended, or cancel the job."
            raise TableBusy(message) from error
        if not is_renamed:
            raise UnknownTable(f"The {self.kind} {self.name} is gone.")
        return DONE


def parse(reader: Reader) -> Rename | None:
    """Read an ALTER statement that renames a table or view."""
    subject = reader.altered()
    if subject is None or subject.kind is OwnedKind.DATABASE or not reader.accept("RENAME"):
        return None
    reader.expect("TO")
    token = reader.peek()
    new_name = reader.new_relation()
    if new_name in reader.catalog or new_name in reader.views:
        reader.refuse_existing(new_name, token)
    return Rename(subject.kind, subject.name, new_name)
