"""Where a statement's time goes, as the gateway tells it."""

from __future__ import annotations

import threading
import time

import httpx

from benchmarks.overhead import told
from gateway.statements.stages import BOUNDS_S, Stage, StageClock, StageTimes

NAP_S = 0.02


def test_stages_follow_each_other_on_the_clock_and_on_the_processor() -> None:
    clock = StageClock()
    time.sleep(NAP_S)
    clock.end(Stage.READ)
    until_s = time.thread_time() + NAP_S
    while time.thread_time() < until_s:
        pass
    clock.end(Stage.DECIDE)
    assert clock.times[Stage.READ].wall_s >= NAP_S > clock.times[Stage.READ].cpu_s
    assert clock.times[Stage.DECIDE].cpu_s >= NAP_S
    before = clock.times[Stage.READ]
    clock.end(Stage.READ)
    assert clock.times[Stage.READ].wall_s > before.wall_s, "a stage that comes again is added"


def test_another_thread_ends_nothing_unless_the_run_moves_there() -> None:
    clock = StageClock()

    def elsewhere() -> None:
        clock.end(Stage.RUN)
        assert clock.times == {}
        clock.hand_over(Stage.START)

    thread = threading.Thread(target=elsewhere)
    time.sleep(NAP_S)
    thread.start()
    thread.join()
    assert clock.times[Stage.START].wall_s >= NAP_S
    assert clock.times[Stage.START].cpu_s == 0.0
    clock.end(Stage.RECORD)
    assert Stage.RECORD not in clock.times


def test_times_are_counted_once_each() -> None:
    times, clock = StageTimes(), StageClock()
    time.sleep(NAP_S)
    clock.end(Stage.READ)
    took_s = clock.times[Stage.READ].wall_s
    times.add(clock)
    times.add(clock)
    found = times.sums()[Stage.READ]
    assert found.wall_s == took_s
    (place,) = (place for place, number in enumerate(found.up_to) if number)
    assert BOUNDS_S[place - 1] < took_s <= BOUNDS_S[place]


def test_a_gateway_tells_of_each_stage_of_a_query(client: httpx.Client) -> None:
    url = str(client.base_url).rstrip("/")
    before = told(url)
    assert client.post("/v1/queries", json={"sql": "SELECT 1 AS one"}).json()["state"] == "FINISHED"
    now = told(url)
    for stage in Stage:
        took = now[stage] - before[stage]
        assert took.up_to[-1] == 1, stage
        assert took.wall_s > 0.0
    refused = client.post("/v1/queries", json={"sql": "SELECT nothing"})
    assert refused.status_code == 400
    assert (told(url)[Stage.RUN] - now[Stage.RUN]).up_to[-1] == 0
