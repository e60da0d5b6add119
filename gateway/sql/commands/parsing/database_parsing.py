"""Statements about databases, which are the same in every dialect.

CREATE DATABASE | SCHEMA [IF NOT EXISTS] d [COMMENT '...'] [WITH DBPROPERTIES ('k' = 'v', ...)]
DROP DATABASE | SCHEMA [IF EXISTS] d [RESTRICT | CASCADE]
ALTER DATABASE | SCHEMA d SET OWNER USER name | SET DBPROPERTIES ('k' = 'v', ...)
DESCRIBE DATABASE | SCHEMA [EXTENDED] d
"""

from __future__ import annotations

import re

from engines.table_names import DEFAULT_DATABASE
from gateway.errors import DatabaseExists, NotAllowed
from gateway.sql.commands.commands import CreateDatabase, DescribeDatabase, SetOwner
from gateway.sql.commands.definitions import OwnedKind, SetProperties
from gateway.sql.commands.parsing.relation_reader import Context, RelationReader
from gateway.sql.commands.parsing.token_reader import words_of
from gateway.sql.commands.writes import DropDatabase
from gateway.sql.parsing import require_length

_HEAD = re.compile(
    r"(?:[\s;]++|--[^\n]*+|/\*(?s:.)*?\*/)*+(?:CREATE|DROP|ALTER|DESCRIBE|DESC)\s+(?:DATABASE|SCHEMA)\s+[^\s;]",
    re.IGNORECASE,
)
_NAME = re.compile(r"[a-z0-9_]{1,128}")


def parse(
    sql: str, context: Context
) -> CreateDatabase | DropDatabase | DescribeDatabase | SetOwner | SetProperties | None:
    """Return what a text says of a database, None where it says nothing of one. Raises SqlError."""
    if _HEAD.match(sql) is None:
        return None
    require_length(sql, context.limits)
    return _DatabaseReader(sql, words_of(sql, context.limits), context).command()


class _DatabaseReader(RelationReader):
    """Reads one statement about a database."""

    def command(self) -> CreateDatabase | DropDatabase | DescribeDatabase | SetOwner | SetProperties:
        verb = self._name().upper()
        self._name()
        match verb:
            case "CREATE":
                return self._create_database()
            case "DROP":
                return self._drop_database()
            case "ALTER":
                return self._alter_database()
            case _:
                details = self._ahead(2) and self._words("EXTENDED")
                database = self._database()
                self._end()
                return DescribeDatabase(database, details)

    def _alter_database(self) -> SetOwner | SetProperties:
        database = self._database()
        verb = self._token()
        changed: SetOwner | SetProperties
        if self._words("SET", "OWNER"):
            changed = self._owner(database, OwnedKind.DATABASE)
        elif self._words("SET", "DBPROPERTIES") or self._words("SET", "PROPERTIES"):
            changed = SetProperties(OwnedKind.DATABASE, database, self._properties())
        else:
            message = "ALTER DATABASE is not allowed but for SET OWNER and SET DBPROPERTIES."
            raise NotAllowed(message, self._position(verb))
        self._end()
        return changed

    def _create_database(self) -> CreateDatabase:
        if_not_exists = self._words("IF", "NOT", "EXISTS")
        where = self._token()
        database = self._new_database()
        if not _NAME.fullmatch(database):
            raise NotAllowed("The name of a database has letters, digits and _, at most 128.", self._position(where))
        if database in self._naming.databases and not if_not_exists:
            raise DatabaseExists(f"There is a database {database} already.", self._position(where))
        comment, properties = "", {}
        while self._more():
            if self._words("COMMENT"):
                comment = self._text("a text")
            elif self._words("WITH", "DBPROPERTIES"):
                properties = self._properties()
            elif self._words("LOCATION") or self._words("MANAGEDLOCATION"):
                message = "Databases have no folders here: tables are made in the gateway's warehouse."
                raise NotAllowed(message, self._position(self._token()))
            else:
                self._unexpected("COMMENT or WITH DBPROPERTIES")
        self._end()
        return CreateDatabase(database, comment, properties, if_not_exists)

    def _drop_database(self) -> DropDatabase:
        if_exists = self._words("IF", "EXISTS")
        where = self._token()
        database = self._new_database()
        cascade = self._words("CASCADE")
        if not cascade:
            self._words("RESTRICT")
        self._end()
        if not if_exists:
            self._naming.require(database, self._position(where))
        if database == DEFAULT_DATABASE:
            raise NotAllowed(f"The database {DEFAULT_DATABASE} cannot be dropped.", self._position(where))
        return DropDatabase(database, existing=database in self._naming.databases, cascade=cascade)
