"""Turns of requests that take a thread: users take turns, and no user has all threads.

A waiting request holds no thread. Not thread-safe: all of it happens on the event loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.errors import TooManyRequests
from gateway.planning.fairness import Shares

WAITING_TIMES = 8  # waiting requests of a user, for each that may run
REFUSED_AFTER_S = (2.0, 4.0)
"""When a request of a crowd is refused, at random: clients that ask again at once would take all time of the loop."""

_Place = asyncio.Future[None]


class Turns:
    """Places of running requests.

    size: number of places, at least two; one user has at most half of them.
    wait_s: longest wait for a place.
    """

    def __init__(self, size: int, *, wait_s: float) -> None:
        self._wait_s = wait_s
        self._shares = Shares[_Place](max(2, size))

    @asynccontextmanager
    async def hold(self, user: str) -> AsyncIterator[None]:
        """Hold a place. Raises TooManyRequests."""
        await self._acquire(user)
        try:
            yield
        finally:
            self._release(user)

    async def _acquire(self, user: str) -> None:
        waiting = self._shares.waiting_of(user)
        if waiting >= WAITING_TIMES * self._shares.most_of_user:
            await asyncio.sleep(random.uniform(*REFUSED_AFTER_S))  # noqa: S311 - no secret
            raise TooManyRequests(f"{waiting} of your requests are waiting already; wait for their answers.")
        place: _Place = asyncio.get_running_loop().create_future()
        self._shares.add(place, user)
        self._give_places()
        try:
            await asyncio.wait_for(asyncio.shield(place), self._wait_s)
        except BaseException as error:
            if place.done():
                self._release(user)
            else:
                self._shares.remove(place)
                place.cancel()
            if isinstance(error, TimeoutError):
                raise TooManyRequests(f"The gateway was busy for {self._wait_s:.0f} s; try again soon.") from error
            raise

    def _release(self, user: str) -> None:
        self._shares.release(user)
        self._give_places()

    def _give_places(self) -> None:
        for place in self._shares.grant_places():
            place.set_result(None)
