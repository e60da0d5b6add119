"""DuckDB: the conformance suite, and what only worker processes can do. It is long because each promise has a test."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest

from engines.duckdb.plan_reader import read
from engines.errors import (
    DataError,
    DeadlineExceeded,
    EngineBusy,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
    StatementError,
    UnsupportedFeature,
)
from engines.protocol import Engine, Lease
from metastore.discovery.inspection import inspect
from selector.plan import Operator, TableShape
from sql.tables import Column, TableSource
from tests.engines.conformance import Conformance
from tests.engines.processes import is_running
from tests.waiting import wait_until

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

from engines.duckdb import process
from engines.duckdb.engine import DuckDBEngine
from engines.duckdb.errors import translate
from engines.duckdb.process import described

pytestmark = pytest.mark.e2e  # real worker processes, one conformance suite long

MIB = 1 << 20
LEASE = Lease(memory_bytes=256 * MIB)
SLOW = "SELECT count(*) FROM numbers a, numbers b, numbers c WHERE a.n + b.n + c.n > 5"
LARGE_SORT = "SELECT * FROM (SELECT a.n AS x, b.n AS y FROM numbers a, numbers b) ORDER BY y, x"


@pytest.fixture(scope="module")
def pool() -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(workers=2, threads=1)
    yield engine
    engine.close()


class TestDuckDB(Conformance):
    @pytest.fixture
    def engine(self, pool: DuckDBEngine) -> Engine:
        return pool

    @pytest.fixture
    def spare_engine(self) -> Iterator[Engine]:
        engine = DuckDBEngine(workers=1, threads=1)
        yield engine
        engine.close()

    @pytest.fixture
    def mortal(self) -> Iterator[tuple[Engine, Callable[[], None]]]:
        engine = DuckDBEngine(workers=1, threads=1)

        def kill_workers() -> None:
            for pid in engine.worker_pids():
                kill(pid)

        yield engine, kill_workers
        engine.close()


@pytest.fixture
def numbers(pool: DuckDBEngine, tmp_path: Path) -> TableSource:
    file = tmp_path / "numbers.csv"
    file.write_text("".join(f"{n}\n" for n in range(3_000)), encoding="ascii")
    table = TableSource("numbers", str(file), "csv", (Column("n", "bigint"),))
    pool.use_tables([table])
    return table


def run(pool: DuckDBEngine, sql: str, *, lease: Lease = LEASE, query_id: str = "q") -> int:
    with pool.execute(sql, query_id=query_id, lease=lease, deadline_s=60) as result:
        return sum(batch.num_rows for batch in result)


@pytest.mark.parametrize("key", ["-2.50", "CAST('2020-01-02 03:04:05' AS TIMESTAMP)", "CAST('a' AS VARCHAR) DESC"])
def test_a_constant_orders_nothing(pool: DuckDBEngine, numbers: TableSource, key: str) -> None:
    assert run(pool, f"SELECT n FROM numbers ORDER BY {key}, n LIMIT 3") == 3


def test_memory_beyond_the_lease_is_an_error_with_its_peak(pool: DuckDBEngine, numbers: TableSource) -> None:
    with pytest.raises(MemoryExceeded, match="memory limit of 64") as caught:
        run(pool, LARGE_SORT, lease=Lease(64 * MIB))
    assert caught.value.peak_bytes is not None
    assert 32 * MIB < caught.value.peak_bytes < 80 * MIB
    assert run(pool, "SELECT n FROM numbers") == 3_000


def test_memory_outside_duckdbs_limit_is_capped_too(pool: DuckDBEngine, numbers: TableSource) -> None:
    with pytest.raises(MemoryExceeded):
        run(pool, "SELECT length(repeat('x' || n, 1500000000)) FROM numbers LIMIT 1", lease=Lease(64 * MIB))
    assert run(pool, "SELECT n FROM numbers") == 3_000


@pytest.mark.parametrize(
    ("operator", "sql", "rows"),
    [
        ("UNION", "SELECT n FROM numbers UNION ALL SELECT n FROM numbers WHERE n < 10", 3_000 + 10),
        ("CTE", "WITH c AS MATERIALIZED (SELECT n FROM numbers) SELECT a.n FROM c a, c b WHERE a.n = b.n", 3_000),
    ],
)
def test_operators_that_a_profile_does_not_count_have_the_rows_of_their_inputs(
    pool: DuckDBEngine, numbers: TableSource, operator: str, sql: str, rows: int
) -> None:
    with pool.execute(sql, query_id="rows", lease=LEASE, deadline_s=60) as result:
        assert sum(batch.num_rows for batch in result) == rows
    assert [actual.rows for actual in result.actuals.operators if actual.name == operator] == [rows]


def test_the_peak_is_of_this_statement_alone(pool: DuckDBEngine, numbers: TableSource) -> None:
    def peak(sql: str) -> int:
        with pool.execute(sql, query_id="peak", lease=LEASE, deadline_s=60) as result:
            assert sum(batch.num_rows for batch in result) > 0
        assert result.actuals.peak_bytes is not None
        assert result.actuals.operators
        return result.actuals.peak_bytes

    large = (
        "SELECT n, count(*) FROM (SELECT a.n * 3000 + b.n AS n FROM numbers a, numbers b WHERE a.n < 300) GROUP BY n"
    )
    small = "SELECT n FROM numbers WHERE n > 5"
    assert peak(large) > 10 * MIB
    assert peak(small) < peak(large) / 3


def test_a_killed_worker_is_a_lost_engine_and_the_pool_is_whole_again(pool: DuckDBEngine, numbers: TableSource) -> None:
    wait_until(lambda: len(pool.worker_pids()) == 2, "the pool is whole")
    before = set(pool.worker_pids())

    def kill_all() -> None:
        for pid in before:
            os.kill(pid, signal.SIGKILL)

    threading.Timer(0.5, kill_all).start()
    with pytest.raises(EngineUnavailable, match="lost"):
        run(pool, SLOW)
    wait_until(lambda: not any(is_running(pid) for pid in before), "the killed ones are gone")
    assert run(pool, "SELECT n FROM numbers") == 3_000
    wait_until(lambda: len(set(pool.worker_pids()) - before) == 2, "both workers were replaced")


def test_what_does_not_listen_to_an_interrupt_is_killed() -> None:
    with contextlib.closing(DuckDBEngine(workers=1, threads=1)) as lonely:
        wait_until(lambda: len(lonely.worker_pids()) == 1, "the worker is there")
        (deaf,) = lonely.worker_pids()

        def deafen_and_cancel() -> None:
            os.kill(deaf, signal.SIGSTOP)
            lonely.cancel("deaf")

        begun = time.monotonic()
        threading.Timer(0.5, deafen_and_cancel).start()
        with pytest.raises(StatementCancelled):
            run(
                lonely,
                "SELECT count(*) FROM range(100000) a, range(10000000) b WHERE a.range * b.range % 7 = 3",
                query_id="deaf",
            )
        assert time.monotonic() - begun < 10
        wait_until(lambda: not is_running(deaf), "the deaf worker is gone")
        assert run(lonely, "SELECT 1") == 1


def test_workers_die_with_a_killed_gateway() -> None:
    script = """
        import sys, time
        from engines.duckdb.engine import DuckDBEngine
        engine = DuckDBEngine(workers=2, threads=1)
        while len(engine.worker_pids()) < 2:
            time.sleep(0.05)
        print(*engine.worker_pids(), flush=True)
        time.sleep(60)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    ) as gateway:
        assert gateway.stdout is not None
        pids = [int(pid) for pid in gateway.stdout.readline().split()]
        assert all(is_running(pid) for pid in pids)
        gateway.kill()
    wait_until(lambda: not any(is_running(pid) for pid in pids), "the workers are gone")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM glob('/etc/*')",
        "COPY numbers TO '/tmp/fusion-test-copy.csv'",
        "ATTACH '/tmp/fusion-test-attach.db' AS x",
        "INSTALL httpfs",
        "SET memory_limit='8GB'; SET threads=8",
        "SET enable_external_access=true",
        "PRAGMA enable_external_access",
        "SELECT 1; SELECT 2",
        "SELECT 1; COPY numbers TO '/tmp/fusion-test-copy.csv'; SELECT 1",
    ],
)
def test_workers_are_locked_down_even_behind_the_allow_list(pool: DuckDBEngine, numbers: TableSource, sql: str) -> None:
    with pytest.raises((StatementError, UnsupportedFeature)):
        run(pool, sql)


