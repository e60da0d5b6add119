"""Requests are passed on as they came, and answered here where the other process is gone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from gateway.http.forwarding.forwarding import AnswerLost, Forwarding, PassedOn
from gateway.http.forwarding.peers import Peers, Sender, digest, is_signed, signature, signed
from gateway.http.requests.guard import ACCOUNT, PASSED_ON
from metastore.members.membership import Member

OWN, OTHER, NOBODYS = (f"20260131_235959_1a2b3c4d5{last}" for last in "123")
SECRET = b"of all members"
HEADERS = [(b"host", b"gateway"), (b"x-fusion-client", b"6.6.6.6 1 https"), (b"connection", b"keep-alive")]
BODY = b"a body of some length"
WITHIN_S = 10.0
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Members:
    """Two members: this one, and one at an address that has a query."""

    current, secret = "own/00", SECRET

    def __init__(self, address: str) -> None:
        self._other = Member("other/01", "other", address)

    def owner_of(self, query_id: str) -> Member | None:
        return {OWN: Member(self.current, "own", "127.0.0.1:1"), OTHER: self._other}.get(query_id)

    def is_member(self, _: str) -> bool:
        return True


async def here(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body that came."""
    body = (await receive())["body"]
    await PlainTextResponse(b"here: " + body)(scope, receive, send)


def scope_of(query_id: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": f"/v1/queries/{query_id}",
        "raw_path": f"/v1/queries/{query_id}".encode(),
        "query_string": b"a=1",
        "headers": HEADERS,
        "client": ("127.0.0.1", 4711),
        "scheme": "http",
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def asked(
    serve: Serve | None, query_id: str = OTHER, *, leaves: bool = False, **also: Any
) -> tuple[list[Message], bytes]:
    """Ask a gateway for a query. serve: is the other one. Returns what was sent, and what the other one was asked."""
    heard, sent = bytearray(), list[Message]()

    async def run() -> None:
        served = asyncio.Event()

        async def serving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert serve is not None
            heard.extend(await reader.readuntil(BODY))
            await serve(reader, writer)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            served.set()

        waiting: list[Message] = [{"type": "http.request", "body": BODY, "more_body": False}]

        async def receive() -> Message:
            if waiting:
                return waiting.pop()
            if not leaves:
                await asyncio.Event().wait()
            await asyncio.sleep(0.05)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        server, address = None, f"127.0.0.1:{free_port()}"
        if serve is not None:
            server = await asyncio.start_server(serving, "127.0.0.1", 0)
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        peers = Peers(Members(address), lambda _: False)  # type: ignore[arg-type]  # has what it needs
        try:
            await Forwarding(here, peers=peers)({**scope_of(query_id), **also}, receive, send)
        finally:
            if server is not None:
                if heard:
                    await asyncio.wait_for(served.wait(), WITHIN_S)
                server.close()

    asyncio.run(run())
    return sent, bytes(heard)


def text(sent: list[Message]) -> bytes:
    return b"".join(each.get("body", b"") for each in sent)


async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 201 Created\r\ndate: now\r\nx-y: z\r\ntransfer-encoding: chunked\r\n\r\n")
    for piece in (b"3\r\none\r\n", b"3\r\ntwo\r\n", b"0\r\n\r\n"):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.01)


async def die_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def die_in_the_middle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")
    await writer.drain()


def test_a_request_goes_as_it_came_and_its_reply_comes_as_it_is() -> None:
    sent, heard = asked(answer)
    head, _, body = heard.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0] == f"POST /v1/queries/{OTHER}?a=1 HTTP/1.1".lower().encode()
    assert body == BODY
    assert b"host: gateway" in lines
    (client,) = [line for line in lines if line.startswith(b"x-fusion-client")]
    assert client.startswith(b"x-fusion-client: 127.0.0.1 4711 http - ")
    assert [line for line in lines if line.startswith(b"connection")] == [b"connection: close"]
    assert (sent[0]["status"], list(sent[0]["headers"])) == (201, [(b"x-y", b"z")])
    assert text(sent) == b"onetwo"
    assert [each.get("more_body") for each in sent[1:]] == [True] * (len(sent) - 2) + [False]


