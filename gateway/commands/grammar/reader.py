"""Reader of one statement, which families of commands read with: its words, and names of what is in the catalog."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from sqlglot.tokenizer_core import Token

from engines.compiled import SPARK_WRITER
from gateway.commands.grammar.token_reader import TokenReader
from gateway.security.access.rules import Privilege
from gateway.statements.command import OwnedKind
from gateway.statements.partitions import AS_THE_DIALECT_HAS_IT, PartitionSettings
from sql.access.rights import visible
from sql.dialects.session_functions import Facts
from sql.errors import AccessDenied, NotAllowed, TableExists, UnknownColumn, UnknownTable
from sql.names import CATALOG, IN_DEFAULT, Naming, did_you_mean, require_usable, temporary_name
from sql.parsing import ParserLimits
from sql.tables import Column, TableSource, View, database_of, name_in_database

if TYPE_CHECKING:
    from gateway.commands.command import RunnableStatement
    from gateway.security.access.user_access import UserAccess

_RELATION_NAME = re.compile(r"[a-z0-9_]{1,128}")


def _no_statement_inside(sql: str) -> RunnableStatement:
    raise NotAllowed("A statement in another one is not allowed here.")


@dataclass(frozen=True, slots=True)
class Context:
    """Catalog, session and limits that a statement is read against."""

    dialect: str
    catalog: Mapping[str, TableSource]
    """All tables by full name."""
    limits: ParserLimits
    views: Mapping[str, View] = field(default_factory=dict)
    """All views by the names by which they are found."""
    naming: Naming = IN_DEFAULT
    """Meaning of bare names."""
    facts: Facts = field(default_factory=dict)
    """Results of functions that tell of the session."""
    partitions: PartitionSettings = AS_THE_DIALECT_HAS_IT
    """Settings of the session for partitions that are written."""
    writers: tuple[str, ...] = (SPARK_WRITER,)
    """Writers of the engines that queries are written for."""
    classify: Callable[[str], RunnableStatement] = _no_statement_inside
    """Reads a whole statement that stands in this one."""
    access: UserAccess | None = None
    """Rights of the user; None: everything may be read."""


@dataclass(frozen=True, slots=True)
class Altered:
    """Subject of an ALTER statement. table: None of views and databases. view: None of tables and databases."""

    kind: OwnedKind
    name: str
    table: TableSource | None = None
    view: View | None = None


class Reader(TokenReader):
    """Reads words, and names against what is in the catalog, as far as the user may know of it.

    A name is refused where the user may see a part of the relation alone, unless the command says that it obeys that.
    """

    def __init__(self, sql: str, context: Context) -> None:
        super().__init__(sql, context.limits)
        self.context = context
        self.dialect, self.naming = context.dialect, context.naming
        self.catalog, self.views = visible(context.catalog, context.access), visible(context.views, context.access)

    # ------------------------------------------------------------------ databases

    def database(self) -> str:
        """Read the name of a database that exists. Raises UnknownDatabase."""
        token = self.peek()
        return self.naming.require(self.new_database(), self.position(token))

    def new_database(self) -> str:
        """Read the name of a database, which may stand behind the one catalog's."""
        parts = self.name_parts()
        return ".".join(parts[1:] if len(parts) > 1 and parts[0].lower() == CATALOG else parts).lower()

    def database_or_current(self) -> str:
        """Read IN or FROM with a database; return the statement's own where neither is next."""
        return self.database() if self.accept_one("IN", "FROM") else self.naming.database

    # ------------------------------------------------------------------ tables and views

    def full_name(self) -> str:
        """Read the name of a table or view that may exist or not."""
        return self.naming.full(self.name_parts())

    def visible_name(self) -> tuple[str, list[str]]:
        """Read the name of a table or view; return the one by which it is found, and its parts."""
        parts = self.name_parts()
        own = temporary_name(parts[0])
        return own if len(parts) == 1 and own in self.views else self.naming.full(parts), parts

    def relation(self, *, in_part: bool = False) -> str:
        """Read the name of a table or a view that exists.

        in_part: the command shows what the user may see of it. Raises UnknownTable, AccessDenied.
        """
        token = self.peek()
        name, parts = self.visible_name()
        view = self.views.get(name)
        if view is None:
            return self.resolve_table(name, parts, token, in_part=in_part).name
        if not in_part:
            self.require_whole(name, view.columns, token)
        return name

    def table(self, *, to_mend: bool = False, in_part: bool = False) -> TableSource:
        """Read the name of a table that exists, and that can be used unless it is to be mended.

        in_part: the command obeys what the user may see of it. Raises UnknownTable, AccessDenied.
        """
        token = self.peek()
        parts = self.name_parts()
        return self.resolve_table(self.naming.full(parts), parts, token, to_mend=to_mend, in_part=in_part)

    def require_whole(self, name: str, columns: Sequence[Column], token: Token) -> None:
        """Raise AccessDenied for a table or view of which the user may not see all rows and columns."""
        access = self.context.access
        if access is not None and access.restriction(name, columns) is not None:
            message = (
                f"{access.name} may see a part of {name} alone, and this takes all of its rows and columns. "
                "Ask its owner, or an administrator."
            )
            raise AccessDenied(message, self.position(token))

    def may_insert(self, name: str) -> bool:
        """Tell whether a grant lets the user add rows to a table, of which he need not see any."""
        return self.context.access is None or self.context.access.has(Privilege.INSERT, name)

    def resolve_table(
        self, name: str, parts: Sequence[str], token: Token, *, to_mend: bool = False, in_part: bool = False
    ) -> TableSource:
        """Return the table of a full name. parts: as they were read; token: the first of them. Raises UnknownTable."""
        table = self.catalog.get(name)
        if table is None:
            self.naming.require(database_of(name), self.position(token))
            message = f"There is no table {name}{did_you_mean(name, self.catalog)}"
            raise UnknownTable(message, self.position(token), name=".".join(parts))
        if not in_part:
            self.require_whole(name, table.columns, token)
        return table if to_mend else require_usable(table, self.position(token))

    def new_relation(self) -> str:
        """Read the full name of a table or view that is to be made, in a database that exists."""
        token = self.peek()
        name = self.full_name()
        self.naming.require(database_of(name), self.position(token))
        self._require_well_formed(name_in_database(name), token)
        access, database = self.context.access, database_of(name)
        if access is not None and not access.may_create_in(database):
            message = f"{access.name} may not make tables or views in the database {database}. Ask an administrator."
            raise AccessDenied(message, self.position(token))
        return name

    def new_temporary_view(self) -> str:
        """Read the name of a view that is in no database."""
        token = self.peek()
        parts = self.name_parts()
        if len(parts) > 1:
            raise NotAllowed("A temporary view is in no database; give it a name of one part.", self.position(token))
        self._require_well_formed(parts[0].lower(), token)
        return parts[0].lower()

    def _require_well_formed(self, name: str, token: Token) -> None:
        if not _RELATION_NAME.fullmatch(name):
            raise NotAllowed("Such a name has letters, digits and _, at most 128.", self.position(token))

    def refuse_existing(self, name: str, token: Token) -> NoReturn:
        """Raise TableExists for the name of a table or view that exists."""
        kind = "table" if name in self.catalog else "view"
        raise TableExists(f"There is a {kind} {name} already.", self.position(token))

    # ------------------------------------------------------------------ columns

    def column(self, table: TableSource) -> str:
        """Read the name of a table's column and return it as the catalog spells it."""
        return self.column_of(table.name, table.columns)

    def column_of(self, relation: str, columns: Sequence[Column]) -> str:
        """Read the name of one of these columns and return it as the catalog spells it."""
        token = self.peek()
        spelled = {column.name.lower(): column.name for column in columns}
        name = self.name()
        if name.lower() not in spelled:
            message = f"There is no column {name} in {relation}{did_you_mean(name, spelled)}"
            raise UnknownColumn(message, self.position(token))
        return spelled[name.lower()]

    # ------------------------------------------------------------------ what several statements have in common

    def altered(self, *, to_mend: bool = False) -> Altered | None:
        """Read the head of an ALTER statement; None where the text is none.

        to_mend: a table may have a defect, which the statement mends. Raises SqlError for what does not exist.
        """
        if self.accept("ALTER", "DATABASE") or self.accept("ALTER", "SCHEMA"):
            return Altered(OwnedKind.DATABASE, self.database())
        must_be_view = self.accept("ALTER", "VIEW")
        if not must_be_view and not self.accept("ALTER", "TABLE"):
            return None
        token = self.peek()
        name, parts = self.visible_name()
        view = self.views.get(name)
        if view is None and must_be_view:
            raise UnknownTable(f"There is no view {name}{did_you_mean(name, self.views)}", self.position(token))
        if view is None:
            table = self.resolve_table(name, parts, token, to_mend=to_mend)
            return Altered(OwnedKind.TABLE, table.name, table)
        if view.temporary and self.next_word not in ("AS", "("):
            message = f"{view.name} is this session's temporary view; only its query can be changed: ALTER VIEW ... AS."
            raise UnknownTable(message, self.position(token))
        self.require_whole(name, view.columns, token)
        return Altered(OwnedKind.VIEW, name, view=view)

    def pattern(self) -> str | None:
        """Read a pattern of names, if there is one; where it is a single word it needs no quotes."""
        self.accept("LIKE")
        return self.text_or_name("a pattern") if self.more() else None
