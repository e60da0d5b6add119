"""Admission, circuit breaker, spool and settings by themselves."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import ValidationError

from engines.duckdb.adapter import DuckDBSettings
from engines.errors import EngineUnavailable
from engines.protocol import Lease
from engines.scripted import Script, ScriptedEngine
from gateway import settings as settings_module
from gateway.errors import ResultGone, ResultStoreFull
from gateway.execution.spooling.results import HELD_BYTES, Spool
from gateway.execution.spooling.small_results import SMALL_BYTES
from gateway.routing.circuit_breaker import TRIAL_S, CircuitBreaker

MIB = 1 << 20


def never() -> bool:
    return False


def lose(breaker: CircuitBreaker) -> None:
    with pytest.raises(EngineUnavailable), breaker.watched():
        raise EngineUnavailable("lost")


def test_the_breaker_opens_rests_and_tries_again() -> None:
    breaker = CircuitBreaker(failures_to_open=2, open_s=0.2)
    lose(breaker)
    assert breaker.why_open() is None
    lose(breaker)
    assert "failed 2 times in a row" in (breaker.why_open() or "")
    with pytest.raises(EngineUnavailable, match="left alone"), breaker.watched():
        pytest.fail("it was let in")
    time.sleep(0.25)
    assert breaker.why_open() is None
    lose(breaker)  # the one that tried
    assert breaker.why_open() is not None
    time.sleep(0.25)
    with breaker.watched():
        pass
    lose(breaker)
    assert breaker.why_open() is None


def test_after_a_rest_one_statement_tries_and_others_wait_for_what_it_finds() -> None:
    breaker = CircuitBreaker(failures_to_open=1, open_s=0.1)
    lose(breaker)
    time.sleep(0.15)
    let_in: list[int] = []

    def enter(number: int) -> None:
        with breaker.watched():
            let_in.append(number)

    with breaker.watched(), ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(enter, number) for number in range(4)]
        time.sleep(0.2)
        assert let_in == []
        assert "one statement tries it" in (breaker.why_open() or "")
        assert 0 < breaker.open_for_s() <= TRIAL_S
        breaker._record_outcome(None)  # the one that tried is well
        for one in waiting:
            one.result(timeout=10)
    assert sorted(let_in) == [0, 1, 2, 3]


def test_who_waited_for_a_trial_that_failed_is_told_so() -> None:
    breaker = CircuitBreaker(failures_to_open=1, open_s=0.1)
    lose(breaker)
    time.sleep(0.15)
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(EngineUnavailable), breaker.watched():
            waiting = pool.submit(lose, breaker)
            time.sleep(0.1)
            raise EngineUnavailable("lost again")
        waiting.result(timeout=10)
    assert "failed 2 times in a row" in (breaker.why_open() or "")


def test_a_long_trial_does_not_keep_others_out() -> None:
    breaker = CircuitBreaker(failures_to_open=1, open_s=0.1, trial_s=0.2)
    lose(breaker)
    time.sleep(0.15)
    with breaker.watched(), ThreadPoolExecutor(1) as pool:
        pool.submit(lose, breaker).result(timeout=10)
    assert breaker.why_open() is None


BATCH = pa.RecordBatch.from_pydict({"id": [1, 2, 3]})
LARGE_BATCH = pa.RecordBatch.from_pydict({"text": ["x" * SMALL_BYTES]})


def spooled(spool: Spool, query_id: str, script: Script) -> None:
    engine = ScriptedEngine()
    engine.script("select", script)
    with engine.execute("select", query_id=query_id, lease=Lease(1), deadline_s=5) as stream:
        spool.write(query_id, stream)


def test_a_result_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "results", limit_bytes=MIB, row_bytes=MIB)
    with pytest.raises(EngineUnavailable):
        spooled(spool, "half", Script(steps=(BATCH, EngineUnavailable("lost"))))
    assert spool.query_ids() == frozenset()
    spooled(spool, "whole", Script(steps=(BATCH, BATCH)))
    page = spool.page("whole", max_rows=4)
    assert ([batch.num_rows for batch in page.batches], page.truncated) == ([3, 1], True)
    assert not spool.page("whole", max_rows=6).truncated
    with pytest.raises(ResultGone):
        spool.page("half", max_rows=1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize(
    ("rows", "file"), [(SMALL_BYTES // 8, "whole"), (HELD_BYTES, "unfinished")], ids=["in memory", "streamed"]
)
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, rows: int, file: str) -> None:
    spool = Spool(tmp_path / "results", limit_bytes=MIB, row_bytes=MIB)
    path = spool.unfinished("q") if file == "unfinished" else spool.path("q")
    path.symlink_to("/dev/full")
    with pytest.raises(ResultStoreFull, match="No space left"):
        spooled(spool, "q", Script(steps=(pa.RecordBatch.from_pydict({"id": list(range(rows))}),)))
    assert spool.query_ids() == frozenset()


def test_results_expire(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "results", limit_bytes=MIB, row_bytes=MIB)
    for query_id in ("old", "new"):
        spooled(spool, query_id, Script(steps=(LARGE_BATCH,)))
    hour_ago = time.time() - 3600
    os.utime(spool.path("old"), (hour_ago, hour_ago))
    assert spool.expire(older_than_s=60) == 1
    assert spool.query_ids() == {"new"}


def test_settings_come_from_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fusion.toml").write_text(
        '[duckdb]\nmemory_limit = "384 MiB"\nworkers = 3\n[server]\nport = 1234\n', encoding="utf-8"
    )
    monkeypatch.setenv("FUSION_DUCKDB__WORKERS", "5")
    loaded = settings_module.load(tmp_path)
    assert loaded.section(DuckDBSettings).memory_limit == 384 * MIB
    assert (loaded.section(DuckDBSettings).workers, loaded.server.port, loaded.server.host) == (5, 1234, "127.0.0.1")
    assert loaded.metastore_url == f"sqlite:///{tmp_path / 'metastore.db'}"


@pytest.mark.parametrize(
    "text",
    ["[duckdb]\nworker = 3\n", "[duckdb]\nworkers = 0\n", '[duckdb]\nmemory_limit = "much"\n', "[nothing]\nx = 1\n"],
)
def test_wrong_settings_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "fusion.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ValidationError):
        settings_module.load(tmp_path)


def test_a_secret_does_not_show(tmp_path: Path) -> None:
    (tmp_path / "fusion.toml").write_text('[metastore]\nurl = "postgresql://me:hunter2@db/x"\n', encoding="utf-8")
    assert "hunter2" not in repr(settings_module.load(tmp_path))
