"""Turns of logins that ask the directory, with a password or for the groups of a ticket's user."""

from __future__ import annotations

from gateway.security.lockout import Turns

AT_ONCE, WAITING = 8, 24  # logins that ask the directory, and that wait for their turn; each holds a thread
TOO_MANY = "Too many logins at once; try again."


def directory_turns() -> Turns:
    """Return the turns that all logins of one directory share."""
    return Turns(WAITING, AT_ONCE)
