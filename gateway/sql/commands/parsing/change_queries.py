"""The queries of an UPDATE, DELETE or MERGE, and what is asked of them.

What a statement says of rows becomes one checked query, like any other's, whose columns are named here: of each row
which clause is for it, the row as it is, and the values that the clauses give. The texts at the end are ours alone.
They are written around the engine's text of that query, and read its columns by these names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from engines.protocol import Column, TableSource
from gateway.sql.commands.writes import OWN_NAMES, ChangeKind, ChangeRows, Clause
from gateway.sql.dialects.names import SPARK
from gateway.sql.statement import CheckedStatement
from selector.quoting import spark_name

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

_ONCE_ONLY = frozenset(  # functions that may say something else of the same rows the next time
    """
    any any_value array_agg collect_list collect_set first first_value last last_value listagg max_by min_by mode rand
    random string_agg uuid
    """.split()
)
_ONCE_ONLY_SYNTAX = (exp.Limit, exp.Fetch, exp.Offset, exp.TableSample, exp.Window)


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
    """What a MERGE takes rows from. node: a table or query with its alias. columns: None where they are not known."""

    node: exp.Expr
    alias: str
    columns: tuple[str, ...] | None

    def marked(self) -> exp.Subquery:
        """Return a query for its rows under its alias, each with TRUE as MATCHED."""
        columns: list[exp.Expr] = [exp.Column(this=exp.Star(), table=exp.to_identifier(self.alias, quoted=True))]
        if self.columns is not None:
            columns = [_aliased(_column(name, self.alias), name) for name in self.columns]
        query = exp.Select(expressions=[*columns, _aliased(exp.true(), MATCHED)], from_=exp.From(this=self.node.copy()))
        return exp.Subquery(this=query, alias=_alias(self.alias))


def changed_table(target: TableSource) -> TableSource:
    """Return the table whose rows change, as the queries see it."""
    own = (Column(FILE, "string"), Column(ROW, "bigint"))
    return replace(target, name=CHANGED, columns=(*target.columns, *own))


def changed_rows(target: TableSource, alias: str, choice: Choice) -> exp.Select:
    """Return the query of an UPDATE or DELETE, whose condition is looked at once for each row."""
    hit = _case([(choice.condition if choice.condition is not None else exp.true(), _number(0))])
    columns = [_aliased(_column(name, alias), name) for name in (*_names(target), FILE)]
    inner = exp.Select(expressions=[*columns, _aliased(hit, CLAUSE)], from_=exp.From(this=_changed(alias)))
    clause = _column(CLAUSE, alias)
    outer = [_aliased(_column(name, alias), name) for name in (FILE, CLAUSE)] + _old(target, alias)
    values = _values([(exp.EQ(this=clause, expression=_number(0)), choice.values)])
    within = exp.Subquery(this=inner, alias=_alias(alias))
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
    return exp.Select(expressions=columns, from_=exp.From(this=_changed(alias)), joins=[join])


def added_rows(alias: str, source: Source, on: exp.Expr, choices: Sequence[Choice]) -> exp.Select:
    """Return the query of a MERGE for the rows of its source that meet none."""
    conditions = [(_both(_column(MATCHED, source.alias), choice.condition), choice.values) for choice in choices]
    clause = _case([(condition, _number(at)) for at, (condition, _) in enumerate(conditions)])
    join = exp.Join(this=_changed(alias), side="LEFT", kind="ANTI", on=on.copy())
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
    chosen = [each.this for each in query.tree.find_all(exp.Alias) if each.alias == CLAUSE]
    return all(is_repeatable(each) for each in (*joins, *chosen))


def with_written_source(query: CheckedStatement, source: TableSource) -> CheckedStatement:
    """Return a query that reads its source from what was written of it."""
    tree = query.tree.copy()
    for select in list(tree.find_all(exp.Select)):
        if any(each.alias == MATCHED and isinstance(each.this, exp.Boolean) for each in select.expressions):
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
    kept = f"{clause} IS NULL OR {clause} NOT IN ({deletes})"
    return f"SELECT {', '.join(columns)} FROM ({_text(change)}) AS given WHERE {kept}"  # noqa: S608 - see _text


def none(change: ChangeRows) -> str:
    """Return the query for no rows, in the table's columns."""
    columns = ", ".join(f"NULL AS c{at}" for at, _ in enumerate(change.target.columns))
    return f"SELECT {columns} WHERE FALSE"


def added(change: ChangeRows) -> str:
    """Return the query for the rows that are new, in the table's columns."""
    assert change.added is not None
    clause = spark_name(CLAUSE)
    columns = []
    for at, column in enumerate(change.target.columns):
        whens = _whens(change.added_clauses, column)
        columns.append(f"CASE {clause} {whens} END AS c{at}" if whens else f"NULL AS c{at}")
    text = change.added.sql(SPARK)
    return f"SELECT {', '.join(columns)} FROM ({text}) AS given WHERE {clause} IS NOT NULL"  # noqa: S608 - see _text


def _text(change: ChangeRows) -> str:
    """Return the checked query as the engine gets it."""
    assert change.rows is not None
    return change.rows.sql(SPARK)


def _whens(clauses: Sequence[Clause], column: Column) -> str:
    """Return the values that clauses give a column, each as its type: an error where one does not fit."""
    given = [
        (at, each.values[column.name]) for at, each in enumerate(clauses) if each.values and column.name in each.values
    ]
    return " ".join(
        f"WHEN {at} THEN CAST({spark_name(f'{VALUE}{number}')} AS {column.type.spark()})" for at, number in given
    )


def _numbers(clauses: Sequence[Clause], *, deletes: bool) -> str:
    """Return the numbers of clauses as a list that is never empty."""
    return ", ".join(str(at) for at, each in enumerate(clauses) if (each.values is None) is deletes) or "-1"


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


def _changed(alias: str) -> exp.Table:
    return exp.Table(this=exp.to_identifier(CHANGED, quoted=True), alias=_alias(alias))


def _number(number: int) -> exp.Expr:
    return exp.Literal.number(number)
