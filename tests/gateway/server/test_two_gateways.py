"""Two gateways on one metastore: none closes what the other one runs, and the dead one's is closed."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from engines.scripted import Script
from gateway.execution.query_log import GATEWAY_STOPPED
from gateway.server.heartbeat import Heartbeat, gateway_id
from gateway.statements.statement import Statement
from metastore.records import QueryState
from metastore.repositories.gateways import SILENCE
from tests.gateway.conftest import Scripted
from tests.gateway.scripted_gateway import PLAN, ROWS
from tests.postgresql import postgresql
from tests.waiting import wait_until

Build = Callable[..., Scripted]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgresql() as server:
        yield server.url


def test_a_gateway_that_starts_leaves_what_another_one_runs(scripted: Build, database: str, tmp_path: Path) -> None:
    first = scripted(home="first", metastore_url=database)
    go_on = threading.Event()
    first.fast.script("books", Script(steps=(ROWS, go_on), plan=PLAN))
    run = first.gateway.coordinator.submit(Statement("SELECT id FROM books"))
    writer = first.gateway.metastore
    staged = tmp_path / "table"
    writer.commits.begin(run.id, str(staged), at=dt.datetime.now(dt.UTC))

    second = scripted(home="second", metastore_url=database)
    seen = second.gateway.metastore.queries.get(run.id)
    assert seen is not None
    assert not seen.state.ended
    assert [commit.query_id for commit in second.gateway.metastore.commits.list(str(staged))] == [run.id]

    go_on.set()
    assert run.done.result(timeout=30).state is QueryState.FINISHED
    writer.commits.end(run.id)


def test_a_gateway_that_starts_again_closes_its_own(scripted: Build, database: str) -> None:
    first = scripted(home="again", metastore_url=database)
    first.fast.script("books", Script(steps=(ROWS, threading.Event()), plan=PLAN))
    run = first.gateway.coordinator.submit(Statement("SELECT id FROM books"))
    restarted = scripted(home="again", metastore_url=database)
    found = restarted.gateway.metastore.queries.get(run.id)
    assert found is not None
    assert (found.state, found.error) == (QueryState.FAILED, GATEWAY_STOPPED)
    first.gateway.coordinator.cancel(run.id)
    assert run.done.result(timeout=30).error == GATEWAY_STOPPED  # as it is on record


def test_what_a_dead_gateway_left_is_closed_by_those_that_live(scripted: Build, database: str) -> None:
    alive = scripted(home="alive", metastore_url=database)
    gone = scripted(home="gone", metastore_url=database)
    gone.fast.script("books", Script(steps=(ROWS, threading.Event()), plan=PLAN))
    run = gone.gateway.coordinator.submit(Statement("SELECT id FROM books"))
    gone.gateway.heartbeat._stopped.set()  # as if it had been killed: it ends nothing
    store = alive.gateway.metastore
    name = gateway_id(gone.gateway.settings.home)
    just_now = dt.datetime.now(dt.UTC)
    for silent_for, closed in ((SILENCE / 2, False), (2 * SILENCE, True)):
        store.gateways.seen(name, at=just_now - silent_for)
        alive.gateway.heartbeat._close_dead()
        found = store.queries.get(run.id)
        assert found is not None
        assert found.state.ended is closed
    gone.gateway.coordinator.cancel(run.id)
    run.done.result(timeout=30)


class Answers:
    """A metastore that answers now and then. every: how many signs come until one is lost; 0 for none."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.signs = 0

    def seen(self, gateway: str, *, at: dt.datetime) -> None:
        self.signs += 1
        if self.every and self.signs % self.every == 0:
            raise OperationalError("gone", {}, Exception("gone"))

    def forget(self, gateway: str) -> None:
        pass


@pytest.mark.parametrize(("every", "judges"), [(0, True), (2, False)])
def test_nobody_is_judged_while_the_metastore_was_away(every: int, judges: bool) -> None:
    answers, judged = Answers(every), threading.Event()
    heart = Heartbeat("one", answers, judged.set, every_s=0.01)  # type: ignore[arg-type]  # has what it needs
    heart.start()
    wait_until(lambda: answers.signs >= 10, "ten signs")
    heart.stop()
    assert judged.is_set() is judges


def test_a_home_keeps_its_name(tmp_path: Path) -> None:
    names = {gateway_id(tmp_path) for _ in range(2)}
    (tmp_path / "other").mkdir()
    assert len(names | {gateway_id(tmp_path / "other")}) == 2
    assert (tmp_path / "gateway.id").stat().st_mode & 0o777 == 0o600
