"""A query takes a shorter way to its function than other requests; nothing that a client sees tells which it was."""

from __future__ import annotations

from typing import Any

import fastapi.routing
import httpx
import pytest

QUICK, USUAL = "application/json", "application/json; charset=utf-8"
SQL = b'{"sql":"SELECT 1 AS one"}'
BODIES = {
    "a query": SQL,
    "no JSON": b'{"sql":',
    "no object": b"[]",
    "empty": b"",
    "nothing in it": b"{}",
    "a field that is none": b'{"sql":"SELECT 1","limit":1}',
    "a field twice": b'{"sql":"SELECT 2 AS two","sql":"SELECT 1 AS one"}',
    "a number for a text": b'{"sql":1}',
    "a text for a number": b'{"sql":"SELECT 1 AS one","wait_s":"1"}',
    "a whole number": b'{"sql":"SELECT 1 AS one","wait_s":20,"max_rows":1}',
    "true for a number": b'{"sql":"SELECT 1 AS one","max_rows":true}',
    "a fraction of rows": b'{"sql":"SELECT 1 AS one","max_rows":1.5}',
    "no number": b'{"sql":"SELECT 1 AS one","wait_s":NaN}',
    "endless": b'{"sql":"SELECT 1 AS one","wait_s":1e999}',
    "out of range": b'{"sql":"SELECT 1 AS one","wait_s":-1}',
    "half a character": b'{"sql":"SELECT \'\\ud800\'"}',
    "no UTF-8": b'{"sql":"SELECT \'\xff\'"}',
    "no such database": b'{"sql":"SELECT 1 AS one","database":"nowhere"}',
    "no such engine": b'{"sql":"SELECT 1 AS one","engine":"nothing"}',
    "settings": b'{"sql":"SELECT 1 AS one","settings":{"fusion.tags":"a"}}',
    "settings of another type": b'{"sql":"SELECT 1 AS one","settings":{"fusion.tags":1}}',
    "refused SQL": b'{"sql":"SELECT pg_sleep(1)"}',
    "deep": b'{"sql":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
}
OWN = ("id", "submitted_at", "finished_at", "decision", "attempts", "summary", "query_id")  # of each run


def told(client: httpx.Client, body: bytes, kind: str) -> tuple[int, Any]:
    reply = client.post("/v1/queries", content=body, headers={"content-type": kind})
    found = reply.json()
    for part in (found, found.get("error") or {}):
        for name in OWN:
            part.pop(name, None)
    return reply.status_code, found


@pytest.mark.parametrize("name", BODIES)
def test_both_ways_say_the_same(client: httpx.Client, name: str) -> None:
    quick, usual = (told(client, BODIES[name], kind) for kind in (QUICK, USUAL))
    assert quick == usual
    assert quick[0] != 500


def test_a_query_takes_the_shorter_way(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(**_: object) -> None:
        raise AssertionError("resolved step by step")

    monkeypatch.setattr(fastapi.routing, "solve_dependencies", refuse)
    assert told(client, SQL, QUICK)[0] == 200
    assert client.get("/v1/queries").status_code == 500
