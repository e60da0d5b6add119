"""UPDATE, DELETE and MERGE, in the words of Spark's, Hive's and Impala's users.

    UPDATE t [[AS] a] SET c = value, ... [WHERE condition]
    DELETE [FROM] t [[AS] a] [WHERE condition]
    MERGE INTO t [[AS] a] USING table | view | (query) [[AS] b] ON condition
        WHEN MATCHED [AND condition] THEN UPDATE SET c = value, ... | UPDATE SET * | DELETE
        WHEN NOT MATCHED [BY TARGET] [AND condition] THEN INSERT [(c, ...)] VALUES (value, ...) | INSERT *
        WHEN NOT MATCHED BY SOURCE [AND condition] THEN UPDATE SET c = value, ... | DELETE

The words between are read here; each condition and value is parsed by itself, as the one column of a query, and put
into the queries of ``change_queries.py``, which are checked like any other in the statement's dialect.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from engines.compiled import SPARK_WRITER, CompiledStatement, compiled
from gateway.commands.command import OWN_NAMES
from gateway.commands.dml import change_queries as queries
from gateway.commands.dml.change_queries import ChangeKind, ChangeRows, Choice, Clause, Source
from gateway.commands.dml.inserts import read_column_list
from gateway.commands.grammar.queries import blanked
from gateway.commands.grammar.reader import Reader
from selector.types import Kind
from sql import parsing, statement
from sql.access.rights import shown_columns
from sql.dialects.names import SPARK
from sql.errors import NotAllowed, StatementTooComplex, SyntaxInvalid, UnknownColumn
from sql.names import QUALIFIER, qualifier_of
from sql.nodes import position_of
from sql.statement import CheckedStatement
from sql.tables import TableSource, name_in_database

MOST_CLAUSES = 20  # of a MERGE; each looks at the conditions of those before it

_EXPRESSION = "SELECT "
_RELATION = "SELECT * FROM "
_AROUND_A_TABLE = ("joins", "laterals", "pivots", "sample", "hints")
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)
_MOMENTS = ("now", "current_timestamp")
_DAYS = ("curdate", "current_date")


def parse(reader: Reader) -> ChangeRows | None:
    """Read an UPDATE, DELETE or MERGE."""
    if reader.accept("UPDATE"):
        return _update(reader)
    if reader.accept("DELETE"):
        return _delete(reader)
    return _merge(reader) if reader.accept("MERGE") else None


def _update(reader: Reader) -> ChangeRows:
    target, alias = _target(reader, "SET")
    reader.expect("SET")
    values = _assignments(reader, target, alias, "WHERE", "FROM")
    if reader.next_word == "FROM":
        message = "UPDATE takes no FROM here; write MERGE INTO t USING ... ON ... WHEN MATCHED THEN UPDATE SET ..."
        raise NotAllowed(message, reader.position(reader.peek()))
    return _changed(reader, ChangeKind.UPDATE, target, alias, values)


def _delete(reader: Reader) -> ChangeRows:
    reader.accept("FROM")
    target, alias = _target(reader, "WHERE", "FROM")
    if reader.next_word == "FROM":
        message = "DELETE takes one table here; write MERGE INTO t USING ... ON ... WHEN MATCHED THEN DELETE."
        raise NotAllowed(message, reader.position(reader.peek()))
    return _changed(reader, ChangeKind.DELETE, target, alias, None)


def _changed(
    reader: Reader, kind: ChangeKind, target: TableSource, alias: str, values: Mapping[str, exp.Expr] | None
) -> ChangeRows:
    """Read the end of an UPDATE or DELETE."""
    condition = _expression(reader) if reader.accept("WHERE") else None
    reader.end()
    if values is None and condition is None:
        return ChangeRows(target, kind, None, (Clause(None),))
    choice = Choice(condition, values)
    rows = _checked(reader, queries.changed_rows(target, alias, choice), target, _now())
    repeatable = queries.chooses_alike(rows)
    return ChangeRows(target, kind, _compiled(rows), queries.numbered([choice]), repeatable=repeatable)


@dataclass(slots=True)
class _Merge:
    """A MERGE as far as it is read."""

    target: TableSource
    alias: str
    source: Source
    stored: bool
    """Its source is a table."""
    on: exp.Expr
    old: list[Choice] = field(default_factory=list)
    """Clauses for rows of the table."""
    new: list[Choice] = field(default_factory=list)
    """Clauses for rows that are added."""


def _merge(reader: Reader) -> ChangeRows:
    reader.expect("INTO")
    target, alias = _target(reader, "USING")
    reader.expect("USING")
    token = reader.peek()
    source, stored = _source(reader)
    if source.alias == alias:
        message = "Both tables are called the same; give one of them another alias."
        raise NotAllowed(message, reader.position(token))
    reader.expect("ON")
    merge = _Merge(target, alias, source, stored, _expression(reader, "WHEN"))
    token = reader.peek()
    reader.expect("WHEN")
    while True:
        if len(merge.old) + len(merge.new) >= MOST_CLAUSES:
            raise StatementTooComplex(f"A MERGE has {MOST_CLAUSES} clauses at most.", reader.position(token))
        _clause(reader, merge, token)
        token = reader.peek()
        if not reader.accept("WHEN"):
            break
    reader.end()
    return _merged(reader, merge)


def _merged(reader: Reader, merge: _Merge) -> ChangeRows:
    """Return the change of a MERGE that is read."""
    target, source, now = merge.target, merge.source, _now()
    parts = (target, merge.alias, source, merge.on)
    rows = _checked(reader, queries.merged_rows(*parts, merge.old), target, now) if merge.old else None
    added = _checked(reader, queries.added_rows(*parts, merge.new), target, now) if merge.new else None
    for query in (rows, added):
        if query is not None and not queries.chooses_alike(query):
            message = (
                "The conditions of a MERGE have to say the same each time: put what is random, limited or in the "
                "order of a window into the source."
            )
            raise NotAllowed(message)
    written = None
    if not merge.stored:
        written = _checked(reader, exp.select("*").from_(source.node.copy()), target, now)
        if not written.tables and queries.is_repeatable(written.tree):
            written = None
    if written is not None:
        place = TableSource(queries.SOURCE, "/", "parquet", ())
        rows = rows and queries.with_written_source(rows, place)
        added = added and queries.with_written_source(added, place)
    matched = [choice for choice in merge.old if choice.matched]
    only_deletes = len(matched) == 1 and matched[0].values is None and matched[0].condition is None
    return ChangeRows(
        target,
        ChangeKind.MERGE,
        _compiled(rows),
        queries.numbered(merge.old),
        _compiled(added),
        queries.numbered(merge.new),
        _compiled(written),
        single_match=bool(matched) and not only_deletes,
        by_source=len(matched) < len(merge.old),
    )


def _clause(reader: Reader, merge: _Merge, token: Token) -> None:
    """Read a clause of a MERGE. token: its WHEN, which is read."""
    matched = not reader.accept("NOT")
    reader.expect("MATCHED")
    by_source = False
    if not matched and reader.accept("BY"):
        by_source = reader.accept("SOURCE")
        if not by_source:
            reader.expect("TARGET")
    inserts = not matched and not by_source
    before = merge.new if inserts else [choice for choice in merge.old if choice.matched == matched]
    if before and before[-1].condition is None:
        message = "This clause is for no row: the one before it has no condition."
        raise NotAllowed(message, reader.position(token))
    condition = _expression(reader, "THEN") if reader.accept("AND") else None
    reader.expect("THEN")
    if inserts:
        reader.expect("INSERT")
        merge.new.append(Choice(condition, _new_row(reader, merge.target, merge.source)))
    elif reader.accept("DELETE"):
        merge.old.append(Choice(condition, None, matched))
    else:
        reader.expect("UPDATE", "SET")
        if matched and reader.accept_sign(TokenType.STAR):
            values = _same_columns(reader, merge.target, merge.source)
        else:
            values = _assignments(reader, merge.target, merge.alias, "WHEN")
        merge.old.append(Choice(condition, values, matched))


# ---------------------------------------------------------------------- tables


def _target(reader: Reader, *ends: str) -> tuple[TableSource, str]:
    """Read the table that is changed and its alias. ends: words that may follow."""
    token = reader.peek()
    name, parts = reader.visible_name()
    if name in reader.views:
        raise NotAllowed(f"{name} is a view; rows of tables can be changed.", reader.position(token))
    table = reader.resolve_table(name, parts, token)
    if not table.is_lake:
        message = (
            f"Rows of {table.name} cannot be changed: its files are plain {table.format}. Make a lake table of "
            "them with CREATE TABLE ... USING iceberg (or delta) AS a query, and change that one."
        )
        raise NotAllowed(message, reader.position(token))
    own = [column.name for column in table.columns if column.name.startswith(OWN_NAMES)]
    if own:
        raise NotAllowed(
            f"{table.name} has a column {own[0]}; names with {OWN_NAMES} are ours.", reader.position(token)
        )
    return table, _alias(reader, name_in_database(table.name), *ends)


def _alias(reader: Reader, usual: str, *ends: str) -> str:
    if reader.accept("AS"):
        return reader.name().lower()
    token = reader.peek()
    is_end = token.token_type is TokenType.VAR and token.text.upper() in ends
    return usual if is_end or not reader.more() else reader.name().lower()


def _source(reader: Reader) -> tuple[Source, bool]:
    """Read the table or query from which a MERGE takes rows, and tell whether it is a table."""
    start = reader.peek()
    columns: tuple[str, ...] | None = None
    stored = False
    if start.token_type in (TokenType.VAR, TokenType.IDENTIFIER) and reader.next_word != "VALUES":
        at = reader.at
        name, parts = reader.visible_name()
        relation = reader.views.get(name) or reader.resolve_table(name, parts, start, in_part=True)
        shown = shown_columns(name, relation.columns, reader.context.access)
        columns = tuple(column.name for column in shown)
        stored = name not in reader.views
        reader.at = at
    query = _parsed(reader, _RELATION, start, _skip(reader, "ON"))
    relations = [name for name, value in query.args.items() if value]
    node = query.args["from_"].this if "from_" in relations else None
    whole = sorted(relations) == ["expressions", "from_"] and isinstance(node, exp.Table | exp.Subquery | exp.Values)
    if node is None or not whole or any(node.args.get(part) for part in _AROUND_A_TABLE):
        message = "Syntax error: USING takes one table, view or query in brackets."
        raise SyntaxInvalid(message, reader.position(start))
    alias = node.args.get("alias")
    named = [column.name for column in alias.columns] if alias is not None else []
    if named:
        columns, stored = tuple(named), False
    elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query) and not node.this.is_star:
        columns = tuple(node.this.named_selects)
    if columns is not None and ("" in columns or len({name.lower() for name in columns}) < len(columns)):
        columns = None
    called = node.alias_or_name.lower() or queries.SOURCE
    if alias is None:
        node.set("alias", exp.TableAlias())
        if isinstance(node, exp.Table):
            node.meta[QUALIFIER] = qualifier_of(reader.naming.full([part.name for part in node.parts]))
    node.args["alias"].set("this", exp.to_identifier(called, quoted=True))
    return Source(node, called, columns), stored


# ---------------------------------------------------------------------- values


def _assignments(reader: Reader, target: TableSource, alias: str, *ends: str) -> dict[str, exp.Expr]:
    values: dict[str, exp.Expr] = {}
    while True:
        token = reader.peek()
        name = _assigned(reader, target, alias)
        if name in values:
            raise NotAllowed(f"The column {name} is given two values.", reader.position(token))
        reader.expect_sign(TokenType.EQ, "=")
        values[name] = _expression(reader, *ends, list_of=True)
        if not reader.accept_sign(TokenType.COMMA):
            return values


def _assigned(reader: Reader, target: TableSource, alias: str) -> str:
    """Read a column of the table behind any names of that."""
    at = reader.at
    qualifier = reader.name_parts()[:-1]
    if qualifier and qualifier[-1].lower() != alias:
        column = next((one for one in target.columns if one.name.lower() == qualifier[-1].lower()), None)
        if column is not None and column.type.kind is Kind.STRUCT:
            message = f"A field of {column.name} is not set alone: set the column to a whole named_struct(...)."
            raise NotAllowed(message, reader.position(reader.tokens[at]))
        message = f"Columns of {alias} can be set, not of {qualifier[-1]}."
        raise UnknownColumn(message, reader.position(reader.tokens[at]))
    reader.at -= 1
    return reader.column(target)


def _same_columns(reader: Reader, target: TableSource, source: Source) -> dict[str, exp.Expr]:
    """Return the source's columns of the same names, for a * that was just read."""
    star = reader.tokens[reader.at - 1]
    names = None if source.columns is None else {name.lower() for name in source.columns}
    values: dict[str, exp.Expr] = {}
    for column in target.columns:
        if names is not None and column.name.lower() not in names:
            message = f"The source has no column {column.name} for *."
            raise UnknownColumn(message, reader.position(star))
        table = exp.to_identifier(source.alias, quoted=True)
        values[column.name] = exp.column(exp.to_identifier(column.name, quoted=True), table=table)
    return values


