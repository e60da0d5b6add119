"""Errors that keep a gateway from starting. Quick to import."""

from __future__ import annotations

import logging

from gateway.security.audit import JsonLines

ADDRESS_FILE, LOCK_FILE = "gateway.json", "gateway.lock"


class StartFailed(Exception):
    """Base of what a person can mend before a gateway starts; its message says how."""


class AlreadyServed(StartFailed):
    """Another process serves this home folder."""


class AddressInUse(StartFailed):
    """The address to listen on is taken."""


class CertificateInvalid(StartFailed):
    """The certificate or its key cannot be used."""


class RulesFileInvalid(StartFailed):
    """The file of routing rules is wrong; the message says where. Later, the last good one would hold on."""


class PolicyFileInvalid(StartFailed):
    """The access policy is wrong; the message says where. Later, the last good one would hold on."""


class KeytabInvalid(StartFailed):
    """The keytab cannot be read, or has no key of the gateway's principals; the message says which."""


class MissingExtra(StartFailed):
    """A configured engine's driver is not installed; the message says which extra brings it."""


def configure_logging(level: str, process: int | None = None, *, as_json: bool = False) -> None:
    """Log to standard error, one line per event. process: of several, which is told with each."""
    which = "" if process is None else f" [{process}]"
    logging.basicConfig(level=level, format=f"%(asctime)s %(levelname)s{which} %(name)s: %(message)s")
    if as_json:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonLines(process))
    for talkative in ("alembic.runtime", "httpx", "uvicorn.error"):  # many lines at a start, and one every few seconds
        logging.getLogger(talkative).setLevel(logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.ERROR)
