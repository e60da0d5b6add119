"""Rows, columns and names that an access policy hides stay hidden: a user cannot tell whether they are there.

Two gateways have the same policy. One has all rows; in the other one what the policy hides was never there: the rows of
other departments are missing, masked values are others, hidden tables and columns do not exist. Whatever the user
sends, both have to say the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.security.authentication import user_line
from gateway.security.principals import Role
from tests.attacks.conftest import DUCKDB
from tests.attacks.doors import Door, Refused, Served, served

PASSWORD = "right"  # noqa: S105 - of a gateway of the test's own
FILTERED = ("workers", "people", "clerks")
"""Tables with the same rows, each with a filter of another kind."""
ROLES = {"ann": Role.WRITER, "wes": Role.WRITER, "rex": Role.WRITER, "olga": Role.OPERATOR, "root": Role.ADMIN}
ROWS = 9_000  # DuckDB looks a few values up in the files, and no hidden row comes near a condition
DEPARTMENTS = ("sales", "lawyer", "boards")
MINE = "sales"
FORBIDDEN = re.compile(r"zarquon|vault|key_material|(?<![\d.])98700\d(?!\d)|17\d\d-31|boards|lawyer", re.IGNORECASE)
"""Words that only hidden rows, columns, tables and values have."""
TIME = re.compile(r"\w{3} \w{3} \d{2} \d{2}:\d{2}:\d{2} UTC \d{4}")
POLICY = """
closed = ["people", "vault", "hr.*", "departments"]

[roles]
staff = ["ann", "group:nobody"]

[[grant]]
on = "people"
to = "role:staff"
columns = ["id", "name", "salary", "dept", "ssn", "note"]

[[grant]]
on = ["people", "vault"]
to = "wes"
privileges = "ALL"

[[grant]]
on = "inbox"
to = "ann"
privileges = ["INSERT"]

[[filter]]
on = "people"
where = "dept = 'sales' AND NOT is_member('none')"
except = "wes"

[[filter]]
on = "workers"
where = "id IN (SELECT d.id FROM departments d WHERE d.who = current_user())"
except = "wes"

[[filter]]
on = "clerks"
where = "regexp_replace(concat(dept, dept), '[^s]', '') = 'ssss'"
except = "wes"

[[mask]]
on = "people"
column = "salary"
value = "NULL"
except = "wes"

[[mask]]
on = "people"
column = "ssn"
value = "concat('***-', right(ssn, 2))"
except = "wes"
"""


def _people(*, whole: bool) -> pa.Table:
    """Return all people, or those whom ann may see, with other values where she sees a mask."""
    rows = [
        {
            "id": number,
            "name": f"{number}",
            "salary": 987_000 + number % 9 if whole else 1_000 + number,
            "dept": DEPARTMENTS[number % len(DEPARTMENTS)],
            "ssn": f"{'17' if whole else '42'}{number % 100:02}-31-{number % 100:02}",
            "note": f"{1 + number % 7}",
        }
        for number in range(ROWS)
    ]
    for row in rows:
        if row["dept"] != MINE:
            row["name"] = f"Zarquon {row['id']}"
            row["note"] = "0"
    kept = rows if whole else [row for row in rows if row["dept"] == MINE]
    table = pa.Table.from_pylist(kept)
    return table.append_column("key_material", pa.array(["s"] * len(kept))) if whole else table


@dataclass(frozen=True, slots=True)
class Worlds:
    """Two gateways, and the engine that answers. whole: has what the policy hides; reduced: never had it."""

    whole: Served
    reduced: Served
    engine: str

    def outcomes(self, sql: str, *, user: str = "ann", door: Door = Door.HTTP) -> tuple[object, object]:
        """Return what both say of a statement."""
        both = (self.whole, self.reduced)
        first, second = (_outcome(served, sql, user, door, self.engine) for served in both)
        return first, second

    def require_same(self, sql: str, *, user: str = "ann", door: Door = Door.HTTP) -> object:
        """Require that both say the same, in no forbidden word, and return it."""
        first, second = self.outcomes(sql, user=user, door=door)
        assert first == second, sql
        said = repr(first).replace(repr(sql)[1:-1], "")
        told = FORBIDDEN.search(said)
        assert told is None or told.group().lower() in sql.lower(), (sql, said)
        return first


def _outcome(gateway: Served, sql: str, user: str, door: Door, engine: str) -> object:
    try:
        rows = gateway.ask(door, sql, user=user, password=PASSWORD, engine=engine)
    except Refused as refused:
        return refused.code, refused.message
    return sorted(TIME.sub("at a time", repr(row)) for row in rows)


Make = Callable[[str], Worlds]


@pytest.fixture(scope="module")
def make_worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Serve both worlds, once for each engine that answers."""
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    made: dict[str, Worlds] = {}
    with ExitStack() as stack:

        def make(engine: str) -> Worlds:
            if engine not in made:
                both = [
                    stack.enter_context(_world(tmp_path_factory.mktemp("worlds"), engine, whole=whole))
                    for whole in (True, False)
                ]
                made[engine] = Worlds(both[0], both[1], engine)
            return made[engine]

        yield make


