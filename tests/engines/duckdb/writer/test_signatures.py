"""Calls and operators with types of arguments that Spark refuses have no equivalent on DuckDB, either."""

from __future__ import annotations

import pytest

from benchmarks.signatures import signatures, templates
from engines.duckdb.writer.signatures import FILE, LETTERS
from engines.errors import NoEquivalent
from tests.engines.duckdb.writer.test_parts import parsed
from tests.writers import DUCKDB_SQL

REFUSED = """
    unix_date(t) ; unix_seconds(d) ; '1' + '1' ; s * s ; s / '2' ; s % s ; pmod('1', '1')
    greatest(a, '2') ; least(s, 2) ; greatest(f, a) ; coalesce(f, a) ; CASE WHEN f THEN d ELSE a END
    CASE WHEN f THEN f ELSE a END
    a IN (1, d) ; d IN (1, 2) ; f IN (1, 0) ; s IN ('a', 1, d) ; f = a ; d < a ; d BETWEEN 1 AND 2 ; f AND a ; NOT a
    CASE a WHEN d THEN 1 END ; decode(a, d, 1, 2) ; nvl2(a, d, x) ; nullif(d, a) ; d + x ; t + 1 ; d * 2 ; -d ; ~x
    x & 1 ; a | x ; CAST(d AS INT) ; CAST(f AS DATE) ; TRY_CAST(a AS DATE) ; year(a) ; month(x) ; abs(d)
    sqrt(f) ; round(d, 1)
    upper(s) + s ; date_add(d, x) ; datediff(a, d) ; last_day(x) ; md5(a) ; sum(d) ; avg(f) ; bool_and(a) ; count_if(x)
    bit_and(x) ; stddev(d) ; median(f) ; EXTRACT(YEAR FROM a) ; hour(a) ; date_trunc('day', a) ; x DIV 2
"""

ACCEPTED = """
    a + '1' ; s + 1 ; a = '1' ; d = '2020-01-01' ; a IN (1, 2L, 3.5) ; concat(a, d, f) ; s || x ; coalesce(a, 2.5, x)
    greatest(a, 2L) ; CASE WHEN f THEN a ELSE 2.5 END ; date_add(d, 1) ; d + 1 ; round(x, 2) ; substring(s, 2, 3)
    unix_date(d) ; unix_seconds(t) ; if(f, a, NULL) ; sum(a) ; count(a, s) ; percentile(x, 0.5)
    a LIKE '1%' ; decode(a, 1, 'x', 'y')
    EXTRACT(HOUR FROM d) ; date_part('year', t) ; nvl2(a, x, 1) ; year(s) ; greatest(s, 'x') ; pmod(a, 3) ; NOT f ; -a
"""


def listed(text: str) -> list[str]:
    return [expression.strip() for line in text.strip().splitlines() for expression in line.split(" ; ")]


@pytest.mark.parametrize("expression", listed(REFUSED))
def test_what_spark_refuses_has_no_equivalent(expression: str) -> None:
    with pytest.raises(NoEquivalent):
        parsed(f"SELECT {expression} AS c FROM one").sql(DUCKDB_SQL)


@pytest.mark.parametrize("expression", listed(ACCEPTED))
def test_what_spark_accepts_is_written(expression: str) -> None:
    assert parsed(f"SELECT {expression} AS c FROM one").sql(DUCKDB_SQL)


def test_spark_was_asked_about_all_that_the_writer_has_words_for() -> None:
    answered = {line.split(" ")[0] for line in FILE.read_text(encoding="ascii").splitlines()}
    assert {name for name, _, _ in templates()} == answered


def test_types_are_put_together_that_go_with_the_same_others() -> None:
    def accepts(text: str) -> bool:
        return text in ("c_int + c_int", "c_int + c_date", "c_bigint + c_int", "c_bigint + c_date", "c_date + c_int")

    found = signatures(accepts, "{0} + {1}", 2, pairwise=False)
    assert sorted(map(tuple, found)) == [("D", "i"), ("il", "iD")]


def test_a_function_of_three_is_asked_argument_by_argument() -> None:
    def accepts(text: str) -> bool:
        first, second, third = text.removeprefix("f(").removesuffix(")").split(", ")
        return first in ("c_string", "c_binary") and second == "c_int" and third in ("c_int", "NULL")

    found = signatures(accepts, "f({0}, {1}, {2})", 3, pairwise=False)
    assert found == [["SB", "i", "vi"]]


def test_arguments_that_must_be_literals_are_asked_for_as_literals() -> None:
    found = signatures(lambda text: "CAST('1' AS int)" in text and "c_double" in text, "f({0}, {1})", 2, pairwise=False)
    assert found == [("d", "i")]
    assert LETTERS["double"] == "d"
