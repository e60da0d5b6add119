"""The engine that the other rooms' tests rely on."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from engines.errors import (
    DeadlineExceeded,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
    StatementError,
)
from engines.protocol import Actuals, Engine, EngineKind, EngineStatus
from engines.scripted import Asked, Pause, Script, ScriptedEngine, ScriptedResult
from sql.tables import Column, TableSource
from tests.engines.conformance import LEASE, SOON_S, ask, run

ONE = pa.record_batch({"n": [1, 2]})
TWO = pa.record_batch({"n": [3]})


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine("fast", kind=EngineKind.FAST)


def test_is_an_engine(engine: ScriptedEngine) -> None:
    assert isinstance(engine, Engine)
    checked: Engine = engine
    assert checked.name == "fast"


def test_rows_come_back(engine: ScriptedEngine) -> None:
    engine.script("orders", Script(steps=(ONE, TWO)))
    assert ask(engine, "SELECT n FROM Orders")["n"].to_pylist() == [1, 2, 3]
    assert engine.open_results == 0


def test_remembers_what_it_was_asked(engine: ScriptedEngine) -> None:
    tables = [TableSource("t", "/data/t", "parquet", (Column("n", "bigint"),))]
    engine.use_tables(tables)
    engine.script("", Script(steps=(ONE,), plan="a plan"))
    ask(engine, "SELECT 1", query_id="q1", deadline_s=5.0)
    assert engine.explain("SELECT 2") == "a plan"
    engine.cancel("q1")
    assert engine.tables == tuple(tables)
    assert engine.asked == [Asked("SELECT 1", "q1", LEASE, 5.0)]
    assert engine.explained == ["SELECT 2"]
    assert engine.cancelled == ["q1"]


def test_scripts_follow_one_another_and_the_last_repeats(engine: ScriptedEngine) -> None:
    engine.script("t", Script(before=(MemoryExceeded("full", peak_bytes=7),)), Script(steps=(ONE,)))
    with pytest.raises(MemoryExceeded) as caught:
        ask(engine, "SELECT * FROM t")
    assert caught.value.peak_bytes == 7
    for _ in range(2):
        assert ask(engine, "SELECT * FROM t").num_rows == 2
    assert engine.open_results == 0


def test_text_given_last_counts(engine: ScriptedEngine) -> None:
    engine.script("", Script(steps=(ONE,)))
    engine.script("special", Script(steps=(TWO,)))
    assert ask(engine, "SELECT special").num_rows == 1
    assert ask(engine, "SELECT usual").num_rows == 2


def test_unknown_statement_is_wrong(engine: ScriptedEngine) -> None:
    for ask_it in (lambda: ask(engine, "SELECT 1"), lambda: engine.explain("SELECT 1")):
        with pytest.raises(StatementError):
            ask_it()


@pytest.mark.parametrize(("batches", "rows"), [((), 0), ((ONE,), 2), ((ONE, TWO), 3)])
def test_error_after_some_batches(engine: ScriptedEngine, batches: tuple[pa.RecordBatch, ...], rows: int) -> None:
    engine.script("", Script(steps=(*batches, MemoryExceeded("full")), schema=ONE.schema))
    with run(engine, "SELECT 1") as result:
        assert result.schema == ONE.schema
        read = 0
        with pytest.raises(MemoryExceeded):
            for batch in result:
                read += batch.num_rows
    assert read == rows
    assert engine.open_results == 0


def test_tells_what_the_run_took(engine: ScriptedEngine) -> None:
    engine.script("", Script(steps=(ONE,), actuals=Actuals(peak_bytes=42)))
    with run(engine, "SELECT 1") as result:
        list(result)
        assert result.actuals.peak_bytes == 42


@pytest.mark.parametrize(
    "script",
    [
        Script(before=(Pause.UNTIL_ENDED,)),
        Script(steps=(Pause.UNTIL_ENDED,)),
        Script(steps=(ONE, Pause.UNTIL_ENDED)),
        Script(steps=(threading.Event(),)),
    ],
)
def test_endless_statement_can_be_cancelled_or_late(engine: ScriptedEngine, script: Script) -> None:
    engine.script("", script)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, engine, "SELECT 1", query_id="q1")
        time.sleep(0.05)
        assert not asked.done()
        engine.cancel("q1")
        with pytest.raises(StatementCancelled):
            asked.result(timeout=SOON_S)
    with pytest.raises(DeadlineExceeded):
        ask(engine, "SELECT 1", deadline_s=0.05)
    assert engine.open_results == 0


def test_event_lets_a_statement_go_on(engine: ScriptedEngine) -> None:
    go_on = threading.Event()
    engine.script("", Script(steps=(go_on, ONE)))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, engine, "SELECT 1")
        time.sleep(0.05)
        assert not asked.done()
        assert engine.open_results == 1
        go_on.set()
        assert asked.result(timeout=SOON_S).num_rows == 2


def test_closed_result_has_no_more_rows(engine: ScriptedEngine) -> None:
    engine.script("", Script(steps=(ONE, TWO)))
    result: ScriptedResult = engine.execute("SELECT 1", query_id="q1", lease=LEASE, deadline_s=1.0)
    next(result)
    result.close()
    result.close()
    assert next(result, None) is None
    assert engine.open_results == 0


def test_status_and_close(engine: ScriptedEngine) -> None:
    assert engine.status().alive
    engine.reported_status = EngineStatus(alive=False, detail="on fire")
    assert engine.status().detail == "on fire"
    engine.close()
    engine.close()
    assert not engine.status().alive
    with pytest.raises(EngineUnavailable):
        ask(engine, "SELECT 1")