@pytest.fixture
def worlds(make_worlds: Make) -> Worlds:
    return make_worlds("duckdb")


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.thorough])])
def any_worlds(make_worlds: Make, request: pytest.FixtureRequest) -> Worlds:
    return make_worlds(str(request.param))


def _world(folder: Path, engine: str, *, whole: bool) -> Any:
    return _Serving(folder, engine, whole=whole)


class _Serving:
    """A gateway with users, a policy and data."""

    def __init__(self, folder: Path, engine: str, *, whole: bool) -> None:
        self._whole = whole
        self._folder = folder
        self._stack = ExitStack()
        self._engine = engine

    def __enter__(self) -> Served:
        folder = self._folder
        users, policy = folder / "users", folder / "policy.toml"
        users.write_text("\n".join(user_line(name, PASSWORD, role) for name, role in ROLES.items()), encoding="utf-8")
        policy.write_text(POLICY, encoding="utf-8")
        open_rows = pa.table({"id": list(range(ROWS)), "dept": [DEPARTMENTS[n % 3][:1] for n in range(ROWS)]})
        people = _people(whole=self._whole)
        tables = {"people": people, "shop": open_rows, "inbox": open_rows.slice(0, 1)}
        tables |= {name: people.drop_columns(["key_material"][: self._whole]) for name in ("workers", "clerks")}
        mine = [row["id"] for row in people.to_pylist() if row["dept"] == MINE]
        tables["departments"] = pa.table({"who": ["ann"] * len(mine) + ["bob"], "id": [*mine, 1]})
        if self._whole:
            tables["vault"] = pa.table({"id": [1], "secret": ["zarquon"]})
        data = folder / "data"
        for name, table in tables.items():
            (data / name).mkdir(parents=True)
            pq.write_table(table, data / name / "part-0.parquet", row_group_size=1_000)
        served_ = self._stack.enter_context(
            served(
                folder / "home",
                duckdb=DUCKDB,
                spark={"enabled": self._engine == "spark"},
                authentication={"users_file": str(users), "anonymous": "never"},
                access={"policy_file": str(policy)},
                catalog={"roots": [str(data)]},
                cache={"enabled": True},
            )
        )
        for name in tables:
            served_.register(name, data / name, "root", PASSWORD)
        ask = served_.ask
        for sql in (
            "CREATE DATABASE hr",
            "ALTER TABLE people SET COLUMN STATS id ('numDVs' = '9000')",
            "CREATE VIEW totals AS SELECT count(*) AS n FROM people",
        ):
            ask(Door.HTTP, sql, user="root", password=PASSWORD)
        ask(
            Door.HTTP,
            "CREATE VIEW wes_people AS SELECT id, name, dept, salary FROM people",
            user="wes",
            password=PASSWORD,
        )
        return served_

    def __exit__(self, *failure: object) -> None:
        self._stack.close()


