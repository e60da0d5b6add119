"""Release of free memory: memory that Arrow and the C library hold after a peak goes back to the system.

Rows are Arrow's and replies are Python's; both come from the C library here, since its ``malloc_trim`` gives back free
memory of every thread. Arrow's own allocator gives back only what the calling thread had.
"""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

import pyarrow as pa

CHECK_S = 5.0
GROWTH_BYTES = 16 << 20  # since memory was given back last, from which on that is worth the time
ARENAS = 4  # of the C library; by default one for each thread, up to eight for each processor
_STATM = Path("/proc/self/statm")
_M_ARENA_MAX = -8  # of mallopt


def resident_bytes() -> int:
    """Return the memory that the process has in use; zero where the system does not tell."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def use_system_allocator() -> None:
    """Have Arrow take memory from the C library, and that keep its free memory in few places."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_ARENA_MAX, ARENAS)
        pa.set_memory_pool(pa.system_memory_pool())


def give_back() -> None:
    """Give free memory back to the system, where the C library can."""
    pa.default_memory_pool().release_unused()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def keep_giving_back(stopping: threading.Event) -> None:
    """Give memory back, again and again until the end, whenever there is more of it than the last time."""

    def keep_house() -> None:
        settled_bytes = resident_bytes()
        while not stopping.wait(CHECK_S):
            if resident_bytes() > settled_bytes + GROWTH_BYTES:
                give_back()
                settled_bytes = min(settled_bytes + GROWTH_BYTES, resident_bytes())

    threading.Thread(target=keep_house, name="memory", daemon=True).start()
