"""Types of a statement's expressions before it is normalized to Spark, as far as Hive's and Impala's rules give them.

Hive and Impala choose a meaning by types: ``||`` joins texts or is OR, a CAST of a number wraps around and one of a
text is NULL. Each expression is annotated once with the short name of its type, without its length; an expression that
replaces it in the tree takes the type over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.scope import Scope, traverse_scope

from selector.types import BY_NAME, FLOATING, MISTAKEN, WHOLE, Group, Kind
from sql.tables import Column

UNKNOWN = ""
NULL = "null"
BOOLEAN, STRING = Kind.BOOLEAN.value, Kind.STRING.value
DATE, TIMESTAMP = Kind.DATE.value, Kind.TIMESTAMP.value
NUMBERS = (*WHOLE, "decimal", *FLOATING)
"""From the narrowest to the widest."""

Columns = tuple[tuple[str, str], ...]
"""Names of columns in lower case, in their order, with their types; a * stands for unknown columns."""

Stored = Callable[[str], Sequence[Column] | None]
"""Columns of a table or view by its name in lower case; None: there is none."""

_KEY = "fusion_type"
_LARGEST_INT, _LARGEST_BIGINT = 2**31 - 1, 2**63 - 1

_RETURNS: Mapping[str, str] = {
    **dict.fromkeys(
        """
        base64 base64decode base64encode bin btrim chr concat_ws conv current_database dayname decode format_number
        from_timestamp from_unixtime get_json_object group_concat hex initcap lcase left lower lpad ltrim md5 monthname
        parse_url regexp_escape regexp_extract regexp_replace repeat replace reverse right rpad rtrim sha1 sha2 space
        split_part strleft strright substr substring substring_index translate trim ucase unhex upper user uuid version
        current_catalog current_schema current_user effective_user logged_in_user session_user
        lower_utf8 upper_utf8 lcase_utf8 ucase_utf8 initcap_utf8 utf8_substr utf8_reverse utf8_trim date_format concat
        """.split(),
        STRING,
    ),
    **dict.fromkeys(
        "is_inf is_nan isfalse isnotfalse isnottrue istrue nonnullvalue nullvalue regexp_like isnull isnotnull".split(),
        BOOLEAN,
    ),
    **dict.fromkeys(
        """
        acos asin atan atan2 cos cosh cot degrees dexp dlog1 dlog10 dpow dsqrt e exp fpow ln log log10 log2
        months_between pi pow power radians rand random sin sinh sqrt tan tanh avg stddev stddev_pop stddev_samp
        variance variance_pop variance_samp var_pop var_samp
        """.split(),
        "double",
    ),
    **dict.fromkeys(
        """
        ascii char_length character_length date_cmp datediff day dayofmonth dayofweek dayofyear find_in_set hour instr
        int_months_between length levenshtein locate millisecond minute month quarter regexp_match_count second sign
        timestamp_cmp week weekofyear year bytes octet_length utf8_length max_int min_int
        """.split(),
        "int",
    ),
    **dict.fromkeys(
        """
        count ndv date_part extract factorial quotient unix_timestamp utc_to_unix_micros width_bucket max_bigint
        min_bigint row_number rank dense_rank ntile approx_count_distinct
        """.split(),
        "bigint",
    ),
    **dict.fromkeys(
        """
        current_timestamp from_utc_timestamp to_timestamp to_utc_timestamp now utc_timestamp
        unix_micros_to_utc_timestamp hours_add hours_sub minutes_add minutes_sub seconds_add seconds_sub
        milliseconds_add milliseconds_sub microseconds_add microseconds_sub
        """.split(),
        TIMESTAMP,
    ),
    "current_date": DATE,
}
_TIMES = frozenset(  # functions that give a date for a date, and a time for a time or a text
    """
    add_months adddate date_add date_sub subdate days_add days_sub months_add months_sub weeks_add weeks_sub years_add
    years_sub date_trunc
    """.split()
)
_LIKE_THE_FIRST = frozenset(
    """
    abs negative positive round truncate dtrunc dround ceil ceiling dceil floor dfloor min max first_value last_value
    lag lead nullif nullifzero zeroifnull trunc mod fmod pmod bitand bitor bitxor bitnot appx_median
    """.split()
)
_LIKE_ALL = frozenset("coalesce nvl ifnull greatest least".split())


def type_of(node: exp.Expr) -> str:
    """Return the annotated type of an expression, else the type of its form; UNKNOWN: neither is known."""
    kind = node.meta.get(_KEY)
    if kind is None:
        kind = _type_of(node)
        node.meta[_KEY] = kind
    return str(kind)


def set_type(node: exp.Expr, kind: str) -> None:
    """Annotate an expression with its type."""
    node.meta[_KEY] = kind


def annotate_types(tree: exp.Expr, stored: Stored) -> None:
    """Annotate every expression of a query; columns get their types from the sources that their own SELECT sees."""
    try:
        scopes = traverse_scope(tree)
    except OptimizeError:
        scopes = []
    outputs: dict[int, tuple[tuple[str, str], ...]] = {}
    for scope in scopes:  # inner ones first
        sources = {name.lower(): _columns_of(source, outputs, stored) for name, source in scope.sources.items()}
        visible = [sources[name.lower()] for name in scope.selected_sources if name.lower() in sources]
        query = scope.expression
        if isinstance(query, exp.Select):
            _annotate_columns(query, sources, visible)
        outputs[id(query)] = _outputs(query, sources, outputs)
    for node in reversed(list(tree.walk(bfs=True))):
        type_of(node)


_UNKNOWN_COLUMNS: Columns = (("*", UNKNOWN),)


def _columns_of(source: object, outputs: Mapping[int, Columns], stored: Stored) -> Columns:
    if isinstance(source, exp.Table):
        columns = stored(source.name.lower())
        if columns is None:
            return _UNKNOWN_COLUMNS
        return tuple((column.name.lower(), short_name(column.data_type)) for column in columns)
    if not isinstance(source, Scope):
        return _UNKNOWN_COLUMNS
    own = outputs.get(id(source.expression), _UNKNOWN_COLUMNS)
    parent = source.expression.parent
    alias = parent.args.get("alias") if isinstance(parent, exp.CTE | exp.Subquery) else None
    renamed = [column.name.lower() for column in alias.columns] if isinstance(alias, exp.TableAlias) else []
    if not renamed:
        return own
    if _UNKNOWN_COLUMNS[0] in own:
        return tuple((name, UNKNOWN) for name in renamed)
    return tuple((name, kind) for name, (_, kind) in zip(renamed, own, strict=False))


def _annotate_columns(query: exp.Select, sources: Mapping[str, Columns], visible: Sequence[Columns]) -> None:
    has_laterals = bool(query.args.get("laterals"))
    aliases = {alias.alias.lower(): alias for alias in query.selects if isinstance(alias, exp.Alias)}
    for column in query.find_all(exp.Column):
        if _KEY in column.meta or column.parent_select is not query:  # inner ones were annotated with their query
            continue
        name = column.name.lower()
        kind = _type_in(column, sources, visible)
        if kind is None and not column.table and name in aliases:
            if column.find_ancestor(exp.Alias) is not aliases[name]:
                kind = type_of(aliases[name].this)
        if kind is not None or has_laterals or not _is_inner(query):
            set_type(column, kind or UNKNOWN)
    for column in query.find_all(exp.Column):  # columns of this query in its subqueries
        if _KEY not in column.meta:
            kind = _type_in(column, sources, visible)
            if kind is not None or not _is_inner(query):
                set_type(column, kind or UNKNOWN)


def _is_inner(query: exp.Expr) -> bool:
    return query.parent is not None and query.find_ancestor(exp.Select) is not None


def _type_in(column: exp.Column, sources: Mapping[str, Columns], visible: Sequence[Columns]) -> str | None:
    """Return the type of a column; None: no source has it; UNKNOWN: several have it, or may have it."""
    name, table = column.name.lower(), column.table.lower()
    searched = visible if not table else [sources[table]] if table in sources else []
    kinds = [kind for columns in searched for column_name, kind in columns if column_name in (name, "*")]
    if not kinds:
        return None
    return kinds[0] if len(kinds) == 1 else UNKNOWN


def _outputs(query: exp.Expr, sources: Mapping[str, Columns], outputs: Mapping[int, Columns]) -> Columns:
    if isinstance(query, exp.SetOperation):
        first, second = (outputs.get(id(side.unnest()), _UNKNOWN_COLUMNS) for side in (query.left, query.right))
        if len(first) != len(second):
            return _UNKNOWN_COLUMNS
        return tuple((name, common([one, other])) for (name, one), (_, other) in zip(first, second, strict=True))
    if not isinstance(query, exp.Select):
        return _UNKNOWN_COLUMNS
    columns: list[tuple[str, str]] = []
    for select in query.selects:
        if isinstance(select, exp.Star):
            for source in sources.values():
                columns += source
        elif isinstance(select, exp.Column) and isinstance(select.this, exp.Star):
            columns += sources.get(select.table.lower(), _UNKNOWN_COLUMNS)
        else:
            columns.append((select.alias_or_name.lower(), type_of(select)))
    return tuple(columns)


def short_name(data_type: str) -> str:
    """Return the short name of a type as a catalog has it."""
    name = data_type.lower().partition("(")[0].partition("<")[0].strip()
    kind = BY_NAME.get(name) or MISTAKEN.get(name)
    if kind is None:
        return name
    return STRING if kind.row.group is Group.TEXT else kind.value


def common(kinds: Sequence[str]) -> str:
    """Return the common type of values of several types; UNKNOWN: there is none, or one of them is unknown."""
    distinct = {kind for kind in kinds if kind != NULL}
    if len(distinct) < 2:
        return next(iter(distinct), NULL)
    if distinct <= set(NUMBERS):
        return max(distinct, key=NUMBERS.index)
    return TIMESTAMP if distinct == {DATE, TIMESTAMP} else UNKNOWN


def _type_of(node: exp.Expr) -> str:
    match node:
        case exp.Paren() | exp.Alias() | exp.Window() | exp.Filter() | exp.Neg() | exp.Distinct() | exp.IgnoreNulls():
            inner = node.expressions[0] if isinstance(node, exp.Distinct) and node.expressions else node.this
            return type_of(inner) if isinstance(inner, exp.Expr) else UNKNOWN
        case exp.Cast() | exp.TryCast():
            return short_name(str(node.to.this.value)) if isinstance(node.to, exp.DataType) else UNKNOWN
        case exp.Literal():
            return STRING if node.is_string else _type_of_number(node.name)
        case exp.Null():
            return NULL
        case exp.CurrentDate():
            return DATE
        case exp.CurrentTimestamp():
            return TIMESTAMP
        case exp.Boolean() | exp.Predicate() | exp.Connector() | exp.Not() | exp.Between() | exp.In():
            return BOOLEAN
        case exp.Case():
            results = [*(branch.args["true"] for branch in node.args.get("ifs", ())), node.args.get("default")]
            return common([type_of(result) for result in results if result is not None])
        case exp.If():
            return common([type_of(node.args[name]) for name in ("true", "false") if node.args.get(name)])
        case exp.Subquery():
            inner = node.unnest()
            selects = inner.selects if isinstance(inner, exp.Query) else []
            return type_of(selects[0]) if len(selects) == 1 else UNKNOWN
        case exp.Substring() | exp.Trim() | exp.Concat():
            return STRING
        case exp.Extract() | exp.IntDiv():
            return "bigint"
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
            return _type_of_arithmetic(node)
        case exp.DPipe() | exp.BitwiseAnd() | exp.BitwiseOr() | exp.BitwiseXor():
            return common([type_of(node.this), type_of(node.expression)])
        case exp.Anonymous():
            return _type_of_call(node)
    return UNKNOWN


def _type_of_number(text: str) -> str:
    if not text.isdigit():
        return "decimal"
    value = int(text)
    return "int" if value <= _LARGEST_INT else "bigint" if value <= _LARGEST_BIGINT else "decimal"


def _type_of_arithmetic(node: exp.Expr) -> str:
    sides = [node.this, node.expression]
    if any(isinstance(side, exp.Interval) for side in sides):
        kinds = [type_of(side) for side in sides if not isinstance(side, exp.Interval)]
        return TIMESTAMP if kinds == [STRING] else kinds[0] if kinds else UNKNOWN
    kinds = [type_of(side) for side in sides]
    if not set(kinds) <= {*NUMBERS, NULL}:
        return UNKNOWN
    kind = common(kinds)
    return "double" if isinstance(node, exp.Div) and kind in WHOLE else kind


def _type_of_call(node: exp.Anonymous) -> str:
    name, arguments = node.name.lower(), node.expressions
    if name == "isnull" and len(arguments) == 2:
        return common([type_of(argument) for argument in arguments])
    if name in _RETURNS:
        return _RETURNS[name]
    kinds = [type_of(argument) for argument in arguments]
    if name in _LIKE_ALL:
        return common(kinds)
    if name == "sum" and kinds:
        return "bigint" if kinds[0] in WHOLE else "double" if kinds[0] in FLOATING else kinds[0]
    if name in ("last_day", "next_day", "to_date"):
        return DATE
    if name in _TIMES and kinds:
        return next((TIMESTAMP if kind == STRING else kind for kind in kinds if kind in (DATE, TIMESTAMP, STRING)), "")
    if name in _LIKE_THE_FIRST and kinds:
        return TIMESTAMP if name == "trunc" and kinds[0] == STRING else kinds[0]
    return UNKNOWN
