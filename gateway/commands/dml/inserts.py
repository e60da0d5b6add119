"""Rows of queries that are written into tables, in the words of Spark's, Hive's and Impala's users.

INSERT INTO | OVERWRITE [TABLE] t [(c, ...)] [PARTITION (p = 1, q)] [(c, ...) | BY NAME] query
[WITH ...] [FROM source] INSERT INTO | OVERWRITE [TABLE] t ... SELECT ... [INSERT ...]

The head is read here; the query behind it is checked like any other, in the statement's dialect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from engines.compiled import CompiledStatement
from gateway.commands.command import TargetCommand, Write
from gateway.commands.grammar.conditions import require_partitions
from gateway.commands.grammar.queries import blanked, opens_query, read_query, starts_query
from gateway.commands.grammar.reader import Reader
from gateway.commands.grammar.token_reader import is_word
from gateway.security.policy import Action, Need
from gateway.statements.command import OwnedCatalog, owned_relation
from gateway.statements.partitions import OVERWRITES, Overwrite
from sql.dialects.names import HIVE, IMPALA
from sql.errors import NotAllowed, Position, UnknownColumn
from sql.names import did_you_mean
from sql.tables import TableSource


@dataclass(frozen=True, slots=True)
class InsertInto(Write, TargetCommand):
    """Write rows into a table that exists."""

    target: TableSource
    query: CompiledStatement
    columns: tuple[str, ...]
    """Columns of the table, in the order of the query's; the others get NULL."""
    constants: Mapping[str, str | None] = field(default_factory=dict)
    """Values as text of partition columns that the statement gives one."""
    overwrite: Overwrite | None = None
    """Which partitions the rows take the place of; in a table without partitions, of all rows. None: they are added."""

    by_name: bool = False
    """The query's columns have the names of the table's; those that it lacks get NULL."""

    table_action = Action.WRITE_ROWS

    def required_actions(self, catalog: OwnedCatalog) -> Iterator[Need]:
        """Yield the right to add rows, and to change them where rows are overwritten."""
        yield from TargetCommand.required_actions(self, catalog)
        if self.overwrite is not None:
            yield Need(Action.CHANGE_ROWS, owned_relation(self.table, catalog))

    @property
    def queries(self) -> tuple[CompiledStatement, ...]:
        """The query whose rows are written."""
        return (self.query,)

    @property
    def uses(self) -> tuple[TableSource, ...]:
        """The tables that it reads, and the one that it writes."""
        return (*self.reads, self.target)


@dataclass(frozen=True, slots=True)
class InsertIntoSeveral(Write):
    """Write rows into several tables, or several times into one: all are written before any of them is committed."""

    inserts: tuple[InsertInto, ...]

    @property
    def table(self) -> str:
        """The first table that is written."""
        return self.inserts[0].table

    @property
    def queries(self) -> tuple[CompiledStatement, ...]:
        """The queries whose rows are written."""
        return tuple(insert.query for insert in self.inserts)

    @property
    def uses(self) -> tuple[TableSource, ...]:
        """The tables that it reads, and those that it writes."""
        return (*self.reads, *(insert.target for insert in self.inserts))

    def required_actions(self, catalog: OwnedCatalog) -> Iterator[Need]:
        """Yield the right to write to each table."""
        for insert in self.inserts:
            yield from insert.required_actions(catalog)

    def table_names(self, catalog: Iterable[str]) -> Iterator[str]:
        """Yield the tables that it writes, and those that it reads."""
        yield from (insert.table for insert in self.inserts)
        yield from (table.name for table in self.reads)


# ---------------------------------------------------------------------- grammar


def parse(reader: Reader) -> InsertInto:
    """Read an INSERT."""
    return _insert(reader)


def parse_behind_query(reader: Reader) -> InsertIntoSeveral | None:
    """Read INSERTs behind a FROM or WITH; None where there is none, and the text is a query."""
    inserts = _inserts(reader.tokens)
    if not inserts:
        return None
    sql, source = reader.sql, (reader.tokens[0].start, inserts[0].start)
    ends = [*(insert.start for insert in inserts[1:]), len(sql)]
    commands = []
    for insert, end in zip(inserts, ends, strict=True):
        text = sql[: source[1]] + blanked(sql[source[1] : insert.start]) + sql[insert.start : end]
        inner = Reader(text, reader.context)
        inner.at = next(at for at, token in enumerate(inner.tokens) if token.start >= source[1])
        commands.append(_insert(inner, source=source))
    reader.skip_rest()
    return InsertIntoSeveral(tuple(commands))


