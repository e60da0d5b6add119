"""Kerberos messages of clients, checked by the machine's GSSAPI library with the keys of a keytab.

The library does all of the protocol. It needs no KDC: a ticket is checked with the gateway's own key, so that users log
in while the KDC is down. It reads the keytab at each login, so that new keys count at once, and old ones as long as
they are in it. Calls may block: the library writes its replay cache to a file.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import gssapi
from gssapi.exceptions import GSSError
from gssapi.raw import set_neg_mechs

from gateway.errors import AuthenticationFailed, IdentityProviderUnavailable, LoginExpired
from gateway.security.authentication import Ticket
from gateway.security.identity.authenticator import Unwrapped
from gateway.security.identity.tickets import refusal

log = logging.getLogger(__name__)

KERBEROS = gssapi.MechType.kerberos
SPNEGO = gssapi.OID.from_int_seq("1.3.6.1.5.5.2")
LONGEST_MESSAGE = 64 << 10  # bytes; Windows has at most 48,000 in a ticket with many groups
EXPIRED = "The Kerberos ticket has expired; get a new one (kinit)."
NO_MESSAGE = "it is not a Kerberos message, or not one for this gateway"
CANNOT_CHECK = "The gateway cannot read its Kerberos keys now; its administrator finds the reason in the log."
REASONS: Mapping[str, str] = {  # by beginnings of MIT's words; its numbers are others within SPNEGO
    "Request is a replay": "its message came before (a replay); try again",
    "Clock skew too great": "the clocks of client and gateway differ too much; set both by NTP",
    "Ticket not yet valid": "it is not valid yet; compare the clocks of client, gateway and KDC",
    "Wrong principal in request": "it is for a service whose key the gateway does not have",
    "No key table entry found": "it is for a service whose key the gateway does not have",
    "Cannot find key": "its key is not among the gateway's (another version, or kind of encryption); get a new one",
    "Request ticket server": "its key is not among the gateway's (another service, version, or kind of encryption)",
    "Cannot decrypt ticket": "the gateway's key for it is another one than the KDC's; get a new ticket, or keytab",
}
_EXPIRED_WORDS = ("Ticket expired", "The referenced context has expired")


class KeytabFault(Exception):
    """The keytab cannot be read, or has no key of a principal; the message says which."""


class TicketAcceptor:
    """Begins exchanges with clients. Thread-safe.

    principal: the gateway's, for drivers, ``hive/host`` or ``hive/host@REALM``.
    http_principal: the one for HTTP.
    clock: seconds since 1970.
    """

    def __init__(
        self, keytab: Path, principal: str, http_principal: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = {"keytab": f"FILE:{keytab}"}
        self._principal = principal
        self._http_principal = http_principal
        self._clock = clock

    @property
    def principals(self) -> Sequence[str]:
        """The gateway's principals, each once."""
        return [name for name in dict.fromkeys((self._principal, self._http_principal)) if name]

    def check(self, principal: str) -> None:
        """Raise KeytabFault where the keytab has no key of a principal."""
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        try:
            gssapi.Credentials(name=name, usage="accept", store=self._store, mechs=[KERBEROS])
        except GSSError as error:
            raise KeytabFault(_words(error)) from error

    def begin(self, address: str, *, over_http: bool) -> TicketExchange:
        """Begin an exchange with a client. Raises IdentityProviderUnavailable.

        over_http: by SPNEGO, or by Kerberos alone as Hive's driver does it. Tickets for the principal of drivers count,
        too, since that driver has no other.
        """
        services = [self._http_principal, self._principal] if over_http else [self._principal]
        try:
            keys = gssapi.Credentials(
                usage="accept", store=self._store, mechs=[SPNEGO, KERBEROS] if over_http else [KERBEROS]
            )
            if over_http:
                set_neg_mechs(keys, [KERBEROS])
        except GSSError as error:
            log.error("Kerberos logins fail: %s", _words(error))
            raise IdentityProviderUnavailable(CANNOT_CHECK) from error
        return TicketExchange(keys, services, address, self._clock)


class TicketExchange:
    """One client's exchange of messages. Used by one thread at a time; calls may block."""

    def __init__(
        self, keys: gssapi.Credentials, services: Sequence[str], address: str, clock: Callable[[], float]
    ) -> None:
        self._context = gssapi.SecurityContext(creds=keys, usage="accept")
        self._context.__DEFER_STEP_ERRORS__ = False  # or the library would raise errors of ``step`` at the next call
        self._services = services
        self._ticket: Ticket | None = None
        self._address = address
        self._clock = clock

    @property
    def complete(self) -> bool:
        """The client has proved who it is."""
        return bool(self._context.complete)

    def step(self, message: bytes) -> bytes:
        """Return the reply to a message of the client, which may be empty. Raises AuthenticationFailed."""
        if not message or len(message) > LONGEST_MESSAGE:
            raise refusal(self._address, NO_MESSAGE)
        try:
            reply = bytes(self._context.step(message) or b"")
            if self.complete:
                self._ticket = self._checked_ticket()
        except GSSError as error:
            raise self._refusal(error) from error
        return reply

    def ticket(self) -> Ticket:
        """Return the client's ticket; the exchange is complete."""
        assert self._ticket is not None
        return self._ticket

    def _checked_ticket(self) -> Ticket:
        """Return the client's ticket. Raises AuthenticationFailed where it is for another service, GSSError."""
        principal, service = str(self._context.initiator_name), str(self._context.target_name)
        names = (service, service.rpartition("@")[0])
        if self._context.mech != KERBEROS or not any(name in self._services for name in names):
            wanted = next(filter(None, self._services), "none, since this door takes no tickets")
            raise refusal(self._address, f"it is for the service {service}; ask for {wanted}", principal)
        return Ticket(principal, service, self._clock() + self._context.lifetime)

    def wrap(self, content: bytes, *, encrypted: bool) -> bytes:
        """Return a message that the client can check, and nobody else read if it is encrypted."""
        return bytes(self._context.wrap(content, encrypted).message)

    def unwrap(self, message: bytes) -> Unwrapped:
        """Return the content of a message. Raises AuthenticationFailed where it is not the client's."""
        try:
            unwrapped = self._context.unwrap(message)
        except GSSError as error:
            raise self._refusal(error) from error
        return Unwrapped(unwrapped.message, unwrapped.encrypted)

    def most_wrapped(self, size: int, *, encrypted: bool) -> int:
        """Return the most bytes of content whose message has at most ``size`` bytes."""
        return int(self._context.get_wrap_size_limit(size, encrypted))

    def _refusal(self, error: GSSError) -> AuthenticationFailed:
        words = _words(error)
        if words.startswith(_EXPIRED_WORDS):
            refusal(self._address, "it has expired")
            return LoginExpired(EXPIRED)
        why = next((reason for beginning, reason in REASONS.items() if words.startswith(beginning)), NO_MESSAGE)
        log.info("a Kerberos message from %s is refused: %s", self._address, words)
        return refusal(self._address, why)


def _words(error: GSSError) -> str:
    """Return the library's words for an error: those of the mechanism, if it has any."""
    of_mechanism = error.get_all_statuses(error.min_code, False) if error.min_code else ()
    return "; ".join(of_mechanism or error.get_all_statuses(error.maj_code, True))
