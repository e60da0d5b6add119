"""A gateway: everything that one process holds, from the metastore to the engines."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from gateway.drivers.hs2.service import Service
from gateway.http.services import Services
from gateway.security.audit import AuditFile
from gateway.server import memory
from gateway.server.heartbeat import Heartbeat
from gateway.server.retention import Retention

log = logging.getLogger(__name__)

STOP_GRACE_S = 10.0


class Listener(Protocol):
    """A port beside HTTP's. Started after the gateway and stopped before it."""

    def start(self) -> None:
        """Begin to take connections."""

    def stop(self) -> None:
        """Close all connections."""


@dataclass(slots=True)
class Gateway(Services):
    """Built by ``wiring``; ``start`` and ``close`` are called once each.

    listeners: of the process that serves it, which adds them before the start.
    """

    hs2: Service
    heartbeat: Heartbeat
    listeners: list[Listener] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _audit: AuditFile | None = None

    def start(self) -> None:
        """Clean up after an earlier process, tell the engines their tables and begin to expire results."""
        several = self.siblings
        if self.settings.logging.audit:
            name = "audit.log" if several is None else f"audit-{several.number}.log"
            kept = self.settings.logging
            self._audit = AuditFile(
                self.settings.home / name, size_bytes=int(kept.audit_bytes), earlier=kept.audit_files
            )
        self.heartbeat.start()
        self.accounts.start(is_shared=self.peers is not None)
        self.coordinator.recover(alone=several is None)
        self.jobs.recover()
        self.catalog.current()
        self.schedules.start(
            submit=self.coordinator.submit,
            present=self.authenticator.present,
            deadline_s=self.settings.limits.deadline_s,
        )
        self.catalogs.start()
        self.planners.warm_up()
        self.hs2.start()
        memory.keep_giving_back(self._stopped)
        if several is None or not several.number:
            Retention(
                self.spool,
                self.metastore,
                results=self.settings.results,
                history=self.settings.history,
                stopping=self._stopped,
            ).start()
        self.heartbeat.look()
        for listener in self.listeners:
            listener.start()

    def close(self) -> None:
        """Let drivers' statements end for a while, cancel what runs, stop the engines and close the metastore."""
        self._stopped.set()
        self.coordinator.stop_accepting()
        self.hs2.drain(grace_s=self.settings.hs2.drain_s)
        for listener in self.listeners:
            listener.stop()
        self.schedules.stop()
        self.catalogs.stop()
        self._hand_over()
        self.coordinator.stop(grace_s=STOP_GRACE_S)
        self.jobs.stop()
        self.planners.close()
        self.lake.close()
        self.objects.close()
        self.engines.close()
        self.accounts.stop()
        self.catalog.rights.stop()
        self.heartbeat.stop()
        self.metastore.close()
        if self._audit is not None:
            self._audit.close()

    def _hand_over(self) -> None:
        """Leave running reads to the other gateways, if there are any."""
        try:
            if self.peers is not None and len(self.metastore.membership.members()) > 1:
                self.coordinator.hand_over()
        except SQLAlchemyError as error:
            log.warning("running queries cannot be left to the other gateways: %s", error)
