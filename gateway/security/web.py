"""Protection against requests that pages of other sites send through a user's browser.

Such a page can have its own name resolve to this machine (DNS rebinding): its requests then carry that name, which is
refused. It can also send requests to our name: those that change something carry its origin.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache

from gateway.errors import BadRequest, CrossSiteRequest, UnknownHost
from sql.errors import Failure

ANY = "*"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LONGEST_SHOWN = 80
LOOKUP_S = 2.0
"""Longest wait, at the start, for the resolver to find the machine's full name."""

SECURITY_HEADERS: Mapping[str, str] = {  # of every reply; pages have a policy of their own
    "Content-Security-Policy": ("default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PAGE_POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"


def page_policy(style_nonce: str) -> str:
    """Return the policy of a page. style_nonce: of the style elements that its scripts may add; empty: none."""
    return f"{PAGE_POLICY}; style-src 'self' 'nonce-{style_nonce}'" if style_nonce else PAGE_POLICY


@cache
def machine_names() -> frozenset[str]:
    """Return the machine's own names, and its full name where the resolver finds it soon enough."""
    name = socket.gethostname().lower().rstrip(".")
    short = name.partition(".")[0]
    return frozenset({name, short, f"{short}.local", _full_name(short)}) - {"", ".local"}


def _full_name(short: str) -> str:
    """Return the machine's name with its domain; empty where there is none.

    A name server may take long: its answer is awaited for ``LOOKUP_S`` at most. The first part of the name must be the
    machine's own.
    """
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(socket.getfqdn()), name="host name", daemon=True)
    asking.start()
    asking.join(LOOKUP_S)
    full = answers[0].lower().rstrip(".") if answers else ""
    return full if full.partition(".")[0] == short else ""


class BrowserRules:
    """Rules for requests of browsers.

    hosts: the gateway's names, beside loopback and addresses; ``*``: any name.
    origins: origins of other pages that may change something.
    """

    def __init__(self, hosts: Iterable[str], origins: Iterable[str] = ()) -> None:
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def refusal(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> Failure | None:
        """Return the reason to refuse a request, or None. headers: names in lower case."""
        values: dict[bytes, str] = {}
        for name, value in headers:
            if name in (b"host", b"origin", b"sec-fetch-site"):
                if name in values:
                    return BadRequest(f"The request has the header {name.decode()} twice.").failure
                values[name] = value.decode("latin-1").strip().lower()
        host = values.get(b"host", "")
        if host and not self._is_ours(_name_of(host)):
            return UnknownHost(
                f"The gateway does not have the name {host[:LONGEST_SHOWN]}. An operator can add it to server.hosts."
            ).failure
        if method in SAFE_METHODS:
            return None
        origin = values.get(b"origin")
        if origin is not None and origin.partition("://")[2] != host and origin not in self._origins:
            return _cross_site(origin)
        site = values.get(b"sec-fetch-site", "none")
        if origin is None and site not in ("none", "same-origin"):
            return _cross_site(site)
        return None

    def _is_ours(self, name: str) -> bool:
        if ANY in self._hosts or name in self._hosts or name == "localhost" or name.endswith(".localhost"):
            return True
        return _is_address(name)  # no name server is asked about it


@lru_cache(256)
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _cross_site(source: str) -> Failure:
    return CrossSiteRequest(
        f"A page of another site ({source[:LONGEST_SHOWN]}) may not change anything here. An operator can add its "
        "origin to server.origins."
    ).failure


def _name_of(host: str) -> str:
    """Return the name or address in a Host header; all of it where what follows the name is no port."""
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        name = name.partition("%")[0]
    elif host.count(":") <= 1:
        name, _, port = host.partition(":")
    else:
        return host
    return name.rstrip(".") if not port or port.removeprefix(":").isdecimal() else host
