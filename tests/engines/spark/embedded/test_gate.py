"""Who runs beside whom on Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from engines.spark.embedded.gate import Gate

SOON_S = 10.0
SHORT_S = 0.3


def _patient() -> None:
    """Wait on."""


def _entered(gate: Gate, who: str, *, alone: bool = False, give_up: Callable[[], None] = _patient) -> threading.Event:
    done = threading.Event()

    def enter() -> None:
        gate.enter(who, alone=alone, give_up=give_up)
        done.set()

    threading.Thread(target=enter, daemon=True).start()
    return done


def _leave_after_a_while(gate: Gate, who: str) -> None:
    time.sleep(SHORT_S)
    gate.leave(who)


def test_one_alone_waits_for_others_and_keeps_others_out() -> None:
    gate = Gate()
    gate.enter("first", alone=False, give_up=_patient)
    gate.enter("second", alone=False, give_up=_patient)
    alone = _entered(gate, "alone", alone=True)
    assert not alone.wait(SHORT_S)
    later = _entered(gate, "later")  # behind the one that waits
    gate.leave("first")
    assert not alone.wait(SHORT_S)
    assert not later.is_set()
    gate.leave("second")
    assert alone.wait(SOON_S)
    assert not later.wait(SHORT_S)
    gate.leave("alone")
    assert later.wait(SOON_S)
    assert gate.inside == 1


def test_nobody_waits_for_ever_for_one_alone() -> None:
    gate = Gate(reserved_for_s=SHORT_S, alone_for_s=SHORT_S)
    gate.enter("endless", alone=False, give_up=_patient)
    assert _entered(gate, "alone", alone=True).wait(SOON_S)
    assert _entered(gate, "other").wait(SOON_S)
    assert gate.inside == 3


def test_closed_lets_nobody_in_and_says_whether_all_have_left() -> None:
    gate = Gate()
    gate.enter("first", alone=False, give_up=_patient)
    with gate.closed(wait_s=SHORT_S) as empty:
        assert not empty
        waiting = _entered(gate, "second")
        assert not waiting.wait(SHORT_S)
    assert waiting.wait(SOON_S)
    gate.leave("first")
    with ThreadPoolExecutor(1) as pool:
        leaves = pool.submit(_leave_after_a_while, gate, "second")
        with gate.closed(wait_s=SOON_S) as empty:
            assert empty
        leaves.result()


def test_whoever_waits_can_be_ended_and_holds_nobody_then() -> None:
    gate = Gate()
    gate.enter("first", alone=False, give_up=_patient)

    def cancelled() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        gate.enter("alone", alone=True, give_up=cancelled)
    gate.enter("second", alone=False, give_up=_patient)
    gate.leave("never came")
    assert gate.inside == 2
