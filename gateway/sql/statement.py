"""One statement: as it was asked, and as it was checked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, OptimizeError, ParseError, TokenError, UnsupportedError

from engines.errors import UnsupportedFeature
from engines.protocol import Column, TableSource
from gateway.errors import NotAllowed, StatementTooDeep, SyntaxInvalid
from gateway.sql import allowlist, names, parsing, rewriting
from gateway.sql.brackets import put_brackets
from gateway.sql.dialects.column_types import tell_types
from gateway.sql.dialects.names import DIALECTS, HIVE, HIVES, SPARK
from gateway.sql.dialects.normalize import put_into_sparks
from gateway.sql.dialects.session_functions import put_in_facts
from gateway.sql.divisions import mark_typed_divisions, resolve_divisions
from gateway.sql.duckdb.expressions import RAISE
from gateway.sql.duckdb.queries import Queries
from gateway.sql.duckdb.values import NoEquivalent
from gateway.sql.hints import without_hints
from gateway.sql.limits.growth import check_growth, explosive_pattern, guarded
from gateway.sql.nodes import find_all
from gateway.sql.parser_dialects import LIBRARY_DEFECTS, DuckDBAsWritten, ImpalaText, SparkAsWritten
from gateway.sql.parsing import ParserLimits
from gateway.sql.sail.rules import SAIL, for_sail
from gateway.sql.views import expand
from metastore.records import View
from selector.types import NoSuchType

FINGERPRINT_HEX = 32
READ_BACK = 2_048
DUCKDB = "duckdb"
OF_HIVES_TOOLS = (SPARK, HIVE)  # dialects in which tools made for Hive write

_WORDS = re.compile(
    r"(?P<alias> AS `(?:[^`]|``)*`)|(?P<name>`(?:[^`]|``)*`)|'(?:[^'\\]|\\.)*'"
    r"|(?<![\w.])-?\d+(?:\.\d*)?(?:E[+-]?\d+)?\w*",
    re.IGNORECASE | re.DOTALL,
)
_READERS: Mapping[str, tuple[Dialect, frozenset[str]]] = {  # by dialect, with the functions that may be written
    SPARK: (SparkAsWritten(), allowlist.FUNCTIONS | {RAISE}),  # which guards what we wrote
    SAIL: (SparkAsWritten(), allowlist.FUNCTIONS),
    DUCKDB: (DuckDBAsWritten(), allowlist.WRITTEN_FUNCTIONS),
}
_WRITERS = {
    SPARK: SparkAsWritten,
    SAIL: SparkAsWritten,
    "hive": ImpalaText,
}  # says where NULL goes: Impala, Hive 3 and Hive 4 differ where they are not told
_LITERALS = re.compile(r"\?(?:, \?)+")


@dataclass(frozen=True, slots=True)
class CheckedStatement:
    """A query that may run. tree: in Spark's dialect, which is what the statement means. tables: all that it reads.

    fingerprint: equal for texts that mean the same tree. template: equal for those that differ in their literals only.
    engine: the one that a hint asks for. tells_of_session: it holds what is true of one session alone.
    """

    tree: exp.Expr
    tables: tuple[TableSource, ...]
    fingerprint: str
    template: str
    engine: str | None = None
    tells_of_session: bool = False

    def sql(self, dialect: str) -> str:
        """Write the statement for an engine, so that it means there what it means in Spark.

        Raises UnsupportedFeature where the dialect has no words for it, NoEquivalent where it has none of that meaning.
        """
        try:
            text = self._written(dialect)
            _read_back(text, dialect, frozenset(table.name for table in self.tables))
            return text
        except (UnsupportedError, ParseError, TokenError) as error:
            raise UnsupportedFeature(f"its dialect has no words for it: {str(error).splitlines()[0]}") from error
        except NoSuchType as error:
            raise NoEquivalent(f"a value of type {error}.") from error
        except RecursionError as error:
            raise UnsupportedFeature("the statement is nested too deep to be written in its dialect.") from error

    def explosive_pattern(self) -> str | None:
        """Return a regular expression in it on which Java's matcher may take for ever; None where there is none."""
        return explosive_pattern(self.tree)

    def _written(self, dialect: str) -> str:
        if dialect == DUCKDB:
            tables = {table.name.lower(): table for table in self.tables}
            return Queries(tables).write(self.tree, outermost=True).text
        tree = guarded(self.tree, _expression)
        try:
            if dialect == SAIL:
                tree = for_sail(self.tree, self.tables)
            elif dialect != SPARK:  # by the parser's own writers, which know functions by its nodes
                text = without_hints(tree).sql(dialect=SparkAsWritten, identify=True, comments=False)
                tree = sqlglot.parse_one(text, read=SPARK)
            return tree.sql(
                dialect=_WRITERS.get(dialect, dialect),
                identify=True,
                comments=False,
                unsupported_level=ErrorLevel.RAISE,
            )
        except LIBRARY_DEFECTS as error:
            raise UnsupportedFeature("the statement cannot be written in its dialect.") from error


