"""Tokens of a real provider, and forged ones; keys that change, and a provider that is slow or down."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwk, jws

from engines.adapter import CheckResult
from gateway.cli.setup.doctor import examine
from gateway.errors import AuthenticationFailed, IdentityProviderUnavailable, LoginExpired
from gateway.security.authentication import Login
from gateway.security.documents import DocumentFault
from gateway.security.identity.authenticator import Identity
from gateway.security.identity.provider import (
    MOST_WAITING,
    RETRY_S,
    Provider,
    ProviderKeys,
    keys_in,
)
from gateway.security.identity.settings import OidcSettings
from gateway.security.identity.tokens import LONGEST_TOKEN, TokenSource, Trust
from gateway.settings import AuthenticationSettings, load
from tests.gateway.security.identity.provider import ANN, AUDIENCE, OidcProvider, new_key, running

SKEW_S, KEEP_S, REFRESH_S, WAIT_S = 5.0, 3_600.0, 600.0, 5.0
ADDRESS = "192.0.2.7"
EMPTY: Mapping[str, Any] = {}


@dataclass
class Clock:
    """Seconds that never go back, and seconds since 1970; a test sets both forward."""

    ahead_s: float = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s

    def time(self) -> float:
        return time.time() + self.ahead_s


@dataclass
class Checked:
    """A source of tokens, its clock and the fetches of its keys."""

    trust: Trust
    fetch: Callable[[], Mapping[str, Any]]
    clock: Clock = field(default_factory=Clock)
    fetches: int = 0

    def __post_init__(self) -> None:
        self.keys = ProviderKeys(
            self._counted, refresh_s=REFRESH_S, keep_s=KEEP_S, wait_s=WAIT_S, clock=self.clock.monotonic
        )
        self.source = TokenSource(self.trust, self.keys, self.clock.time)

    def _counted(self) -> Mapping[str, Any]:
        self.fetches += 1
        return self.fetch()

    def login(self, token: str) -> Identity:
        return self.source.authenticate(Login(None, None, ADDRESS, token=token))


def trust(issuer: str, **changed: Any) -> Trust:
    usual: dict[str, Any] = {
        "audience": [AUDIENCE, "fusion"],
        "algorithms": ("RS256", "ES256", "EdDSA"),
        "username_claim": "preferred_username",
        "groups_claim": "groups",
        "clock_skew_s": SKEW_S,
    }
    return Trust(issuer, **{**usual, **changed})


def checked(provider: OidcProvider, **changed: Any) -> Checked:
    return Checked(trust(provider.issuer, **changed), Provider(provider.issuer, 3.0).fetch)


def base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


ISSUER = "https://idp.example/realms/main"
KEY, OTHER, EC = new_key("first"), new_key("first"), new_key("ec", "EC", alg="ES256")


def forged(header: Mapping[str, Any] = EMPTY, claims: Mapping[str, Any] = EMPTY, key: jwk.Key = KEY) -> str:
    """Return a token that is right but for what is changed; None leaves a claim or header out."""
    now = time.time()
    right = {"iss": ISSUER, "aud": AUDIENCE, "sub": "4711", "exp": int(now) + 600, "iat": int(now), **ANN}
    full_header = {"alg": "RS256", "kid": "first", "typ": "at+jwt", **header}
    registry = jws.JWSRegistry(algorithms=list(jws.JWSRegistry.algorithms), strict_check_header=False)
    return jws.serialize_compact(
        {name: value for name, value in full_header.items() if value is not None},
        json.dumps({name: value for name, value in {**right, **claims}.items() if value is not None}),
        key,
        registry=registry,
    )


def of_keys(*keys: jwk.Key, **changed: Any) -> Checked:
    """Return a source whose provider has these keys."""
    document = {"keys": [key.as_dict(private=False) for key in keys or (KEY,)]}
    return Checked(trust(ISSUER, **changed), lambda: keys_in(document))


# ---------------------------------------------------------------------- a real provider


@pytest.mark.parametrize(("kind", "algorithm"), [("RSA", "RS256"), ("EC", "ES256"), ("OKP", "EdDSA")])
def test_a_token_of_the_provider_is_its_user_with_groups(provider: OidcProvider, kind: str, algorithm: str) -> None:
    provider.rotate(new_key(kind, kind, alg=algorithm))
    gateway = checked(provider)
    token = provider.token({"preferred_username": "ann", "groups": ["a", "b"]}, algorithm=algorithm, ttl_s=60)

    identity = gateway.login(token)

    assert (identity.name, sorted(identity.groups)) == ("ann", ["a", "b"])
    assert identity.expires_at == pytest.approx(time.time() + 60 + SKEW_S, abs=5.0)
    assert gateway.source.recognise(Login(None, None, "", token=token)) == identity
    assert [path for path in provider.requests() if path != "/token"] == ["/.well-known/openid-configuration", "/jwks"]


def test_groups_are_those_of_the_newest_token(provider: OidcProvider) -> None:
    gateway = checked(provider)
    assert gateway.login(provider.token({**ANN, "groups": ["analysts"]})).groups == {"analysts"}
    assert gateway.login(provider.token({**ANN, "groups": []})).groups == frozenset()


def test_a_token_ends_at_its_time(provider: OidcProvider) -> None:
    gateway = checked(provider)
    token = provider.token(ttl_s=60)
    assert gateway.login(token).name == "ann"

    gateway.clock.ahead_s = 60 + SKEW_S + 1
    with pytest.raises(LoginExpired, match="has expired"):
        gateway.source.recognise(Login(None, None, "", token=token))
    with pytest.raises(LoginExpired, match="has expired"):  # one that was never seen
        gateway.login(provider.token(ttl_s=1))


def test_a_token_for_another_service_is_refused(provider: OidcProvider) -> None:
    gateway = checked(provider)
    with pytest.raises(AuthenticationFailed, match=r"its audience \(aud\) is not this gateway"):
        gateway.login(provider.token(audience="https://mail.example"))


def test_a_new_key_is_fetched_at_once_and_no_sooner_again_than_allowed(provider: OidcProvider) -> None:
    gateway = checked(provider)
    first = provider.token()
    gateway.login(first)

    provider.rotate(new_key("second"))
    rotated = provider.token()
    with pytest.raises(AuthenticationFailed, match="has no key of its key id"):
        gateway.login(rotated)
    assert gateway.fetches == 1

    gateway.clock.ahead_s = RETRY_S
    assert gateway.login(rotated).name == "ann"
    assert gateway.fetches == 2
    with pytest.raises(AuthenticationFailed, match="has no key"):  # the first key is withdrawn, and so its tokens are
        gateway.login(first)


def test_a_withdrawn_key_is_noticed_in_time(provider: OidcProvider) -> None:
    gateway = checked(provider)
    token = provider.token(ttl_s=7_200)
    gateway.login(token)
    provider.rotate(new_key("second"))

    gateway.clock.ahead_s = REFRESH_S
    gateway.source.recognise(Login(None, None, "", token=token))  # has the keys fetched again, in the background
    until_s = time.monotonic() + WAIT_S
    while gateway.source.recognise(Login(None, None, "", token=token)) is not None:
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_a_provider_that_is_down_is_missed_only_in_time(provider_folder: Path) -> None:
    with running(provider_folder) as provider:
        provider.rotate(new_key("second"))
        unknown = provider.token()
        provider.rotate(KEY)
        gateway = checked(provider)
        token, other = provider.token(ttl_s=int(2 * KEEP_S)), provider.token(ttl_s=int(2 * KEEP_S))
        assert gateway.login(token).name == "ann"

    gateway.clock.ahead_s = KEEP_S - 10.0
    assert gateway.login(other).name == "ann"  # by the key that is there
    with pytest.raises(IdentityProviderUnavailable):  # nobody can tell whether there is such a key
        gateway.login(unknown)
    gateway.clock.ahead_s = KEEP_S + 1.0
    for former in (token, other):
        with pytest.raises(IdentityProviderUnavailable, match="does not answer"):
            gateway.login(former)


def test_a_provider_that_was_never_reached_and_comes_back(provider_folder: Path) -> None:
    with running(provider_folder) as provider:
        token, port, key = provider.token(), int(provider.issuer.rpartition(":")[2]), provider.key
    gateway = checked(provider)
    with pytest.raises(IdentityProviderUnavailable) as refused:
        gateway.login(token)
    assert refused.value.code == "IDENTITY_PROVIDER_UNAVAILABLE"

    with running(provider_folder, port, key):
        gateway.clock.ahead_s = RETRY_S
        assert gateway.login(token).name == "ann"


def test_a_slow_provider_holds_few_logins_up(provider: OidcProvider) -> None:
    provider.control(delay_s=1.0)
    gateway = checked(provider)
    tokens = [provider.token() for _ in range(MOST_WAITING + 4)]

    def outcome(token: str) -> str:
        try:
            return gateway.login(token).name
        except IdentityProviderUnavailable:
            return "later"

    with ThreadPoolExecutor(len(tokens)) as pool:
        outcomes = sorted(pool.map(outcome, tokens))

    assert outcomes == ["ann"] * MOST_WAITING + ["later"] * 4
    assert gateway.fetches == 1


def test_a_provider_that_takes_too_long_is_given_up(provider: OidcProvider) -> None:
    provider.control(delay_s=1.0)
    with pytest.raises(DocumentFault, match="Timeout"):
        Provider(provider.issuer, 0.2).fetch()


def test_a_provider_under_another_name_is_refused(provider: OidcProvider) -> None:
    with pytest.raises(DocumentFault, match=r"of the issuer 'http://127\.0\.0\.1"):
        Provider(provider.issuer.replace("127.0.0.1", "localhost"), 3.0).fetch()


def test_the_doctor_asks_the_provider(provider: OidcProvider, tmp_path: Path) -> None:
    def check(issuer: str) -> CheckResult:
        oidc = OidcSettings(issuer=issuer, audience=(AUDIENCE,))
        settings = load(tmp_path, authentication=AuthenticationSettings(oidc=oidc))
        (result,) = [result for result in examine(settings) if result.subject == "Identity provider"]
        return result

    assert check(provider.issuer) == CheckResult("Identity provider", True, f"{provider.issuer}: 1 keys")
    for issuer in ("http://127.0.0.1:1", "http://idp.example", f"{provider.issuer}/other"):
        assert (check(issuer).good, check(issuer).needed) == (False, True)


# ---------------------------------------------------------------------- forged tokens


def with_public_key_as_secret() -> str:
    """Return a token that is signed with HS256, and the public key in the place of a secret."""
    header = base64url(json.dumps({"alg": "HS256", "kid": "first", "typ": "JWT"}).encode())
    signed = f"{header}.{forged().split('.')[1]}"
    assert isinstance(KEY, jwk.RSAKey)
    pem = KEY.as_pem(private=False)
    return f"{signed}.{base64url(hmac.digest(pem, signed.encode(), hashlib.sha256))}"


def without_signature(algorithm: str) -> str:
    header = base64url(json.dumps({"alg": algorithm, "kid": "first", "typ": "JWT"}).encode())
    return f"{header}.{forged().split('.')[1]}."


def tampered() -> str:
    header, _, signature = forged().split(".")
    claims = forged(claims={"preferred_username": "admin"}).split(".")[1]
    return f"{header}.{claims}.{signature}"


NOW = int(time.time())
FORGED: dict[str, tuple[Callable[[], str], str]] = {
    "alg none": (lambda: without_signature("none"), "it is not signed with RS256"),
    "alg None": (lambda: without_signature("None"), "it is not signed with RS256"),
    "public key as secret": (with_public_key_as_secret, "it is not signed with RS256"),
    "no signature": (lambda: without_signature("RS256"), "its signature is wrong"),
    "tampered": (tampered, "its signature is wrong"),
    "own key": (lambda: forged(key=new_key("first")), "its signature is wrong"),
    "own key in the header": (
        lambda: forged({"jwk": OTHER.as_dict(private=False)}, key=OTHER),
        "its signature is wrong",
    ),
    "own key at an address": (
        lambda: forged({"jku": "https://evil.example/jwks"}, key=OTHER),
        "its signature is wrong",
    ),
    "kid of another": (lambda: forged({"kid": "ec"}), "its algorithm is not that of its key"),
    "kid of no key": (lambda: forged({"kid": "../../etc/passwd"}), "has no key of its key id"),
    "kid of a number": (lambda: odd_header({"alg": "RS256", "kid": 1}), "it names no key id"),
    "no kid": (lambda: forged({"kid": None}), "it names no key id"),
    "another algorithm": (lambda: forged({"alg": "RS512"}), "it is not signed with RS256, ES256, EdDSA"),
    "algorithm of another kind of key": (lambda: forged({"alg": "ES256", "kid": "ec"}, key=EC), ""),
    "a list of algorithms": (lambda: odd_header({"alg": ["RS256"], "kid": "first"}), "it is not signed with"),
    "critical extension": (lambda: odd_header({"alg": "RS256", "kid": "first", "crit": ["x"], "x": 1}), "extensions"),
    "logout token": (lambda: forged({"typ": "logout+jwt"}), "its type is not that of an access or id token"),
    "another issuer": (lambda: forged(claims={"iss": "https://evil.example"}), "it is of another issuer"),
    "issuer with a slash more": (lambda: forged(claims={"iss": f"{ISSUER}/"}), "it is of another issuer"),
    "another audience": (lambda: forged(claims={"aud": ["a", "b"]}), "its audience"),
    "no audience": (lambda: forged(claims={"aud": None}), "it has no claim aud"),
    "no subject": (lambda: forged(claims={"sub": None}), "it has no claim sub"),
    "no end": (lambda: forged(claims={"exp": None}), "it has no claim exp"),
    "an end that is no number": (lambda: forged(claims={"exp": "tomorrow"}), "its claim exp is wrong"),
    "an end that is NaN": (lambda: forged(claims={"exp": float("nan")}), "its claim exp is wrong"),
    "too early": (lambda: forged(claims={"nbf": NOW + 3_600}), "it is not valid yet"),
    "made tomorrow": (lambda: forged(claims={"iat": NOW + 86_400}), "it was made in the future"),
    "bound to a key": (lambda: forged(claims={"cnf": {"jkt": "x"}}), "it is bound to a key of its client"),
    "no user name": (lambda: forged(claims={"preferred_username": None}), "gives no user name"),
    "a user name with a colon": (lambda: forged(claims={"preferred_username": ":ann"}), "cannot be used here"),
    "a user name with a line": (lambda: forged(claims={"preferred_username": "a\nb"}), "cannot be used here"),
    "a user name of a list": (lambda: forged(claims={"preferred_username": ["ann"]}), "gives no user name"),
    "a long user name": (lambda: forged(claims={"preferred_username": "a" * 129}), "more than 128 characters"),
    "groups that are none": (lambda: forged(claims={"groups": {"a": 1}}), "is not a list of texts"),
    "groups of numbers": (lambda: forged(claims={"groups": [1]}), "is not a text"),
    "too many groups for a token": (
        lambda: forged(claims={"groups": None, "_claim_names": {"groups": "src1"}}),
        "more groups than",
    ),
    "not base64": (lambda: "ey!!.ey!!.!!", "it is not a signed JWT"),
    "a number": (lambda: ".".join((base64url(b"1"), base64url(b"2"), "")), "it is not a signed JWT"),
    "deep": (lambda: ".".join((base64url(b"[" * 2_000), base64url(b"1"), "")), "it is not a signed JWT"),
    "deep claims": (
        lambda: ".".join((base64url(b'{"alg":"RS256","kid":"first"}'), base64url(b"[" * 9_000), "")),
        "it is not a signed JWT",
    ),
    "umlauts": (lambda: "eyü.eyü.ü", "it is not a signed JWT"),
    "five parts": (lambda: "eyJ.a.b.c.d", "it is not a signed JWT"),
    "one part": (lambda: "opaque", "it is not a signed JWT"),
    "empty": (lambda: "", "it is not a signed JWT"),
    "too long": (lambda: "ey" * LONGEST_TOKEN, "it has more than 16,384 characters"),
}


def odd_header(header: Mapping[str, Any]) -> str:
    return f"{base64url(json.dumps(header).encode())}.{forged().split('.')[1]}.AAAA"


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_token_lets_nobody_in(case: str, caplog: pytest.LogCaptureFixture) -> None:
    make, why = FORGED[case]
    gateway, token = of_keys(KEY, EC), make()
    if not why:  # the counterpart: the same form, and right
        assert gateway.login(token).name == "ann"
        return
    for _ in range(2):
        with pytest.raises(AuthenticationFailed) as refused:
            gateway.login(token)
        assert why in str(refused.value)
    refusals = [record.getMessage() for record in caplog.records if "192.0.2.7" in record.getMessage()]
    assert len(refusals) == 2
    assert not token or token not in caplog.text


def test_a_token_of_another_issuer_asks_nobody_for_keys() -> None:
    gateway = of_keys()
    with pytest.raises(AuthenticationFailed):
        gateway.login(forged({"kid": "new"}, {"iss": "https://evil.example"}))
    assert gateway.fetches == 0


def test_claims_may_be_nested_or_have_dots() -> None:
    nested = of_keys(groups_claim="realm_access.roles", username_claim="https://acme.example/name")
    token = forged(claims={"realm_access": {"roles": ["a"]}, "https://acme.example/name": "zoe", "groups": ["b"]})
    assert nested.login(token).groups == {"a"}
    assert nested.login(token).name == "zoe"
    assert nested.login(forged(claims={"https://acme.example/name": "zoe"})).groups == frozenset()


def test_an_address_of_mail_counts_only_if_it_is_verified() -> None:
    gateway = of_keys(username_claim="email")
    assert (
        gateway.login(forged(claims={"email": "ann@acme.example", "email_verified": True})).name == "ann@acme.example"
    )
    with pytest.raises(AuthenticationFailed, match="not verified"):
        gateway.login(forged(claims={"email": "ann@acme.example"}))


def test_a_token_in_the_place_of_a_password() -> None:
    gateway, token = of_keys(), forged()
    for name in ("token", "ann"):
        login = Login(name, token, ADDRESS)
        assert gateway.source.takes(login)
        assert gateway.source.authenticate(login).name == "ann"
    with pytest.raises(AuthenticationFailed, match="it is not of the user 'joe'; log in as token"):
        gateway.source.authenticate(Login("joe", token, ADDRESS))
    assert not gateway.source.takes(Login("joe", "ey, a password.", ADDRESS))


def test_a_login_never_shows_its_token() -> None:
    assert forged() not in repr(Login("token", forged(), "", token=forged()))


# ---------------------------------------------------------------------- documents of a provider


def test_keys_that_cannot_be_used_are_left_out() -> None:
    usable = KEY.as_dict(private=False)
    odd: list[Any] = [
        *(1, None, {}, {"kty": "RSA", "kid": "broken"}, {"kty": "new", "kid": "of a new kind"}),
        {"kty": "oct", "kid": "secret", "k": "c2VjcmV0"},
        {**usable, "kid": "for encryption", "use": "enc"},
        {**usable, "kid": None},
        {**usable, "kid": "short", "n": base64url(bytes([255] * 128))},
    ]
    assert list(keys_in({"keys": [*odd, usable]})) == ["first"]
    documents: list[dict[str, Any]] = [{"keys": odd}, {"keys": {}}, {}, {"keys": [usable] * 101}]
    for document in documents:
        with pytest.raises(DocumentFault):
            keys_in(document)
