"""Users by signed tokens (JWT) of an OpenID Connect provider.

A token is checked once: its signature by a key of the provider, then its claims. After that it is looked up by its
digest, until it expires or the provider has withdrawn the key. Nothing in a token says where a key lies, or that there
is none.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache
from joserfc import jws
from joserfc.errors import (
    ExpiredTokenError,
    InvalidClaimError,
    JoseError,
    MissingClaimError,
    UnsupportedAlgorithmError,
)
from joserfc.jwt import JWTClaimsRegistry

from gateway.errors import AuthenticationFailed, LoginExpired
from gateway.security import audit
from gateway.security.authentication import TOKEN_USER, Login, is_jwt
from gateway.security.identity.authenticator import Identity, require_groups, require_name
from gateway.security.identity.provider import Key, ProviderKeys

LONGEST_TOKEN = 16 << 10  # characters; Entra's with 200 groups has 9 KiB
LONGEST_HEADER = 4 << 10  # characters; a chain of certificates may be in it
VERIFIED_KEPT = 4_096  # tokens
TYPES = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})  # not logout+jwt, dpop+jwt
REFUSED = "The token is refused: {}."
EXPIRED = "The token has expired; get a new one from the identity provider."


class _Registry(jws.JWSRegistry):
    """Algorithms of signatures, and limits on the parts of a token."""

    max_header_length = LONGEST_HEADER
    max_payload_length = LONGEST_TOKEN

    def get_alg(self, name: str) -> Any:
        """Return an algorithm that is allowed; the library's own way warns of EdDSA, by RFC 9864 Ed25519."""
        if name not in (self.allowed or ()):
            raise UnsupportedAlgorithmError(f"{name} is not allowed")
        return self.algorithms[name]


class _Refused(Exception):
    """A token is refused; the message completes "The token is refused: ..."."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Tokens that are accepted."""

    issuer: str
    """Issuer that a token must name."""
    audience: Sequence[str]
    """Audiences of which a token must name one."""
    algorithms: Sequence[str]
    """Algorithms of signatures, all with a public key."""
    username_claim: str
    """Claim that is the user's name."""
    groups_claim: str
    """Claim with the user's groups; dots lead into objects; empty: none."""
    clock_skew_s: float
    """Difference of clocks that is forgiven."""


@dataclass(frozen=True, slots=True)
class _Verified:
    identity: Identity
    key_id: str
    key: Key


