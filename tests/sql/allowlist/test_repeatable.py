"""Which queries have the same answer again while their tables stay."""

from __future__ import annotations

import pytest
from sqlglot import exp

from engines.compiled import SPARK_WRITER, compiled
from sql.allowlist.functions import REPEATABLE, UNREPEATABLE
from sql.allowlist.syntax import is_repeatable as repeats
from sql.dialects.session_functions import SESSION_FUNCTIONS, facts_of
from sql.parsing import ParserLimits
from sql.statement import check
from sql.tables import Column, TableSource, View

COLUMNS = (Column("id", "bigint"), Column("name", "string"), Column("at", "timestamp"), Column("price", "double"))
BOOKS = TableSource("books", "/books", "parquet", COLUMNS)
NOW = View("recent", "SELECT id FROM books WHERE at > now()", "spark", (Column("id", "bigint"),))
LIMITS = ParserLimits(statement_bytes=1 << 20, nesting=200)

OF_CHANCE = tuple(
    """
    rand randn random randstr shuffle uniform uuid aes_encrypt monotonically_increasing_id spark_partition_id
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_merge_agg_bigint kll_merge_agg_double
    kll_merge_agg_float kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
    """.split()
)
OF_THE_MOMENT = tuple(
    "now curdate current_date current_time current_timestamp localtime localtimestamp unix_timestamp".split()
)
OF_ROWS_AS_THEY_COME = tuple(
    """
    any_value array_agg collect_list collect_set collect_union first first_value last last_value listagg max_by min_by
    mode string_agg approx_top_k approx_top_k_accumulate approx_top_k_combine histogram_numeric schema_of_variant_agg
    """.split()
)


def is_repeatable(sql: str, dialect: str = "spark") -> bool:
    facts = facts_of("ann", dialect, "default", "Ours 1.0")
    checked = check(sql, dialect, catalog={"books": BOOKS}, limits=LIMITS, views={"recent": NOW}, facts=facts)
    return compiled(checked, (SPARK_WRITER,)).is_repeatable


def test_every_function_is_of_one_of_two_kinds() -> None:
    assert not REPEATABLE & UNREPEATABLE
    assert {*OF_CHANCE, *OF_THE_MOMENT, *OF_ROWS_AS_THEY_COME, *SESSION_FUNCTIONS} == UNREPEATABLE