def _new_row(reader: Reader, target: TableSource, source: Source) -> dict[str, exp.Expr]:
    """Read the row of an INSERT behind that word."""
    if reader.accept_sign(TokenType.STAR):
        return _same_columns(reader, target, source)
    names: Sequence[str] = [column.name for column in target.columns]
    if reader.accept_open():
        names = read_column_list(reader, target)
    token = reader.peek()
    reader.expect("VALUES")
    reader.expect_open()
    values = reader.rest_of_list(partial(_expression, reader, list_of=True))
    if len(values) != len(names):
        raise NotAllowed(f"{len(names)} columns are given {len(values)} values.", reader.position(token))
    return dict(zip(names, values, strict=True))


def _expression(reader: Reader, *ends: str, list_of: bool = False) -> exp.Expr:
    """Read a condition or value, up to one of these words, or to a comma in a list, outside of all brackets."""
    start = reader.peek()
    query = _parsed(reader, _EXPRESSION, start, _skip(reader, *ends, list_of=list_of))
    columns = query.expressions
    others = [name for name, value in query.args.items() if value and name != "expressions"]
    if others or len(columns) != 1 or columns[0].is_star or isinstance(columns[0], exp.Alias | exp.Aliases):
        raise SyntaxInvalid("Syntax error: one value is expected here.", reader.position(start))
    expression = columns[0]
    assert isinstance(expression, exp.Expr)
    for window in expression.find_all(exp.Window):
        if window.parent_select is query:  # it would see the rows of some files
            message = "A window is not allowed here; put it into a sub-query, or into a MERGE's source."
            raise NotAllowed(message, position_of(window))
    return expression


