"""Other gateways of the metastore, as requests are passed on to them.

A secret that the metastore holds proves that a request comes from a member.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import quote, unquote

from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from metastore.members.membership import Member, Membership

QUERY_ID = re.compile(r"\b\d{8}_\d{6}_[0-9a-f]{10}(?:[0-9a-f]{2})?\b")  # an earlier release added two digits
CONNECT_S = 2.0
OLDEST_S = 30.0
"""Age, by this machine's clock, at which a signed request is no longer believed."""
CLIENT_HEADER = "x-fusion-client"
"""Name of the header that says who sent a request, with its signature; believed from members only."""
NOBODY = "-"
LONGEST_HEADER = 4_096


@dataclass(frozen=True, slots=True)
class Sender:
    """The client whose request is passed on.

    address: None: it is not known.
    account: its user's, who has logged in at the gateway that passes it on; None: the request itself says who it is.
    """

    address: str | None
    port: int = 0
    scheme: str = "http"
    account: str | None = None

    def text(self) -> str:
        """Return it as the header has it."""
        account = NOBODY if self.account is None else f"={quote(self.account, safe='')}"
        return f"{self.address or NOBODY} {self.port} {self.scheme} {account}"

    @classmethod
    def of(cls, header: str) -> tuple[Sender, str]:
        """Parse a header that a member has signed: the sender, and the body's digest."""
        address, port, scheme, account, of_body, _, _ = header.split()
        sender = cls(
            None if address == NOBODY else address,
            int(port),
            scheme,
            None if account == NOBODY else unquote(account.removeprefix("=")),
        )
        return sender, of_body


@dataclass(frozen=True, slots=True)
class OtherGateway:
    """A gateway's door for members.

    place: host and port.
    secret: of all members.
    is_alive: tells whether the others still count it among them.
    """

    place: str
    secret: bytes = field(default=b"", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    is_alive: Callable[[], bool] = field(default=lambda: True, repr=False, compare=False)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection. Raises OSError, TimeoutError."""
        host, port = self._address
        return await asyncio.wait_for(asyncio.open_connection(host, port, ssl=self.tls), CONNECT_S)

    def connected(self) -> HTTPConnection:
        """Open a connection for a thread. Raises OSError."""
        host, port = self._address
        if self.tls is None:
            connection = HTTPConnection(host, port, timeout=CONNECT_S)
        else:
            connection = HTTPSConnection(host, port, timeout=CONNECT_S, context=self.tls)
        connection.connect()
        connection.sock.settimeout(None)
        return connection

    def post(
        self, connection: HTTPConnection, path: str, body: bytes, sender: Sender, headers: Mapping[str, str]
    ) -> None:
        """Send a request on a connection. Raises OSError."""
        proof = signed(self.secret, "POST", path.encode(), sender, body)
        connection.request("POST", path, body, {**headers, CLIENT_HEADER: proof})

    @property
    def _address(self) -> tuple[str, int]:
        host, _, port = self.place.rpartition(":")
        return host.strip("[]"), int(port)


class Peers:
    """The other gateways, as this one reaches them.

    is_here: tells whether a query runs here, or its result lies here.
    tls: for connections to other hosts; None: they are not encrypted.
    """

    def __init__(
        self, membership: Membership, is_here: Callable[[str], bool], tls: ssl.SSLContext | None = None
    ) -> None:
        self._membership = membership
        self._is_here = is_here
        self._tls = tls

    async def of_path(self, path: str) -> OtherGateway | None:
        """Return the gateway that answers for the query that a path names; None: this one."""
        named = QUERY_ID.search(path)
        return None if named is None else await to_thread.run_sync(self.of_query, named[0])

    def of_query(self, query_id: str) -> OtherGateway | None:
        """Return the gateway that answers for a query; None: this one."""
        if self._is_here(query_id):
            return None
        try:
            owner = self._membership.owner_of(query_id)
        except SQLAlchemyError:  # the answer says so
            return None
        return None if owner is None else self.of_member(owner)

    def of_epoch(self, epoch: bytes) -> OtherGateway | None:
        """Return the gateway of an epoch; None: it is this one, or gone."""
        try:
            owner = self._membership.of_epoch(epoch)
        except SQLAlchemyError:  # the answer says so
            return None
        return None if owner is None else self.of_member(owner)

    def of_name(self, name: str) -> OtherGateway | None:
        """Return the gateway of a name as it is reached; None: it is this one, or gone. Raises SQLAlchemyError."""
        owner = next((member for member in self._membership.members() if member.name == name), None)
        return None if owner is None else self.of_member(owner)

    def of_member(self, owner: Member) -> OtherGateway | None:
        """Return a gateway as it is reached; None: it is this one, or takes no calls."""
        if owner.id == self._membership.current or not owner.address:
            return None
        return OtherGateway(owner.address, self._membership.secret, self._tls, partial(self._is_alive, owner.id))

    def _is_alive(self, member: str) -> bool:
        try:
            return self._membership.is_member(member)
        except SQLAlchemyError:
            return True


def digest(body: bytes) -> str:
    """Return what a header says of a request's body."""
    return hashlib.sha256(body).hexdigest()


def signature(secret: bytes, method: str, target: bytes, content: str) -> str:
    """Return the proof that a member passes a request on. content: the rest of the header."""
    return hmac.digest(secret, b"\n".join((method.encode(), target, content.encode())), "sha256").hex()


def signed(secret: bytes, method: str, target: bytes, sender: Sender, body: bytes) -> str:
    """Return the header of a request: its sender, its body's digest, the time and the proof."""
    content = f"{sender.text()} {digest(body)} {int(time.time())}"
    return f"{content} {signature(secret, method, target, content)}"


def is_signed(secret: bytes, method: str, target: bytes, header: str) -> bool:
    """Tell whether a member has signed a header a short time ago."""
    if not secret or not header.isascii() or len(header) > LONGEST_HEADER:  # no secret: this gateway has not joined yet
        return False
    content, _, proof = header.rpartition(" ")
    if not hmac.compare_digest(proof, signature(secret, method, target, content)):
        return False
    return abs(time.time() - int(content.rpartition(" ")[2])) <= OLDEST_S
