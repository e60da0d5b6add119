"""SASL's mechanism GSSAPI (RFC 4752): messages of Kerberos, then the choice of what protects the connection.

Hive calls that the quality of protection: ``auth`` is none, ``auth-int`` signs each message, ``auth-conf`` encrypts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gateway.drivers.hs2.protocol import sasl
from gateway.drivers.hs2.protocol.sasl import Refused, SaslStatus
from gateway.drivers.hs2.protocol.thrift import Malformed
from gateway.errors import AuthenticationFailed
from gateway.security.identity.authenticator import Exchange

NO_LAYER, SIGNED, ENCRYPTED = 1, 2, 4
QOPS = {"auth": NO_LAYER, "auth-int": SIGNED, "auth-conf": ENCRYPTED}
MOST_STEPS = 8  # messages of a client; Kerberos takes one or two
LARGEST_SIZE = (1 << 24) - 1  # of a message: the protocol has three bytes for it
WRAPPING_BYTES = 256  # that a message has beside its content; Kerberos' encryption takes about 60


@dataclass(frozen=True, slots=True)
class SecurityLayer:
    """Protection of the messages of a connection."""

    exchange: Exchange
    encrypted: bool
    largest_content: int
    """Most bytes of content in a message to the client."""

    def wrap(self, reply: bytes) -> Iterator[bytes]:
        """Yield the messages of a reply, each as large as the client takes; drivers read them as one stream."""
        for start in range(0, len(reply), self.largest_content):
            piece = reply[start : start + self.largest_content]
            yield self.exchange.wrap(piece, encrypted=self.encrypted)

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a client's message. Raises Malformed where it is not protected as agreed."""
        try:
            unwrapped = self.exchange.unwrap(message)
        except AuthenticationFailed as error:
            raise Malformed(str(error)) from error
        if self.encrypted and not unwrapped.encrypted:
            raise Malformed("a message is not encrypted")
        return unwrapped.content


@dataclass(frozen=True, slots=True)
class Accepted:
    """Outcome of an exchange."""

    authorization_id: str
    """User to act for; empty: the user itself."""
    layer: SecurityLayer | None
    """None: messages are not protected."""


def accept(
    exchange: Exchange, take: Callable[[int], bytes], send: Callable[[bytes], None], *, qop: str, largest_message: int
) -> Accepted:
    """Exchange messages with a client until it has proved who it is. Raises Refused, AuthenticationFailed.

    qop: protection of the connection. As with Hive it is the only one that is offered: Python's clients choose the
    strongest one of several.
    largest_message: most bytes of a message that the gateway takes.
    """
    for _ in range(MOST_STEPS):
        reply = exchange.step(sasl.read_answer(take))
        if exchange.complete:
            break
        send(sasl.frame(SaslStatus.OK, reply))
    else:
        raise Refused("The exchange of Kerberos messages does not end.")
    if reply:
        send(sasl.frame(SaslStatus.OK, reply))
        if sasl.read_answer(take):
            raise Refused("The client sent a Kerberos message after the last one.")
    offered = QOPS[qop]
    size = min(largest_message, LARGEST_SIZE)
    offer = bytes([offered]) + size.to_bytes(3, "big")
    send(sasl.frame(SaslStatus.OK, exchange.wrap(offer, encrypted=False)))
    answer = exchange.unwrap(sasl.read_answer(take)).content
    most = int.from_bytes(answer[1:4], "big")
    if len(answer) < 4 or answer[0] != offered:
        raise Refused(f"The gateway protects connections with {qop}; have the client ask for that (sasl.qop={qop}).")
    try:
        authorization_id = answer[4:].decode()
    except UnicodeDecodeError as error:
        raise Refused("The user to act for is not UTF-8.") from error
    if offered == NO_LAYER:
        return Accepted(authorization_id, None)
    encrypted = offered == ENCRYPTED
    largest_content = exchange.most_wrapped(most, encrypted=encrypted)
    if largest_content < 1:
        raise Refused(f"The client takes messages of {most} bytes at most, which is too little.")
    return Accepted(authorization_id, SecurityLayer(exchange, encrypted, largest_content))
