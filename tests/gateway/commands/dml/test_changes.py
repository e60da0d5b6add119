"""UPDATE, DELETE and MERGE as text: what they mean, and what is told about those that mean nothing."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from gateway.commands.classification import read_command
from gateway.commands.dml.change_queries import ChangeKind, ChangeRows, Clause, added, found, rewritten
from gateway.commands.grammar.reader import Context
from gateway.commands.registry import FAMILIES
from sql.dialects.names import DIALECTS
from sql.errors import Position, SqlError
from sql.names import Naming
from sql.parsing import ParserLimits
from sql.tables import Column, TableSource, View


def table(name: str, *columns: str) -> TableSource:
    return TableSource(
        name, f"/data/{name}", "parquet", tuple(Column(name, kind) for name, kind in map(str.split, columns))
    )


TREES = replace(
    table("trees", "id int", "kilos bigint", "kind string", "year int"), format="delta", partition_columns=("year",)
)
SALES = replace(TREES, name="shop.trees")
NEW = table("new", "id int", "kilos bigint", "kind string", "year int", "change string")
LOGS = replace(table("logs", "bark struct<width:int>"), format="delta")
CATALOG = {each.name: each for each in (TREES, SALES, NEW, LOGS)}
VIEW = View("latest", "SELECT * FROM new LIMIT 10", "spark", NEW.columns)
EVERY = {"id": 0, "kilos": 1, "kind": 2, "year": 3}


def read(sql: str, dialect: str = "spark", **fields: object) -> ChangeRows:
    naming = Naming(str(fields.get("database", "default")), frozenset({"default", "shop"}))
    views = {"latest": VIEW, ".changed": replace(VIEW, name="changed", temporary=True)}
    change = read_command(sql, Context(dialect, CATALOG, ParserLimits(), views, naming), FAMILIES)
    assert isinstance(change, ChangeRows)
    return change


@pytest.mark.parametrize("dialect", ["spark", "hive", "impala"])
def test_an_update(dialect: str) -> None:
    change = read("/* {} */ UPDATE trees AS t SET t.kilos = kilos + 1, kind = 'x' WHERE id = 1;", dialect)
    assert (change.kind, change.target, change.clauses) == (
        ChangeKind.UPDATE,
        TREES,
        (Clause({"kilos": 0, "kind": 1}),),
    )
    assert change.reads == (TREES,)
    text = rewritten(change)
    assert "CASE WHEN `id` = 1 THEN 0 END AS `..clause`" in text  # once, however many columns are set
    assert text.count("`id` = 1") == 1
    assert "CASE `..clause` WHEN 0 THEN CAST(`..value0` AS bigint) ELSE `..old1` END AS c1" in text


@pytest.mark.parametrize("sql", ["DELETE FROM trees", "DELETE trees", "delete from default.trees as t;"])
def test_a_delete_of_everything_looks_at_no_row(sql: str) -> None:
    change = read(sql)
    assert (change.kind, change.rows, change.clauses) == (ChangeKind.DELETE, None, (Clause(None),))


def test_a_database_is_the_statements_own_or_said() -> None:
    assert read("DELETE FROM trees WHERE id = 1", database="shop").target == SALES
    assert read("DELETE FROM shop.trees t WHERE t.id = 1").target == SALES
    change = read("UPDATE shop.trees SET kilos = shop.trees.kilos WHERE id IN (SELECT id FROM trees)")
    assert {each.name for each in change.reads} == {"shop.trees", "trees"}


@pytest.mark.parametrize("dialect", ["spark", "hive", "impala"])
def test_what_dbt_sends(dialect: str) -> None:
    on = "on s.id = d.id"
    change = read(
        f"merge into trees as d using new as s {on} when matched then update set * when not matched then insert *"
    )
    assert (change.clauses, change.added_clauses, change.source) == ((Clause(EVERY),), (Clause(EVERY),), None)
    assert change.single_match
    snapshot = read(
        f"merge into trees as d\n using latest as s\n {on}\n when matched and d.kind is null and s.change in "
        "('update', 'delete')\n then update set kilos = s.kilos\n\n when not matched and s.change = 'insert'\n "
        "then insert *\n;\n",
        dialect,
    )
    assert snapshot.clauses == (Clause({"kilos": 0}),)
    assert snapshot.added_clauses == (Clause(EVERY),)
    assert snapshot.source is not None  # what a view says may be another thing the second time
    assert "`..source`" in rewritten(snapshot)
    assert "`..source`" in added(snapshot)
    assert snapshot.reads == (NEW, TREES)


def test_all_clauses_of_a_merge() -> None:
    change = read(
        "MERGE INTO trees t USING (VALUES (1, 2)) AS s(id, n) ON t.id = s.id "
        "WHEN MATCHED AND CASE WHEN s.n > 1 THEN TRUE END THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET kilos = CASE WHEN s.n > 1 THEN s.n ELSE 0 END, year = 2024 "
        "WHEN NOT MATCHED BY TARGET AND n > 1 THEN INSERT (kilos, id) VALUES (s.n, s.id) "
        "WHEN NOT MATCHED THEN INSERT VALUES (s.id, (1 + 2), 'a, b', NULL) "
        "WHEN NOT MATCHED BY SOURCE AND t.id > 5 THEN UPDATE SET kind = 'gone' "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    )
    assert change.clauses == (Clause(None), Clause({"kilos": 0, "year": 1}), Clause({"kind": 2}), Clause(None))
    assert change.added_clauses == (
        Clause({"kilos": 0, "id": 1}),
        Clause({"id": 2, "kilos": 3, "kind": 4, "year": 5}),
    )
    assert (change.single_match, change.by_source, change.source) == (True, True, None)
    assert "COUNT_IF(`..clause` IN (1, 2)) AS updated, COUNT_IF(`..clause` IN (0, 3)) AS deleted" in found(change)


def test_a_delete_of_all_that_match_may_meet_several_rows() -> None:
    change = read("MERGE INTO trees USING new ON trees.id = new.id WHEN MATCHED THEN DELETE")
    assert not change.single_match
    conditional = read("MERGE INTO trees USING new ON trees.id = new.id WHEN MATCHED AND new.id > 1 THEN DELETE")
    assert conditional.single_match


@pytest.mark.parametrize(
    ("condition", "repeatable"),
    [
        ("id > 1", True),
        ("id IN (SELECT id FROM new)", True),
        ("rand() < 0.5", False),
        ("id IN (SELECT id FROM new LIMIT 3)", False),
        ("id IN (SELECT id FROM latest)", False),
    ],
)
def test_whether_a_condition_says_the_same_the_next_time(condition: str, repeatable: bool) -> None:
    assert read(f"DELETE FROM trees WHERE {condition}").repeatable is repeatable


def test_all_of_a_statement_happens_at_one_moment() -> None:
    change = read(
        "UPDATE trees SET kind = concat(now(), current_date()) WHERE unix_timestamp() > 5 OR kind < current_timestamp"
    )
    text = rewritten(change)
    assert "now(" not in text.lower()
    assert "current_" not in text.lower()
    assert text.count(f"'{dt.datetime.now(dt.UTC):%Y-%m-%d %H:}") == 3


MERGE = "MERGE INTO trees t USING new s ON t.id = s.id "


@pytest.mark.parametrize(
    ("sql", "code", "position"),
    [
        ("UPDATE nothing SET a = 1", "UNKNOWN_TABLE", (1, 8)),
        ("UPDATE latest SET id = 1", "NOT_ALLOWED", (1, 8)),
        ("UPDATE trees SET nothing = 1", "UNKNOWN_COLUMN", (1, 18)),
        ("UPDATE trees SET kilos = nothing", "UNKNOWN_COLUMN", (1, 26)),
        ("UPDATE trees\nSET kilos = 1,\n  kind = nothing", "UNKNOWN_COLUMN", (3, 10)),
        ("UPDATE trees SET kilos = 1, kilos = 2", "NOT_ALLOWED", (1, 29)),
        ("UPDATE trees SET other.kilos = 1", "UNKNOWN_COLUMN", (1, 18)),
        ("UPDATE logs SET bark.width = 1", "NOT_ALLOWED", (1, 17)),
        ("UPDATE trees SET kilos = 1 GROUP BY id", "SYNTAX_ERROR", (1, 26)),
        ("UPDATE trees SET kilos = 1 AS x", "SYNTAX_ERROR", (1, 26)),
        ("UPDATE trees SET kilos = *", "SYNTAX_ERROR", (1, 26)),
        ("UPDATE trees SET kilos = ", "SYNTAX_ERROR", (1, 25)),
        ("UPDATE trees SET kilos = 1 WHERE id = 1; DELETE FROM trees", "MULTIPLE_STATEMENTS", (1, 42)),
        ("UPDATE trees SET kilos = 1 FROM new WHERE new.id = trees.id", "NOT_ALLOWED", (1, 28)),
        ("DELETE trees FROM trees JOIN new ON new.id = trees.id", "NOT_ALLOWED", (1, 14)),
        ("UPDATE trees SET kilos = row_number() OVER (ORDER BY id)", "NOT_ALLOWED", (1, 54)),
        ("DELETE FROM trees WHERE id = 1) OR (1 = 1", "SYNTAX_ERROR", (1, 31)),
        ("DELETE FROM trees WHERE java_method('a', 'b')", "NOT_ALLOWED", None),
        ("DELETE FROM trees WHERE id = 1 UNION SELECT 1", "SYNTAX_ERROR", (1, 25)),
        ("DELETE FROM trees WHERE `..file` LIKE '%'", "UNKNOWN_COLUMN", (1, 25)),
        ("DELETE FROM trees WHERE id IN (SELECT id FROM `..changed`)", "UNKNOWN_COLUMN", (1, 47)),
        (MERGE, "SYNTAX_ERROR", (1, 46)),
        (f"{MERGE}WHEN MATCHED THEN INSERT *", "SYNTAX_ERROR", (1, 65)),
        (f"{MERGE}WHEN MATCHED THEN DELETE WHEN MATCHED AND s.id = 1 THEN DELETE", "NOT_ALLOWED", (1, 72)),
        (f"{MERGE}WHEN NOT MATCHED THEN INSERT (id, kilos) VALUES (1)", "NOT_ALLOWED", (1, 88)),
        (f"{MERGE}WHEN NOT MATCHED THEN INSERT (id, id) VALUES (1, 2)", "NOT_ALLOWED", (1, 81)),
        (f"{MERGE}WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *", "SYNTAX_ERROR", (1, 90)),
        (f"{MERGE}AND rand() > 0.5 WHEN MATCHED THEN DELETE", "NOT_ALLOWED", None),
        (f"{MERGE}{'WHEN MATCHED AND s.id = 1 THEN DELETE ' * 21}", "STATEMENT_TOO_COMPLEX", None),
        ("MERGE INTO trees USING trees ON 1 = 1 WHEN MATCHED THEN DELETE", "NOT_ALLOWED", (1, 24)),
        ("MERGE INTO trees t USING new s JOIN new u ON 1 = 1 ON 2 = 2 WHEN MATCHED THEN DELETE", "SYNTAX_ERROR", None),
        (
            "MERGE INTO trees t USING (SELECT id FROM new) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
            "UNKNOWN_COLUMN",
            (1, 93),
        ),
    ],
)
def test_what_is_refused(sql: str, code: str, position: tuple[int, int] | None) -> None:
    with pytest.raises(SqlError) as caught:
        read(sql)
    assert caught.value.code == code
    if position is not None:
        assert caught.value.position == Position(*position)


def test_other_texts_are_no_changes() -> None:
    for sql in ("SELECT 1", "INSERT INTO trees SELECT 1", "updates", "", "-- UPDATE\nSELECT 1"):
        assert not isinstance(read_command(sql, Context("spark", CATALOG, ParserLimits()), FAMILIES), ChangeRows)


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_nothing_but_an_sql_error_escapes(dialect: str) -> None:
    whole = f"{MERGE}WHEN MATCHED AND s.kind = 'a' THEN UPDATE SET kilos = s.kilos WHEN NOT MATCHED THEN INSERT *;"
    for end in range(len(whole)):
        for text in (whole[:end], "MERGE " + whole[end:], whole[:end] + "(" + whole[end:]):
            try:
                read_command(text, Context(dialect, CATALOG, ParserLimits()), FAMILIES)
            except SqlError:
                continue
