"""Reuse of memory that a process has freed."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pyarrow as pa

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_KEPT_BYTES = 1 << 30
_LARGEST_BYTES = 32 << 20  # glibc takes no more


def keep_freed_memory() -> None:
    """Keep what is freed, for the next column; arrays of a megabyte go back to the system otherwise, one by one.

    Getting their pages anew takes as long as sorting what is written there. Does nothing where the C library is not
    glibc.
    """
    with suppress(AttributeError, OSError, TypeError):
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
        allocator.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        pa.set_memory_pool(pa.system_memory_pool())