def _expression(text: str) -> exp.Expr:
    """Parse one of our own expressions."""
    query = SparkAsWritten().parse(f"SELECT {text}")[0]
    expression = query.expressions[0] if isinstance(query, exp.Select) else None
    assert isinstance(expression, exp.Expr)
    return expression


@lru_cache(maxsize=READ_BACK)
def _read_back(text: str, dialect: str, tables: frozenset[str]) -> None:
    """Parse what was written: it must again be one query over the same tables, whatever went into it."""
    reader, functions = _READERS.get(dialect, (None, None))
    trees = (reader or Dialect.get_or_raise(DIALECTS.get(dialect, dialect))).parse(text)
    if len(trees) != 1 or trees[0] is None:
        raise UnsupportedFeature("the statement cannot be written in its dialect.")
    tree = trees[0]
    try:
        allowlist.check(tree, functions=functions)
    except NotAllowed as error:
        raise UnsupportedFeature(f"the statement cannot be written in its dialect: {error.message}") from error
    sources = find_all(tree, exp.CTE, exp.Table)
    known = tables | {node.alias for node in sources if isinstance(node, exp.CTE)}
    if any(isinstance(node, exp.Table) and (node.name not in known or node.db) for node in sources):
        raise UnsupportedFeature("the statement cannot be written in its dialect.")


def check(
    sql: str,
    dialect: str,
    *,
    catalog: Mapping[str, TableSource],
    limits: ParserLimits,
    views: Mapping[str, View] = {},
    naming: names.Naming = names.IN_DEFAULT,
    facts: Mapping[str, str] = {},
) -> CheckedStatement:
    """Parse a text, refuse what is not allowed, put in its views and resolve its tables. Raises SqlError.

    facts: what functions that tell of the session give, by their names.
    A text in another dialect than Spark's is written in Spark's and read again: there is one meaning for all engines.
    """
    try:
        tree, engine = parsing.parse(sql, dialect, limits)
    except RecursionError as error:
        raise StatementTooDeep("The statement is nested too deep.") from error
    return check_tree(
        tree, dialect, engine=engine, catalog=catalog, limits=limits, views=views, naming=naming, facts=facts
    )


