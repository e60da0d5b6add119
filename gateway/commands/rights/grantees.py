"""Grantees in statements about rights: users, groups, roles and everybody."""

from __future__ import annotations

from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.security.access.rules import EVERYBODY, GROUP, ROLE, USER, AccessRules
from sql.dialects.names import IMPALA
from sql.errors import NotAllowed, UnknownRole
from sql.names import did_you_mean

LONGEST = 200
KINDS = {"USER": USER, "GROUP": GROUP, "ROLE": ROLE}
NO_POLICY = (
    "There are no rights to give or take away: everybody may read every table. Set access.closed or "
    "access.policy_file first, which say what only grants open."
)


def grantee(reader: Reader) -> str:
    """Read ``[USER | GROUP | ROLE] name``, ``PUBLIC``, or a grantee as the policy file has it.

    A name alone is a user's; in Impala's dialect, a role's.
    """
    prefix = next((prefix for word, prefix in KINDS.items() if reader.accept(word)), None)
    if prefix is None and reader.accept("PUBLIC"):
        return EVERYBODY
    name = name_of(reader)
    if prefix is None and (name == EVERYBODY or name.startswith((USER, GROUP, ROLE))):
        return name
    return f"{prefix or (ROLE if reader.dialect == IMPALA else USER)}{name}"


def name_of(reader: Reader) -> str:
    """Read the name of a user, group or role. Raises NotAllowed for one that cannot be used."""
    token = reader.peek()
    name = reader.text_or_name("a name")
    if not name or len(name) > LONGEST or not name.isprintable():
        message = f"Such a name has at most {LONGEST} characters, all of which can be printed."
        raise NotAllowed(message, reader.position(token))
    return name


def require_roles(rules: AccessRules, grantees: tuple[str, ...]) -> None:
    """Raise UnknownRole for a role that there is not. grantees: of which some may be roles."""
    for one in grantees:
        name = one.removeprefix(ROLE)
        if one.startswith(ROLE) and name not in rules.roles:
            raise UnknownRole(f"There is no role {name}{did_you_mean(name, rules.roles)} CREATE ROLE makes one.")


def rules_of(services: CommandServices) -> AccessRules:
    """Return the rules of now. Raises NotAllowed where there are none, so that a right would mean nothing."""
    rights = services.catalog.rights
    if not rights.is_on:
        raise NotAllowed(NO_POLICY)
    services.catalog.current()
    return rights.rules()