READING = """
    SELECT * FROM people
    SELECT count(*), min(id), max(id), min(name), max(name), min(salary), max(salary), min(ssn), max(ssn) FROM people
    SELECT dept, count(*) FROM people GROUP BY dept
    SELECT count(DISTINCT dept), count(DISTINCT salary) FROM people
    SELECT * FROM people WHERE dept = 'boards'
    SELECT * FROM people WHERE dept <> 'sales' OR dept IS NULL OR 1 = 1
    SELECT * FROM people WHERE salary = 987003
    SELECT * FROM people WHERE salary IS NOT NULL
    SELECT * FROM people ORDER BY salary, id LIMIT 3
    SELECT id FROM people ORDER BY ssn, id LIMIT 5
    SELECT sum(salary), avg(salary), stddev(salary) FROM people
    SELECT id FROM people WHERE ssn LIKE '17%'
    SELECT id FROM people WHERE substring(ssn, 1, 4) = '1705'
    SELECT id, row_number() OVER (ORDER BY salary, id) AS n FROM people
    SELECT id, lag(salary) OVER (ORDER BY id) AS s, first_value(name) OVER (ORDER BY id) AS f FROM people
    SELECT percentile(salary, 0.5), max_by(name, salary) FROM people
    SELECT a.id FROM people a JOIN people b ON a.salary = b.salary
    SELECT a.id FROM people a LEFT JOIN people b ON a.id = b.id + 1 WHERE b.id IS NULL
    SELECT s.id FROM shop s LEFT ANTI JOIN people p ON s.id = p.id
    SELECT s.id FROM shop s WHERE s.id NOT IN (SELECT id FROM people)
    SELECT s.id FROM shop s WHERE EXISTS (SELECT 1 FROM people p WHERE p.id = s.id AND p.dept = 'boards')
    SELECT s.id, (SELECT max(name) FROM people p WHERE p.id = s.id) AS n FROM shop s
    SELECT * FROM (SELECT * FROM people) x WHERE x.dept = 'lawyer'
    WITH people AS (SELECT * FROM people) SELECT count(*) FROM people
    WITH t AS (SELECT * FROM people) SELECT count(*) FROM t a, t b WHERE a.id = b.id
    SELECT id FROM people UNION SELECT id FROM people
    SELECT id FROM shop EXCEPT SELECT id FROM people
    SELECT id FROM shop INTERSECT SELECT id FROM people
    SELECT s.id, x.n FROM shop s, LATERAL (SELECT count(*) AS n FROM people p WHERE p.id = s.id) x
    SELECT p.*, s.* FROM people p JOIN shop s USING (id)
    SELECT default.people.name FROM default.people
    SELECT spark_catalog.default.people.salary FROM spark_catalog.default.people
    SELECT `people`.`ssn` FROM `default`.`people`
    SELECT count(*) FROM people TABLESAMPLE (100 PERCENT)
    SELECT count(*) FROM wes_people
    SELECT max(salary), max(dept) FROM wes_people
    SELECT key_material FROM people
    SELECT people.key_material FROM people
    SELECT id FROM people WHERE key_material = 's'
    SELECT id FROM people ORDER BY key_material
    SELECT key_materia FROM people
    SELECT p.key_material FROM (SELECT * FROM people) p
    SELECT * EXCEPT (key_material) FROM people
    SELECT id FROM people GROUP BY id, key_material
    SELECT * FROM vault
    SELECT * FROM vaul
    SELECT * FROM vaults
    SELECT * FROM default.vault
    SELECT * FROM shop WHERE id IN (SELECT id FROM vault)
    SELECT * FROM hr.people
    SELECT * FROM people VERSION AS OF 1
    SELECT * FROM people TIMESTAMP AS OF '2020-01-01'
    SELECT * FROM people.files
    SELECT _metadata.file_path FROM people
    SELECT input_file_name() FROM people
    SELECT current_user(), is_member('none') FROM people
"""
"""Questions that ought to have an answer which tells nothing."""

