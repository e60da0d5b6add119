"""Full names of tables and views: the one text by which maps, engines and records know each of them.

What lies in the database ``default`` is called as it is, ``orders``; what lies in another one has that before it,
``sales.orders``. Names of databases have no dots, so the first dot divides. An engine with databases of its own is
given names of two parts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from selector.quoting import spark_name

DEFAULT_DATABASE = "default"

_LITERAL_OR_NAME = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`", re.DOTALL)


def full_name(database: str, name: str) -> str:
    """Return the full name of what is called ``name`` in a database, in lower case."""
    return name.lower() if database.lower() == DEFAULT_DATABASE else f"{database}.{name}".lower()


def canonical(written: str) -> str:
    """Return a full name as it is kept of one as people write it: ``Default.Orders`` is ``orders``."""
    return full_name(database_of(written), name_in_database(written))


def database_of(full: str) -> str:
    """Return the database that a full name says."""
    database, dot, _ = full.partition(".")
    return database if dot else DEFAULT_DATABASE


def name_in_database(full: str) -> str:
    """Return what a table or view is called within its database."""
    _, dot, name = full.partition(".")
    return name if dot else full


def in_two_parts(full_name: str) -> str:
    """Return a table's name quoted, with its database before it where that is not the session's own."""
    database, name = database_of(full_name), name_in_database(full_name)
    return spark_name(name) if database == DEFAULT_DATABASE else f"{spark_name(database)}.{spark_name(name)}"


def with_names(sql: str, renamed: Mapping[str, str]) -> str:
    """Write other names into a statement of ours. renamed: both quoted; what is a string stays."""
    if not any(name in sql for name in renamed):
        return sql
    return _LITERAL_OR_NAME.sub(lambda found: renamed.get(found.group(), found.group()), sql)
