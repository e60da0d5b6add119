"""Heartbeats of gateways that share a metastore: each closes the queries of dead ones, and learns what they changed."""

from __future__ import annotations

import datetime as dt
import logging
import secrets
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from engines.machine.private_files import open_private
from metastore.repositories.gateways import Gateways

log = logging.getLogger(__name__)

BEAT_S = 10.0
ID_FILE = "gateway.id"
LONGEST_HOST = 40


def gateway_id(home: Path) -> str:
    """Return the id of a home folder's gateway in the metastore, the same after each start."""
    file = home / ID_FILE
    try:
        name = file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        name = ""
    if not name:
        name = f"{socket.gethostname()[:LONGEST_HOST]}-{secrets.token_hex(8)}"
        with open_private(file) as output:
            output.write(name.encode("ascii", "replace"))
    return name


class Heartbeat:
    """Records heartbeats of one gateway.

    close_dead: function that closes queries of gateways without heartbeats.
    refresh: function that applies what other gateways recorded.
    """

    def __init__(
        self,
        gateway: str,
        gateways: Gateways,
        close_dead: Callable[[], object],
        refresh: Callable[[], object] = lambda: None,
        *,
        every_s: float = BEAT_S,
    ) -> None:
        self._gateway = gateway
        self._gateways = gateways
        self._close_dead = close_dead
        self._refresh = refresh
        self._every_s = every_s
        self._stopped = threading.Event()

    def start(self) -> None:
        """Send the first heartbeat, and others until ``stop``. Raises SQLAlchemyError."""
        self._beat()
        threading.Thread(target=self._beat_on, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Stop the heartbeats; open records of this gateway have no owner from now on."""
        self._stopped.set()
        try:
            self._gateways.forget(self._gateway)
        except SQLAlchemyError as error:
            log.warning("the metastore does not know that this gateway has ended: %s", error)

    def _beat(self) -> None:
        self._gateways.seen(self._gateway, at=dt.datetime.now(dt.UTC))
        self._refresh()

    def _beat_on(self) -> None:
        """Judge others only while the metastore answers all the time: after it was away, all of them seem silent."""
        answered = False
        while not self._stopped.wait(self._every_s):
            try:
                self._beat()
                if answered:
                    self._close_dead()
                answered = True
            except SQLAlchemyError as error:
                answered = False
                log.warning("no sign of life could be given: %s", error)
