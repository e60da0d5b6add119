"""START HERE: a text is checked in passes and becomes a ``CheckedStatement``."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.errors import ErrorLevel, OptimizeError, UnsupportedError

from sql import names, parsing, rewriting
from sql.access.fencing import fence
from sql.access.parts import Parts, require_whole_snapshots
from sql.access.rights import Access, everything, shown_columns, visible
from sql.dialects.names import SPARK
from sql.dialects.normalize import normalize_to_spark
from sql.dialects.session_functions import NO_FACTS, Facts, policy_facts, put_in_facts
from sql.errors import NotAllowed, StatementTooDeep, SyntaxInvalid
from sql.limits import growth
from sql.parsers.brackets import put_brackets
from sql.parsers.dialects import LIBRARY_DEFECTS, SparkAsWritten
from sql.parsers.hints import without_hints
from sql.parsing import ParserLimits
from sql.resolution import ALIASES_NEEDED, resolve
from sql.tables import DEFAULT_DATABASE, Column, TableSource, View
from sql.views import expand

FINGERPRINT_HEX = 32

_WORDS = re.compile(
    r"(?P<alias> AS `(?:[^`]|``)*`)|(?P<name>`(?:[^`]|``)*`)|'(?:[^'\\]|\\.)*'"
    r"|(?<![\w.])-?\d+(?:\.\d*)?(?:E[+-]?\d+)?\w*",
    re.IGNORECASE | re.DOTALL,
)
_LITERALS = re.compile(r"\?(?:, \?)+")


@dataclass(frozen=True, slots=True)
class CheckedStatement:
    """A query that may run.

    tree: in Spark's dialect, which defines the meaning.
    tables: all that it reads.
    fingerprint: equal for texts with the same tree.
    template: equal for texts that differ only in their literals.
    engine: named by a hint.
    tells_of_session: it contains a value of its session, such as the user's name.
    restricted: tables and views of which it reads the part that its user may see.
    """

    tree: exp.Expr
    tables: tuple[TableSource, ...]
    fingerprint: str
    template: str
    engine: str | None = None
    tells_of_session: bool = False
    restricted: frozenset[str] = frozenset()

    def sql(self, writer: str) -> str:
        """Return the statement in an engine's own SQL, with its meaning in Spark.

        Raises UnsupportedFeature, NoEquivalent.

        writer: the module of the engine's writer (``Engine.writer``).
        """
        text: str = importlib.import_module(writer).write(self)
        return text

    def explosive_pattern(self) -> str | None:
        """Return a regular expression in it on which Java's matcher may take for ever; None: there is none."""
        return growth.explosive_pattern(self.tree)


def check(
    sql: str,
    dialect: str,
    *,
    catalog: Mapping[str, TableSource],
    limits: ParserLimits,
    views: Mapping[str, View] = {},
    naming: names.Naming = names.IN_DEFAULT,
    facts: Facts = NO_FACTS,
    access: Access | None = None,
) -> CheckedStatement:
    """Parse a text, check it against the allow-list, expand its views and resolve its tables. Raises SqlError.

    A text in another dialect is written in Spark's and parsed again, so that one meaning applies to all engines.

    catalog, views: all that exist.
    facts: values of session functions, by name.
    access: rights of the user; None: everything may be read.
    """
    try:
        tree, engine = parsing.parse(sql, dialect, limits)
    except RecursionError as error:
        raise StatementTooDeep("The statement is nested too deep.") from error
    return check_tree(
        tree,
        dialect,
        engine=engine,
        catalog=catalog,
        limits=limits,
        views=views,
        naming=naming,
        facts=facts,
        access=access,
    )


