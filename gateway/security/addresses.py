"""Addresses of services that decide about users and rights: nobody may read or change what they say on the way."""

from __future__ import annotations

from urllib.parse import urlsplit

from gateway.security.authentication import is_loopback


class AddressUnsafe(ValueError):
    """An address is no address, or others could read and change what is said there."""


def require_private(address: str) -> None:
    """Raise AddressUnsafe where an address is neither https nor of this machine."""
    try:
        parsed = urlsplit(address)
        host = parsed.hostname or ""
    except ValueError as error:
        raise AddressUnsafe(f"{address!r:.300} is not an address") from error
    if parsed.scheme != "https" and not (parsed.scheme == "http" and (host == "localhost" or is_loopback(host))):
        raise AddressUnsafe(f"{address!r:.300} is not https, and not on this machine")
    if parsed.username is not None or parsed.fragment:
        raise AddressUnsafe(f"the address of {host!r} has a login or a fragment")
