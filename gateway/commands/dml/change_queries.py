"""An UPDATE, DELETE or MERGE as a value, its queries, and what is asked of them.

What a statement says of rows becomes one checked query, like any other's, whose columns are named here: of each row
which clause is for it, the row as it is, and the values that the clauses give. The texts at the end are ours alone.
They are written around the engine's text of that query, and read its columns by these names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from sqlglot import exp

from engines.compiled import SPARK_WRITER, CompiledStatement
from engines.spark_sql.casts import fitted
from gateway.commands.command import OWN_NAMES, TargetCommand, Write, tables_read
from gateway.security.policy import Action
from selector.quoting import spark_name
from sql.allowlist.functions import UNREPEATABLE
from sql.allowlist.syntax import NAMES_OF_ORDER
from sql.names import QUALIFIER, qualifier_of
from sql.statement import CheckedStatement
from sql.tables import Column, TableSource, name_in_database

CHANGED = f"{OWN_NAMES}changed"
"""The table whose rows change, as the queries name it: some of its files or all."""
SOURCE = f"{OWN_NAMES}source"
"""Rows of a MERGE's source that were written first."""
FILE = f"{OWN_NAMES}file"
ROW = f"{OWN_NAMES}row"
MATCHED = f"{OWN_NAMES}matched"
CLAUSE = f"{OWN_NAMES}clause"
VALUE = f"{OWN_NAMES}value"
OLD = f"{OWN_NAMES}old"

MATCHES, UPDATED, DELETED = "matches", "updated", "deleted"
"""Columns of ``found``, beside FILE: most rows of the source that a row meets, rows that get values, rows that go."""

_OF_THE_STATEMENT = frozenset(
    """
    curdate current_catalog current_database current_date current_schema current_timestamp current_user effective_user
    is_member logged_in_user now session_user unix_timestamp user version
    """.split()
)
"""Functions that say the same throughout a statement."""
_ONCE_ONLY = (UNREPEATABLE - _OF_THE_STATEMENT) | NAMES_OF_ORDER | {"any", "array_agg"}
"""Functions that may say something else of the same rows the next time."""
_ONCE_ONLY_SYNTAX = (exp.Limit, exp.Fetch, exp.Offset, exp.TableSample, exp.Window)


class ChangeKind(StrEnum):
    """Statements that change rows of a table."""

    UPDATE = "UPDATE"
    DELETE = "DELETE"
    MERGE = "MERGE"


@dataclass(frozen=True, slots=True)
class Clause:
    """Change of a row: it gets values, or goes.

    values: by column of the table, which of the query's values it gets; an existing row keeps the others, a new one has
    NULL in them. None: the row goes.
    """

    values: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class ChangeRows(Write, TargetCommand):
    """Change or delete rows of a table, and add some."""

    target: TableSource
    kind: ChangeKind
    rows: CompiledStatement | None
    """The table's rows as they are, each with its clause and the values of all clauses.

    None where every row goes, or none can.
    """
    clauses: tuple[Clause, ...]
    """By the number that the query has for them."""
    added: CompiledStatement | None = None
    """New rows in the same way, with ``added_clauses``."""
    added_clauses: tuple[Clause, ...] = ()
    source: CompiledStatement | None = None
    """Rows that are written first, and read from there by the others."""
    repeatable: bool = True
    """Run twice over the same rows, ``rows`` chooses the same clauses."""
    single_match: bool = False
    """A row that meets several of the source's is an error."""
    by_source: bool = False
    """Some clause is for rows that meet none."""

    table_action = Action.CHANGE_ROWS

    @property
    def queries(self) -> tuple[CompiledStatement, ...]:
        """The queries that look at rows or make some."""
        return tuple(query for query in (self.source, self.rows, self.added) if query is not None)

    @property
    def reads(self) -> tuple[TableSource, ...]:
        """The tables whose rows its queries read, and its own, whichever those read."""
        others = (table for table in tables_read(self.queries) if table.name != self.target.name)
        return (*others, self.target)

    @property
    def writes_rows(self) -> bool:
        """Tell that files are written, even where all rows go."""
        return True