def test_other_tables_need_no_other_process(pool: DuckDBEngine, numbers: TableSource, tmp_path: Path) -> None:
    """A process starts in a second; whoever registers tables over and over must not keep all of them starting."""
    assert run(pool, "SELECT n FROM numbers") == 3_000
    pool.explain("SELECT n FROM numbers")
    wait_until(lambda: len(pool.worker_pids()) == 2, "the pool is whole")
    before = (pool.worker_pids(), pool.planner_pids())
    sizes = []
    for version in range(60):
        _written(tmp_path / f"t{version}" / "x.parquet", [version])
        table = TableSource(f"t{version}", str(tmp_path / f"t{version}"), "parquet", (Column("n", "bigint"),))
        pool.use_tables([table])
        assert run(pool, f"SELECT n FROM t{version} WHERE n = {version}") == 1
        pool.explain(f"SELECT n FROM t{version}")
        sizes.append(sum(_address_space_bytes(pid) for pid in pool.worker_pids()))
    assert (pool.worker_pids(), pool.planner_pids()) == before
    assert sizes[-1] - sizes[10] < 64 * MIB
    for gone in (
        "SELECT n FROM numbers",
        f"SELECT * FROM read_csv('{numbers.location}')",
    ):  # locked down anew each time
        with pytest.raises((StatementError, UnsupportedFeature)):
            run(pool, gone)


