"""Budgets that several processes divide: what is left for one of them still has a share for each of two users."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.http.forwarding.siblings import Siblings
from gateway.planning.fairness import FairSlots, Requester
from gateway.server import wiring
from gateway.server.processes.gateway_process import GatewayProcess
from gateway.settings import LimitSettings, load

WITHIN_S = 30.0
NOT_CALLED: Any = None


@pytest.mark.parametrize("count", [None, 1, 2, 3, 8, 64])
@pytest.mark.parametrize("planners", [1, 2, 3, 16])
def test_one_user_never_has_all_planners_of_a_process(tmp_path: Path, count: int | None, planners: int) -> None:
    process = None if count is None else GatewayProcess(Siblings(0, count, NOT_CALLED), NOT_CALLED)
    settings = load(tmp_path, limits=LimitSettings(planners=planners))
    size = wiring._planners(settings, process)
    assert size * (count or 1) >= planners
    slots, ended = FairSlots(size, wait_s=WITHIN_S), threading.Event()

    def hog() -> None:
        with slots.hold(Requester("mallory", time.monotonic() + WITHIN_S)):
            ended.wait(WITHIN_S)

    threads = [threading.Thread(target=hog) for _ in range(size)]
    for thread in threads:
        thread.start()
    while slots._shares.held["mallory"] < max(1, size // 2):
        time.sleep(0.001)
    with slots.hold(Requester("ann", time.monotonic() + WITHIN_S)):
        assert not ended.is_set()
    ended.set()
    for thread in threads:
        thread.join()