@pytest.mark.parametrize(
    ("serve", "method"), [(None, "POST"), (die_at_once, "DELETE")], ids=["not there", "dies and may be asked again"]
)
def test_what_nobody_else_answers_is_answered_here(serve: Serve | None, method: str) -> None:
    sent, _ = asked(serve, method=method)
    assert (sent[0]["status"], text(sent)) == (200, b"here: " + BODY)


def test_what_another_gateway_may_have_done_is_not_done_again() -> None:
    with pytest.raises(AnswerLost):
        asked(die_at_once)


@pytest.mark.parametrize(
    ("query_id", "also"),
    [(OWN, {}), (NOBODYS, {}), (OTHER, {PASSED_ON: True})],
    ids=["its own", "nobody's", "passed on already"],
)
def test_what_is_its_own_is_answered_here(query_id: str, also: dict[str, Any]) -> None:
    sent, heard = asked(answer, query_id, **also)
    assert (text(sent), heard) == (b"here: " + BODY, b"")


def test_a_reply_that_breaks_off_breaks_off_for_the_client() -> None:
    with pytest.raises(ConnectionError):
        asked(die_in_the_middle)


def test_the_other_process_hears_of_a_client_that_leaves() -> None:
    left = list[bytes]()

    async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        left.append(await reader.read())

    sent, _ = asked(wait, leaves=True)
    assert not sent
    assert left == [b""]


@pytest.mark.parametrize("sender", [Sender("10.0.0.7", 99, "https"), Sender(None), Sender("::1", account=":a b")])
def test_the_sender_is_who_the_other_gateway_says(sender: Sender) -> None:
    seen = list[Scope]()

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    async def nothing(*_: object) -> Any:
        return {"type": "http.request", "body": b""}

    proof = signed(SECRET, "POST", f"/v1/queries/{OTHER}?a=1".encode(), sender, b"")
    came = {**scope_of(OTHER), "headers": [(b"x-fusion-client", proof.encode()), (b"host", b"h")]}
    asyncio.run(PassedOn(note, lambda: SECRET)(came, nothing, nothing))
    (scope,) = seen
    client = None if sender.address is None else (sender.address, sender.port)
    assert (scope["client"], scope["scheme"], scope[PASSED_ON]) == (client, sender.scheme, True)
    assert scope.get(ACCOUNT) == sender.account
    assert scope["headers"] == [(b"host", b"h")]


def test_only_members_reach_the_door_of_members() -> None:
    asked: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope)
        await PlainTextResponse("let in")(scope, receive, send)

    def status(header: str, **also: Any) -> int:
        scope = {**scope_of(OTHER), "headers": [(b"x-fusion-client", header.encode("latin-1"))], **also}
        sent = list[Message]()

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        asyncio.run(PassedOn(app, lambda: SECRET)(scope, receive, send))
        return int(sent[0]["status"])

    target = f"/v1/queries/{OTHER}?a=1".encode()
    client = Sender("192.0.2.7", 4711, "https")
    good = signed(SECRET, "POST", target, client, b"")
    assert status(good) == 200
    assert (asked[0]["client"], asked[0]["scheme"], asked[0][PASSED_ON]) == (("192.0.2.7", 4711), "https", True)
    forged = [
        "127.0.0.1 4711 http -",
        "",
        "\xff",
        f"{good[:-1]}\xff",
        good.replace("4711", "4" * 5_000),
        good.replace("192.0.2.7", "127.0.0.1"),
        signed(b"another secret", "POST", target, client, b""),
        signed(SECRET, "POST", target, client, b"another body"),
    ]
    for header in forged:
        assert status(header) == 403
    assert status(good, method="DELETE") == 403
    old = f"{client.text()} {digest(b'')} {int(time.time()) - 60}"
    assert not is_signed(SECRET, "POST", target, f"{old} {signature(SECRET, 'POST', target, old)}")
    assert len(asked) == 1