def test_a_worker_that_is_lost_while_it_is_told_of_tables_is_replaced(numbers: TableSource) -> None:
    with contextlib.closing(DuckDBEngine(workers=1, threads=1)) as engine:
        wait_until(lambda: len(engine.worker_pids()) == 1, "the worker is there")
        (pid,) = engine.worker_pids()
        os.kill(pid, signal.SIGSTOP)  # so that it dies over the news, not before
        engine.use_tables([numbers])
        threading.Timer(0.3, kill, [pid]).start()
        assert run(engine, "SELECT n FROM numbers") == 3_000
        assert pid not in engine.worker_pids()


def test_tables_that_change_while_others_are_read(pool: DuckDBEngine, numbers: TableSource, tmp_path: Path) -> None:
    """A statement reads what there was when it began; the next one, in the same processes, what there is now."""
    wait_until(lambda: len(pool.worker_pids()) == 2, "the pool is whole")
    before = pool.worker_pids()
    _written(tmp_path / "old" / "x.parquet", [1])
    pq.write_table(pa.table({"other": ["a", "b"]}), tmp_path / "new.parquet")
    old = TableSource("t", str(tmp_path / "old"), "parquet", (Column("n", "bigint"),))
    new = TableSource("t", str(tmp_path / "new.parquet"), "parquet", (Column("other", "string"),))
    pool.use_tables([numbers, old])
    joined = "SELECT a.n, repeat('x', 1000) FROM numbers a, numbers b, t WHERE b.n < 100 AND t.n = 1"
    for _ in range(2):  # in both workers, or in one
        assert run(pool, "SELECT n FROM t") == 1
    with pool.execute(joined, query_id="long", lease=LEASE, deadline_s=60) as result:
        first = next(result).num_rows
        pool.use_tables([numbers, new])
        assert run(pool, "SELECT other FROM t") == 2
        with pytest.raises(UnsupportedFeature):
            run(pool, "SELECT n FROM t")
        pool.use_tables([numbers])
        assert first + sum(batch.num_rows for batch in result) == 300_000
    for _ in range(2):
        for gone in ("SELECT other FROM t", f"SELECT * FROM read_parquet('{new.location}')"):
            with pytest.raises((StatementError, UnsupportedFeature)):
                run(pool, gone)
        assert run(pool, "SELECT n FROM numbers") == 3_000
    assert pool.worker_pids() == before


