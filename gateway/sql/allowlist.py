"""What a statement may be made of. Everything that is not named here is refused.

Two lists: the syntax nodes of a query, and functions. Functions that read files, reach the network, call into the
engine's process, sleep or tell about the server are not in the second list; neither is anything that a new release
of the parser may add, until somebody puts it here. Functions are of two parts, ``REPEATABLE`` and ``UNREPEATABLE``:
cached results rest on the first.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from sqlglot import exp

from gateway.errors import NotAllowed
from gateway.sql.duckdb.expressions import RAISE, TYPED_DIVISION
from gateway.sql.names import did_you_mean
from gateway.sql.nodes import find_all, nodes, position_of

QUERIES = (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)

_SYNTAX = frozenset(
    """
    Add Alias Aliases All Any AtTimeZone Between BitwiseAnd BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift
    BitwiseXor Boolean Bracket CTE Column Cube DPipe DataType DataTypeParam Distinct Div Dot EQ Escape Except Fetch
    Filter From GT GTE Group GroupingSets Having HexString Hint ILike Identifier IgnoreNulls In IntDiv Intersect
    Interval IntervalSpan Is Join LT LTE Lambda Lateral Like Limit Literal Mod Mul NEQ National Neg Not Null
    NullSafeEQ NullSafeNEQ Offset Order Ordered Paren PropertyEQ Qualify RawString RespectNulls Rollup Select Star
    Sub Subquery Table TableAlias TableSample TimeUnit Tuple Union Values Var Where Window WindowSpec With
    WithinGroup
    """.split()
)

REPEATABLE = frozenset(  # of Spark's functions: what they give follows from their arguments, or from all rows together
    """
    abs acos acosh add_months aggregate any approx_count_distinct approx_percentile array array_compact
    array_contains array_distinct array_except array_intersect array_join array_max array_min array_position
    array_remove array_size array_sort array_union arrays_overlap ascii asin asinh atan atan2 atanh avg base64
    bigint bin binary bit_and bit_count bit_get bit_length bit_or bit_xor bool_and bool_or boolean bround btrim
    cardinality cbrt ceil ceiling char char_length character_length charindex chr coalesce concat concat_ws contains
    conv corr cos cosh cot count count_if covar_pop covar_samp crc32 csc cume_dist date date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
    dayofweek dayofyear decimal decode degrees dense_rank div double element_at elt encode endswith equal_null every
    exists exp explode explode_outer expm1 extract factorial filter find_in_set flatten float floor forall
    format_number from_unixtime from_utc_timestamp get_json_object getbit greatest grouping grouping_id hash hex
    hour hypot if iff ifnull ilike initcap instr int isnan isnotnull isnull json_array_length kurtosis lag last_day
    lcase lead least left len length levenshtein like ln ln2 locate log log10 log1p log2 lower lpad ltrim make_date
    make_timestamp map map_concat map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values
    max md5 mean median min minute mod month monthname months_between named_struct nanvl ndv negative next_day
    nonnullvalue nth_value ntile nullif nullifzero nullvalue nvl nvl2 octet_length overlay percent_rank percentile
    percentile_approx percentile_cont percentile_disc pi pmod posexplode posexplode_outer position positive pow
    power precision quarter radians rank reduce regexp regexp_count regexp_extract regexp_extract_all regexp_instr
    regexp_like regexp_replace regexp_substr regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope
    regr_sxx regr_sxy regr_syy repeat replace reverse right rint rlike round row_number rpad rtrim sec second
    secondsofday sha sha1 sha2 shiftleft shiftright shiftrightunsigned sign signum sin sinh size skewness slice
    smallint some sort_array soundex space split split_part sqrt startswith std stddev stddev_pop stddev_samp
    str_to_map string struct substr substring substring_index sum tan tanh timestamp timestamp_cmp timestamp_micros
    timestamp_millis timestamp_seconds timestampadd timestampdiff tinyint to_char to_date to_number to_timestamp
    to_unix_timestamp to_utc_timestamp to_varchar transform translate trim trunc truncate try_add try_avg try_divide
    try_element_at try_mod try_multiply try_subtract try_sum try_to_date try_to_number try_to_timestamp typeof ucase
    unbase64 unhex unix_date unix_micros unix_millis unix_seconds upper var_pop var_samp variance weekday weekofyear
    width_bucket xxhash64 year zeroifnull zip_with
    """.split()
)

UNREPEATABLE = frozenset(  # by the time, by chance, by who asks, or by the order in which rows happen to come
    """
    any_value array_agg collect_list collect_set curdate current_catalog current_database current_date
    current_schema current_timestamp current_user effective_user first first_value last last_value listagg
    logged_in_user max_by min_by mode now rand random session_user string_agg unix_timestamp user uuid version
    """.split()
)

FUNCTIONS = REPEATABLE | UNREPEATABLE

WRITTEN_FUNCTIONS = frozenset(  # DuckDB's, that we write
    """
    abs atan atan2 avg bit_and bit_or bit_xor bool_and bool_or cbrt ceil chr coalesce concat_ws contains cos count
    count_if covar_pop covar_samp cume_dist current_date date_trunc day dayofweek dayofyear degrees dense_rank
    encode ends_with epoch_us exp factorial first first_value floor greatest grouping grouping_id hex hour instr
    isfinite isnan isodow isoyear lag last last_day last_value lead least left length levenshtein ln log10 log2
    lower lpad ltrim max md5 min minute month now ntile nullif octet_length percent_rank pi pow quantile_cont
    quarter radians rank regexp_extract regexp_full_match regexp_matches regexp_replace repeat replace reverse
    right round round_even row_number rpad rtrim second sha1 sha256 sign sin split_part sqrt starts_with
    stddev_pop stddev_samp strftime strlen substring sum tan to_days to_months to_seconds translate trim trunc
    unicode upper var_pop var_samp week xor year
    """.split()
)

_WITH_WORDS = (  # functions with words between their arguments, and operators that the parser counts among functions
    *(
        exp.Case,
        exp.Cast,
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
_SPECIAL_TIME = "now"  # with which a text may begin that means a time, where it is cast to one
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


MARKS = frozenset({TYPED_DIVISION, RAISE})
"""Functions that only texts of ours call, between one reading and the next."""


def refuse_marks(tree: exp.Expr) -> None:
    """Raise NotAllowed for a function that only stands in texts of ours, between one reading and the next."""
    for call in find_all(tree, exp.Anonymous):
        if call.name.lower() in MARKS:
            raise NotAllowed(f"The function {call.name.lower()} is not allowed.", position_of(call))


def check(tree: exp.Expr, *, functions: Collection[str] | None = FUNCTIONS) -> None:
    """Raise NotAllowed for the first part of a tree that is not on the lists.

    functions: names that may be called; None where another look at the same statement is to follow.
    """
    if not isinstance(tree, QUERIES):
        raise NotAllowed(f"Only queries are accepted here; {describe(tree)} is not.", position_of(tree))
    for node in nodes(tree, but_below=exp.Hint):  # in which nothing but plain words is left
        kind = type(node).__name__
        if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
            name = node.name.lower()
            if functions is not None and name not in functions:
                raise _no_such_function(name, node)
        elif isinstance(node, exp.Func):
            if functions is not None and not isinstance(node, _WITH_WORDS):
                raise _no_such_function(node.sql_name().lower(), node)
        elif kind not in _SYNTAX:
            raise NotAllowed(f"{describe(node)} is not allowed.", position_of(node))
        if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
            raise NotAllowed("Functions cannot stand in place of a table.", position_of(node))
        is_type = isinstance(node, exp.DataType) and not isinstance(node, exp.IntervalSpan)
        if is_type and (node.this not in _TYPES or node.args.get("kind")):
            raise NotAllowed("Only the built-in types are allowed.", position_of(node))
        if not isinstance(node, _QUOTED_WHEN_WRITTEN):
            _check_words(node)
        if isinstance(node, exp.Extract) and not _PLAIN_WORDS.fullmatch(node.name):
            raise NotAllowed("EXTRACT takes the name of a part.", position_of(node))


def is_repeatable(tree: exp.Expr) -> bool:
    """Tell whether a query that is allowed gives the same answer again over the same rows, on the same day.

    Where SQL leaves rows or their order open (LIMIT without ORDER BY, ties), any answer that it allows is the same. A
    text that is a time of day means one of today, which is why the day counts.
    """
    for node in nodes(tree, but_below=exp.Hint):
        if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
            if node.name.lower() not in REPEATABLE:
                return False
        elif isinstance(node, exp.Func):
            if isinstance(node, _OF_THE_MOMENT) or not isinstance(node, _WITH_WORDS):
                return False
        elif isinstance(node, exp.TableSample) or type(node).__name__ not in _SYNTAX:
            return False
        elif isinstance(node, exp.Literal) and node.is_string and _means_now(node.name):
            return False
    return True


def _means_now(text: str) -> bool:
    return text.strip().lower().startswith(_SPECIAL_TIME)


def _no_such_function(name: str, node: exp.Expr) -> NotAllowed:
    return NotAllowed(f"The function {name} is not allowed{did_you_mean(name, FUNCTIONS)}", position_of(node))


def _check_words(node: exp.Expr) -> None:
    """Refuse text that the parser keeps as it was sent and writes without quotes, unless it is plain words."""
    for value in node.args.values():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not _PLAIN_WORDS.fullmatch(text):
                raise NotAllowed(f"{describe(node)} holds text that is not allowed.", position_of(node))


def describe(node: exp.Expr) -> str:
    """Name a kind of syntax for people."""
    if isinstance(node, exp.Command):
        return str(node.this).upper()
    return node.key.upper()


def function_names() -> tuple[str, ...]:
    """Return the names of functions that statements may use, sorted."""
    return tuple(sorted(FUNCTIONS))