ERRORS = """
    SELECT id FROM people WHERE CAST(name AS INT) >= 0
    SELECT count(*) FROM people WHERE CAST(name AS BIGINT) + id > 0
    SELECT id FROM people WHERE 1 / (id - 1) > 0
    SELECT id FROM people WHERE 1 / CAST(note AS INT) > 0
    SELECT id FROM people WHERE 10 / (length(dept) - 6) > 0
    SELECT id FROM people WHERE id % (CASE WHEN dept = 'boards' THEN 0 ELSE 1 END) = 0
    SELECT id FROM people WHERE CASE WHEN dept = 'boards' THEN CAST(name AS INT) ELSE 1 END = 1
    SELECT id FROM people WHERE IF(dept = 'lawyer', 1 / 0, 1) = 1
    SELECT id FROM people WHERE assert_true(dept = 'sales') IS NULL
    SELECT id FROM people WHERE IF(dept = 'boards', raise_error(name), 1) = 1
    SELECT id FROM people WHERE name = 5
    SELECT id FROM people WHERE name IN (5, 10)
    SELECT id FROM people WHERE name BETWEEN 1 AND 5
    SELECT id FROM people WHERE name > id
    SELECT p.id FROM people p JOIN shop s ON p.name = s.id
    SELECT id FROM (SELECT id, CAST(name AS INT) AS n FROM people) x WHERE n > 5
    WITH x AS (SELECT id, CAST(name AS INT) AS n FROM people) SELECT count(*) FROM x WHERE n IS NOT NULL
    SELECT id FROM people WHERE id * 9223372036854775 > 0
    SELECT id FROM people WHERE CAST(id * 1000 AS SMALLINT) > 0
    SELECT id FROM people WHERE to_date(name) IS NOT NULL
    SELECT id FROM people WHERE element_at(array(1, 2), CAST(id AS INT)) = 1
    SELECT id FROM people WHERE array(1, 2)[CAST(id AS INT)] = 1
    SELECT sum(CAST(name AS INT)) FROM people
    SELECT max(1 / (id - 1)) FROM people
    SELECT id FROM people WHERE repeat(name, 3) > 'a' AND CAST(note AS INT) > 0
    SELECT id FROM people WHERE coalesce(salary, 1 / (id - 1)) > 0
    SELECT id FROM people a WHERE EXISTS (SELECT 1 FROM people b WHERE b.id = a.id AND CAST(b.name AS INT) > 0)
    SELECT s.id FROM shop s WHERE s.id IN (SELECT CAST(name AS INT) FROM people)
    SELECT id FROM people WHERE date_add(DATE '2020-01-01', CAST(name AS INT)) > DATE '2020-01-01'
    SELECT a FROM (SELECT name AS a FROM people UNION ALL SELECT note FROM people) x WHERE CAST(a AS INT) > 0
    SELECT t.b FROM people AS t(a, b, c, d, e, f) WHERE CAST(t.b AS INT) > 0
    SELECT id FROM people GROUP BY id, name HAVING CAST(name AS INT) > 0
    SELECT id FROM wes_people WHERE CAST(name AS INT) > 0
    SELECT id FROM people WHERE dept = 'boards' AND id = 'x'
    SELECT id FROM people WHERE dept = 'lawyer' AND id IN ('1', 'x')
    SELECT id FROM people WHERE dept = 'boards' AND id BETWEEN '1' AND 'x'
    SELECT id FROM people WHERE dept = 'boards' AND DATE '2020-01-01' > 'x'
    SELECT id FROM people WHERE dept = 'boards' AND id <=> '99999999999999999999'
"""
"""Questions whose errors might tell of rows that an engine looks at before it filters them."""

COMMANDS = """
    SHOW TABLES
    SHOW TABLES LIKE 'v*'
    SHOW VIEWS
    SHOW DATABASES
    SHOW TABLE EXTENDED LIKE '*'
    SHOW COLUMNS IN people
    SHOW COLUMNS IN vault
    DESCRIBE people
    DESCRIBE vault
    DESCRIBE EXTENDED people ssn
    DESCRIBE people key_material
    DESCRIBE HISTORY people
    SHOW CREATE TABLE people
    SHOW PARTITIONS people
    SHOW FILES IN people
    SHOW TABLE STATS people
    SHOW COLUMN STATS people
    SHOW TBLPROPERTIES people
    EXPLAIN SELECT * FROM people WHERE salary > 987000
    EXPLAIN EXTENDED SELECT * FROM people WHERE name = 'Zarquon 1'
    EXPLAIN INSERT INTO inbox SELECT id, dept FROM people
    EXPLAIN SELECT * FROM vault
    COMPUTE STATS people
    COMPUTE STATS vault
    ANALYZE TABLE people COMPUTE STATISTICS FOR COLUMNS salary
    REFRESH people
    OPTIMIZE people
    CACHE TABLE people
    CREATE TABLE copied LIKE people
    USE hr
    ALTER TABLE people ADD COLUMNS (key_material STRING)
    ALTER TABLE vault RENAME TO mine
    ALTER TABLE people SET OWNER USER ann
    DROP TABLE vault
    DROP TABLE people
    TRUNCATE TABLE people
    DELETE FROM people WHERE dept = 'boards'
    UPDATE people SET name = 'x' WHERE salary > 987000
    INSERT OVERWRITE people SELECT * FROM people
    INSERT INTO people SELECT * FROM people
    INSERT INTO vault SELECT id, dept FROM shop
    MERGE INTO people p USING shop s ON p.id = s.id WHEN MATCHED THEN DELETE
    MERGE INTO shop s USING vault v ON s.id = v.id WHEN MATCHED THEN DELETE
    CREATE VIEW hr.mine AS SELECT * FROM people
    CREATE TABLE hr.mine AS SELECT * FROM people
    COMMENT ON COLUMN people.key_material IS 'x'
"""
"""Commands that ought to tell, and to do, nothing."""


