"""Values at which DuckDB differs from Spark: it has Spark's value, or gives up and Spark decides."""

from __future__ import annotations

import math
from decimal import Decimal

import duckdb
import pytest

from engines.errors import NoEquivalent
from sql.guards import OTHER_MEANING
from tests.engines.duckdb.writer.test_parts import parsed
from tests.writers import DUCKDB_SQL

FAR = "(VALUES (1000000003D), (1000000004D), (1000000006D)) AS v(c)"


def answer(sql: str) -> object:
    with duckdb.connect() as connection:
        (value,) = connection.execute(parsed(sql).sql(DUCKDB_SQL)).fetchone() or (None,)
        return value


def of(text: str, expression: str) -> object:
    return answer(f"SELECT {expression} AS r FROM (VALUES ({text})) AS v(c)")


@pytest.mark.parametrize(
    ("text", "expression", "expected"),
    [
        ("CAST('9999999999999998' AS DECIMAL(20, 0))", "CAST(c AS DOUBLE)", 9999999999999998.0),
        ("CAST('500000000000000000000000000000000000' AS DECIMAL(38, 0))", "CAST(c AS DOUBLE)", 5e35),
        ("CAST('63722314993309861' AS DECIMAL(38, 0))", "c = 63722314993309864D", True),
        ("true", "CAST(c AS DECIMAL(3, 1))", Decimal("1.0")),
        ("true", "TRY_CAST(c AS DECIMAL(6, 6))", None),
        ("'tRuE'", "TRY_CAST(c AS BOOLEAN)", True),
        ("'maybe'", "TRY_CAST(c AS BOOLEAN)", None),
        ("1.35D", "CAST(c AS DECIMAL(3, 1))", Decimal("1.4")),
        ("CAST('12.99' AS DECIMAL(38, 10))", "CAST(c AS INT)", 12),
        ("-0D", "CAST(sign(c) AS STRING)", "-0.0"),
        ("CAST(NULL AS DOUBLE)", "pow(1, c)", None),
        ("2D", "pow(c, 3)", 8.0),
        ("1e16", "round(c)", 1e16),
    ],
)
def test_duckdb_has_sparks_value(text: str, expression: str, expected: object) -> None:
    assert of(text, expression) == expected


@pytest.mark.parametrize(
    ("literal", "precision"), [("3", 5), ("3S", 5), ("3L", 5), ("3Y", 7), ("CAST(3 AS INT)", 14), ("3BD", 5)]
)
def test_the_digits_of_a_literal_count_beside_a_decimal_unless_it_is_a_tinyint(literal: str, precision: int) -> None:
    with duckdb.connect() as connection:
        product = connection.sql(parsed(f"SELECT c * {literal} AS r FROM (VALUES (1.25)) AS v(c)").sql(DUCKDB_SQL))
        assert product.types == [f"DECIMAL({precision},2)"]


@pytest.mark.parametrize("power", ["pow(1, c)", "pow(-1, c)", "pow(c, double('NaN'))"])
@pytest.mark.parametrize("exponent", ["double('NaN')", "double('Infinity')", "double('-Infinity')"])
def test_powers_that_java_does_not_know_are_nan(power: str, exponent: str) -> None:
    found = of(exponent, power)
    assert isinstance(found, float) and math.isnan(found)


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("'1.5e9'", "CAST(c AS DECIMAL(9, 0))"),
        ("'1.5e9'", "TRY_CAST(c AS DECIMAL(9, 0))"),
        ("1e20", "CAST(c AS DECIMAL(9, 0))"),
        ("1e20", "TRY_CAST(c AS DECIMAL(38, 0))"),
        (r"'true\u0001'", "TRY_CAST(c AS BOOLEAN)"),
        (r"'\u00001'", "TRY_CAST(c AS BOOLEAN)"),
        ("9223372036854775808D", "TRY_CAST(c AS BIGINT)"),
        ("2147483648F", "TRY_CAST(c AS INT)"),
        ("CAST('999999999.9999999998' AS DECIMAL(38, 10))", "CAST(c AS INT)"),
        ("-2147483648", "substring('abc', c)"),
        ("1000000000000000.1D", "round(c)"),
    ],
)
def test_duckdb_gives_up(text: str, expression: str) -> None:
    with pytest.raises(duckdb.Error, match=OTHER_MEANING):
        of(text, expression)


@pytest.mark.parametrize("function", ["var_pop", "var_samp", "stddev", "stddev_pop"])
def test_the_spread_of_numbers_far_from_zero_is_left_to_spark(function: str) -> None:
    with pytest.raises(duckdb.Error, match=OTHER_MEANING):
        answer(f"SELECT {function}(c) AS r FROM {FAR}")
    assert answer(f"SELECT {function}(1000000003D) AS r FROM {FAR}") == 0.0
    assert of("1D", "var_pop(c)") == 0.0


@pytest.mark.parametrize(
    "expression", ["CAST('1.5e9' AS DECIMAL(9, 0))", "CAST(x AS DECIMAL(6, 6))", "abs(CAST(a AS DECIMAL(38, 0)))"]
)
def test_casts_without_equivalent(expression: str) -> None:
    with pytest.raises(NoEquivalent):
        parsed(f"SELECT {expression} AS c FROM one").sql(DUCKDB_SQL)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("(2)", [(2, "a"), (1, "b")]),
        ("((2)) DESC", [(1, "b"), (2, "a")]),
        ("true, id DESC", [(2, "a"), (1, "b")]),
        ("(false), 'x', (1)", [(1, "b"), (2, "a")]),
    ],
)
def test_a_place_in_brackets_is_one_and_a_literal_orders_nothing(order: str, expected: list[tuple[int, str]]) -> None:
    with duckdb.connect() as connection:
        sql = f"SELECT id, s FROM (VALUES (1, 'b'), (2, 'a')) AS t(id, s) ORDER BY {order}"
        assert connection.execute(parsed(sql).sql(DUCKDB_SQL)).fetchall() == expected


WIDTHS = {"Y": "TINYINT", "S": "SMALLINT", "": "INTEGER", "L": "BIGINT"}


@pytest.mark.parametrize("text", ["{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} % {b}", "pmod({a}, {b})", "{a} | {b}"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_arithmetic_of_literals_has_the_wider_type(text: str, sign: str) -> None:
    order = list(WIDTHS)
    for one in WIDTHS:
        for other in WIDTHS:
            sql = parsed(f"SELECT {text.format(a=f'5{one}', b=f'{sign}3{other}')} AS r").sql(DUCKDB_SQL)
            with duckdb.connect() as connection:
                (kind,) = (column[1] for column in connection.execute(sql).description or ())
            assert str(kind) == WIDTHS[max(one, other, key=order.index)], sql
