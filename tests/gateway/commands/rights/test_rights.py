"""Rights that statements give: who may give them, what they open, and what is shown of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.duckdb.engine import DuckDBEngine
from gateway.security.principals import Principal, Role
from gateway.statements.statement import Statement
from sql.errors import Failure, SqlError
from tests.gateway.house import House, opened

ROOT = Principal("root", Role.ADMIN, authenticated=True)
OLAF, ANN = (Principal(name, Role.WRITER, authenticated=True) for name in ("olaf", "ann"))
EVE = Principal("eve", Role.READER, authenticated=True, groups=frozenset({"sales"}))
POLICY = """
closed = "hr.secret"
[roles]
clerk = "zoe"
[[grant]]
on = "hr.secret"
to = "role:clerk"
[[filter]]
on = "hr.people"
where = "id > 1"
to = "group:sales"
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(workers=1, threads=1)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, engine: DuckDBEngine) -> Iterator[House]:
    """Serve olaf's tables hr.people and hr.news, root's hr.secret and hr.brief; only grants open what is in hr."""
    tmp_path = tmp_path_factory.mktemp("rights")
    (tmp_path / "policy.toml").write_text(POLICY)
    with opened(
        tmp_path / "home", engine, access={"closed": ["HR.*"], "policy_file": str(tmp_path / "policy.toml")}
    ) as house:
        house.done("CREATE DATABASE hr", principal=ROOT)
        for name, owner in (("hr.people", "olaf"), ("hr.news", "olaf"), ("hr.secret", "root"), ("hr.brief", "root")):
            folder = tmp_path / name
            folder.mkdir()
            pq.write_table(pa.table({"id": [1, 2, 3], "Salary": [10, 20, 30]}), folder / "1.parquet")
            house.register(name, folder)
            house.done(f"ALTER TABLE {name} SET OWNER USER {owner}", principal=ROOT)
        yield house


@pytest.fixture
def house(served: House) -> Iterator[House]:
    """Return the house; what a test gives is taken back behind it."""
    yield served
    access = served.gateway.metastore.access
    for grant in access.read().grants:
        access.take_back([grant])
    for role, members in access.read().roles.items():
        access.remove_members([role], members)
        access.remove_role(role, f"role:{role}")


def ids(house: House, user: Principal, table: str = "hr.people") -> list[Any]:
    return [row["id"] for row in house.done(f"SELECT id FROM {table} ORDER BY id", principal=user)]


def error(house: House, sql: str, user: Principal) -> Failure:
    """Return the error of a statement, which is refused or fails."""
    try:
        ended = house.ended(sql, principal=user)
    except SqlError as refused:
        return refused.failure
    assert ended.error is not None
    return ended.error


def refused(house: House, sql: str, user: Principal) -> str:
    return error(house, sql, user).code


def granted(house: House, sql: str, user: Principal = ROOT, **fields: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in house.done(sql, principal=user, **fields)]


def test_a_grant_opens_and_its_end_closes_from_the_next_statement_on(house: House) -> None:
    assert refused(house, "SELECT id FROM hr.people", ANN) == "UNKNOWN_TABLE"
    house.done("GRANT SELECT ON TABLE hr.people TO USER ann, `group:sales`", principal=OLAF)
    assert ids(house, ANN) == [1, 2, 3]
    assert ids(house, EVE) == [2, 3], "filters of the policy file hold for what a statement opened"
    house.done("REVOKE ALL PRIVILEGES ON hr.people FROM ann", principal=OLAF)
    assert refused(house, "SELECT id FROM hr.people", ANN) == "UNKNOWN_TABLE"
    assert ids(house, EVE) == [2, 3]


def test_columns_are_granted_one_by_one(house: House) -> None:
    house.done("GRANT SELECT (ID) ON hr.people TO ann", principal=OLAF)
    assert house.done("SELECT * FROM hr.people WHERE id = 1", principal=ANN) == [{"id": 1}]
    assert refused(house, "SELECT salary FROM hr.people", ANN) == "UNKNOWN_COLUMN"
    house.done("GRANT SELECT (salary) ON hr.people TO ann", principal=OLAF)
    assert house.done("SELECT salary FROM hr.people WHERE id = 1", principal=ANN) == [{"salary": 10}]
    house.done("REVOKE SELECT (salary) ON hr.people FROM ann", principal=OLAF)
    assert refused(house, "SELECT salary FROM hr.people", ANN) == "UNKNOWN_COLUMN"
    assert refused(house, "GRANT SELECT (wage) ON hr.people TO ann", OLAF) == "UNKNOWN_COLUMN"