@pytest.mark.parametrize("name", sorted(UNREPEATABLE - SESSION_FUNCTIONS))
@pytest.mark.parametrize("arguments", ["", "id", "name, id"])
def test_what_calls_one_of_the_other_kind_is_not(name: str, arguments: str) -> None:
    tree = check("SELECT abs(id) FROM books", "spark", catalog={"books": BOOKS}, limits=LIMITS).tree
    assert repeats(tree)
    for call in tree.find_all(exp.Anonymous):
        call.set("this", name.upper())
    assert not repeats(tree)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM books WHERE id = 4711",
        "SELECT * FROM books LIMIT 10",
        "SELECT name, count(*) AS n, sum(price) FROM books GROUP BY name HAVING count(*) > 1 ORDER BY n DESC LIMIT 3",
        "SELECT b.id, row_number() OVER (PARTITION BY b.name ORDER BY b.price) FROM books b JOIN books c USING (id)",
        "WITH w AS (SELECT CASE WHEN price > 1 THEN 'a' ELSE 'b' END AS k FROM books) SELECT k FROM w UNION SELECT 'c'",
        "SELECT CAST('2020-01-01' AS DATE), date_add(at, 3), upper(trim(name)), TIMESTAMP '2020-01-01 10:00:00'"
        " FROM books",
        "SELECT current_user(), current_database()",  # a text, by the time that anybody compares
        "SELECT concat(name, 'w'), upper(name) || 'x', CAST(concat(name, 'w') AS TIMESTAMP), to_date(name) FROM books",
        "SELECT CAST(name AS TIMESTAMP), date_format(at, 'yyyy'), substr(name, 1, 2), CAST(id AS STRING) FROM books",
        "SELECT id FROM books WHERE at >= date_add(to_date('2020-01-01'), 3) AND lower(name) = 'a' || name",
        "SELECT repeat('x', 40) AS text, concat('a', upper('b')), length(lower('NOX')) FROM books",
        "SELECT id FROM books WHERE lower(name) = lower('ABC') AND name LIKE concat('a', '%') AND trim(name) <> 'b'",
        "SELECT count(*) FROM books WHERE name IN ('a', 'b') AND price BETWEEN round(1.25, 1) AND -abs(-3)",
        "SELECT id FROM books WHERE name IN (SELECT name FROM books WHERE EXISTS (SELECT 1)) AND name LIKE 'a%'",
    ],
)
def test_usual_queries_are(sql: str) -> None:
    assert is_repeatable(sql)


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("SELECT current_timestamp", "spark"),
        ("SELECT current_timestamp()", "spark"),
        ("SELECT CURRENT_DATE", "impala"),
        ("SELECT id FROM books WHERE at < now()", "spark"),
        ("SELECT id FROM books WHERE at < NOW() - INTERVAL 1 DAYS", "impala"),
        ("SELECT unix_timestamp() FROM books", "hive"),
        ("SELECT id FROM (SELECT id, rand() AS r FROM books) WHERE r < 0.5", "spark"),
        ("SELECT rand(42)", "spark"),
        ("SELECT uuid()", "hive"),
        ("SELECT first(name) FROM books", "spark"),
        ("SELECT any_value(name) FROM books", "spark"),
        ("SELECT collect_list(name) FROM books", "hive"),
        ("SELECT group_concat(name) FROM books", "impala"),
        ("SELECT first_value(name) OVER (ORDER BY id) FROM books", "spark"),
        ("SELECT id FROM recent", "spark"),
        ("SELECT id FROM books TABLESAMPLE (10 PERCENT)", "spark"),
        ("SELECT TIMESTAMP 'now'", "spark"),
        ("SELECT id FROM books WHERE at < CAST(' Now' AS TIMESTAMP)", "spark"),
        ("SELECT CAST(r'now' AS TIMESTAMP)", "spark"),
        ("SELECT CAST('no' 'w' AS TIMESTAMP)", "spark"),
        ("SELECT CAST('\\u006eow' AS TIMESTAMP)", "spark"),
        ("SELECT CAST(CAST(X'6E6F77' AS STRING) AS TIMESTAMP)", "spark"),
        ("SELECT CAST(named_struct('a', concat('no', 'w')).a AS TIMESTAMP)", "spark"),
        ("SELECT id FROM books WHERE at > concat('no', 'w')", "spark"),
        ("SELECT date_format(concat('no', 'w'), 'HH:mm')", "spark"),
        ("SELECT id FROM books WHERE concat('no', 'w') > at AND at BETWEEN lower('NOW') AND at", "spark"),
        ("SELECT coalesce(at, concat('no', 'w')) FROM books", "spark"),
        ("SELECT id FROM books WHERE at > 'no' || 'w'", "hive"),
        ("SELECT hour(if(true, lower('NOW'), 'x')) FROM books", "spark"),
        ("SELECT id FROM books WHERE at IN (SELECT to_timestamp(reverse('won')))", "spark"),
        *(
            (f"SELECT {call} FROM books", "spark")
            for text in (
                *("concat('no', 'w')", "'no' || 'w'", "substr('xnow', 2)", "trim('x' FROM 'xnow')", "lower('NOW')"),
                *("reverse('won')", "replace('nxw', 'x', 'o')", "conv('30704', 10, 36)", "chr(110) || 'ow'"),
                *("split('a,now', ',')[1]", "decode(X'6E6F77', 'UTF-8')", "date_format(DATE'2020-01-01', \"'now'\")"),
            )
            for call in (
                *(f"CAST({text} AS TIMESTAMP)", f"TRY_CAST({text} AS DATE)", f"to_timestamp({text})"),
                *(f"to_date({text})", f"timestamp({text})", f"date({text})", f"date_trunc('DAY', {text})"),
            )
        ),
    ],
)
def test_what_tells_of_chance_or_the_moment_is_not(sql: str, dialect: str) -> None:
    assert not is_repeatable(sql, dialect)