class TokenSource:
    """Checks tokens of one provider. Thread-safe. clock: seconds since 1970."""

    name = "oidc"

    def __init__(self, trust: Trust, keys: ProviderKeys, clock: Callable[[], float] = time.time) -> None:
        self._trust = trust
        self._keys = keys
        self._clock = clock
        self._registry = _Registry(algorithms=list(trust.algorithms), strict_check_header=False)
        self._lock = threading.Lock()
        self._verified: LRUCache[bytes, _Verified] = LRUCache(VERIFIED_KEPT)

    def takes(self, login: Login) -> bool:
        """Tell whether a login has a token, also in the place of its password."""
        return login.token is not None or (login.password is not None and is_jwt(login.password))

    def recognise(self, login: Login) -> Identity | None:
        """Return the user of a token that was checked before. Raises AuthenticationFailed where it has expired."""
        token = login.token_or_password
        if len(token) > LONGEST_TOKEN:
            raise self._refusal(login, f"it has more than {LONGEST_TOKEN:,} characters")
        digest = hashlib.sha256(token.encode(errors="surrogatepass")).digest()
        with self._lock:
            verified = self._verified.get(digest)
        if verified is None or self._keys.fetched(verified.key_id) != verified.key:
            return None
        if verified.identity.expires_at <= self._clock():
            raise LoginExpired(EXPIRED)
        self._require_name_of(login, verified.identity)
        return verified.identity

    def authenticate(self, login: Login) -> Identity:
        """Return the user of a token; may fetch keys. Raises AuthenticationFailed, IdentityProviderUnavailable."""
        recognised = self.recognise(login)
        if recognised is not None:
            return recognised
        verified = self._checked(login)
        with self._lock:
            self._verified[verified.identity.credential] = verified
        self._require_name_of(login, verified.identity)
        return verified.identity

    def answer(self, token: str, nonce: str, address: str) -> Identity:
        """Return the user of an ID token that answers the login with a nonce; may fetch keys.

        Raises AuthenticationFailed, IdentityProviderUnavailable.
        """
        return self._checked(Login(None, None, address, token=token), nonce).identity

    def _checked(self, login: Login, nonce: str | None = None) -> _Verified:
        """Check the token of a login, and note a refusal. Raises AuthenticationFailed, IdentityProviderUnavailable."""
        token = login.token_or_password
        if len(token) > LONGEST_TOKEN:
            raise self._refusal(login, f"it has more than {LONGEST_TOKEN:,} characters")
        try:
            return self._verify(token, nonce)
        except ExpiredTokenError as error:
            self._refusal(login, "it has expired")
            raise LoginExpired(EXPIRED) from error
        except _Refused as refused:
            raise self._refusal(login, str(refused)) from refused
        except AuthenticationFailed as error:
            self._refusal(login, str(error))
            raise

    def _verify(self, token: str, nonce: str | None) -> _Verified:
        """Check a token. nonce: of the login that it answers; None: of no login of a browser.

        Raises _Refused, AuthenticationFailed, ExpiredTokenError, IdentityProviderUnavailable.
        """
        try:
            content = token.encode("ascii")
            signed = jws.extract_compact(content, registry=self._registry)
            header, claims = signed.headers(), json.loads(signed.payload)
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise _Refused("it is not a signed JWT") from error
        if not isinstance(header, dict) or not isinstance(claims, dict):
            raise _Refused("it is not a signed JWT")
        key_id = self._require_header(header)
        if claims.get("iss") != self._trust.issuer:  # before the provider is asked for a key
            raise _Refused("it is of another issuer")
        key = self._keys.key(key_id)
        if key is None:
            raise _Refused("the identity provider has no key of its key id")
        if key.alg not in (None, header["alg"]):
            raise _Refused("its algorithm is not that of its key")
        try:
            is_genuine = jws.validate_compact(signed, key, registry=self._registry)
        except (JoseError, ValueError, TypeError) as error:
            raise _Refused("its signature cannot be checked") from error
        if not is_genuine:
            raise _Refused("its signature is wrong")
        self._require_claims(claims)
        if nonce is not None and not (
            claims.get("nonce") == nonce and claims.get("azp") in (None, *self._trust.audience)
        ):
            raise _Refused("it answers another login (nonce, azp)")
        digest = hashlib.sha256(content).digest()
        return _Verified(self._identity(claims, digest), key_id, key)

    def _require_header(self, header: Mapping[str, Any]) -> str:
        """Return the id of the key. Raises _Refused."""
        algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
        if algorithm not in self._trust.algorithms:
            raise _Refused(f"it is not signed with {', '.join(self._trust.algorithms)}")
        if not isinstance(key_id, str):
            raise _Refused("it names no key id")
        if not isinstance(kind, str) or kind.lower() not in TYPES:
            raise _Refused("its type is not that of an access or id token")
        if "crit" in header or "b64" in header:
            raise _Refused("it has extensions that the gateway does not know")
        return key_id

    def _require_claims(self, claims: Mapping[str, Any]) -> None:
        """Raise _Refused or ExpiredTokenError where a token is not for this gateway, or not for now."""
        trust = self._trust
        registry = JWTClaimsRegistry(
            now=int(self._clock()),
            leeway=int(trust.clock_skew_s),
            iss={"essential": True, "value": trust.issuer},
            aud={"essential": True, "values": list(trust.audience)},
            sub={"essential": True},
            exp={"essential": True},
        )
        try:
            registry.validate(dict(claims))
        except (MissingClaimError, InvalidClaimError) as error:
            raise _Refused(_reason(error)) from error
        if "cnf" in claims:
            raise _Refused("it is bound to a key of its client, and the gateway takes bearer tokens only")

    def _identity(self, claims: Mapping[str, Any], digest: bytes) -> Identity:
        """Return the user that claims describe. Raises _Refused, AuthenticationFailed."""
        trust = self._trust
        if trust.username_claim == "email" and claims.get("email_verified") is not True:
            raise _Refused("its claim email is not verified (email_verified)")
        groups: object = ()
        if trust.groups_claim:
            overflow = claims.get("_claim_names")
            if isinstance(overflow, dict) and trust.groups_claim in overflow:
                raise _Refused("the user has more groups than the identity provider writes into a token")
            groups = _claim(claims, trust.groups_claim) or ()
        if isinstance(groups, str):
            groups = (groups,)
        if not isinstance(groups, list | tuple):
            raise _Refused(f"its claim {trust.groups_claim} is not a list of texts")
        name = require_name(_claim(claims, trust.username_claim))
        expires_at = float(min(claims["exp"], 1 << 40)) + trust.clock_skew_s
        return Identity(name, require_groups(groups), digest, expires_at)

    def _require_name_of(self, login: Login, identity: Identity) -> None:
        """Raise AuthenticationFailed where a name came with the token that is not the token's."""
        if login.token is None and login.name not in (TOKEN_USER, identity.name):
            raise self._refusal(login, f"it is not of the user {login.name!r:.140}; log in as {TOKEN_USER}")

    def _refusal(self, login: Login, why: str) -> AuthenticationFailed:
        """Log a refused token with the address, never the token; return the error for its client."""
        text = f"a token from {login.address} is refused: {why}"
        audit.note("login", login.name or "", login.address, allowed=False, what=f"log in: {why}", text=text)
        return AuthenticationFailed(REFUSED.format(why))


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """Return a claim; dots lead into objects, unless a claim has the whole name. None: there is none."""
    if name in claims:
        return claims[name]
    value: object = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _reason(error: MissingClaimError | InvalidClaimError) -> str:
    """Return in our words what is wrong with a claim."""
    claim = str(getattr(error, "claim", "") or "")
    if isinstance(error, MissingClaimError):
        return f"it has no claim {claim}"
    words = {
        "aud": "its audience (aud) is not this gateway",
        "iss": "it is of another issuer",
        "nbf": "it is not valid yet (nbf)",
        "iat": "it was made in the future (iat): compare the clocks",
    }
    return words.get(claim, f"its claim {claim} is wrong")
