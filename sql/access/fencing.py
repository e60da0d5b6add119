"""Fences between row filters and conditions of a statement that may fail.

An optimizer may evaluate a statement's condition before a row filter, and a cast that fails names the value. Spark also
takes ``CASE WHEN`` apart for that. So where a condition may fail for a value, a filtered part gets a fence above its
filter: a condition that always holds, which each writer writes as something past which its engine moves no other
one. Other statements get none, so that their conditions still reach the files.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from sqlglot import exp

from selector.types import Kind
from sql.access.parts import FILTERED, LENT, PART, RELATION
from sql.allowlist.syntax import is_generator
from sql.guards import FENCE
from sql.limits.sizes import number_of
from sql.nodes import find_all, nodes
from sql.tables import TableSource, View

_NEVER_FAIL = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Alias, exp.Star),
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.Exists, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.Tuple),
    *(exp.Select, exp.Subquery, exp.From, exp.Where, exp.Join, exp.Group, exp.Order, exp.Ordered, exp.Having),
    *(exp.Limit, exp.Offset, exp.Distinct, exp.Table, exp.TableAlias, exp.With, exp.CTE, exp.Qualify),
    *(exp.Window, exp.WindowSpec),
)
"""Nodes whose evaluation never fails for a value."""
_AGGREGATES = frozenset({"count", "min", "max", "sum", "avg", "row_number", "rank", "dense_rank"})
"""Functions that are evaluated after every filter below them."""
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Between, exp.In, exp.Like)
_BY_PLACE = (exp.SetOperation, exp.Values, exp.Lateral, exp.Unnest, exp.Pivot)
"""Nodes that give columns names by their place: what they hold cannot be followed by name."""
_CONDITIONS = (exp.Where, exp.Having, exp.Qualify)
_OF_TRUTHS = (exp.And, exp.Or, exp.Not, *_CONDITIONS)
"""Nodes over truth values."""
_NUMBER, _TEXT, _TRUTH, _DATE = "number", "text", "boolean", "date"
_MOMENTS = ("timestamp", "timestamp_ntz")
_OF_LITERALS = {exp.DType.DATE: _DATE, exp.DType.TIMESTAMPTZ: _MOMENTS[0], exp.DType.TIMESTAMPNTZ: _MOMENTS[1]}
_OF_ANY_CONSTANTS = frozenset(
    "current_date current_timestamp current_user now curdate upper lower trim ltrim rtrim concat length".split()
)
"""Functions that fail for no text, nor by themselves."""
_MUCH = 2.0**31
_SHORT = re.compile(r"[0-9]{1,4}")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(rf"{_DAY.pattern}( [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?)?")
_NUMBERS = frozenset({Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL})


def fence(
    tree: exp.Expr, tables: Mapping[str, TableSource], views: Mapping[str, View], *, outputs_decide: bool
) -> None:
    """Put fences above row filters where a condition of the statement may fail for a value of a row.

    outputs_decide: the outputs of the statement are conditions, too.
    """
    filtered = [select for select in find_all(tree, exp.Select) if select.meta.get(FILTERED)]
    lent = [subquery for subquery in find_all(tree, exp.Subquery) if subquery.meta.get(LENT)]
    if not filtered and not lent:
        return
    outer = list(_outside_of_policies(tree))
    types = _types(outer, filtered, tables, views)
    if _conditions_may_fail(outer, types) or (outputs_decide and any(_may_fail(node, types) for node in outer)):
        by_constants = any(_is_doubtful_constant(node, types) for node in outer)
        for select in filtered:
            _put_fence(select, [shown.alias_or_name for shown in select.selects], by_constants=by_constants)
        for subquery in lent:
            whole = exp.Select(expressions=[exp.Star()], from_=exp.From(this=subquery.copy()))
            _put_fence(whole, subquery.meta[LENT], by_constants=by_constants)
            subquery.set("this", whole)


def _put_fence(select: exp.Select, names: Sequence[str], *, by_constants: bool) -> None:
    """Put a fence above a query: ``SELECT c, ... FROM (the query) AS t WHERE fence``.

    names: of its columns.
    by_constants: a constant of the statement may fail.
    """
    source = select.args["from_"].this
    alias = exp.TableAlias(this=exp.to_identifier(source.alias_or_name, quoted=True))
    inner = exp.Select(**{name: value for name, value in select.args.items() if value})
    for name in list(select.args):
        select.set(name, None)
    select.set("expressions", [exp.column(exp.to_identifier(name, quoted=True)) for name in names])
    select.set("from_", exp.From(this=exp.Subquery(this=inner, alias=alias)))
    argument = [exp.true()] if by_constants else []
    select.set("where", exp.Where(this=exp.Anonymous(this=FENCE, expressions=argument)))


def _outside_of_policies(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of a statement, and of the views in it, that are of no policy's text."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if node.meta.get(PART):
            waiting.append(node.args["from_"].this)  # of a view its own query
            continue
        yield node
        waiting += node.iter_expressions()


def _conditions_may_fail(outer: Sequence[exp.Expr], types: Mapping[str, str]) -> bool:
    """Tell whether a condition, or a value that one looks at, may fail for a value of a row."""
    failing = {id(node) for node in outer if _may_fail(node, types)}
    if not failing:
        return False
    if any(
        is_generator(node) or (isinstance(node, exp.Join | exp.SetOperation) and id(node) in failing) for node in outer
    ):
        return True
    if any(isinstance(node, _BY_PLACE) or _renames(node) for node in outer):
        return True
    conditions = [node for node in outer if isinstance(node, _CONDITIONS)]
    conditions += [node.args["on"] for node in outer if isinstance(node, exp.Join) and node.args.get("on")]
    joins = [node for node in outer if isinstance(node, exp.Join)]
    joined = {name.name.lower() for join in joins for name in join.args.get("using") or ()}
    looked_at = joined.union(*map(_columns_in, conditions))
    outputs = [shown for node in outer if isinstance(node, exp.Select) for shown in node.selects]
    aliases = [(shown.output_name.lower(), shown) for shown in outputs]
    if any(not name and not shown.is_star and _holds(shown, failing) for name, shown in aliases):
        return True  # its name is not known here
    while True:  # what these columns are made of is looked at, too
        below = {column for name, node in aliases if name in looked_at for column in _columns_in(node)}
        if below <= looked_at:
            break
        looked_at |= below
    evaluated = [*conditions, *(node for name, node in aliases if name in looked_at)]
    return any(_holds(node, failing) for node in evaluated)


def _holds(node: exp.Expr, failing: Container[int]) -> bool:
    """Tell whether an expression holds one of the nodes with these identities."""
    return any(id(inner) in failing for inner in nodes(node))


def _may_fail(node: exp.Expr, types: Mapping[str, str]) -> bool:
    """Tell whether the evaluation of a node itself may fail for a value."""
    if isinstance(node, _OF_TRUTHS) and any(_is_no_truth(part, types) for part in node.iter_expressions()):
        return True
    if isinstance(node, exp.Join) and not _joins_alike(node, types):
        return True
    if isinstance(node, exp.SetOperation):
        return not _sets_are_alike(node, types)
    if isinstance(node, exp.Is):
        return not isinstance(node.expression, exp.Null)
    if isinstance(node, _NEVER_FAIL) or _aggregate(node) or _typed_literal(node):
        return False
    return not (isinstance(node, _COMPARISONS) and _compares_alike(node, types))


def _is_doubtful_constant(node: exp.Expr, types: Mapping[str, str]) -> bool:
    """Tell whether a constant may fail: with the first row that comes near it, or with none, if bounds exclude all."""
    if not _may_fail(node, types) or isinstance(node, exp.Join | exp.SetOperation | exp.Query):
        return False
    if isinstance(node, _COMPARISONS) and any(
        isinstance(side, exp.Literal) and side.is_string for side in node.iter_expressions()
    ):
        return True
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Neg) and _is_small(node):
        return False
    if isinstance(node, exp.Var) or _is_short(node) or _is_of_any_constants(node):
        return False
    if isinstance(node, exp.Add | exp.Sub) and _is_short(node.expression):
        return not (_typed_literal(node.left) or _is_of_any_constants(node.left))
    return not any(isinstance(inner, exp.Column | exp.Query) for inner in nodes(node))


def _is_small(node: exp.Expr) -> bool:
    """Tell whether a constant is computed of plain numbers and fits an INT: 100Y + 100Y overflows a TINYINT."""
    number = number_of(node)
    is_plain = all(literal.name[-1:].isdigit() for literal in find_all(node, exp.Literal))
    return number is not None and abs(number) < _MUCH and is_plain


def _is_short(node: exp.Expr) -> bool:
    """Tell whether a node is an interval of at most four digits, which moves no date past what engines know."""
    return isinstance(node, exp.Interval) and _SHORT.fullmatch(node.this.name if node.this else "") is not None


def _is_of_any_constants(node: exp.Expr) -> bool:
    """Tell whether a node is a function that fails for no constant."""
    is_named = isinstance(node, exp.Anonymous) and node.name.lower() in _OF_ANY_CONSTANTS
    return is_named or isinstance(node, exp.Trim)


def _is_no_truth(part: exp.Expr, types: Mapping[str, str]) -> bool:
    """Tell whether a part of a condition is a column that Spark has to cast to a truth value."""
    part = part.unnest()
    return isinstance(part, exp.Column) and _type_of(part, types) != _TRUTH


def _joins_alike(join: exp.Join, types: Mapping[str, str]) -> bool:
    """Tell whether the columns that a join compares by their names have the same type on both sides."""
    return not join.args.get("method") and all(name.name.lower() in types for name in join.args.get("using") or ())


def _sets_are_alike(node: exp.SetOperation, types: Mapping[str, str]) -> bool:
    """Tell whether the columns of a set operation have the same type in both queries."""
    queries = [query.unnest() for query in (node.left, node.right)]
    rows = []
    for query in queries:
        if isinstance(query, exp.SetOperation):
            query = query.left.unnest()  # which is compared with its other side by itself
        if not isinstance(query, exp.Select):
            return False
        rows.append([_type_of(shown.unalias(), types) for shown in query.selects])
    return None not in rows[0] and rows[0] == rows[1]


def _renames(node: exp.Expr) -> bool:
    return isinstance(node, exp.TableAlias) and bool(node.args.get("columns"))


def _columns_in(node: exp.Expr) -> set[str]:
    """Return the names of all columns in an expression; of ``a.b`` both, as either may be the column."""
    return {part.name.lower() for column in find_all(node, exp.Column) for part in column.parts}


def _aggregate(node: exp.Expr | None) -> str:
    """Return the name of the aggregate that a node is; "": it is none."""
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    return name if name in _AGGREGATES else ""


def _compares_alike(node: exp.Expr, types: Mapping[str, str]) -> bool:
    """Tell whether no side of a comparison is cast to the other's type, row by row."""
    if isinstance(node, exp.In) and (node.args.get("unnest") or node.args.get("field")):
        return False
    if isinstance(node, exp.In) and node.args.get("query"):
        query = node.args["query"].unnest()
        shown = query.selects[0] if isinstance(query, exp.Select) and len(query.selects) == 1 else None
        own = _type_of(node.this, types)
        return shown is not None and own is not None and own == _type_of(shown.unalias(), types)
    sides = {_type_of(side, types) for side in node.iter_expressions()}
    if isinstance(node, exp.Like):
        return sides == {_TEXT} and isinstance(node.expression, exp.Literal) and "\\" not in node.expression.name
    columns = {_type_of(side, types) for side in node.iter_expressions() if not isinstance(side, exp.Literal)}
    if not columns:
        return len(sides) == 1
    if None in sides or len(columns) > 1:
        return False
    texts = [side.name for side in node.iter_expressions() if isinstance(side, exp.Literal) and side.is_string]
    return sides <= {*columns, _TEXT} and all(_reads_as(text, kind) for text in texts for kind in columns if kind)


