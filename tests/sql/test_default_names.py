"""Names that Spark gives to columns without an alias: measured on 4.3, and asked again of the Spark that is here."""

from __future__ import annotations

import re
import uuid

import pytest

from engines.compiled import outputs_of
from engines.protocol import Lease
from engines.spark.engine import SparkConnectEngine
from sql.default_names import java_double
from sql.parsing import ParserLimits
from sql.statement import check
from tests.writers import DUCKDB_SQL, SPARK_SQL

ROW = (
    "(SELECT 1 AS a, 2L AS b, 1.5 AS d, 1.5D AS f, 'x' AS s, DATE'2020-01-01' AS dt,"
    " TIMESTAMP'2020-01-01 00:00:00' AS ts, TRUE AS k, array(1, 2) AS arr, named_struct('x', 1) AS st,"
    " map('k', 1) AS m, X'01' AS bin) t"
)
SAME = """
    X''; extract(month FROM dt); count(a, b); count(DISTINCT a); count(DISTINCT a, b); -1; -1.5; 1.0; 1.50; NULL;
    X'1F'; DATE '2020-01-01'; TIMESTAMP '2020-01-01 10:00:00'; TIMESTAMP_NTZ '2020-01-01 10:00:00'; TIME '10:00:00';
    INTERVAL '1-2' YEAR TO MONTH; CASE WHEN k THEN 1 END; arr[0]; ltrim(s); substr(s, 1, 2); current_date(); now();
    round(d, 1); ceiling(d); abs(a); pow(a, 2); coalesce(a, 1); nvl(a, 1); ifnull(a, 1); nvl2(a, 1, 2); nullif(a, 1);
    upper(s); ucase(s); lower(s); length(s); char_length(s); len(s); date_add(dt, 1); date_sub(dt, 1);
    datediff(dt, dt); timestampadd(HOUR, 1, ts); timestampdiff(HOUR, ts, ts); year(dt); month(dt); dayofmonth(dt);
    day(dt); to_date(s); to_timestamp(s); ln(a); greatest(a, b); left(s, 1); right(s, 1); sum(DISTINCT a); avg(a);
    mean(a); min(a); max(a); stddev(a); std(a); stddev_samp(a); stddev_pop(a); variance(a); var_pop(a); corr(a, b);
    first(a); first_value(a); last(a); any_value(a); any(k); some(k); every(k); bool_and(k); bool_or(k); count_if(k);
    approx_count_distinct(a); percentile_cont(0.5) WITHIN GROUP (ORDER BY a); median(a); collect_list(a); array(1, 2);
    struct(a, b); size(arr); ~a; shiftleft(a, 1); hex(a); rand(1); isnan(f); equal_null(a, b); mod(a, 2); pmod(a, 2);
    sign(a); weekday(dt); dayofweek(dt); last_day(dt); add_months(dt, 1); md5(s); sha2(s, 256); space(2); repeat(s, 2);
    reverse(s); initcap(s); ascii(s); chr(65); typeof(a); width_bucket(a, 0, 10, 5); try_add(a, 1); try_divide(a, 0);
    zeroifnull(a); make_date(2020, 1, 1); factorial(3); rint(f); bit_count(a); bit_get(a, 0); bit_length(s);
    octet_length(s); bin(a); conv(s, 10, 2); crc32(bin); sha(s); sha1(s); btrim(s); rtrim(s); format_number(d, 2);
    soundex(s); levenshtein(s, s); character_length(s); lcase(s); char(65); concat(s); nanvl(f, f); ln(f); hour(ts);
    minute(ts); second(ts); quarter(dt); weekofyear(dt); dayofyear(dt); unix_date(dt); unix_seconds(ts);
    unix_millis(ts); unix_micros(ts); timestamp_seconds(1); timestamp_millis(1); timestamp_micros(1);
    date_from_unix_date(1); date_diff(dt, dt); dayname(dt); monthname(dt); max_by(a, b); min_by(a, b); bit_and(a);
    bit_or(a); bit_xor(a); covar_pop(f, f); covar_samp(f, f); regr_slope(f, f); regr_count(f, f); kurtosis(f);
    skewness(f); mode(a); collect_set(a); percentile_disc(0.5) WITHIN GROUP (ORDER BY a); try_sum(a); try_avg(a);
    last_value(a); elt(1, s, s); least(a, b); nullifzero(a); try_subtract(a, 1); try_multiply(a, 1); negative(a);
    CAST(1 AS STRING); upper(CAST(a AS STRING)); sum(CAST(a AS DOUBLE)); sum(TRY_CAST(s AS INT)); count(1); max(dt);
    coalesce(NULL, a); 12345678901; 123456789012345678901; 0.1; extract(DAY FROM dt)
"""
"""Expressions that are their own names."""