@dataclass(frozen=True, slots=True)
class Choice:
    """A clause as it was read. values: of columns. condition: None for every row of its kind.

    matched: it is for rows that meet one of the source's; the others of the same kind come one after the other.
    """

    condition: exp.Expr | None
    values: Mapping[str, exp.Expr] | None
    matched: bool = True


@dataclass(frozen=True, slots=True)
class Source:
    """Source of a MERGE's rows. node: a table or query with its alias. columns: None where they are not known."""

    node: exp.Expr
    alias: str
    columns: tuple[str, ...] | None

    def marked(self) -> exp.Subquery:
        """Return a query for its rows under its alias, each with TRUE as MATCHED."""
        columns: list[exp.Expr] = [exp.Column(this=exp.Star(), table=exp.to_identifier(self.alias, quoted=True))]
        if self.columns is not None:
            columns = [_aliased(_column(name, self.alias), name) for name in self.columns]
        query = exp.Select(expressions=[*columns, _aliased(exp.true(), MATCHED)], from_=exp.From(this=self.node.copy()))
        marked = exp.Subquery(this=query, alias=_alias(self.alias))
        marked.meta.update(self.node.meta)
        return marked


def changed_table(target: TableSource) -> TableSource:
    """Return the table whose rows change, as the queries see it."""
    own = (Column(FILE, "string"), Column(ROW, "bigint"))
    return replace(target, name=CHANGED, columns=(*target.columns, *own))


def changed_rows(target: TableSource, alias: str, choice: Choice) -> exp.Select:
    """Return the query of an UPDATE or DELETE, whose condition is looked at once for each row."""
    hit = _case([(choice.condition if choice.condition is not None else exp.true(), _number(0))])
    columns = [_aliased(_column(name, alias), name) for name in (*_names(target), FILE)]
    inner = exp.Select(expressions=[*columns, _aliased(hit, CLAUSE)], from_=exp.From(this=_changed(target, alias)))
    clause = _column(CLAUSE, alias)
    outer = [_aliased(_column(name, alias), name) for name in (FILE, CLAUSE)] + _old(target, alias)
    values = _values([(exp.EQ(this=clause, expression=_number(0)), choice.values)])
    within = _called(exp.Subquery(this=inner, alias=_alias(alias)), target, alias)
    return exp.Select(expressions=outer + values, from_=exp.From(this=within))


def merged_rows(target: TableSource, alias: str, source: Source, on: exp.Expr, choices: Sequence[Choice]) -> exp.Select:
    """Return the query of a MERGE for the rows that are there."""
    matched = _column(MATCHED, source.alias)
    conditions: list[tuple[exp.Expr, Mapping[str, exp.Expr] | None]] = []
    for choice in choices:
        kind = matched.copy() if choice.matched else exp.Is(this=matched.copy(), expression=exp.null())
        conditions.append((_both(kind, choice.condition), choice.values))
    clause = _case([(condition, _number(at)) for at, (condition, _) in enumerate(conditions)])
    columns: list[exp.Expr] = [_aliased(_column(name, alias), name) for name in (FILE, ROW)]
    columns += [_aliased(matched, MATCHED), _aliased(clause, CLAUSE), *_old(target, alias), *_values(conditions)]
    join = exp.Join(this=source.marked(), side="LEFT", on=on.copy())
    return exp.Select(expressions=columns, from_=exp.From(this=_changed(target, alias)), joins=[join])


