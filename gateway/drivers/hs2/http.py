"""HiveServer2 over HTTP: each call is a POST of one message to ``/cliservice``, with Basic authentication.

Only Thrift's own content type is taken, which a page of another site cannot send without being asked first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.status import HTTP_307_TEMPORARY_REDIRECT
from starlette.types import Receive, Scope, Send

from gateway.drivers.hs2 import impala
from gateway.drivers.hs2.dispatch import Dispatcher
from gateway.drivers.hs2.protocol.thrift import Malformed
from gateway.drivers.hs2.registry import Peer
from gateway.drivers.hs2.repeats import STATE_KEY, Repeats
from gateway.drivers.hs2.service import PendingReply
from gateway.errors import BadRequest, NotFound, StatementTooLong, TooManyDownloads, WrongContentType
from gateway.execution.spooling.downloads import ROOM_POLL_S, Downloads
from gateway.http.forwarding.forwarding import PASSED_ON, ForwardedReply
from gateway.http.login import login_of, user_of
from gateway.security.principals import Principal
from gateway.security.web import SECURITY_HEADERS
from gateway.statements.processes import Processes

CONTENT_TYPE = "application/x-thrift"
CLIENT_CLOSED_REQUEST = 499  # nobody reads it
REPLY_HEADERS = {"content-type": CONTENT_TYPE, **SECURITY_HEADERS}
THREADS = 40  # of drivers alone, so that those who wait for room keep nobody else waiting
WATCH_S = 0.5  # between two looks whether a client that waits is still there


def driver_routes(
    dispatcher: Dispatcher,
    downloads: Downloads,
    headers_of: Callable[[Mapping[str, str]], Mapping[str, str]],
    processes: Processes | None = None,
) -> APIRouter:
    """Return the routes; drivers differ in whether they end the path with a slash.

    headers_of: that rules look at. processes: those that share the port, where there are several.
    """
    router = APIRouter()
    threads = CapacityLimiter(THREADS)

    @router.post("/cliservice/", include_in_schema=False)
    @router.post("/cliservice", include_in_schema=False)  # Thrift describes itself
    async def call(request: Request) -> Response:
        """Answer one call of HiveServer2."""
        user = await user_of(request)
        told = login_of(request)
        agent = request.headers.get("user-agent", "")
        headers = partial(headers_of, request.headers)  # in a thread: it may read a file
        peer = Peer(told.address, user if told.name is not None else None, agent=agent, headers=headers)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != CONTENT_TYPE:
            raise WrongContentType(f"Drivers send {CONTENT_TYPE} here.")
        message = await request.body()
        if len(message) > dispatcher.largest_message:
            raise StatementTooLong("The message is too long.")
        owner = None
        if processes is not None and not request.scope.get(PASSED_ON):
            owner = processes.other(_owner(dispatcher, message))
        answered = partial(answer, request, message, user, peer)
        if processes is None or owner is None:
            return await answered()
        return ForwardedReply(processes, owner, message, otherwise=answered)

    async def answer(request: Request, message: bytes, user: Principal, peer: Peer) -> Response:
        try:
            if dispatcher.is_fetch(message):
                await _take_place(downloads, user.quota_key, peer)
            outcome = await to_thread.run_sync(dispatcher.frame, message, peer, limiter=threads)
            if isinstance(outcome, PendingReply):
                return await _wait(request, outcome, peer, threads)
        except Malformed as error:
            peer.held.close()
            raise BadRequest(f"This is no call: {error}.") from error
        except BaseException:
            peer.held.close()
            raise
        if dispatcher.is_status(message):
            _answer_again(request, dispatcher, message, user, peer)
        return _Reply(outcome, peer)

    @router.get(impala.PAGE, include_in_schema=False)
    async def query_plan(request: Request, query_id: str = "") -> Response:
        """Send people from the address that impala-shell prints to the query's page, which asks for their login."""
        found = impala.query_shown(query_id)
        if found is None:
            raise NotFound("There is no such query.")
        prefix = str(request.scope.get("root_path", "")).rstrip("/")
        return RedirectResponse(f"{prefix}/dashboard/queries/{found}", HTTP_307_TEMPORARY_REDIRECT)

    return router


def _owner(dispatcher: Dispatcher, message: bytes) -> int | None:
    try:
        return dispatcher.owner_of(message)
    except Malformed:  # of which its answer tells
        return None


def _answer_again(request: Request, dispatcher: Dispatcher, message: bytes, user: Principal, peer: Peer) -> None:
    """Have the connection answer by itself when it is asked the same again, as JDBC's driver does for every row."""
    repeats = getattr(request.state, STATE_KEY, None)
    if isinstance(repeats, Repeats) and request.headers.get("content-length", "") == str(len(message)):
        repeats.offer(partial(dispatcher.known_status, peer=peer, user=user), len(message), REPLY_HEADERS)


class _Reply(Response):
    """A reply that gives back what it took once it is sent."""

    def __init__(self, content: bytes, peer: Peer) -> None:
        super().__init__(content, media_type=CONTENT_TYPE)
        self._peer = peer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, and wait until a client has taken most of a large one."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._peer.held.close()


async def _take_place(downloads: Downloads, user: str, peer: Peer) -> None:
    """Count a reply with rows, once others have gone. Raises TooManyDownloads."""
    loop = asyncio.get_running_loop()
    until = loop.time() + downloads.stall_s
    while True:
        try:
            peer.held.enter_context(downloads.place(user))
        except TooManyDownloads:
            if loop.time() > until:
                raise
            await asyncio.sleep(ROOM_POLL_S)
        else:
            return


async def _wait(request: Request, pending: PendingReply[bytes], peer: Peer, threads: CapacityLimiter) -> Response:
    """Wait for a reply without a thread, and watch whether the client waits, too."""
    loop = asyncio.get_running_loop()
    until = None if pending.timeout_s is None else loop.time() + pending.timeout_s
    done = asyncio.wrap_future(pending.done)
    while not pending.done.done():
        left_s = WATCH_S if until is None else min(WATCH_S, until - loop.time())
        if left_s <= 0:
            break
        await asyncio.wait([done], timeout=left_s)
        if await request.is_disconnected():
            peer.held.close()
            await run_in_threadpool(pending.abandon)
            return Response(status_code=CLIENT_CLOSED_REQUEST)
    return _Reply(await to_thread.run_sync(pending.finish, limiter=threads), peer)
