"""Other gateways of the metastore, as requests are passed on to them.

Processes of one home folder meet over Unix sockets in it, gateways of other hosts over TCP. There, a secret that the
metastore holds proves that a request comes from a member.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from gateway.statements.processes import HTTP_DOOR, Processes, owner_named_in
from metastore.members.membership import Member, Membership

QUERY_ID = re.compile(r"\b\d{8}_\d{6}_[0-9a-f]{10}(?:[0-9a-f]{2})?\b")
CONNECT_S = 2.0
OLDEST_S = 30.0
"""Age, by this machine's clock, at which a signed request is no longer believed."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A gateway's door for members.

    place: path of a Unix socket, or host:port.
    secret: of all members; empty: the socket is in a folder that only this user can read.
    is_alive: tells whether the others still count it among them.
    """

    place: str
    secret: bytes = field(default=b"", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    is_alive: Callable[[], bool] = field(default=lambda: True, repr=False, compare=False)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection. Raises OSError, TimeoutError."""
        if self.place.startswith("/"):
            return await asyncio.open_unix_connection(self.place)
        host, _, port = self.place.rpartition(":")
        opening = asyncio.open_connection(host.strip("[]"), int(port), ssl=self.tls)
        return await asyncio.wait_for(opening, CONNECT_S)


class Peers:
    """The other gateways, as this one reaches them.

    processes: those that serve this home folder; None: this one alone.
    is_here: tells whether a query runs here, or its result lies here.
    tls: for connections to other hosts; None: they are not encrypted.
    """

    def __init__(
        self,
        membership: Membership,
        processes: Processes | None,
        is_here: Callable[[str], bool],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._membership = membership
        self._processes = processes
        self._is_here = is_here
        self._tls = tls

    async def of_path(self, path: str) -> Peer | None:
        """Return the gateway that answers for the query or the job that a path names; None: this one."""
        named = QUERY_ID.search(path)
        return None if named is None else await to_thread.run_sync(self._of_query, named[0])

    def sibling(self, number: int | None) -> Peer | None:
        """Return another process of this home folder; None where it is this one, or there is none."""
        if self._processes is None or (owner := self._processes.other(number)) is None:
            return None
        return Peer(self._processes.path(HTTP_DOOR, owner))

    def _of_query(self, query_id: str) -> Peer | None:
        if self._is_here(query_id):
            return None
        try:
            owner = self._membership.owner_of(query_id)
        except SQLAlchemyError:  # the answer says so
            return None
        if owner is None:
            return self.sibling(owner_named_in(query_id))  # of a job, or a query that is not on record yet
        return self._of_member(owner)

    def _of_member(self, owner: Member) -> Peer | None:
        if owner.id == self._membership.current:
            return None
        number = self._processes.number_in(owner.name) if self._processes is not None else None
        is_alive = partial(self._is_alive, owner.id)
        sibling = self.sibling(number)
        if sibling is not None:
            return replace(sibling, is_alive=is_alive)
        return Peer(owner.address, self._membership.secret, self._tls, is_alive) if owner.address else None

    def _is_alive(self, member: str) -> bool:
        try:
            return self._membership.is_member(member)
        except SQLAlchemyError:
            return True


def signature(secret: bytes, method: str, target: bytes, client: str) -> str:
    """Return the proof that a member passes a request on. client: as its header names it, with the time."""
    content = b"\n".join((method.encode(), target, client.encode()))
    return hmac.digest(secret, content, "sha256").hex()


def signed(secret: bytes, method: str, target: bytes, client: str) -> str:
    """Return the header of a client with the time and the proof."""
    client = f"{client} {int(time.time())}"
    return f"{client} {signature(secret, method, target, client)}"


def is_signed(secret: bytes, method: str, target: bytes, header: str) -> bool:
    """Tell whether a member has signed a client's header, a short time ago."""
    if not secret:  # this gateway has not joined yet
        return False
    client, _, proof = header.rpartition(" ")
    moment = client.rpartition(" ")[2]
    if not moment.isdecimal() or abs(time.time() - int(moment)) > OLDEST_S:
        return False
    return hmac.compare_digest(proof, signature(secret, method, target, client))
