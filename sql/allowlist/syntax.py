"""Syntax that queries may use, and a test for queries that give the same answer again.

The allow-list names the parser's nodes. Nodes of a new release of the parser are refused until they are added here.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from sqlglot import exp

from sql.allowlist.functions import FUNCTIONS, GENERATORS, REFUSED, REFUSED_FORMS, REPEATABLE, TABLE_FUNCTIONS
from sql.errors import NotAllowed
from sql.guards import FENCE, RAISE
from sql.names import did_you_mean
from sql.nodes import find_all, nodes, position_of
from sql.parsers.words import describe, first_word, why_refused

QUERIES = (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)

_SYNTAX = frozenset(
    """
    Add Alias Aliases All Any AtTimeZone Between BitwiseAnd BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift
    BitwiseXor Boolean Bracket CTE Column Cube DPipe DataType DataTypeParam Distinct Div Dot EQ Escape Except
    Fetch Filter From GT GTE Group GroupingSets Having HexString Hint ILike Identifier IgnoreNulls In IntDiv Intersect
    Interval IntervalSpan Is Join LT LTE Lambda Lateral Like Limit Literal Mod Mul NEQ National Neg Not Null
    NullSafeEQ NullSafeNEQ Offset Order Ordered Paren Piped PropertyEQ Qualify RawString RespectNulls
    Rollup Select Star Sub Subquery Table TableAlias TableSample TimeUnit Tuple Union Values Var Version Where Window
    WindowSpec With WithinGroup
    """.split()
)
_IN_TYPES = frozenset(
    "ColumnDef ColumnConstraint CollateColumnConstraint CommentColumnConstraint NotNullColumnConstraint".split()
)
"""Nodes of a struct's fields, which stand nowhere but in a type."""

_OF_SPARK = _IN_TYPES | {"Collate", "Kwarg", "Pivot", "PivotAlias"}
"""Nodes that are allowed in Spark's dialect only: their meaning in others was not checked."""

_WITHOUT_NEW_TEXT = frozenset(  # their result is not a text, or is one of their arguments or a part of it
    """
    abs acos acosh add_months any approx_count_distinct approx_percentile array array_compact array_contains
    array_distinct array_position array_remove array_size array_union ascii asin asinh atan atan2 atanh avg bigint
    bit_and bit_count bit_length bit_or bit_xor bool_and bool_or boolean bround cardinality cbrt ceil ceiling
    char_length character_length coalesce corr cos cosh count count_if covar_pop covar_samp cume_dist date date_add
    date_diff date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayofmonth dayofweek
    dayofyear decimal degrees dense_rank double element_at every exp explode explode_outer extract factorial float
    floor from_utc_timestamp greatest grouping grouping_id hour if ifnull int isnan isnotnull isnull kurtosis lag
    last_day lead least length ln locate log log10 log2 make_date make_timestamp map max mean median min minute mod
    month months_between named_struct nanvl ndv negative nth_value ntile nullif nvl nvl2 octet_length percent_rank
    percentile percentile_approx percentile_cont percentile_disc pi pmod pow power quarter radians rank round
    row_number second sequence shiftleft shiftright sign sin size skewness smallint some sqrt std stddev stddev_pop
    stddev_samp struct sum tan timestamp timestamp_micros timestamp_millis timestamp_seconds timestampadd
    timestampdiff tinyint to_date to_timestamp to_unix_timestamp to_utc_timestamp trunc try_avg try_divide try_sum
    try_to_date try_to_timestamp unix_date unix_micros unix_millis unix_seconds var_pop var_samp variance weekday
    weekofyear year
    """.split()
)