def _reads_as(text: str, kind: str) -> bool:
    """Tell whether a text can be cast to a type: an engine may meet one that cannot with its first row, or never."""
    if kind == _TEXT:
        return True
    if kind == _NUMBER:
        return _WHOLE.fullmatch(text) is not None
    if kind == _TRUTH:
        return text in ("true", "false")
    form = _DAY if kind == _DATE else _MOMENT if kind in _MOMENTS else None
    if form is None or not form.fullmatch(text):
        return False
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _typed_literal(node: exp.Expr) -> str:
    """Return the type of a literal such as ``DATE '2024-01-01'``; "": the node is none, or its text cannot be read."""
    if not isinstance(node, exp.Cast) or not isinstance(node.this, exp.Literal) or not node.this.is_string:
        return ""
    kind = _OF_LITERALS.get(node.to.this, "")
    return kind if _reads_as(node.this.name, kind) else ""


def _type_of(side: exp.Expr, types: Mapping[str, str]) -> str | None:
    """Return what a side of a comparison is; None: unknown."""
    while isinstance(side, exp.Paren):
        side = side.this
    if isinstance(side, exp.Literal):
        return _TEXT if side.is_string else _NUMBER
    if (kind := _typed_literal(side)) != "":
        return kind
    if _aggregate(side) in ("min", "max"):
        return _type_of(side.expressions[0], types) if len(side.expressions) == 1 else None
    if _aggregate(side) in ("count", "row_number", "rank", "dense_rank"):
        return _NUMBER
    if isinstance(side, exp.Column) and isinstance(side.this, exp.Identifier) and len(side.parts) < 3:
        table = side.table.lower()
        return types.get(side.name.lower()) if not table or f"{table}." in types else None
    return None


