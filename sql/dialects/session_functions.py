"""Functions of the session, such as current_user(): their values replace them when a statement is read.

So every engine gives the same value, never its own user, and a statement's fingerprint depends on its user.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from sql.dialects.names import HIVE, IMPALA, SPARK
from sql.errors import NotAllowed
from sql.names import CATALOG
from sql.nodes import find_all, position_of

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
"""Versions that version() returns, in the form that clients of each product read: of releases with the same meaning."""


def facts_of(user: str, dialect: str, database: str, product: str) -> Mapping[str, str]:
    """Return the values of these functions, by name.

    user: who sent the statement.
    database: of bare names.
    product: the gateway's name and version.
    """
    release = _RELEASES.get(dialect)
    shown_version = product if release is None else f"{release} ({product})"
    of_session = dict.fromkeys(_OF_THE_USER, user) | dict.fromkeys(_OF_THE_DATABASE, database)
    return {**of_session, _CATALOG: CATALOG, _VERSION: shown_version}


def name_session_functions(tree: exp.Expr) -> None:
    """Replace the parser's nodes of these functions by calls."""
    for node in find_all(tree, *_NODES):
        node.replace(exp.Anonymous(this=_NODES[type(node)], expressions=[]))


def put_in_facts(tree: exp.Expr, facts: Mapping[str, str]) -> bool:
    """Replace calls of these functions by their values. Returns False if there are none. Raises NotAllowed."""
    calls = [node for node in find_all(tree, exp.Anonymous) if node.name.lower() in SESSION_FUNCTIONS]
    for call in calls:
        name = call.name.lower()
        if call.expressions or name not in facts:
            raise NotAllowed(f"The function {name} takes no arguments, and needs a session.", position_of(call))
        call.replace(exp.Literal.string(facts[name]))
    return bool(calls)
