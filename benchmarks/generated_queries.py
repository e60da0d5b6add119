"""Small queries over all types, made from a seed: the same seed makes the same queries, in the same order.

They are Spark's SQL. Most ask for several expressions at once. What depends on the order of rows, on time or on chance
is not asked for.

Functions whose last digit depends on the library of mathematics (``smooth``) are asked for, but nothing is grouped,
compared or sorted by them.

A grammar says what there is: a line for each form, ``<whole>`` for an expression of that type, ``<whole.>`` for a
column or a literal, and ``{a | b}`` for either.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sql.tables import Column, TableSource

ITEM_ROWS, NOTE_ROWS = 48, 64
DEPTH = 3  # of expressions
EARLY_LEAF = 0.15  # share of expressions that end before that depth
COLUMNS = 0.75  # share of columns among columns and literals

_WORDS = ["", "a", "Ab", "abc", "zebra", "Zoë", "naïve", "a_b", "a%b", " x ", "12", "-7", "3.50", "1e2", "2020-02-29"]
_WORDS += ["back\\slash", "it's", "foo bar", "FOO", "tail ", "ÀÉÎ", "日本", "x,y,z", "longer than twelve letters"]
_DAYS = ("1969-12-31", "2020-02-29", "2021-01-03", "1999-12-31", "2020-01-31", "1582-10-04", "2024-03-31", "2023-11-05")
_MOMENTS = (
    "2020-02-29T23:59:59.999999",
    "1969-12-31T23:59:59.500000",
    "2021-01-03T00:00:00",
    "2024-03-31T01:30:00",
    "1999-12-31T12:05:07.120000",
)
_DOUBLES = [-2.5, -0.0, 0.0, 0.1, 0.285, 1.005, 2.5, 2.675, 1e15, 123.456, float("nan"), float("inf")]

_COLUMNS = {
    "whole": "i.id i.tiny i.small i.n i.big",
    "decimal": "i.m i.wide i.frac i.near",
    "double": "i.x i.f",
    "string": "i.s i.word",
    "boolean": "i.flag",
    "date": "i.d",
    "timestamp": "i.ts",
}
_LITERALS = {
    "whole": "0 ; 1 ; -3 ; 7 ; 100 ; 2L ; 3Y ; 5S",
    "decimal": "0.5 ; 1.25 ; -2.50 ; 100.0 ; 0.001 ; 3BD",
    "double": "0.5D ; -1e0 ; 2.0D ; 1e3 ; double('NaN') ; 1.5F",
    "string": r"'a' ; 'abc' ; '' ; 'Zoë' ; 'it\'s' ; '12'",
    "boolean": "true ; false",
    "date": "DATE '2020-01-31' ; DATE '1999-12-31'",
    "timestamp": "TIMESTAMP '2020-01-31 10:20:30.5' ; TIMESTAMP '1970-01-01 00:00:00'",
}
TYPES = tuple(_COLUMNS)

_GRAMMAR = {
    "query": """
        SELECT i.id, <list> FROM items i
        SELECT i.id, <list> FROM items i
        SELECT i.id, <list> FROM items i
        SELECT id, <list> FROM items AS i WHERE <boolean>
        SELECT <aggregates> FROM items i
        SELECT <aggregates> FROM items i WHERE <boolean> HAVING <having>
        SELECT <key> AS k, <aggregates> FROM items i GROUP BY {k | 1}
        SELECT <key> AS k, <aggregates> FROM items i GROUP BY 1 HAVING <having>
        SELECT i.word, i.flag AS k, <aggregates> FROM items i WHERE <boolean> GROUP BY i.word, {k | i.flag | 2}
        SELECT upper(i.word) AS k, <aggregates> FROM items i GROUP BY upper(i.word) HAVING <having>
        SELECT i.id, <any> AS c, n.note, n.tag, <pair> AS p FROM items i <join> notes n ON <on>
        SELECT i.id, <any> AS c, n.* FROM items i <join> notes n ON <on>
        SELECT i.id, <list> FROM items i LEFT {SEMI | ANTI} JOIN notes n ON <on>
        SELECT i.id, <windows> FROM items i
        SELECT i.id, <windows> FROM items i
        SELECT <decimal> AS a, i.word AS b FROM items i <set> SELECT <number>, i.word FROM items i
        SELECT <whole> AS a, i.word AS b FROM items i WHERE <boolean> <set> SELECT <whole>, i.word FROM items i
        SELECT <whole> AS a, i.d AS b FROM items i WHERE <boolean> <set> SELECT <decimal>, i.d FROM items i
        SELECT <string> AS a, i.flag AS b FROM items i <set> SELECT <string>, <boolean> FROM items i WHERE <boolean>
        SELECT <date> AS a FROM items i <set> SELECT {<date> | <timestamp>} AS b FROM items i WHERE <boolean>
        SELECT q.a, q.b, q.a AS c FROM (SELECT <any> AS a, <any> AS b FROM items i) q WHERE q.a IS NOT NULL
        WITH w AS (SELECT i.word, <aggregate> AS a FROM items i GROUP BY i.word) <of_w>
        SELECT i.id, <list> FROM items i WHERE i.id {IN | NOT IN} (SELECT n.note FROM notes n WHERE n.score > 0)
        SELECT i.id, <any> AS c FROM items i WHERE i.n > (SELECT <of_notes> FROM notes n)
        SELECT i.id, (SELECT <of_notes> FROM notes n WHERE n.item = i.id) AS inside FROM items i
        SELECT i.id FROM items i WHERE { | NOT }EXISTS (SELECT 1 FROM notes n WHERE n.item = i.id AND n.amount > i.m)
        SELECT a, {a + 1 | a / 2 | a * a} AS b FROM (VALUES (1, 'x'), (2, 'y'), (NULL, 'z')) AS v(a, t)
        SELECT i.flag, i.word, grouping(i.flag) AS g, grouping(i.word) AS h, <aggregates> FROM items i GROUP BY <groups>
        SELECT i.id AS Id, <any> AS c FROM items i ORDER BY <key> <direction>, <key> <direction>, i.id LIMIT {3 | 17}
        SELECT DISTINCT <key> AS a, <key> AS b FROM items i
        SELECT id, n FROM items WHERE { | NOT }EXISTS (SELECT o.<of_o> AS <clash> FROM notes o WHERE o.<of_o> > <clash>)
        SELECT id, x FROM items i WHERE id { | NOT }IN (SELECT o.item AS <clash> FROM notes o WHERE o.<of_o> < <clash>)
        SELECT id, (SELECT <of_o_group> AS <clash> FROM notes o WHERE o.<of_o> = <clash>) AS inside FROM items i
        SELECT {i.flag, 'x' AS lit | 'x' AS lit, i.flag}, <aggregate> AS a FROM items i GROUP BY {lit | CUBE(lit)}, flag
        SELECT 7 AS lit, i.word, <aggregates> FROM items i GROUP BY <literal_groups>
        SELECT {* | p.*, q.* | r.*, q.* | word, id, d, amount} FROM <chained>
        SELECT {amount, id | *} FROM <chained> WHERE { | NOT }EXISTS (<of_id>)
        SELECT {3 | -2 | i.n} AS k, i.id, <decimal.> { / nullif(k, 0) | * k | + k} AS a, round(k) AS b FROM items i
        SELECT {q.c | q.id | * | count(*) AS c} FROM (<repeated>) q
    """,
    "list": """
        <any> AS c0, <any> AS c1
        <any> AS c0, <any> AS c1, <any> AS c2
        <any> AS c0, <any> AS c1, <any> AS c2, <any> AS c3
    """,
    "any": "\n".join(f"<{kind}>" for kind in (*TYPES, "smooth")),
    "key": "\n".join(f"<{kind}>" for kind in TYPES),
    "aggregates": """
        <aggregate> AS a0
        <aggregate> AS a0, <aggregate> AS a1
        <aggregate> AS a0, <aggregate> AS a1, <aggregate> AS a2
    """,
    "windows": """
        <window> AS w0
        <window> AS w0, <window> AS w1, <window> AS w2
    """,
    "of_w": """
        SELECT i.id, w.a FROM items i JOIN w USING (word)
        SELECT w.* FROM w
        SELECT i.id, w.* FROM items i, w
    """,
    "chained": """
        (SELECT id, word, d, n FROM items) p <inner> (SELECT item AS id, note FROM notes) q USING (id) <inner> <third>
    """,
    "inner": "{JOIN | LEFT JOIN}",
    "third": "(SELECT note, tag AS word, day AS d, amount FROM notes) r USING ({word | d | d, word | note, word})",
    "of_id": "SELECT o.note AS {id | word} FROM notes o WHERE o.item = id",
    "repeated": "SELECT i.id, n.note AS {id | id_1 | k}, n.amount AS c FROM items i JOIN notes n ON <on>",
    "clash": "{n | x | m | tiny | big}",
    "of_o": "{item | note | score | amount}",
    "of_o_group": "{max(o.note) | count(*) | min(o.amount) | sum(o.item)}",
    "literal_groups": """
        {i.word, lit | 2, 1}
        {ROLLUP | CUBE} ({i.word | i.word, lit | 2, 1})
        GROUPING SETS ((i.word, lit), (i.word), ())
    """,
    "of_notes": "{count(*) | max(n.item) | sum(n.amount) | avg(n.score)}",
    "having": "{count(*) > 1 | max(i.n) >= 0 | sum(i.m) IS NOT NULL | min(i.id) < 20}",
    "join": "{JOIN | LEFT JOIN | RIGHT JOIN | FULL OUTER JOIN}",
    "on": "{i.id = n.item | i.id = n.item AND n.score > 0 | i.word = n.tag | i.d = n.day AND i.m < n.amount}",
    "pair": "{i.m * n.amount | i.id + n.note | n.amount / nullif(i.m, 0) | n.score - i.m | i.word || n.tag}",
    "set": "{UNION ALL | UNION | INTERSECT | EXCEPT | EXCEPT ALL | INTERSECT ALL}",
    "direction": "{ | DESC | ASC NULLS LAST | DESC NULLS FIRST}",
    "number": "{<whole> | <decimal> | <double>}",
    "bound": "{0 | 1 | 2.5 | -1 | 10}",
    "groups": """
        ROLLUP (i.flag, i.word)
        CUBE (i.flag, i.word)
        GROUPING SETS ((i.flag), (i.word), ())
        i.flag, i.word WITH {ROLLUP | CUBE}
        i.flag, i.word GROUPING SETS ((i.flag, i.word), (i.flag))
    """,
    "window": """
        {row_number() | rank() | dense_rank() | ntile(3) | percent_rank() | cume_dist()} OVER (<over>)
        {lag(i.n) | lag(i.m, 2) | lead(i.s, 1, 'none') | lead(i.d) | lag(i.big, 1, 0)} OVER (<over>)
        {first_value(i.m) | last_value(i.word) | sum(i.n) | sum(i.m) | avg(i.m) | avg(i.n)} OVER (<over> <frame>)
        {count(*) | count(i.s) | min(i.d) | max(i.m) | sum(i.x) | max(i.s) | avg(i.f)} OVER (<over> <frame>)
    """,
    "over": """
        { | PARTITION BY i.flag | PARTITION BY i.word | PARTITION BY i.tiny, i.flag} ORDER BY <sorted>
    """,
    "sorted": "{i.id | i.n, i.id | i.m DESC, i.id | i.x, i.id DESC | i.s DESC NULLS FIRST, i.id}",
    "frame": """
        { | ROWS BETWEEN 2 PRECEDING AND CURRENT ROW | ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING}
        { ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW | RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW}
    """,
    "aggregate": """
        count(*)
        count({ | DISTINCT }<key>)
        count(DISTINCT i.word, i.flag)
        {sum | avg}({ | DISTINCT }{<whole> | <decimal>})
        {sum | avg}(<double>)
        {sum | avg}(i.{m | wide | n | tiny | frac})
        {min | max}(<any>)
        {stddev | stddev_pop | variance | var_pop | stddev_samp | std | var_samp}(i.{n | m | tiny | x | f})
        {covar_pop | covar_samp | corr}(i.n, i.m)
        count_if(<boolean>)
        {bool_and | bool_or | every | some}(<boolean>)
        {bit_and | bit_or | bit_xor}(i.{n | tiny | big})
        {median(i.n) | percentile(i.m, 0.25) | percentile(i.n, 0.5)}
        sum(i.m) / {count(i.m) | nullif(sum(i.n), 0)}
        100.00 * sum(i.m) / nullif(sum(i.wide), 0)
        sum(CASE WHEN <boolean> THEN i.m ELSE 0 END)
        sum(i.n) FILTER (WHERE <boolean>)
        {sum | avg | max | count}(<whole>) FILTER (WHERE <boolean>)
        {sum | min | count | avg}({100 / i.n | i.big % i.n | pmod(i.id, i.n)}) FILTER (WHERE i.n <> 0)
        {sum | max | count}({i.big * 9000000 | cast(i.big AS int)}) FILTER (WHERE i.big BETWEEN -50 AND 50)
        {sum | max | avg}(cast(i.wide AS {int | decimal(8,4)})) FILTER (WHERE abs(i.wide) < 50)
        {max | sum | first | count}(cast(i.s AS int)) FILTER (WHERE i.s RLIKE '^[0-9]+$')
        {sum | max | avg}(i.near * {i.n | i.tiny | 100 | i.near}) { | FILTER (WHERE i.flag)}
        {approx_count_distinct(i.n) | size(collect_list(i.n)) | skewness(i.n) | kurtosis(i.n)}
    """,
    "whole": """
        (<whole> {+ | -} <whole>)
        (i.tiny * <whole>)
        (<whole> % {3 | -4 | 7L | nullif(i.n, 0)})
        pmod(<whole>, {3 | 7 | -5})
        (<whole> DIV {2 | -3 | nullif(i.small, 0)})
        (- <whole>)
        abs(<whole>)
        {length | char_length | octet_length | bit_length | ascii}(<string>)
        instr(<string>, <string>)
        locate({'b' | <string>}, <string>)
        locate('b', <string>, {1 | 2 | 3})
        position('a' IN <string>)
        {year | month | day | quarter | dayofweek | weekday | dayofyear | weekofyear | dayofmonth}(<date>)
        {hour | minute | second | year | month | day}(<timestamp>)
        extract({YEAR | MONTH | DAY | QUARTER | WEEK | DOW | DOY} FROM <date>)
        datediff(<date>, <date>)
        coalesce(<whole>, <whole>)
        if(<boolean>, <whole>, <whole>)
        CASE WHEN <boolean> THEN <whole> ELSE <whole> END
        nullif(<whole>, <whole>)
        greatest(<whole>, <whole>, <whole>)
        least(<whole>, <whole>)
        cast({<decimal.> | <double.>} AS {bigint | int})
        try_cast(<string> AS int)
        cast(<boolean> AS int)
        ceil(<decimal>)
        floor({i.x | i.f | <decimal>})
        round(<whole>, {0 | 1 | -1})
        (i.n {& | ^ | |} <whole>)
        (i.n {& | ^ | |} {i.small | 6 + i.tiny} {& | ^ | |} {<whole.> | 5} {& | ^ | |} {i.tiny | 3 * i.tiny | 12L})
        ({'1' | i.id} || {2 | i.id} {+ | -} <whole.>)
        (<whole> % {-1 | i.tiny | i.small})
        {pmod(<whole.>, i.tiny) | (-(- <whole.>)) | (-(3))}
        cast(<whole> AS {bigint | int})
        (~i.n)
        nvl2(<whole>, <whole>, <whole>)
        decode(i.word, 'a', <whole>, 'abc', <whole>, <whole>)
        {unix_date(<date>) | unix_timestamp(<timestamp>) | unix_seconds(<timestamp>)}
        zeroifnull(<whole>)
        {levenshtein(<string>, 'abc') | factorial(i.tiny) | size(split(<string>, ',')) | crc32(<string>)}
    """,
    "decimal": """
        (<decimal> {+ | -} {<decimal.> | <whole.>})
        (<decimal.> * {<decimal.> | <whole.>})
        (i.near {* | + | - | / | %} {i.near | i.m | 100 | i.n | 0.5 | 9999999999999999.99 | -(3)})
        (<decimal.> {* | / | + | %} {cast(3 AS int) | -(3) | round(7) | int(2) | -4 | 5L | (6) | abs(-2)})
        (<decimal.> / {nullif(<decimal.>, 0) | 3 | 7.5 | 0.3 | -2 | nullif(i.id % 5, 0)})
        (<decimal.> % {2 | 0.7 | -1.5})
        pmod(<decimal.>, {2 | 0.7})
        (- <decimal>)
        abs(<decimal>)
        round(<decimal>, {0 | 1 | 2 | -1})
        round(<decimal>)
        {bround(<decimal.>, 1) | ceil(<decimal.>)}
        coalesce(<decimal>, <whole>)
        CASE WHEN <boolean> THEN <decimal.> WHEN i.flag THEN <whole.> END
        {greatest | least}(<decimal.>, <decimal.>)
        cast(i.{x | f | n | m | wide | frac} AS decimal({12,3 | 20,1 | 18,0 | 38,10}))
        try_cast(<string> AS decimal(10,2))
        nullif(<decimal.>, <decimal.>)
        if(<boolean>, <decimal.>, <decimal.>)
    """,
    "double": """
        (<whole.> / {2 | 7 | nullif(i.n, 0)})
        (i.x {+ | * | -} {<double> | <decimal.> | <whole.>})
        (i.x / {3 | 0.5 | 2.5D | nullif(i.n, 0)})
        (i.x % {2 | 1.5D})
        (i.f + {i.f | 1 | i.m | i.x})
        {sqrt | abs | signum}({<double> | <whole.>})
        round(i.x, {0 | 1 | 2})
        round(i.x)
        (- <double>)
        cast({<double> | <decimal> | <whole>} AS {double | float})
        {cast | try_cast}(i.x * {1e38 | -1e300 | 3.4028235e38D} AS float)
        try_cast(<string> AS double)
        coalesce(i.x, {<double> | <decimal.>})
        {greatest | least}(i.x, {<double> | <decimal.> | <whole.>})
        nullif(i.x, <double>)
        if(<boolean>, i.x, <whole.>)
    """,
    "smooth": """
        {ln | log10 | log2 | cbrt | exp | sin | cos | tan | atan | degrees | radians}({<double> | <whole.>})
        log({2 | 10 | 3}, {<double> | <decimal.>})
        exp({i.tiny | i.m | 0.5 | i.frac})
        power({i.m | i.tiny | i.x}, {2 | 0.5 | -1})
        atan2(i.x, {<double> | <decimal.>})
    """,
    "string": r"""
        concat(<string>, {<whole> | <decimal> | <date> | <timestamp> | <boolean> | <string>})
        (<string> || {<whole> | <decimal> | <date> | <timestamp> | <boolean> | <string>})
        concat_ws({'-' | ', '}, <string>, <string>, <whole>)
        {upper | lower | trim | ltrim | rtrim | reverse | md5 | sha1 | initcap | base64}(<string>)
        sha2(<string>, 256)
        substring(<string>, {1 | 2 | 0 | -2 | -5 | i.tiny})
        substring(<string>, {1 | 2 | 0 | -2 | -5 | i.small}, {0 | 1 | 3 | -1 | i.n % 4})
        substr(<string> FROM 2 FOR 2)
        {left | right}(<string>, {2 | 0 | -1 | 30 | i.tiny % 4})
        lpad(<string>, {2 | 8 | 0}, {'*' | 'xy'})
        rpad(<string>, {2 | 8})
        trim({BOTH | LEADING | TRAILING} 'a' FROM <string>)
        replace(<string>, {'a' | '' | 'b'}, {'X' | ''})
        repeat(<string>, {2 | 0 | -1 | i.tiny % 3})
        translate(<string>, 'abc', {'xyz' | 'x'})
        hex({i.n | i.s | i.big | i.word})
        coalesce(<string>, <string>)
        cast({<whole> | <decimal> | <date> | <timestamp> | <boolean> | i.x | i.f} AS string)
        if(<boolean>, <string>, <string>)
        CASE i.word WHEN 'a' THEN <string> WHEN 'b' THEN <string> ELSE <string> END
        nullif(<string>, <string>)
        greatest(<string>, <string>)
        regexp_replace(<string>, {'[a-c]+' | 'b|c' | '[0-9]' | '.'}, {'#' | '<$0>' | ''})
        regexp_extract(<string>, {'([a-z]+)([0-9]*)' | '(b)(x)?'}, {0 | 1 | 2})
        split_part(<string>, ',', {1 | 2 | -1})
        substring_index(<string>, 'b', {1 | -1 | 2})
        date_format({i.d | i.ts}, {'yyyy-MM-dd' | 'dd/MM/yy' | 'EEE, d MMM yyyy' | 'HH:mm:ss.SSS' | 'MMMM D'})
        {dayname | monthname}(<date>)
        {space(<whole> % 5) | chr(<whole>)}
        decode(i.n, 1, <string>, NULL, 'none', <string>)
    """,
    "boolean": r"""
        (<whole> <compare> <whole>)
        (<string> <compare> <string>)
        (<date> <compare> <date>)
        (<timestamp> <compare> <timestamp>)
        ({<whole.> | <decimal.> | <double.>} <compare> {<whole.> | <decimal.> | <double.>})
        (<any> IS { | NOT }NULL)
        (<boolean> {AND | OR} <boolean>)
        (NOT <boolean>)
        ({<whole.> | <decimal.> | <double.>} { | NOT }BETWEEN {<whole.> | <decimal.> | <double.>} AND <bound>)
        (<whole.> { | NOT }IN (1, 2, {3.5 | -3 | NULL | 7L}))
        (<string> { | NOT }IN ('a', 'abc', {NULL | i.word}))
        (<string> { | NOT }{LIKE | ILIKE} {'a%' | '%b%' | '_b%' | 'a\\_b' | '%\\%%' | 'abc' | '%ë' | ''})
        (<string> LIKE 'a|_b' ESCAPE '|')
        (<string> { | NOT }{LIKE | ILIKE} {ANY | ALL} ('a%', {'%c' | '%B%' | NULL}))
        (<string> { | NOT }RLIKE {'^a' | 'b$' | '[0-9]+' | 'a.c' | '(foo|bar)' | '^[A-Z]' | 'x?y' | '\\d\\d'})
        startswith(<string>, {i.word | 'a'})
        {endswith | contains}(<string>, {'c' | 'b'})
        isnan(<double>)
        (i.flag IS {TRUE | FALSE | NOT TRUE})
        cast({<whole.> | <decimal.> | <double.>} AS boolean)
        (i.d <compare> {'2020-02-29' | i.ts | '2020-1-31'})
        (i.n <compare> {'3' | '-3'})
        (i.f = {0.1 | i.x | 0.1F | i.m})
        (i.wide > i.big)
    """,
    "compare": "{= | <> | < | <= | > | >= | <=>}",
    "date": """
        {date_add | date_sub}(<date>, {1 | -3 | 40 | i.tiny | i.small % 50})
        (<date> {+ | -} {1 | 30})
        (<date> {+ | -} INTERVAL {1 DAY | 2 MONTH | 1 YEAR | 13 MONTH | 3 WEEK | '5' DAY})
        (<date> + INTERVAL -1 MONTH)
        add_months(<date>, {1 | -1 | 13 | i.tiny % 20})
        last_day(<date>)
        trunc(<date>, {'MM' | 'YEAR' | 'quarter' | 'week'})
        {to_date(<timestamp>) | cast(<timestamp> AS date)}
        coalesce(<date>, <date>)
        greatest(<date>, <date>)
        if(<boolean>, <date>, <date>)
        next_day(<date>, {'MO' | 'sunday' | 'Wed'})
        try_cast({i.s | '2020-02-30' | '2020-05-05' | '0000-01-01'} AS date)
        cast({'2020-02-29' | '1999-1-2'} AS date)
    """,
    "timestamp": """
        date_trunc('{YEAR | QUARTER | MONTH | WEEK | DAY | HOUR | MINUTE | SECOND}', {<timestamp> | <date>})
        (<timestamp> {+ | -} INTERVAL {1 DAY | 90 MINUTE | 1 MONTH | 5 HOUR | 10 SECOND | 1 YEAR})
        {cast(<date> AS timestamp) | to_timestamp(<date>)}
        coalesce(<timestamp>, <timestamp>)
        greatest(<timestamp>, <timestamp>)
        try_cast(concat(cast(<date> AS string), ' {23:59:59 | 24:00:00 | 7:00:00 | 10:60:00}') AS timestamp)
        {try_cast | cast}('2020-0{1-31 | 2-30} {24:00:00 | 23:00:00}' AS timestamp)
        cast('2020-01-02 {03:04:05 | 00:00:00.125}' AS timestamp)
    """,
}
_FORMS = {name: [line.strip() for line in text.strip().splitlines()] for name, text in _GRAMMAR.items()}
_SLOT = re.compile(r"<([a-z_]+)(\.?)>|\{([^{}]*)\}")


def queries(seed: int, count: int) -> Iterator[str]:
    """Yield so many queries."""
    for number in range(count):
        yield _Maker(random.Random(f"{seed}/{number}")).make("query", DEPTH)  # noqa: S311 - no secrets


class _Maker:
    """Makes one query."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def make(self, name: str, depth: int) -> str:
        """Make something that the grammar names; an expression that is deep enough is a column or a literal."""
        if name in _COLUMNS and (depth <= 0 or self._chance.random() < EARLY_LEAF):
            return self._leaf(name)
        deeper = depth - 1 if name in _COLUMNS else depth
        return self._filled(self._chance.choice(_FORMS[name]), deeper)

    def _filled(self, form: str, depth: int) -> str:
        while found := _SLOT.search(form):  # choices first hold no other choices; what is chosen may hold slots
            name, leaf, choices = found.groups()
            if choices is not None:
                chosen = self._chance.choice(choices.split(" | "))
                made = self._filled(chosen, depth)
            else:
                made = self._leaf(name) if leaf else self.make(name, depth)
            form = form[: found.start()] + made.replace("<", "\0").replace("{", "\1") + form[found.end() :]
        return form.replace("\0", "<").replace("\1", "{")

    def _leaf(self, kind: str) -> str:
        if self._chance.random() < COLUMNS:
            return self._chance.choice(_COLUMNS[kind].split())
        return self._chance.choice(_LITERALS[kind].split(" ; "))


