"""Databases: statements that make, drop, show and describe them. All are the same in every dialect.

CREATE DATABASE | SCHEMA [IF NOT EXISTS] d [COMMENT '...'] [WITH DBPROPERTIES ('k' = 'v', ...)]
DROP DATABASE | SCHEMA [IF EXISTS] d [RESTRICT | CASCADE]
DESCRIBE | DESC DATABASE | SCHEMA [EXTENDED] d
SHOW DATABASES | SCHEMAS | NAMESPACES | CATALOGS [[LIKE] 'x*|y']      SHOW CURRENT DATABASE | SCHEMA | NAMESPACE
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from gateway.commands.command import DONE, Definition, RunnableCommand, ShowCommand, Write
from gateway.commands.grammar.reader import Reader
from gateway.commands.relations import matching
from gateway.commands.services import CommandServices
from gateway.security.policy import Action, Need
from gateway.statements.command import Kind, OwnedCatalog, OwnedKind, owned, owned_relation
from gateway.statistics.tables import texts_of
from metastore.errors import AlreadyExists
from metastore.records import Database
from sql.dialects.names import HIVE, IMPALA
from sql.errors import DatabaseExists, NotAllowed, UnknownDatabase
from sql.names import CATALOG
from sql.tables import DEFAULT_DATABASE, database_of

NOBODY = "-"  # owner of what belongs to nobody
DATABASES = {HIVE: ("database_name",), IMPALA: ("name", "comment")}
DESCRIPTION: Mapping[str, Sequence[str]] = {
    HIVE: ("db_name", "comment", "location", "owner_name", "owner_type", "parameters"),
    IMPALA: ("name", "location", "comment"),
}
INFORMATION = ("info_name", "info_value")

_NAME = re.compile(r"[a-z0-9_]{1,128}|[a-z][a-z0-9_]{0,62}\.[a-z0-9_]{1,64}")


@dataclass(frozen=True, slots=True)
class CreateDatabase(Definition):
    """Make a database, or a namespace of an Iceberg catalog. if_not_exists: one that exists is no mistake."""

    database: str
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False

    actions = (Action.CREATE,)
    impala_words = "Database has been created."

    def run(self, services: CommandServices) -> pa.Table:
        """Make it."""
        database = Database(self.database, self.comment, self.properties, services.principal.owner)
        is_new = self.database not in services.catalog.current().databases
        if "." in self.database and is_new:
            services.catalogs.require(self.database.partition(".")[0])
            services.registration.lake.require_database(database, services.run.requester, there=True)
        if self.database in services.catalogs.names:
            raise DatabaseExists(f"There is a catalog {self.database}: give the database another name.")
        try:
            services.metastore.databases.add(database)
        except AlreadyExists as error:
            if not self.if_not_exists:
                raise DatabaseExists(f"There is a database {self.database} already.") from error
        return DONE


@dataclass(frozen=True, slots=True)
class DropDatabase(Write):
    """Drop a database.

    cascade: with all that it holds; without, it has to be empty.
    existing: it exists, as far as the user may know.
    """

    database: str
    cascade: bool = False
    existing: bool = True

    rule_kind = Kind.DDL
    impala_words = "Database has been dropped."

    def required_actions(self, catalog: OwnedCatalog) -> Iterator[Need]:
        """Yield the right to drop it, and all that goes with it."""
        if not self.existing:
            return
        yield Need(Action.DROP, owned(OwnedKind.DATABASE, self.database, catalog))
        for name in self._dropped((*catalog.tables, *catalog.views)):
            yield Need(Action.DROP, owned_relation(name, catalog))

    def table_names(self, catalog: Iterable[str]) -> Iterator[str]:
        """Yield the tables and views that go with it."""
        yield from self._dropped(catalog)

    def _dropped(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self.cascade and database_of(name) == self.database]


@dataclass(frozen=True, slots=True)
class DescribeDatabase(ShowCommand):
    """Describe a database. details: with its properties."""

    database: str
    details: bool = False

    def run(self, services: CommandServices) -> pa.Table:
        """Return what is known of it, in the layout of the statement's dialect."""
        dialect = services.dialect
        database = services.shown_catalog.databases.get(self.database)
        if database is None:  # since it was parsed
            raise UnknownDatabase(f"The database {self.database} is gone.")
        name, comment, owner = database.name, database.comment, database.owner or NOBODY
        if dialect == HIVE:
            properties = "{" + _pairs(database, "=") + "}" if self.details and database.properties else ""
            return texts_of(DESCRIPTION[HIVE], [[name, comment, "", owner, "USER", properties]])
        if dialect == IMPALA:
            details = [["Owner: ", "", ""], ["", owner, "USER"]] if self.details else []
            return texts_of(DESCRIPTION[IMPALA], [[name, "", comment], *details])
        catalog, namespace = _in_parts(name)
        rows = [["Catalog Name", catalog], ["Namespace Name", namespace], ["Comment", comment], ["Owner", owner]]
        if self.details:
            rows.append(["Properties", f"({_pairs(database, ',', '({})')})" if database.properties else ""])
        return texts_of(INFORMATION, rows)


