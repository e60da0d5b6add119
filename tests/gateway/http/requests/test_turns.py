"""Requests that take a thread wait for their user's turn, and end once nobody waits for them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from engines.errors import DeadlineExceeded, StatementCancelled
from engines.running_statement import Deadline, require_time, within
from gateway.errors import TooManyRequests
from gateway.http.models.queries import QueryList
from gateway.http.requests import turns as turns_module
from gateway.http.requests.turns import WAITING_TIMES, Turns
from gateway.security.authentication import Anonymous, UsersFile, user_line
from gateway.server.app import create_app
from tests.gateway.conftest import Scripted, serving, stopped_planners

ANN, MALLORY = ("ann", "correct"), ("mallory", "horse")
SIZE = 4
WITHIN_S = 60.0


@pytest.fixture
def served(scripted: Callable[..., Scripted], tmp_path: Path) -> Iterator[tuple[Scripted, httpx.Client]]:
    """Serve a gateway with few threads for requests."""
    built = scripted(requests=SIZE)
    users = tmp_path / "users"
    users.write_text("\n".join(user_line(*user) for user in (ANN, MALLORY)), encoding="utf-8")
    built.gateway.authenticator = UsersFile(users, anonymous=Anonymous.NEVER)
    with serving(create_app(built.gateway)) as client:
        yield built, client


def test_one_user_never_has_all_places() -> None:
    async def scene() -> list[str]:
        turns, order, leave = Turns(SIZE, wait_s=WITHIN_S), [], asyncio.Event()

        async def work(user: str) -> None:
            async with turns.hold(user):
                order.append(user)
                await leave.wait()

        flood = [asyncio.create_task(work("mallory")) for _ in range(SIZE)]
        await asyncio.sleep(0)
        other = asyncio.create_task(work("ann"))
        for _ in range(5):
            await asyncio.sleep(0)
        begun = list(order)
        leave.set()
        await asyncio.gather(*flood, other)
        assert sorted(order) == ["ann"] + ["mallory"] * SIZE
        return begun

    assert asyncio.run(scene()) == ["mallory"] * (SIZE // 2) + ["ann"]


def test_also_of_one_place_nobody_has_all() -> None:
    async def scene() -> None:
        turns = Turns(1, wait_s=WITHIN_S)
        async with turns.hold("mallory"), turns.hold("ann"):
            pass

    asyncio.run(asyncio.wait_for(scene(), WITHIN_S))


def test_a_crowd_is_refused_and_who_waits_too_long_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "REFUSED_AFTER_S", (0.0, 0.0))

    async def scene() -> None:
        turns = Turns(2, wait_s=0.01)
        async with turns.hold("mallory"):
            waiting = [asyncio.ensure_future(turns._acquire("mallory")) for _ in range(WAITING_TIMES)]
            await asyncio.sleep(0)
            with pytest.raises(TooManyRequests, match="already"):
                await turns._acquire("mallory")
            for ended in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(ended, TooManyRequests)
        async with turns.hold("mallory"):  # which nobody of those has taken
            pass

    asyncio.run(scene())


def test_a_deadline_is_asked_between_steps() -> None:
    require_time()
    with within(Deadline(time.monotonic() + 60, lambda: False)):
        require_time()
    with within(Deadline(time.monotonic() - 1, lambda: False)), pytest.raises(DeadlineExceeded):
        require_time()
    with within(Deadline(time.monotonic() + 60, lambda: True)), pytest.raises(StatementCancelled):
        require_time()


def test_keys_of_one_user_stop_nobody_else_and_end_with_their_clients(served: tuple[Scripted, httpx.Client]) -> None:
    built, client = served
    crowd = SIZE + 2
    with ExitStack() as held:
        pids = held.enter_context(stopped_planners(built.gateway))
        assert pids
        leaving = [
            held.enter_context(httpx.Client(base_url=client.base_url, auth=MALLORY, timeout=1.0)) for _ in range(crowd)
        ]

        def ask(each: httpx.Client) -> None:
            with pytest.raises(httpx.ReadTimeout):
                each.post("/v1/stats/keys", json={"statements": ["SELECT 1"]})

        threads = [threading.Thread(target=ask, args=(each,)) for each in leaving]
        for thread in threads:
            thread.start()
        assert client.get("/v1/tables", auth=ANN).status_code == 200
        for thread in threads:
            thread.join()
        for each in leaving:
            each.close()
        assert client.get("/v1/tables", auth=MALLORY).status_code == 200  # whose places are free again


def test_replies_are_written_where_they_are_made(
    served: tuple[Scripted, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = served
    threads: list[str] = []
    dump = QueryList.model_dump

    def noted(self: QueryList, **options: Any) -> dict[str, Any]:
        threads.append(threading.current_thread().name)
        return dump(self, **options)

    monkeypatch.setattr(QueryList, "model_dump", noted)
    loop = {thread.name for thread in threading.enumerate() if "run" in repr(getattr(thread, "_target", None))}
    assert client.get("/v1/queries", auth=ANN).json() == {"queries": [], "next": None}
    assert threads
    assert not loop & set(threads)
