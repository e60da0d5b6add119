"""Settings of sources of identity beside the users file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from engines.adapter import Section
from gateway.security.authentication import is_loopback

Qop = Literal["auth", "auth-int", "auth-conf"]
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]

PRINCIPAL = r"^([^/@\s]+/[^/@\s]+(@[^/@\s]+)?)?$"


class OidcSettings(Section):
    """An OpenID Connect provider, whose signed tokens let users in; needs the extra `sso`."""

    issuer: str | None = None
    """Address of the provider, exactly as its tokens name it (`iss`); without it, tokens are ignored."""
    audience: tuple[str, ...] = ()
    """Names of this gateway at the provider; a token must be made for one of them (`aud`)."""
    username_claim: str = Field("sub", min_length=1)
    """Claim that is the user's name; choose one that the provider gives to nobody else, and users cannot change."""
    groups_claim: str = "groups"
    """Claim with the user's groups; a dot leads into an object (`realm_access.roles`). Empty: none."""
    algorithms: tuple[Algorithm, ...] = Field(("RS256", "ES256", "EdDSA"), min_length=1)
    """Algorithms of signatures that are accepted; all have a public key."""
    clock_skew_s: float = Field(60.0, ge=0.0, le=300.0)
    """Difference of the provider's clock that is forgiven; a token lasts that much longer."""
    keys_refresh_s: float = Field(900.0, ge=10.0)
    """Age at which the provider's keys are fetched again; a token under an unknown key has that done at once."""
    keys_keep_s: float = Field(86_400.0, ge=60.0)
    """Time for which keys are used while the provider does not answer; after that, no token lets anybody in."""
    timeout_s: float = Field(3.0, gt=0.0, le=30.0)
    """Time for each of the provider's two documents."""
    ca_file: Path | None = None
    """Certificates that are trusted for the provider in place of the system's, PEM."""

    client_id: str | None = None
    """Id of this gateway as the provider's client, for logins of browsers; without it, these ask for a password."""
    client_secret: SecretStr = SecretStr("")
    """Secret of that client; without it, it is a public one. PKCE is used with both."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    """Scopes that a login of a browser asks for; the ID token must have `username_claim` and `groups_claim` by them."""
    session_s: float | None = Field(None, ge=60.0)
    """Life of a browser's session; without it, that of the ID token."""

    @model_validator(mode="after")
    def _for_somebody(self) -> Self:
        if self.client_id is not None and self.issuer is None:
            raise ValueError("client_id needs issuer: the address of the provider that has the client")
        if self.client_id is not None and "openid" not in self.scopes:
            raise ValueError("scopes need openid among them, or the provider gives no ID token")
        if self.issuer is not None and not any(self.audience):
            raise ValueError("audience is missing: without it, tokens for other services would let their users in")
        return self


class LdapSettings(Section):
    """An LDAP directory, which checks names and passwords of users who are not in the users file; needs `sso`."""

    servers: tuple[str, ...] = ()
    """Its servers, `ldaps://HOST` or `ldap://HOST:PORT`, the first one first; without any, there is no directory."""
    start_tls: bool = False
    """Connections to `ldap://` are encrypted before anything else."""
    allow_plain: bool = False
    """Passwords may go unencrypted to servers on other machines."""
    ca_file: Path | None = None
    """Certificates that are trusted for the servers in place of the system's, PEM."""
    user_dn: str = ""
    """Distinguished name of users, with {name} in it: `uid={name},ou=people,dc=example,dc=com`. Without it, they are
    searched."""
    user_base: str = ""
    """Entry below which users are searched."""
    user_filter: str = "(uid={name})"
    """Filter of that search."""
    user_attribute: str = "uid"
    """Attribute with the user's name, which becomes the name here, in small letters."""
    bind_dn: str = ""
    """Account that searches users and groups; without it, nobody's login searches users, and the user's groups."""
    bind_password: SecretStr = SecretStr("")
    """Password of that account."""
    group_base: str = ""
    """Entry below which groups are searched; without it, users have none."""
    group_filter: str = "(member={dn})"
    """Filter of groups, with {dn} of a member in it, or {name} of a user (`(memberUid={name})`)."""
    group_attribute: str = "cn"
    """Attribute with the group's name."""
    group_depth: int = Field(5, ge=0, le=20)
    """Levels of groups in groups; 0: only groups that have the user as a member."""
    timeout_s: int = Field(3, ge=1, le=30)
    """Time for a connection, and for each answer."""
    keep_s: float = Field(60.0, ge=0.0, le=3_600.0)
    """Time for which a password is remembered, a wrong one, too; that long a user who was removed can come in."""
    session_s: float = Field(28_800.0, gt=0.0)
    """Longest life of a driver's session before its user has to log in again."""

    @field_validator("servers")
    @classmethod
    def _addresses(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            parsed = urlsplit(server)
            if parsed.scheme not in ("ldap", "ldaps") or not parsed.hostname or parsed.path or parsed.username:
                raise ValueError(f"{server} is not an address such as ldaps://ldap.example.com")
        return servers

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.servers:
            return self
        if bool(self.user_dn) == bool(self.user_base):
            raise ValueError("set user_dn or user_base, and not both")
        for name, text, part in (
            ("user_dn", self.user_dn, "{name}"),
            ("user_filter", self.user_filter, "{name}"),
            ("group_filter", self.group_filter, "{dn}" if "{dn}" in self.group_filter else "{name}"),
        ):
            if text and part not in text:
                raise ValueError(f"{name} has no {part} in it, so that it would be the same for everybody")
        if bool(self.bind_dn) != bool(self.bind_password.get_secret_value()):
            raise ValueError("bind_dn and bind_password belong together")
        plain = [server for server in self.servers if server.startswith("ldap:") and not self.start_tls]
        open_to_others = [server for server in plain if not _is_here(server)]
        if open_to_others and not self.allow_plain:
            raise ValueError(
                f"{open_to_others[0]} would get passwords unencrypted: use ldaps://, or set start_tls or allow_plain"
            )
        return self


class KerberosSettings(Section):
    """Users who log in with Kerberos tickets, over HiveServer2 and HTTP; needs the extra `kerberos`."""

    keytab: Path | None = None
    """File with the keys of the gateway's principals; without it, tickets are ignored."""
    principal: str = Field("hive/_HOST", pattern=PRINCIPAL)
    """Principal of the port of drivers, with its realm or not; `_HOST` is this machine's full name. Empty: none."""
    http_principal: str = Field("HTTP/_HOST", pattern=PRINCIPAL)
    """Principal for HTTP (SPNEGO), from the same keytab; browsers and curl always ask for `HTTP/`. Empty: none."""
    realms: tuple[str, ...] = ()
    """Realms whose principals are users, by their names without the realm; empty: the realm of `principal` alone."""
    services: tuple[str, ...] = ()
    """Programs that may log in: `etl` for principals such as `etl/host@REALM`, which become the user `etl`."""
    qop: Qop = "auth"
    """Protection of drivers' connections by a ticket: `auth` none, `auth-int` signed, `auth-conf` encrypted."""
    keep_s: float = Field(60.0, ge=0.0, le=3_600.0)
    """Time for which a user's groups, which the directory of `authentication.ldap` has, are remembered."""


def _is_here(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    return host == "localhost" or is_loopback(host)