def _skip(reader: Reader, *ends: str, list_of: bool = False) -> int:
    """Pass over words up to an end; return where the last of them ends."""
    first, depth = reader.at, 0
    cases = 0
    while reader.more():
        token = reader.peek()
        word = token.text.upper() if token.token_type is TokenType.VAR else ""
        is_part = reader.at > first and reader.tokens[reader.at - 1].token_type is TokenType.DOT
        if token.token_type in _CLOSING:
            if not depth:
                break
            depth -= 1
        elif token.token_type in _OPENING:
            depth += 1
        elif not depth and list_of and token.token_type is TokenType.COMMA:
            break
        elif not is_part and word == "CASE":
            cases += 1
        elif not is_part and word == "END" and cases:
            cases -= 1
        elif not depth and not cases and not is_part and word in ends:
            break
        reader.skip()
    if reader.at == first:
        reader.unexpected("a value")
    return reader.tokens[reader.at - 1].end + 1


# ---------------------------------------------------------------------- queries


def _parsed(reader: Reader, opening: str, start: Token, end: int) -> exp.Select:
    """Parse a part of the text behind the words that make it a query; positions stay what they are in all of it."""
    blank = blanked(reader.sql[: start.start])
    fits = len(blank) >= len(opening) and "\n" not in blank[: len(opening)]
    text = opening + (blank[len(opening) :] if fits else blank) + reader.sql[start.start : end]
    tree, _ = parsing.parse(text, reader.dialect, reader.limits)
    if not isinstance(tree, exp.Select):
        raise SyntaxInvalid("Syntax error: one value is expected here.", reader.position(start))
    for name in tree.find_all(exp.Identifier):
        if name.name.startswith(OWN_NAMES):
            raise UnknownColumn(f"There is nothing called {name.name}.", position_of(name))
    return tree


