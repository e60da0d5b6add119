"""The load generator: what it counts, and what it does not take for an answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

from benchmarks.claim import RunFailed
from benchmarks.doors import Driver
from benchmarks.load import Asked, Load, generate

RIGHT, WRONG = b'{"state":"FINISHED"}', b'{"state":"FAILED"}'


@contextmanager
def server(reply: Callable[[int], bytes], *, slowly: bool = False) -> Iterator[tuple[str, list[bytes]]]:
    """Serve replies by their number; yields where, and what was asked. slowly: each reply comes in two pieces."""
    numbers, asked = count(), list[bytes]()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])))
            body = reply(next(numbers))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for piece in (body[:5], body[5:]) if slowly else (body,):
                self.wfile.write(piece)
                self.wfile.flush()
                time.sleep(0.02 if slowly else 0)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{served.server_port}", asked
        finally:
            served.shutdown()


def load(address: str, clients: int = 3, sql: str = "SELECT 1", idle: int = 0) -> Load:
    return Load(Driver.HTTP, address, [Asked(sql, '"state":"FINISHED"')], clients, 0.5, idle=idle)


def test_every_answer_counts_once() -> None:
    with server(lambda number: RIGHT) as (address, asked):
        answered = generate(load(address))
    assert answered.count == len(asked) > 3
    assert answered.wrong == 0
    assert set(asked) == {b'{"sql": "SELECT 1"}'}
    assert 0 < answered.p50_ms <= answered.p99_ms
    assert answered.per_s <= answered.count / 0.5
    assert answered.calls == 1


def test_new_statements_have_a_number_of_their_own() -> None:
    with server(lambda number: RIGHT) as (address, asked):
        answered = generate(load(address, sql="SELECT {number}"))
    assert {json.loads(each)["sql"] for each in asked} == {f"SELECT {each}" for each in range(1, answered.count + 1)}


def test_idle_clients_ask_in_the_end() -> None:
    with server(lambda number: RIGHT) as (address, asked):
        answered = generate(load(address, clients=1, sql="SELECT {number}", idle=2))
    assert answered.count == len(asked)
    assert answered.wrong == 0


def test_wrong_answers_are_told() -> None:
    with server(lambda number: WRONG if number % 2 else RIGHT) as (address, asked):
        answered = generate(load(address))
    assert answered.wrong == len(asked) // 2 > 0
    assert "FAILED" in answered.wrong_answer


def test_a_reply_in_pieces_is_one_answer() -> None:
    with server(lambda number: RIGHT, slowly=True) as (address, asked):
        answered = generate(load(address, clients=1))
    assert (answered.count, answered.wrong) == (len(asked), 0)
    assert answered.p50_ms >= 20


def test_a_server_that_is_not_there_fails_the_run() -> None:
    with pytest.raises(RunFailed, match="refused"):
        generate(load("127.0.0.1:1"))