_WITH_WORDS = (  # functions with words between their arguments, and operators that the parser counts among functions
    *(
        exp.Case,
        exp.Cast,
        exp.Collate,
        exp.Concat,
        exp.Connector,
        exp.CurrentDate,
        exp.CurrentTimestamp,
        exp.Exists,
        exp.Extract,
        exp.If,
    ),
    *(exp.Overlay, exp.RegexpLike, exp.StrPosition, exp.Substring, exp.Trim),
)
_OF_THE_MOMENT = (exp.CurrentDate, exp.CurrentTimestamp)
_SPECIAL_TIME = "now"  # a text that begins with it is the current time once it is cast to a timestamp
_TEXT_LITERALS = (exp.Literal, exp.RawString, exp.National)
_NEW_TEXT = (exp.Concat, exp.DPipe, exp.Overlay, exp.Substring, exp.Trim)
_OF_TEXT = frozenset(  # functions of texts alone
    """
    btrim char_length character_length concat concat_ws initcap lcase left length lower lpad ltrim md5 octet_length
    repeat replace reverse right rpad rtrim sha sha1 sha2 substr substring translate trim ucase upper
    """.split()
)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_TYPES_OF_SPARK = frozenset({exp.DType.VARIANT, exp.DType.GEOMETRY, exp.DType.GEOGRAPHY})
_TYPES = frozenset(
    exp.DType[name]
    for name in """
    ARRAY BIGDECIMAL BIGINT BINARY BIT BLOB BOOLEAN CHAR DATE DATETIME DECIMAL DOUBLE FLOAT INT INT128 INTERVAL LIST MAP
    MEDIUMINT NCHAR NVARCHAR SMALLINT STRUCT TEXT TIME TIMESTAMP TIMESTAMPLTZ TIMESTAMPNTZ TIMESTAMPTZ TIMETZ TINYINT
    UBIGINT UINT USMALLINT UTINYINT UUID VARBINARY VARCHAR
    """.split()
)
_QUOTED_WHEN_WRITTEN = (exp.Literal, exp.Identifier, exp.RawString)
_PLAIN_WORDS = re.compile(r"[A-Za-z0-9_]*(?: [A-Za-z0-9_]+)*")


DEEPEST_TYPE = 30
"""Types in one another: Spark's reply cannot tell a type that is nested about fifty deep."""


def refuse_raised_errors(tree: exp.Expr) -> None:
    """Raise NotAllowed for the function that raises an error: only the gateway's own rewriting may call it."""
    for call in find_all(tree, exp.Anonymous):
        if call.name.lower() == RAISE:
            raise NotAllowed(f"The function {RAISE} is not allowed.", position_of(call))


def check(tree: exp.Expr, *, functions: Collection[str] | None = FUNCTIONS) -> None:
    """Raise NotAllowed for the first part of a tree that is not on the lists.

    functions: names that may be called; None: calls are checked later, in Spark's dialect.
    """
    if not isinstance(tree, QUERIES):
        word = first_word(tree)
        raise NotAllowed(f"{word} is not allowed here{why_refused(word)}", position_of(tree))
    for node in nodes(tree, but_below=exp.Hint):  # in which nothing but plain words is left
        _check_node(node, functions)
        if not isinstance(node, _QUOTED_WHEN_WRITTEN):
            _check_words(node)


def _check_node(node: exp.Expr, functions: Collection[str] | None) -> None:
    kind = type(node).__name__
    if kind in _OF_SPARK and functions is None:
        raise NotAllowed(f"{describe(node)} is allowed in the dialect spark only.", position_of(node))
    match node:
        case exp.Anonymous() | exp.AnonymousAggFunc():
            name = node.name.lower()
            in_from = isinstance(node.parent, exp.Table) and node.arg_key == "this"  # checked with the table
            if functions is not None and name not in functions and not in_from:
                raise _no_such_function(name, node)
        case exp.Func():
            if functions is not None and not isinstance(node, _WITH_WORDS):
                raise _no_such_function(node.sql_name().lower(), node)
            if isinstance(node, exp.Extract) and not _PLAIN_WORDS.fullmatch(node.name):
                raise NotAllowed("EXTRACT takes the name of a part.", position_of(node))
        case exp.Table() if not isinstance(node.this, exp.Identifier):
            _check_table_function(node, functions)
        case exp.DataType() if not isinstance(node, exp.IntervalSpan):
            _check_type(node, of_spark=functions is not None)
        case exp.ColumnDef() if not isinstance(node.parent, exp.DataType):
            raise NotAllowed(f"{describe(node)} is not allowed here.", position_of(node))
        case exp.Pivot() if node.alias_column_names:
            raise NotAllowed("The alias of PIVOT and UNPIVOT takes no list of columns.", position_of(node))
        case exp.Pivot():
            if node.find(exp.Query) is not None:
                raise NotAllowed("PIVOT takes literal values, not a query.", position_of(node))
        case _ if kind not in _SYNTAX | _OF_SPARK:
            raise NotAllowed(f"{describe(node)} is not allowed.", position_of(node))


