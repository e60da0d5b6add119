"""Conversions and functions, value by value: what DuckDB answers must be what Spark answers, or DuckDB must give up.

DuckDB tells row by row whether it has an answer (its TRY makes NULL of an error); Spark is asked for the rows that have
one. Of CAST, which fails as a whole, Spark's TRY_CAST tells the rows on which it succeeds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.generated_values import column_of, kinds, write_values
from engines.duckdb.engine import DuckDBEngine
from engines.duckdb.writer.functions.scalars import SCALAR_ARGUMENTS, SCALARS
from engines.errors import UnsupportedFeature
from sql.dialects.names import SPARK
from sql.errors import SqlError
from sql.limits.sizes import COUNTS
from sql.parsing import ParserLimits
from sql.statement import check
from sql.tables import Column, TableSource

_RAISED = re.compile(
    r"(?:CAST\()?CAST\('meant otherwise by Spark: ((?:[^']|'')*)' AS (?:INTEGER\) AS )?(\w+(?: ?\([0-9, ]+\))?)\)"
)
_BAD_TEXT = "[CAST_INVALID_INPUT]"
_CHOICES = re.compile(r"\{([^{}]* \| [^{}]*)\}")
_CAST = re.compile(r"\bCAST\((?!')")
_STAND_INS = {
    "DATE": "'1999-09-09'",
    "TIMESTAMP": "'1999-09-09 09:09:09'",
    "BOOLEAN": "TRUE",
    **{"DECIMAL": "0", "DOUBLE": "-8.0625", "FLOAT": "-8.0625"},
    "BLOB": "'7'",
    "VARCHAR": "'stand-in'",
}

WHOLE = "13"  # of which every function of whole numbers makes something else than NULL

AT_ONCE = 40
"""Expressions of one query that Spark is asked for."""

DIGITS = 1e-10
_SMOOTH = frozenset("exp ln log log10 log2 sin cos tan atan atan2 sqrt cbrt pow power degrees radians".split())
"""Functions whose last digits depend on the library of mathematics."""

_TARGETS = (*kinds(), "binary", "decimal(3,1)", "decimal(10,10)")
_MOST_ARGUMENTS = 2
_ARGUMENTS = (
    "int",
    "bigint",
    "double",
    "float",
    "decimal(9,0)",
    "decimal(18,4)",
    "string",
    "date",
    "timestamp",
    "boolean",
)
_WITH_LITERALS = r"""
    round(c_double, {0 | 1 | 2 | 5})
    round(c_float, {0 | 2})
    round(c_int, {-1 | -3})
    round(c_bigint, {-2 | 1})
    round({c_decimal_18_4 | c_decimal_38_10}, {0 | 2 | -1})
    bround(c_decimal_18_4, {0 | 2})
    -c_int
    -c_double
    +c_int
    {-c_decimal_38_10 | -c_decimal_18_4 | abs(c_decimal_38_0)}
    c_int {+ | - | *} 3
    c_bigint {+ | - | *} o_int
    c_decimal_18_4 {+ | - | * | / | %} {o_decimal_18_4 | o_decimal_9_0 | o_int | 3 | 1.5}
    c_int {/ | % | DIV} {7 | o_int}
    c_decimal_38_10 {+ | - | * | / | %} {o_decimal_38_10 | 2 | o_decimal_5_2}
    c_double {+ | - | * | / | %} {o_double | 3 | o_decimal_5_2}
    c_float {+ | - | * | /} {o_float | 2 | o_double}
    c_tinyint {+ | - | *} o_tinyint
    c_smallint {+ | *} o_smallint
    c_bigint {/ | % | DIV} {o_bigint | -1 | 10}
    c_decimal_5_2 {+ | * | /} o_decimal_6_6
    c_int {& | ^} o_int
    ~c_bigint
    {c_int | c_double | c_float | c_decimal_38_10} {= | < | <= | <=>} {o_int | o_double | o_decimal_38_10 | o_float}
    {c_bigint | c_string | c_date} {= | < | <= | <=>} {o_bigint | o_double | o_string | o_date | o_timestamp}
    {c_timestamp | c_timestamp_ntz | c_boolean} {= | < | <=>} {o_timestamp | o_timestamp_ntz | o_date | o_boolean}
    c_string {LIKE | NOT LIKE | ILIKE} {'%1%' | '_a%' | 'T%' | '\\_%'}
    c_string RLIKE {'^[0-9]+$' | '\\s' | 'a.c' | '\\d\\d'}
    substring(c_string, {1 | 2 | -2 | 0 | o_tinyint}, {1 | 3 | o_tinyint})
    left(c_string, {2 | o_tinyint})
    right(c_string, {2 | o_tinyint})
    {lpad | rpad}(c_string, {0 | 5 | 20}, {'x' | 'ab' | ' '})
    split_part(c_string, {'-' | ' ' | '.'}, {1 | 2 | -1})
    substring_index(c_string, {'-' | '.'}, {1 | -1})
    replace(c_string, {'a' | '-' | ''}, {'' | 'zz'})
    translate(c_string, '0123', 'abc')
    regexp_replace(c_string, {'[0-9]+' | 'a|b'}, {'#' | '<$0>'})
    regexp_extract(c_string, {'([0-9]+)-([0-9]+)' | '([a-z]*)1'}, {0 | 1})
    locate({'1' | '-'}, c_string, {1 | 2 | 3})
    instr(c_string, {'1' | '-' | o_string})
    repeat(c_string, {2 | o_tinyint})
    space(o_tinyint)
    sha2(c_string, 256)
    trim({LEADING | TRAILING | BOTH} {'0' | ' x'} FROM c_string)
    concat({c_int | c_double | c_date | c_timestamp | c_boolean | c_decimal_6_6 | c_decimal_38_10}, o_string)
    concat_ws(',', c_string, {o_int | o_double | o_decimal_18_4 | o_date})
    c_string || {o_bigint | o_decimal_5_2 | o_timestamp_ntz}
    {date_add | date_sub}(c_date, {1 | -400 | o_smallint})
    add_months(c_date, {1 | -13 | o_tinyint})
    datediff(c_date, {o_date | o_timestamp})
    next_day(c_date, {'MO' | 'Sunday'})
    trunc(c_date, {'year' | 'quarter' | 'month' | 'week'})
    date_trunc({'year' | 'quarter' | 'month' | 'week'}, {c_timestamp | c_date | c_timestamp_ntz})
    date_trunc({'day' | 'hour' | 'minute' | 'second'}, {c_timestamp | c_date | c_timestamp_ntz})
    date_format({c_date | c_timestamp}, {'yyyy-MM-dd' | 'HH:mm:ss.SSS' | 'EEE d MMM yy' | 'DDD a hh'})
    c_date {+ | -} {3 | o_tinyint}
    {c_date | c_timestamp} {+ | -} INTERVAL {1 MONTH | 3 DAY | 1 YEAR | 5 HOUR | 10 SECOND}
    extract({YEAR | MONTH | DAY | WEEK | QUARTER} FROM {c_timestamp | c_date})
    extract({DOW | DOY | DAYOFWEEK_ISO | YEAROFWEEK | HOUR | MINUTE} FROM {c_timestamp | c_date})
    date_part({'year' | 'doy'}, c_timestamp_ntz)
    greatest(c_int, {o_int | o_bigint | o_double | o_decimal_5_2})
    least(c_double, {o_double | o_float | o_int})
    coalesce(c_int, {o_bigint | o_decimal_38_10 | o_double})
    nullif(c_double, o_double)
    CASE WHEN c_boolean THEN c_int ELSE {o_decimal_18_4 | o_double | o_bigint} END
    if(c_boolean, c_decimal_38_10, {o_decimal_6_6 | o_decimal_20_0 | o_bigint})
    c_int IN (1, 2, {3L | 2.5 | 1e0})
    c_string IN ('1', 'true', 'a')
    c_double BETWEEN -1 AND {1 | 0.5 | o_double}
    nvl2(c_int, o_double, o_float)
    decode(c_int, 1, 'a', 0, 'b', 'c')
    pow({c_double | c_int | 1 | -1}, {o_double | 2 | 0.5})
    power(c_double, o_tinyint)
    log(c_double, o_double)
    atan2(c_double, o_double)
    {pmod | mod}(c_int, o_tinyint)
    pmod(c_double, o_double)
    pmod(c_decimal_18_4, o_decimal_5_2)