def check_tree(
    tree: exp.Expr,
    dialect: str,
    *,
    catalog: Mapping[str, TableSource],
    limits: ParserLimits,
    views: Mapping[str, View] = {},
    naming: names.Naming = names.IN_DEFAULT,
    facts: Facts = NO_FACTS,
    engine: str | None = None,
    access: Access | None = None,
    outputs_decide: bool = False,
) -> CheckedStatement:
    """Check a query that was parsed in its dialect, or built of parsed parts, as ``check`` does. Changes the tree.

    outputs_decide: a text of ours around it filters by its outputs.
    """
    draft = Draft(
        tree, dialect, visible(catalog, access), limits, visible(views, access), naming, facts, access, outputs_decide
    )
    try:
        for change in PASSES:
            change(draft)
        tree = draft.tree
        normal = without_hints(tree).sql(dialect=SparkAsWritten, normalize=True, identify=True, comments=False)
        template = _digest(without_literals(normal))
        return CheckedStatement(
            tree, draft.tables, _digest(normal), template, engine, draft.tells_of_session, draft.restricted
        )
    except RecursionError as error:
        raise StatementTooDeep("The statement is nested too deep.") from error
    except OptimizeError as error:
        raise SyntaxInvalid(f"{error}: {ALIASES_NEEDED}.") from error


# ---------------------------------------------------------------------- passes


@dataclass(slots=True)
class Draft:
    """A query on its way through the passes, each of which changes it.

    tree: in ``dialect`` until ``read_as_spark``, from then on in Spark's.
    catalog, views: those that the text may name.
    access: rights of the user; None: everything may be read.
    outputs_decide: a text of ours around it filters by its outputs.
    sees_temporary: bare names may mean views of the session.
    tables: all that it reads, once they are resolved.
    tells_of_session: values of session functions were inserted.
    restricted: tables and views of which it reads a part.
    """

    tree: exp.Expr
    dialect: str
    catalog: Mapping[str, TableSource]
    limits: ParserLimits
    views: Mapping[str, View]
    naming: names.Naming
    facts: Facts
    access: Access | None = None
    outputs_decide: bool = False
    sees_temporary: bool = True
    tables: tuple[TableSource, ...] = ()
    tells_of_session: bool = False
    restricted: frozenset[str] = frozenset()

    def columns_of(self, name: str) -> Sequence[Column] | None:
        """Return the columns of a table or view; None: there is none of this name."""
        relation = self.views.get(name) or self.catalog.get(name)
        return None if relation is None else shown_columns(name, relation.columns, self.access)


def qualify(draft: Draft) -> None:
    """Give tables and views their full names."""
    names.qualify(draft.tree, draft.naming, draft.views, draft.catalog, sees_temporary=draft.sees_temporary)


def name_snapshots(draft: Draft) -> None:
    """Give snapshots of lake tables names of their own. Raises SnapshotNeeded, NotAllowed, AccessDenied."""
    if draft.access is not None:
        require_whole_snapshots(draft.tree, draft.catalog, draft.access)
    names.name_snapshots(draft.tree, draft.catalog, draft.views)


def name_columns_in_brackets(draft: Draft) -> None:
    """Give columns in brackets their own names."""
    rewriting.name_columns_in_brackets(draft.tree)


def normalize_dialect(draft: Draft) -> None:
    """Replace syntax that has another meaning in Spark. Raises NotAllowed."""
    if draft.dialect != SPARK:
        rewriting.name_outputs(draft.tree)
        normalize_to_spark(draft.tree, draft.dialect, draft.columns_of)


def expand_views(draft: Draft) -> None:
    """Replace views by their queries, and relations by the parts that the user may read, in Spark's dialect."""

    def query_of(view: View) -> exp.Expr:
        tree, _ = parsing.parse(view.sql, view.dialect, draft.limits)
        sees_all = not view.temporary
        below = replace(
            draft,
            tree=tree,
            dialect=view.dialect,
            catalog=tables if sees_all else draft.catalog,
            views=views if sees_all else draft.views,
            naming=replace(draft.naming, database=view.database),
            access=draft.access if view.temporary else None,  # of other views' tables ``Parts`` decides
            sees_temporary=view.temporary,
        )
        return passed(below)

    def of_policy(tree: exp.Expr) -> exp.Expr:
        naming = replace(draft.naming, database=DEFAULT_DATABASE)
        below = replace(draft, tree=tree, dialect=SPARK, catalog=tables, views=views, naming=naming, access=None)
        return passed(replace(below, sees_temporary=False))

    def passed(below: Draft) -> exp.Expr:
        for change in VIEW_PASSES:
            change(below)
        return below.tree

    tables, views = everything(draft.catalog), everything(draft.views)
    parts = None
    if draft.access is not None:
        proved = policy_facts(draft.facts, draft.access.user)
        parts = Parts(draft.access, tables, draft.catalog, draft.views, of_policy, proved)
    expand(draft.tree, views, query_of, parts)
    if parts is not None:
        draft.restricted = frozenset(parts.restricted)
        draft.tells_of_session = parts.tells_of_session


