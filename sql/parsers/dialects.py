"""Dialects of the library for Spark's, Hive's and Impala's SQL that keep functions as they were written.

The library's parser turns most functions into nodes of its own, and writes some of them as other functions: LOG10(x)
becomes LOG(10, x), which Spark computes less exactly. Here a function is a name with arguments. Only functions with
words between their arguments (CAST, EXTRACT, TRIM, ...) have nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, cast

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.hive import Hive
from sqlglot.dialects.spark import Spark
from sqlglot.generator import Generator
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parser import Parser
from sqlglot.parsers.hive import HiveParser
from sqlglot.tokenizer_core import TokenType

from sql.errors import SyntaxInvalid
from sql.nodes import find_all, position_of
from sql.parsers.pipes import Piped, piped_sql
from sql.parsers.spark import (
    MOST_LEVELS,
    OPERATOR,
    SNAPSHOT_PHRASES,
    SPELLED,
    TYPED,
    WITH_WORDS,
    WITHIN,
    WITHOUT_BRACKETS,
    Parsers,
    Spark4Parser,
    only,
)

LIBRARY_DEFECTS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Errors of the library's parser and writers for input that they do not expect, such as map(1) in Hive."""

_WITH_UNITS = ("date_add", "dateadd", "date_diff", "datediff", "timediff", "timestampadd", "timestampdiff")


def _as_spelled(kind: type[exp.Expr], *keys: str) -> Callable[[Generator, exp.Expr], str]:
    """Return a writer of a function with its written name, where the library has one node for several functions."""

    def write(writer: Generator, node: exp.Expr) -> str:
        name = node.meta.get(SPELLED)
        if name is not None:
            return writer.func(name, *(node.args.get(key) for key in keys))
        usual = SparkGenerator.TRANSFORMS.get(kind)
        return usual(writer, node) if usual is not None else writer.function_fallback_sql(cast(exp.Func, node))

    return write


def _cast(writer: Generator, node: exp.Expr) -> str:
    """Write a cast, or the typed literal that it came from: DATE '2020-01-01'."""
    if node.meta.get(TYPED) and isinstance(node.this, exp.Literal):
        return f"{writer.sql(node, 'to')} {writer.sql(node, 'this')}"
    if SPELLED in node.meta:  # X''
        return str(node.meta[SPELLED])
    return writer.cast_sql(cast(exp.Cast, node))


def _extract(writer: Generator, node: exp.Expr) -> str:
    part = node.meta.get(SPELLED) or writer.sql(node, "this")
    return f"EXTRACT({part} FROM {writer.sql(node, 'expression')})"


def _not(writer: Generator, node: exp.Not) -> str:
    """Write NOT where the statement had it: before a predicate, or within it."""
    inner = node.this
    if node.meta.get(WITHIN) and isinstance(inner, exp.Is):
        return f"{writer.sql(inner, 'this')} IS NOT {writer.sql(inner, 'expression')}"
    return writer.not_sql(node)


def _call(writer: Generator, node: exp.Expr) -> str:
    """Write a function, or the operator that it came from: a >>> b."""
    if node.meta.get(OPERATOR):
        return f"{writer.sql(node.expressions[0])} >>> {writer.sql(node.expressions[1])}"
    return writer.anonymous_sql(cast(exp.Anonymous, node))


class SparkWriter(SparkGenerator):
    """Spark's writer. Common table expressions stay where they are; TIME and the precision of times are kept."""

    EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[set[type[exp.Expr]]] = set()
    SUPPORTS_TEMPORAL_PRECISION = True
    TYPE_MAPPING: ClassVar = {**SparkGenerator.TYPE_MAPPING, exp.DType.TIME: "TIME"}
    TRANSFORMS: ClassVar = {
        **SparkGenerator.TRANSFORMS,
        Piped: piped_sql,
        exp.CurrentDate: lambda *_: "CURRENT_DATE()",  # without brackets it may be a column
        exp.CurrentTimestamp: lambda *_: "CURRENT_TIMESTAMP()",
        exp.StrPosition: _as_spelled(exp.StrPosition, "substr", "this", "position"),
        exp.Substring: _as_spelled(exp.Substring, "this", "start", "length"),
        exp.Cast: _cast,
        exp.Extract: _extract,
        exp.Not: _not,
        exp.Anonymous: _call,
        exp.BitwiseLeftShift: lambda writer, node: writer.binary(node, "<<"),
        exp.BitwiseRightShift: lambda writer, node: writer.binary(node, ">>"),
    }
    TABLESAMPLE_SEED_KEYWORD = "REPEATABLE"

    def tablealias_sql(self, expression: exp.TableAlias) -> str:
        """Write an alias, and how many levels deep the recursion of its expression may go."""
        levels = expression.meta.get(MOST_LEVELS)
        text = super().tablealias_sql(expression)
        return str(text) if levels is None else f"{text} MAX RECURSION LEVEL {levels}"

    def lateral_sql(self, expression: exp.Lateral) -> str:
        """Write LATERAL; the name of a LATERAL VIEW keeps its quotes."""
        alias = expression.args.get("alias")
        if not expression.args.get("view") or alias is None or not alias.name:
            return str(super().lateral_sql(expression))
        named = expression.copy()
        named.args["alias"].set("this", exp.to_identifier(self.sql(alias, "this"), quoted=False))
        return str(super().lateral_sql(named))


