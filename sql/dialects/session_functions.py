"""Functions of the session, such as current_user(): their values replace them when a statement is read.

So every engine gives the same value, never its own user, and a statement's fingerprint depends on its user.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sqlglot import exp

from sql.dialects.names import HIVE, IMPALA, SPARK
from sql.errors import NotAllowed
from sql.names import CATALOG
from sql.nodes import find_all, position_of

_OF_THE_USER = ("current_user", "session_user", "user", "effective_user", "logged_in_user")
_OF_THE_DATABASE = ("current_database", "current_schema")
_CATALOG, _VERSION, _IS_MEMBER = "current_catalog", "version", "is_member"
SESSION_FUNCTIONS = frozenset({*_OF_THE_USER, *_OF_THE_DATABASE, _CATALOG, _VERSION, _IS_MEMBER})
Facts = Mapping[str, str | frozenset[str] | None]
"""Values of session functions by name, None for NULL; of ``is_member`` the groups of the user."""
NO_FACTS: Facts = MappingProxyType({})

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


def facts_of(user: str, dialect: str, database: str, product: str, groups: frozenset[str] = frozenset()) -> Facts:
    """Return the values of these functions, by name.

    user: who sent the statement.
    database: of bare names.
    product: the gateway's name and version.
    groups: those of the user.
    """
    release = _RELEASES.get(dialect)
    shown_version = product if release is None else f"{release} ({product})"
    of_session = dict.fromkeys(_OF_THE_USER, user) | dict.fromkeys(_OF_THE_DATABASE, database)
    return {**of_session, _CATALOG: CATALOG, _VERSION: shown_version, _IS_MEMBER: groups}


def policy_facts(facts: Facts, user: str | None) -> Facts:
    """Return the values of these functions in the text of a policy. user: name that was proved; None: none."""
    return {**facts, **dict.fromkeys(_OF_THE_USER, user)}


def name_session_functions(tree: exp.Expr) -> None:
    """Replace the parser's nodes of these functions by calls."""
    for node in find_all(tree, *_NODES):
        node.replace(exp.Anonymous(this=_NODES[type(node)], expressions=[]))


def put_in_facts(tree: exp.Expr, facts: Facts) -> bool:
    """Replace calls of these functions by their values. Returns False if there are none. Raises NotAllowed."""
    calls = [node for node in find_all(tree, exp.Anonymous) if node.name.lower() in SESSION_FUNCTIONS]
    for call in calls:
        name = call.name.lower()
        value = facts.get(name)
        if isinstance(value, frozenset):
            call.replace(exp.Boolean(this=_group_named(call) in value))
            continue
        if call.expressions or name not in facts:
            raise NotAllowed(f"The function {name} takes no arguments, and needs a session.", position_of(call))
        call.replace(exp.Literal.string(value) if value is not None else exp.cast(exp.Null(), "string"))
    return bool(calls)


def _group_named(call: exp.Anonymous) -> str:
    """Return the group that a call of is_member names."""
    group = call.expressions[0] if len(call.expressions) == 1 else None
    if not isinstance(group, exp.Literal) or not group.is_string:
        raise NotAllowed("The function is_member takes one group, a text: is_member('finance').", position_of(call))
    return group.name
