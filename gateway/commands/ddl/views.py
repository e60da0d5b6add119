"""Views of everybody's and of a session. An engine tells once which columns a view has.

    CREATE [OR REPLACE] [TEMPORARY] VIEW [IF NOT EXISTS] v [(c, ...)] [COMMENT '...'] [TBLPROPERTIES (...)] AS query
    ALTER VIEW v [(c, ...)] AS query
    DROP VIEW [IF EXISTS] v

The query is checked like any other, in the statement's dialect.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from engines.arrow_types import spark_type
from engines.compiled import CompiledStatement
from engines.errors import EngineError, EngineUnavailable, StatementError
from engines.protocol import snapshots_of
from gateway.commands.command import DONE, Definition
from gateway.commands.grammar.queries import compile_query, query_text
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.errors import NoSession
from gateway.security.policy import Action, Need
from gateway.statements.command import OwnedCatalog, owned_relation
from metastore.errors import AlreadyExists, NoDatabase
from selector.forecast.lease import LEAST_BYTES
from selector.quoting import spark_name
from sql import parsing
from sql.dialects.names import IMPALA, SPARK
from sql.errors import NotAllowed, TableExists, UnknownDatabase, UnknownTable
from sql.names import did_you_mean, temporary_name
from sql.nodes import position_of
from sql.tables import NOT_ANNOTATED, Annotations, Column, InvalidTable, TableSource, View
from sql.views import below, temporary_in


@dataclass(frozen=True, slots=True)
class CreateView(Definition):
    """Give a query a name."""

    view: str
    """Full name; a bare one where it is temporary, the session's alone."""
    sql: str
    """The query as it was written, in its dialect."""
    dialect: str
    database: str
    """Database of bare names in the query."""
    query: CompiledStatement
    columns: tuple[str, ...] = ()
    """Names that the query's columns get; none where they keep their own."""
    temporary: bool = False
    replace: bool = False
    if_not_exists: bool = False
    annotations: Annotations | None = NOT_ANNOTATED
    """None for those that the view has."""

    can_be_explained = True

    @property
    def queries(self) -> tuple[CompiledStatement, ...]:
        """The view's query."""
        return (self.query,)

    @property
    def uses(self) -> tuple[TableSource, ...]:
        """The tables of the view's query."""
        return self.query.tables

    def impala_reply(self) -> str:
        """Return the sentence with which Impala says that this one is done."""
        return "View has been altered." if self.replace else "View has been created."

    def required_actions(self, catalog: OwnedCatalog) -> Iterator[Need]:
        """Yield the right to make views; anybody may make one for a session."""
        if self.temporary:
            return
        yield Need(Action.CREATE)
        if self.replace:
            yield Need(Action.REPLACE, owned_relation(self.view, catalog))

    def table_names(self, catalog: Iterable[str]) -> Iterator[str]:
        """Yield the view, and the tables of its query."""
        yield self.view
        yield from (table.name for table in self.query.tables)

    def run(self, services: CommandServices) -> pa.Table:
        """Make the view. Raises NoSession, SessionFull, TableExists, EngineError."""
        session = services.session
        if self.temporary and session is None:
            raise NoSession("There is no session here that could keep a temporary view.")
        columns = self._columns(_described(self.query, services))
        annotations = self._old_annotations(services) if self.annotations is None else self.annotations
        view = View(
            self.view,
            self._named_sql(),
            self.dialect,
            columns,
            temporary=self.temporary,
            database=self.database,
            annotations=annotations,
        )
        if self.temporary and session is not None:
            is_new = session.keep_view(view, replace=self.replace)
        else:
            is_new = self._put(view, services)
        if not is_new and not self.if_not_exists:
            raise TableExists(f"There is a table or view {self.view} already.")
        return DONE

    def _old_annotations(self, services: CommandServices) -> Annotations:
        """Return what is said of a view that gets another query."""
        views = (view for view in services.metastore.views.list() if view.name == self.view)
        return next((view.annotations for view in views), NOT_ANNOTATED)

    def _put(self, view: View, services: CommandServices) -> bool:
        """Make a view of everybody's; tell whether its name was free."""
        principal = services.principal
        check = services.policy.owner_check(principal, Action.REPLACE, "view", view.name)
        owned = dataclasses.replace(view, owner=principal.owner)
        try:
            services.metastore.views.put(owned, at=dt.datetime.now(dt.UTC), replace=self.replace, check=check)
        except AlreadyExists:
            return False
        except NoDatabase as error:
            raise UnknownDatabase(f"The database {error} is gone.") from error
        return True

    def _columns(self, schema: pa.Schema) -> tuple[Column, ...]:
        """Return the view's columns. schema: of its query."""
        selected = self.query.outputs
        starred = selected is None and self.dialect != SPARK
        if starred and self.columns not in ((), tuple(schema.names)):
            raise StatementError("A view that renames its columns has to list them in its query, too: it selects *.")
        names = self.columns or (tuple(schema.names) if selected is None else selected)
        if len(names) != len(schema):
            raise StatementError(f"The view names {len(names)} columns, its query has {len(schema)}.")
        twice = next((name for at, name in enumerate(names) if name.lower() in map(str.lower, names[:at])), None)
        if twice is not None:
            raise StatementError(f"The view would have two columns {twice}; give one of them another name.")
        try:
            return tuple(Column(name, spark_type(field.type)) for name, field in zip(names, schema, strict=True))
        except InvalidTable as error:
            raise StatementError(f"The view cannot be made: {error}.") from error

    def _named_sql(self) -> str:
        """Return the view's query; one that selects a star gets the names that the view gives to its columns."""
        if not self.columns or self.query.outputs is not None or self.dialect != SPARK:
            return self.sql
        return f"SELECT * FROM (\n{self.sql}\n) AS renamed ({', '.join(map(spark_name, self.columns))})"  # noqa: S608


