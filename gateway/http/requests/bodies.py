"""Bodies of requests: limits of size and memory, and parsing of JSON into models.

A body is read once its sender has logged in (``login.LoginFirst``). All bodies in memory share one budget, of which one
user may take half. Short JSON is parsed on the event loop; the rest goes to a planner, whose processes have limits of
time and memory, and places that users share (``gateway/planning``).
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import BodiesFull, InvalidBody
from gateway.failures import failure_of
from gateway.http.errors import first_error, reply
from gateway.http.requests.login import USER
from gateway.http.requests.turns import Turns
from gateway.http.services import Services
from gateway.security.principals import Principal
from sql.errors import FusionError, StatementTooLong

OVERHEAD_BYTES = 64 << 10  # the JSON around a statement
EXPANSION = 6  # an escaped character of JSON against the byte it stands for
SHORT_BYTES = 16 << 10  # parsed on the event loop, which takes a millisecond at most
SHARE = 1 / 2  # of the budget, for one user's bodies
LEAST_BODIES = 2  # of the largest size, for which the budget has room, so that a user's share is at least one

Model = TypeVar("Model", bound=BaseModel)


def largest_body(statement_bytes: int) -> int:
    """Return the size of the largest body that holds a statement of a given length."""
    return statement_bytes * EXPANSION + OVERHEAD_BYTES


class BodyBudget:
    """Bytes of all bodies in memory. A user's only body may exceed the user's share. Thread-safe."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()

    def take(self, user: str, more_bytes: int) -> None:
        """Count bytes of a user's body. Raises BodiesFull."""
        with self._lock:
            of_user = self._held[user]
            if self._held.total() + more_bytes > self._budget_bytes:
                raise BodiesFull("The bodies of all requests take all memory that there is for them; try again soon.")
            if of_user and of_user + more_bytes > SHARE * self._budget_bytes:
                raise BodiesFull("The bodies of your requests take all memory that one user may have; try again soon.")
            self._held[user] += more_bytes

    def give_back(self, user: str, held_bytes: int) -> None:
        """Release bytes of a user's body."""
        with self._lock:
            self._held[user] -= held_bytes
            if self._held[user] <= 0:
                del self._held[user]

    @property
    def held_bytes(self) -> int:
        """Bytes of all bodies in memory."""
        with self._lock:
            return self._held.total()


class Bodies:
    """ASGI middleware: answers 413 to a body that is too large, and 503 while there is no memory for it.

    A body is counted by its Content-Length before a byte is read, and without one as it arrives.
    """

    def __init__(self, app: ASGIApp, *, statement_bytes: int, budget: BodyBudget) -> None:
        self._app = app
        self._statement_bytes = statement_bytes
        self._limit = largest_body(statement_bytes)
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, unless its body is too large."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        user: Principal | None = scope.get(USER)
        counted = _Counted(self._budget, "" if user is None else user.quota_key)
        refusal: FusionError | None = None

        async def limited() -> Message:
            nonlocal refusal
            message = await receive()
            try:
                self._count(counted, len(message.get("body", b"")))
            except (StatementTooLong, BodiesFull) as error:
                refusal = error
                return {"type": "http.disconnect"}
            return message

        async def unless_refused(message: Message) -> None:
            if refusal is None:
                await send(message)

        try:
            length = dict(scope["headers"]).get(b"content-length", b"")
            if length.isdigit():
                self._require_size(int(length))
                counted.reserve(int(length))
            await self._app(scope, limited, unless_refused)
        except (StatementTooLong, BodiesFull) as error:
            refusal = error
        finally:
            counted.close()
        if refusal is not None:
            await reply(failure_of(refusal))(scope, receive, send)

    def _count(self, counted: _Counted, more_bytes: int) -> None:
        self._require_size(counted.seen_bytes + more_bytes)
        counted.add(more_bytes)

    def _require_size(self, size_bytes: int) -> None:
        if size_bytes > self._limit:
            raise StatementTooLong(f"The statement is longer than {self._statement_bytes:,} bytes.")


class _Counted:
    """The bytes of one body. reserved_bytes: counted in the budget; seen_bytes: received."""

    def __init__(self, budget: BodyBudget, user: str) -> None:
        self._budget = budget
        self._user = user
        self.reserved_bytes = 0
        self.seen_bytes = 0

    def reserve(self, size_bytes: int) -> None:
        """Count bytes that are expected. Raises BodiesFull."""
        more_bytes = size_bytes - self.reserved_bytes
        if more_bytes > 0:
            self._budget.take(self._user, more_bytes)
            self.reserved_bytes = size_bytes

    def add(self, more_bytes: int) -> None:
        """Count received bytes. Raises BodiesFull."""
        self.seen_bytes += more_bytes
        self.reserve(self.seen_bytes)

    def close(self) -> None:
        """Release all bytes."""
        if self.reserved_bytes:
            self._budget.give_back(self._user, self.reserved_bytes)


def parsed(model: type[Model], body: bytes) -> Model | str:
    """Parse a JSON body into a model; return the first error in words where it is invalid."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        return first_error(error.errors(include_url=False, include_context=False, include_input=False))


async def read_model(model: type[Model], body: bytes, app: Any, user: Principal) -> Model:
    """Parse a JSON body into a model; a long one in its user's turn, as a thread waits for a planner meanwhile.

    Raises InvalidBody, TooManyRequests, and the errors of a planner.
    """
    if len(body) <= SHORT_BYTES:
        result = parsed(model, body)
    else:
        gateway, turns = app.state.gateway, app.state.turns
        assert isinstance(gateway, Services)
        assert isinstance(turns, Turns)
        async with turns.hold(user.quota_key):
            result = await run_in_threadpool(gateway.coordinator.read, user, parsed, model, body)
    if isinstance(result, str):
        raise InvalidBody(result)
    return result


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that first returns a body that was read already."""
    unread = [body]

    async def receive_again() -> Message:
        return {"type": "http.request", "body": unread.pop(), "more_body": False} if unread else await receive()

    return receive_again
