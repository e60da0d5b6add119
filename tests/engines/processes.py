"""Looking at real processes."""

from __future__ import annotations

import subprocess
import time


def is_running(pid: int) -> bool:
    """Tell whether a process runs; one that ended and was not yet waited for does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def ends_within(pid: int, seconds: float) -> bool:
    """Wait for a process to end."""
    give_up_s = time.monotonic() + seconds
    while is_running(pid):
        if time.monotonic() > give_up_s:
            return False
        time.sleep(0.05)
    return True