class SparkAsWritten(Spark):
    """Spark's SQL. A doubled quote is a quote, as since Spark 4."""

    class Tokenizer(Spark.Tokenizer):
        """The tokenizer with quotes among the escapes."""

        STRING_ESCAPES: ClassVar = ["\\", "'", '"']
        HEX_STRINGS: ClassVar = [(f"{letter}{quote}", quote) for letter in "Xx" for quote in "'\""]

    Parser = Spark4Parser
    Generator = SparkWriter


class _HiveParser(HiveParser):
    """Hive's parser; CHAR(n) and VARCHAR(n) keep their lengths."""

    FUNCTIONS: ClassVar[Parsers] = {}
    FUNCTION_PARSERS: ClassVar[Parsers] = only(HiveParser.FUNCTION_PARSERS, WITH_WORDS)
    VERSION_PHRASES: ClassVar = {**HiveParser.VERSION_PHRASES, **SNAPSHOT_PHRASES}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[Parsers] = only(HiveParser.NO_PAREN_FUNCTION_PARSERS, WITHOUT_BRACKETS)
    ARRAY_CONSTRUCTORS: ClassVar = {}

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        return Parser._parse_types(self, check_func, schema, allow_identifiers, with_collation)


class _ImpalaParser(_HiveParser):
    """Impala's parser; EXTRACT also takes a time and the name of a part."""

    OPERATION_MODIFIERS: ClassVar[set[str]] = {"STRAIGHT_JOIN"}

    def _parse_extract(self) -> exp.Extract | exp.Anonymous:
        if self._next is not None and self._next.token_type is TokenType.FROM:
            return super()._parse_extract()
        arguments = self._parse_csv(self._parse_disjunction)
        return exp.Anonymous(this="date_part", expressions=arguments[::-1])


class HiveText(Hive):
    """Hive's SQL, with Spark's binary literals."""

    class Tokenizer(Hive.Tokenizer):
        """The tokenizer with binary literals."""

        HEX_STRINGS: ClassVar = Spark.Tokenizer.HEX_STRINGS

    Parser = _HiveParser


class ImpalaText(HiveText):
    """Impala's SQL, in which NULL is larger than any value."""

    NULL_ORDERING = "nulls_are_large"
    Parser = _ImpalaParser


READERS: Mapping[str, type[Dialect]] = {
    "spark": SparkAsWritten,
    "hive": HiveText,
    "impala": ImpalaText,
}
"""The library's dialects, by the names that clients use."""


def take_units(tree: exp.Expr) -> None:
    """Turn units of time, which are parsed as columns, into words. Raises SyntaxInvalid."""
    for call in find_all(tree, exp.Anonymous):
        if call.name.lower() in _WITH_UNITS and len(call.expressions) == 3:
            unit = call.expressions[0]
            if isinstance(unit, exp.Literal):
                raise SyntaxInvalid(f"{call.name.upper()} takes its unit without quotes.", position_of(call))
            if isinstance(unit, exp.Column) and not unit.table and not unit.this.quoted:
                unit.replace(exp.Var(this=unit.name))


def name_collations(tree: exp.Expr) -> None:
    """Turn names of collations, which are parsed as columns, into words."""
    for node in find_all(tree, exp.Collate, exp.DataType, exp.CollateColumnConstraint):
        part = {exp.Collate: "expression", exp.DataType: "collate"}.get(type(node), "this")
        name = node.args.get(part)
        if isinstance(name, exp.Column):
            node.set(part, exp.Var(this=name.name))


def name_sources(tree: exp.Expr) -> None:
    """Give names to the sources without one of a FROM with several, as scopes find sources by name."""
    for select in find_all(tree, exp.Select):
        clauses = [select.args.get("from_"), *(select.args.get("joins") or ())]
        sources = [clause.this for clause in clauses if clause is not None and _may_be_nameless(clause.this)]
        nameless = [source for source in sources if not source.alias]
        for place, source in enumerate(nameless if len(nameless) > 1 else ()):
            name, alias = exp.to_identifier(f"_source_{place}"), source.args.get("alias")
            if alias is None:
                source.set("alias", exp.TableAlias(this=name))
            else:
                alias.set("this", name)


def select_from_named_relations(tree: exp.Expr) -> None:
    """Write ``(a) AS c`` and ``(a JOIN b ON ...) AS c`` as queries of all columns.

    The library's scopes see no sources in brackets that have a name.
    """
    for brackets in find_all(tree, exp.Subquery):
        relation = brackets.this
        if not brackets.args.get("alias") or not isinstance(relation, exp.Table | exp.Subquery):
            continue
        if isinstance(relation, exp.Table) or relation.args.get("alias") or relation.args.get("joins"):
            clauses = {name: relation.args.pop(name, None) for name in ("joins", "laterals")}
            brackets.set("this", exp.Select(expressions=[exp.Star()], from_=exp.From(this=relation), **clauses))


def _may_be_nameless(source: exp.Expr) -> bool:
    if isinstance(source, exp.Table):
        return not isinstance(source.this, exp.Identifier)
    brackets = isinstance(source, exp.Subquery) and isinstance(source.this, exp.Table)  # around a join
    return isinstance(source, exp.Subquery | exp.Lateral | exp.Values) and not brackets
