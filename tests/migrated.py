"""Databases of tests that were migrated once: each migration anew would be a third of the time of many tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine

from metastore.database.connection import make_engine, sqlite_file, sqlite_url


class MigratedOnce:
    """Fills new SQLite databases with a copy of the first one. Thread-safe.

    migrate: brings a database to the newest schema.
    template: path of the database that is copied.
    """

    def __init__(self, migrate: Callable[[Engine], None], template: Path) -> None:
        self._migrate = migrate
        self._template = template
        self._lock = threading.Lock()

    def __call__(self, engine: Engine) -> None:
        """Bring a database to the newest schema."""
        file = sqlite_file(engine.url.render_as_string(hide_password=False))
        with self._lock:
            if file is None or file.stat().st_size > 0:
                self._migrate(engine)
            else:
                file.write_bytes(self._content())

    def _content(self) -> bytes:
        if not self._template.exists():
            first = make_engine(sqlite_url(self._template))
            self._migrate(first)
            first.dispose()
        return self._template.read_bytes()