@dataclass(frozen=True, slots=True)
class DropView(Definition):
    """Forget a view. view: as of CreateView. existing: it exists, as far as the user may know."""

    view: str
    temporary: bool = False
    existing: bool = True

    impala_words = "View has been dropped."

    def required_actions(self, catalog: OwnedCatalog) -> Iterator[Need]:
        """Yield the right to drop a view of everybody's."""
        if not self.temporary and self.existing:
            yield Need(Action.DROP, owned_relation(self.view, catalog))

    def table_names(self, catalog: Iterable[str]) -> Iterator[str]:
        """Yield the view."""
        yield self.view

    def run(self, services: CommandServices) -> pa.Table:
        """Forget it."""
        session = services.session
        if self.temporary and session is not None:
            session.drop_view(self.view)
        elif self.existing:
            check = services.policy.owner_check(services.principal, Action.DROP, "view", self.view)
            services.metastore.views.remove(self.view, check=check)
        return DONE


def _described(query: CompiledStatement, services: CommandServices) -> pa.Schema:
    """Have the first engine that can, and may, run a query without rows, which tells its columns."""
    failure: EngineError = EngineUnavailable("No engine is available.")
    run = services.run
    snapshots = snapshots_of(services.registration.pinned(query.tables, run.requester))
    for entry in services.engines.values():
        if entry.why_down() is not None or (run.only is not None and entry.name not in run.only):
            continue
        memory_bytes = min(LEAST_BYTES, entry.limit_bytes or 0)  # without rows it needs hardly any
        try:
            sql = f"SELECT * FROM ({query.sql(entry.engine.writer)}) AS described LIMIT 0"  # noqa: S608 - checked
            with services.on(entry, memory_bytes=memory_bytes) as lease:
                result = entry.engine.execute(
                    sql, query_id=run.id, lease=lease, deadline_s=run.remaining_s, snapshots=snapshots
                )
                with result:
                    return result.schema
        except EngineError as error:
            if not error.fails_over:
                raise
            failure = error
    raise failure


# ---------------------------------------------------------------------- grammar

_BEFORE_VIEW = ("OR", "REPLACE", "GLOBAL", "TEMPORARY", "TEMP")


def parse(reader: Reader) -> CreateView | DropView | None:
    """Read a statement about views."""
    if reader.accept("DROP", "VIEW"):
        return _drop(reader)
    if reader.accept("CREATE"):
        return _create(reader) if _is_about_view(reader) else None
    subject = reader.altered()
    if subject is None or subject.view is None:
        return None
    columns: tuple[str, ...] = ()
    if reader.accept_open():
        columns = tuple(_column_names(reader))
        reader.expect("AS")
    elif not reader.accept("AS"):
        return None
    view, temporary, database = subject.view.name, subject.view.temporary, reader.naming.database
    sql, query = _query(reader, view, temporary=temporary)
    return CreateView(view, sql, reader.dialect, database, query, columns, temporary, replace=True, annotations=None)


