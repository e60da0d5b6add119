"""Answers from the cache over a real DuckDB: as a run would give them, each a query of its own, never a stale one."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from gateway.catalog import readable_files
from gateway.catalog.file_stamps import SETTLED_S, FileStamps
from gateway.execution.caching import answers
from gateway.security.policy import Policy
from gateway.security.principals import IN_PROCESS, Principal, Role
from gateway.settings import CacheSettings, PoolSettings
from gateway.statements.caching import CacheUse
from gateway.statements.session import Session
from gateway.statements.statement import Statement
from metastore.records import QueryState
from selector.decision import ReasonCode
from sql.errors import AccessDenied, FusionError
from tests.gateway.execution.caching.conftest import House, house_at, line, settled

HIT, MISS, BYPASS = CacheUse.HIT, CacheUse.MISS, CacheUse.BYPASS
SQL = "SELECT id, value FROM t WHERE id < 100 ORDER BY id"
ROWS = {1: 10, 2: 20}
LARGE = "SELECT id, value, repeat('x', 70000) AS text FROM t WHERE id < 100 ORDER BY id"
"""Of these rows it has a file of its own."""
ANN, EVE = (Principal(name, Role.READER, authenticated=True) for name in ("ann", "eve"))


@pytest.fixture
def table(house: House) -> Path:
    return house.make("t", ROWS)


def test_an_answer_is_a_query_of_its_own(house: House, table: Path) -> None:
    first, second = house.ask_twice(SQL)
    assert (first.use, second.use) == (MISS, HIT)
    assert first.rows == second.rows == list(ROWS.items())
    record = house.gateway.metastore.queries.get(second.run.id)
    assert record == second.record
    assert record is not None and record.decision is not None
    assert (record.state, record.engine, record.attempts) == (QueryState.FINISHED, "duckdb", ())
    assert (record.rows, record.result_bytes) == (first.record.rows, first.record.result_bytes)
    assert (record.fingerprint, record.statistics_version) == (first.record.fingerprint, "t@0")
    (reason,) = record.decision.reasons
    assert reason.code is ReasonCode.CACHED and first.run.id in reason.text
    assert record.decision.ranking == ("duckdb",)


def test_an_answer_that_waits_for_the_metastore_holds_up_no_statement(
    house: House, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.ask_twice(SQL)
    coordinator = house.gateway.coordinator
    monkeypatch.setattr(coordinator._one_at_a_time, "_wait_s", 3_600.0)
    with house.gateway.metastore.queries.writer._writing:
        waiting, other = (coordinator.start(Statement(SQL, cache=True)) for _ in range(2))
        assert other.accepted.result(timeout=30) is None
        assert not waiting.done.done()
    assert waiting.done.result(timeout=30).state is other.done.result(timeout=30).state is QueryState.FINISHED
    assert (waiting.cache, other.cache) == (HIT, HIT)


def test_an_answer_that_looks_at_many_files_holds_up_no_statement(
    house: House, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.ask_twice(SQL)
    coordinator, looks, may_look = house.gateway.coordinator, threading.Event(), threading.Event()
    monkeypatch.setattr(coordinator._one_at_a_time, "_wait_s", 3_600.0)
    monkeypatch.setattr(readable_files, "FEW_FILES", 0)
    are_unchanged = FileStamps.are_unchanged

    def slowly(files: FileStamps) -> bool:
        if not looks.is_set():
            looks.set()
            assert may_look.wait(timeout=60)
        return are_unchanged(files)

    monkeypatch.setattr(FileStamps, "are_unchanged", slowly)
    waiting = coordinator.start(Statement(SQL, cache=True))
    assert looks.wait(timeout=30)
    other = coordinator.start(Statement(SQL, cache=True))
    assert other.accepted.result(timeout=30) is None
    may_look.set()
    assert waiting.done.result(timeout=30).state is other.done.result(timeout=30).state is QueryState.FINISHED
    assert (waiting.cache, other.cache) == (HIT, HIT)


def test_it_outlives_the_query_whose_result_it_is(house: House, table: Path) -> None:
    first, second = house.ask_twice(SQL)
    house.gateway.spool.delete(first.run.id)
    house.gateway.spool.delete(second.run.id)
    third = house.ask(SQL)
    assert (third.use, third.rows) == (HIT, list(ROWS.items()))


def test_nothing_is_learned_of_it_and_it_takes_no_lease(house: House, table: Path) -> None:
    first, second = house.ask_twice("SELECT id + 4711 FROM t")
    runs = house.gateway.metastore.queries.runs(limit=1_000)
    assert sum(run.subject.fingerprint == first.record.fingerprint for run in runs) == 1
    assert (len(first.run.admitted), second.run.admitted) == (1, ())


@pytest.mark.parametrize("large", [False, True])
def test_large_results_are_shared_as_files(house: House, large: bool) -> None:
    rows = {n: n for n in range(9_999 if large else 9)}
    house.make("t", rows)
    first, second = house.ask_twice("SELECT id, value, repeat('x', 40) AS text FROM t ORDER BY id")
    assert (first.run.held is None, second.use) == (large, HIT)
    assert (second.rows, second.run.held is None) == (first.rows, large)
    files = [house.gateway.spool.path(each.run.id) for each in (first, second)]
    if large:
        status = files[1].stat()
        assert status.st_nlink == 3 and status.st_ino == files[0].stat().st_ino
    else:
        assert not any(file.exists() for file in files)


# ---------------------------------------------------------------------- what it rests on


def in_place(house: House, table: Path) -> None:
    """Exchange a value by another of the same length, and set the time of change back."""
    (file,) = table.iterdir()
    before = file.stat()
    file.write_text(line(1, 10) + line(2, 21), encoding="utf-8")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def renamed(house: House, table: Path) -> None:
    (file,) = table.iterdir()
    (other := house.folder / "other").write_text(line(1, 10) + line(2, 21), encoding="utf-8")
    other.replace(file)


def made_anew(house: House, table: Path) -> None:
    """Drop the table, and make another of its name somewhere else."""
    house.ask("DROP TABLE t")
    (house.folder / "elsewhere").mkdir()
    (house.folder / "elsewhere" / "rows").write_text(line(1, 10) + line(2, 21), encoding="utf-8")
    house.register("t", house.folder / "elsewhere")


def filled_anew(house: House, table: Path) -> None:
    """Drop the table, and make the same again with other rows in the same place."""
    house.ask("DROP TABLE t")
    (file,) = table.iterdir()
    file.unlink()
    house.make("t", {1: 10, 2: 21})


CHANGES: dict[str, tuple[Callable[[House, Path], object], list[tuple[int, int]]]] = {
    "a file came": (lambda house, table: house.append("t", {3: 30}), [(1, 10), (2, 20), (3, 30)]),
    "in place, with the same size and time": (in_place, [(1, 10), (2, 21)]),
    "renamed over": (renamed, [(1, 10), (2, 21)]),
    "another table of the name": (made_anew, [(1, 10), (2, 21)]),
    "the same table with other files": (filled_anew, [(1, 10), (2, 21)]),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_change_of_files_is_never_missed(
    house: House, table: Path, change: Callable[[House, Path], object], expected: list[tuple[int, int]]
) -> None:
    _, second = house.ask_twice(SQL)
    assert second.use is HIT
    change(house, table)
    third = house.ask(SQL)
    assert (third.use, third.rows) == (MISS, expected)
    first, second = house.ask_twice(SQL)
    assert (first.rows, second.use, second.rows) == (expected, HIT, expected)


def test_all_tables_of_a_query_count(house: House, table: Path) -> None:
    house.make("other", {1: 5})
    sql = "SELECT t.value FROM t JOIN other o ON t.id = o.id ORDER BY 1"
    assert house.ask_twice(sql)[1].use is HIT
    house.append("other", {2: 6})
    assert house.ask(sql).rows == [(10,), (20,)]


def test_a_view_that_is_replaced(house: House, table: Path) -> None:
    house.ask("CREATE OR REPLACE VIEW v AS SELECT value FROM t WHERE id = 1")
    assert house.ask_twice("SELECT value FROM v")[1].rows == [(10,)]
    house.ask("CREATE OR REPLACE VIEW v AS SELECT value FROM t WHERE id = 2")
    assert [each.rows for each in house.ask_twice("SELECT value FROM v")] == [[(20,)], [(20,)]]
    house.ask("DROP VIEW v")


def test_views_of_sessions_are_theirs(house: House, table: Path) -> None:
    def session(number: int) -> Session:
        made = Session(IN_PROCESS, deadline_s=60)
        view = f"CREATE TEMPORARY VIEW mine AS SELECT value FROM t WHERE id = {number}"
        house.ask(view, session=made)
        return made

    one, two = session(1), session(2)
    assert house.ask_twice("SELECT value FROM mine", session=one)[1].rows == [(10,)]
    assert house.ask("SELECT value FROM mine", session=two).rows == [(20,)]
    assert house.ask("SELECT value FROM mine", session=one).use is HIT


def test_names_of_columns_are_the_askers_own(house: House, table: Path) -> None:
    def names(sql: str) -> list[str]:
        asked = house.ask(sql)
        with house.gateway.spool.open(asked.run.id) as result:
            return [str(name) for name in result.schema.names]

    settled()
    assert names("SELECT value AS Price FROM t") == ["Price"]
    assert names("SELECT value AS price FROM t") == ["price"]
    assert names("SELECT *, 1 AS X FROM t") == ["id", "value", "X"]
    assert names("SELECT *, 1 AS x FROM t") == ["id", "value", "x"]
    assert house.ask("select  value as Price from T -- again").use is HIT


def test_literals_and_users_count(house: House, table: Path) -> None:
    assert house.ask_twice("SELECT value FROM t WHERE id = 1")[1].rows == [(10,)]
    assert house.ask("SELECT value FROM t WHERE id = 2").rows == [(20,)]
    assert house.ask_twice("SELECT current_user() FROM t LIMIT 1", principal=ANN)[1].rows == [("ann",)]
    assert house.ask("SELECT current_user() FROM t LIMIT 1", principal=EVE).rows == [("eve",)]
    assert house.ask(SQL, principal=ANN).rows == house.ask(SQL, principal=EVE).rows


def test_names_mean_what_they_mean_in_their_database(house: House, table: Path) -> None:
    house.ask("CREATE DATABASE IF NOT EXISTS other")
    (house.folder / "there").mkdir()
    (house.folder / "there" / "rows").write_text(line(7, 70), encoding="utf-8")
    house.register("other.t", house.folder / "there")
    assert house.ask_twice(SQL)[1].rows == list(ROWS.items())
    assert house.ask(SQL, database="other").rows == [(7, 70)]


def test_a_day_ends_it_and_so_does_age(house: House, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert house.ask_twice(SQL)[1].use is HIT
    today = answers._today()
    monkeypatch.setattr(answers, "_today", lambda: today + 1)
    assert [each.use for each in house.ask_twice(SQL)] == [MISS, HIT]
    monkeypatch.setattr(house.gateway.coordinator.cached._cache, "_keep_s", -1.0)
    assert house.ask(SQL).use is MISS


def test_what_has_just_changed_is_not_kept(house: House, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house.gateway.registration.files, "_settled_s", SETTLED_S)
    assert [house.ask(SQL).use for _ in range(3)] == [MISS, MISS, MISS]


@pytest.mark.parametrize("change", ["files", "definition", "definition and back", "day"])
def test_what_changes_while_it_runs_is_in_no_answer(
    house: House, table: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled()
    executor = house.gateway.coordinator._executor
    query, other = executor.query, house.folder / "elsewhere"

    def meanwhile(*arguments: Any, **named: Any) -> Any:
        """Change something before the run and back after it, as far as that goes."""
        if change == "files":
            house.append("t", {3: 30})
        elif change == "day":
            today = answers._today()
            monkeypatch.setattr(answers, "_today", lambda: today + 1)
        else:
            other.mkdir()
            (other / "rows").write_text(line(9, 90), encoding="utf-8")
            house.register("t", other)
        outcome = query(*arguments, **named)
        if change == "definition and back":
            house.register("t", table)
        return outcome

    monkeypatch.setattr(executor, "query", meanwhile)
    assert [row[0] for row in house.ask(LARGE).rows] == list(ROWS)  # of the files and the definition before the run
    monkeypatch.setattr(executor, "query", query)
    after = house.ask(LARGE)
    expected = {"files": [*ROWS, 3], "definition": [9]}.get(change, list(ROWS))
    assert [row[0] for row in after.rows] == expected
    assert after.use is (HIT if change == "definition and back" else MISS)


# ---------------------------------------------------------------------- who may, and who wants to


def test_rights_are_asked_for_each_time(house: House, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert house.ask_twice(SQL, principal=EVE)[1].use is HIT

    def require_all(self: Policy, principal: Principal, needs: object) -> None:
        if principal is EVE:
            raise AccessDenied("eve may not.")

    monkeypatch.setattr(Policy, "require_all", require_all)
    with pytest.raises(AccessDenied):
        house.ask(SQL, principal=EVE)
    assert house.ask(SQL, principal=ANN).use is HIT


def test_it_is_off_unless_somebody_wants_it(house: House, table: Path) -> None:
    settled()
    assert [house.ask(SQL, cache=None).use for _ in range(2)] == [BYPASS, BYPASS]
    assert house.ask(SQL).use is MISS  # those before left nothing
    assert house.ask(SQL, cache=False).use is BYPASS
    assert house.ask(SQL).use is HIT
    assert Statement(SQL).cache is None
    session = Session(IN_PROCESS, deadline_s=60)
    wanted = {"on": True, "OFF": False, "true": True, "0": False, "": None}
    for value, expected in wanted.items():
        session.set("Fusion.Cache", value)
        assert session.statement(SQL).cache is expected
    with pytest.raises(FusionError, match="on or off"):
        session.set("fusion.cache", "maybe")


@pytest.mark.parametrize(
    "sql",
    ["SELECT now(), id FROM t", "SELECT first(id) FROM t", "SHOW TABLES", "EXPLAIN SELECT id FROM t"],
)
def test_what_is_not_repeatable_bypasses_it(house: House, table: Path, sql: str) -> None:
    assert [each.use for each in house.ask_twice(sql)] == [BYPASS, BYPASS]


def test_a_write_bypasses_it_and_is_seen(house: House) -> None:
    """Without Spark there is none who writes, so that a commit is made as the writer makes it: by a rename."""
    table = house.make("t", ROWS)
    assert house.ask_twice(SQL)[1].use is HIT
    staged = table / ".fusion-write-x"
    staged.mkdir()
    (staged / "part-9.csv").write_text(line(3, 30), encoding="utf-8")
    assert house.ask(SQL).rows == list(ROWS.items())
    (staged / "part-9.csv").rename(table / "part-9.csv")
    assert house.ask(SQL).rows == [*ROWS.items(), (3, 30)]


@pytest.fixture(scope="module")
def with_pools(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pools = {"reports": PoolSettings(cache=True), "etl": PoolSettings(cache=False), "plain": PoolSettings()}
    cache = CacheSettings(enabled=True)
    with house_at(tmp_path_factory.mktemp("pools"), cache=cache, pools=pools) as house:
        house.make("t", ROWS)
        yield house


@pytest.mark.parametrize(
    ("pool", "own", "default", "enabled", "is_on"),
    [
        ("reports", None, None, False, True),
        ("etl", None, None, True, False),
        ("etl", True, None, False, True),
        ("reports", False, None, True, False),
        ("plain", None, None, True, True),
        ("plain", None, True, False, True),
        ("none such", None, False, True, False),
        ("", None, None, False, False),
    ],
)
def test_sessions_come_before_pools_and_pools_before_the_gateway(
    with_pools: House,
    pool: str,
    own: bool | None,
    default: bool | None,
    enabled: bool,
    is_on: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cached = with_pools.gateway.coordinator.cached
    monkeypatch.setattr(cached, "_enabled", enabled)
    if default is not None:
        monkeypatch.setattr(cached, "_pools", {**cached._pools, "default": default})
    assert (with_pools.ask(SQL, cache=own, pool=pool).use is not BYPASS) is is_on


def test_without_bytes_there_is_none(with_pools: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(with_pools.gateway.coordinator.cached, "_is_there", False)
    assert [with_pools.ask(SQL).use for _ in range(2)] == [BYPASS, BYPASS]


# ---------------------------------------------------------------------- what can go wrong


def test_an_answer_that_is_not_on_record_is_not_told(
    house: House, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert house.ask_twice(SQL)[1].use is HIT
    before = house.gateway.coordinator.cached.usage().hits

    def lost(*_: object, **__: object) -> None:
        raise OperationalError("INSERT", {}, Exception("the disk is full"))

    monkeypatch.setattr("metastore.query_log.writer.write", lost)
    with pytest.raises(OperationalError):
        house.ask(SQL)
    monkeypatch.undo()
    assert house.gateway.coordinator.cached.usage().hits == before


def test_a_result_with_as_many_names_as_a_disk_gives_is_copied(
    house: House, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = house.ask_twice(LARGE)
    link, full = os.link, {house.gateway.spool.path(first.run.id).stat().st_ino}

    def limited(source: Path, target: Path) -> None:
        if os.stat(source).st_ino in full:
            raise OSError(errno.EMLINK, "Too many links")
        link(source, target)

    monkeypatch.setattr(os, "link", limited)
    third, fourth = house.ask(LARGE), house.ask(LARGE)
    assert (third.use, fourth.use, third.rows, fourth.rows) == (HIT, HIT, first.rows, first.rows)
    inodes = {house.gateway.spool.path(each.run.id).stat().st_ino for each in (first, third, fourth)}
    assert len(inodes) == 2  # one copy for all who come after


def test_a_disk_without_second_names_has_no_cache(house: House, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    first, second = house.ask_twice(LARGE)
    assert (second.rows, second.use) == (first.rows, MISS)
    assert house.ask_twice(SQL)[1].use is HIT  # of rows in memory


def test_rows_that_are_gone_are_run_for_again(house: House, table: Path) -> None:
    first, _ = house.ask_twice(LARGE)
    kept = house.gateway.spool.path(first.run.id).with_name(f"{first.run.id}.kept.part")
    assert kept.exists()
    kept.unlink()
    assert [each.use for each in house.ask_twice(LARGE)] == [MISS, HIT]


def test_files_that_only_a_dead_process_knew_of_go_at_the_start(house: House, table: Path) -> None:
    first, second = house.ask_twice(LARGE)
    spool = house.gateway.spool
    (kept,) = spool.path(first.run.id).parent.glob(f"{first.run.id}.kept*")
    assert spool.keep_only({first.run.id, second.run.id}) >= 1
    assert not kept.exists()
    assert spool.path(first.run.id).exists() and spool.path(second.run.id).exists()
    assert house.ask(LARGE).use is MISS


def test_a_shared_result_is_as_old_as_its_query_and_counts_in_parts(house: House, table: Path) -> None:
    first, second = house.ask_twice(LARGE)
    spool = house.gateway.spool
    hour_ago = time.time() - 3_600
    os.utime(spool.path(first.run.id), (hour_ago, hour_ago))
    sizes = dict(spool.sizes())
    assert sizes[second.run.id] == spool.path(second.run.id).stat().st_size // 3
    old = "20200101_000000_0123456789"  # a query of that time, with a name of the same rows
    os.link(spool.path(first.run.id), spool.path(old))
    spool.expire(older_than_s=600)
    assert spool.path(second.run.id).exists() and not spool.path(old).exists()


def test_a_cancelled_query_is_not_answered(house: House, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert house.ask_twice(SQL)[1].use is HIT
    cached = house.gateway.coordinator.cached
    may_answer = cached._may_answer

    def cancelled_meanwhile(run: Any, *arguments: Any) -> Any:
        run.cancel()
        return may_answer(run, *arguments)

    monkeypatch.setattr(cached, "_may_answer", cancelled_meanwhile)
    run = house.gateway.coordinator.submit(Statement(SQL, cache=True))
    record = run.done.result(timeout=30)
    assert (record.state, record.rows) == (QueryState.CANCELLED, None)
    assert not house.gateway.spool.has(run.id)
