"""Functions that tell of the session: their values are put in as texts when a statement is read.

So no engine is asked who its own user is, both give the same, and a statement's fingerprint is its user's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from sqlglot import exp

from gateway import PRODUCT
from gateway.errors import NotAllowed
from gateway.sql.dialects.names import HIVE, IMPALA, SPARK
from gateway.sql.names import CATALOG
from gateway.sql.nodes import find_all, position_of

_OF_THE_USER = ("current_user", "session_user", "user", "effective_user", "logged_in_user")
_OF_THE_DATABASE = ("current_database", "current_schema")
_CATALOG, _VERSION = "current_catalog", "version"
SESSION_FUNCTIONS = frozenset({*_OF_THE_USER, *_OF_THE_DATABASE, _CATALOG, _VERSION})
_NODES: Mapping[type[exp.Expr], str] = {
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentDatabase: "current_database",
    exp.CurrentSchema: "current_schema",
    exp.CurrentCatalog: _CATALOG,
    exp.CurrentVersion: _VERSION,
}
_RELEASES = {SPARK: "4.0.0", HIVE: "3.1.3", IMPALA: "impalad version 4.5.0"}
"""What is told to be served, in the form in which clients of each product read it: of releases that mean the same."""


def facts_of(user: str, dialect: str, database: str) -> Mapping[str, str]:
    """Return the values of these functions. user: the name of who asks. database: of bare names."""
    own = f"{PRODUCT} {version('fusion-sql-gateway')}"
    release = _RELEASES.get(dialect)
    told = own if release is None else f"{release} ({own})"
    of_session = dict.fromkeys(_OF_THE_USER, user) | dict.fromkeys(_OF_THE_DATABASE, database)
    return {**of_session, _CATALOG: CATALOG, _VERSION: told}


def name_session_functions(tree: exp.Expr) -> None:
    """Write these functions as names, also those of which the parser has nodes."""
    for node in find_all(tree, *_NODES):
        node.replace(exp.Anonymous(this=_NODES[type(node)], expressions=[]))


def put_in_facts(tree: exp.Expr, facts: Mapping[str, str]) -> bool:
    """Put the values of these functions into a tree; returns whether there were any. Raises NotAllowed."""
    calls = [node for node in find_all(tree, exp.Anonymous) if node.name.lower() in SESSION_FUNCTIONS]
    for call in calls:
        name = call.name.lower()
        if call.expressions or name not in facts:
            raise NotAllowed(f"The function {name} takes no arguments, and tells of a session.", position_of(call))
        call.replace(exp.Literal.string(facts[name]))
    return bool(calls)
