"""HiveServer2 over HTTP: each call is a POST of one message to ``/cliservice``, with a password or a bearer token.

Only Thrift's own content type is allowed: a page of another site cannot send it without a preflight request.
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

from gateway.drivers.handles import UNREACHABLE
from gateway.drivers.hs2 import impala
from gateway.drivers.hs2.dispatch import Dispatcher
from gateway.drivers.hs2.elsewhere.cancel import CONTENT_TYPE, PATH
from gateway.drivers.hs2.protocol.thrift import Malformed
from gateway.drivers.hs2.registry import Peer
from gateway.drivers.hs2.repeats import STATE_KEY, Repeats
from gateway.drivers.hs2.service import PendingReply
from gateway.errors import BadRequest, GatewayLost, GatewayStopped, NotFound, TooManyDownloads, WrongContentType
from gateway.execution.spooling.downloads import ROOM_POLL_S, Downloads
from gateway.http.forwarding.forwarding import ForwardedReply
from gateway.http.forwarding.peers import OtherGateway
from gateway.http.requests.guard import ACCOUNT, PASSED_ON
from gateway.http.requests.login import login_of, user_of
from gateway.http.requests.routes import CLIENT_CLOSED_REQUEST
from gateway.security.principals import Principal
from gateway.security.web import SECURITY_HEADERS
from sql.errors import StatementTooLong

REPLY_HEADERS = {"content-type": CONTENT_TYPE, **SECURITY_HEADERS}
LOST = "The gateway stopped before it answered; look whether the statement was done before you send it again."
THREADS = 40  # of drivers alone, so that calls that wait for memory delay nobody else
WATCH_S = 0.5  # between two checks whether a waiting client is still there


def driver_routes(
    dispatcher: Dispatcher,
    downloads: Downloads,
    headers_of: Callable[[Mapping[str, str]], Mapping[str, str]],
    *,
    has_peers: bool = False,
) -> APIRouter:
    """Return the routes, with and without a slash at the end, as drivers differ.

    headers_of: returns the headers that routing rules use.
    has_peers: there are other gateways, which may answer for a handle.
    """
    router = APIRouter()
    threads = CapacityLimiter(THREADS)

    @router.post(f"{PATH}/", include_in_schema=False)
    @router.post(PATH, include_in_schema=False)  # it is not JSON
    async def call(request: Request) -> Response:
        """Answer one call of HiveServer2."""
        user = await user_of(request)
        login = login_of(request)
        agent = request.headers.get("user-agent", "")
        headers = partial(headers_of, request.headers)  # in a thread: it may read a file
        has_login = user.authenticated or login.name is not None or ACCOUNT in request.scope
        peer = Peer(login.address, user if has_login else None, agent=agent, headers=headers)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != CONTENT_TYPE:
            raise WrongContentType(f"The content type must be {CONTENT_TYPE}.")
        message = await request.body()
        if len(message) > dispatcher.largest_message:
            raise StatementTooLong("The message is too long.")
        owner = None
        if has_peers and not request.scope.get(PASSED_ON):
            owner = await to_thread.run_sync(_owner, dispatcher, message, limiter=threads)
        answered = partial(answer, request, message, user, peer)
        if owner is None:
            return await answered()

        async def in_its_place() -> Response:
            if await to_thread.run_sync(owner.is_alive):
                raise GatewayStopped(UNREACHABLE)
            return await answered()

        def lost() -> Response:
            return _Reply(dispatcher.refusal(message, GatewayLost(LOST)), peer)

        return ForwardedReply(owner, message, in_its_place, lost if dispatcher.is_execute(message) else None)

    async def answer(request: Request, message: bytes, user: Principal, peer: Peer) -> Response:
        try:
            if dispatcher.is_fetch(message):
                await _take_place(downloads, user.quota_key, peer)
            outcome = await to_thread.run_sync(dispatcher.frame, message, peer, limiter=threads)
            if isinstance(outcome, PendingReply):
                return await _wait(request, outcome, peer, threads)
        except Malformed as error:
            peer.held.close()
            raise BadRequest(f"The body is not a call of HiveServer2: {error}.") from error
        except BaseException:
            peer.held.close()
            raise
        if dispatcher.is_status(message):
            _answer_again(request, dispatcher, message, user, peer)
        return _Reply(outcome, peer)

    @router.get(impala.PAGE, include_in_schema=False)
    async def query_plan(request: Request, query_id: str = "") -> Response:
        """Redirect from the address that impala-shell prints to the query's page, which requires a login."""
        shown = impala.query_shown(query_id)
        if shown is None:
            raise NotFound("There is no such query.")
        prefix = str(request.scope.get("root_path", "")).rstrip("/")
        return RedirectResponse(f"{prefix}/dashboard/queries/{shown}", HTTP_307_TEMPORARY_REDIRECT)

    return router


def _owner(dispatcher: Dispatcher, message: bytes) -> OtherGateway | None:
    try:
        return dispatcher.owner_of(message)
    except Malformed:  # the answer reports it
        return None


def _answer_again(request: Request, dispatcher: Dispatcher, message: bytes, user: Principal, peer: Peer) -> None:
    """Let the connection answer repetitions of this call by itself: JDBC's driver sends one for every row."""
    repeats = getattr(request.state, STATE_KEY, None)
    if isinstance(repeats, Repeats) and request.headers.get("content-length", "") == str(len(message)):
        repeats.offer(partial(dispatcher.known_status, peer=peer, user=user), len(message), REPLY_HEADERS)


class _Reply(Response):
    """A reply that releases its resources once it is sent."""

    def __init__(self, content: bytes, peer: Peer) -> None:
        super().__init__(content, media_type=CONTENT_TYPE)
        self._peer = peer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the reply, and wait until the client has received most of a large one."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._peer.held.close()


async def _take_place(downloads: Downloads, user: str, peer: Peer) -> None:
    """Wait for a place among the user's downloads. Raises TooManyDownloads."""
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
    """Wait for a reply without a thread, and watch the client meanwhile."""
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
