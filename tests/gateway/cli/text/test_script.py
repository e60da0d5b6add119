"""Scripts: where one statement ends, and where in the file an error is."""

from __future__ import annotations

import time

import pytest

from gateway.cli.text.script import Place, pointed_at, statements_of


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;", ["SELECT 1;"]),
        ("SELECT 1; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';' AS a; -- no; end\nSELECT `b;c`; /* ; */", ["SELECT ';' AS a", "SELECT `b;c`"]),
        (";;\n;", []),
        ("", []),
        ("-- nothing\n;", ["-- nothing\n;"]),  # the gateway says that it is empty
        ("SELECT 1; SELECT 'open", ["SELECT 1; SELECT 'open"]),
        ("CREATE VIEW v AS SELECT 1;\r\nDROP VIEW v;\r\n", ["CREATE VIEW v AS SELECT 1", "DROP VIEW v"]),
        ("SELECT /*+ ENGINE(spark) */ 1; SELECT 'é😀';x", ["SELECT /*+ ENGINE(spark) */ 1", "SELECT 'é😀'", "x"]),
    ],
)
def test_a_script_is_cut_where_the_tokenizer_sees_semicolons(script: str, statements: list[str]) -> None:
    assert [statement.sql for statement in statements_of(script, "spark")] == statements


def test_quotes_are_those_of_the_dialect() -> None:
    script = r"SELECT r'a\'; SELECT 2"  # a raw string in Spark, an open quote in Hive
    assert [each.sql for each in statements_of(script, "spark")] == [r"SELECT r'a\'", "SELECT 2"]
    assert [each.sql for each in statements_of(script, "hive")] == [script]
    assert len(list(statements_of("SELECT 1; SELECT 2", "no such dialect"))) == 2  # which the gateway refuses


def test_places_in_a_statement_are_places_in_its_script() -> None:
    first, second, third = statements_of("SELECT 1;\n  SELECT 2,\n b; SELECT 3", "spark")
    assert first.place_in_script(Place(1, 8)) == Place(1, 8)
    assert second.start == Place(2, 3)
    assert second.place_in_script(Place(1, 8)) == Place(2, 10)
    assert second.place_in_script(Place(2, 2)) == Place(3, 2)
    assert third.place_in_script(Place(1, 1)) == Place(3, 5)


def test_a_caret_stands_below_what_is_wrong() -> None:
    assert pointed_at("SELECT 1\n\t日本 nope", Place(2, 5)) == (" 日本 nope", "      ^")
    assert pointed_at("SELECT 1", Place(1, 9)) == ("SELECT 1", "        ^")  # at the end
    assert pointed_at("SELECT 1", Place(2, 1)) is None
    assert pointed_at("", Place(1, 5)) is None
    shown, caret = pointed_at("SELECT " + "x, " * 1_000 + "nope" + ", y" * 1_000, Place(1, 3_008)) or ("", "")
    assert len(shown) < 80
    assert shown[caret.index("^") :].startswith("nope")


def test_forty_thousand_statements_in_a_line_are_cut_in_linear_time() -> None:
    began = time.process_time()
    statements = list(statements_of("SELECT 1; " * 40_000, "spark"))
    assert len(statements) == 40_000
    assert time.process_time() - began < 20