def write_tables(folder: Path) -> tuple[TableSource, ...]:
    """Write the two tables that the queries read, with NULL in every column that is no key."""
    chance = random.Random(7)  # noqa: S311 - no secrets

    def some(values: list[object], rows: int, kind: pa.DataType) -> pa.Array:
        return pa.array([None if chance.random() < 0.12 else chance.choice(values) for _ in range(rows)], kind)

    def item(kind: pa.DataType, *values: object) -> pa.Array:
        return some(list(values), ITEM_ROWS, kind)

    def note(kind: pa.DataType, *values: object) -> pa.Array:
        return some(list(values), NOTE_ROWS, kind)

    days = [dt.date.fromisoformat(day) for day in _DAYS]
    moments = [dt.datetime.fromisoformat(moment).replace(tzinfo=dt.UTC) for moment in _MOMENTS]
    items = {
        "id": ("int", pa.array(range(1, ITEM_ROWS + 1), pa.int32())),
        "tiny": ("tinyint", item(pa.int8(), -128, -1, 0, 1, 5, 127)),
        "small": ("smallint", item(pa.int16(), -300, -2, 0, 3, 7, 32_000)),
        "n": ("int", item(pa.int32(), -100, -3, 0, 1, 2, 3, 10, 2_000_000)),
        "big": ("bigint", item(pa.int64(), -(10**12), -5, 0, 1, 42, 9_007_199_254_740_993)),
        "f": ("float", item(pa.float32(), -1.5, 0.0, 0.1, 2.25, 1e10)),
        "x": ("double", item(pa.float64(), *_DOUBLES)),
        "m": ("decimal(7,2)", item(pa.decimal128(7, 2), *map(Decimal, "-12.35 0.00 0.05 1.25 99.99 -0.50".split()))),
        "wide": (
            "decimal(20,6)",
            item(pa.decimal128(20, 6), *map(Decimal, "-1000000.123456 0.000001 3.333333 12345678901234.5".split())),
        ),
        "frac": ("decimal(4,4)", item(pa.decimal128(4, 4), *map(Decimal, "0.0001 0.5000 -0.2500 0.9999".split()))),
        "near": (
            "decimal(18,2)",
            item(
                pa.decimal128(18, 2), *map(Decimal, "9999999999999999.99 -1234567890123456.78 1000000.00 0.01".split())
            ),
        ),
        "s": ("string", item(pa.string(), *_WORDS)),
        "word": ("string", item(pa.string(), "a", "b", "abc", "abcabc", "Hello World", "x1y22z333")),
        "flag": ("boolean", item(pa.bool_(), True, False)),
        "d": ("date", item(pa.date32(), *days)),
        "ts": ("timestamp", item(pa.timestamp("us", tz="UTC"), *moments)),
    }
    notes = {
        "note": ("bigint", pa.array(range(NOTE_ROWS), pa.int64())),
        "item": ("int", note(pa.int32(), *range(1, ITEM_ROWS + 6))),
        "tag": ("string", note(pa.string(), "a", "b", "abc", "red", "Blue", "")),
        "amount": ("decimal(12,3)", note(pa.decimal128(12, 3), *map(Decimal, "0.125 -7.5 1000.001 33.333".split()))),
        "score": ("double", note(pa.float64(), 0.5, -1.25, 10.0, 3.75)),
        "day": ("date", note(pa.date32(), *days)),
    }
    return tuple(_written(folder / name, columns) for name, columns in (("items", items), ("notes", notes)))


def _written(folder: Path, columns: dict[str, tuple[str, pa.Array]]) -> TableSource:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: values for name, (_, values) in columns.items()}), folder / "part-0.parquet")
    declared = tuple(Column(name, kind) for name, (kind, _) in columns.items())
    return TableSource(folder.name, str(folder), "parquet", declared)
