"""Heartbeats of gateways that share a metastore: each removes silent ones, and learns what the others changed."""

from __future__ import annotations

import logging
import math
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from engines.machine.private_files import open_private
from gateway.routing.admission.shares import Shares
from metastore.members.membership import TTL, Membership
from metastore.members.news import News

log = logging.getLogger(__name__)

BEAT_S = 1.0
SHORTEST_S = 0.02  # between two renewals
SHORTEST_WITHOUT_NEWS_S = 0.15  # the same on SQLite, which takes one writer at a time
SLOW_S = 2.0  # that a renewal takes, or comes late, from which the metastore counts as away
LOOK_S = 1.0  # between two looks at the others
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
    """Keeps this gateway a member of those that share the metastore, and removes silent ones.

    name: of the home folder; only one process has it at a time.
    solo: nobody else uses the metastore, and nothing is to be done but to join.
    shares: this gateway's part of all budgets, exchanged with each renewal.
    wanted: set by whoever wants an exchange soon: a statement waits, or others wait for what was given back here.
    take_over: function that takes over queries of gateways that are gone, or closes them.
    refresh: function that applies what other gateways recorded.
    lost: function that ends what runs here, since other gateways own it now.
    leaving: set while this gateway is about to stop, or drained; published for operators.
    """

    def __init__(
        self,
        name: str,
        membership: Membership,
        *,
        solo: bool,
        shares: Shares,
        wanted: threading.Event,
        take_over: Callable[[], object],
        refresh: Callable[[], object] = lambda: None,
        lost: Callable[[], object] = lambda: None,
        leaving: threading.Event | None = None,
        every_s: float = BEAT_S,
    ) -> None:
        self._name = name
        self.address = ""
        """Host and port at which other members reach this one; to be set before ``start``."""
        self._membership = membership
        self._solo = solo
        self._shares = shares
        self._wanted = wanted
        self._news = News(membership, wanted.set)
        self._looks = threading.Event()
        self._seen_s = -math.inf  # last look at the others
        self._take_over = take_over
        self._refresh = refresh
        self._lost = lost
        self._leaving = leaving or threading.Event()
        self._every_s = every_s
        self._thread = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)
        self._stopped = threading.Event()
        self._answers_since_s: float | None = None
        self._renewed_s = -math.inf

    def start(self) -> None:
        """Join, and renew until ``stop``; nothing more where that was done. Raises SQLAlchemyError."""
        if self._membership.current is not None:
            return
        self._membership.join(self._name, self.address, solo=self._solo)
        self._refresh()
        if not self._solo:
            self._shares.begin()
            self._renew()
            self._news.start()
            self._thread.start()

    def look(self) -> None:
        """Take over what others have left, and look at them from now on. Raises SQLAlchemyError."""
        self._take_over()
        self._looks.set()

    def stop(self) -> None:
        """Renew no more."""
        self._stopped.set()
        self._news.stop()
        self._wanted.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _beat_on(self) -> None:
        while True:
            tells = self._membership.tells_news
            self._wanted.wait(self._every_s if tells else self._every_s / 5)
            if self._stopped.wait(SHORTEST_S if tells else SHORTEST_WITHOUT_NEWS_S):
                return
            self._wanted.clear()
            try:
                self.beat()
            except SQLAlchemyError as error:
                self._answers_since_s = None
                log.warning("no sign of life could be given: %s", error)
            except Exception:  # a defect must not make this gateway dead
                log.exception("the look at the other gateways failed")

    def beat(self) -> None:
        """Renew, or join again, and look at the others once in a while. Raises SQLAlchemyError."""
        began_s = time.monotonic()
        if not self._renew():
            log.warning("other gateways took this one for dead: its statements are theirs")
            self._lost()
            self._membership.join(self._name, self.address)
            self._shares.begin()
            self._renew()
        now_s = time.monotonic()
        if self._answers_since_s is None or now_s - began_s > SLOW_S or began_s - self._renewed_s > SLOW_S:
            self._answers_since_s = now_s  # whoever waits for an answer cannot renew either
        self._renewed_s = now_s
        if self._looks.is_set() and now_s - self._seen_s >= LOOK_S:
            self._seen_s = now_s
            self._look(now_s)

    def _renew(self) -> bool:
        return self._membership.renew(self._shares, is_leaving=self._leaving.is_set())

    def _look(self, now_s: float) -> None:
        """Apply what others changed, and judge them.

        They are judged only while the metastore has answered for long enough for all to renew: after it was away, all
        of them seem silent.
        """
        self._refresh()
        if self._answers_since_s is not None and now_s - self._answers_since_s >= TTL.total_seconds():
            for member in self._membership.remove_silent():
                log.warning("gateway %s gave no sign of life and was removed", member)
        self._take_over()