def _check_table_function(node: exp.Table, functions: Collection[str] | None) -> None:
    call = node.this
    if functions is None:
        raise NotAllowed("Table functions are allowed in the dialect spark only.", position_of(node))
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    if name in REFUSED or name in REFUSED_FORMS:
        raise _no_such_function(name, node)
    if name not in TABLE_FUNCTIONS or name not in functions:
        allowed = ", ".join(sorted(TABLE_FUNCTIONS))
        raise NotAllowed(f"This is not a table function; table functions are {allowed}.", position_of(node))


def _check_type(node: exp.DataType, *, of_spark: bool) -> None:
    is_interval = isinstance(node.this, exp.Interval) and node.this.this is None
    is_allowed = node.this in _TYPES or (of_spark and (is_interval or node.this in _TYPES_OF_SPARK))
    if not is_allowed or node.args.get("kind"):
        raise NotAllowed("Only the built-in types are allowed.", position_of(node))
    depth, around = 0, node.parent
    while isinstance(around, exp.DataType | exp.ColumnDef):
        depth, around = depth + isinstance(around, exp.DataType), around.parent
    if depth > DEEPEST_TYPE:
        raise NotAllowed(f"Types are nested more than {DEEPEST_TYPE} deep.", position_of(node))


_OF_ORDER = (
    exp.AnyValue,
    exp.ApproxDistinct,
    exp.ApproxQuantile,
    exp.ArgMax,
    exp.ArgMin,
    exp.ArrayAgg,
    exp.ArrayUniqueAgg,
    exp.First,
    exp.FirstValue,
    exp.GroupConcat,
    exp.Last,
    exp.LastValue,
    exp.Mode,
)
"""Functions whose value depends on the order of rows, or is an approximation."""
NAMES_OF_ORDER = frozenset(
    "any_value approx_count_distinct approx_percentile bool_any collect_list collect_set first first_value last "
    "last_value listagg max_by min_by mode monotonically_increasing_id percentile_approx string_agg try_first".split()
)


def is_repeatable(tree: exp.Expr) -> bool:
    """Return True if an allowed query gives the same answer again over the same rows on the same day.

    Where SQL leaves rows or their order open (LIMIT without ORDER BY, ties), any allowed answer counts as the same. The
    day matters because Spark casts a time of day to a timestamp of the current day. Spark casts the constant ``now`` to
    the current time, also if it is computed, but not a value of a column.
    """
    computed = list[exp.Expr]()
    for node in nodes(tree, but_below=exp.Hint):
        if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
            if node.name.lower() == FENCE:
                continue
            if node.name.lower() not in REPEATABLE:
                return False
        elif isinstance(node, exp.Func):
            if isinstance(node, _OF_THE_MOMENT) or not isinstance(node, _WITH_WORDS):
                return False
        elif isinstance(node, exp.TableSample) or type(node).__name__ not in _SYNTAX | _OF_SPARK:
            return False
        if isinstance(node, _TEXT_LITERALS):
            if _means_now(node.name):
                return False
        elif _makes_text(node) and not _stays_text(node):
            computed.append(node)
    return not computed or not _with_constants(tree, computed)


