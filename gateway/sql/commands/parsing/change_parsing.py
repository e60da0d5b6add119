"""Statements that change rows of a table, in the words of Spark's, Hive's and Impala's users.

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
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from engines.protocol import TableSource
from engines.table_names import name_in_database
from gateway.errors import NotAllowed, StatementTooComplex, SyntaxInvalid, UnknownColumn
from gateway.sql import parsing, statement
from gateway.sql.commands.parsing import change_queries as queries
from gateway.sql.commands.parsing.change_queries import Choice, Source
from gateway.sql.commands.parsing.relation_reader import Context, RelationReader
from gateway.sql.commands.parsing.token_reader import words_of
from gateway.sql.commands.writes import OWN_NAMES, ChangeKind, ChangeRows, Clause
from gateway.sql.dialects.names import SPARK
from gateway.sql.nodes import position_of
from gateway.sql.parsing import require_length
from gateway.sql.statement import CheckedStatement

MOST_CLAUSES = 20  # of a MERGE; each looks at the conditions of those before it

_CHANGES = re.compile(r"(?:[\s;]++|--[^\n]*+|/\*(?s:.)*?\*/)*+(?:UPDATE|DELETE|MERGE)\b", re.IGNORECASE)
_EXPRESSION = "SELECT "
_RELATION = "SELECT * FROM "
_AROUND_A_TABLE = ("joins", "laterals", "pivots", "sample", "hints")
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)
_MOMENTS = ("now", "current_timestamp")
_DAYS = ("curdate", "current_date")


def parse(sql: str, context: Context) -> ChangeRows | None:
    """Return the change in a text, None where it is none. Raises SqlError with what is wrong and where."""
    if _CHANGES.match(sql) is None:
        return None
    require_length(sql, context.limits)
    return _ChangeReader(sql, words_of(sql, context.limits), context).change()


class _ChangeReader(RelationReader):
    """Reads one UPDATE, DELETE or MERGE."""

    def __init__(self, sql: str, tokens: Sequence[Token], context: Context) -> None:
        super().__init__(sql, tokens, context)
        self._now = dt.datetime.now(dt.UTC)

    def change(self) -> ChangeRows:
        if self._words("UPDATE"):
            return self._update()
        if self._words("DELETE"):
            return self._delete()
        self._need("MERGE")
        return self._merge()

    def _update(self) -> ChangeRows:
        target, alias = self._target("SET")
        self._need("SET")
        values = self._assignments(target, alias, "WHERE", "FROM")
        if self._token().text.upper() == "FROM":
            message = "UPDATE takes no FROM here; write MERGE INTO t USING ... ON ... WHEN MATCHED THEN UPDATE SET ..."
            raise NotAllowed(message, self._position(self._token()))
        return self._changed(ChangeKind.UPDATE, target, alias, values)

    def _delete(self) -> ChangeRows:
        self._words("FROM")
        target, alias = self._target("WHERE", "FROM")
        if self._token().text.upper() == "FROM":
            message = "DELETE takes one table here; write MERGE INTO t USING ... ON ... WHEN MATCHED THEN DELETE."
            raise NotAllowed(message, self._position(self._token()))
        return self._changed(ChangeKind.DELETE, target, alias, None)

    def _changed(
        self, kind: ChangeKind, target: TableSource, alias: str, values: Mapping[str, exp.Expr] | None
    ) -> ChangeRows:
        """Read the end of an UPDATE or DELETE."""
        condition = self._expression() if self._words("WHERE") else None
        self._end()
        if values is None and condition is None:
            return ChangeRows(target, kind, None, (Clause(None),))
        choice = Choice(condition, values)
        rows = self._checked(queries.changed_rows(target, alias, choice), target)
        repeatable = queries.chooses_alike(rows)
        return ChangeRows(target, kind, rows, queries.numbered([choice]), repeatable=repeatable)

    def _merge(self) -> ChangeRows:
        self._need("INTO")
        target, alias = self._target("USING")
        self._need("USING")
        where = self._token()
        source, stored = self._source()
        if source.alias == alias:
            raise NotAllowed("Both tables are called the same; give one of them another alias.", self._position(where))
        self._need("ON")
        on = self._expression("WHEN")
        there: list[Choice] = []
        new: list[Choice] = []
        where = self._token()
        self._need("WHEN")
        while True:
            if len(there) + len(new) >= MOST_CLAUSES:
                raise StatementTooComplex(f"A MERGE has {MOST_CLAUSES} clauses at most.", self._position(where))
            self._clause(target, alias, source, there, new, where)
            where = self._token()
            if not self._words("WHEN"):
                break
        self._end()
        return self._merged(target, alias, (source, stored), on, there, new)

    def _merged(
        self,
        target: TableSource,
        alias: str,
        using: tuple[Source, bool],
        on: exp.Expr,
        there: Sequence[Choice],
        new: Sequence[Choice],
    ) -> ChangeRows:
        """Return a MERGE of its parts. using: its source, and whether that is a table."""
        source, stored = using
        rows = self._checked(queries.merged_rows(target, alias, source, on, there), target) if there else None
        added = self._checked(queries.added_rows(alias, source, on, new), target) if new else None
        for query in (rows, added):
            if query is not None and not queries.chooses_alike(query):
                message = (
                    "The conditions of a MERGE have to say the same each time: put what is random, limited or in the "
                    "order of a window into the source."
                )
                raise NotAllowed(message)
        written = None
        if not stored:
            written = self._checked(exp.select("*").from_(source.node.copy()), target)
            if not written.tables and queries.is_repeatable(written.tree):
                written = None
        if written is not None:
            place = TableSource(queries.SOURCE, "/", "parquet", ())
            rows = rows and queries.with_written_source(rows, place)
            added = added and queries.with_written_source(added, place)
        matched = [choice for choice in there if choice.matched]
        only_deletes = len(matched) == 1 and matched[0].values is None and matched[0].condition is None
        return ChangeRows(
            target,
            ChangeKind.MERGE,
            rows,
            queries.numbered(there),
            added,
            queries.numbered(new),
            written,
            single_match=bool(matched) and not only_deletes,
            by_source=len(matched) < len(there),
        )

    def _clause(
        self,
        target: TableSource,
        alias: str,
        source: Source,
        there: list[Choice],
        new: list[Choice],
        where: Token,
    ) -> None:
        """Read a clause behind its WHEN, into those for rows that are there or those for new ones."""
        matched = not self._words("NOT")
        self._need("MATCHED")
        by_source = False
        if not matched and self._words("BY"):
            by_source = self._words("SOURCE")
            if not by_source:
                self._need("TARGET")
        inserts = not matched and not by_source
        before = new if inserts else [choice for choice in there if choice.matched == matched]
        if before and before[-1].condition is None:
            message = "This clause is for no row: the one before it has no condition."
            raise NotAllowed(message, self._position(where))
        condition = self._expression("THEN") if self._words("AND") else None
        self._need("THEN")
        if inserts:
            self._need("INSERT")
            new.append(Choice(condition, self._new_row(target, source)))
        elif self._words("DELETE"):
            there.append(Choice(condition, None, matched))
        else:
            self._need("UPDATE")
            self._need("SET")
            if matched and self._sign(TokenType.STAR):
                values = self._same_columns(target, source)
            else:
                values = self._assignments(target, alias, "WHEN")
            there.append(Choice(condition, values, matched))

    # ------------------------------------------------------------------ tables

    def _target(self, *ends: str) -> tuple[TableSource, str]:
        """Read the table that is changed and its alias."""
        where = self._token()
        name, parts = self._visible_name()
        if name in self._views:
            raise NotAllowed(f"{name} is a view; rows of tables can be changed.", self._position(where))
        table = self._found(name, parts, where)
        return table, self._alias(name_in_database(table.name), *ends)

    def _alias(self, usual: str, *ends: str) -> str:
        if self._words("AS"):
            return self._name().lower()
        token = self._token()
        is_end = token.token_type is TokenType.VAR and token.text.upper() in ends
        return usual if is_end or not self._more() else self._name().lower()

    def _source(self) -> tuple[Source, bool]:
        """Read what a MERGE takes rows from, and tell whether it is a table."""
        start = self._token()
        columns: tuple[str, ...] | None = None
        stored = False
        if start.token_type in (TokenType.VAR, TokenType.IDENTIFIER) and start.text.upper() != "VALUES":
            at = self._at
            name, parts = self._visible_name()
            relation = self._views.get(name) or self._found(name, parts, start)
            columns = tuple(column.name for column in relation.columns)
            stored = name not in self._views
            self._at = at
        query = self._parsed(_RELATION, start, self._skip("ON"))
        relations = [name for name, value in query.args.items() if value]
        node = query.args["from_"].this if "from_" in relations else None
        whole = sorted(relations) == ["expressions", "from_"] and isinstance(
            node, exp.Table | exp.Subquery | exp.Values
        )
        if node is None or not whole or any(node.args.get(part) for part in _AROUND_A_TABLE):
            message = "Syntax error: USING takes one table, view or query in brackets."
            raise SyntaxInvalid(message, self._position(start))
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
        node.args["alias"].set("this", exp.to_identifier(called, quoted=True))
        return Source(node, called, columns), stored

    # ------------------------------------------------------------------ values

    def _assignments(self, target: TableSource, alias: str, *ends: str) -> dict[str, exp.Expr]:
        values: dict[str, exp.Expr] = {}
        while True:
            where = self._token()
            name = self._assigned(target, alias)
            if name in values:
                raise NotAllowed(f"The column {name} is given two values.", self._position(where))
            self._need_sign(TokenType.EQ, "=")
            values[name] = self._expression(*ends, list_of=True)
            if not self._sign(TokenType.COMMA):
                return values

    def _assigned(self, target: TableSource, alias: str) -> str:
        """Read a column of the table behind any names of that."""
        at = self._at
        before = self._parts()[:-1]
        if before and before[-1].lower() != alias:
            where = self._tokens[at]
            raise UnknownColumn(f"Columns of {alias} can be set, not of {before[-1]}.", self._position(where))
        self._at -= 1
        return self._column(target)

    def _same_columns(self, target: TableSource, source: Source) -> dict[str, exp.Expr]:
        """Return the source's columns of the same names, for a * that was just read."""
        star = self._tokens[self._at - 1]
        known = None if source.columns is None else {name.lower() for name in source.columns}
        values: dict[str, exp.Expr] = {}
        for column in target.columns:
            if known is not None and column.name.lower() not in known:
                message = f"The source has no column {column.name} for *."
                raise UnknownColumn(message, self._position(star))
            table = exp.to_identifier(source.alias, quoted=True)
            values[column.name] = exp.column(exp.to_identifier(column.name, quoted=True), table=table)
        return values

    def _new_row(self, target: TableSource, source: Source) -> dict[str, exp.Expr]:
        """Read the row of an INSERT behind that word."""
        if self._sign(TokenType.STAR):
            return self._same_columns(target, source)
        names = [column.name for column in target.columns]
        if self._sign(TokenType.L_PAREN):
            names = []
            while True:
                where = self._token()
                name = self._column(target)
                if name in names:
                    raise NotAllowed(f"The column {name} is named twice.", self._position(where))
                names.append(name)
                if self._sign(TokenType.R_PAREN):
                    break
                self._need_sign(TokenType.COMMA, ", or )")
        where = self._token()
        self._need("VALUES")
        self._need_sign(TokenType.L_PAREN, "(")
        values = [self._expression(list_of=True)]
        while self._sign(TokenType.COMMA):
            values.append(self._expression(list_of=True))
        self._need_sign(TokenType.R_PAREN, ")")
        if len(values) != len(names):
            message = f"{len(names)} columns are given {len(values)} values."
            raise NotAllowed(message, self._position(where))
        return dict(zip(names, values, strict=True))

    def _expression(self, *ends: str, list_of: bool = False) -> exp.Expr:
        """Read a condition or value, up to one of these words, or to a comma in a list, outside of all brackets."""
        start = self._token()
        query = self._parsed(_EXPRESSION, start, self._skip(*ends, list_of=list_of))
        columns = query.expressions
        others = [name for name, value in query.args.items() if value and name != "expressions"]
        if others or len(columns) != 1 or columns[0].is_star or isinstance(columns[0], exp.Alias | exp.Aliases):
            raise SyntaxInvalid("Syntax error: one value is expected here.", self._position(start))
        found = columns[0]
        assert isinstance(found, exp.Expr)
        for window in found.find_all(exp.Window):
            if window.parent_select is query:  # it would see the rows of some files
                message = "A window is not allowed here; put it into a sub-query, or into a MERGE's source."
                raise NotAllowed(message, position_of(window))
        return found

    def _skip(self, *ends: str, list_of: bool = False) -> int:
        """Pass over words up to an end; return where the last of them ends."""
        first, depth = self._at, 0
        cases = 0
        while self._more():
            token = self._token()
            word = token.text.upper() if token.token_type is TokenType.VAR else ""
            is_part = self._at > first and self._tokens[self._at - 1].token_type is TokenType.DOT
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
            self._at += 1
        if self._at == first:
            self._unexpected("a value")
        return self._tokens[self._at - 1].end + 1

    def _parsed(self, opening: str, start: Token, end: int) -> exp.Select:
        """Parse a part of the text behind the words that make it a query; positions stay what they are in all of it."""
        blank = re.sub(r"[^\n]", " ", self._sql[: start.start])
        fits = len(blank) >= len(opening) and "\n" not in blank[: len(opening)]
        text = opening + (blank[len(opening) :] if fits else blank) + self._sql[start.start : end]
        tree, _ = parsing.parse(text, self._dialect, self._limits)
        if not isinstance(tree, exp.Select):
            raise SyntaxInvalid("Syntax error: one value is expected here.", self._position(start))
        for name in tree.find_all(exp.Identifier):
            if name.name.startswith(OWN_NAMES):
                raise UnknownColumn(f"There is nothing called {name.name}.", position_of(name))
        return tree

    def _checked(self, tree: exp.Expr, target: TableSource) -> CheckedStatement:
        catalog = {**self._catalog, queries.CHANGED: queries.changed_table(target)}
        checked = statement.check_tree(
            tree,
            self._dialect,
            catalog=catalog,
            limits=self._limits,
            views=self._views,
            naming=self._naming,
            facts=self._context.facts,
        )
        return replace(checked, tree=checked.tree.transform(partial(_at_one_moment, now=self._now)))


def _at_one_moment(node: exp.Expr, now: dt.datetime) -> exp.Expr:
    """Put a moment in the place of a function that tells the time: all of a statement's queries run at the same one."""
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