@dataclass(frozen=True, slots=True)
class ShowDatabases(ShowCommand):
    """List databases. pattern: of their names, None for all."""

    pattern: str | None = None

    is_reading = True

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per database."""
        databases = services.shown_catalog.databases
        headings = DATABASES.get(services.dialect, ("namespace",))
        names = matching(sorted(databases), self.pattern)
        return texts_of(headings, [[name, databases[name].comment][: len(headings)] for name in names])


@dataclass(frozen=True, slots=True)
class ShowCatalogs(ShowCommand):
    """List the gateway's own catalog and those of Iceberg. pattern: of their names; None for all."""

    pattern: str | None = None

    def run(self, services: CommandServices) -> pa.Table:
        """Return a row per catalog."""
        names = sorted({CATALOG, *services.catalogs.names})
        return texts_of(("catalog",), [[name] for name in matching(names, self.pattern)])


@dataclass(frozen=True, slots=True)
class ShowNamespace(ShowCommand):
    """Show the database of bare names."""

    def run(self, services: CommandServices) -> pa.Table:
        """Return it with its catalog."""
        return texts_of(("catalog", "namespace"), [_in_parts(services.run.statement.database)])


def _in_parts(database: str) -> list[str]:
    """Return the catalog of a database and its name there."""
    catalog, dot, namespace = database.partition(".")
    return [catalog, namespace] if dot else [CATALOG, database]


def _pairs(database: Database, between: str, form: str = "{}") -> str:
    return ", ".join(form.format(f"{key}{between}{value}") for key, value in sorted(database.properties.items()))


# ---------------------------------------------------------------------- grammar


def parse(reader: Reader) -> RunnableCommand | None:
    """Read a statement about databases."""
    if reader.accept("SHOW"):
        return _show(reader)
    verb = reader.name().upper()
    if not reader.has_ahead(2) or not reader.accept_one("DATABASE", "SCHEMA"):  # a table may be called database
        return None
    match verb:
        case "CREATE":
            return _create(reader)
        case "DROP":
            return _drop(reader)
        case _:
            details = reader.has_ahead(2) and reader.accept("EXTENDED")
            return DescribeDatabase(reader.database(), details)


def _show(reader: Reader) -> RunnableCommand | None:
    if reader.accept_one("DATABASES", "SCHEMAS", "NAMESPACES"):
        return ShowDatabases(reader.pattern())
    if reader.accept("CATALOGS"):
        return ShowCatalogs(reader.pattern())
    if not reader.accept("CURRENT") or reader.next_word == "ROLES":
        return None
    if not reader.accept_one("DATABASE", "SCHEMA"):
        reader.expect("NAMESPACE")
    return ShowNamespace()


def _create(reader: Reader) -> CreateDatabase:
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    token = reader.peek()
    database = reader.new_database()
    if not _NAME.fullmatch(database):
        raise NotAllowed("The name of a database has letters, digits and _, at most 128.", reader.position(token))
    if database in reader.naming.databases and not if_not_exists:
        raise DatabaseExists(f"There is a database {database} already.", reader.position(token))
    comment, properties = "", {}
    while reader.more():
        if reader.accept("COMMENT"):
            comment = reader.text("a text")
        elif reader.accept("WITH", "DBPROPERTIES"):
            properties = reader.properties()
        elif reader.accept_one("LOCATION", "MANAGEDLOCATION"):
            message = "Databases have no folders here: tables are made in the gateway's warehouse."
            raise NotAllowed(message, reader.position(reader.peek()))
        else:
            reader.unexpected("COMMENT or WITH DBPROPERTIES")
    return CreateDatabase(database, comment, properties, if_not_exists)


def _drop(reader: Reader) -> DropDatabase:
    if_exists = reader.accept("IF", "EXISTS")
    token = reader.peek()
    database = reader.new_database()
    cascade = reader.accept("CASCADE")
    if not cascade:
        reader.accept("RESTRICT")
    reader.end()
    if not if_exists:
        reader.naming.require(database, reader.position(token))
    if database == DEFAULT_DATABASE:
        raise NotAllowed(f"The database {DEFAULT_DATABASE} cannot be dropped.", reader.position(token))
    return DropDatabase(database, cascade, database in reader.naming.databases)
