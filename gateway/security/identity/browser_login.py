"""Login of people with a browser by OpenID Connect's authorization code flow, with PKCE.

A login under way is in a cookie of the browser alone; its state, nonce and code verifier bind the provider's answer to
that browser and to this login. The session that follows is in the metastore, under a hash of its cookie, so that every
gateway has it, and that it is over everywhere once it is ended.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import urlencode, urlsplit

from gateway.errors import AuthenticationFailed, IdentityProviderUnavailable, LoginExpired
from gateway.security import audit
from gateway.security.addresses import AddressUnsafe, require_private
from gateway.security.documents import DocumentFault
from gateway.security.identity.authenticator import CombinedAuthenticator
from gateway.security.identity.provider import NO_ANSWER, RETRY_S, Provider
from gateway.security.identity.saved_users import saved_session, user_of
from gateway.security.identity.tokens import TokenSource
from gateway.security.principals import Principal
from metastore.members.sessions import DriverSessions

log = logging.getLogger(__name__)

PAGES = "/dashboard"
CALLBACK, LOGGED_OUT = "/login/callback", "/login/out"
UNDER_WAY_S = 600.0  # for which a person may take to log in at the provider
AT_ONCE = 8  # logins that ask the provider; each holds a thread
COOKIE_BYTES = 32
LONGEST_NEXT = 2_048
LONGEST_STATE = 8 << 10  # characters of the cookie of a login under way
AGAIN = "Log in again."
NOT_THIS_LOGIN = f"This answer is not to a login that this browser has begun, or it took too long. {AGAIN}"
ENDED = f"The session in this browser has ended. {AGAIN}"


@dataclass(frozen=True, slots=True)
class Client:
    """The gateway as a client of the provider."""

    id: str
    secret: str = field(repr=False)
    """Its secret; empty: it is a public client."""
    scopes: Sequence[str]
    """Scopes that it asks for."""
    session_s: float | None
    """Life of a session; None: that of the ID token."""


@dataclass(frozen=True, slots=True)
class LoginUnderWay:
    """A login that a browser has begun, as its cookie has it."""

    state: str
    nonce: str
    verifier: str = field(repr=False)
    next: str
    """Path of the page to show afterwards."""

    def cookie(self) -> str:
        """Return the value of the cookie."""
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()

    @classmethod
    def of(cls, cookie: str) -> LoginUnderWay:
        """Parse the value of a cookie. Raises AuthenticationFailed."""
        try:
            fields = json.loads(base64.urlsafe_b64decode(cookie[:LONGEST_STATE].encode()))
            login = cls(**fields)
            if not all(isinstance(value, str) and value for value in fields.values()):
                raise ValueError("not texts")
        except (ValueError, TypeError, RecursionError, binascii.Error) as error:
            raise AuthenticationFailed(NOT_THIS_LOGIN) from error
        return replace(login, next=local_page(login.next))


class BrowserLogin:
    """Logins and sessions of browsers. Thread-safe.

    tokens: checks ID tokens that are made for the client.
    keep_s: age at which the provider's discovery document is fetched again.
    clock: seconds since 1970.
    """

    def __init__(
        self,
        client: Client,
        provider: Provider,
        tokens: TokenSource,
        authenticator: CombinedAuthenticator,
        sessions: DriverSessions,
        *,
        keep_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._provider = provider
        self._tokens = tokens
        self._authenticator = authenticator
        self._sessions = sessions
        self._keep_s = keep_s
        self._clock = clock
        self._asking = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._document: Mapping[str, Any] = {}
        self._fetch_again_s = 0.0

    def begin(self, base: str, page: str) -> tuple[str, LoginUnderWay]:
        """Begin a login; return the provider's address for it, and what the browser keeps.

        base: address of this gateway. Raises IdentityProviderUnavailable.
        """
        login = LoginUnderWay(
            secrets.token_urlsafe(), secrets.token_urlsafe(), secrets.token_urlsafe(64), local_page(page)
        )
        digest = hashlib.sha256(login.verifier.encode()).digest()
        request = {
            "response_type": "code",
            "client_id": self._client.id,
            "redirect_uri": base + CALLBACK,
            "scope": " ".join(self._client.scopes),
            "state": login.state,
            "nonce": login.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        return with_query(self._endpoint("authorization_endpoint"), request), login

    def finish(self, login: LoginUnderWay, answer: Mapping[str, str], base: str, address: str) -> tuple[str, Principal]:
        """Check the provider's answer, and begin a session; return its cookie and user. address: of the browser.

        Raises AuthenticationFailed, IdentityProviderUnavailable, SQLAlchemyError.
        """
        if not hmac.compare_digest(login.state.encode(), answer.get("state", "").encode()):
            raise self._refusal(address, NOT_THIS_LOGIN)
        if answer.get("iss", self._provider.issuer) != self._provider.issuer:  # RFC 9207
            raise self._refusal(address, f"The answer is of another identity provider. {AGAIN}")
        if not answer.get("code"):
            why = answer.get("error", "without a reason")[:80]
            raise self._refusal(address, f"The identity provider did not let you in: {why}. {AGAIN}")
        token = self._id_token(answer["code"], login.verifier, base, address)
        identity = self._tokens.answer(token, login.nonce, address)
        if self._client.session_s is not None:
            identity = replace(identity, expires_at=self._clock() + self._client.session_s)
        user = self._authenticator.admit(self._tokens.name, identity, address)
        cookie = secrets.token_urlsafe(COOKIE_BYTES)
        self._sessions.remove_expired()
        self._sessions.add(saved_session(_id_of(cookie), user, {}), keep_s=identity.expires_at - self._clock())
        return cookie, user

    def user_of(self, cookie: str, address: str) -> Principal:
        """Return the user of a session with the rights of now. Raises AuthenticationFailed, SQLAlchemyError."""
        saved = self._sessions.get(_id_of(cookie))
        if saved is None:
            raise LoginExpired(ENDED)
        return self._authenticator.current(replace(user_of(saved), address=address))

    def end(self, cookie: str, user: Principal) -> None:
        """End a session, on all gateways. Raises SQLAlchemyError."""
        self._sessions.remove(_id_of(cookie))
        audit.note("logout", user.name, user.address, allowed=True, what="log out")

    def logout_address(self, base: str) -> str | None:
        """Return the address at which a person logs out at the provider; None: it has none, or does not answer."""
        try:
            endpoint = self._endpoint("end_session_endpoint")
        except IdentityProviderUnavailable:
            return None
        return with_query(endpoint, {"client_id": self._client.id, "post_logout_redirect_uri": base + LOGGED_OUT})

    def _id_token(self, code: str, verifier: str, base: str, address: str) -> str:
        """Exchange a code for an ID token. Raises AuthenticationFailed, IdentityProviderUnavailable."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": base + CALLBACK,
            "code_verifier": verifier,
        }
        endpoint = self._endpoint("token_endpoint")
        with self._turn():
            try:
                token = self._provider.exchange(endpoint, form, self._client.id, self._client.secret).get("id_token")
            except DocumentFault as fault:
                log.warning("a login of a browser failed at the identity provider: %s", fault)
                if not fault.is_refusal:
                    raise IdentityProviderUnavailable(NO_ANSWER) from fault
                why = f"The identity provider does not take the code of this login. {AGAIN}"
                raise self._refusal(address, why) from fault
        if not isinstance(token, str):
            raise self._refusal(address, "The identity provider gave no ID token: is openid among the scopes?")
        return token

    def _endpoint(self, name: str) -> str:
        """Return an address of the discovery document. Raises IdentityProviderUnavailable."""
        with self._lock:
            document, is_fresh = self._document, time.monotonic() < self._fetch_again_s
        if not is_fresh:
            document = self._fetched()
        if not document:
            raise IdentityProviderUnavailable(NO_ANSWER)
        endpoint = document.get(name)
        try:
            require_private(str(endpoint))
        except AddressUnsafe as error:
            raise IdentityProviderUnavailable(f"The identity provider has no {name} that can be used.") from error
        return str(endpoint)

    def _fetched(self) -> Mapping[str, Any]:
        """Fetch the discovery document; while the provider is away, return the one before."""
        with self._turn():
            try:
                document, wait_s = self._provider.discovered(), self._keep_s
            except DocumentFault as fault:
                log.warning("the discovery document of the identity provider was not fetched: %s", fault)
                document, wait_s = self._document, RETRY_S
        with self._lock:
            self._document, self._fetch_again_s = document, time.monotonic() + wait_s
        return document

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold one of the turns for asking the provider. Raises IdentityProviderUnavailable where there is none."""
        if not self._asking.acquire(blocking=False):
            raise IdentityProviderUnavailable("Too many logins at once; try again soon.")
        try:
            yield
        finally:
            self._asking.release()

    def _refusal(self, address: str, why: str) -> AuthenticationFailed:
        """Log a refused login; return the error for the browser."""
        audit.note("login", "", address, allowed=False, what=f"log in by browser: {why}")
        return AuthenticationFailed(why)


def local_page(page: str) -> str:
    """Return a path of the dashboard with its query; for anything else, that of the dashboard itself."""
    path, _, query = page.partition("?")
    is_page = path == PAGES or path.startswith(PAGES + "/")
    is_plain = page.isascii() and page.isprintable() and not any(character in page for character in "\\#")
    if not is_page or not is_plain or len(page) > LONGEST_NEXT or ".." in path:
        return PAGES
    return f"{path}?{query}" if query else path


def with_query(address: str, parameters: Mapping[str, str]) -> str:
    """Return an address with more parameters."""
    return f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(parameters)}"


def _id_of(cookie: str) -> str:
    """Return the id of a session, which no driver's session can have: its cookie would let anybody in."""
    return hashlib.sha256(b"browser " + cookie.encode(errors="surrogatepass")).hexdigest()
