"""HiveServer2 over HTTP: each call is a POST of one message to ``/cliservice``, with Basic authentication.

Only Thrift's own content type is taken, which a page of another site cannot send without being asked first.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.status import HTTP_400_BAD_REQUEST, HTTP_413_CONTENT_TOO_LARGE, HTTP_415_UNSUPPORTED_MEDIA_TYPE

from gateway.hs2.dispatch import Dispatcher
from gateway.hs2.registry import Peer
from gateway.hs2.service import PendingReply
from gateway.hs2.thrift import Malformed
from gateway.http.login import login_of, user_of

CONTENT_TYPE = "application/x-thrift"
CLIENT_CLOSED_REQUEST = 499  # nobody reads it
WATCH_S = 0.5  # between two looks whether a client that waits is still there


def driver_routes(dispatcher: Dispatcher) -> APIRouter:
    """Return the routes; drivers differ in whether they end the path with a slash."""
    router = APIRouter(tags=["drivers"])

    @router.post("/cliservice/", include_in_schema=False)
    @router.post("/cliservice")
    async def call(request: Request) -> Response:
        """Answer one call of HiveServer2."""
        user = await user_of(request)
        told = login_of(request)
        peer = Peer(told.address, user if told.name is not None else None)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != CONTENT_TYPE:
            return Response(f"Drivers send {CONTENT_TYPE} here.", HTTP_415_UNSUPPORTED_MEDIA_TYPE)
        message = await request.body()
        if len(message) > dispatcher.largest_message:
            return Response("The message is too long.", HTTP_413_CONTENT_TOO_LARGE)
        try:
            outcome = await run_in_threadpool(dispatcher.frame, message, peer)
        except Malformed as error:
            return Response(f"This is no call: {error}.", HTTP_400_BAD_REQUEST)
        if isinstance(outcome, PendingReply):
            return await _wait(request, outcome)
        return Response(outcome, media_type=CONTENT_TYPE)

    return router


async def _wait(request: Request, pending: PendingReply[bytes]) -> Response:
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
            await run_in_threadpool(pending.abandon)
            return Response(status_code=CLIENT_CLOSED_REQUEST)
    return Response(await run_in_threadpool(pending.finish), media_type=CONTENT_TYPE)
