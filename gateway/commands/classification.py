"""Classification of a text: the command or the query that it is. It runs in the processes of planners.

A function of values alone. A text is a command's if a family of its first word reads it; any other one is a query.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version

from gateway import PRODUCT
from gateway.commands.command import Family, RunnableCommand, RunnableStatement
from gateway.commands.grammar.queries import compile_query
from gateway.commands.grammar.reader import Context, Reader
from gateway.commands.grammar.token_reader import first_word
from gateway.security.access.rules import AccessRules
from gateway.security.access.user_access import UserAccess
from gateway.statements.partitions import AS_THE_DIALECT_HAS_IT, PartitionSettings
from sql.dialects.session_functions import facts_of
from sql.names import Naming
from sql.parsing import ParserLimits, require_length
from sql.tables import DEFAULT_DATABASE, TableSource, View
from sql.views import visible_views

_QUICK_VERBS = frozenset({"SET", "RESET", "SHOW", "DESCRIBE", "DESC", "USE"})
_QUERY_VERBS = frozenset({"SELECT", "WITH", "VALUES"})


@dataclass(frozen=True, slots=True)
class Text:
    """A statement as it was sent."""

    sql: str
    dialect: str
    limits: ParserLimits
    views: Mapping[str, View] = field(default_factory=dict)
    """Views of the session that sent it, by bare name."""
    partitions: PartitionSettings = AS_THE_DIALECT_HAS_IT
    database: str = DEFAULT_DATABASE
    """Database of bare names."""
    user: str = ""
    """Name of who sent it."""
    groups: frozenset[str] = frozenset()
    """Groups of who sent it."""
    access: UserAccess | None = None
    """Rights of who sent it; None: everything may be read."""
    snapshots: Mapping[str, TableSource] = field(default_factory=dict)
    """Older snapshots of lake tables that it names, by the names that they have in it."""


@dataclass(frozen=True, slots=True)
class Engines:
    """Engines that statements are written for."""

    writers: tuple[str, ...]
    """Writers of all of them."""
    models: Mapping[str, str]
    """Cost models of the fast ones, which plan a statement first, by their writers."""


def classify(
    text: Text,
    tables: Mapping[str, TableSource],
    views: Mapping[str, View],
    databases: Collection[str],
    engines: Engines,
    families: Sequence[Family],
    rules: AccessRules | None = None,
    owners: Mapping[str, str | None] = {},
) -> RunnableStatement:
    """Return what a text asks for. Raises SqlError.

    tables, views: everybody's.
    databases: names of those that the user may know of.
    rules, owners: those of the text's rights, which it is sent without.
    """
    if text.access is not None and rules is not None:
        text = replace(text, access=replace(text.access, rules=rules, owners=owners))
    if text.snapshots:
        tables = {**tables, **text.snapshots}
    naming = Naming(text.database, frozenset(databases))
    facts = facts_of(text.user, text.dialect, text.database, _product(), text.groups)
    all_views = visible_views(views, text.views)

    def classify_inner(sql: str) -> RunnableStatement:
        return classify(replace(text, sql=sql), tables, views, databases, engines, families)

    context = Context(
        text.dialect,
        tables,
        text.limits,
        all_views,
        naming,
        facts,
        text.partitions,
        engines.writers,
        classify_inner,
        text.access,
    )
    command = read_command(text.sql, context, families)
    if command is not None:
        return command
    return compile_query(context, text.sql, all_views, engines.models)


def read_command(sql: str, context: Context, families: Sequence[Family]) -> RunnableCommand | None:
    """Return the command in a text; None where it is none. Raises SqlError with what is wrong and where."""
    verb = _verb(sql)
    reader = Reader(sql, context)
    for family in families:
        if not family.may_read(verb, sql):
            continue
        require_length(sql, context.limits)
        reader.restart()
        command = family.parse(reader)
        if command is not None:
            reader.end()
            return command
    return None


def is_quick(sql: str) -> bool:
    """Tell whether a text starts as a command does that only looks something up, or changes a session."""
    return _verb(sql) in _QUICK_VERBS


def is_query(sql: str) -> bool:
    """Tell whether a text starts as nothing does but queries, which have rows."""
    verb = _verb(sql)
    return verb in _QUERY_VERBS and (verb != "WITH" or "INSERT" not in sql.upper())


def _verb(sql: str) -> str:
    word = first_word(sql)
    return word[1].upper() if word is not None else ""


@cache
def _product() -> str:
    """Return the gateway's own name and version, which is read from a file."""
    return f"{PRODUCT} {version('fusion-sql-gateway')}"
