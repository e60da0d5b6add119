"""The spool: a small result is in memory as it is kept, and is kept with other small ones in a database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from gateway.errors import ResultGone, ResultStoreFull
from gateway.execution.spooling.results import HELD_BYTES, Spool
from gateway.execution.spooling.small_results import SMALL_BYTES, SmallResults

TEXTS = pa.table({"n": range(100), "text": [f"{number} ü" for number in range(100)]})


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "results", limit_bytes=1 << 30, row_bytes=1 << 20)


@pytest.mark.parametrize("rows", [TEXTS, TEXTS[:0], TEXTS.select([])], ids=["some", "none", "no columns"])
def test_a_small_result_is_held_as_it_is_kept(spool: Spool, rows: pa.Table) -> None:
    written = spool.write("q", pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=40)))
    assert written.held is not None
    held = pa.Table.from_batches(written.held.batches, written.held.schema)
    assert held == pa.ipc.open_stream(written.held.content).read_all()
    with spool.open("q") as result:
        assert held == pa.Table.from_batches(result, result.schema)
    assert [(query_id, size) for _, query_id, size in spool._small.sizes()] == [("q", written.bytes)]
    assert written.rows == rows.num_rows


def test_a_few_rows_of_many_are_held_without_the_others(spool: Spool) -> None:
    many = pa.record_batch({"n": pa.array(range(HELD_BYTES), pa.int64())})
    few = many.slice(1_000, 10)
    assert few.get_total_buffer_size() > 2 * HELD_BYTES
    written = spool.write("q", pa.RecordBatchReader.from_batches(few.schema, [few]))
    assert written.held is not None
    assert [batch.to_pydict() for batch in written.held.batches] == [few.to_pydict()]
    assert sum(batch.get_total_buffer_size() for batch in written.held.batches) < HELD_BYTES


def test_text_that_is_not_utf8_is_kept_as_text_that_is(spool: Spool) -> None:
    wrong = pa.array([b"a\xff", None, b"\xed\xa0\x80", b"ok"]).view(pa.string())
    offsets = pa.array([0, 1, None, 4], pa.int32())
    batch = pa.record_batch(
        {
            "text": wrong.slice(1),
            "list": pa.ListArray.from_arrays(offsets, wrong),
            "map": pa.MapArray.from_arrays(offsets, pa.array(["k", "l", "m", "n"]), wrong),
            "part": pa.StructArray.from_arrays([wrong], ["x"]).slice(1),
            "none": pa.array([None, None, None], pa.string()),
        }
    )
    three = "\ufffd" * 3

    spool.write("1", pa.RecordBatchReader.from_batches(batch.schema, [batch]))

    with spool.open("1") as result:
        (rows,) = result
        rows.validate(full=True)
        assert rows.to_pydict() == {
            "text": [None, three, "ok"],
            "list": [["a\ufffd"], [None, three, "ok"], None],
            "map": [[("k", "a\ufffd")], [("l", None), ("m", three), ("n", "ok")], None],
            "part": [{"x": None}, {"x": three}, {"x": "ok"}],
            "none": [None, None, None],
        }


@pytest.mark.parametrize("size", [SMALL_BYTES // 2, 2 * SMALL_BYTES, 2 * HELD_BYTES], ids=["small", "held", "large"])
def test_wherever_a_result_is_kept_it_is_found_shared_and_deleted(spool: Spool, size: int) -> None:
    rows = pa.table({"text": ["x" * size]})
    written = spool.write("q", rows.to_reader())
    assert spool.path("q").exists() is (size > SMALL_BYTES)
    spool.share(written, spool.keep("q", written), "other")
    spool.delete("q")
    assert (spool.has("q"), spool.has("other")) == (False, True)
    assert {query_id for query_id, _ in spool.sizes()} == {"other"}
    with pytest.raises(ResultGone), spool.open("q"):
        pass
    with spool.open("other") as result:
        assert pa.Table.from_batches(result, result.schema) == rows
    assert spool.expire(older_than_s=-1) == 1
    assert not spool.has("other")


@pytest.fixture
def small(tmp_path: Path) -> SmallResults:
    return SmallResults(tmp_path / "results.db")


def test_several_processes_and_threads_share_small_results(small: SmallResults, tmp_path: Path) -> None:
    other = SmallResults(tmp_path / "results.db")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: (small, other)[n % 2].put(f"q{n}", b"%d" % n), range(400)))
    assert [(other, small)[n % 2].get(f"q{n}") for n in range(400)] == [b"%d" % n for n in range(400)]
    assert other.delete([f"q{n}" for n in range(0, 800, 2)]) == 200
    assert len(small.sizes()) == 200


def test_a_full_disk_is_told_and_what_was_there_stays(small: SmallResults) -> None:
    small.put("there", b"rows")
    small._connection.execute("PRAGMA max_page_count = 30")
    with pytest.raises(ResultStoreFull, match="full"):
        for number in range(30):
            small.put(f"q{number}", b"x" * SMALL_BYTES)
    assert small.get("there") == b"rows"
    kept = len(small.sizes())
    assert small.delete([query_id for _, query_id, _ in small.sizes()]) == kept
    small.put("next", b"rows")
    assert small.get("next") == b"rows"


def test_what_was_told_to_be_kept_is_there_after_a_kill(tmp_path: Path) -> None:
    writes = """
import itertools, sys
from pathlib import Path
from gateway.execution.spooling.small_results import SmallResults
small = SmallResults(Path(sys.argv[1]))
for number in itertools.count():
    small.put(f"q{number}", b"%d" % number * 1_000)
    print(number, flush=True)
"""
    command = [sys.executable, "-c", writes, str(tmp_path / "results.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[4]) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(50)]
        time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        told += map(int, process.stdout)
    small = SmallResults(tmp_path / "results.db")
    assert all(small.get(f"q{number}") == b"%d" % number * 1_000 for number in told)


def test_a_database_that_cannot_be_read_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    path.write_bytes(b"no database" * 1_000)
    log = path.with_name("results.db-wal")
    log.write_bytes(b"no log" * 1_000)
    small = SmallResults(path)
    assert b"no log" not in log.read_bytes()
    small.put("q", b"rows")
    assert small.get("q") == b"rows"
    assert path.with_name("results.db.broken").read_bytes() == b"no database" * 1_000


def test_space_is_given_back(small: SmallResults, tmp_path: Path) -> None:
    for number in range(100):
        small.put(f"q{number}", b"x" * SMALL_BYTES)
    small._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before_bytes = (tmp_path / "results.db").stat().st_size
    assert small.expire(time.time() + 1) == 100
    small._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert (tmp_path / "results.db").stat().st_size < before_bytes / 10


def test_two_processes_write_the_same_query_into_files_of_their_own(tmp_path: Path) -> None:
    """One that was paused goes on to write what another one has taken over."""
    one, other = (Spool(tmp_path / "results", limit_bytes=1 << 20, row_bytes=1 << 20) for _ in range(2))
    paths = {spool.unfinished("20260131_235959_1a2b3c4d5e") for spool in (one, other)}
    assert len(paths) == 2
    for path in paths:
        path.write_bytes(b"rows")
    assert one.keep_only(frozenset()) == 2