def _is_about_view(reader: Reader) -> bool:
    words = (token.text.upper() for token in reader.tokens[reader.at :])
    return next((word for word in words if word not in _BEFORE_VIEW), "") == "VIEW"


def _create(reader: Reader) -> CreateView:
    replace = reader.accept("OR", "REPLACE")
    token = reader.peek()
    if reader.accept("GLOBAL"):
        raise NotAllowed("There are no global temporary views; leave GLOBAL away.", reader.position(token))
    temporary = reader.accept_one("TEMPORARY", "TEMP")
    reader.expect("VIEW")
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    token = reader.peek()
    view = reader.new_temporary_view() if temporary else reader.new_relation()
    is_taken = view in reader.views and not (replace or if_not_exists)
    if not temporary and (view in reader.catalog or is_taken):
        reader.refuse_existing(view, token)
    columns = _column_names(reader) if reader.accept_open() else {}
    comment, properties = "", {}
    while not reader.accept("AS"):
        if reader.accept("COMMENT"):
            comment = reader.text("a text")
        elif reader.accept("TBLPROPERTIES"):
            properties = reader.properties()
        elif not reader.accept("WITH", "SCHEMA", "EVOLUTION"):  # which all views have: stars are read anew
            reader.unexpected("AS")
    annotations = Annotations(comment, properties, {name: text for name, text in columns.items() if text})
    sql, query = _query(reader, view, temporary=temporary)
    return CreateView(
        view,
        sql,
        reader.dialect,
        reader.naming.database,
        query,
        tuple(columns),
        temporary,
        replace,
        if_not_exists,
        annotations,
    )


def _query(reader: Reader, view: str, *, temporary: bool) -> tuple[str, CompiledStatement]:
    """Read the query of a view; return it as it is written, and as engines get it."""
    text = query_text(reader)
    if not temporary:
        _refuse_temporary_in(reader, text)
    visible_as = temporary_name(view) if temporary else view
    visible = below(reader.views, visible_as, temporary=temporary)
    return _stripped(text), compile_query(reader.context, text, visible)


def _refuse_temporary_in(reader: Reader, query: str) -> None:
    """Refuse a session's own view in the query of one that is everybody's: nobody else could read it."""
    node = temporary_in(parsing.parse(query, reader.dialect, reader.limits)[0], reader.views)
    if node is not None:
        message = f"{node.name} is a temporary view, which only this session has; make this one TEMPORARY too."
        raise NotAllowed(message, position_of(node))


def _column_names(reader: Reader) -> dict[str, str]:
    """Read the rest of a list of a view's columns; return their comments by name."""
    comments: dict[str, tuple[str, str]] = {}

    def read_one() -> None:
        token = reader.peek()
        name = reader.name()
        if name.lower() in comments:
            raise NotAllowed(f"There are two columns {name}.", reader.position(token))
        comments[name.lower()] = name, reader.text("a text") if reader.accept("COMMENT") else ""

    reader.rest_of_list(read_one)
    return dict(comments.values())


def _drop(reader: Reader) -> DropView:
    if_exists = reader.accept("IF", "EXISTS")
    token = reader.peek()
    view, parts = reader.visible_name()
    reader.end()
    if view in reader.catalog and view not in reader.views and not (if_exists and reader.dialect == IMPALA):
        message = f"There is no view {view}: it is a table, DROP TABLE {view}."
        raise UnknownTable(message, reader.position(token))
    if view not in reader.views and not if_exists:
        raise UnknownTable(f"There is no view {view}{did_you_mean(view, reader.views)}", reader.position(token))
    temporary = view in reader.views and reader.views[view].temporary
    return DropView(parts[-1].lower() if temporary else view, temporary, view in reader.views)


def _stripped(text: str) -> str:
    """Return a text without white space around it, and without semicolons at its end."""
    end = len(text)
    while end and (text[end - 1] == ";" or text[end - 1].isspace()):
        end -= 1
    return text[:end].lstrip()