def _checked(reader: Reader, tree: exp.Expr, target: TableSource, now: dt.datetime) -> CheckedStatement:
    """Check a query of the change. now: for functions that tell the time, the same in all its queries."""
    checked = statement.check_tree(
        tree,
        reader.dialect,
        catalog={**reader.context.catalog, queries.CHANGED: queries.changed_table(target)},
        limits=reader.limits,
        views=reader.context.views,
        naming=reader.naming,
        facts=reader.context.facts,
        access=reader.context.access,
        outputs_decide=True,
    )
    return replace(checked, tree=checked.tree.transform(partial(_at_one_moment, now=now)))


def _compiled(query: CheckedStatement | None) -> CompiledStatement | None:
    """Write a query for the engine that writes tables."""
    return None if query is None else compiled(query, (SPARK_WRITER,))


def _at_one_moment(node: exp.Expr, now: dt.datetime) -> exp.Expr:
    """Put a moment in the place of a function that tells the time."""
    name = node.name.lower() if isinstance(node, exp.Anonymous) and not node.expressions else ""
    if isinstance(node, exp.CurrentTimestamp) or name in _MOMENTS:
        return _moment(now)
    if isinstance(node, exp.CurrentDate) or name in _DAYS:
        return exp.Cast(this=exp.Literal.string(f"{now:%Y-%m-%d}"), to=exp.DataType(this=exp.DType.DATE))
    if name == "unix_timestamp":
        return exp.Anonymous(this=name, expressions=[_moment(now)])
    return node


def _moment(now: dt.datetime) -> exp.Expr:
    text = exp.Literal.string(f"{now:%Y-%m-%d %H:%M:%S.%f}")
    return exp.Cast(this=text, to=exp.DataType.build("TIMESTAMP", dialect=SPARK))


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
