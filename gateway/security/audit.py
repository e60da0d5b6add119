"""Events of security: to the log, and with ``logging.audit`` to a file of their own that rotates.

Logins, refusals and changes over HTTP are events; so is the end of each statement, which the log tells by itself. The
file has one JSON object per line and, unlike the log, the texts of statements.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from engines.machine.private_files import private_file

security = logging.getLogger("fusion.security")
file_log = logging.getLogger("fusion.audit")
file_log.propagate = False
file_log.setLevel(logging.INFO)
LONGEST_TEXT = 16 << 10  # characters of a statement


class JsonLines(logging.Formatter):
    """Formats each record as a JSON object: time, level, logger and message, and the fields of ``extra``."""

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return a line."""
        written: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._process is not None:
            written["process"] = self._process
        written.update(getattr(record, "fields", {}))
        if record.exc_info:
            written["exception"] = self.formatException(record.exc_info)
        return json.dumps(written, default=str)


class _PrivateFile(RotatingFileHandler):
    """Rotating file that only the gateway's own user may read."""

    def _open(self) -> TextIOWrapper:
        private_file(Path(self.baseFilename))
        return super()._open()


class AuditFile:
    """The file, open until ``close``. earlier: files that are kept beside it. Raises OSError."""

    def __init__(self, file: Path, *, size_bytes: int, earlier: int) -> None:
        self._handler = _PrivateFile(file, maxBytes=size_bytes, backupCount=earlier, encoding="utf-8")
        self._handler.setFormatter(JsonLines())
        file_log.addHandler(self._handler)

    def close(self) -> None:
        """Close the file."""
        file_log.removeHandler(self._handler)
        self._handler.close()


def is_kept() -> bool:
    """Tell whether there is an audit file."""
    return any(isinstance(handler, _PrivateFile) for handler in file_log.handlers)


def note(event: str, user: str, address: str, *, allowed: bool, what: str, text: str = "", **fields: object) -> None:
    """Log an event of security, refusals as warnings. what: completes ``may`` or ``may not``. text: in their place."""
    level, verb = (logging.INFO, "may") if allowed else (logging.WARNING, "may not")
    text = text or f"{user} ({address or 'here'}) {verb} {what}"
    named = {"event": event, "user": user, "address": address, "allowed": allowed, "what": what, **fields}
    for logger in (security, file_log) if is_kept() else (security,):
        logger.log(level, "%s", text, extra={"fields": named})


def note_statement(user: str, address: str, *, allowed: bool, sql: str, **fields: object) -> None:
    """Write the end of a statement into the audit file, if there is one."""
    if is_kept():
        named = {"event": "statement", "user": user, "address": address, "allowed": allowed}
        shown = sql if len(sql) <= LONGEST_TEXT else sql[:LONGEST_TEXT] + "..."
        file_log.info("statement of %s", user, extra={"fields": {**named, **fields, "sql": shown}})
