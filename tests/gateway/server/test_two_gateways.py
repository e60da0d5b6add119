"""Two gateways on one metastore: none closes what the other one runs, and the dead one's is closed."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from engines.scripted import Script
from gateway.catalog.snapshot import CatalogSnapshot
from gateway.commands.command import RunnableStatement
from gateway.execution.records.query_log import GATEWAY_LOST
from gateway.planning.fairness import Requester
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.division import Budgets
from gateway.routing.admission.shares import Shares
from gateway.security.principals import Principal
from gateway.server import heartbeat
from gateway.server.app import create_app
from gateway.server.heartbeat import Heartbeat, gateway_id
from gateway.statements.statement import Run, Statement
from metastore.members.membership import TTL
from metastore.query_log.search import QueryFilter
from metastore.records import QueryRecord, QueryState
from metastore.repositories.queries import MOST_BEGUN
from metastore.store import Metastore
from tests.gateway.conftest import Scripted, serving
from tests.gateway.scripted_gateway import PLAN, ROWS
from tests.postgresql import postgresql
from tests.waiting import wait_until

Build = Callable[..., Scripted]
ANN = Principal("ann", address="127.0.0.1")
RUNNING = QueryFilter(state=QueryState.RUNNING)


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


def seen(house: Scripted, run: Run) -> None:
    """Let a client have seen rows, so that no other gateway may run the query again."""
    writer = house.gateway.metastore.queries.writer
    writer.wait(writer.keep_from_others(run.id))


def test_a_gateway_that_starts_again_closes_its_own(scripted: Build, database: str) -> None:
    first = scripted(home="again", metastore_url=database)
    first.fast.script("books", Script(steps=(ROWS, threading.Event()), plan=PLAN))
    run = first.gateway.coordinator.submit(Statement("SELECT id FROM books"))
    seen(first, run)
    restarted = scripted(home="again", metastore_url=database)
    found = restarted.gateway.metastore.queries.get(run.id)
    assert found is not None
    assert (found.state, found.error) == (QueryState.FAILED, GATEWAY_LOST)
    first.gateway.coordinator.cancel(run.id)
    assert run.done.result(timeout=30).error == GATEWAY_LOST


def test_what_a_dead_gateway_left_is_closed_by_those_that_live(scripted: Build, database: str) -> None:
    alive = scripted(home="alive", metastore_url=database)
    gone = scripted(home="gone", metastore_url=database)
    gone.fast.script("books", Script(steps=(ROWS, threading.Event()), plan=PLAN))
    run = gone.gateway.coordinator.submit(Statement("SELECT id FROM books"))
    seen(gone, run)
    gone.gateway.heartbeat.stop()  # as if it had been killed: it ends nothing
    store = alive.gateway.metastore
    for is_dead in (False, True):
        if is_dead:
            store.membership.remove(gateway_id(gone.gateway.settings.home))
        alive.gateway.heartbeat._look(0.0)
        record = store.queries.get(run.id)
        assert record is not None
        assert record.state.ended is is_dead
    gone.gateway.coordinator.cancel(run.id)
    run.done.result(timeout=30)


def test_one_that_was_taken_for_dead_ends_what_it_runs_and_joins_again(scripted: Build, database: str) -> None:
    paused = scripted(home="paused", metastore_url=database)
    other = scripted(home="other", metastore_url=database)
    paused.fast.script("books", Script(steps=(ROWS, threading.Event()), plan=PLAN))
    run = paused.gateway.coordinator.submit(Statement("SELECT id FROM books"))
    seen(paused, run)
    before = paused.gateway.metastore.membership.current
    other.gateway.metastore.membership.remove(gateway_id(paused.gateway.settings.home))
    other.gateway.heartbeat._look(0.0)
    closed = other.gateway.metastore.queries.get(run.id)
    paused.gateway.heartbeat.beat()
    assert run.done.result(timeout=30).error == GATEWAY_LOST
    assert other.gateway.metastore.queries.get(run.id) == closed
    assert paused.gateway.metastore.membership.current not in (before, None)
    paused.fast.script("books", Script(steps=(ROWS,), plan=PLAN))
    again = paused.gateway.coordinator.submit(Statement("SELECT id FROM books"))
    assert again.done.result(timeout=30).state is QueryState.FINISHED


def test_a_client_that_waits_is_told_of_the_run_of_the_other_gateway(scripted: Build, database: str) -> None:
    """A gateway that was paused has lost the statement, but the statement is not lost."""
    paused = scripted(home="waited", metastore_url=database)
    other = scripted(home="rescuer", metastore_url=database)
    for side in (paused, other):
        side.fast.script("books", Script(steps=(ROWS, threading.Event()), plan=PLAN))
    with serving(create_app(paused.gateway)) as client, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(client.post, "/v1/queries", json={"sql": "SELECT id FROM books", "wait_s": 60})
        wait_until(lambda: bool(paused.gateway.metastore.queries.search(RUNNING, limit=1)), "it runs")
        other.gateway.metastore.membership.remove(gateway_id(paused.gateway.settings.home))
        paused.gateway.heartbeat.beat()
        reply = waiting.result(timeout=30)
    assert reply.status_code == 202, reply.text
    assert reply.json()["error"] is None
    other.gateway.coordinator.cancel(reply.json()["id"])


def test_a_read_of_a_dead_gateway_runs_again_under_its_id(scripted: Build, database: str) -> None:
    other = scripted(home="taker", metastore_url=database)
    other.fast.script("books", Script(steps=(ROWS,), plan=PLAN))
    dying = scripted(home="dying", metastore_url=database)
    dying.fast.script("books", Script(steps=(ROWS, threading.Event()), plan=PLAN))
    run = dying.gateway.coordinator.submit(Statement("SELECT id FROM books", principal=ANN, tags=("nightly",)))
    wait_until(lambda: bool(run.record.decision), "it runs")
    dying.gateway.heartbeat._take_over = lambda: None  # back again, it might be the first to run its own read
    other.gateway.metastore.membership.remove(gateway_id(dying.gateway.settings.home))

    def ended() -> bool:
        record = other.gateway.metastore.queries.get(run.id)
        return record is not None and record.state.ended

    wait_until(ended, "another gateway has its rows", 20)
    record = other.gateway.metastore.queries.get(run.id)
    assert record is not None
    assert record.state is QueryState.FINISHED, record.error
    assert [(attempt.state, attempt.failure) for attempt in record.attempts[-1:]] == [(QueryState.FINISHED, None)]
    assert {attempt.failure for attempt in record.attempts[:-1]} <= {GATEWAY_LOST.code}
    assert other.gateway.spool.page(run.id, max_rows=9).batches
    assert run.done.result(timeout=30).error == GATEWAY_LOST  # it noticed, and has ended its own run
    assert other.gateway.metastore.queries.get(run.id) == record


def test_a_command_of_a_dead_gateway_is_not_run_later(
    scripted: Build, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sent it may have looked meanwhile, and sent it again."""
    other = scripted(home="careful", metastore_url=database)
    dying = scripted(home="unbegun", metastore_url=database)
    coordinator, unread = dying.gateway.coordinator, threading.Event()
    classify = coordinator._reader.classify

    def wait_and_classify(statement: Statement, requester: Requester) -> tuple[CatalogSnapshot, RunnableStatement]:
        unread.wait(60)
        return classify(statement, requester)

    monkeypatch.setattr(coordinator._reader, "classify", wait_and_classify)
    run = coordinator.start(Statement("CREATE VIEW late AS SELECT id FROM books", principal=ANN))
    coordinator.require_on_record(run)
    dying.gateway.heartbeat._take_over = lambda: None
    other.gateway.metastore.membership.remove(gateway_id(dying.gateway.settings.home))

    def ended() -> QueryRecord | None:
        record = other.gateway.metastore.queries.get(run.id)
        return record if record is not None and record.state.ended else None

    wait_until(lambda: ended() is not None, "another gateway has ended it", 20)
    record = ended()
    assert record is not None
    assert record.error is not None
    assert (record.error.code, "Nothing was changed" in record.error.message) == (GATEWAY_LOST.code, True)
    unread.set()
    run.done.result(timeout=30)
    assert ended() == record
    assert "late" not in {view.name for view in other.gateway.metastore.views.list()}