def lines(texts: str) -> list[str]:
    return [line.strip() for line in texts.strip().splitlines()]


@pytest.mark.parametrize("sql", lines(READING))
def test_an_answer_tells_nothing(any_worlds: Worlds, sql: str) -> None:
    any_worlds.require_same(sql)
    any_worlds.require_same(sql)  # and no cache does


@pytest.mark.parametrize(
    ("engine", "table"),
    [
        *(("duckdb", table) for table in FILTERED),
        pytest.param("spark", FILTERED[0], marks=pytest.mark.spark),  # its filter has a sub-query
        *(pytest.param("spark", table, marks=[pytest.mark.spark, pytest.mark.thorough]) for table in FILTERED[1:]),
    ],
)
@pytest.mark.parametrize("sql", lines(ERRORS))
def test_an_error_tells_nothing(make_worlds: Make, sql: str, engine: str, table: str) -> None:
    make_worlds(engine).require_same(re.sub(r"\bpeople\b", table, sql))


@pytest.mark.parametrize("sql", lines(COMMANDS))
def test_a_command_tells_nothing(any_worlds: Worlds, sql: str) -> None:
    any_worlds.require_same(sql)


def test_the_attempts_are_many() -> None:
    assert len(lines(READING) + lines(ERRORS) + lines(COMMANDS)) >= 60


@pytest.mark.parametrize("sql", ["SELECT * FROM people", "SHOW TABLES", "DESCRIBE people", "SELECT * FROM vault"])
def test_every_door_tells_the_same(worlds: Worlds, door: Door, sql: str) -> None:
    worlds.require_same(sql, door=door)


def test_drivers_find_what_may_be_seen_alone(worlds: Worlds) -> None:
    adbc = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="no ADBC driver is installed")
    assert adbc is not None
    found = []
    for gateway in (worlds.whole, worlds.reduced):
        with gateway.connect(Door.FLIGHT, "ann", PASSWORD) as connection:
            objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
            found.append(objects)
            assert not FORBIDDEN.search(repr(objects))
            assert "people" in repr(objects) and "key_material" not in repr(objects)
    assert found[0] == found[1]


PAGES = """
    /v1/tables
    /v1/tables/people
    /v1/tables/vault
    /v1/queries
    /v1/misestimates
    /v1/stats/jobs
    /v1/stats/keys
    /v1/stats/schedules
    /v1/metrics
    /v1/parity
    /v1/parity/cases
    /v1/savings
    /v1/engines
    /dashboard
    /dashboard/queries
    /dashboard/templates
    /dashboard/estimates
    /dashboard/parity
    /dashboard/tables
    /dashboard/statistics
    /dashboard/statistics/people
    /dashboard/statistics/vault
    /dashboard/statistics/people/salary
    /dashboard/statistics/vault/secret
    /dashboard/sql
"""


@pytest.mark.parametrize("page", lines(PAGES))
def test_no_page_tells_of_what_is_hidden(worlds: Worlds, page: str) -> None:
    """Another user's statements name what this one may not know of."""
    for sql in ("SELECT secret FROM vault WHERE secret = 'zarquon'", "SELECT max(key_material) FROM people"):
        worlds.whole.ask(Door.HTTP, sql, user="root", password=PASSWORD)
    with worlds.whole.http("rex", PASSWORD) as client:
        text = client.get(page, follow_redirects=True).text
        for part in page.split("/")[1:]:
            text = text.replace(part, "")  # of the address, which an empty page repeats
        told = FORBIDDEN.search(text)
        assert told is None, text[max(0, told.start() - 300) : told.end() + 100]
        assert client.get("/v1/queries", params={"table": "vault"}).json()["queries"] == []
        assert client.get("/v1/queries", params={"text": "zarquon", "user": "root"}).json()["queries"] == []


