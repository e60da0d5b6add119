"""A checked statement without its tree: plain values, which are cheap to keep and to hand from process to process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from engines.errors import UnsupportedFeature
from engines.protocol import TableSource
from gateway.sql.allowlist import is_repeatable
from gateway.sql.dialects.names import SPARK
from gateway.sql.names import is_generator
from gateway.sql.nodes import find_all
from gateway.sql.sail.rules import SAIL
from gateway.sql.statement import CheckedStatement
from selector.join_keys import KeyPair
from selector.query_text import join_pairs, named_expressions


@dataclass(frozen=True, slots=True)
class CompiledStatement:
    """A query that may run, as each engine gets it. The first fields are those of CheckedStatement.

    texts: by the engines' dialects; what a dialect has no words for is the error that says so. outputs: names of the
    columns, None where a star hides them. joined: pairs of columns that it wants to be equal. references: how often it
    names each table. named: by dialect, its expressions by their aliases. explosive: a regular expression in it on
    which Java's matcher may take for ever. is_repeatable: asked again, it has the same answer while its tables stay.
    """

    tables: tuple[TableSource, ...]
    fingerprint: str
    template: str
    engine: str | None
    texts: Mapping[str, str | UnsupportedFeature]
    outputs: tuple[str, ...] | None
    joined: tuple[KeyPair, ...] = ()
    references: Mapping[str, int] = field(default_factory=dict)
    named: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    explosive: str | None = None
    tells_of_session: bool = False
    is_repeatable: bool = False

    def sql(self, dialect: str) -> str:
        """Return the statement for an engine. Raises UnsupportedFeature, NoEquivalent."""
        text = self.texts[dialect]
        if isinstance(text, UnsupportedFeature):
            raise type(text)(text.message)
        return text

    def explosive_pattern(self) -> str | None:
        """Return a regular expression in it on which Java's matcher may take for ever; None where there is none."""
        return self.explosive


def compiled(
    statement: CheckedStatement, dialects: Iterable[str], *, explained: Iterable[str] = ()
) -> CompiledStatement:
    """Write a statement for engines of these dialects. explained: those of which plans are going to be read."""
    texts = {dialect: _written(statement, dialect) for dialect in dialects}
    wanted = [dialect for dialect in explained if isinstance(texts.get(dialect), str)]
    return CompiledStatement(
        tables=statement.tables,
        fingerprint=statement.fingerprint,
        template=statement.template,
        engine=statement.engine,
        texts=texts,
        outputs=outputs_of(statement.tree),
        joined=joined_columns(statement),
        references=_references(statement),
        explosive=statement.explosive_pattern(),
        tells_of_session=statement.tells_of_session,
        is_repeatable=is_repeatable(statement.tree),
        named={
            dialect: named_expressions(statement.tree, dialect=SPARK if dialect == SAIL else dialect)
            for dialect in wanted
        },
    )


def joined_columns(statement: CheckedStatement) -> tuple[KeyPair, ...]:
    """Return the pairs of stored columns that a statement joins."""
    columns = {table.name: frozenset(column.name.lower() for column in table.columns) for table in statement.tables}
    return join_pairs(statement.tree, columns)


def outputs_of(tree: exp.Expr) -> tuple[str, ...] | None:
    """Return the names of a query's columns; None where a star hides them, or a function that makes rows names them."""
    if not isinstance(tree, exp.Query) or tree.is_star or any(map(is_generator, tree.selects)):
        return None
    return tuple(tree.named_selects)


def _written(statement: CheckedStatement, dialect: str) -> str | UnsupportedFeature:
    try:
        return statement.sql(dialect)
    except UnsupportedFeature as error:
        return error


def _references(statement: CheckedStatement) -> Counter[str]:
    """Count how often a statement names each of its tables."""
    names = {table.name for table in statement.tables}
    return Counter(table.name.lower() for table in find_all(statement.tree, exp.Table) if table.name.lower() in names)
