"""Words of a statement, and names of what is in the catalog: databases, tables, views, columns and partitions."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot.tokenizer_core import Token, TokenType

from engines.protocol import TableSource
from engines.table_names import database_of
from gateway.errors import NotAllowed, UnknownColumn, UnknownTable, ValueOutOfRange
from gateway.sql.commands.commands import SetOwner
from gateway.sql.commands.definitions import Condition, OwnedKind, Test
from gateway.sql.commands.parsing.token_reader import WordReader
from gateway.sql.commands.writes import AS_THE_DIALECT_HAS_IT, PartitionSettings
from gateway.sql.names import CATALOG, IN_DEFAULT, Naming, did_you_mean, require_usable, temporary_name
from gateway.sql.parsing import ParserLimits
from metastore.records import View
from selector.types import WHOLE

_COMPARISONS: Mapping[TokenType, Test] = {
    TokenType.EQ: operator.eq,
    TokenType.NEQ: operator.ne,
    TokenType.LT: operator.lt,
    TokenType.LTE: operator.le,
    TokenType.GT: operator.gt,
    TokenType.GTE: operator.ge,
}


@dataclass(frozen=True, slots=True)
class Context:
    """What a statement is read against.

    catalog: tables by full name. views: by the names by which they are found. naming: what bare names mean. facts: what
    functions that tell of the session give. partitions: how the session writes them.
    """

    dialect: str
    catalog: Mapping[str, TableSource]
    limits: ParserLimits
    views: Mapping[str, View] = field(default_factory=dict)
    naming: Naming = IN_DEFAULT
    facts: Mapping[str, str] = field(default_factory=dict)
    partitions: PartitionSettings = AS_THE_DIALECT_HAS_IT


class RelationReader(WordReader):
    """Reads words, and names against what there is."""

    def __init__(self, sql: str, tokens: Sequence[Token], context: Context) -> None:
        super().__init__(sql, tokens)
        self._context = context
        self._dialect, self._limits = context.dialect, context.limits
        self._catalog, self._views, self._naming = context.catalog, context.views, context.naming

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
            self._naming.require(database_of(name), self._position(token))
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

    def _conditions(self, table: TableSource, *, values_needed: bool = True) -> tuple[Condition, ...]:
        """Read PARTITION with its conditions; where no values are needed, a column may stand without one."""
        where = self._token()
        self._need("PARTITION")
        if not table.partition_columns:
            raise NotAllowed(f"The table {table.name} is not partitioned.", self._position(where))
        self._need_sign(TokenType.L_PAREN, "(")
        conditions = [self._condition(table, value_needed=values_needed)]
        while self._sign(TokenType.COMMA) or self._words("AND"):
            conditions.append(self._condition(table, value_needed=values_needed))
        self._need_sign(TokenType.R_PAREN, ")")
        return tuple(condition for condition in conditions if condition is not None)

    def _condition(self, table: TableSource, *, value_needed: bool) -> Condition | None:
        token = self._token()
        column = self._column(table)
        position = self._position(token)
        if column not in table.partition_columns:
            known = ", ".join(table.partition_columns)
            raise UnknownColumn(f"{column} is not a partition column; those are {known}.", position)
        if self._words("IS"):
            test: Test = operator.ne if self._words("NOT") else operator.eq
            self._need("NULL")
            return Condition(column, test, None, position)
        sign = self._token()
        if not value_needed and sign.token_type in (TokenType.COMMA, TokenType.R_PAREN):
            return None
        if sign.token_type not in _COMPARISONS:
            self._unexpected("a comparison")
        self._at += 1
        data_type = next(each.data_type for each in table.columns if each.name == column)
        return Condition(column, _COMPARISONS[sign.token_type], self._partition_value(data_type), position)

    def _partition_value(self, data_type: str) -> int | str | None:
        if self._words("NULL"):
            return None
        token = self._token()
        text = self._literal()
        if data_type not in WHOLE:
            return text
        try:
            return int(text)
        except ValueError:
            raise ValueOutOfRange(f"{text} is not a whole number.", self._position(token)) from None