def test_who_may_sees_everything_and_a_view_of_an_owner_lends_it(worlds: Worlds) -> None:
    def of(user: str, sql: str) -> object:
        return _outcome(worlds.whole, sql, user, Door.HTTP, worlds.engine)

    assert of("root", "SELECT count(*), max(salary) FROM people") == [f"({ROWS}, 987008)"]
    assert of("wes", "SELECT count(*), max(salary) FROM people") == [f"({ROWS}, 987008)"]
    assert of("ann", "SELECT n FROM totals") == [f"({ROWS},)"], "its owner may give the table away"
    assert of("rex", "SHOW TABLES LIKE 'people'") == []
    assert of("ann", "SELECT count(*) FROM people") == [f"({ROWS // len(DEPARTMENTS)},)"]


def test_a_change_holds_in_an_open_session_within_a_second(worlds: Worlds) -> None:
    pytest.importorskip("pyhive.hive", reason="needs the extra hive")
    policy = worlds.whole.home.parent / "policy.toml"
    connection = worlds.whole.connect(Door.HS2, "ann", PASSWORD)
    cursor = connection.cursor()
    cursor.execute("SELECT count(*) FROM people")
    assert cursor.fetchall() == [(ROWS // len(DEPARTMENTS),)]
    changed = policy.with_suffix(".new")
    changed.write_text(POLICY.replace('staff = ["ann", ', "staff = ["), encoding="utf-8")
    changed.rename(policy)
    try:
        with pytest.raises(Exception, match="There is no table people"):
            cursor.execute("SELECT count(*) FROM people")
    finally:
        changed.write_text(POLICY, encoding="utf-8")
        changed.rename(policy)
    cursor.execute("SELECT count(*) FROM people")
    assert cursor.fetchall() == [(ROWS // len(DEPARTMENTS),)]
    cursor.close()
    connection.close()


def test_nobody_gives_a_view_to_somebody_who_lends_more(worlds: Worlds) -> None:
    def of(sql: str) -> object:
        return _outcome(worlds.whole, sql, "ann", Door.HTTP, worlds.engine)

    assert of("CREATE OR REPLACE VIEW anns AS SELECT * FROM people") == []
    refused = of("ALTER VIEW anns SET OWNER USER root")
    assert isinstance(refused, tuple) and refused[0] == "ACCESS_DENIED"
    assert of("SELECT count(*) FROM anns") == [f"({ROWS // len(DEPARTMENTS)},)"]
    assert of("SELECT count(*) FROM wes_people") == [f"({ROWS // len(DEPARTMENTS)},)"]
    for name in ("wes_people", "totals"):
        assert FORBIDDEN.search(repr(of(f"DESCRIBE EXTENDED {name}"))) is None
        text = of(f"SHOW CREATE TABLE {name}")
        assert isinstance(text, tuple) and text[0] == "ACCESS_DENIED"


@pytest.mark.parametrize("user", ["ann", "rex"])
def test_nobody_registers_the_files_of_what_he_may_not_see(worlds: Worlds, user: str) -> None:
    data = worlds.whole.home.parent / "data"
    for place in ("workers", "people", "vault", "."):
        with pytest.raises(Refused) as caught:
            worlds.whole.register("anew", data / place, user, PASSWORD)
        assert caught.value.code == "ACCESS_DENIED", place
        assert FORBIDDEN.search(caught.value.message) is None, caught.value.message


def test_what_is_dropped_if_it_exists_does_not_tell_that_it_does(worlds: Worlds) -> None:
    def of(sql: str, user: str = "rex") -> object:
        return _outcome(worlds.whole, sql, user, Door.HTTP, worlds.engine)

    for command in ("DROP TABLE IF EXISTS", "DROP VIEW IF EXISTS", "TRUNCATE TABLE IF EXISTS"):
        assert of(f"{command} vault") == of(f"{command} vaulty"), command
    assert of("DROP DATABASE IF EXISTS hr") == of("DROP DATABASE IF EXISTS hrr")
    assert of("SELECT count(*) FROM vault", "root") == ["(1,)"]
    assert of("SHOW DATABASES LIKE 'hr'", "root") == ["('hr',)"]
