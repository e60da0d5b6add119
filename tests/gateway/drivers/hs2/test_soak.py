"""Many sessions at once that do what comes to mind: no error, nothing left behind, memory that does not grow."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from gateway.settings import Hs2Settings, LimitSettings
from tests.gateway.drivers.hs2 import test_impyla, test_pyhive
from tests.gateway.drivers.hs2.conftest import Drivers
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.thorough]
SESSIONS = 64
SECONDS = float(os.environ.get("FUSION_SOAK_SECONDS", "20"))
MIB = 1 << 20
GROWTH_MIB = 96  # between a third of the time and its end: the allocators' own ups and downs
STATEMENTS = ("SELECT 1", "SELECT 'every type'", "SHOW TABLES", "SELECT 'many rows'", "SELECT 'no rows'")
CLIENTS: tuple[Callable[[Drivers], Any], ...] = (
    lambda drivers: test_pyhive.connect(drivers, "NONE"),
    lambda drivers: test_pyhive.connect(drivers, "http"),
    lambda drivers: test_impyla.connect(drivers, "PLAIN"),
    lambda drivers: test_impyla.connect(drivers, "NOSASL"),
)


def test_sixty_four_sessions(serve: Callable[..., Drivers]) -> None:
    drivers = serve(hs2=Hs2Settings(port=0, sessions_per_user=2 * SESSIONS), limits=LimitSettings(queries=2 * SESSIONS))
    failed: list[BaseException] = []
    statements = [0] * SESSIONS
    ended = threading.Event()

    def work(number: int) -> None:
        choice = random.Random(number)  # noqa: S311 - no secret
        while not ended.is_set():
            connection = CLIENTS[number % len(CLIENTS)](drivers)
            cursor = connection.cursor()
            for _ in range(10):
                cursor.execute(choice.choice(STATEMENTS))
                cursor.fetchmany(1_500)
                statements[number] += 1
            cursor.close()
            connection.close()

    def watched(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failed.append(error)
            raise

    process = psutil.Process()
    threads = [threading.Thread(target=watched, args=(number,)) for number in range(SESSIONS)]
    for thread in threads:
        thread.start()
    time.sleep(SECONDS / 3)
    before = process.memory_info().rss
    time.sleep(SECONDS * 2 / 3)
    after = process.memory_info().rss
    ended.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert min(statements) > 0
    wait_until(lambda: drivers.server.connections == 0)
    assert drivers.gateway.hs2.registry.count() == 0
    assert drivers.gateway.hs2.registry.running() == 0
    gc.collect()
    assert drivers.gateway.spool.query_ids() == frozenset()
    assert after - before < GROWTH_MIB * MIB
