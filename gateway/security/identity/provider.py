"""Keys of an OpenID Connect provider: found by its discovery document, fetched again as the provider changes them.

One thread fetches at a time, whoever waits. A token under an unknown key has the keys fetched again, though not more
often than once in ``RETRY_S``, so that nobody makes the gateway hammer the provider. While the provider is down, the
keys fetched last are used, for a limited time.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
from joserfc import jwk
from joserfc.errors import JoseError

from gateway.errors import IdentityProviderUnavailable
from gateway.security.authentication import is_loopback

log = logging.getLogger(__name__)

DISCOVERY = "/.well-known/openid-configuration"
RETRY_S = 10.0  # between two tries to fetch the keys
MOST_WAITING = 8  # logins that wait for a fetch at once; each holds a thread
LARGEST_DOCUMENT = 256 << 10  # bytes; Google's documents have 2 KiB, Entra's keys 20 KiB
MOST_KEYS = 100
LEAST_RSA_BITS, BASE64_BITS = 2048, 6  # NIST SP 800-131A; bits of a character
KINDS = ("RSA", "EC", "OKP")  # with a public key
NO_ANSWER = "The identity provider does not answer; try again soon."

Key = jwk.RSAKey | jwk.ECKey | jwk.OKPKey
Fetch = Callable[[], Mapping[str, Key]]


class ProviderFault(Exception):
    """The provider does not answer, or its documents cannot be used; the message is for the log.

    is_refusal: it answers, and refuses what it was sent.
    """

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


@dataclass(frozen=True, slots=True)
class Provider:
    """An OpenID Connect provider and how it is reached."""

    issuer: str
    """Its address, exactly as its tokens name it."""
    timeout_s: float
    """Time for each of its two documents."""
    ca_file: Path | None = None
    """Certificates that are trusted in place of the system's, PEM; None: the system's."""

    def fetch(self) -> Mapping[str, Key]:
        """Return the provider's keys by their ids. Raises ProviderFault."""
        with self._connected() as client:
            return keys_in(self._document(client, str(self._discovered(client).get("jwks_uri"))))

    def discovered(self) -> Mapping[str, Any]:
        """Return the discovery document. Raises ProviderFault."""
        with self._connected() as client:
            return self._discovered(client)

    def exchange(self, endpoint: str, form: Mapping[str, str], client_id: str, secret: str) -> Mapping[str, Any]:
        """Exchange a code for tokens. secret: of the client; empty: it is a public one. Raises ProviderFault."""
        basic = (
            httpx.BasicAuth(quote(client_id, safe=""), quote(secret, safe="")) if secret else None
        )  # RFC 6749, 2.3.1
        sent = form if secret else {**form, "client_id": client_id}
        with self._connected() as client:
            return self._document(client, endpoint, form=sent, auth=basic)

    @contextmanager
    def _connected(self) -> Iterator[httpx.Client]:
        """Give a client. Raises ProviderFault."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            with httpx.Client(verify=context, timeout=self.timeout_s, follow_redirects=False) as client:
                yield client
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise ProviderFault(f"{type(error).__name__}: {error}") from error

    def _discovered(self, client: httpx.Client) -> Mapping[str, Any]:
        document = self._document(client, self.issuer.rstrip("/") + DISCOVERY)
        if document.get("issuer") != self.issuer:
            raise ProviderFault(f"its discovery document is of the issuer {document.get('issuer')!r:.300}")
        return document

    def _document(
        self,
        client: httpx.Client,
        address: str,
        *,
        form: Mapping[str, str] | None = None,
        auth: httpx.BasicAuth | None = None,
    ) -> Mapping[str, Any]:
        """Return a JSON document, in reply to a form where there is one. Raises ProviderFault, and errors of httpx."""
        require_private(address)
        until_s = time.monotonic() + self.timeout_s
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        method = "GET" if form is None else "POST"
        with client.stream(method, address, headers=headers, data=form, auth=auth) as reply:
            if reply.status_code != httpx.codes.OK:
                is_refusal = reply.status_code in (httpx.codes.BAD_REQUEST, httpx.codes.UNAUTHORIZED)
                why = f"{address} answers with the status {reply.status_code}"
                raise ProviderFault(why, is_refusal=is_refusal)
            content = b""
            for piece in reply.iter_raw():
                content += piece
                if len(content) > LARGEST_DOCUMENT or time.monotonic() > until_s:
                    raise ProviderFault(f"{address} has more than {LARGEST_DOCUMENT:,} bytes, or takes too long")
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ProviderFault(f"{address} is not JSON") from error
        if not isinstance(document, dict):
            raise ProviderFault(f"{address} is not an object of JSON")
        return document


class ProviderKeys:
    """A provider's keys as they were fetched last. Thread-safe.

    fetch: returns them, or raises ProviderFault.
    refresh_s: age from which on they are fetched again, in the background.
    keep_s: age from which on they are not used any more.
    wait_s: time for which a login waits for a fetch.
    clock: seconds that never go back.
    """

    def __init__(
        self,
        fetch: Fetch,
        *,
        refresh_s: float,
        keep_s: float,
        wait_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._refresh_s = refresh_s
        self._keep_s = keep_s
        self._wait_s = wait_s
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: Mapping[str, Key] = {}
        self._fetched_s: float | None = None
        self._tried_s: float | None = None
        self._was_answered = True  # by the last try
        self._running: threading.Event | None = None
        self._waiting = 0

    def fetched(self, key_id: str) -> Key | None:
        """Return a key that was fetched; None: there is none, or the keys are too old. Does not block."""
        with self._lock:
            if self._age_s() >= self._refresh_s:
                self._start()
            return self._usable().get(key_id)

    def key(self, key_id: str) -> Key | None:
        """Return a key, fetched if need be; None: the provider has no such key. Raises IdentityProviderUnavailable."""
        key = self.fetched(key_id)
        if key is not None:
            return key
        with self._lock:
            running = self._start()
            if running is not None and self._waiting >= MOST_WAITING:
                raise IdentityProviderUnavailable(NO_ANSWER)
            self._waiting += running is not None
        if running is not None:
            try:
                running.wait(self._wait_s)
            finally:
                with self._lock:
                    self._waiting -= 1
        with self._lock:
            usable = self._usable()
            is_sure = usable and self._was_answered and self._running is None
            if key_id not in usable and not is_sure:
                raise IdentityProviderUnavailable(NO_ANSWER)
            return usable.get(key_id)

    def _usable(self) -> Mapping[str, Key]:
        return self._keys if self._age_s() < self._keep_s else {}

    def _age_s(self) -> float:
        return float("inf") if self._fetched_s is None else self._clock() - self._fetched_s

    def _start(self) -> threading.Event | None:
        """Begin to fetch, and return what is set at the end; None: the last try was a short time ago."""
        if self._running is None and (self._tried_s is None or self._clock() - self._tried_s >= RETRY_S):
            self._tried_s, self._running = self._clock(), threading.Event()
            threading.Thread(target=self._run, name="identity provider", daemon=True).start()
        return self._running

    def _run(self) -> None:
        keys: Mapping[str, Key] | None = None
        try:
            keys = self._fetch()
        except ProviderFault as fault:
            log.warning("the keys of the identity provider were not fetched: %s", fault)
        finally:
            with self._lock:
                self._was_answered = keys is not None
                if keys is not None:
                    self._keys, self._fetched_s = keys, self._clock()
                running, self._running = self._running, None
            if running is not None:
                running.set()


def keys_in(document: Mapping[str, Any]) -> Mapping[str, Key]:
    """Return the keys for signatures in a JWKS document, by their ids. Raises ProviderFault where there are none."""
    listed = document.get("keys")
    if not isinstance(listed, list) or len(listed) > MOST_KEYS:
        raise ProviderFault(f"its keys are no list, or more than {MOST_KEYS}")
    keys: dict[str, Key] = {}
    for entry in listed:
        key = _key(entry)
        if key is not None:
            keys[entry["kid"]] = key
    if not keys:
        raise ProviderFault("none of its keys can be used: RSA with 2048 bits or more, EC or OKP, each with a kid")
    return keys


def _key(entry: Any) -> Key | None:
    """Return a public key for signatures with an id; None: the entry is something else, or a short key."""
    if not isinstance(entry, dict) or not isinstance(entry.get("kid"), str) or entry.get("use", "sig") != "sig":
        return None
    kind, modulus = entry.get("kty"), entry.get("n")
    if kind == "RSA" and not (isinstance(modulus, str) and BASE64_BITS * len(modulus) >= LEAST_RSA_BITS):
        return None
    if kind not in KINDS:
        return None
    try:
        key = jwk.import_key(entry, kind)
    except (JoseError, ValueError, TypeError):  # broken, or of a curve that this release of the library does not have
        return None
    return None if isinstance(key, jwk.OctKey) else key


def require_private(address: str) -> None:
    """Raise ProviderFault where an address is neither https nor of this machine."""
    try:
        parsed = urlsplit(address)
        host = parsed.hostname or ""
    except ValueError as error:
        raise ProviderFault(f"{address!r:.300} is not an address") from error
    if parsed.scheme != "https" and not (parsed.scheme == "http" and (host == "localhost" or is_loopback(host))):
        raise ProviderFault(f"{address!r:.300} is not https, and not on this machine")
    if parsed.username is not None or parsed.fragment:
        raise ProviderFault(f"the address of {host!r} has a login or a fragment")