def resolve_casts(draft: Draft) -> None:
    """Decide for each CAST if it fails or returns NULL."""
    rewriting.resolve_casts(draft.tree, draft.dialect)


def name_outputs(draft: Draft) -> None:
    """Name outputs without an alias as Spark does."""
    rewriting.name_outputs(draft.tree)


def put_fences(draft: Draft) -> None:
    """Keep conditions that may fail above the row filters of the user's rights."""
    if draft.restricted:
        fence(draft.tree, everything(draft.catalog), everything(draft.views), outputs_decide=draft.outputs_decide)


def resolve_tables(draft: Draft) -> None:
    """Look up tables and columns. Raises UnknownTable, UnknownColumn."""
    draft.tables = resolve(draft.tree, everything(draft.catalog))


def read_as_spark(draft: Draft) -> None:
    """Write a tree of another dialect in Spark's SQL and parse it again: one meaning applies to all engines."""
    if draft.dialect != SPARK:
        draft.tree, _ = parsing.parse(_in_spark(draft.tree, draft.dialect), SPARK, draft.limits, of_ours=True)
        rewriting.resolve_casts(draft.tree, SPARK)


def resolve_again(draft: Draft) -> None:
    """Look up the names of a tree that was parsed again; the first time, errors had positions in the client's text."""
    if draft.dialect != SPARK:
        resolve_tables(draft)


def insert_session_values(draft: Draft) -> None:
    """Replace session functions by their values."""
    draft.tells_of_session = put_in_facts(draft.tree, draft.facts) or draft.tells_of_session


def check_growth(draft: Draft) -> None:
    """Raise ValueOutOfRange for a value that the query makes too long by itself."""
    growth.check_growth(draft.tree, draft.tables)


PASSES = (
    qualify,
    name_snapshots,
    name_columns_in_brackets,
    normalize_dialect,
    expand_views,
    resolve_casts,
    name_outputs,
    put_fences,
    resolve_tables,
    read_as_spark,
    resolve_again,
    name_outputs,
    insert_session_values,
    check_growth,
)
"""The passes over a query, in this order."""

VIEW_PASSES = (
    qualify,
    name_snapshots,
    name_columns_in_brackets,
    normalize_dialect,
    resolve_casts,
    name_outputs,
    read_as_spark,
)
"""The passes over a view's query before it replaces the view; the remaining ones run on the whole query."""


def _in_spark(tree: exp.Expr, dialect: str) -> str:
    put_brackets(tree)
    try:
        return tree.sql(dialect=SparkAsWritten, identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        reason = str(error).splitlines()[0]
        raise NotAllowed(f"This has no equivalent in Spark's SQL (dialect {dialect}): {reason}.") from error
    except LIBRARY_DEFECTS as error:
        raise NotAllowed(f"A part of this has no equivalent in Spark's SQL (dialect {dialect}).") from error


def without_literals(normal: str) -> str:
    """Replace every literal of a text of Spark's writer, and every list of literals, by ?.

    Aliases are removed, because an expression without one is named after its own text.
    """

    def replace_word(word: re.Match[str]) -> str:
        return word["name"] or ("" if word["alias"] else "?")

    return _LITERALS.sub("?", _WORDS.sub(replace_word, normal))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_HEX]