CAPITALS = """
    ceil(d); floor(d); power(a, 2); log(2, a); pi(); acos(f); asin(f); atan(f); atan2(f, f); cbrt(f); cos(f); cosh(f);
    cot(f); degrees(f); exp(f); expm1(f); hypot(f, f); log10(f); log1p(f); log2(f); radians(f); signum(f); sin(f);
    sinh(f); sqrt(f); tan(f); tanh(f); e()
"""
"""Functions whose names have capital letters."""

IN_BRACKETS = """
    st.x + 1; s IS NOT NULL; a + b; a + 1; a / b; a % 2; a div 2; a = b; a <=> b; a < b; NOT k; (a + b) * 2;
    a IN (1, 2); s IS NULL; dt - dt; ts - ts; a & b; a | b; a ^ b; a << 1; a >> 1; a >>> 1; a + 1.0; 1 + 1; a IN (1)
"""
"""Expressions whose names are they themselves, in brackets."""

ROWS = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
RANGE = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
ALL_ROWS = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
BY_A = "ORDER BY a ASC NULLS FIRST"
LAG = "ROWS BETWEEN -1 FOLLOWING AND -1 FOLLOWING"
OTHERS = (
    ("-0", "0"),
    ("div(a, 2)", "(a div 2)"),
    ("-0.0", "0.0"),
    ("-0D", "-0.0"),
    ("NOT s IS NULL", "(NOT (s IS NULL))"),
    ("k IS NOT TRUE", "(NOT (k <=> true))"),
    ("count(*) FILTER (WHERE s IS NOT NULL)", "count(1) FILTER (WHERE (s IS NOT NULL))"),
    ("0.000000012345678 + 1", "(1.2345678E-8 + 1)"),
    ("s ILIKE 'a#%b' ESCAPE '#'", "ilike(s, a#%b)"),
    ("TIMESTAMP '2019-1-01\t'", "TIMESTAMP '2019-01-01 00:00:00'"),
    ("TIMESTAMP '2019-01-01 1:02:3.50'", "TIMESTAMP '2019-01-01 01:02:03.5'"),
    ("extract('year', dt)", "extract(year FROM dt)"),
    ("unix_date(date('2020-12-04'))", "unix_date(2020-12-04)"),
    ("int('1')", "1"),
    ("DATE '2001-09-28' + 7", "date_add(DATE '2001-09-28', 7)"),
    ("7 + DATE '2001-09-28'", "date_add(DATE '2001-09-28', 7)"),
    ("DATE '2001-09-28' - 7", "date_sub(DATE '2001-09-28', 7)"),
    ("CAST('1' AS DECIMAL)", "CAST(1 AS DECIMAL(10,0))"),
    ("count(*)", "count(1)"),
    ("sum(a) FILTER (WHERE b > 1)", "sum(a) FILTER (WHERE (b > 1))"),
    ("a - b * 2", "(a - (b * 2))"),
    ("-a", "(- a)"),
    ("+a", "(+ a)"),
    ("- (a)", "(- a)"),
    ("+1", "(+ 1)"),
    ("1e3", "1000.0"),
    ("1.5D", "1.5"),
    ("1.5F", "1.5"),
    ("2L", "2"),
    ("3S", "3"),
    ("1BD", "1"),
    ("'it''s'", "it's"),
    ("'a' || 'b'", "concat(a, b)"),
    ("s || 'b'", "concat(s, b)"),
    ("arr || arr", "concat(arr, arr)"),
    ("TRUE", "true"),
    ("INTERVAL 1 DAY", "INTERVAL '1' DAY"),
    ("INTERVAL 3 MONTH", "INTERVAL '3' MONTH"),
    ("a <> b", "(NOT (a = b))"),
    ("a != b", "(NOT (a = b))"),
    ("NOT a = b", "(NOT (a = b))"),
    ("k AND a = 1", "(k AND (a = 1))"),
    ("k OR a = 1 AND b = 2", "(k OR ((a = 1) AND (b = 2)))"),
    ("a BETWEEN 1 AND 2", "between(a, 1, 2)"),
    ("a NOT BETWEEN 1 AND 2", "(NOT between(a, 1, 2))"),
    ("a NOT IN (1, 2)", "(NOT (a IN (1, 2)))"),
    ("s LIKE 'x%'", "s LIKE x%"),
    ("s NOT LIKE 'x%'", "(NOT s LIKE x%)"),
    ("s LIKE 'x' ESCAPE '/'", "s LIKE x ESCAPE '/'"),
    ("s ILIKE 'x%'", "ilike(s, x%)"),
    ("s RLIKE 'x'", "RLIKE(s, x)"),
    ("k IS TRUE", "(k <=> true)"),
    ("a IS DISTINCT FROM b", "(NOT (a <=> b))"),
    ("a IS NOT DISTINCT FROM b", "(a <=> b)"),
    ("CASE WHEN a = 1 THEN 'x' ELSE 'y' END", "CASE WHEN (a = 1) THEN x ELSE y END"),
    ("CASE a WHEN 1 THEN 'x' WHEN 2 THEN 'z' END", "CASE WHEN (a = 1) THEN x WHEN (a = 2) THEN z END"),
    ("CAST(a AS STRING)", "a"),
    ("CAST(a AS DECIMAL(10,2))", "a"),
    ("a :: STRING", "a"),
    ("TRY_CAST(s AS INT)", "s"),
    ("CAST(s AS TIMESTAMP)", "s"),
    ("string(a)", "a"),
    ("int(s)", "s"),
    ("date(s)", "s"),
    ("m['k']", "m[k]"),
    ("st.x", "x"),
    ("t.a + 1", "(a + 1)"),
    ("t.a", "a"),
    ("EXTRACT(YEAR FROM dt)", "extract(YEAR FROM dt)"),
    ("EXTRACT(SECOND FROM ts)", "extract(SECOND FROM ts)"),
    ("date_part('year', dt)", "date_part(year, dt)"),
    ("TRIM(s)", "trim(s)"),
    ("TRIM(BOTH 'x' FROM s)", "TRIM(BOTH x FROM s)"),
    ("TRIM(LEADING FROM s)", "ltrim(s)"),
    ("TRIM(TRAILING 'x' FROM s)", "TRIM(TRAILING x FROM s)"),
    ("ltrim('x', s)", "TRIM(LEADING x FROM s)"),
    ("SUBSTRING(s, 1)", "substring(s, 1, 2147483647)"),
    ("SUBSTRING(s, 1, 2)", "substring(s, 1, 2)"),
    ("SUBSTRING(s FROM 1 FOR 2)", "substring(s, 1, 2)"),
    ("POSITION('x' IN s)", "locate(x, s, 1)"),
    ("position('x', s)", "position(x, s, 1)"),
    ("OVERLAY(s PLACING 'x' FROM 1)", "overlay(s, x, 1, -1)"),
    ("OVERLAY(s PLACING 'x' FROM 1 FOR 2)", "overlay(s, x, 1, 2)"),
    ("overlay(s, 'x', 1)", "overlay(s, x, 1, -1)"),
    ("round(d)", "round(d, 0)"),
    ("bround(d)", "bround(d, 0)"),
    ("CEIL(d, 1)", "ceil(d, 1)"),
    ("if(k, 1, 2)", "(IF(k, 1, 2))"),
    ("concat(s, 'y')", "concat(s, y)"),
    ("concat_ws(',', s, 'z')", "concat_ws(,, s, z)"),
    ("UPPER(s)", "upper(s)"),
    ("dateadd(dt, 1)", "date_add(dt, 1)"),
    ("dateadd(DAY, 1, dt)", "timestampadd(DAY, 1, dt)"),
    ("datediff(DAY, dt, ts)", "timestampdiff(DAY, dt, ts)"),
    ("date_trunc('month', ts)", "date_trunc(month, ts)"),
    ("trunc(dt, 'MM')", "trunc(dt, MM)"),
    ("date_format(dt, 'yyyy')", "date_format(dt, yyyy)"),
    ("to_date(s, 'yyyy')", "to_date(s, yyyy)"),
    ("unix_timestamp()", "unix_timestamp(current_timestamp(), yyyy-MM-dd HH:mm:ss)"),
    ("from_unixtime(1)", "from_unixtime(1, yyyy-MM-dd HH:mm:ss)"),
    ("log(a)", "LOG(E(), a)"),
    ("split(s, ',')", "split(s, ,, -1)"),
    ("regexp_replace(s, 'x', 'y')", "regexp_replace(s, x, y, 1)"),
    ("regexp_extract(s, 'x')", "regexp_extract(s, x, 1)"),
    ("lpad(s, 3)", "lpad(s, 3,  )"),
    ("lpad(s, 3, '0')", "lpad(s, 3, 0)"),
    ("instr(s, 'x')", "instr(s, x)"),
    ("locate('x', s)", "locate(x, s, 1)"),
    ("replace(s, 'x')", "replace(s, x, )"),
    ("replace(s, 'x', 'y')", "replace(s, x, y)"),
    ("first(a) IGNORE NULLS", "first(a)"),
    ("percentile(a, 0.5)", "percentile(a, 0.5, 1)"),
    ("percentile_approx(a, 0.5)", "percentile_approx(a, 0.5, 10000)"),
    ("array_agg(a)", "collect_list(a)"),
    ("listagg(s)", "listagg(s, NULL)"),
    ("row_number() OVER (ORDER BY a)", f"row_number() OVER ({BY_A} {ROWS})"),
    ("rank() OVER (PARTITION BY s ORDER BY a DESC)", f"RANK() OVER (PARTITION BY s ORDER BY a DESC NULLS LAST {ROWS})"),
    ("sum(a) OVER ()", f"sum(a) OVER ({ALL_ROWS})"),
    ("sum(a) OVER (PARTITION BY s)", f"sum(a) OVER (PARTITION BY s {ALL_ROWS})"),
    ("sum(a) OVER (ORDER BY a)", f"sum(a) OVER ({BY_A} {RANGE})"),
    (
        "sum(a) OVER (ORDER BY a ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
        f"sum(a) OVER ({BY_A} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
    ),
    ("sum(a) OVER (ORDER BY a ROWS 1 PRECEDING)", f"sum(a) OVER ({BY_A} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"),
    (
        "sum(a) OVER (ORDER BY a RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
        f"sum(a) OVER ({BY_A} RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    ),
    ("lag(a) OVER (ORDER BY a)", f"lag(a, 1, NULL) OVER ({BY_A} {LAG})"),
    ("lag(a, 1) OVER (ORDER BY a)", f"lag(a, 1, NULL) OVER ({BY_A} {LAG})"),
    ("lead(a, 1, 0) OVER (ORDER BY a)", f"lead(a, 1, 0) OVER ({BY_A} ROWS BETWEEN 1 FOLLOWING AND 1 FOLLOWING)"),
    ("ntile(4) OVER (ORDER BY a)", f"ntile(4) OVER ({BY_A} {ROWS})"),
    ("nth_value(a, 2) OVER (ORDER BY a)", f"nth_value(a, 2) OVER ({BY_A} {RANGE})"),
    ("first_value(a) OVER (ORDER BY a)", f"first_value(a) OVER ({BY_A} {RANGE})"),
    ("lag(a) IGNORE NULLS OVER (ORDER BY a)", f"lag(a, 1, NULL) OVER ({BY_A} {LAG})"),
    ("sum(a) FILTER (WHERE k) OVER ()", f"sum(a) FILTER (WHERE k) OVER ({ALL_ROWS})"),
    ("(SELECT 1)", "scalarsubquery()"),
    ("EXISTS (SELECT 1)", "exists()"),
    ("a IN (SELECT 1)", "(a IN (listquery()))"),
    ("named_struct('x', 1)", "named_struct(x, 1)"),
    ("map('k', 1)", "map(k, 1)"),
    ("(a, b)", "named_struct(a, a, b, b)"),
    ("(a)", "a"),
    ("isnull(a)", "(a IS NULL)"),
    ("isnotnull(a)", "(a IS NOT NULL)"),
    ("months_between(dt, dt)", "months_between(dt, dt, true)"),
    ("startswith(s, 'x')", "startswith(s, x)"),
    ("contains(s, 'x')", "contains(s, x)"),
    ("to_char(d, '9.9')", "to_char(d, 9.9)"),
    ("rpad(s, 3)", "rpad(s, 3,  )"),
    ("rtrim('x', s)", "TRIM(TRAILING x FROM s)"),
    ("translate(s, 'a', 'b')", "translate(s, a, b)"),
    ("find_in_set(s, 'a,b')", "find_in_set(s, a,b)"),
    ("substring_index(s, ',', 1)", "substring_index(s, ,, 1)"),
    ("split_part(s, ',', 1)", "split_part(s, ,, 1)"),
    ("regexp_like(s, 'x')", "REGEXP_LIKE(s, x)"),
    ("regexp(s, 'x')", "REGEXP(s, x)"),
    ("rlike(s, 'x')", "RLIKE(s, x)"),
    ("like(s, 'x')", "s LIKE x"),
    ("ilike(s, 'x')", "ilike(s, x)"),
    ("regexp_count(s, 'x')", "regexp_count(s, x)"),
    ("regexp_substr(s, 'x')", "regexp_substr(s, x)"),
    ("regexp_instr(s, 'x')", "regexp_instr(s, x, 0)"),
    ("regexp_extract_all(s, 'x')", "regexp_extract_all(s, x, 1)"),
    ("endswith(s, 'x')", "endswith(s, x)"),
    ("next_day(dt, 'MO')", "next_day(dt, MO)"),
    ("to_unix_timestamp(ts)", "to_unix_timestamp(ts, yyyy-MM-dd HH:mm:ss)"),
    ("unix_timestamp(ts)", "unix_timestamp(ts, yyyy-MM-dd HH:mm:ss)"),
    ("from_unixtime(1, 'yyyy')", "from_unixtime(1, yyyy)"),
    ("curdate()", "current_date()"),
    ("make_timestamp(2020,1,1,1,1,1)", "make_timestamp(2020, 1, 1, 1, 1, 1)"),
    ("datepart('year', dt)", "datepart(year FROM dt)"),
    ("string_agg(s, ',')", "string_agg(s, ,)"),
    ("approx_percentile(a, 0.5)", "approx_percentile(a, 0.5, 10000)"),
    ("first_value(a, true)", "first_value(a)"),
    ("dense_rank() OVER (ORDER BY a)", f"DENSE_RANK() OVER ({BY_A} {ROWS})"),
    ("percent_rank() OVER (ORDER BY a)", f"PERCENT_RANK() OVER ({BY_A} {ROWS})"),
    ("cume_dist() OVER (ORDER BY a)", f"cume_dist() OVER ({BY_A} {RANGE})"),
    ("count(*) OVER (PARTITION BY a, b)", f"count(1) OVER (PARTITION BY a, b {ALL_ROWS})"),
    ("decode(a, 1, 'x', 'y')", "decode(a, 1, x, y)"),
    ("positive(a)", "(+ a)"),
    ("bigint(s)", "s"),
    ("smallint(a)", "a"),
    ("double(s)", "s"),
    ("boolean(s)", "s"),
    ("timestamp(s)", "s"),
    ("decimal(s)", "s"),
    ("CAST(a + 1 AS STRING)", "CAST((a + 1) AS STRING)"),
    ("CAST('1' AS INT)", "CAST(1 AS INT)"),
    ("concat(CAST(a AS STRING), 'x')", "concat(CAST(a AS STRING), x)"),
    ("CAST(a AS STRING) || 'x'", "concat(CAST(a AS STRING), x)"),
    ("TRY_CAST('x' AS INT)", "TRY_CAST(x AS INT)"),
    ("TRY_CAST(a AS STRING)", "a"),
    ("-(a + b)", "(- (a + b))"),
    ("- - a", "(- (- a))"),
    ("a = 'x' OR s = 'y'", "((a = x) OR (s = y))"),
    ("s > 'a'", "(s > a)"),
    ("s IN ('x', 'y')", "(s IN (x, y))"),
    ("a IS NULL AND b IS NULL", "((a IS NULL) AND (b IS NULL))"),
    ("k = TRUE", "(k = true)"),
    ("count(*) + 1", "(count(1) + 1)"),
    ("count(*) FILTER (WHERE a > 1)", "count(1) FILTER (WHERE (a > 1))"),
    ("sum(a) / count(*)", "(sum(a) / count(1))"),
    ("CASE WHEN a = 1 THEN b END + 1", "(CASE WHEN (a = 1) THEN b END + 1)"),
    ("isnotnull(a) AND k", "((a IS NOT NULL) AND k)"),
    ("1e-7", "1.0E-7"),
    ("1E10", "1.0E10"),
    (".5", "0.5"),
    ("1.", "1"),
    ("100000000.0D", "1.0E8"),
    ("'a''b'", "a'b"),
    ('"x"', "x"),
    ("'a\\nb'", "a\nb"),
    ("X'ab'", "X'AB'"),
    ("INTERVAL '2' HOUR", "INTERVAL '02' HOUR"),
    ("INTERVAL 1 WEEK", "INTERVAL '7' DAY"),
    ("INTERVAL '1.5' SECOND", "INTERVAL '01.5' SECOND"),
    ("INTERVAL 14 MONTH", "INTERVAL '14' MONTH"),
    ("ts + INTERVAL 1 HOUR", "ts + INTERVAL '01' HOUR"),
    ("ts - INTERVAL 1 HOUR", "ts - INTERVAL '01' HOUR"),
    ("ts + INTERVAL 1 MONTH", "ts + INTERVAL '1' MONTH"),
    ("dt + INTERVAL 1 MONTH", "dt + INTERVAL '1' MONTH"),
    ("dt - INTERVAL 1 MONTH", "dt - INTERVAL '1' MONTH"),
    ("dt + INTERVAL 1 HOUR", "dt + INTERVAL '01' HOUR"),
    ("s LIKE 'a' OR k", "(s LIKE a OR k)"),
    ("s || a", "concat(s, a)"),
    ("a || b || s", "concat(concat(a, b), s)"),
    ("trim('x' from s)", "TRIM(BOTH x FROM s)"),
    ("trim(both from s)", "trim(s)"),
    ("trim('x', s)", "TRIM(BOTH x FROM s)"),
)


def listed(text: str) -> list[str]:
    return [expression.strip() for expression in text.split(";")]


NAMES = (
    *((expression, expression) for expression in listed(SAME)),
    *((expression, f"({expression})") for expression in listed(IN_BRACKETS)),
    *((call, re.sub(r"^\w+", lambda name: name[0].upper(), call)) for call in listed(CAPITALS)),
    *OTHERS,
)


@pytest.mark.parametrize(("expression", "name"), NAMES)
def test_outputs_are_called_as_spark_calls_them(expression: str, name: str) -> None:
    statement = check(f"SELECT {expression} FROM {ROW}", "spark", catalog={}, limits=ParserLimits())
    assert outputs_of(statement.tree) == (name,)


def test_a_query_in_brackets_is_one_column_also_with_a_star() -> None:
    sql = "SELECT (WITH q AS (SELECT t.x) SELECT * FROM q) FROM (SELECT 1 x, 2 y) t"
    statement = check(sql, "spark", catalog={}, limits=ParserLimits())
    assert outputs_of(statement.tree) == ("scalarsubquery()",)


def test_spark_itself_names_its_outputs() -> None:
    statement = check(
        "SELECT count(*), a + 1 FROM VALUES (1) t(a) GROUP BY a", "spark", catalog={}, limits=ParserLimits()
    )
    assert " AS `count(1)`" not in statement.sql(SPARK_SQL)
    assert ' AS "(a + 1)"' in statement.sql(DUCKDB_SQL)


def test_what_was_changed_since_keeps_the_name_of_what_it_was() -> None:
    facts = {"current_user": "ann"}
    statement = check("SELECT current_user()", "spark", catalog={}, limits=ParserLimits(), facts=facts)
    assert statement.sql(SPARK_SQL) == "SELECT 'ann' AS `current_user()`"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        *[(1e3, "1000.0"), (1e7, "1.0E7"), (9999999.0, "9999999.0"), (1e-3, "0.001"), (1e-4, "1.0E-4"), (0.5, "0.5")],
        *[(123456789.125, "1.23456789125E8"), (1.5e300, "1.5E300"), (-2.5e-10, "-2.5E-10"), (0.0, "0.0")],
    ],
)
def test_doubles_are_written_as_java_does(number: float, text: str) -> None:
    assert java_double(number) == text


@pytest.mark.spark
def test_the_names_are_those_of_the_spark_that_is_here(spark_engine: SparkConnectEngine) -> None:
    names = []
    for expression, _ in NAMES:
        sql = f"SELECT {expression} FROM {ROW}"
        with spark_engine.execute(sql, query_id=uuid.uuid4().hex, lease=Lease(1 << 30), deadline_s=120.0) as stream:
            names.append((expression, *stream.schema.names))
    assert names == list(NAMES)
