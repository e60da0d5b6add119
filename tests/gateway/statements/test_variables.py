"""Variables in statements: which take a value, and which are refused."""

from __future__ import annotations

import time

import pytest

from gateway.security.principals import IN_PROCESS
from gateway.statements.session import Session
from gateway.statements.variables import LARGEST_GROWTH, LONGEST_NAME, substitute
from sql.errors import StatementTooLong, UnknownVariable
from sql.parsing import ParserLimits

SET = {"hivevar:x": "1", "y": "2", "x": "of a setting", "hivevar:quote": "' or '", "again": "${y}", "empty": ""}


@pytest.mark.parametrize(
    ("sql", "meant"),
    [
        ("select ${hivevar:x}", "select 1"),
        ("select ${x}", "select 1"),
        ("select ${hiveconf:x}", "select of a setting"),
        ("select ${y}, ${spark:y}, ${sparkconf:y}", "select 2, 2, 2"),
        ("select '${y}' as `${hivevar:x}` -- ${y}", "select '2' as `1` -- 2"),
        ("select '${hivevar:quote}'", "select '' or ''"),
        ("select ${again}", "select ${y}"),
        ("select '${empty}'", "select ''"),
        ("select 1 -- ${nobody}\n/* ${env:HOME} */", "select 1 -- ${nobody}\n/* ${env:HOME} */"),
        ("select '$' '{y}', '${', '$ {y}', '${a b}', '${}'", "select '$' '{y}', '${', '$ {y}', '${a b}', '${}'"),
        (f"select '${{{'a' * LONGEST_NAME}}}'", f"select '${{{'a' * LONGEST_NAME}}}'"),
    ],
)
def test_values_take_the_place_of_variables(sql: str, meant: str) -> None:
    assert substitute(sql, "spark", SET) == meant
    assert substitute(sql, "hive", SET) == meant


@pytest.mark.parametrize("dialect", ["impala", "no such dialect"])
def test_other_dialects_have_none(dialect: str) -> None:
    assert substitute("select '${env:HOME}', '${y}'", dialect, SET) == "select '${env:HOME}', '${y}'"


@pytest.mark.parametrize(
    ("sql", "column", "says"),
    [
        ("select '${hivevar:nobody}'", 9, r"no variable \$\{hivevar:nobody\} in this session: SET hivevar:nobody = "),
        ("select '${y} ${z}'", 11, r"SET hivevar:z = "),
        ("select '${env:HOME}'", 9, "no value from the environment"),
        ("select 'a${system:user.name}'", 10, "no value from properties of the system"),
        ("select '${hivevar:y}'", 9, "no variable"),
        ("select '${other:y}'", 9, "no variable"),
        ("select '${hiveconf:${y}}'", 9, "no variable"),
        ("select x['${'].`}']`", 11, "no variable"),
        ("select `${z}` /* ${z} */", 9, "no variable"),
    ],
)
def test_a_variable_without_a_value_is_refused(sql: str, column: int, says: str) -> None:
    with pytest.raises(UnknownVariable, match=says) as caught:
        substitute(sql, "hive", SET)
    assert caught.value.position is not None
    assert (caught.value.position.line, caught.value.position.column) == (1, column)


def test_values_cannot_fill_the_memory() -> None:
    with pytest.raises(StatementTooLong, match="longer"):
        substitute("${v}" * 100_000, "spark", {"v": "x" * 60_000})
    assert LARGEST_GROWTH < 10_000_000


def test_a_text_that_is_too_long_is_not_looked_through_for_variables() -> None:
    limits = ParserLimits(statement_bytes=1_000)
    for sql in ("select '${nobody}' --" + "x" * 1_000, "select '${nobody}${v}'"):  # with its values, as well
        with pytest.raises(StatementTooLong, match="1,000 bytes"):
            substitute(sql, "spark", {"v": "x" * 1_000}, limits)
    with pytest.raises(StatementTooLong):
        Session(IN_PROCESS, deadline_s=60, limits=limits).statement("select '${nobody}' --" + "x" * 1_000)


def test_a_hostile_text_takes_no_long_time() -> None:
    begun = time.monotonic()
    for text in ("${" * 500_000, "${a" * 300_000 + "}", "$" * 1_000_000, "${ }" * 250_000):
        substitute(text, "impala", {})
        try:
            substitute("'" + text + "'", "spark", {})
        except UnknownVariable:
            continue
    assert time.monotonic() - begun < 30.0
