"""Starting: what can keep a gateway from it, and where one that has started is found. Quick to import."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import httpx

from gateway.client import trusting

ADDRESS_FILE = "gateway.json"


class StartFailed(Exception):
    """Base of what a person can mend before a gateway starts; its message says how."""


class AlreadyServed(StartFailed):
    """Another process serves this home folder."""


class AddressInUse(StartFailed):
    """The address to listen on is taken."""


class CertificateInvalid(StartFailed):
    """The certificate or its key cannot be used."""


class MissingExtra(StartFailed):
    """A configured engine's driver is not installed; the message says which extra brings it."""


def configure_logging(level: str) -> None:
    """Log to standard error, one line per event."""
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    logging.getLogger("apscheduler").setLevel(logging.WARNING)


def running_address(home: Path) -> str | None:
    """Return the address of the gateway that serves a home, None where none does."""
    try:
        told = json.loads((home / ADDRESS_FILE).read_text(encoding="utf-8"))
        url = str(told["url"])
        certificate = Path(told["certificate"]) if told.get("certificate") else None
        httpx.get(f"{url}/livez", timeout=2.0, verify=trusting(certificate)).raise_for_status()
    except (OSError, ValueError, LookupError, httpx.HTTPError):
        return None
    return url