def test_a_worker_reads_the_tables_of_its_statements_alone(
    pool: DuckDBEngine, numbers: TableSource, tmp_path: Path
) -> None:
    _written(tmp_path / "other" / "x.parquet", [1])
    other = TableSource("other", str(tmp_path / "other"), "parquet", (Column("n", "bigint"),))
    pool.use_tables([numbers, other])
    reads_a_file = f"SELECT * FROM read_parquet('{tmp_path}/other/x.parquet')"
    with pytest.raises(StatementError):
        run(pool, f"SELECT n FROM numbers UNION ALL {reads_a_file}")
    with pytest.raises(StatementError):
        run(pool, reads_a_file)
    assert run(pool, "SELECT n FROM numbers UNION ALL SELECT n FROM other") == 3_001


def test_statements_of_any_tables_at_once_while_others_come_and_go(tmp_path: Path) -> None:
    """More sets of tables than a worker has instances for, from several threads."""
    sources = []
    for number in range(12):
        name = f"sales.t{number} ü"
        _written(tmp_path / name / "x.parquet", list(range(number + 1)))
        sources.append(TableSource(name, str(tmp_path / name), "parquet", (Column("n", "bigint"),)))

    with contextlib.closing(DuckDBEngine(workers=2, threads=1)) as engine:

        def ask(at: int) -> None:
            one, two = at % 6, (at * 5 + 1) % 6
            sql = f'SELECT a.n FROM "sales.t{one} ü" a, "SALES.T{two} ü" b'
            assert run(engine, sql, query_id=f"q{at}") == (one + 1) * (two + 1)

        engine.use_tables(sources)
        with ThreadPoolExecutor(2) as threads:
            asked = [threads.submit(ask, at) for at in range(80)]
            for at in range(80):
                engine.use_tables([*sources[:6], *sources[6 + at % 6 :]])
            for one in asked:
                one.result()


def _address_space_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _written(path: Path, numbers: list[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), path)


def test_all_files_of_a_table_are_read_whatever_they_are_called(pool: DuckDBEngine, tmp_path: Path) -> None:
    for name in ("x.parquet", "y.parq", "000000_0"):
        _written(tmp_path / name, [1, 2])
    for hidden in ("_old.parquet", ".x.parquet", ".fusion-write-1/z.parquet", "_temporary/z.parquet"):
        _written(tmp_path / hidden, [9])
    found = inspect("t", tmp_path)
    assert found.rows == 6
    pool.use_tables([found.source])
    assert run(pool, "SELECT n FROM t") == found.rows


def test_a_statement_that_is_repeated_reads_the_files_as_they_are_now(tmp_path: Path) -> None:
    """What a worker keeps of a statement that it ran before is none of the table's rows, nor their types."""
    with contextlib.closing(DuckDBEngine(workers=1, threads=1)) as engine:
        source = TableSource("t", str(tmp_path / "t"), "parquet", (Column("n", "bigint"),))
        _written(tmp_path / "t" / "x.parquet", [1, 2])
        engine.use_tables([source])
        assert run(engine, "SELECT n FROM t") == 2
        _written(tmp_path / "t" / "y.parquet", [3])
        assert run(engine, "SELECT n FROM t") == 3
        (tmp_path / "t" / "x.parquet").unlink()
        assert run(engine, "SELECT n FROM t") == 1
        sums, decimals = "SELECT sum(n) FROM t", "SELECT CAST(n AS DECIMAL(38, 0)) FROM t"
        for sql, kind in 2 * [(sums, pa.int64()), (decimals, pa.decimal128(38, 0))]:
            with engine.execute(sql, query_id="q", lease=LEASE, deadline_s=60) as result:
                assert result.schema.types == [kind]
                assert sum(batch.num_rows for batch in result) == 1