def added_rows(target: TableSource, alias: str, source: Source, on: exp.Expr, choices: Sequence[Choice]) -> exp.Select:
    """Return the query of a MERGE for the rows of its source that meet none."""
    conditions = [(_both(_column(MATCHED, source.alias), choice.condition), choice.values) for choice in choices]
    clause = _case([(condition, _number(at)) for at, (condition, _) in enumerate(conditions)])
    join = exp.Join(this=_changed(target, alias), side="LEFT", kind="ANTI", on=on.copy())
    columns = [_aliased(clause, CLAUSE), *_values(conditions)]
    return exp.Select(expressions=columns, from_=exp.From(this=source.marked()), joins=[join])


def numbered(choices: Iterable[Choice]) -> tuple[Clause, ...]:
    """Return clauses with the numbers of their values in a query of the functions above."""
    clauses, number = [], 0
    for choice in choices:
        values = None if choice.values is None else {name: number + at for at, name in enumerate(choice.values)}
        number += len(values or ())
        clauses.append(Clause(values))
    return tuple(clauses)


# ---------------------------------------------------------------------- of checked queries, in Spark's dialect


def is_repeatable(tree: exp.Expr) -> bool:
    """Tell whether an expression or query says the same of the same rows each time that it runs."""
    if any(isinstance(node, _ONCE_ONLY_SYNTAX) for node in tree.walk()):
        return False
    return not any(call.name.lower() in _ONCE_ONLY for call in tree.find_all(exp.Anonymous))


def chooses_alike(query: CheckedStatement) -> bool:
    """Tell whether a query chooses the same clauses for the same rows each time that it runs."""
    joins = [join.args["on"] for join in query.tree.args.get("joins") or ()]
    clauses = [alias.this for alias in query.tree.find_all(exp.Alias) if alias.alias == CLAUSE]
    return all(map(is_repeatable, (*joins, *clauses)))


def with_written_source(query: CheckedStatement, source: TableSource) -> CheckedStatement:
    """Return a query that reads its source from what was written of it."""
    tree = query.tree.copy()
    for select in list(tree.find_all(exp.Select)):
        if any(column.alias == MATCHED and isinstance(column.this, exp.Boolean) for column in select.expressions):
            node = select.args["from_"].this
            alias = node.alias_or_name
            select.set(
                "from_", exp.From(this=exp.Table(this=exp.to_identifier(SOURCE, quoted=True), alias=_alias(alias)))
            )
    return replace(query, tree=tree, tables=(*query.tables, source))


# ---------------------------------------------------------------------- what is asked of them, in Spark's SQL


def found(change: ChangeRows) -> str:
    """Return the query for the files in which rows change: FILE, MATCHES, UPDATED, DELETED."""
    clause, file, row = spark_name(CLAUSE), spark_name(FILE), spark_name(ROW)
    rows = f"SELECT {file}, 1 AS n, {clause} FROM ({_text(change)}) AS given WHERE {clause} IS NOT NULL"  # noqa: S608
    if change.kind is ChangeKind.MERGE:
        matched = spark_name(MATCHED)
        touched = f"{matched} OR {clause} IS NOT NULL" if change.by_source else matched
        rows = (
            f"SELECT {file}, COUNT({matched}) AS n, MAX({clause}) AS {clause} "  # noqa: S608 - see _text
            f"FROM ({_text(change)}) AS given WHERE {touched} GROUP BY {file}, {row}"
        )
    deletes = _numbers(change.clauses, deletes=True)
    updates = _numbers(change.clauses, deletes=False)
    return (
        f"SELECT {file}, MAX(n) AS {MATCHES}, COUNT_IF({clause} IN ({updates})) AS {UPDATED}, "  # noqa: S608
        f"COUNT_IF({clause} IN ({deletes})) AS {DELETED} FROM ({rows}) AS rows GROUP BY {file}"
    )


