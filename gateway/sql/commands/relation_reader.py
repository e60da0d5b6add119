"""Words of a statement, and names of what is in the catalog: databases, tables, views and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from engines.protocol import TableSource
from gateway.errors import UnknownColumn, UnknownTable
from gateway.sql.commands.commands import OwnedKind, SetOwner
from gateway.sql.commands.token_reader import WordReader
from gateway.sql.names import CATALOG, Naming, did_you_mean, require_usable, temporary_name
from metastore.records import View


class RelationReader(WordReader):
    """Reads words and names. naming: what bare names mean. views: by the names by which they are found."""

    def __init__(
        self,
        sql: str,
        tokens: Sequence[Token],
        catalog: Mapping[str, TableSource],
        views: Mapping[str, View],
        naming: Naming,
    ) -> None:
        super().__init__(sql, tokens)
        self._catalog = catalog
        self._views = views
        self._naming = naming

    def _parts(self) -> list[str]:
        """Read a name and what stands before it, with dots between."""
        parts = [self._name()]
        while self._sign(TokenType.DOT):
            parts.append(self._name())
        return parts

    def _database(self) -> str:
        """Read the name of a database that is there. Raises UnknownDatabase."""
        token = self._token()
        return self._naming.require(self._new_database(), self._position(token))

    def _new_database(self) -> str:
        """Read the name of a database, which may stand behind the one catalog's."""
        parts = self._parts()
        return ".".join(parts[1:] if len(parts) > 1 and parts[0].lower() == CATALOG else parts).lower()

    def _full_name(self) -> str:
        """Read the name of a table or view that may be there or not."""
        return self._naming.full(self._parts())

    def _visible_name(self, database: str | None = None) -> tuple[str, list[str]]:
        """Read the name of a table or view; return the one by which it is found, and its parts.

        database: that a bare one is in, where it is not the statement's own.
        """
        parts = self._parts()
        if database is not None and len(parts) == 1:
            parts.insert(0, database)
        own = temporary_name(parts[0])
        return own if len(parts) == 1 and own in self._views else self._naming.full(parts), parts

    def _shown(self) -> str:
        """Read the name of a table or a view that is there. Raises UnknownTable."""
        token = self._token()
        name, parts = self._visible_name()
        return name if name in self._views else self._found(name, parts, token).name

    def _table(self, *, to_mend: bool = False) -> TableSource:
        """Read the name of a table that is there, and that can be used unless it is to be mended."""
        token = self._token()
        parts = self._parts()
        return self._found(self._naming.full(parts), parts, token, to_mend=to_mend)

    def _found(self, name: str, parts: Sequence[str], token: Token, *, to_mend: bool = False) -> TableSource:
        table = self._catalog.get(name)
        if table is None:
            message = f"There is no table {name}{did_you_mean(name, self._catalog)}"
            raise UnknownTable(message, self._position(token), name=".".join(parts))
        return table if to_mend else require_usable(table, self._position(token))

    def _column(self, table: TableSource) -> str:
        """Read the name of a table's column and return it as the catalog spells it."""
        token = self._token()
        spelled = {column.name.lower(): column.name for column in table.columns}
        name = self._name()
        if name.lower() not in spelled:
            message = f"There is no column {name} in {table.name}{did_you_mean(name, spelled)}"
            raise UnknownColumn(message, self._position(token))
        return spelled[name.lower()]

    def _owner(self, name: str, kind: OwnedKind) -> SetOwner:
        """Read who is to own something, behind SET OWNER."""
        if self._ahead(2):
            self._need("USER")
        is_text = self._token().token_type is TokenType.STRING
        return SetOwner(name, self._text("a name") if is_text else self._name(), kind)
