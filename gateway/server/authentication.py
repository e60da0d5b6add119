"""The authenticator that the settings describe."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from gateway.security.authentication import UsersFile
from gateway.security.identity.authenticator import CombinedAuthenticator, Source
from gateway.security.identity.roles import Roles
from gateway.security.identity.service_accounts import ServiceAccountSource
from gateway.security.identity.settings import KerberosSettings, LdapSettings, OidcSettings
from gateway.security.lockout import Lockout, Turns, directory_turns
from gateway.security.principals import Role
from gateway.server.startup import KeytabInvalid, MissingExtra
from gateway.settings import AuthenticationSettings
from metastore.members.logins import Logins
from metastore.members.sessions import DriverSessions

if TYPE_CHECKING:
    from gateway.security.identity.browser_login import BrowserLogin
    from gateway.security.identity.directory import Directory
    from gateway.security.identity.kerberos import TicketAcceptor
    from gateway.security.identity.provider import Provider
    from gateway.security.identity.tokens import TokenSource

DOCUMENTS = 2  # of a provider, until its keys are there
KERBEROS_EXTRA = (
    "pip install 'fusion-sql-gateway[kerberos]', which needs gcc and the headers of Kerberos "
    "(apt-get install gcc libkrb5-dev)"
)


def authenticator_of(
    settings: AuthenticationSettings, logins: Logins, accounts: ServiceAccountSource
) -> CombinedAuthenticator:
    """Return the authenticator. Raises MissingExtra, KeytabInvalid, UsersFileInvalid."""
    anonymous_role = settings.anonymous_role
    if anonymous_role is None and settings.has_users:
        anonymous_role = Role.READER
    lockout = Lockout()
    users = UsersFile(
        settings.users_file,
        anonymous=settings.anonymous,
        operators=settings.operators,
        roles=settings.roles,
        default_role=settings.default_role,
        anonymous_role=anonymous_role,
        lockout=lockout,
    )
    sources = _sources(settings, lockout)
    by_name = {**dict.fromkeys(settings.operators, Role.OPERATOR), **settings.roles}
    roles = Roles(by_name, settings.group_roles, settings.default_role)
    tickets = _acceptor(settings.kerberos) if settings.kerberos.keytab is not None else None
    required = settings.required_groups
    return CombinedAuthenticator(users, accounts, sources, roles, logins, required_groups=required, tickets=tickets)


def _sources(settings: AuthenticationSettings, lockout: Lockout) -> list[Source]:
    """Return the sources in the order in which they are asked. Raises MissingExtra."""
    sources: list[Source] = []
    try:
        if settings.oidc.issuer is not None:
            sources.append(_tokens(settings.oidc))
        directory, turns = directory_of(settings.ldap) if settings.ldap.servers else None, directory_turns()
        if settings.kerberos.keytab is not None:
            sources.append(_tickets(settings, directory, turns))
        if directory is not None:
            sources.append(_passwords(settings.ldap, directory, turns, lockout))
    except ImportError as error:
        raise MissingExtra("users of other sources are configured: pip install 'fusion-sql-gateway[sso]'") from error
    return sources


def _acceptor(settings: KerberosSettings) -> TicketAcceptor:
    """Return the check of tickets. Raises MissingExtra, KeytabInvalid."""
    try:
        from gateway.security.identity.kerberos import KeytabFault

        acceptor = acceptor_of(settings)
    except ImportError as error:
        raise MissingExtra(f"users with Kerberos tickets are configured: {KERBEROS_EXTRA}") from error
    for principal in acceptor.principals:
        try:
            acceptor.check(principal)
        except KeytabFault as fault:
            raise KeytabInvalid(
                f"The keytab {settings.keytab} has no usable key of {principal}: {fault}. Correct "
                "authentication.kerberos, add the key to the file, or set the principal to an empty text."
            ) from fault
    return acceptor


def acceptor_of(settings: KerberosSettings) -> TicketAcceptor:
    """Return the check of tickets. Raises ImportError where its library is not installed."""
    from gateway.security.identity.kerberos import TicketAcceptor

    assert settings.keytab is not None
    host = socket.getfqdn().lower()
    principal, http_principal = (text.replace("_HOST", host) for text in (settings.principal, settings.http_principal))
    return TicketAcceptor(settings.keytab, principal, http_principal)


def directory_of(settings: LdapSettings) -> Directory:
    """Return a directory. Raises ImportError where its library is not installed."""
    from gateway.security.identity.directory import Access, Directory, Groups, Users

    return Directory(
        Access(settings.servers, settings.start_tls, settings.ca_file, settings.timeout_s),
        Users(
            settings.user_dn,
            settings.user_base,
            settings.user_filter,
            settings.user_attribute,
            settings.bind_dn,
            settings.bind_password.get_secret_value(),
        ),
        Groups(settings.group_base, settings.group_filter, settings.group_attribute, settings.group_depth),
    )


def _tickets(settings: AuthenticationSettings, directory: Directory | None, turns: Turns) -> Source:
    from gateway.security.identity.tickets import PrincipalRules, TicketSource

    kerberos = settings.kerberos
    groups_of = directory.groups_of if directory is not None and settings.ldap.group_base else None
    rules = PrincipalRules(kerberos.realms, kerberos.services)
    return TicketSource(rules, groups_of, keep_s=kerberos.keep_s, turns=turns)


def _passwords(settings: LdapSettings, directory: Directory, turns: Turns, lockout: Lockout) -> Source:
    from gateway.security.identity.passwords import PasswordSource

    return PasswordSource(directory, keep_s=settings.keep_s, session_s=settings.session_s, lockout=lockout, turns=turns)


def browser_login_of(
    settings: OidcSettings, authenticator: CombinedAuthenticator, sessions: DriverSessions
) -> BrowserLogin | None:
    """Return the login of browsers; None: they are asked for a password. Raises MissingExtra."""
    if settings.client_id is None:
        return None
    try:
        from gateway.security.identity.browser_login import BrowserLogin, Client
    except ImportError as error:
        raise MissingExtra("logins of browsers are configured: pip install 'fusion-sql-gateway[sso]'") from error

    tokens = _tokens(settings.model_copy(update={"audience": (settings.client_id,)}))
    secret = settings.client_secret.get_secret_value()
    client = Client(settings.client_id, secret, settings.scopes, settings.session_s)
    return BrowserLogin(client, _provider(settings), tokens, authenticator, sessions, keep_s=settings.keys_refresh_s)


def _provider(settings: OidcSettings) -> Provider:
    from gateway.security.identity.provider import Provider

    assert settings.issuer is not None
    return Provider(settings.issuer, settings.timeout_s, settings.ca_file)


def _tokens(settings: OidcSettings) -> TokenSource:
    from gateway.security.identity.provider import ProviderKeys
    from gateway.security.identity.tokens import TokenSource, Trust

    assert settings.issuer is not None
    provider = _provider(settings)
    keys = ProviderKeys(
        provider.fetch,
        refresh_s=settings.keys_refresh_s,
        keep_s=settings.keys_keep_s,
        wait_s=DOCUMENTS * settings.timeout_s,
    )
    trust = Trust(
        issuer=settings.issuer,
        audience=settings.audience,
        algorithms=settings.algorithms,
        username_claim=settings.username_claim,
        groups_claim=settings.groups_claim,
        clock_skew_s=settings.clock_skew_s,
    )
    return TokenSource(trust, keys)