def rewritten(change: ChangeRows) -> str:
    """Return the query for the rows that stay, changed or not, in the table's columns."""
    clause = spark_name(CLAUSE)
    columns = []
    for at, column in enumerate(change.target.columns):
        whens = _whens(change.clauses, column)
        old = spark_name(f"{OLD}{at}")
        columns.append(f"CASE {clause} {whens} ELSE {old} END AS c{at}" if whens else f"{old} AS c{at}")
    deletes = _numbers(change.clauses, deletes=True)
    stays = f"{clause} IS NULL OR {clause} NOT IN ({deletes})"
    return f"SELECT {', '.join(columns)} FROM ({_text(change)}) AS given WHERE {stays}"  # noqa: S608 - see _text


def added(change: ChangeRows) -> str:
    """Return the query for the rows that are new, in the table's columns."""
    assert change.added is not None
    clause = spark_name(CLAUSE)
    columns = []
    for at, column in enumerate(change.target.columns):
        whens = _whens(change.added_clauses, column)
        columns.append(f"CASE {clause} {whens} END AS c{at}" if whens else f"NULL AS c{at}")
    text = change.added.sql(SPARK_WRITER)
    return f"SELECT {', '.join(columns)} FROM ({text}) AS given WHERE {clause} IS NOT NULL"  # noqa: S608 - see _text


def _text(change: ChangeRows) -> str:
    """Return the checked query as the engine gets it."""
    assert change.rows is not None
    return change.rows.sql(SPARK_WRITER)


def _whens(clauses: Sequence[Clause], column: Column) -> str:
    """Return the values that clauses give a column, each as its type: an error where one does not fit."""
    values = [(at, clause.values or {}) for at, clause in enumerate(clauses)]
    numbers = [(at, of_clause[column.name]) for at, of_clause in values if column.name in of_clause]
    return " ".join(f"WHEN {at} THEN {fitted(spark_name(f'{VALUE}{number}'), column)}" for at, number in numbers)


def _numbers(clauses: Sequence[Clause], *, deletes: bool) -> str:
    """Return the numbers of clauses as a list that is never empty."""
    return ", ".join(str(at) for at, clause in enumerate(clauses) if (clause.values is None) is deletes) or "-1"


# ---------------------------------------------------------------------- parts of trees


def _names(target: TableSource) -> list[str]:
    return [column.name for column in target.columns]


def _old(target: TableSource, alias: str) -> list[exp.Expr]:
    return [_aliased(_column(name, alias), f"{OLD}{at}") for at, name in enumerate(_names(target))]


def _values(conditions: Sequence[tuple[exp.Expr, Mapping[str, exp.Expr] | None]]) -> list[exp.Expr]:
    """Return the values of clauses, each of them NULL where its clause is not the row's: it may be an error there."""
    columns: list[exp.Expr] = []
    for at, (condition, values) in enumerate(conditions):
        before: list[tuple[exp.Expr, exp.Expr]] = [(other, exp.null()) for other, _ in conditions[:at]]
        for value in (values or {}).values():
            columns.append(_aliased(_case([*before, (condition, value)]), f"{VALUE}{len(columns)}"))
    return columns


def _case(branches: Sequence[tuple[exp.Expr, exp.Expr]]) -> exp.Case:
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy()) for condition, value in branches])


def _both(first: exp.Expr, second: exp.Expr | None) -> exp.Expr:
    if second is None:
        return first
    return exp.And(this=exp.Paren(this=first), expression=exp.Paren(this=second.copy()))


def _column(name: str, table: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(table, quoted=True))


def _aliased(node: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=node.copy(), alias=exp.to_identifier(name, quoted=True))


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))


def _changed(target: TableSource, alias: str) -> exp.Expr:
    return _called(exp.Table(this=exp.to_identifier(CHANGED, quoted=True), alias=_alias(alias)), target, alias)


def _called(node: exp.Expr, target: TableSource, alias: str) -> exp.Expr:
    """Let columns also be named with their database, where the table that is changed has no alias."""
    if alias == name_in_database(target.name):
        node.meta[QUALIFIER] = qualifier_of(target.name)
    return node


def _number(number: int) -> exp.Expr:
    return exp.Literal.number(number)