def test_partitions_are_read_whatever_their_files_are_called(pool: DuckDBEngine, tmp_path: Path) -> None:
    for day in (1, 2, 3):
        _written(tmp_path / f"day={day}" / "hour=1" / "000000_0", [day])
    for hidden in (".fusion-commit-1/hour=1/a", "_old/hour=1/a", "day=1/.staged/a"):
        _written(tmp_path / hidden, [9])
    (tmp_path / ".fusion-commit-1" / "hour=1" / "replaced.json").write_text("[]", encoding="ascii")
    found = inspect("t", tmp_path)
    assert found.rows == 3
    pool.use_tables([found.source])
    assert run(pool, "SELECT n FROM t") == found.rows
    plan = pool.explain("SELECT n FROM t WHERE day = 2")
    assert '"1/3"' in plan  # of the files, only those of a partition that is meant
    columns = {column.name: column.data_type for column in found.source.columns}
    scan = read(plan, [TableShape("t", columns, found.rows)]).root
    assert (scan.operator, scan.table) == (Operator.SCAN, "t")


UNREADABLE = {
    "a_word": ("csv", b"1\nabc\n"),
    "a_column_more": ("csv", b"1,2,3\n"),
    "another_type": ("json", b'{"n": "abc"}\n'),
    "half_an_object": ("json", b'{"n": 1\n'),
    "no_parquet": ("parquet", b"no Parquet, but long enough to be one"),
    "no_footer": ("parquet", b"PAR1" + bytes(40) + b"\x10\0\0\0PAR1"),
}


def test_files_that_it_cannot_read_are_left_to_the_dependable_engine(pool: DuckDBEngine, tmp_path: Path) -> None:
    tables = []
    for name, (format, content) in UNREADABLE.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(content)
        tables.append(TableSource(name, str(tmp_path / name), format, (Column("n", "int"),)))
    pool.use_tables(tables)
    for name in UNREADABLE:
        with pytest.raises(UnsupportedFeature) as caught:
            run(pool, f"SELECT n FROM {name} WHERE n > 0")
        assert str(tmp_path) not in caught.value.message


def test_files_that_go_away_while_they_are_read_are_left_to_another_try(pool: DuckDBEngine, tmp_path: Path) -> None:
    for number in range(200):
        _written(tmp_path / "t" / f"{number}.parquet", [number] * 4_000)
    pool.use_tables([inspect("t", tmp_path / "t").source])
    assert run(pool, "SELECT n FROM t") == 800_000
    with pytest.raises(EngineBusy, match="went away") as caught:
        with pool.execute(
            "SELECT n, repeat('x', 1000) FROM t", query_id="q", lease=LEASE, deadline_s=60
        ) as result:  # nobody reads on, so it stands still
            shutil.rmtree(tmp_path / "t")
            for _ in result:
                pass
    assert str(tmp_path) not in caught.value.message
    with pytest.raises(EngineBusy, match="went away"):
        run(pool, "SELECT n FROM t")


def test_a_planner_that_is_killed_says_nothing_about_the_statement(pool: DuckDBEngine, numbers: TableSource) -> None:
    pool.explain("SELECT n FROM numbers")
    (planner,) = pool.planner_pids()
    os.kill(planner, signal.SIGSTOP)  # so that it dies over the question, not before
    threading.Timer(0.3, kill, [planner]).start()
    assert "READ_CSV" in pool.explain("SELECT n + 1 FROM numbers")
    assert planner not in pool.planner_pids()


