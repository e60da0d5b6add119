"""A load generator in a process of its own: clients of one door that ask statements over and over.

``python -m benchmarks.load`` takes its orders as JSON on standard input, and answers in JSON on standard output. It
reads no more of a reply than it has to, so that it takes little of the machine from who is measured.
"""

from __future__ import annotations

import json
import resource
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks.claim import RunFailed
from benchmarks.doors import Conversation, Driver, connect

MARGIN_S = 90.0  # beyond the time that clients ask: until they are connected, and their last replies are there
NUMBER = "{number}"
SPAN_S = 60.0
FILES = 4_096  # that the generator may have open
SHOWN = 300  # letters of a wrong answer


@dataclass(frozen=True, slots=True)
class Asked:
    """One kind of statement. sql, expected: {number} in it is another number each time. share: of all, at random.

    expected: text that is in each right answer, beside that all went well.
    """

    sql: str
    expected: str
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Load:
    """What clients do. address: host:port of the door; settings: of each session; first: number of a statement.

    idle: further clients with a session, which ask one statement each in the end.
    """

    driver: Driver
    address: str
    statements: Sequence[Asked]
    clients: int
    seconds: float
    settings: Mapping[str, str] = field(default_factory=dict)
    idle: int = 0
    first: int = 1
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of it, in milliseconds and statements a second. wrong: answers without what was expected.

    calls: for each statement; generator_ms: CPU of the generator for each. begun_s: by the clock; spans: the same
    figures minute by minute. wrong_answer: one of the wrong ones.
    """

    count: int
    wrong: int
    per_s: float
    p50_ms: float
    p99_ms: float
    calls: float = 0.0
    generator_ms: float = 0.0
    begun_s: float = 0.0
    wrong_answer: str = ""
    spans: Sequence[Answered] = ()


def generate(load: Load) -> Answered:
    """Have a process of its own send a load. Raises RunFailed."""
    command = [sys.executable, "-m", "benchmarks.load"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(asdict(load)),
            capture_output=True,
            text=True,
            timeout=load.seconds + MARGIN_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise RunFailed(f"the load generator failed: {error.stderr}") from error
    except subprocess.TimeoutExpired as error:
        raise RunFailed("the load generator did not end: replies are missing") from error
    told = json.loads(done.stdout)
    return Answered(**{**told, "spans": [Answered(**span) for span in told["spans"]]})


class _Client:
    """One client, with the statement that it asks."""

    def __init__(self, load: Load, texts: Iterator[tuple[str, bytes]]) -> None:
        self.conversation: Conversation = connect(load.driver, load.address, load.settings)
        self._texts = texts
        self.expected = b""
        self.begun_s = 0.0

    def ask(self) -> None:
        sql, self.expected = next(self._texts)
        self.begun_s = time.perf_counter()
        self.conversation.ask(sql)


class _Tally:
    """Answers as they come. begun_s: of all clients."""

    def __init__(self) -> None:
        self.begun_s = time.perf_counter()
        self._begun_at_s = time.time()
        self._used_s = time.process_time()
        self._ended_s = list[float]()
        self._took_s = list[float]()
        self._wrong_s = list[float]()
        self._wrong_answer = ""

    def add(self, client: _Client, answer: bytes) -> None:
        """Count an answer."""
        now_s = time.perf_counter()
        self._ended_s.append(now_s - self.begun_s)
        self._took_s.append(now_s - client.begun_s)
        if not client.conversation.succeeded or client.expected not in answer:
            self._wrong_s.append(now_s - self.begun_s)
            self._wrong_answer = self._wrong_answer or repr(answer[-SHOWN:])

    def total(self, calls: int) -> Answered:
        """Return what there was. calls: of all clients."""
        lasted_s = time.perf_counter() - self.begun_s
        count = max(1, len(self._took_s))
        ended, took, wrong = np.array(self._ended_s), np.array(self._took_s), np.array(self._wrong_s)
        spans = [
            _answered(took[(ended >= begin) & (ended < begin + SPAN_S)], _within(wrong, begin), SPAN_S)
            for begin in np.arange(0.0, lasted_s - SPAN_S / 2, SPAN_S)
        ]
        figures = _answered(took, len(wrong), lasted_s)
        more = {
            "calls": calls / count,
            "generator_ms": (time.process_time() - self._used_s) * 1_000 / count,
            "begun_s": self._begun_at_s,
            "wrong_answer": self._wrong_answer,
            "spans": spans,
        }
        return Answered(**{**asdict(figures), **more})


def _within(moments: np.ndarray[Any, np.dtype[np.float64]], begin: float) -> int:
    return int(((moments >= begin) & (moments < begin + SPAN_S)).sum())


def _answered(took_s: np.ndarray[Any, np.dtype[np.float64]], wrong: int, lasted_s: float) -> Answered:
    if not len(took_s):
        return Answered(0, wrong, 0.0, 0.0, 0.0)
    p50_ms, p99_ms = (float(each) for each in np.percentile(took_s * 1_000, (50, 99)))
    return Answered(len(took_s), wrong, len(took_s) / lasted_s, p50_ms, p99_ms)


def _texts(load: Load) -> Iterator[tuple[str, bytes]]:
    """Yield statements with what is expected of them."""
    chance = np.random.default_rng(load.seed)
    shares = np.array([each.share for each in load.statements])
    places, number = iter(()), load.first
    while True:
        place = next(places, None)
        if place is None:
            places = iter(chance.choice(len(shares), 1_024, p=shares / shares.sum()).tolist())
            continue
        asked = load.statements[place]
        yield asked.sql.replace(NUMBER, str(number)), asked.expected.replace(NUMBER, str(number)).encode()
        number += 1


def _send(load: Load) -> Answered:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    texts = _texts(load)
    idle = [_Client(load, texts) for _ in range(load.idle)]
    busy = [_Client(load, texts) for _ in range(load.clients)]
    tally, asking = _Tally(), len(busy)
    selector = selectors.DefaultSelector()
    for client in busy:
        selector.register(client.conversation.socket, selectors.EVENT_READ, client)
        client.ask()
    while asking:
        for key, _ in selector.select():
            client = key.data
            answer = client.conversation.take()
            if answer is None:
                continue
            tally.add(client, answer)
            if time.perf_counter() - tally.begun_s < load.seconds:
                client.ask()
            else:
                asking -= 1
                selector.unregister(client.conversation.socket)
    for client in idle:
        client.ask()
        while (answer := client.conversation.take()) is None:
            pass
        tally.add(client, answer)
    answered = tally.total(sum(client.conversation.calls for client in (*busy, *idle)))
    for client in (*busy, *idle):
        client.conversation.close()
    return answered


if __name__ == "__main__":
    orders = json.load(sys.stdin)
    orders["statements"] = [Asked(**each) for each in orders["statements"]]
    print(json.dumps(asdict(_send(Load(**{**orders, "driver": Driver(orders["driver"])})))))
