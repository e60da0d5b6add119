"""Views that are made or dropped, and what every statement with a query in it has in common.

    CREATE [OR REPLACE] [TEMPORARY] VIEW [IF NOT EXISTS] v [(c, ...)] [COMMENT '...'] [TBLPROPERTIES (...)] AS query
    DROP VIEW [IF EXISTS] v

The head is read here, word by word; the query behind it is checked like any other, in the statement's dialect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from engines.table_names import database_of, name_in_database
from gateway.errors import NotAllowed, TableExists, UnknownTable
from gateway.sql import parsing, statement
from gateway.sql.commands.commands import CreateView, DropView
from gateway.sql.commands.parsing.relation_reader import Context, RelationReader
from gateway.sql.dialects.names import IMPALA
from gateway.sql.names import did_you_mean, temporary_name
from gateway.sql.nodes import position_of
from gateway.sql.statement import CheckedStatement
from gateway.sql.views import below, temporary_in
from metastore.records import Annotations, View

_TABLE_NAME = re.compile(r"[a-z0-9_]{1,128}")
_QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE"})


class ViewReader(RelationReader):
    """Reads statements that make or drop a view."""

    def __init__(self, sql: str, tokens: Sequence[Token], context: Context) -> None:
        super().__init__(sql, tokens, context)
        self._source = (0, 0)  # of the text: what the query reads, where that stands before its head

    # ------------------------------------------------------------------ views

    def _create_view(self) -> CreateView:
        replace = self._words("OR", "REPLACE")
        where = self._token()
        if self._words("GLOBAL"):
            raise NotAllowed("There are no global temporary views; leave GLOBAL away.", self._position(where))
        temporary = self._words("TEMPORARY") or self._words("TEMP")
        self._need("VIEW")
        if_not_exists = self._words("IF", "NOT", "EXISTS")
        where = self._token()
        view = self._bare_name() if temporary else self._new_name()
        taken = view in self._views and not (replace or if_not_exists)
        if not temporary and (view in self._catalog or taken):
            what = "table" if view in self._catalog else "view"
            raise TableExists(f"There is a {what} {view} already.", self._position(where))
        columns = self._view_columns() if self._sign(TokenType.L_PAREN) else {}
        comment, properties = "", {}
        while not self._words("AS"):
            if self._words("COMMENT"):
                comment = self._text("a text")
            elif self._words("TBLPROPERTIES"):
                properties = self._properties()
            else:
                self._unexpected("AS")
        told = {name: text for name, text in columns.items() if text}
        return self._view(
            view,
            tuple(columns),
            Annotations(comment, properties, told),
            temporary=temporary,
            replace=replace,
            if_not_exists=if_not_exists,
        )

    def _view(
        self,
        view: str,
        columns: tuple[str, ...],
        annotations: Annotations | None,
        *,
        temporary: bool,
        replace: bool,
        if_not_exists: bool = False,
    ) -> CreateView:
        """Read a view's query. annotations: None for those that it has."""
        text = self._rest()
        if not temporary:
            self._refuse_temporary_in(text)
        found_by = temporary_name(view) if temporary else view
        query = self._checked(text, below(self._views, found_by, temporary=temporary))
        sql, database = _stripped(text), self._naming.database
        return CreateView(
            view, sql, self._dialect, database, query, columns, temporary, replace, if_not_exists, annotations
        )

    def _refuse_temporary_in(self, text: str) -> None:
        """Refuse a session's own view in the query of one that is everybody's: nobody else could read it."""
        place = temporary_in(parsing.parse(text, self._dialect, self._limits)[0], self._views)
        if place is not None:
            message = f"{place.name} is a temporary view, which only this session has; make this one TEMPORARY too."
            raise NotAllowed(message, position_of(place))

    def _view_columns(self) -> dict[str, str]:
        """Read the rest of a list of a view's columns, with what is said of each."""
        names: dict[str, tuple[str, str]] = {}
        while True:
            where = self._token()
            name = self._name()
            if name.lower() in names:
                raise NotAllowed(f"There are two columns {name}.", self._position(where))
            names[name.lower()] = name, self._text("a text") if self._words("COMMENT") else ""
            if self._sign(TokenType.R_PAREN):
                return dict(names.values())
            self._need_sign(TokenType.COMMA, ", or )")

    def _drop_view(self) -> DropView:
        if_exists = self._words("IF", "EXISTS")
        where = self._token()
        view, parts = self._visible_name()
        self._end()
        if view in self._catalog and view not in self._views and not (if_exists and self._dialect == IMPALA):
            message = f"There is no view {view}: it is a table, DROP TABLE {view}."
            raise UnknownTable(message, self._position(where))
        if view not in self._views and not if_exists:
            raise UnknownTable(f"There is no view {view}{did_you_mean(view, self._views)}", self._position(where))
        temporary = view in self._views and self._views[view].temporary
        return DropView(parts[-1].lower() if temporary else view, temporary, if_exists)

    # ------------------------------------------------------------------ parts

    def _query(self) -> CheckedStatement:
        return self._checked(self._rest(), self._views)

    def _checked(self, query: str, views: Mapping[str, View]) -> CheckedStatement:
        return statement.check(
            query,
            self._dialect,
            catalog=self._catalog,
            limits=self._limits,
            views=views,
            naming=self._naming,
            facts=self._context.facts,
        )

    def _rest(self) -> str:
        """Return the rest as a query; what comes before it is blanked, so that positions stay what they are."""
        start = self._token().start
        begin, end = self._source
        source = self._sql[begin:end]
        query = blanked(self._sql[:begin]) + source + blanked(self._sql[end:start]) + self._sql[start:]
        if self._words("VALUES"):  # a query of its own only behind FROM
            query = f"SELECT * FROM ({query.strip().rstrip(';')})"  # noqa: S608 - it is parsed and checked next
        elif self._words("TABLE"):
            query = f"SELECT * FROM {self._sql[self._token().start :]}"  # noqa: S608 - the same
        return query

    def _starts_query(self) -> bool:
        return self._token().text.upper() in _QUERY_WORDS

    def _nested(self) -> bool:
        """Tell whether the bracket that comes next opens a query."""
        at = self._at
        while at < len(self._tokens) and self._tokens[at].token_type is TokenType.L_PAREN:
            at += 1
        return self._at < at < len(self._tokens) and self._tokens[at].text.upper() in _QUERY_WORDS

    def _new_name(self) -> str:
        """Read the full name of a table or view that is to be made, in a database that is there."""
        where = self._token()
        name = self._full_name()
        self._naming.require(database_of(name), self._position(where))
        return self._well_formed(name_in_database(name), where) and name

    def _bare_name(self) -> str:
        """Read the name of what is in no database."""
        where = self._token()
        parts = self._parts()
        if len(parts) > 1:
            raise NotAllowed("A temporary view is in no database; give it a name of one part.", self._position(where))
        return self._well_formed(parts[0].lower(), where)

    def _well_formed(self, name: str, where: Token) -> str:
        if not _TABLE_NAME.fullmatch(name):
            raise NotAllowed("Such a name has letters, digits and _, at most 128.", self._position(where))
        return name


def _stripped(text: str) -> str:
    """Return a text without white space around it, and without semicolons at its end."""
    end = len(text)
    while end and (text[end - 1] == ";" or text[end - 1].isspace()):
        end -= 1
    return text[:end].lstrip()


def blanked(text: str) -> str:
    """Return a text of the same lines and length without a word in it."""
    return re.sub(r"[^\n]", " ", text)