def is_taken(metastore: Metastore, query_id: str) -> bool:
    """Take what there is, and tell whether a query was among it: not while its own gateway writes its row."""
    orphans = metastore.queries.take_over(most=99, error=GATEWAY_LOST)
    return query_id in {orphan.record.id for orphan in orphans}


def test_a_query_that_its_gateways_die_of_is_not_begun_again_and_again(scripted: Build, database: str) -> None:
    house = scripted(home="first of many", metastore_url=database)
    house.fast.script("books", Script(steps=(ROWS, threading.Event()), plan=PLAN))
    run = house.gateway.coordinator.submit(Statement("SELECT id FROM books", principal=ANN))
    queries = house.gateway.metastore.queries
    house.gateway.heartbeat.stop()
    for _ in range(MOST_BEGUN - 1):
        with Metastore(database) as next_one:
            next_one.membership.remove(gateway_id(house.gateway.settings.home))
            next_one.membership.join("next")
            wait_until(partial(is_taken, next_one, run.id), "it is taken")
    with Metastore(database) as last:
        last.membership.join("last")
        assert last.queries.take_over(most=99, error=GATEWAY_LOST) == ()
        assert run.id in last.queries.close_orphans(at=dt.datetime.now(dt.UTC), error=GATEWAY_LOST)
    house.gateway.coordinator.cancel(run.id)
    assert run.done.result(timeout=30).error is not None
    assert queries.get(run.id) is not None