def _inserts(tokens: Sequence[Token]) -> list[Token]:
    """Return the words INSERT that stand in no bracket."""
    inserts, depth = [], 0
    for token, following in pairwise(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if not depth and is_word(token, "INSERT") and following.text.upper() in ("INTO", "OVERWRITE"):
            inserts.append(token)
    return inserts


def _insert(reader: Reader, *, source: tuple[int, int] = (0, 0)) -> InsertInto:
    """Read one INSERT. source: part of the text before it that its query reads from."""
    reader.expect("INSERT")
    overwrite = reader.accept("OVERWRITE")
    if not overwrite:
        reader.expect("INTO")
    reader.accept("TABLE")
    token = reader.peek()
    target = reader.table(in_part=True)
    if overwrite or not reader.may_insert(target.name):
        reader.require_whole(target.name, target.columns, token)
    columns = _column_list(reader, target)
    token = reader.peek()
    constants, dynamic = _partition_values(reader, target) if reader.accept("PARTITION") else ({}, ())
    _require_dynamic_allowed(reader, target, constants, token)
    if columns:
        columns += tuple(name for name in dynamic if name not in columns)
    else:
        columns = _column_list(reader, target)
    is_by_name = not columns and reader.accept("BY", "NAME")
    free = [column.name for column in target.columns if column.name not in (*constants, *dynamic)] + list(dynamic)
    token = reader.peek()
    if not starts_query(reader) and token.token_type is not TokenType.L_PAREN:
        reader.unexpected("a query")
    query = read_query(reader, source=source)
    if is_by_name:
        columns = _columns_named(query, target, reader.position(token))
    if any(name in constants for name in columns):
        raise NotAllowed("A column has a value already.", reader.position(token))
    mode = reader.context.partitions.overwrite or OVERWRITES.get(reader.dialect, Overwrite.STATIC)
    return InsertInto(target, query, columns or tuple(free), constants, mode if overwrite else None, is_by_name)


def _require_dynamic_allowed(
    reader: Reader, target: TableSource, constants: Mapping[str, str | None], token: Token
) -> None:
    """Refuse rows that choose their partitions where the session does not want that."""
    if all(name in constants for name in target.partition_columns):
        return
    if not reader.context.partitions.dynamic:
        message = "hive.exec.dynamic.partition is false: give all partition columns values, PARTITION (p = 1)."
        raise NotAllowed(message, reader.position(token))
    if reader.context.partitions.strict and not constants:
        message = (
            "hive.exec.dynamic.partition.mode is strict: give at least one partition column a value, "
            "PARTITION (p = 1, q), or SET it to nonstrict."
        )
        raise NotAllowed(message, reader.position(token))


def _partition_values(reader: Reader, target: TableSource) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Read values of partition columns, and those without one in the order in which the query has them."""
    opening = reader.peek()
    require_partitions(target, reader.position(opening))
    reader.expect_open()
    constants: dict[str, str | None] = {}
    dynamic: list[str] = []

    def read_one() -> None:
        token = reader.peek()
        name = reader.column(target)
        if name not in target.partition_columns:
            raise UnknownColumn(f"{name} is not a partition column of {target.name}.", reader.position(token))
        if reader.accept_sign(TokenType.EQ):
            constants[name] = None if reader.accept("NULL") else reader.literal()
        else:
            dynamic.append(name)

    reader.rest_of_list(read_one)
    if sorted((*constants, *dynamic)) != sorted(target.partition_columns):
        message = f"PARTITION names each partition column once: {', '.join(target.partition_columns)}."
        raise NotAllowed(message, reader.position(opening))
    in_order = tuple(name for name in target.partition_columns if name in dynamic)
    if reader.dialect == IMPALA:
        return constants, tuple(dynamic)
    if reader.dialect == HIVE and in_order != tuple(dynamic):
        message = f"Hive wants partition columns in the table's order: {', '.join(target.partition_columns)}."
        raise NotAllowed(message, reader.position(opening))
    return constants, in_order


def _columns_named(query: CompiledStatement, target: TableSource, position: Position) -> tuple[str, ...]:
    """Return the columns of a table by the names of a query's; none: a star hides them until it is run.

    Raises NotAllowed, UnknownColumn.
    """
    if query.outputs is None:
        return ()
    spelled = {column.name.lower(): column.name for column in target.columns}
    names = [name.lower() for name in query.outputs]
    for name in names:
        if name not in spelled:
            raise UnknownColumn(f"{target.name} has no column {name}{did_you_mean(name, spelled)}", position)
        if names.count(name) > 1:
            raise NotAllowed(f"The query has two columns {name}.", position)
    return tuple(spelled[name] for name in names)


def _column_list(reader: Reader, target: TableSource) -> tuple[str, ...]:
    """Read a list of columns, if there is one."""
    if reader.peek().token_type is not TokenType.L_PAREN or opens_query(reader):
        return ()
    reader.expect_open()
    return read_column_list(reader, target)


def read_column_list(reader: Reader, target: TableSource) -> tuple[str, ...]:
    """Read the rest of a list of a table's columns."""
    names: dict[str, None] = {}

    def read_one() -> None:
        token = reader.peek()
        name = reader.column(target)
        if name in names:
            raise NotAllowed(f"The column {name} is named twice.", reader.position(token))
        names[name] = None

    reader.rest_of_list(read_one)
    return tuple(names)