def test_roles_hold_users_groups_and_roles(house: House) -> None:
    house.done("CREATE ROLE reader", principal=ROOT)
    house.done("GRANT SELECT, CREATE ON DATABASE hr TO ROLE reader", principal=ROOT)
    house.done("GRANT ROLE reader, clerk TO USER ann", principal=ROOT)
    assert ids(house, ANN, "hr.secret") == [1, 2, 3]
    house.done("CREATE VIEW hr.mine AS SELECT id FROM hr.people", principal=ANN)
    assert granted(house, "SHOW CURRENT ROLES", ANN) == [("clerk",), ("reader",)]
    house.done("REVOKE reader FROM ann", principal=ROOT)
    house.done("GRANT reader TO ROLE clerk", principal=ROOT)
    assert ids(house, ANN) == [1, 2, 3], "ann is a clerk, and clerks are readers"
    house.done("DROP ROLE reader", principal=ROOT)
    assert refused(house, "SELECT id FROM hr.people", ANN) == "UNKNOWN_TABLE"
    house.done("CREATE ROLE reader", principal=ROOT)
    assert refused(house, "SELECT id FROM hr.people", ANN) == "UNKNOWN_TABLE", "a new role is empty"


def test_insert_and_modify_are_rights_of_their_own(house: House) -> None:
    insert = "INSERT INTO hr.news SELECT 4, 40"
    house.done("GRANT SELECT ON hr.news TO ann", principal=OLAF)
    assert refused(house, insert, ANN) == "ACCESS_DENIED"
    house.done("GRANT INSERT ON hr.news TO ann", principal=OLAF)
    house.gateway.coordinator.classify(Statement(sql=insert, principal=ANN))
    assert refused(house, "TRUNCATE TABLE hr.news", ANN) == "ACCESS_DENIED"
    house.done("GRANT ALL ON hr.news TO ann", principal=OLAF)
    house.gateway.coordinator.classify(Statement(sql="TRUNCATE TABLE hr.news", principal=ANN))
    assert len(granted(house, "SHOW GRANT USER ann ON hr.news", OLAF)) == 4


@pytest.mark.parametrize(
    ("user", "sql", "code"),
    [
        (ANN, "GRANT SELECT ON hr.people TO eve", "UNKNOWN_TABLE"),
        (OLAF, "GRANT SELECT ON hr.secret TO olaf", "UNKNOWN_TABLE"),
        (OLAF, "GRANT SELECT ON DATABASE hr TO olaf", "ACCESS_DENIED"),
        (OLAF, "GRANT SELECT ON SERVER TO olaf", "ACCESS_DENIED"),
        (OLAF, "CREATE ROLE r", "ACCESS_DENIED"),
        (OLAF, "GRANT clerk TO olaf", "ACCESS_DENIED"),
        (EVE, "DROP ROLE clerk", "ACCESS_DENIED"),
        (ROOT, "DROP ROLE clerk", "NOT_ALLOWED"),
        (ROOT, "DROP ROLE nobody", "UNKNOWN_ROLE"),
        (ROOT, "CREATE ROLE clerk", "ROLE_EXISTS"),
        (ROOT, "GRANT SELECT ON hr.people TO ROLE clerks", "UNKNOWN_ROLE"),
        (ROOT, "GRANT clerks TO ann", "UNKNOWN_ROLE"),
        (ROOT, "REVOKE clerk FROM zoe", "UNKNOWN_GRANT"),
        (ROOT, "REVOKE SELECT ON hr.people FROM ann", "UNKNOWN_GRANT"),
        (ROOT, "REVOKE SELECT ON hr.secret FROM ROLE clerk", "UNKNOWN_GRANT"),
        (ROOT, "GRANT SELECT ON hr.people TO ann WITH GRANT OPTION", "NOT_ALLOWED"),
        (ROOT, "REVOKE GRANT OPTION FOR SELECT ON hr.people FROM ann", "NOT_ALLOWED"),
        (ROOT, "GRANT clerk TO ann WITH ADMIN OPTION", "NOT_ALLOWED"),
        (ROOT, "GRANT DROP ON hr.people TO ann", "SYNTAX_ERROR"),
        (ROOT, "GRANT INSERT (id) ON hr.people TO ann", "SYNTAX_ERROR"),
        (ROOT, "GRANT SELECT (id) ON DATABASE hr TO ann", "NOT_ALLOWED"),
        (ROOT, "GRANT SELECT ON hr.people TO", "SYNTAX_ERROR"),
        (ROOT, "GRANT", "SYNTAX_ERROR"),
        (ROOT, "GRANT SELECT ON hr.people TO ''", "NOT_ALLOWED"),
    ],
)
def test_who_may_not_give_it_is_refused(house: House, user: Principal, sql: str, code: str) -> None:
    assert refused(house, sql, user) == code