def test_a_metastore_that_is_away_for_a_while_makes_nobody_dead(scripted: Build) -> None:
    with postgresql() as server:
        houses = [scripted(home=name, metastore_url=server.url) for name in ("left", "right")]
        go_on = threading.Event()
        houses[0].fast.script("books", Script(steps=(ROWS, go_on), plan=PLAN))
        run = houses[0].gateway.coordinator.submit(Statement("SELECT id FROM books", principal=ANN))
        wait_until(lambda: bool(run.record.decision), "it runs")
        before = [house.gateway.metastore.membership.current for house in houses]
        server.stop()
        time.sleep(TTL.total_seconds() + 1)
        server.start()

        def renewed() -> bool:
            members = {member.id for member in houses[1].gateway.metastore.membership.members()}
            return members == set(before)

        wait_until(lambda: all(house.gateway.metastore.membership.renew() for house in houses), "both are back", 20)
        time.sleep(heartbeat.LOOK_S * 2)
        assert renewed()
        go_on.set()
        assert run.done.result(timeout=30).state is QueryState.FINISHED
        record = houses[1].gateway.metastore.queries.get(run.id)
        assert record is not None and record.state is QueryState.FINISHED
        assert len(record.attempts) == 1
        for house in houses:
            house.gateway.heartbeat.stop()


class Members:
    """A membership over a metastore that answers now and then. every: renewals until one is lost; 0 for none."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.signs = 0
        self.judged = 0

    def join(self, name: str, address: str, *, solo: bool = False) -> str:
        return name

    tells_news = True
    current = None

    def renew(self, _: object, *, is_leaving: bool) -> bool:
        self.signs += 1
        if self.every and self.signs % self.every == 0:
            raise OperationalError("gone", {}, Exception("gone"))
        return True

    def remove_silent(self) -> tuple[str, ...]:
        self.judged += 1
        return ()


class NoNews:
    """Tells nothing."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


@pytest.mark.parametrize(("every", "judges"), [(0, True), (5, False)])
def test_nobody_is_judged_until_the_metastore_has_answered_for_long_enough(
    every: int, judges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "TTL", dt.timedelta(seconds=0.2))
    monkeypatch.setattr(heartbeat, "LOOK_S", 0.0)
    monkeypatch.setattr(heartbeat, "News", lambda *_: NoNews())
    members = Members(every)
    admission = Admission([])
    shares = Shares(admission, Budgets({}, admission.pools, frozenset()), "home")
    heart = Heartbeat(
        "one",
        members,  # type: ignore[arg-type]  # has what it needs
        solo=False,
        shares=shares,
        wanted=threading.Event(),
        take_over=list,
        every_s=0.02,
    )
    heart.start()
    heart.look()
    wait_until(lambda: members.signs >= 20, "twenty signs")
    heart.stop()
    assert bool(members.judged) is judges


def test_a_home_keeps_its_name(tmp_path: Path) -> None:
    names = {gateway_id(tmp_path) for _ in range(2)}
    (tmp_path / "other").mkdir()
    assert len(names | {gateway_id(tmp_path / "other")}) == 2
    assert (tmp_path / "gateway.id").stat().st_mode & 0o777 == 0o600
