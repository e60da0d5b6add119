"""A checked statement without its tree: plain values, cheap to keep and to send to other processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from engines.cost_model import model_of
from engines.errors import UnsupportedFeature
from engines.files.ranges import Reading, ranges_of
from selector.join_keys import KeyPair
from selector.query_text import Wording, join_pairs, wording
from sql.allowlist.syntax import is_generator, is_repeatable, leaves_open
from sql.nodes import find_all
from sql.statement import CheckedStatement
from sql.tables import TableSource

SPARK_WRITER = "engines.spark_sql.writer"
"""Writer of the engine that writes tables."""


@dataclass(frozen=True, slots=True)
class CompiledStatement:
    """A query that may run, written for each engine. The first fields are those of CheckedStatement.

    texts: by writer; an error if the writer has no equivalent.
    outputs: names of the columns; None: a star hides them.
    joined: pairs of columns that it compares for equality.
    references: uses of each table.
    wording: its own words, by cost model.
    explosive: a regular expression in it on which Java's matcher may take for ever; None: there is none.
    is_repeatable: it returns the same answer again while its tables stay.
    leaves_open: SQL allows several answers to it.
    sorted_by: positions of the columns by which its rows are sorted, as far as these are among its outputs.
    ranges: what its tables are read for, by their names; of others, all rows may matter.
    columns: names, in small letters, among which are those of all columns that it reads of lake tables; None: all are.
    restricted: tables and views of which it reads the part that its user may see.
    """

    tables: tuple[TableSource, ...]
    fingerprint: str
    template: str
    engine: str | None
    texts: Mapping[str, str | UnsupportedFeature]
    outputs: tuple[str, ...] | None
    joined: tuple[KeyPair, ...] = ()
    references: Mapping[str, int] = field(default_factory=dict)
    wording: Mapping[str, Wording] = field(default_factory=dict)
    explosive: str | None = None
    tells_of_session: bool = False
    is_repeatable: bool = False
    leaves_open: bool = False
    sorted_by: tuple[int, ...] = ()
    columns: frozenset[str] | None = None
    ranges: Mapping[str, tuple[Reading, ...]] = field(default_factory=dict)
    restricted: frozenset[str] = frozenset()

    def sql(self, writer: str) -> str:
        """Return the statement in an engine's SQL. Raises UnsupportedFeature, NoEquivalent."""
        text = self.texts[writer]
        if isinstance(text, UnsupportedFeature):
            raise type(text)(text.message)
        return text

    def explosive_pattern(self) -> str | None:
        """Return ``explosive``, as CheckedStatement does."""
        return self.explosive


def compiled(statement: CheckedStatement, writers: Iterable[str], models: Mapping[str, str] = {}) -> CompiledStatement:
    """Write a statement for engines. models: cost models of the engines that plan it, by writer."""
    texts = {writer: _written(statement, writer) for writer in writers}
    lake_tables = [table for table in statement.tables if table.is_lake]
    wanted = [model for writer, model in models.items() if isinstance(texts.get(writer), str)]
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
        restricted=statement.restricted,
        is_repeatable=is_repeatable(statement.tree),
        leaves_open=leaves_open(statement.tree),
        sorted_by=sorted_outputs(statement.tree),
        columns=_columns(statement.tree) if lake_tables else None,
        ranges=ranges_of(statement.tree, lake_tables) if lake_tables else {},
        wording={model: wording(statement.tree, dialect=model_of(model).dialect) for model in wanted},
    )


def joined_columns(statement: CheckedStatement) -> tuple[KeyPair, ...]:
    """Return the pairs of stored columns that a statement joins."""
    columns = {table.name: frozenset(column.name.lower() for column in table.columns) for table in statement.tables}
    return join_pairs(statement.tree, columns)


def outputs_of(tree: exp.Expr) -> tuple[str, ...] | None:
    """Return the names of a query's columns; None: a star hides them, or a generator names them."""
    if not isinstance(tree, exp.Query) or tree.is_star or any(map(is_generator, tree.selects)):
        return None
    return tuple(tree.named_selects)


def sorted_outputs(tree: exp.Expr) -> tuple[int, ...]:
    """Return the positions of the outputs by which a query's rows are sorted, up to the first that is no output."""
    order = tree.args.get("order")
    if not isinstance(tree, exp.Select) or order is None or tree.is_star or any(map(is_generator, tree.selects)):
        return ()
    places = {select.alias_or_name.lower(): place for place, select in enumerate(tree.selects)}
    by_text = {select.unalias().sql(): place for place, select in enumerate(tree.selects)}
    positions: list[int] = []
    for ordered in order.expressions:
        key = ordered.this
        if isinstance(key, exp.Literal) and key.is_int:
            place: int | None = int(key.name) - 1
        else:
            is_name = isinstance(key, exp.Column) and not key.table
            place = by_text.get(key.sql(), places.get(key.name.lower()) if is_name else None)
        if place is None or not 0 <= place < len(tree.selects):
            break
        positions.append(place)
    return tuple(positions)


def _written(statement: CheckedStatement, writer: str) -> str | UnsupportedFeature:
    try:
        return statement.sql(writer)
    except UnsupportedFeature as error:
        return error


def _columns(tree: exp.Expr) -> frozenset[str] | None:
    """Return all names in a query, those of columns that it reads among them; None: a star or NATURAL hides some."""
    if any(not _counts_rows(star.parent) for star in find_all(tree, exp.Star)):
        return None
    if any(join.method for join in find_all(tree, exp.Join)):
        return None
    return frozenset(identifier.name.lower() for identifier in find_all(tree, exp.Identifier))


def _counts_rows(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Count) or (isinstance(node, exp.Anonymous) and node.name.lower() == "count")


def _references(statement: CheckedStatement) -> Counter[str]:
    """Return the number of uses of each of a statement's tables."""
    names = {table.name for table in statement.tables}
    return Counter(table.name.lower() for table in find_all(statement.tree, exp.Table) if table.name.lower() in names)
