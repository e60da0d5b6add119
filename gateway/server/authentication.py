"""The authenticator that the settings describe."""

from __future__ import annotations

from gateway.security.authentication import UsersFile
from gateway.security.identity.authenticator import Authenticator, CombinedAuthenticator, Source
from gateway.security.identity.roles import Roles
from gateway.security.identity.settings import OidcSettings
from gateway.security.principals import Role
from gateway.server.startup import MissingExtra
from gateway.settings import AuthenticationSettings
from metastore.members.logins import Logins

DOCUMENTS = 2  # of a provider, until its keys are there


def authenticator_of(settings: AuthenticationSettings, logins: Logins) -> Authenticator:
    """Return the authenticator. Raises MissingExtra, UsersFileInvalid."""
    anonymous_role = settings.anonymous_role
    if anonymous_role is None and settings.has_users:
        anonymous_role = Role.READER
    users = UsersFile(
        settings.users_file,
        anonymous=settings.anonymous,
        operators=settings.operators,
        roles=settings.roles,
        default_role=settings.default_role,
        anonymous_role=anonymous_role,
    )
    sources = _sources(settings)
    if not sources:
        return users
    by_name = {**dict.fromkeys(settings.operators, Role.OPERATOR), **settings.roles}
    roles = Roles(by_name, settings.group_roles, settings.default_role)
    return CombinedAuthenticator(users, sources, roles, logins, required_groups=settings.required_groups)


def _sources(settings: AuthenticationSettings) -> list[Source]:
    try:
        return [_tokens(settings.oidc)] if settings.oidc.issuer is not None else []
    except ImportError as error:
        raise MissingExtra("authentication.oidc is configured: pip install 'fusion-sql-gateway[sso]'") from error


def _tokens(settings: OidcSettings) -> Source:
    from gateway.security.identity.provider import Provider, ProviderKeys
    from gateway.security.identity.tokens import TokenSource, Trust

    assert settings.issuer is not None
    provider = Provider(settings.issuer, settings.timeout_s, settings.ca_file)
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