def test_a_grant_elsewhere_is_named_where_there_is_nothing_to_take_away(house: House) -> None:
    house.done("GRANT SELECT ON DATABASE hr TO ann", principal=ROOT)
    assert "The grant on hr.* gives it" in error(house, "REVOKE SELECT ON hr.people FROM ann", OLAF).message
    assert "The policy file gives it" in error(house, "REVOKE SELECT ON hr.secret FROM ROLE clerk", ROOT).message


def test_grants_are_shown_to_whom_they_are_about(house: House) -> None:
    house.done("GRANT SELECT ON hr.people TO ann", principal=OLAF)
    house.done("GRANT SELECT (id) ON hr.people TO GROUP sales", principal=OLAF)
    shown = granted(house, "SHOW GRANTS ON hr.people", OLAF)
    assert [row[:6] for row in shown] == [
        ("ann", "SELECT", "TABLE", "hr.people", "", "olaf"),
        ("group:sales", "SELECT", "TABLE", "hr.people", "id", "olaf"),
    ]
    assert [row[0] for row in granted(house, "SHOW GRANTS", ANN)] == ["ann"]
    assert [row[0] for row in granted(house, "SHOW GRANTS ON hr.people", EVE)] == ["group:sales"]
    assert granted(house, "SHOW GRANT ROLE clerk", EVE) == []
    (row,) = granted(house, "SHOW GRANT ROLE clerk ON ALL", ROOT, dialect="hive")
    assert row == ("hr", "secret", "", "", "clerk", "ROLE", "SELECT", "false", "", "policy file")
    house.done("GRANT SELECT ON TABLE hr.people TO clerk", principal=ROOT, dialect="impala")
    shown = granted(house, "SHOW GRANT USER zoe ON TABLE hr.people", ROOT, dialect="impala")
    assert [row[:6] for row in shown] == [("clerk", "ROLE", "TABLE", "hr", "people", "")]
    assert granted(house, "SHOW PRINCIPALS clerk")[0][:2] == ("zoe", "USER")
    assert granted(house, "SHOW PRINCIPALS clerk", EVE) == []
    assert granted(house, "SHOW ROLE GRANT USER zoe") == [("clerk",)]
    assert granted(house, "SHOW ROLES", EVE) == [] and granted(house, "SHOW ROLES") == [("clerk",)]


def test_impala_says_what_it_did(house: House) -> None:
    for sql, words in (
        ("CREATE ROLE r", "Role has been created."),
        ("GRANT SELECT ON DATABASE hr TO ROLE r", "Privilege(s) have been granted."),
        ("GRANT ROLE r TO GROUP sales", "Role has been granted."),
        ("REVOKE ROLE r FROM GROUP sales", "Role has been revoked."),
        ("REVOKE SELECT ON DATABASE hr FROM ROLE r", "Privilege(s) have been revoked."),
        ("DROP ROLE r", "Role has been dropped."),
    ):
        assert granted(house, sql, dialect="impala") == [(words,)]


def test_a_table_that_is_made_again_is_not_open(house: House) -> None:
    house.done("GRANT SELECT ON hr.brief TO ann", principal=ROOT)
    house.done("ALTER TABLE hr.brief RENAME TO hr.other", principal=ROOT)
    assert ids(house, ANN, "hr.other") == [1, 2, 3]
    house.done("DROP TABLE hr.other", principal=ROOT)
    house.done("CREATE VIEW hr.other AS SELECT 1 AS id", principal=ROOT)
    assert refused(house, "SELECT * FROM hr.other", ANN) == "UNKNOWN_TABLE"


def test_without_rules_there_is_nothing_to_give(tmp_path: Path, engine: DuckDBEngine) -> None:
    with opened(tmp_path / "home", engine) as house:
        house.done("CREATE VIEW v AS SELECT 1 AS id", principal=OLAF)
        failure = error(house, "GRANT SELECT ON v TO ann", OLAF)
        assert failure.code == "NOT_ALLOWED" and "access.closed" in failure.message
        for sql in ("SHOW ROLES", "SHOW CURRENT ROLES", "SHOW GRANTS", "SHOW ROLE GRANT USER joe"):
            assert granted(house, sql) == []
