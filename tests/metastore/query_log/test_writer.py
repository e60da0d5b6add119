"""Writing for many queries at once: who waits is told when it is durable, and what cannot be written harms no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from metastore.database.connection import make_engine
from metastore.query_log import writer as module
from metastore.query_log.writer import QueryWriter
from metastore.records import Attempt, QueryState
from metastore.store import Metastore
from selector.decision import Decision
from selector.estimate import UNKNOWN
from tests.metastore.examples import MINUTE, NOON, query

DECISION = Decision("duckdb", ("duckdb",), (), UNKNOWN, None)
ATTEMPT = Attempt(1, "duckdb", QueryState.RUNNING, NOON)
DONE = replace(ATTEMPT, state=QueryState.FINISHED, wall_s=1.0, rows=3)


def told(store: Metastore) -> tuple[QueryWriter, list[str]]:
    """Return the writer, and the statements that it sends from now on."""
    sent: list[str] = []
    engine: Engine = store._engine
    event.listen(engine, "before_cursor_execute", lambda *arguments: sent.append(arguments[2].split()[0]))
    return store.queries.writer, sent


def live(writer: QueryWriter, name: str) -> bool:
    """Write a query's whole life, and wait for its end alone."""
    writer.open(query(name))
    writer.decided(name, fingerprint="f", template="t", statistics_version="", decision=DECISION, first=ATTEMPT)
    return writer.wait(writer.close(name, QueryState.FINISHED, at=NOON + MINUTE, attempt=DONE, rows=3))


def test_a_short_life_is_a_row_of_each_table_that_is_inserted_once(store: Metastore) -> None:
    writer, sent = told(store)
    assert live(writer, "q1")
    assert sent == ["INSERT", "INSERT"]
    record = store.queries.get("q1")
    assert record is not None
    assert (record.state, record.rows, record.attempts) == (QueryState.FINISHED, 3, (DONE,))
    assert record.decision == DECISION


def test_what_nobody_waits_for_is_written_soon(store: Metastore) -> None:
    store.queries.writer.open(query("q1")).result(timeout=30)
    assert store.queries.get("q1") == query("q1")


def test_what_nobody_waits_for_is_not_written_with_what_somebody_does(
    store: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINGER_S", 2.0)
    writer, _ = told(store)
    left = writer.open(query("left"))
    assert not writer.wait(writer.open(query("wanted")))  # it has not ended
    assert live(writer, "ended")
    assert (store.queries.get("left"), left.done()) == (None, False)
    assert {record.id for record in store.queries.search(limit=9)} == {"wanted", "ended"}
    assert live(writer, "left")
    assert left.done()


def test_the_end_of_a_query_that_was_written_before_is_one_update(store: Metastore) -> None:
    writer, sent = told(store)
    writer.wait(writer.open(query("q1")))
    writer.decided("q1", fingerprint="f", template="t", statistics_version="", decision=DECISION, first=ATTEMPT)
    assert writer.wait(writer.close("q1", QueryState.FINISHED, at=NOON + MINUTE, attempt=DONE, rows=3))
    assert sent == ["INSERT", "INSERT", "UPDATE"]
    record = store.queries.get("q1")
    assert record is not None
    assert (record.state, record.rows, record.fingerprint, record.attempts) == (QueryState.FINISHED, 3, "f", (DONE,))


@pytest.mark.parametrize("closes", [True, False])
def test_a_query_that_others_have_ended_stays_as_it_ended(store: Metastore, closes: bool) -> None:
    writer = store.queries.writer
    writer.wait(writer.open(query("q1")))
    assert writer.wait(writer.close("q1", QueryState.CANCELLED, at=NOON))
    begins = writer.decided(
        "q1", fingerprint="f", template="t", statistics_version="", decision=DECISION, first=ATTEMPT
    )
    if closes:
        assert not writer.wait(writer.close("q1", QueryState.FINISHED, at=NOON + MINUTE, attempt=DONE, rows=3))
    writer.wait(begins)
    record = store.queries.get("q1")
    assert record is not None
    assert (record.state, record.finished_at, record.rows) == (QueryState.CANCELLED, NOON, None)
    assert (record.fingerprint, record.attempts) == ("f", (DONE if closes else ATTEMPT,))


def test_many_at_once_share_transactions_and_each_is_whole(store: Metastore) -> None:
    writer, sent = told(store)
    names = [f"q{number}" for number in range(64)]
    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(lambda name: live(writer, name), names))
    assert store.queries.with_results(names) == (frozenset(names), frozenset())
    assert len(sent) < 2 * len(names)


def test_what_cannot_be_written_harms_no_other(store: Metastore) -> None:
    writer = store.queries.writer
    writer.wait(writer.open(query("q1")))
    again, other = writer.open(query("q1")), writer.open(query("q2"))
    assert writer.wait(other) is False
    with pytest.raises(SQLAlchemyError):
        again.result(timeout=30)
    assert store.queries.get("q2") == query("q2")


def test_while_the_database_is_away_the_new_fail_at_once_and_the_rest_is_tried_again(store: Metastore) -> None:
    writer = store.queries.writer
    writer.wait(writer.open(query("q1")))
    away = True

    def fail(*_: object) -> None:
        if away:
            raise OperationalError("BEGIN", None, ConnectionError("away"))

    event.listen(store._engine, "begin", fail)
    ended = writer.close("q1", QueryState.FINISHED, at=NOON, rows=1)
    with pytest.raises(OperationalError):
        writer.wait(writer.open(query("q2")))
    assert not ended.done()
    away = False
    assert writer.wait(ended)
    assert live(writer, "q3")
    assert store.queries.get("q2") is None


def test_what_was_tried_for_long_enough_fails(store: Metastore) -> None:
    writer = store.queries.writer
    writer.wait(writer.open(query("q1")))
    writer.retry_s = 0.2

    def fail(*_: object) -> None:
        raise OperationalError("BEGIN", None, ConnectionError("away"))

    event.listen(store._engine, "begin", fail)
    with pytest.raises(OperationalError):
        writer.wait(writer.close("q1", QueryState.FINISHED, at=NOON))
    event.remove(store._engine, "begin", fail)


def test_a_stop_writes_what_is_left(store: Metastore, url: str) -> None:
    store.queries.writer.open(query("q1"))
    store.queries.writer.stop()
    other = make_engine(url)
    with other.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM queries")) == 1
    other.dispose()


KILLED = """
import os, signal, sys
from metastore.store import Metastore
from tests.metastore.examples import query
from tests.metastore.query_log.test_writer import live
store = Metastore(sys.argv[1])
for number in range(10_000):
    name = f"q{number}"
    writer = store.queries.writer
    writer.wait(writer.open(query(name)))
    os.write(1, f"open {name}\\n".encode())
    assert live(writer, "life " + name)
    os.write(1, f"ended {name}\\n".encode())
"""


def test_nothing_that_was_told_is_lost_when_the_process_is_killed(store: Metastore, url: str) -> None:
    lines = []
    with subprocess.Popen([sys.executable, "-c", KILLED, url], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            lines.append(line.split())
            if len(lines) == 60:
                os.kill(child.pid, signal.SIGKILL)
    assert len(lines) >= 60
    for what, name in lines:
        record = store.queries.get(name if what == "open" else f"life {name}")
        assert record is not None
        assert record.state is (QueryState.QUEUED if what == "open" else QueryState.FINISHED)