"""


@dataclass(frozen=True, slots=True)
class Compared:
    """An expression on both engines.

    pinned: why DuckDB has no words for it. given_up: rows that DuckDB leaves to Spark. different: rows on which DuckDB
    has another answer, or one where Spark has none. example: one of them in words.
    """

    expression: str
    pinned: str | None = None
    rows: int = 0
    given_up: int = 0
    different: int = 0
    example: str = ""


@dataclass(frozen=True, slots=True)
class _Asked:
    """An expression that DuckDB has answered. spark: how Spark is asked. is_cast: where Spark has NULL, CAST fails."""

    expression: str
    spark: str
    answers: pa.ChunkedArray
    given_up: Sequence[bool]
    is_cast: bool


def expressions() -> Iterator[str]:
    """Yield all that is compared, over the columns of the table of values."""
    for source, target in product(kinds(), _TARGETS):
        for word in ("CAST", "TRY_CAST"):
            yield f"{word}(c_{column_of(source)} AS {target})"
    for name in sorted(SCALARS.keys() - COUNTS.keys()):  # those make texts of a million characters; forms have few
        for count in SCALAR_ARGUMENTS.get(name, range(1, 2)):
            if count == 0 or count > _MOST_ARGUMENTS:
                continue
            for arguments in product(kinds() if count == 1 else _ARGUMENTS, repeat=count):
                places = zip(("c", "o"), arguments, strict=False)
                yield f"{name}({', '.join(f'{place}_{column_of(kind)}' for place, kind in places)})"
    for form in _WITH_LITERALS.strip().splitlines():
        yield from _spelled(form.strip())


def _spelled(form: str) -> Iterator[str]:
    """Yield what a form with ``{a | b}`` stands for."""
    choices = _CHOICES.search(form)
    if choices is None:
        yield form
        return
    for choice in choices[1].split(" | "):
        yield from _spelled(form[: choices.start()] + choice + form[choices.end() :])


Ask = Callable[[str, Sequence[TableSource]], pa.Table]
"""Asks Spark a query over tables; raises EngineError."""


def compare_values(
    work: Path, ask: Ask, failure: type[Exception], *, count: int, seed: int, only: str = ""
) -> Iterator[Compared]:
    """Compare all expressions that hold ``only``, over so many values."""
    table = write_values(work / "vals", count, seed)
    connection = duckdb.connect()
    connection.execute("SET TimeZone='UTC'")
    connection.execute("SET disabled_optimizers='common_subexpressions'")  # it takes what may fail out of TRY
    connection.execute(f"CREATE VIEW vals AS SELECT * FROM read_parquet('{work / 'vals'}/*.parquet')")
    waiting: list[_Asked] = []
    for expression in dict.fromkeys(expressions()):
        if only not in expression:
            continue
        is_cast = expression.startswith("CAST(")
        try:
            written = _written(expression, table)
        except (SqlError, UnsupportedFeature) as error:
            yield Compared(expression, pinned=error.message)
            continue
        try:
            answers, given_up = _by_duckdb(connection, written, is_cast=is_cast)
        except duckdb.Error as error:
            yield Compared(expression, pinned=f"DuckDB fails: {str(error).splitlines()[0]}")
            continue
        spark = f"TRY_{expression}" if is_cast else expression
        waiting.append(_Asked(expression, spark, answers, given_up, is_cast))
        if len(waiting) == AT_ONCE:
            yield from _against_spark(waiting, work, table, ask, failure)
            waiting = []
    yield from _against_spark(waiting, work, table, ask, failure)


def _by_duckdb(
    connection: duckdb.DuckDBPyConnection, written: str, *, is_cast: bool
) -> tuple[pa.ChunkedArray, list[bool]]:
    """Return DuckDB's answers, and the rows that it leaves to Spark: by an error, or by what the writer has put in.

    Errors that are put in are slow where there are many: NULL, and then a value, stands in their place, and the rows
    on which that makes a difference are told. A cast is asked for as TRY_CAST, whose NULL is an error.
    """
    if is_cast:
        written = _CAST.sub("TRY_CAST(", written)
    answers, others = (
        connection.sql(f"SELECT TRY({text}) AS v, TRY({text} IS NULL) AS n FROM vals ORDER BY id").to_arrow_table()
        for text in (_RAISED.sub(r"CAST(NULL AS \2)", written), _RAISED.sub(_stand_in, written))
    )
    pairs = zip(_listed(answers.column("v")), _listed(others.column("v")), strict=True)
    failed = zip(answers.column("n").to_pylist(), others.column("n").to_pylist(), strict=True)
    given_up = [
        any(null is None for null in nulls) or (is_cast and one is None) or not _same(one, other, smooth=False)
        for (one, other), nulls in zip(pairs, failed, strict=True)
    ]
    return answers.column("v"), given_up


def _stand_in(raised: re.Match[str]) -> str:
    kind = raised[2]
    value = next((value for name, value in _STAND_INS.items() if kind.startswith(name)), WHOLE)
    return f"CAST({value} AS {kind})"


def _written(expression: str, table: TableSource) -> str:
    statement = check(f"SELECT {expression} AS v FROM vals", SPARK, catalog={"vals": table}, limits=ParserLimits())
    text = statement.sql(DuckDBEngine.writer)
    return text.removeprefix("SELECT ").removesuffix(' AS "v" FROM "vals" AS "vals"')


def _against_spark(
    waiting: Sequence[_Asked], work: Path, table: TableSource, ask: Ask, failure: type[Exception]
) -> Iterator[Compared]:
    if not waiting:
        return
    for expression, theirs in zip(waiting, _spark_answers(waiting, work, table, ask, failure), strict=True):
        yield _compared(expression, theirs, table, work)


def _spark_answers(
    waiting: Sequence[_Asked], work: Path, table: TableSource, ask: Ask, failure: type[Exception]
) -> list[pa.ChunkedArray | str]:
    """Ask Spark for the rows that DuckDB has; where one expression fails, each is asked alone, and says why."""
    rows = pq.read_table(work / "vals" / "part-0.parquet")
    for place, expression in enumerate(waiting):
        rows = rows.append_column(f"k{place}", pa.array([not given_up for given_up in expression.given_up]))
    folder = work / "kept"
    folder.mkdir(exist_ok=True)
    pq.write_table(rows, folder / "part-0.parquet")
    columns = (*table.columns, *(Column(f"k{place}", "boolean") for place in range(len(waiting))))
    compared_rows = TableSource("kept", str(folder), "parquet", columns)
    cases = [f"CASE WHEN k{place} THEN {expression.spark} END AS v{place}" for place, expression in enumerate(waiting)]
    try:
        answer = ask(f"SELECT {', '.join(cases)} FROM kept ORDER BY id", (compared_rows,))
        return [answer.column(place) for place in range(len(waiting))]
    except failure as error:
        if len(waiting) == 1:
            return [str(error)]
    middle = len(waiting) // 2
    return [
        answers
        for part in (waiting[:middle], waiting[middle:])
        for answers in _spark_answers(part, work, table, ask, failure)
    ]


def _compared(expression: _Asked, theirs: pa.ChunkedArray | str, table: TableSource, work: Path) -> Compared:
    is_answered = [not given_up for given_up in expression.given_up]
    given_up = len(is_answered) - sum(is_answered)
    if isinstance(theirs, str):
        differs = 0 if _BAD_TEXT in theirs else sum(is_answered)  # a text that DuckDB did not have to look at
        return Compared(expression.expression, None, len(is_answered), given_up, differs, f"Spark fails: {theirs}")
    if _plain(theirs.type) != _plain(expression.answers.type):
        return Compared(
            expression.expression,
            None,
            len(is_answered),
            given_up,
            sum(is_answered),
            f"{theirs.type} and {expression.answers.type}",
        )
    smooth = expression.expression.split("(")[0] in _SMOOTH
    source = _inputs(expression, work)
    different, example = 0, ""
    for row, (one, other) in enumerate(zip(_listed(expression.answers), _listed(theirs), strict=True)):
        if not is_answered[row]:
            continue
        is_error = expression.is_cast and other is None and source[row][0] is not None
        if is_error or not _same(one, other, smooth=smooth):
            different += 1
            example = example or f"of {source[row]!r}: {one!r} and {'an error' if is_error else repr(other)}"
    return Compared(expression.expression, None, len(is_answered), given_up, different, example)


def _inputs(expression: _Asked, work: Path) -> list[tuple[object, ...]]:
    rows = pq.read_table(work / "vals" / "part-0.parquet")
    names = [name for name in rows.schema.names if re.search(rf"\b{name}\b", expression.expression)]
    return list(zip(*(_listed(rows.column(name)) for name in names), strict=True)) or [(0,)] * rows.num_rows


def _listed(column: pa.ChunkedArray) -> list[object]:
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return list(column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64()).to_pylist())


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else kind


def _same(one: object, other: object, *, smooth: bool) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        if smooth:
            return math.isclose(one, other, rel_tol=DIGITS, abs_tol=1e-300)
        return one == other
    return one == other


def counted(compared: Sequence[Compared]) -> Mapping[str, float]:
    """Return the figures of a claim."""
    return {
        "values_expressions": float(len(compared)),
        "values_pinned": float(sum(one.pinned is not None for one in compared)),
        "values_compared": float(sum(one.rows for one in compared)),
        "values_different": float(sum(one.different for one in compared)),
    }