def test_a_planner_that_does_not_answer_in_time_says_nothing_about_the_statement(
    pool: DuckDBEngine, numbers: TableSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.explain("SELECT n FROM numbers")
    (planner,) = pool.planner_pids()
    os.kill(planner, signal.SIGSTOP)
    monkeypatch.setattr("engines.duckdb.explain_workers.PLANNING_S", 0.2)
    with pytest.raises(EngineBusy, match="could not plan it within"):
        pool.explain("SELECT n FROM numbers")
    monkeypatch.undo()
    assert "READ_CSV" in pool.explain("SELECT n FROM numbers")


def test_plans_are_made_within_limits(pool: DuckDBEngine, numbers: TableSource) -> None:
    begun = time.monotonic()
    with contextlib.suppress(
        UnsupportedFeature, EngineBusy
    ):  # or the constant is left unfolded: 16 s and 6 GiB without limits
        pool.explain("SELECT length(repeat('abcdefgh', 400000000)) FROM numbers")
    assert time.monotonic() - begun < 15
    with pytest.raises(UnsupportedFeature):
        pool.explain("SELECT 1; SELECT 2")
    assert "READ_CSV" in pool.explain("SELECT n FROM numbers")


def test_a_cancel_after_the_deadline_leaves_no_timer_behind(pool: DuckDBEngine, numbers: TableSource) -> None:
    assert run(pool, "SELECT n FROM numbers") == 3_000  # a worker is there
    threading.Timer(0.3, pool.cancel, ["late"]).start()
    with pytest.raises((StatementCancelled, DeadlineExceeded)):
        with pool.execute(SLOW, query_id="late", lease=LEASE, deadline_s=0.3) as result:
            list(result)
    wait_until(lambda: len(pool.worker_pids()) == 2, "the pool is whole")
    before = set(pool.worker_pids())
    time.sleep(3)  # longer than the grace period
    assert set(pool.worker_pids()) == before


def test_a_worker_that_stops_in_the_middle_of_a_frame_is_given_up(pool: DuckDBEngine, numbers: TableSource) -> None:
    from engines.duckdb import wire

    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(bytes([wire.Frame.BATCH, 0, 0]))
        frames = wire.Receiver(ours)
        with pytest.raises(wire.PeerGone):
            frames.receive(wait_s=5, stalled_s=0.1)
        with pytest.raises(TimeoutError):
            frames.receive(wait_s=0.1, stalled_s=0.1)


def test_tables_in_a_form_that_it_cannot_read_are_left_out(pool: DuckDBEngine, tmp_path: Path) -> None:
    pool.use_tables([TableSource("events", str(tmp_path), "avro", (Column("n", "bigint"),))])
    with pytest.raises(UnsupportedFeature, match="events"):
        run(pool, "SELECT * FROM events")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Conversion Error: Could not convert string 'x' to INT32\nLINE 1: SELECT", DataError),
        ("Conversion Error: Could not convert string 'malloc' to INT32", DataError),
        ("Out of Range Error: Overflow in multiplication", DataError),
        ("Invalid Input Error: invalid repetition size: {200}", DataError),
        ("Permission Error: no\n\nLINE 1: SELECT error('meant otherwise by Spark: x')", StatementError),
        ("Permission Error: no\n\nLINE 1: SELECT 'bad_alloc'", StatementError),
        ("Catalog Error: Scalar Function with name nope does not exist!", UnsupportedFeature),
        ("INTERNAL Error: Attempted to dereference", EngineUnavailable),
        ("INTERRUPT Error: Interrupted!", StatementCancelled),
        ("Out of Memory Error: Failed to allocate block of 67108864 bytes (bad allocation)", MemoryExceeded),
        ("std::bad_alloc", MemoryExceeded),
    ],
)
def test_errors_are_told_apart_by_their_first_words(text: str, kind: type[Exception]) -> None:
    assert type(translate(OSError(text))) is kind


def test_data_that_is_wrong_to_it_is_asked_of_another_engine(pool: DuckDBEngine, numbers: TableSource) -> None:
    with pytest.raises(DataError, match="Could not convert string 'x1' to INT32") as caught:
        run(pool, "SELECT CAST('x' || n AS INTEGER) FROM numbers WHERE n = 1")
    assert (caught.value.code, caught.value.fails_over) == ("STATEMENT_ERROR", True)


def test_what_gives_up_over_a_value_is_told_by_its_message_alone() -> None:
    quoted = "\n\nLINE 1: SELECT error('meant otherwise by Spark: a day before 1582')"
    assert "day" not in translate(OSError(f"Conversion Error: Could not convert string 'x' to INT32{quoted}")).message
    given_up = translate(OSError(f"Invalid Input Error: meant otherwise by Spark: a letter that grows{quoted}"))
    assert given_up.message == "it handles a letter that grows differently from Spark."


