"""What a statement may be made of. Everything that is not named here is refused.

Two lists: the syntax nodes of a query, and functions. Functions that read files, reach the network, call into the
engine's process, sleep or tell about the server are not in the second list; neither is anything that a new release
of the parser may add, until somebody puts it here.
"""

from __future__ import annotations

import re

from sqlglot import exp

from gateway.sql.errors import NotAllowed
from gateway.sql.position import position_of

QUERIES = (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)

_SYNTAX = frozenset(
    """
    Add Alias All Any AtTimeZone Between BitwiseAnd BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift
    BitwiseXor Boolean Bracket CTE Column Cube DPipe DataType DataTypeParam Distinct Div Dot EQ Escape Except
    Filter From GT GTE Group GroupingSets Having Hint ILike Identifier IgnoreNulls In IntDiv Intersect Interval
    IntervalSpan Is Join LT LTE Lambda Lateral Like Limit Literal Mod Mul NEQ National Neg Not Null NullSafeEQ
    NullSafeNEQ Offset Order Ordered Paren PropertyEQ Qualify RespectNulls Rollup Select Star Sub Subquery
    Table TableAlias TableSample TimeUnit Tuple Union Values Var Where Window WindowSpec With WithinGroup
    """.split()
)

_FUNCTIONS = frozenset(
    """
    Abs Acos Acosh AddMonths And AnyValue ApproxDistinct ApproxQuantile ArgMax ArgMin Array ArrayAgg ArrayConcat
    ArrayContains ArrayDistinct ArrayMax ArrayMin ArraySize ArraySort ArrayToString Ascii Asin Asinh Atan Atan2
    Atanh Avg BitLength BitwiseAndAgg BitwiseOrAgg BitwiseXorAgg ByteLength Case Cast Cbrt Ceil Chr Coalesce
    Concat ConcatWs Contains Corr Cos Cosh Cot Count CountIf CovarPop CovarSamp CumeDist CurrentDate
    CurrentTimestamp Date DateAdd DateDiff DateFromParts DateStrToDate DateSub DateTrunc Day DayOfMonth DayOfWeek
    DayOfWeekIso DayOfYear Dayname Degrees DenseRank EndsWith Exists Exp Explode Extract Factorial First FirstValue
    Flatten Floor FromBase64 Greatest Grouping GroupingId Hex Hour If Initcap IsInf IsNan Kurtosis Lag Last LastDay
    LastValue Lead Least Left Length Levenshtein Ln Log LogicalAnd LogicalOr Lower MD5 Map MapKeys Max Median Min
    Minute Mode Month Monthname MonthsBetween NextDay Normalize NthValue Ntile Nullif Nvl2 Or Overlay Pad
    PercentRank PercentileCont PercentileDisc Pi Posexplode Pow Quantile Quarter Radians Rand Rank RegexpCount
    RegexpExtract RegexpExtractAll RegexpILike RegexpLike RegexpReplace RegexpSplit Repeat Replace Reverse Right
    Round RowNumber SHA SHA2 Second Sign Sin Sinh Skewness Soundex Space Split SplitPart Sqrt StartsWith Stddev
    StddevPop StddevSamp StrPosition StrToDate StrToTime StrToUnix Struct Substring SubstringIndex Sum Tan Tanh
    TimeStrToDate TimeStrToTime TimeToStr TimeToUnix Timestamp TimestampAdd TimestampDiff TimestampTrunc ToBase64
    ToChar ToDays Translate Trim Trunc TryCast TsOrDsAdd TsOrDsDiff TsOrDsToDate TsOrDsToDateStr TsOrDsToTimestamp
    Unhex Unicode UnixDate UnixSeconds UnixToStr UnixToTime Unnest Upper VarMap Variance VariancePop Week WeekOfYear
    WidthBucket Xor Year GroupConcat
    """.split()
)

_FUNCTIONS_BY_NAME = frozenset(  # functions that the parser knows only by name
    """
    bround crc32 every getbit iff isnull isnotnull ln2 log1p expm1 make_date ndv nullifzero nullvalue nonnullvalue
    positive pmod precision rint secondsofday shiftleft shiftright shiftrightunsigned some timestamp_cmp to_date
    to_timestamp truncate weekday zeroifnull
    """.split()
)

_ONLY_WRITTEN = frozenset({"Transform", "try_strptime"})  # what the writers of engines' SQL make of allowed functions
_TYPES = frozenset(
    exp.DType[name]
    for name in """
    ARRAY BIGDECIMAL BIGINT BINARY BIT BLOB BOOLEAN CHAR DATE DATETIME DECIMAL DOUBLE FLOAT INT INTERVAL LIST MAP
    MEDIUMINT NCHAR NVARCHAR SMALLINT STRUCT TEXT TIME TIMESTAMP TIMESTAMPLTZ TIMESTAMPNTZ TIMESTAMPTZ TIMETZ TINYINT
    UBIGINT UINT USMALLINT UTINYINT UUID VARBINARY VARCHAR
    """.split()
)
_QUOTED_WHEN_WRITTEN = (exp.Literal, exp.Identifier)
_PLAIN_WORDS = re.compile(r"[A-Za-z0-9_]*(?: [A-Za-z0-9_]+)*")


def check(tree: exp.Expr, *, written: bool = False) -> None:
    """Raise NotAllowed for the first part of a tree that is not on the lists.

    written: the tree is of a text that we wrote for an engine.
    """
    also = _ONLY_WRITTEN if written else frozenset()
    if not isinstance(tree, QUERIES):
        raise NotAllowed(f"Only queries are accepted here; {describe(tree)} is not.", position_of(tree))
    for node in tree.walk():
        kind = type(node).__name__
        if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
            name = node.name.lower()
            if name not in _FUNCTIONS_BY_NAME | also:
                raise NotAllowed(f"The function {name} is not allowed.", position_of(node))
        elif isinstance(node, exp.Func):
            if kind not in _FUNCTIONS | also:
                raise NotAllowed(f"The function {node.sql_name().lower()} is not allowed.", position_of(node))
        elif kind not in _SYNTAX:
            raise NotAllowed(f"{describe(node)} is not allowed.", position_of(node))
        if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
            raise NotAllowed("Functions cannot stand in place of a table.", position_of(node))
        if isinstance(node, exp.DataType) and (node.this not in _TYPES or node.args.get("kind")):
            raise NotAllowed("Only the built-in types are allowed.", position_of(node))
        if not isinstance(node, _QUOTED_WHEN_WRITTEN):
            _check_words(node)
        if isinstance(node, exp.Extract) and not _PLAIN_WORDS.fullmatch(node.name):
            raise NotAllowed("EXTRACT takes the name of a part.", position_of(node))


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
