"""Keys of an OpenID Connect provider: found by its discovery document, fetched again as the provider changes them.

One thread fetches at a time, whoever waits. A token under an unknown key has the keys fetched again, though not more
often than once in ``RETRY_S``, so that nobody makes the gateway hammer the provider. While the provider is down, the
keys fetched last are used, for a limited time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from joserfc import jwk
from joserfc.errors import JoseError

from gateway.errors import IdentityProviderUnavailable
from gateway.security.documents import DocumentFault, connected, json_document

log = logging.getLogger(__name__)

DISCOVERY = "/.well-known/openid-configuration"
RETRY_S = 10.0  # between two tries to fetch the keys
MOST_WAITING = 8  # logins that wait for a fetch at once; each holds a thread
MOST_KEYS = 100
LEAST_RSA_BITS, BASE64_BITS = 2048, 6  # NIST SP 800-131A; bits of a character
KINDS = ("RSA", "EC", "OKP")  # with a public key
NO_ANSWER = "The identity provider does not answer; try again soon."

Key = jwk.RSAKey | jwk.ECKey | jwk.OKPKey
Fetch = Callable[[], Mapping[str, Key]]


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
        """Return the provider's keys by their ids. Raises DocumentFault."""
        with connected(self.timeout_s, self.ca_file) as client:
            return keys_in(json_document(client, str(self._discovered(client).get("jwks_uri")), self.timeout_s))

    def discovered(self) -> Mapping[str, Any]:
        """Return the discovery document. Raises DocumentFault."""
        with connected(self.timeout_s, self.ca_file) as client:
            return self._discovered(client)

    def exchange(self, endpoint: str, form: Mapping[str, str], client_id: str, secret: str) -> Mapping[str, Any]:
        """Exchange a code for tokens. secret: of the client; empty: it is a public one. Raises DocumentFault."""
        basic = (
            httpx.BasicAuth(quote(client_id, safe=""), quote(secret, safe="")) if secret else None
        )  # RFC 6749, 2.3.1
        sent = form if secret else {**form, "client_id": client_id}
        with connected(self.timeout_s, self.ca_file) as client:
            return json_document(client, endpoint, self.timeout_s, form=sent, auth=basic)

    def _discovered(self, client: httpx.Client) -> Mapping[str, Any]:
        document = json_document(client, self.issuer.rstrip("/") + DISCOVERY, self.timeout_s)
        if document.get("issuer") != self.issuer:
            raise DocumentFault(f"its discovery document is of the issuer {document.get('issuer')!r:.300}")
        return document


class ProviderKeys:
    """A provider's keys as they were fetched last. Thread-safe.

    fetch: returns them, or raises DocumentFault.
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
        except DocumentFault as fault:
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
    """Return the keys for signatures in a JWKS document, by their ids. Raises DocumentFault where there are none."""
    listed = document.get("keys")
    if not isinstance(listed, list) or len(listed) > MOST_KEYS:
        raise DocumentFault(f"its keys are no list, or more than {MOST_KEYS}")
    keys: dict[str, Key] = {}
    for entry in listed:
        key = _key(entry)
        if key is not None:
            keys[entry["kid"]] = key
    if not keys:
        raise DocumentFault("none of its keys can be used: RSA with 2048 bits or more, EC or OKP, each with a kid")
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