def _types(
    outer: Iterable[exp.Expr],
    filtered: Iterable[exp.Select],
    tables: Mapping[str, TableSource],
    views: Mapping[str, View],
) -> dict[str, str]:
    """Return the types of columns by name, where all columns of that name in the statement have one type."""
    types: dict[str, str | None] = {}
    restricted = {select.meta[RELATION] for select in filtered}
    for name in restricted | {node.name for node in outer if isinstance(node, exp.Table)}:
        relation = tables.get(name) or views.get(name)
        for column in relation.columns if relation is not None else ():
            kind = column.type.kind
            own = _NUMBER if kind in _NUMBERS else _TEXT if kind in (Kind.STRING, Kind.VARCHAR) else column.data_type
            before = types.setdefault(column.name.lower(), own)
            if before != own:
                types[column.name.lower()] = None
    for alias in outer:
        if isinstance(alias, exp.Alias):
            value = alias.unalias()
            if not (isinstance(value, exp.Column) and value.name.lower() == alias.alias.lower()):
                types[alias.alias.lower()] = None
    for alias in outer:
        if isinstance(alias, exp.TableAlias):
            types.update({column.name.lower(): None for column in alias.args.get("columns") or ()})
            types.setdefault(f"{alias.name.lower()}.", "")  # before a point, it is no struct
    return {name: own for name, own in types.items() if own is not None}
