"""Parts of tables and views in statements: what the tree says, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from sql.access.rights import Restriction
from sql.errors import AccessDenied, PolicyInvalid, SqlError, UnknownColumn, UnknownTable
from sql.parsing import ParserLimits
from sql.statement import CheckedStatement, check
from sql.tables import Column, TableSource, View

COLUMNS = (Column("id", "bigint"), Column("name", "string"), Column("salary", "int"), Column("dept", "string"))
TABLES = {
    name: TableSource(name, f"/data/{name}", "parquet", COLUMNS)
    for name in ("people", "staff", "hidden", "sales.orders")
}
TABLES["dated"] = TableSource(
    "dated", "/data/dated", "parquet", (Column("id", "bigint"), Column("at", "date"), Column("seen", "timestamp"))
)
SALES = Restriction(("id", "name", "dept"), ("dept = 'sales'",))
MASKED = Restriction(("id", "name", "salary", "dept"), (), {"salary": "salary DIV 10"})


@dataclass(frozen=True)
class Rights:
    """Rights that a test writes down. lent: owner whose views lend everything."""

    parts: Mapping[str, Restriction] = field(default_factory=dict)
    unseen: frozenset[str] = frozenset({"hidden"})
    lent: str = "owner"
    name: str = "ann"
    user: str | None = "ann"

    def sees(self, relation: str) -> bool:
        return relation not in self.unseen

    def restriction(self, relation: str, columns: Sequence[Column], lender: str | None = None) -> Restriction | None:
        if lender == self.lent:
            return None
        return Restriction(()) if relation in self.unseen else self.parts.get(relation)


def read(sql: str, rights: Rights, *, dialect: str = "spark", views: Mapping[str, View] = {}) -> CheckedStatement:
    return check(sql, dialect, catalog=TABLES, limits=ParserLimits(), views=views, access=rights)


def spark(sql: str, rights: Rights, *, dialect: str = "spark", views: Mapping[str, View] = {}) -> str:
    return read(sql, rights, dialect=dialect, views=views).sql("engines.spark_sql.writer")


def test_a_table_is_replaced_by_the_part_that_may_be_seen() -> None:
    statement = read("SELECT * FROM people p WHERE p.id > 3", Rights({"people": SALES}))
    assert statement.restricted == {"people"}
    assert statement.sql("engines.spark_sql.writer") == (
        "SELECT * FROM (SELECT `id`, `name`, `dept` FROM `people` AS `people` WHERE (`dept` = 'sales')) AS `p` "
        "WHERE `p`.`id` > 3"
    )


def test_a_mask_keeps_the_type_and_takes_the_place_of_the_value_everywhere() -> None:
    written = spark("SELECT salary FROM people WHERE salary = 3 ORDER BY salary", Rights({"people": MASKED}))
    assert written == (
        "SELECT `salary` FROM (SELECT TRY_CAST((`salary` DIV 10) AS INT) AS `salary` FROM `people` AS `people`) "
        "AS `people` WHERE `salary` = 3 ORDER BY `salary`"
    )


@pytest.mark.parametrize("mask", ["'***'", "CASE WHEN 1 = 2 THEN name ELSE '***' END", "if(1 = 2, name, '***')"])
def test_a_mask_is_no_constant_for_an_engine_that_plans_with_constants(mask: str) -> None:
    rights = Rights({"people": Restriction(("id", "name"), (), {"name": mask})})
    assert "COALESCE(CASE WHEN `name` IS NULL THEN NULL ELSE TRY_CAST(" in spark("SELECT name FROM people", rights)
    fenced = spark("SELECT count(*) FILTER (WHERE CAST(name AS INT) = 1) FROM people", rights)
    assert "COALESCE(CASE WHEN `name` IS NULL" in fenced


def test_different_rights_are_different_statements() -> None:
    sql = "SELECT count(*) FROM people"
    fingerprints = {
        read(sql, rights).fingerprint for rights in (Rights(), Rights({"people": SALES}), Rights({"people": MASKED}))
    }
    assert len(fingerprints) == 3
    assert read(sql, Rights()).restricted == frozenset()


@pytest.mark.parametrize("dialect", ["spark", "hive", "impala"])
def test_every_use_of_a_table_is_replaced_in_every_dialect(dialect: str) -> None:
    sql = (
        "WITH t AS (SELECT * FROM people) SELECT a.id FROM t a JOIN people b ON a.id = b.id "
        "WHERE a.id IN (SELECT id FROM people) AND EXISTS (SELECT 1 FROM people c WHERE c.id = a.id)"
    )
    written = spark(sql, Rights({"people": SALES}), dialect=dialect)
    assert written.count("FROM `people`") == written.count("WHERE (`dept` = 'sales')") == 4


def test_what_may_not_be_seen_does_not_exist() -> None:
    for sql in (
        "SELECT * FROM hidden",
        "SELECT * FROM hidde",
        "SELECT 1 FROM staff WHERE id IN (SELECT id FROM hidden)",
    ):
        with pytest.raises(UnknownTable) as caught:
            read(sql, Rights())
        assert "did you mean" not in caught.value.message
        assert caught.value.position is not None
    with pytest.raises(UnknownColumn) as unknown:
        read("SELECT salar FROM people", Rights({"people": SALES}))
    assert "salary" not in unknown.value.message
    with pytest.raises(AccessDenied, match="ann may not read people"):
        read("SELECT 1 FROM people", Rights({"people": Restriction(())}))


def test_a_view_lends_what_its_owner_may_give_and_nothing_else() -> None:
    def view(owner: str | None, name: str = "v", *, temporary: bool = False) -> Mapping[str, View]:
        key = f".{name}" if temporary else name
        return {key: View(name, "SELECT id, name FROM hidden", "spark", COLUMNS[:2], temporary, owner)}

    assert "`hidden`" in spark("SELECT * FROM v", Rights(), views=view("owner"))
    for views in (view("other"), view(None), view("owner", temporary=True)):
        with pytest.raises((AccessDenied, UnknownTable)) as caught:
            read("SELECT * FROM v", Rights(), views=views)
        assert "hidden" not in caught.value.message
    filtered = Rights({"v": Restriction(("id",), ("name = 'x'",))})
    assert spark("SELECT * FROM v", filtered, views=view("owner")) == (
        "SELECT * FROM (SELECT `id` FROM (SELECT `id`, `name` FROM `hidden` AS `hidden`) AS `v` "
        "WHERE (`name` = 'x')) AS `v`"
    )


def test_a_filter_may_read_tables_that_its_user_may_not() -> None:
    part = Restriction(("id",), ("dept IN (SELECT h.dept FROM hidden h WHERE h.name = current_user())",))
    statement = check(
        "SELECT id FROM people",
        "spark",
        catalog=TABLES,
        limits=ParserLimits(),
        access=Rights({"people": part}),
        facts={"current_user": "ann"},
    )
    assert "FROM `hidden` AS `h` WHERE `h`.`name` = 'ann'" in statement.sql("engines.spark_sql.writer")
    assert statement.tells_of_session
    with pytest.raises(UnknownTable):
        read("SELECT people.id FROM people, hidden", Rights({"people": part}))


@pytest.mark.parametrize("condition", ["no_column = 1", "id IN (SELECT id FROM no_table)", "people.no = 1"])
def test_a_policy_that_cannot_be_applied_refuses_the_statement_without_its_text(condition: str) -> None:
    with pytest.raises(PolicyInvalid) as caught:
        read("SELECT id FROM people", Rights({"people": Restriction(("id",), (condition,))}))
    assert caught.value.message == "A row filter or column mask of people cannot be applied. Tell an administrator."


def test_names_of_a_statement_are_not_those_of_a_policy() -> None:
    """A common table expression, an alias or a temporary view takes no name out of a filter."""
    part = Restriction(("id",), ("id IN (SELECT id FROM staff)",))
    views = {".staff": View("staff", "SELECT 7 AS id", "spark", (Column("id", "int"),), temporary=True)}
    for sql in (
        "WITH staff AS (SELECT 5 AS id) SELECT people.id FROM people, staff",
        "SELECT staff.id FROM people AS staff",
        "SELECT people.id FROM people, staff",
    ):
        written = spark(sql, Rights({"people": part}), views=views)
        assert "IN (SELECT `id` FROM `staff` AS `staff`)" in written, written


def test_a_statement_of_parts_is_still_bounded() -> None:
    part = Restriction(("id",), (" OR ".join(f"id = {number}" for number in range(900)),))
    many = " UNION ALL ".join(["SELECT id FROM people"] * 150)
    with pytest.raises(SqlError) as caught:
        read(many, Rights({"people": part}))
    assert caught.value.code in ("STATEMENT_TOO_COMPLEX", "STATEMENT_TOO_DEEP")


def test_a_name_that_was_not_proved_is_none_of_a_policys() -> None:
    part = Restriction(("id",), ("name = current_user()",))
    sql, facts = "SELECT id, current_user() AS u FROM people", {"current_user": "ann"}

    def written(user: str | None) -> str:
        rights = Rights({"people": part}, user=user)
        checked = check(sql, "spark", catalog=TABLES, limits=ParserLimits(), access=rights, facts=facts)
        assert checked.tells_of_session
        return checked.sql("engines.spark_sql.writer")

    assert "`name` = 'ann'" in written("ann")
    assert "`name` = CAST(NULL AS STRING)" in written(None)
    assert "'ann' AS `u`" in written(None)


def test_a_sample_is_of_the_part() -> None:
    written = spark("SELECT count(*) FROM people TABLESAMPLE (50 PERCENT)", Rights({"people": SALES}))
    assert written.startswith("SELECT COUNT(*) FROM (SELECT * FROM (SELECT `id` FROM `people`"), written
    assert written.endswith("TABLESAMPLE (50 PERCENT)) AS `people`"), written


def test_a_rule_about_a_column_that_is_gone_refuses_the_statement() -> None:
    with pytest.raises(PolicyInvalid):
        read("SELECT id FROM people", Rights({"people": Restriction((), is_invalid=True)}))


def test_a_view_of_an_older_version_lends_it_and_names_no_table_where_it_does_not() -> None:
    lake = TableSource("lake", "/data/lake", "delta", COLUMNS)
    older = replace(lake, name="lake@version:3")
    rights = Rights({"lake": MASKED})

    def read_view(owner: str) -> CheckedStatement:
        view = View("v", "SELECT id FROM lake VERSION AS OF 3", "spark", COLUMNS[:1], owner=owner)
        tables = {**TABLES, "lake": lake, older.name: older}
        return check(
            "SELECT * FROM v", "spark", catalog=tables, limits=ParserLimits(), views={"v": view}, access=rights
        )

    assert read_view("owner").restricted == {"lake"}
    with pytest.raises(AccessDenied) as caught:
        read_view("other")
    assert "what the view v reads" in caught.value.message and "lake" not in caught.value.message