def test_messages_carry_no_path_of_the_server() -> None:
    told = translate(OSError('IO Error: Could not read enough bytes from file "/data/secret/x.parquet"')).message
    assert "/data" not in told
    assert "(file)" in told


def _orc(folder: Path, name: str, **columns: pa.Array) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pa_orc.write_table(pa.table(columns), folder / name)


@pytest.mark.parametrize(
    "columns",
    [
        [{"name": "n", "data_type": "no_type"}],
        [{"name": "n", "data_type": "int"}, {"name": "N", "data_type": "int"}],
        [{"name": "v", "data_type": "variant"}],
        [{"name": "v", "data_type": "array<void>"}],
    ],
)
def test_a_definition_that_cannot_be_harms_the_statements_of_its_table_alone(
    numbers: TableSource, tmp_path: Path, columns: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a gateway of another version; or a type that DuckDB lacks."""
    _written(tmp_path / "bad" / "a.parquet", [1])
    bad = TableSource("bad", str(tmp_path / "bad"), "parquet", (Column("n", "bigint"),))

    def as_told(table: TableSource) -> dict[str, Any]:
        return {**described(table), **({"columns": columns} if table.name == "bad" else {})}

    monkeypatch.setattr(process, "described", as_told)
    with contextlib.closing(DuckDBEngine(workers=1, threads=1)) as engine:
        engine.use_tables([bad, numbers])
        run(engine, "SELECT count(*) FROM numbers")
        before = engine.worker_pids()
        for _ in range(3):
            with pytest.raises(UnsupportedFeature):
                run(engine, "SELECT * FROM bad")
        assert run(engine, "SELECT count(*) FROM numbers") == 1
        assert engine.worker_pids() == before


def test_a_repeated_statement_sees_sub_folders_and_other_types_that_came(pool: DuckDBEngine, tmp_path: Path) -> None:
    sql = "SELECT n FROM t"
    _written(tmp_path / "t" / "b.parquet", [1, 2])
    pool.use_tables([TableSource("t", str(tmp_path / "t"), "parquet", (Column("n", "bigint"),))])
    for _ in range(3):
        assert run(pool, sql) == 2
    _written(tmp_path / "t" / "deeper" / "c.parquet", [3])
    _written(tmp_path / "t" / "c.parquet._COPYING_", [4])
    assert run(pool, sql) == 3
    pq.write_table(pa.table({"n": pa.array([5], pa.int32()), "m": [1]}), tmp_path / "t" / "a.parquet")
    assert run(pool, sql) == 4
    pq.write_table(pa.table({"n": [2.7]}), tmp_path / "t" / "a.parquet")
    with pytest.raises(UnsupportedFeature, match=r"the file a\.parquet of t holds double in the column n"):
        run(pool, sql)
    (tmp_path / "t" / "a.parquet").unlink()
    assert run(pool, sql) == 3


def test_orc_files_that_change_are_read_anew(pool: DuckDBEngine, tmp_path: Path) -> None:
    columns = (Column("n", "int"), Column("year", "int"))
    pool.use_tables([TableSource("events", str(tmp_path), "orc", columns, partition_columns=("year",))])
    assert run(pool, "SELECT * FROM events") == 0
    _orc(tmp_path / "year=2023", "a.orc", n=pa.array([1, 2], pa.int32()))
    _orc(tmp_path / "year=__HIVE_DEFAULT_PARTITION__", "a.orc", n=pa.array([4], pa.int32()))
    assert run(pool, "SELECT * FROM events WHERE year = 2023") == 2
    assert run(pool, "SELECT * FROM events WHERE year IS NULL") == 1
    assert "PYTHON_ARROW_SCAN" in pool.explain("SELECT n FROM events")
    _orc(tmp_path / "year=2024", "a.orc", n=pa.array([3], pa.int32()), more=pa.array(["x"]))
    assert run(pool, "SELECT * FROM Events") == 4


def test_what_reads_orc_is_loaded_with_the_first_such_table_and_is_no_statements_memory(tmp_path: Path) -> None:
    _orc(tmp_path, "a.orc", n=pa.array([1], pa.int32()))
    script = """
import socket, sys
from engines.duckdb.process import described
from engines.duckdb.worker.worker import Worker
from engines.protocol import Column, TableSource

ours, theirs = socket.socketpair()
worker = Worker(theirs, threads=1)
worker._learn([described(TableSource("events", sys.argv[1], "orc", (Column("n", "int"),)))], [])
own = [worker._own_bytes]
print("pandas" in sys.modules)
for _ in range(2):
    worker._instance_for("SELECT n FROM events")
    own.append(worker._own_bytes)
print("pandas" in sys.modules, own[0] < own[1] == own[2])
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.split() == ["False", "True", "True"]


@pytest.mark.parametrize("values", [pa.array([dt.date(1582, 10, 3)]), pa.array([253402214400000], pa.timestamp("ms"))])
def test_orc_files_that_only_spark_reads_right_are_left_to_it(
    pool: DuckDBEngine, tmp_path: Path, values: pa.Array
) -> None:
    kind = "date" if pa.types.is_date(values.type) else "timestamp"
    _orc(tmp_path, "a.orc", moment=values)
    pool.use_tables([TableSource("old", str(tmp_path), "orc", (Column("moment", kind),))])
    with pytest.raises(UnsupportedFeature, match="only Spark"):
        run(pool, "SELECT * FROM old")
    assert run(pool, "SELECT 1") == 1


def test_orc_files_that_are_none(pool: DuckDBEngine, tmp_path: Path) -> None:
    (tmp_path / "a.orc").write_bytes(b"no such thing")
    pool.use_tables([TableSource("broken", str(tmp_path), "orc", (Column("n", "int"),))])
    with pytest.raises(UnsupportedFeature, match="broken"):
        run(pool, "SELECT * FROM broken")


def test_a_worker_is_replaced_after_its_statements() -> None:
    with contextlib.closing(DuckDBEngine(workers=1, threads=1, recycle_after=2)) as engine:
        wait_until(lambda: len(engine.worker_pids()) == 1, "the worker is there")
        (first,) = engine.worker_pids()
        assert [run(engine, "SELECT 1") for _ in range(2)] == [1, 1]
        assert engine.worker_pids() == (first,)
        assert run(engine, "SELECT 1") == 1
        assert first not in engine.worker_pids()
        wait_until(lambda: not is_running(first), "the old one is gone")


def test_a_worker_that_keeps_memory_is_replaced() -> None:
    with contextlib.closing(DuckDBEngine(workers=1, threads=1, recycle_growth_bytes=1)) as engine:
        assert run(engine, "SELECT sum(range) FROM range(3000000)") == 1
        (first,) = engine.worker_pids()
        assert run(engine, "SELECT 1") == 1
        assert first not in engine.worker_pids()


def test_a_spare_worker_takes_a_lost_ones_place_at_once() -> None:
    with contextlib.closing(DuckDBEngine(workers=1, threads=1, spare=1)) as engine:
        wait_until(lambda: len(engine.worker_pids()) == 2, "both are there")
        before = engine.worker_pids()

        slow = "SELECT count(*) FROM range(100000) a, range(10000000) b WHERE a.range * b.range % 7 = 3"
        with ThreadPoolExecutor(3) as threads:
            waiting = [threads.submit(run, engine, slow, query_id=name) for name in ("slow", "guest")]
            wait_until(lambda: "2 busy" in engine.status().detail, "a place and the spare worker's are taken")
            third = threads.submit(run, engine, "SELECT 1", query_id="third")
            time.sleep(0.3)
            assert not third.done()
            for pid in before:
                kill(pid)
            for each in waiting:
                with pytest.raises(EngineUnavailable):
                    each.result(timeout=20)
            assert third.result(timeout=20) == 1


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