def check_tree(
    tree: exp.Expr,
    dialect: str,
    *,
    catalog: Mapping[str, TableSource],
    limits: ParserLimits,
    views: Mapping[str, View] = {},
    naming: names.Naming = names.IN_DEFAULT,
    facts: Mapping[str, str] = {},
    engine: str | None = None,
) -> CheckedStatement:
    """Do as ``check`` does with a query that was parsed in its dialect, or is made of what was. The tree is changed."""
    try:
        names.qualify(tree, naming, views)
        if dialect in OF_HIVES_TOOLS:
            rewriting.count_weekdays(tree)
        rewriting.name_columns_in_brackets(tree)
        if dialect != SPARK:
            rewriting.name_outputs(tree)
            _put_into_sparks(tree, dialect, catalog, views)
        expand(
            tree,
            views,
            partial(_query_of, limits=limits, catalog=catalog, views=views, naming=naming),
            partial(_settle, catalog=catalog),
        )
        tables = names.resolve(tree, catalog)
        rewriting.settle_casts(tree, dialect)
        if dialect != SPARK:
            mark_typed_divisions(tree)
            tree, _ = parsing.parse(_in_spark(tree, dialect), SPARK, limits, of_ours=True)
            tables = names.resolve(tree, catalog)
            rewriting.settle_casts(tree, SPARK)
            resolve_divisions(tree, tables)
        rewriting.name_outputs(tree)
        tells_of_session = put_in_facts(tree, facts)
        check_growth(tree, tables)
        normal = without_hints(tree).sql(dialect=SparkAsWritten, normalize=True, identify=True, comments=False)
        template = _digest(without_literals(normal))
        return CheckedStatement(tree, tables, _digest(normal), template, engine, tells_of_session)
    except RecursionError as error:
        raise StatementTooDeep("The statement is nested too deep.") from error
    except OptimizeError as error:
        raise SyntaxInvalid(f"{error}: tables that stand side by side need names of their own, with AS.") from error


def _put_into_sparks(
    tree: exp.Expr, dialect: str, catalog: Mapping[str, TableSource], views: Mapping[str, View]
) -> None:
    def stored(name: str) -> tuple[Column, ...] | None:
        source = views.get(name) or catalog.get(name)
        return None if source is None else tuple(source.columns)

    if dialect in HIVES:
        tell_types(tree, stored)
    put_into_sparks(tree, dialect)


def _query_of(
    view: View,
    limits: ParserLimits,
    catalog: Mapping[str, TableSource],
    views: Mapping[str, View],
    naming: names.Naming,
) -> exp.Expr:
    """Return a view's query in Spark's dialect; what needs its tables is left to ``_settle``."""
    tree, _ = parsing.parse(view.sql, view.dialect, limits)
    names.qualify(tree, replace(naming, database=view.database), views if view.temporary else ())
    if view.dialect in OF_HIVES_TOOLS:
        rewriting.count_weekdays(tree)
    rewriting.name_columns_in_brackets(tree)
    rewriting.settle_casts(tree, view.dialect)
    rewriting.name_outputs(tree)
    if view.dialect != SPARK:
        _put_into_sparks(tree, view.dialect, catalog, views)
        mark_typed_divisions(tree)
        tree, _ = parsing.parse(_in_spark(tree, view.dialect), SPARK, limits, of_ours=True)
        rewriting.settle_casts(tree, SPARK)
    return tree


def _settle(view: View, tree: exp.Expr, catalog: Mapping[str, TableSource]) -> None:
    """Settle what a view's dialect leaves to the types of its columns."""
    if view.dialect != SPARK:
        resolve_divisions(tree, names.resolve(tree, catalog))


def _in_spark(tree: exp.Expr, dialect: str) -> str:
    put_brackets(tree)
    try:
        return tree.sql(dialect=SparkAsWritten, identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        message = f"Spark's SQL, by which the gateway goes, has no words for this: {str(error).splitlines()[0]}"
        raise NotAllowed(f"{message} (dialect {dialect}).") from error
    except LIBRARY_DEFECTS as error:
        raise NotAllowed(f"Spark's SQL has no words for a part of this (dialect {dialect}).") from error


def without_literals(normal: str) -> str:
    """Put ? for every literal of a text that Spark's writer made, and for every list of them.

    Names that columns are given are left out, because an expression without one is named after its own text.
    """

    def kept(found: re.Match[str]) -> str:
        return found["name"] or ("" if found["alias"] else "?")

    return _LITERALS.sub("?", _WORDS.sub(kept, normal))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_HEX]