def leaves_open(tree: exp.Expr) -> bool:
    """Return True if SQL allows several answers to a query: rows of a LIMIT, values of ties or of an order.

    A window function is taken to depend on the order of its ties, unless it only ranks.
    """
    for node in nodes(tree):
        if isinstance(node, exp.Limit | exp.Offset | exp.Fetch | exp.TableSample | exp.Distinct) and (
            not isinstance(node, exp.Distinct) or node.args.get("on")
        ):
            return True
        if isinstance(node, exp.Window) and node.args.get("order") and not _ranks(node.this):
            return True
        if isinstance(node, _OF_ORDER):
            return True
        if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc) and node.name.lower() in NAMES_OF_ORDER:
            return True
    return False


def _ranks(function: exp.Expr) -> bool:
    if isinstance(function, exp.Anonymous):
        return function.name.lower() in ("rank", "dense_rank", "percent_rank", "cume_dist")
    return isinstance(function, exp.Rank | exp.DenseRank | exp.PercentRank | exp.CumeDist)


def _means_now(text: str) -> bool:
    return text.strip().lower().startswith(_SPECIAL_TIME)


def _makes_text(node: exp.Expr) -> bool:
    """Return True if a node may return a text that is not a literal of the statement."""
    if isinstance(node, exp.Cast):
        return not isinstance(node.this, exp.Literal) and node.to.this in exp.DataType.TEXT_TYPES
    if isinstance(node, exp.Anonymous):
        return node.name.lower() not in _WITHOUT_NEW_TEXT
    return isinstance(node, _NEW_TEXT)


def _stays_text(node: exp.Expr) -> bool:
    """Return True if a text is an output, or is only compared with texts: nothing casts it to a time."""
    while (above := node.parent) is not None and _is_of_text(above):
        node = above
    if isinstance(above, exp.Select):
        return node.arg_key == "expressions"
    if isinstance(above, _COMPARISONS):
        other = above.expression if node is above.this else above.this
        return other.is_string or _makes_text(other)
    return isinstance(above, exp.Like | exp.ILike | exp.RegexpLike)


def _is_of_text(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _OF_TEXT
    return isinstance(node, exp.Alias | exp.Paren | exp.Concat | exp.DPipe | exp.Substring | exp.Trim)


def _with_constants(tree: exp.Expr, computed: Collection[exp.Expr]) -> bool:
    """Return True if one of some expressions is a constant: it contains neither a column nor a query."""
    varying = set[int]()
    for node in nodes(tree, but_below=exp.Hint):
        above: exp.Expr | None = node if isinstance(node, exp.Column | exp.Query) else None
        while above is not None and id(above) not in varying:
            varying.add(id(above))
            above = above.parent
    return any(id(node) not in varying for node in computed)


def _no_such_function(name: str, node: exp.Expr) -> NotAllowed:
    if name in REFUSED_FORMS:
        return NotAllowed(f"{name.upper()} is not allowed: {REFUSED_FORMS[name]}.", position_of(node))
    if name in REFUSED:
        return NotAllowed(f"The function {name} is not allowed: {REFUSED[name]}.", position_of(node))
    return NotAllowed(f"The function {name} is not allowed{did_you_mean(name, FUNCTIONS)}", position_of(node))


def _check_words(node: exp.Expr) -> None:
    """Raise NotAllowed for text that the parser would write without quotes, unless it is plain words."""
    for value in node.args.values():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not _PLAIN_WORDS.fullmatch(text):
                raise NotAllowed(f"{describe(node)} contains text that is not allowed.", position_of(node))


def is_generator(expression: exp.Expr) -> bool:
    """Return True if an output is a generator: its columns have their own names (pos, col, key, value)."""
    written = isinstance(expression, exp.Anonymous) and expression.name.lower() in GENERATORS
    return written or isinstance(expression, exp.Explode | exp.Posexplode)
