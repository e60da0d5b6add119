"""Users as sessions in the metastore have them, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.security.principals import Principal
from metastore.members.sessions import SavedSession

IDENTITY = "identity"  # in a session's state: its user's groups, source of identity and expiry


def saved_session(session_id: str, user: Principal, state: Mapping[str, Any]) -> SavedSession:
    """Return a session of a user for the metastore. state: what its door has beside the user."""
    whole = {**state, **identity_state(user)}
    return SavedSession(session_id, user.name, user.authenticated, user.address, user.credential.hex(), whole)


def identity_state(user: Principal) -> Mapping[str, Any]:
    """Return what the state of a session has of its user."""
    if not user.source:
        return {}
    return {IDENTITY: {"groups": sorted(user.groups), "source": user.source, "expires_at": user.expires_at}}


def user_of(saved: SavedSession) -> Principal:
    """Return the user of a session, with the rights of nobody yet."""
    identity = saved.state.get(IDENTITY, {})
    return Principal(
        saved.user,
        authenticated=saved.authenticated,
        address=saved.address,
        credential=bytes.fromhex(saved.credential),
        groups=frozenset(identity.get("groups", ())),
        source=identity.get("source", ""),
        expires_at=identity.get("expires_at"),
    )
