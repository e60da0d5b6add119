"""Properties of tables, views and databases.

ALTER TABLE | VIEW t SET TBLPROPERTIES ('k' = 'v', ...)
ALTER TABLE | VIEW t UNSET TBLPROPERTIES [IF EXISTS] ('k', ...)
ALTER DATABASE d SET DBPROPERTIES | PROPERTIES (...)        SHOW TBLPROPERTIES t [('key')]

A table's property ``numRows`` is a statistic, which Impala's users set in this way.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot.tokenizer_core import TokenType

from gateway.commands.command import DONE, OwnedCommand, RunnableCommand, ShowCommand, TableCommand
from gateway.commands.grammar.reader import Reader
from gateway.commands.relations import described
from gateway.commands.services import CommandServices
from gateway.commands.statistics.by_hand import MARK_KEY, ROWS_KEY, SetRows, read_figure
from gateway.security.policy import Action, Need
from gateway.statements.command import OwnedCatalog, OwnedKind, owned_relation
from gateway.statistics.tables import texts_of
from sql.dialects.names import HIVE
from sql.errors import UnknownDatabase, UnknownProperty
from sql.tables import Annotations

HEADINGS: Mapping[str, Sequence[str]] = {HIVE: ("prpt_name", "prpt_value")}


@dataclass(frozen=True, slots=True)
class SetProperties(OwnedCommand):
    """Set properties, beside those that are set. rows: of the table, where ``numRows`` is among them."""

    kind: OwnedKind
    name: str
    properties: Mapping[str, str]
    rows: int | None = None

    def required_actions(self, catalog: OwnedCatalog) -> Iterator[Need]:
        """Yield the actions that its user must be allowed, beside running queries."""
        yield from OwnedCommand.required_actions(self, catalog)
        if self.rows is not None:
            yield Need(Action.CHANGE_STATISTICS, owned_relation(self.name, catalog))

    def run(self, services: CommandServices) -> pa.Table:
        """Set them."""
        if self.kind is OwnedKind.DATABASE:
            check = self.owner_check(services)
            if not services.metastore.databases.set_properties(self.name, self.properties, check=check):
                raise UnknownDatabase(f"The database {self.name} is gone.")
            return DONE
        if not _set_in_table(services, self, self.properties):
            self.annotate(services, self._changed)
        if self.rows is not None:
            services.metastore.statistics.amend(self.name, at=dt.datetime.now(dt.UTC), rows=self.rows)
        return DONE

    def _changed(self, annotations: Annotations) -> Annotations:
        return replace(annotations, properties={**annotations.properties, **self.properties})


@dataclass(frozen=True, slots=True)
class UnsetProperties(OwnedCommand):
    """Take properties away. if_exists: one that is not set is no mistake."""

    kind: OwnedKind
    name: str
    keys: tuple[str, ...]
    if_exists: bool = False

    def run(self, services: CommandServices) -> pa.Table:
        """Take them away."""
        present = described(services, self.name).annotations.properties
        missing = next((key for key in self.keys if key not in present), None)
        if missing is not None and not self.if_exists:
            raise UnknownProperty(f"{self.name} has no property {missing}; add IF EXISTS where that may be so.")
        _set_in_table(services, self, dict.fromkeys(self.keys))
        self.annotate(services, self._changed)
        return DONE

    def _changed(self, annotations: Annotations) -> Annotations:
        properties = {key: value for key, value in annotations.properties.items() if key not in self.keys}
        return replace(annotations, properties=properties)


@dataclass(frozen=True, slots=True)
class ShowProperties(ShowCommand, TableCommand):
    """Show the properties of a table or view. key: of one property; None for all."""

    table: str
    key: str | None = None

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per property."""
        properties = described(services, self.table).properties
        if self.key is not None:
            missing = f"Table {self.table} does not have property: {self.key}"
            properties = {self.key: properties.get(self.key, missing)}
        return texts_of(HEADINGS.get(services.dialect, ("key", "value")), [list(row) for row in properties.items()])


def _set_in_table(
    services: CommandServices, command: SetProperties | UnsetProperties, properties: Mapping[str, str | None]
) -> bool:
    """Set properties in a lake table itself, where all its readers and writers see them; False: it is none.

    None takes one away, if it is there.
    """
    if command.kind is not OwnedKind.TABLE:
        return False
    table = services.table(command.name)
    if not table.source.is_lake:
        return False
    command.owner_check(services)(table.owner)
    services.registration.require_unchanged((table.source,))
    lake, requester = services.registration.lake, services.run.requester
    own = lake.description(table.source, requester).properties if None in properties.values() else properties
    changed = {name: value for name, value in properties.items() if value is not None or name in own}
    if changed:
        lake.set_properties(table.source, changed, requester)
    return True


# ---------------------------------------------------------------------- grammar


def parse(reader: Reader) -> RunnableCommand | None:
    """Read a statement about properties."""
    if reader.accept("SHOW"):
        return _show(reader) if reader.accept("TBLPROPERTIES") else None
    subject = reader.altered()
    if subject is None:
        return None
    if subject.kind is OwnedKind.DATABASE:
        if reader.accept("SET", "DBPROPERTIES") or reader.accept("SET", "PROPERTIES"):
            return SetProperties(subject.kind, subject.name, reader.properties())
        return None
    if reader.accept("UNSET", "TBLPROPERTIES"):
        if_exists = reader.accept("IF", "EXISTS")
        return UnsetProperties(subject.kind, subject.name, reader.keys(), if_exists)
    if not reader.accept("SET", "TBLPROPERTIES"):
        return None
    if subject.kind is OwnedKind.VIEW:
        return SetProperties(subject.kind, subject.name, reader.properties())
    return _set(reader, subject.name)


def _set(reader: Reader, table: str) -> SetRows | SetProperties:
    """Read a table's properties, of which numRows is a statistic."""
    properties: dict[str, str] = {}
    rows: int | None = None

    def read_one() -> None:
        nonlocal rows
        key = reader.key()
        if key.lower() == ROWS_KEY.lower():
            rows = int(read_figure(reader, ROWS_KEY))
        else:
            reader.expect_sign(TokenType.EQ, "=")
            properties[key] = reader.literal()

    reader.expect_open()
    reader.rest_of_list(read_one)
    if rows is not None and all(key.upper() == MARK_KEY for key in properties):
        return SetRows(table, rows)
    return SetProperties(OwnedKind.TABLE, table, properties, rows)


def _show(reader: Reader) -> ShowProperties:
    name = reader.relation()
    if not reader.accept_open():
        return ShowProperties(name)
    key = reader.key()
    reader.expect_close()
    return ShowProperties(name, key)
